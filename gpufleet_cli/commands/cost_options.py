"""The numbers that `gpufleet cost` takes: a row each, with its unit and its bounds."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from gpufleet_cli.errors import UsageError
from gpufleet_cli.settings import parse_duration

Value = float | int
_NUMBER = re.compile(r"\+?\d{1,40}(?:\.\d{1,40})?(?:[eE][+-]?\d{1,3})?", re.ASCII)
_PERCENT = re.compile(r"(\+?\d{1,40}(?:\.\d{1,40})?)\s?%", re.ASCII)
_SIGNED = re.compile(r"-\s?[\d.]")
_LONGEST_S = 1e6 * 86_400
_SMALLEST = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """One option. `above` excludes the least value itself, `below` the greatest."""

    help: str
    kind: Literal["duration", "count", "number", "share"]
    unit: str
    least: float = 0.0
    most: float
    above: bool = False
    below: bool = False

    @property
    def metavar(self) -> str:
        return {"duration": "TIME", "count": "N", "number": "NUMBER", "share": "SHARE"}[self.kind]


def _time(help: str, *, above: bool = False) -> Number:
    return Number(help=help, kind="duration", unit="s", most=_LONGEST_S, above=above)


def _count(help: str, unit: str, *, least: int = 1, most: float = 1e9) -> Number:
    return Number(help=help, kind="count", unit=unit, least=least, most=most)


def _rate(help: str, unit: str, *, most: float = 1e6) -> Number:
    return Number(help=help, kind="number", unit=unit, least=_SMALLEST, most=most)


def _share(help: str, *, above: bool = False, below: bool = False) -> Number:
    return Number(help=help, kind="share", unit="share", most=1.0, above=above, below=below)


OPTIONS: Mapping[str, Number] = MappingProxyType(
    {
        "gpus": _count("GPUs that the job holds.", "GPUs"),
        "save": _time("How long a save blocks the job: 30s."),
        "mtti": _time("Mean time to interruption of the job: 5h.", above=True),
        "gpu_hours_per_interruption": _rate(
            "In place of --mtti: GPU-hours per interruption: 50000.", "GPU-h", most=1e15
        ),
        "since_checkpoint": _time("Since the last durable, loadable checkpoint: 29m."),
        "checkpoint_interval": _time("Between two checkpoints: 30m.", above=True),
        "watchdog_timeout": _time("Timeout of a collective: 10m.", above=True),
        "interruptions": _count("Interruptions that were seen; 0 too.", "", least=0, most=1e6),
        "observed_gpu_hours": _rate("In so many GPU-hours.", "GPU-h", most=1e15),
        "fleet_gpus": _count("All GPUs of the fleet; then `gpufleet history` counts.", "GPUs"),
        "node_failures_per_day": _rate("Failures of one node in a day: 6.5e-3.", "per node-day"),
        "gpus_per_node": _count("GPUs of a node.", "GPUs", most=1e6),
        "restart": _time("From a failure to the first useful step: 10m."),
        "planned_restart": _time("The same where it was planned; no longer."),
        "detection": _time("From the failure until it is noticed: 10m."),
        "slowdown": Number(
            help="How much longer a step takes with the fault: 1.25.",
            kind="number",
            unit="x",
            least=1.0,
            most=1e6,
        ),
        "hazard_per_hour": Number(
            help="The extra hazard of the fault, per hour: 0.05.",
            kind="number",
            unit="per hour",
            most=1e6,
        ),
        "target": _share("The ETTR that is wanted: 0.9 or 90%.", above=True),
        "productive": _time("Time that made progress."),
        "wall": _time("All of the time.", above=True),
        "scheduling_goodput": _share("Share of the time with all resources."),
        "runtime_goodput": _share("Share of that which moved the job on."),
        "program_goodput": _share("Share of the hardware that the program uses."),
        "failures_per_hour": _rate("Failures of nodes per hour, in all.", "per hour"),
        "repair": _time("How long a node is out: 24h.", above=True),
        "stock_out": _share(
            "The chance of too few spares to accept: 0.01.", above=True, below=True
        ),
        "rack_nodes": _count("Nodes that a rack takes with it.", "nodes", most=1e6),
        "nodes": _count("Nodes.", "nodes", most=1e7),
        "availability": _share("Share of the time that a node is up: 0.93.", above=True),
        "ranks": _count("Ranks that wait for each other.", "ranks"),
        "slow_probability": _share("The chance that a rank is slow: 0.01."),
        "events": _count("Failures that the node showed.", "failures", most=1e6),
        "days": _rate("In so many days.", "d"),
    }
)


def option(name: str) -> str:
    """`since_checkpoint` as it is typed."""
    return "--" + name.replace("_", "-")


def value(name: str, text: str) -> Value:
    """One number within its bounds.

    >>> value("gpus", "8192"), value("restart", "0.5m"), value("target", "90%")
    (8192, 30.0, 0.9)
    """
    row = OPTIONS[name]
    number = _read(row, name, text)
    if number < row.least or (row.above and number <= row.least):
        raise _too_small(row, name, text)
    if number > row.most or (row.below and number >= row.most):
        most = f"less than {row.most:g}" if row.below else f"at most {_bound(row)}"
        raise UsageError(f"{option(name)} {text!r} is too large", hint=f"it must be {most}")
    return int(number) if row.kind == "count" else number


def _too_small(row: Number, name: str, text: str) -> UsageError:
    is_above = row.above or row.least == _SMALLEST
    least = "more than 0" if is_above else f"at least {row.least:g}"
    return UsageError(f"{option(name)} {text!r} is too small", hint=f"it must be {least}")


def _bound(row: Number) -> str:
    return "1,000,000 days" if row.kind == "duration" else f"{row.most:,.0f}"


def _read(row: Number, name: str, text: str) -> float:
    typed, trimmed = option(name), text.strip()
    if _SIGNED.match(trimmed):
        raise _too_small(row, name, text)
    if row.kind == "duration":
        return parse_duration(text, typed)
    if row.kind == "share" and (percent := _PERCENT.fullmatch(trimmed)):
        return float(percent[1]) / 100
    if not _NUMBER.fullmatch(trimmed):
        raise UsageError(f"{typed} {text!r} is not a number", hint="write 16384, 0.05 or 6.5e-3")
    number = float(trimmed)
    if math.isinf(number):
        raise UsageError(f"{typed} {text!r} is too large", hint=f"it must be at most {_bound(row)}")
    if row.kind == "count" and number != math.floor(number):
        raise UsageError(f"{typed} {text!r} is not a whole number", hint="write 16384")
    return number
