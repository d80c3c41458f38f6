"""Names for the shell's TAB, from a file that earlier runs wrote: no network, no library, no clock.

The entry point asks here before anything else is imported; commands and options come from a table of the
package (`completion_words`). The files lie in `gpufleet/names/` of the user's cache folder, one per context:
lines of `KIND<TAB>NAME`, a job with its namespace behind it.
"""

import os
import sys

VARIABLE = "_GPUFLEET_COMPLETE"
# Options that take a value: the word behind them is no command and no target.
WITH_VALUE = frozenset(
    {
        "-o", "--output", "--deadline", "--context", "--kubeconfig", "-n", "--namespace",
        "--as-of", "--world-size", "--gpus-per-node", "--state", "--checkpoint-interval",
        "--last-checkpoint-at", "--last-checkpoint-step", "--step-seconds", "--watchdog-timeout",
        "--restart", "-l", "--selector", "--attempt", "--group", "--at", "--lookback", "--dumps",
        "--prometheus", "--log-store", "--kernel-logs", "--save", "--to", "--redact-again",
        "--rank", "--class", "--seed", "--ranks", "--lost", "--score",
        "--id", "--kind", "--node", "--action", "--since-checkpoint",
        "--reason", "--incident", "--diagnostics", "--xid-free", "--accept",
        "--if-attempt", "--checkpoint-marker",
        "--checkpoint-metric", "--grace-period",
        "--node-failures-per-day", "--ignore",
        "--gpus", "--mtti", "--gpu-hours-per-interruption", "--interruptions",
        "--observed-gpu-hours", "--planned-restart", "--detection",
        "--slowdown", "--hazard-per-hour", "--target", "--productive", "--wall",
        "--scheduling-goodput", "--runtime-goodput", "--program-goodput", "--failures-per-hour",
        "--repair", "--stock-out", "--rack-nodes", "--nodes", "--availability",
        "--slow-probability", "--events", "--days", "--history", "--since", "--job", "--fleet-gpus",
        "--warn-at", "--poll", "--match", "--step-seconds-metric", "--last-step-metric",
        "--last-checkpoint-metric", "--alertmanager", "--pods",
        "--shard", "--under", "--scheduler",
    }
)  # fmt: skip
_BY_OPTION = {
    "--context": "context", "-n": "namespace", "--namespace": "namespace", "--rank": "rank",
}  # fmt: skip
_BY_COMMAND = {
    "node": "node", "drain-check": "node", "triage": "job", "collect": "job", "ranks": "job", "dumps": "job",
    "explain": "job", "doctor": "job", "preflight": "job", "alerts": "job", "xid": "xid", "cache": "cache",
    "cordon": "node", "uncordon": "node", "queue": "queue", "evict": "gang", "cost": "cost",
    "history": "history", "watch": "job",
}  # fmt: skip
COST_TOPICS = (
    "checkpoint-interval", "recompute", "idle", "mtbf", "efficiency", "spares", "decide", "tail",
    "offenders",
)  # fmt: skip
_SECOND = {"cache": ("refresh",), "queue": ("done",), "history": ("add",), "cost": COST_TOPICS}
_STATES = ("running", "stalled", "aborted", "exited", "unknown")
_OUTPUTS = {
    "triage": ("text", "json", "yaml", "markdown", "html"), "collect": ("json",), "summarise": ("json",),
    "postmortem": ("markdown", "html", "json"), "alerts": ("yaml", "json"),
}  # fmt: skip
_USUAL_OUTPUTS = ("text", "json")
_SEVERAL = frozenset({"xid", "drain-check", "cordon", "uncordon"})
_FILES_TOO = frozenset({"triage", "ranks", "dumps", "explain", "preflight"})

Match = tuple[list[str], bool]
"""The names, and whether files may stand there as well."""


def answer(environment: dict[str, str]) -> int | None:
    """What the shell wants, written to standard output; None where Typer has to answer."""
    how = environment.get(VARIABLE, "")
    head = ""
    if how.startswith("source_"):
        return _script(how.removeprefix("source_"))
    if how == "complete_bash":
        words = environment.get("COMP_WORDS", "").split("\n")
        words = words[: int(environment.get("COMP_CWORD") or 0) + 1]
        words, cut = _whole(words)
    elif how in ("complete_zsh", "complete_fish"):
        words, cut = environment.get("_TYPER_COMPLETE_ARGS", "").split(" "), 0
        words, head = _apart([word for word in words[:-1] if word] + words[-1:])
    else:
        return None
    found = matches(words, environment)
    asks_whether = environment.get("_TYPER_COMPLETE_FISH_ACTION") == "is-args"
    if found is None and (told := _words(words)):
        _write("" if asks_whether else _with_help(how, told, cut))
        return 0
    names, files_too = ([head + name for name in found[0]], found[1]) if found else ([], True)
    if how == "complete_zsh":
        _write(_for_zsh(names, files_too=files_too))
    elif asks_whether:
        return 0 if names else 1
    else:
        _write("".join(f"{name[cut:]}\n" for name in names))
    return 0


def for_kubectl(words: list[str], environment: dict[str, str]) -> int:
    """`kubectl_complete-gpufleet WORDS`: names, and a last line for Cobra (4: no files, 0: files too)."""
    words, head = _apart(["gpufleet", *words])
    found = matches(words, environment)
    told = [] if found else _words(words)
    names, files_too = found or ([word for word, _ in told], not told)
    names = [head + name for name in names]
    _write("".join(f"{name}\n" for name in names) + (":0\n" if files_too else ":4\n"))
    return 0


def _words(words: list[str]) -> list[tuple[str, str]]:
    """Commands or options with what they are; none where a path may stand."""
    from gpufleet_cli import completion_words

    given, _, waits = _parsed(words)
    if waits:
        return []
    current = words[-1] if words else ""
    return completion_words.offered(given, current, _lines(completion_words.place())) or []


def _with_help(how: str, told: list[tuple[str, str]], cut: int) -> str:
    """In the form that each shell shows what a word is; bash has none."""
    if how == "complete_zsh":
        rows = "\n".join(f'"{word}":"{text.translate(_QUOTES)}"' for word, text in told)
        return f"_arguments '*: :(({rows}))'\n"
    if how == "complete_fish":
        return "".join(f"{word}\t{text}\n" for word, text in told)
    return "".join(f"{word[cut:]}\n" for word, _ in told)


_QUOTES = str.maketrans("", "", "'\"`$\\")


def _script(shell: str) -> int | None:
    from gpufleet_cli.completion_scripts import SCRIPTS

    if shell not in SCRIPTS:
        return None
    _write(SCRIPTS[shell])
    return 0


def _apart(words: list[str]) -> tuple[list[str], str]:
    """`--option=value` as two words, and what the shell wants to see before each name all the same."""
    option, equals, value = words[-1].partition("=") if words else ("", "", "")
    if not equals or not option.startswith("--"):
        return words, ""
    return [*words[:-1], option, value], f"{option}="


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _for_zsh(names: list[str], *, files_too: bool) -> str:
    """A line that the shell evaluates: names of our files hold nothing that a quote would not hold."""
    text = "\n".join(names)
    if len(names) > 1 and not text.translate(_PLAIN):
        told = (
            f"compadd -- ${{(f):-'{text}'}}"  # 10,000 words take the shell 170 ms, their lines 10
        )
    else:
        told = f"compadd -- {' '.join(_quoted(name) for name in names)}" if names else ""
    return f"{told}; _files\n" if files_too and told else f"{told or '_files'}\n"


_PLAIN = str.maketrans(
    "", "", "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._:/@+=\n"
)


def _quoted(name: str) -> str:
    return "'" + name.replace("'", "") + "'"


def _whole(words: list[str]) -> tuple[list[str], int]:
    """bash breaks words at `:` and `=`; put together again, and how much of the last one it will keep."""
    found: list[str] = []
    cut = 0
    joined = False
    for word in words:
        if word in (":", "=") and found:
            found[-1] += word
            cut, joined = len(found[-1]), True
        elif joined:
            found[-1] += word
            joined = False
        else:
            found.append(word)
            cut = 0
    if found and found[-1].startswith("--") and "=" in found[-1]:
        option, _, value = found.pop().partition("=")
        found += [option, value]
        cut = max(0, cut - len(option) - 1)
    return found, cut


def _parsed(words: list[str]) -> tuple[list[str], dict[str, str], str]:
    """Before the last word: what is no option, the options with their values, and the one that still wants its own."""
    given: list[str] = []
    options: dict[str, str] = {}
    waits = ""
    for word in words[1:-1]:
        if waits:
            options[waits] = word
            waits = ""
        elif word.startswith("-") and word != "-":
            option, equals, value = word.partition("=")
            if equals:
                options[option] = value
            elif option in WITH_VALUE:
                waits = option
        else:
            given.append(word)
    return given, options, waits


def matches(words: list[str], environment: dict[str, str]) -> Match | None:
    """The names that fit the last word, where a name can stand; None anywhere else."""
    current = words[-1] if words else ""
    given, options, waits = _parsed(words)
    if waits in ("-o", "--output", "--state"):
        outputs = _OUTPUTS.get(given[0], _USUAL_OUTPUTS) if given else _OUTPUTS["triage"]
        values = _STATES if waits == "--state" else outputs
        return [value for value in values if value.startswith(current)], False
    if waits:
        kind = _BY_OPTION.get(waits)
        return None if kind is None else (_names(kind, current, options, environment), False)
    if current.startswith("-") or not given:
        return None
    kind = _BY_COMMAND.get(given[0])
    if given[:2] == ["history", "add"]:
        return [], True
    if given[:2] == ["queue", "done"]:
        return _names("node", current, options, environment), False
    if kind is None or (len(given) > 1 and given[0] not in _SEVERAL):
        return None
    return _names(kind, current, options, environment), given[0] in _FILES_TOO


def _names(
    kind: str, prefix: str, options: dict[str, str], environment: dict[str, str]
) -> list[str]:
    if kind in _SECOND:
        return [one for one in _SECOND[kind] if one.startswith(prefix)]
    if kind == "xid":
        return [code for code in _xids() if code.startswith(prefix)]
    if environment.get("GPUFLEET_NO_STATE") == "1":
        return []
    folder = names_folder(environment)
    if kind == "rank":
        return [rank for rank in _ranks(folder) if rank.startswith(prefix)]
    if kind == "context":
        return _kept(f"{folder}/contexts", kind, prefix, None)
    chosen = options.get("--kubeconfig") or environment.get("KUBECONFIG") or ""
    context = options.get("--context") or current_context(chosen, environment)
    namespace = options.get("-n") or options.get("--namespace")
    head = ""
    if kind == "gang":  # a job or, which holds one, a node
        kind = "node" if prefix.startswith("node/") else "job"
        if "/" not in prefix:
            nodes = _kept(file_of(folder, context, chosen), "node", prefix, None)
            return [*_kept(file_of(folder, context, chosen), kind, prefix, namespace), *nodes]
    if kind in ("job", "node") and "/" in prefix:  # KIND/NAME
        head, prefix = prefix[: prefix.rindex("/") + 1], prefix[prefix.rindex("/") + 1 :]
    found = _kept(file_of(folder, context, chosen), kind, prefix, namespace)
    return [head + name for name in found] if head else found


def _kept(path: str, kind: str, prefix: str, namespace: str | None) -> list[str]:
    """The names of a kind in one file, each once, in the order of the file."""
    start = f"{kind}\t{prefix}"
    size = len(kind) + 1
    found: dict[str, None] = {}
    for line in _lines(path):
        if line.startswith(start):
            name, _, place = line[size:].partition("\t")
            if namespace is None or kind != "job" or place == namespace:
                found[name] = None
    return list(found)


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as lines:  # noqa: PTH123  pathlib costs
            return lines.read().split("\n")
    except OSError:
        return []


def _ranks(folder: str) -> list[str]:
    """Those of the last triage, kept as runs: `0-1023`."""
    found: list[str] = []
    for line in _lines(f"{folder}/ranks"):
        first, _, last = line.partition("-")
        if first.isdecimal() and last.isdecimal():
            found.extend(str(rank) for rank in range(int(first), int(last) + 1))
    return found


def _xids() -> list[str]:
    """The codes of the catalogue: what stands first in a row."""
    place = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120  pathlib costs
    heads = (line.split(",", 1)[0].strip('"') for line in _lines(f"{place}/data/{XID_TABLE}"))
    return list(dict.fromkeys(head for head in heads if head.isdecimal()))


XID_TABLE = "xid.csv"


# --- Where the files are --------------------------------------------------------------------------


def cache_folder(environment: dict[str, str]) -> str:
    """`gpufleet` under the user's cache folder, as the platform and XDG name it."""
    stated = environment.get("XDG_CACHE_HOME", "")
    if stated.startswith("/"):
        return f"{stated}/gpufleet"
    home = environment.get("HOME") or os.path.expanduser("~")  # noqa: PTH111  pathlib costs
    return f"{home}/{'Library/Caches' if sys.platform == 'darwin' else '.cache'}/gpufleet"


def names_folder(environment: dict[str, str]) -> str:
    return f"{cache_folder(environment)}/names"


def file_of(folder: str, context: str, kubeconfig: str) -> str:
    """One file per context; of the same name in another kubeconfig it is another one."""
    from zlib import crc32

    name = "".join(char if char.isalnum() or char in "._-" else "_" for char in context)[:100]
    mark = crc32(f"{context}\n{kubeconfig}".encode("utf-8", "surrogateescape"))
    return f"{folder}/{name}-{mark:08x}"


def current_context(kubeconfig: str, environment: dict[str, str]) -> str:
    """The line `current-context:` of the first file that has one; YAML or JSON, and no parser."""
    home = environment.get("HOME", "")
    for path in (kubeconfig or f"{home}/.kube/config").split(os.pathsep):
        if path.startswith("~/"):
            path = home + path[1:]
        for line in _lines(path):
            before, key, rest = line.partition("current-context")
            if not key or (before.rstrip("\"'").strip(" ") not in ("", "{") and before[-1] != '"'):
                continue
            value = rest.lstrip("\"'").lstrip().removeprefix(":").strip()
            if value[:1] in ("'", '"'):
                found = value[1:].partition(value[0])[0]
            else:
                found = value.split(" ", 1)[0].rstrip(",")
            if found:
                return found
    return ""
