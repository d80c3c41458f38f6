r"""PromQL as text: selectors whose names are quoted and escaped, in pieces that servers take.

What is asked for is raw samples (`X{...}[7200s]` as an instant query, with `time=`): each sample at its own
time, no step that hides a flap, no look-back that keeps a dead series alive, and no `changes()`, which counts
a first sample in VictoriaMetrics and not in Prometheus. Transitions are found by our parser of the samples.

>>> print(selector("up", (one_of("pod", ["a.b", 'c"d']), *matchers('cluster="prod-a"'))))
up{pod=~"a\\.b|c\"d",cluster="prod-a"}
"""

from __future__ import annotations

import csv
import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from gpufleet_cli.errors import UsageError
from gpufleet_cli.plain_text import visible

FIELDS_FILE = Path(__file__).parent.parent / "data" / "dcgm-fields.csv"

XID_GAUGES = ("DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_XID_ERROR")
XID_NAMES = (
    *XID_GAUGES,
    "DCGM_EXP_XID_ERRORS_COUNT",
    "DCGM_FI_DEV_NVSWITCH_FATAL_ERRORS",
    "DCGM_FI_DEV_SXID_FATAL_ERROR",
    "DCGM_FI_DEV_NVSWITCH_NON_FATAL_ERRORS",
    "DCGM_FI_DEV_SXID_NON_FATAL_ERROR",
)
"""What tells Xids and SXids; the gauges before and after DCGM 4.6."""

NODE_LABELS = (
    "node", "kubernetes_node", "node_name", "nodename", "Hostname", "hostname", "host", "instance",
)  # fmt: skip
"""Labels that may hold the node, surest first (facts: kubernetes 0.7); `instance` is ADDRESS:PORT."""

POD_LABELS = (
    ("exported_pod", "exported_namespace"),
    ("pod", "namespace"),
    ("pod_name", "pod_namespace"),
)
"""Labels that may hold the job's pod; under `honor_labels: false` `pod` is the exporter (facts: 0.6)."""

MOST_NAMES = 200
MOST_BYTES = 4_096  # of names in one selector; encoded in a URL they take twice that

_MATCHER = re.compile(
    r"\s*([a-zA-Z_][a-zA-Z0-9_]{0,200})\s*(=~|!~|!=|=)\s*\"((?:[^\"\\]|\\.){0,4000})\"\s*(,|\Z)"
)
_META = re.compile(r"[\\.+*?()|\[\]{}^$]")
_ESCAPES = {"\\": "\\", '"': '"', "n": "\n", "t": "\t", "'": "'", "r": "\r"}


class Matcher(NamedTuple):
    """One `label OPERATOR "value"`; the value as it is meant, without quotes or escapes."""

    label: str
    operator: str
    value: str

    def __str__(self) -> str:
        return f"{self.label}{self.operator}{quoted(self.value)}"


def quoted(text: str) -> str:
    """A PromQL string: backslash, quote and line breaks escaped."""
    escaped = text.replace("\\", r"\\").replace('"', r"\"")
    return '"' + escaped.replace("\n", r"\n").replace("\r", r"\r") + '"'


def literal(text: str) -> str:
    """A name as an RE2 expression that matches just it."""
    return _META.sub(r"\\\g<0>", text)


def matchers(text: str | None) -> tuple[Matcher, ...]:
    """The matchers of the settings (`cluster="prod-a", env=~"a|b"`). UsageError for anything else."""
    found: list[Matcher] = []
    rest = (text or "").strip()
    rest = rest[1:-1].strip() if rest.startswith("{") and rest.endswith("}") else rest
    position = 0
    while position < len(rest):
        match = _MATCHER.match(rest, position)
        if match is None:
            raise UsageError(
                f"matchers {visible(rest)!r} cannot be read at {visible(rest[position:][:40])!r}",
                hint="""write matchers = 'cluster="prod-a"', several with commas""",
            )
        value = re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], "\\" + found[1]), match[3])
        found.append(Matcher(match[1], match[2], value))
        position = match.end()
    return tuple(found)


def one_of(label: str, names: Iterable[str]) -> Matcher:
    """The label is one of these names."""
    return Matcher(label, "=~", "|".join(map(literal, names)))


def of_nodes(label: str, names: Iterable[str]) -> Matcher:
    """The label is one of these nodes, in a short or a full form, for `instance` with any port.

    >>> print(of_nodes("Hostname", ["gpu-1", "gpu-2.local", "10.0.0.7"]))
    Hostname=~"gpu-1(\\\\..+)?|gpu-2\\\\.local|gpu-2|10\\\\.0\\\\.0\\\\.7"
    """
    forms = "|".join(form for name in names for form in _forms(name))
    return Matcher(label, "=~", f"({forms})(:[0-9]+)?" if label == "instance" else forms)


def _forms(name: str) -> Iterator[str]:
    if is_address(name):
        yield literal(f"[{name}]" if ":" in name else name)
    elif "." in name:
        yield literal(name)
        yield literal(name.partition(".")[0])
    else:
        yield literal(name) + r"(\..+)?"


@lru_cache(maxsize=65_536)
def is_address(text: str) -> bool:
    """Whether this is an IP address and no name; of each node it is asked for every label."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def selector(name: str | Sequence[str], conditions: Iterable[Matcher]) -> str:
    """An instant selector of one metric, or of several by their names; of all where there are no names."""
    if isinstance(name, str):
        return f"{name}{{{','.join(map(str, conditions))}}}"
    named = (one_of("__name__", name),) if name else ()
    return f"{{{','.join(map(str, (*named, *conditions)))}}}"


def raw(name: str | Sequence[str], conditions: Iterable[Matcher], span_s: int) -> str:
    """All samples of the last `span_s` seconds before the time of the query."""
    return f"{selector(name, conditions)}[{max(span_s, 1)}s]"


def highest(names: Sequence[str], conditions: Sequence[Matcher], span_s: int) -> str:
    """The highest value in that time of each series of these metrics: which series there were at all.

    One function each, since it drops the names, and series that then look alike are an error.
    """
    return " or ".join(f"max_over_time({raw(name, conditions, span_s)})" for name in names)


def chunks(
    names: Sequence[str], *, most: int = MOST_NAMES, most_bytes: int = MOST_BYTES
) -> Iterator[list[str]]:
    """The names in pieces whose selectors servers and proxies take."""
    piece: list[str] = []
    size = 0
    for name in names:
        cost = len(literal(name)) + 12
        if piece and (len(piece) >= most or size + cost > most_bytes):
            yield piece
            piece, size = [], 0
        piece.append(name)
        size += cost
    if piece:
        yield piece


@lru_cache(maxsize=1)
def _fields() -> tuple[tuple[str, str, str, bool], ...]:
    """(name before DCGM 4.6, since then, what it answers, on by default) of each row that is a metric."""
    with FIELDS_FILE.open(encoding="utf-8", newline="") as file:
        return tuple(
            (
                row["metric"],
                row["new_name_dcgm_4_6"] or row["metric"],
                row["answers"],
                row["enabled_by_default_in_exporter"] == "yes",
            )
            for row in csv.DictReader(file)
            if re.fullmatch(r"DCGM_[A-Z0-9_]+", row["metric"])
        )


@lru_cache(maxsize=1)
def old_names() -> Mapping[str, str]:
    """Every name to that before DCGM 4.6."""
    return {name: old for old, new, _, _ in _fields() for name in (old, new)}


@lru_cache(maxsize=1)
def readings() -> tuple[str, ...]:
    """Names, old and new, of the fields that answer one of the three questions, but those of Xids."""
    names = (
        name
        for old, new, answers, _ in _fields()
        if "Q" in answers and old not in XID_NAMES
        for name in (old, new)
    )
    return tuple(dict.fromkeys(names))


@lru_cache(maxsize=1)
def usual_readings() -> tuple[str, ...]:
    """Those that dcgm-exporter has on without being told to; asked for where none can be listed."""
    on = {name for old, new, _, is_on in _fields() if is_on for name in (old, new)}
    return tuple(name for name in readings() if name in on)
