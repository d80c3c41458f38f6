"""Sample files of `fixtures/samples/lines`: raw lines per program version, and what they say.

    ## W5 torch 2.3: garbage above the enqueued number
    [PG 0 Rank 3] Timeout at NCCL work: 91, last enqueued NCCL work: 91, last completed NCCL work: 7628...
    => group-status group=0 group_rank=3 work=91 enqueued=91

The lines after the first follow it. Each `=>` is one fact, with every field that is set; none means that the
line says nothing. Templates and versions are from the programs' public sources and reports; hosts,
addresses and numbers are invented.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from pathlib import Path

from gpufleet_cli.facts import (
    Fact,
    GroupRef,
    GroupStatus,
    HostEvent,
    IdentityLink,
    LogSign,
    Progress,
    SxidEvent,
    WatchdogTimeout,
    XidEvent,
)

FOLDER = Path(__file__).parents[3] / "fixtures" / "samples" / "lines"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A raw text, the module that knows it, and the facts it states."""

    module: str
    name: str
    text: str
    expected: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.module}: {self.name}"


def read_samples() -> list[Sample]:
    """All samples of all modules, in order."""
    return [
        sample
        for path in sorted(FOLDER.glob("*.txt"))
        for sample in _samples_of(path.stem, path.read_text(encoding="utf-8"))
    ]


def _samples_of(module: str, text: str) -> list[Sample]:
    found = []
    for block in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        name, _, body = block.partition("\n")
        rows = body.removesuffix("\n").split("\n")
        raw = [row for row in rows if not row.startswith("=> ")]
        expected = tuple(row.removeprefix("=> ") for row in rows if row.startswith("=> "))
        found.append(Sample(module=module, name=name, text="\n".join(raw), expected=expected))
    return found


def summary(fact: Fact) -> str:
    """A fact in one line: its kind, then every field that is set but speaker, text and origin."""
    match fact:
        case LogSign():
            head = str(fact.sign)
        case WatchdogTimeout():
            head = "watchdog-timeout"
        case GroupStatus():
            head = "group-status"
        case Progress():
            return _progress(fact)
        case IdentityLink():
            head = f"identity-link {fact.how}"
        case XidEvent():
            head = "xid-event"
        case SxidEvent():
            head = "sxid-event"
        case HostEvent():
            head = f"host-event {fact.sign}"
        case _:
            raise AssertionError(type(fact))
    skipped = {"sign", "speaker", "text", "origin", "how", "stream", "zone_stated", "year_stated"}
    skipped |= {"repeats", "resolution_s"}
    values = {field.name: getattr(fact, field.name) for field in fields(fact)}
    words = [
        f"{name}={_value(value)}"
        for name, value in values.items()
        if name not in skipped and value is not None and value is not False and value != ()
    ]
    return " ".join([head, *words])


def _progress(fact: Progress) -> str:
    (point,) = fact.points
    words = [f"step={point.step}"]
    words += [f"step_s={point.step_s:g}"] if point.step_s is not None else []
    words += [f"data_s={point.data_s:g}"] if point.data_s is not None else []
    words += [f"total={fact.total_steps}"] if fact.total_steps is not None else []
    return " ".join(["progress", fact.series, *words])


def _value(value: object) -> str:
    if isinstance(value, GroupRef):
        return f"{value.name}({value.desc})" if value.desc is not None else str(value.name)
    if isinstance(value, tuple):
        return f"[{','.join(map(str, value))}]"
    return f"{value!r}" if isinstance(value, str) else f"{value}"
