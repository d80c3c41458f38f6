"""Wrappers around a log line. `WRAPPERS` is the registry, outermost families first.

A wrapper module takes one layer off (`peel`); layers nest in any order, so they are taken off until
none fits. Modules with `fits` have forms that could be ordinary text and are used only in files
whose lines nearly all have them. Whole-file formats are in `documents`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gpufleet_cli.parsers.wrappers import (
    cloudwatch,
    collector,
    hyperpod,
    journal,
    json_lines,
    kubernetes,
    launcher,
    loki,
    mpi,
    nvrx,
    ray,
    slurm,
    stern,
    torchx,
)
from gpufleet_cli.parsers.wrappers.layer import Layer, Peel, Who, Wrapper

WRAPPERS: tuple[Wrapper, ...] = (
    loki,
    kubernetes,
    json_lines,
    nvrx,
    collector,
    launcher,
    ray,
    mpi,
    hyperpod,
)
AMBIGUOUS: tuple[Wrapper, ...] = (journal, cloudwatch, stern, slurm, torchx)

MAX_DEPTH = 8
_MAX_AMBIGUOUS = 2


class Plan(NamedTuple):
    """Which wrappers a file uses, by the first character of a line, and how to read its times.

    `near_ns` gives stamps without a year their year. `shift_ns` is the collector's zone. `is_plain`:
    no ambiguous wrapper was chosen.
    """

    by_start: Mapping[str, tuple[Peel, ...]]
    is_plain: bool
    near_ns: int | None = None
    shift_ns: int = 0


class Unwrapped(NamedTuple):
    """A line without its transport wrappers. `whos` runs from the outermost layer inwards."""

    text: str | None
    ns: int | None
    zone_stated: bool
    coarse: bool
    whos: tuple[Who, ...]
    partial: bool


def plan_for(sample: Sequence[str]) -> tuple[Plan, list[Unwrapped]]:
    """Choose among the ambiguous wrappers by a sample of lines, on the outside and further in.

    Gives the sample unwrapped too.
    """
    chosen: list[Wrapper] = []
    plan = _plan(chosen)
    found = [unwrap(line, plan) for line in sample]
    lines: Sequence[str] = sample
    for _ in range(_MAX_AMBIGUOUS * 2):
        fitting = [w for w in AMBIGUOUS if w not in chosen and w.fits(lines)]  # type: ignore[attr-defined]
        if fitting:
            chosen.append(fitting[0])
            plan = _plan(chosen)
            found = [unwrap(line, plan) for line in sample]
        elif lines is not sample or len(chosen) >= _MAX_AMBIGUOUS:
            break
        lines = [one.text or "" for one in found]
    return plan, found


def _plan(chosen: Sequence[Wrapper]) -> Plan:
    active = (*chosen, *WRAPPERS)
    starts = sorted({char for wrapper in active for char in wrapper.STARTS})
    table: dict[str, tuple[Peel, ...]] = {
        char: tuple(w.peel for w in active if not w.STARTS or char in w.STARTS) for char in starts
    }
    table[""] = tuple(w.peel for w in active if not w.STARTS)
    return Plan(table, not chosen)


def unwrap(text: str, plan: Plan, *, depth: int = MAX_DEPTH) -> Unwrapped:
    """Take layers off until none fits; the outermost time counts, and names of all layers.

    A layer that holds only part of a line ends the work: the line must be whole first.
    """
    ns: int | None = None
    zone_stated = coarse = partial = False
    whos: list[Who] = []
    rest = text
    table, anywhere = plan.by_start, plan.by_start[""]
    for _ in range(depth):
        if not rest:
            break
        layer: Layer | None = None
        for peel in table.get(rest[0], anywhere):
            layer = peel(rest)
            if layer is not None:
                break
        if layer is None:
            break
        if layer.rest is None:
            return Unwrapped(None, ns, zone_stated, coarse, tuple(whos), False)
        if layer.ns is not None and (ns is None or (layer.zone_stated and not zone_stated)):
            ns, zone_stated, coarse = layer.ns, layer.zone_stated, layer.coarse
        if layer.who:
            whos.append(layer.who)
        rest = layer.rest
        if layer.partial:
            partial = True
            break
    return Unwrapped(rest, ns, zone_stated, coarse, tuple(whos), partial)
