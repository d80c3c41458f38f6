"""The program that starts the ranks, and the options that it, and not the script, gets.

torchrun (also `python -m torch.distributed.run` and `launch`), accelerate, deepspeed, mpirun, horovodrun;
else a Python program by itself. An option behind the script's name belongs to the script.

>>> found = launcher_of((("torchrun", "--nproc_per_node=8", "t.py", "--log-dir", "/x"),))
>>> found.tool, found.option("nproc-per-node"), found.script, found.arguments
('torchrun', '8', 't.py', ('--log-dir', '/x'))
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpufleet_cli.operate.preflight.shell import Words

TRAINERS = ("torchrun", "accelerate", "deepspeed", "mpirun", "horovodrun", "composer")

_TORCH = frozenset({"torch.distributed.run", "torch.distributed.launch", "torchrun"})
_FLAGS = frozenset(
    {
        "standalone", "no-python", "module", "run-path", "use-env", "version", "help",
        "multi-gpu", "use-deepspeed", "use-fsdp", "quiet", "debug", "main-process-only",
        "allow-run-as-root", "oversubscribe", "verbose", "report-bindings", "tag-output",
        "no-local-rank", "no-ssh", "force-multi", "autotuning", "same-network", "dynamo-use-dynamic",
        "use-megatron-lm", "cpu", "mpi", "use-xpu", "v",
    }
)  # fmt: skip
_SHORT = {"m": "module", "np": "np", "n": "np", "r": "redirects", "t": "tee"}
_MPI_TWO = frozenset({"mca", "gmca"})
_PYTHON = re.compile(r"(?:.*/)?python[\d.]*")
_PYTHON_VALUE = frozenset({"-W", "-X", "-c", "-m"})

SERVERS = re.compile(
    r"\bvllm(?:\s+serve\b|\.entrypoints)|\bsglang[. ]launch_server|\bsglang\s+serve\b|\btritonserver\b|\btext-generation-launcher\b"
    r"|\btrtllm-serve\b|\blmdeploy\s+serve\b|\btorchserve\b|\bollama\s+serve\b|\bllama-server\b|\bmlserver\b"
    r"|\buvicorn\b|\bgunicorn\b|\bserve\s+run\b|\btensorflow_model_server\b|\bdynamo\.\w+|\bhuggingfaceserver\b"
    r"|\btext-embeddings-router\b|\bmii\b.{0,40}serve|\blightllm\.server"
)
_TORCH_WORD = re.compile(
    r"torch|megatron|nemo|deepspeed|accelerate|lightning|fsdp|transformers|axolotl|llamafactory|verl\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """`options` are the launcher's own, spelled with dashes; a flag has the value "true"."""

    tool: str
    options: Mapping[str, str]
    script: str | None
    arguments: Words
    python_flags: Words = ()

    def option(self, *names: str) -> str | None:
        return next((self.options[name] for name in names if name in self.options), None)

    @property
    def is_trainer(self) -> bool:
        return self.tool in TRAINERS


def launcher_of(commands: Sequence[Words]) -> Launcher | None:
    """The first launcher among the commands, else the last Python program."""
    python: Launcher | None = None
    for words in commands:
        for index, word in enumerate(words):
            found = _at(words, index, word)
            if found is not None and found.is_trainer:
                return found
            if found is not None:
                python = found
                break
    return python


def is_torch(text: str) -> bool:
    """Whether a command or an image's name speaks of PyTorch or of what runs on it."""
    return _TORCH_WORD.search(text) is not None


def _at(words: Words, index: int, word: str) -> Launcher | None:
    name = word.rpartition("/")[2]
    begin = index + 1
    if name in ("torchrun", "deepspeed", "horovodrun", "composer"):
        return _launched(name, words[begin:])
    if name == "accelerate" and words[begin : begin + 1] == ("launch",):
        return _launched("accelerate", words[begin + 1 :])
    if name in ("mpirun", "mpiexec", "mpirun.openmpi", "mpiexec.hydra"):
        return _launched("mpirun", words[begin:])
    if _PYTHON.fullmatch(word) and index < 12:
        return _python(words[begin:])
    return None


def _python(rest: Words) -> Launcher | None:
    flags: list[str] = []
    for index, word in enumerate(rest):
        if word == "-m":
            module = rest[index + 1] if index + 1 < len(rest) else ""
            behind = rest[index + 2 :]
            if module in _TORCH:
                return _launched("torchrun", behind)
            if module.startswith("accelerate"):
                return _launched("accelerate", behind[1:] if behind[:1] == ("launch",) else behind)
            if module.startswith("deepspeed.launcher"):
                return _launched("deepspeed", behind)
            return _plain(module, behind, flags)
        if word.startswith("-") and word != "-":
            flags.append(word)
            if word == "-c":
                return _plain(None, rest[index + 1 :], flags)
        elif index == 0 or rest[index - 1] not in _PYTHON_VALUE:
            return _plain(word, rest[index + 1 :], flags)
    return None


def _plain(script: str | None, arguments: Words, flags: list[str]) -> Launcher:
    return Launcher(
        tool="python", options={}, script=script, arguments=arguments, python_flags=tuple(flags)
    )


def _launched(tool: str, rest: Words) -> Launcher:
    options: dict[str, str] = {}
    index = 0
    while index < len(rest):
        word = rest[index]
        if not word.startswith("-") or word == "-":
            break
        name, equals, value = word.lstrip("-").partition("=")
        name = name.replace("_", "-")
        name = _SHORT.get(name, name) if not word.startswith("--") else name
        index += 1
        if equals:
            options[name] = value
        elif name in _FLAGS:
            options[name] = "true"
        elif name in _MPI_TWO or (name == "x" and tool == "mpirun"):
            size = 2 if name in _MPI_TWO else 1
            options.setdefault(f"{name} {rest[index] if index < len(rest) else ''}", "true")
            index += size
        else:
            options[name] = rest[index] if index < len(rest) else ""
            index += 1
    script = rest[index] if index < len(rest) else None
    arguments = rest[index + 1 :]
    if tool == "mpirun" and script is not None and _PYTHON.fullmatch(script):
        inner = _python(arguments)
        if inner is not None:
            script, arguments = inner.script, inner.arguments
    return Launcher(tool=tool, options=options, script=script, arguments=arguments)
