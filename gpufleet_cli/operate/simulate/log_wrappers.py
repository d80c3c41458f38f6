"""How lines become files: by launcher, container runtime, collector or store.

Where one file holds several ranks, the launcher's tee or a program's own tag tells them apart, unless
`Style.lost_prefixes`; then only PyTorch's own `[rankN]:` is left.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from random import Random

from gpufleet_cli.operate.simulate import gathered, identities
from gpufleet_cli.operate.simulate import log_lines as ll
from gpufleet_cli.operate.simulate.log_lines import Line
from gpufleet_cli.operate.simulate.story import Story

WRAPPERS = (
    "torchrun-tree",
    "kubectl-prefix",
    "pod-files",
    "cri",
    "docker-json",
    "loki-json",
    "stern",
    "srun-label",
    "cloudwatch",
    "rank-files",
)
ONE_FILE_A_RANK = frozenset({"torchrun-tree", "rank-files"})
NAMESPACE, CONTAINER = identities.NAMESPACE, identities.CONTAINER


@dataclass(frozen=True, slots=True)
class Wrapped:
    """The files, in which of them the lines of a writer are, errors and output apart, and whether the
    wrapper tells the rank of a line: by its file, or by a tag in front of it."""

    files: Mapping[str, bytes]
    path_of: Callable[[Line], str]
    marks: Callable[[Line], bool]


Tag = Callable[[Line], str]


def _marked(_line: Line) -> bool:
    return True


_by_time = itemgetter(0)


def tells_ranks(story: Story) -> bool:
    """Whether a c10 line in the files can be tied to its rank."""
    style = story.style
    return style.wrapper in ONE_FILE_A_RANK or not style.lost_prefixes or style.torch != "2.1"


def wrap(story: Story, lines: list[Line], rng: Random) -> Wrapped:
    """Files of all lines, which are sorted by time for each writer."""
    makers: dict[str, Callable[[Story, list[Line], Random], Wrapped]] = {
        "torchrun-tree": _torchrun_tree,
        "rank-files": _rank_files,
        "pod-files": _pod_files,
        "kubectl-prefix": _kubectl_prefix,
        "cri": _cri,
        "docker-json": _docker,
        "loki-json": _loki,
        "stern": _stern,
        "srun-label": _srun,
        "cloudwatch": _cloudwatch,
    }
    return makers[story.style.wrapper](story, lines, rng)


# --- Who wrote a line -----------------------------------------------------------------------------------


def _node(story: Story, line: Line) -> int:
    if line.writer >= 0:
        return story.layout.node_index(line.writer)
    return 0 if line.writer == ll.SRUN else -1 - line.writer


def _by_node(story: Story, lines: list[Line]) -> dict[int, list[Line]]:
    found: dict[int, list[Line]] = {}
    for line in lines:
        found.setdefault(_node(story, line), []).append(line)
    return {index: sorted(found[index], key=_by_time) for index in sorted(found)}


def _tagger(story: Story, rng: Random) -> Tag:
    """What stands in front of a rank's line in a stream of many: the tee of torchrun, or a tag of its own."""
    style, local = story.style, story.layout.local_rank
    by_role = style.framework == "torchtitan" and rng.random() < 0.4
    own_tags = style.torch != "2.1" and rng.random() < 0.35
    if style.lost_prefixes:
        return lambda _line: ""
    if own_tags:
        # NCCL and c10 write past Python's tags.
        return lambda line: (
            "" if line.writer < 0 or _has_own(line.text) else f"[rank{line.writer}]: "
        )
    role = "rank" if by_role else "default"
    return lambda line: f"[{role}{local(line.writer)}]:" if line.writer >= 0 else ""


def _has_own(text: str) -> bool:
    return text.startswith("[rank") or " NCCL " in text


def _encoded(texts: list[str]) -> bytes:
    return ("\n".join(texts) + "\n").encode() if texts else b""


# --- Files of the nodes ------------------------------------------------------------------------------------


def _torchrun_tree(story: Story, lines: list[Line], rng: Random) -> Wrapped:
    run = f"none_{''.join(rng.choices('abcdefghijklmnopqrstuvwxyz0123456789_', k=8))}"
    layout = story.layout

    def path_of(line: Line) -> str:
        node = layout.nodes[_node(story, line)]
        if line.writer < 0:
            return f"logs/{node}/torchrun.log"
        stream = "stderr" if line.err else "stdout"
        return f"logs/{node}/{run}/attempt_0/{layout.local_rank(line.writer)}/{stream}.log"

    return _plain(lines, path_of)


def _plain(lines: list[Line], path_of: Callable[[Line], str]) -> Wrapped:
    texts: dict[str, list[Line]] = {}
    for line in lines:
        texts.setdefault(path_of(line), []).append(line)
    files = {
        path: _encoded([line.text for line in sorted(texts[path], key=_by_time)])
        for path in sorted(texts)
    }
    return Wrapped(files, path_of, _marked)


def _rank_files(story: Story, lines: list[Line], rng: Random) -> Wrapped:
    form = rng.choice(("rank_{}.log", "rank{}.log"))
    nodes = story.layout.nodes

    def path_of(line: Line) -> str:
        if line.writer < 0:
            return f"logs/{nodes[_node(story, line)]}/torchrun.log"
        return f"logs/{form.format(line.writer)}"

    return _plain(lines, path_of)


def _srun(story: Story, lines: list[Line], _rng: Random) -> Wrapped:
    """One task for each GPU: the label is the rank, right-aligned."""
    path = f"logs/slurm-{400_000 + story.seed % 90_000}.out"
    width = len(str(story.layout.size - 1))
    labelled = not story.style.lost_prefixes
    texts = [
        f"{line.writer:>{width}}: {line.text}" if labelled and line.writer >= 0 else line.text
        for line in sorted(lines, key=_by_time)
    ]
    return Wrapped({path: _encoded(texts)}, lambda _line: path, lambda _line: labelled)


# --- Files of pods --------------------------------------------------------------------------------------------


def _trimmed(ns: int) -> str:
    """RFC3339Nano: trailing zeros are not written."""
    return ll.rfc3339(ns).rstrip("0").rstrip(".") + "Z"


def _pod_files(story: Story, lines: list[Line], rng: Random) -> Wrapped:
    tag = _tagger(story, rng)
    stamped = rng.random() < 0.6
    pods = story.layout.pods
    files = {}
    for index, own in _by_node(story, lines).items():
        texts = [f"{_trimmed(x.ns)} {tag(x)}{x.text}" if stamped else tag(x) + x.text for x in own]
        files[f"logs/{pods[index]}.log"] = _encoded(texts)
    return Wrapped(
        files, lambda line: f"logs/{pods[_node(story, line)]}.log", lambda x: bool(tag(x))
    )


def _kubectl_prefix(story: Story, lines: list[Line], rng: Random) -> Wrapped:
    tag = _tagger(story, rng)
    path = "logs/kubectl-logs.txt"
    texts: list[str] = []
    for index, own in _by_node(story, lines).items():
        head = f"[pod/{story.layout.pods[index]}/{CONTAINER}]"
        texts += [f"{head} {_trimmed(x.ns)} {tag(x)}{x.text}" for x in own]
    return Wrapped({path: _encoded(texts)}, lambda _line: path, lambda x: bool(tag(x)))


def _cri(story: Story, lines: list[Line], rng: Random) -> Wrapped:
    tag = _tagger(story, rng)

    def path(index: int) -> str:
        uid = identities.pod_uid(story, index)
        return f"logs/pods/{NAMESPACE}_{story.layout.pods[index]}_{uid}/{CONTAINER}/0.log"

    files = {}
    for index, own in _by_node(story, lines).items():
        texts = [
            f"{ll.rfc3339(x.ns)}Z {'stderr' if x.err else 'stdout'} F {tag(x)}{x.text}" for x in own
        ]
        files[path(index)] = _encoded(texts)
    return Wrapped(files, lambda line: path(_node(story, line)), lambda x: bool(tag(x)))


def _docker(story: Story, lines: list[Line], rng: Random) -> Wrapped:
    tag = _tagger(story, rng)

    def path(index: int) -> str:
        name = gathered.container_id(story, index)
        return f"logs/{story.layout.nodes[index]}/containers/{name}/{name}-json.log"

    dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    files = {}
    for index, own in _by_node(story, lines).items():
        texts = [
            dumps(
                {
                    "log": f"{tag(x)}{x.text}\n",
                    "stream": "stderr" if x.err else "stdout",
                    "time": _trimmed(x.ns),
                }
            )
            for x in own
        ]
        files[path(index)] = _encoded(texts)
    return Wrapped(files, lambda line: path(_node(story, line)), lambda x: bool(tag(x)))


# --- Stores and tails --------------------------------------------------------------------------------------------


def _loki(story: Story, lines: list[Line], rng: Random) -> Wrapped:
    tag = _tagger(story, rng)
    path = "logs/loki-query-range.json"
    layout = story.layout
    result = [
        {
            "stream": {
                "pod": layout.pods[index],
                "container": CONTAINER,
                "namespace": NAMESPACE,
                "node_name": layout.nodes[index],
            },
            "values": [[str(x.ns), tag(x) + x.text] for x in reversed(own)],
        }
        for index, own in _by_node(story, lines).items()
    ]
    answer = {"status": "success", "data": {"resultType": "streams", "result": result, "stats": {}}}
    return Wrapped({path: json.dumps(answer).encode()}, lambda _line: path, lambda x: bool(tag(x)))


def _stern(story: Story, lines: list[Line], rng: Random) -> Wrapped:
    tag = _tagger(story, rng)
    path = "logs/stern.txt"
    coloured = rng.random() < 0.3
    heads = [
        f"\x1b[96m{pod}\x1b[0m \x1b[32m{CONTAINER}\x1b[0m" if coloured else f"{pod} {CONTAINER}"
        for pod in story.layout.pods
    ]
    texts = [
        f"{heads[_node(story, x)]} {_trimmed(x.ns)} {tag(x)}{x.text}"
        for x in sorted(lines, key=_by_time)
    ]
    return Wrapped({path: _encoded(texts)}, lambda _line: path, lambda x: bool(tag(x)))


def _cloudwatch(story: Story, lines: list[Line], rng: Random) -> Wrapped:
    tag = _tagger(story, rng)
    path = "logs/cloudwatch-filter-log-events.json"
    pods = story.layout.pods
    events = [
        {
            "logStreamName": f"train/{pods[_node(story, x)]}/algo-1",
            "timestamp": x.ns // 1_000_000,
            "message": tag(x) + x.text,
            "ingestionTime": x.ns // 1_000_000 + 900,
            "eventId": str(number),
        }
        for number, x in enumerate(sorted(lines, key=_by_time))
    ]
    answer = {"events": events, "searchedLogStreams": []}
    return Wrapped({path: json.dumps(answer).encode()}, lambda _line: path, lambda x: bool(tag(x)))
