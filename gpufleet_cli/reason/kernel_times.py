"""Times of kernel lines: seconds since boot, stamps without a year or a zone, and one event seen twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from gpufleet_cli.facts import HostEvent, JobNumbers, NodeBoot, SxidEvent, XidEvent
from gpufleet_cli.parsers import kernel_log
from gpufleet_cli.reason.placed import NS

E = TypeVar("E", XidEvent, HostEvent, SxidEvent)


def boots(given: Sequence[JobNumbers], boots: Sequence[NodeBoot]) -> dict[str | None, int]:
    """Boot time by node; under None the one that is given for all."""
    found: dict[str | None, int] = {}
    for boot in sorted(boots, key=lambda b: (b.error_s, str(b.origin))):
        found.setdefault(boot.node, boot.boot_ns)
    for numbers in given:
        if numbers.boot_ns is not None:
            found[None] = numbers.boot_ns
            break
    return found


def dated(events: Sequence[E], near_ns: int | None, boots: Mapping[str | None, int]) -> list[E]:
    """Kernel events with year and boot time put in; an event that two parsers saw, or that stands in
    two copies of one log, is kept once."""
    found: dict[tuple[object, ...], E] = {}
    for event in events:
        boot = boots.get(event.node, boots.get(None))
        put_right = kernel_log.dated(event, near_ns, boot)
        key = (
            put_right.node,
            put_right.at_ns if put_right.at_ns is not None else str(put_right.origin),
            put_right.text,
            getattr(put_right, "xid", None),
        )
        found.setdefault(key, put_right)
    return list(found.values())


def in_zone(events: Sequence[E], shift_s: float) -> list[E]:
    """Times without a zone moved by the shift that the evidence suggests."""
    if not shift_s:
        return list(events)
    return [
        e if e.zone_stated or e.at_ns is None else replace(e, at_ns=e.at_ns + round(shift_s * NS))
        for e in events
    ]
