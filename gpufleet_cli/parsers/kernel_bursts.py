"""Many lines of one story become one event with `repeats`.

One crash writes 45 once per channel, hundreds in a second; 119 repeats every 45 s; a dead server is
reported by every client thread. A burst is the same thing on the same device, each line within a
window of the one before. Windows: Delta study 5 s; bursts of 13 15 s; clean-up 30 s; a burst of 31
ends after 3 minutes of quiet (facts on Xid correlation).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from gpufleet_cli.facts import Fact, HostEvent, HostSign, SxidEvent, XidEvent
from gpufleet_cli.parsers.kernel_xid import pci_key

WINDOW_S = 5.0
XID_WINDOWS_S = {13: 15.0, 31: 180.0, 43: 30.0, 45: 30.0, 119: 180.0, 120: 180.0, 154: 30.0}
HOST_WINDOWS_S = {
    HostSign.NFS_DOWN: 60.0,
    HostSign.NFS_OK: 60.0,
    HostSign.HUNG_TASK: 300.0,
    HostSign.LOCKUP: 60.0,
    HostSign.REBOOT: 60.0,
    HostSign.FS_ERROR: 60.0,
    HostSign.THERMAL: 300.0,
    HostSign.GPU_OFF_BUS: 60.0,
}
BUS_LOSS_XID = 79
BUS_LOSS_WINDOW_S = 60.0

Event = XidEvent | SxidEvent | HostEvent


def collapse(facts: Iterable[Fact]) -> list[Fact]:
    """The facts with bursts joined into their first line, in the order they came."""
    kept: list[Fact] = []
    open_bursts: dict[tuple[object, ...], tuple[int, float | None]] = {}
    repeats: dict[int, int] = {}
    for fact in facts:
        if not isinstance(fact, XidEvent | SxidEvent | HostEvent):
            kept.append(fact)
            continue
        key, at_s = _key(fact), _seconds(fact)
        index, last_s = open_bursts.get(key, (-1, None))
        if index >= 0 and _within(at_s, last_s, _window_s(fact)):
            repeats[index] = repeats.get(index, 0) + 1
        else:
            index = len(kept)
            kept.append(fact)
        open_bursts[key] = (index, at_s)
    return _without_bus_loss_doubles(
        [_with_repeats(fact, repeats.get(index, 0)) for index, fact in enumerate(kept)]
    )


def _with_repeats(fact: Fact, repeats: int) -> Fact:
    if repeats and isinstance(fact, XidEvent | SxidEvent | HostEvent):
        return replace(fact, repeats=fact.repeats + repeats)
    return fact


def _seconds(event: Event) -> float | None:
    return event.at_ns / 1e9 if event.at_ns is not None else event.boot_s


def _within(at_s: float | None, last_s: float | None, window_s: float) -> bool:
    """Without a time, lines that say the same are one burst."""
    if at_s is None or last_s is None:
        return at_s is None and last_s is None
    return abs(at_s - last_s) <= window_s


def _window_s(event: Event) -> float:
    match event:
        case XidEvent():
            return XID_WINDOWS_S.get(event.xid, WINDOW_S)
        case HostEvent():
            return HOST_WINDOWS_S.get(event.sign, WINDOW_S)
        case SxidEvent():
            return WINDOW_S


def _key(event: Event) -> tuple[object, ...]:
    pci = pci_key(event.pci_bus_id) or event.pci_bus_id
    match event:
        case XidEvent():
            return (
                event.xid,
                event.node,
                pci,
                event.gpu_instance,
                event.link,
                event.unit,
                event.severity,
                event.words if event.xid not in (13, 31, 43, 45) else (),
                event.caused_by,
            )
        case SxidEvent():
            return ("sxid", event.sxid, event.node, pci, event.link, event.fatal)
        case HostEvent():
            wording = re.sub(r"[0-9a-fA-FxX#.:]+", "", event.text[:160])
            return (
                event.sign,
                event.node,
                pci,
                event.pid,
                event.server,
                event.device,
                event.pod_uid,
                event.fatal,
                wording if event.server is None else "",
            )


def _without_bus_loss_doubles(facts: list[Fact]) -> list[Fact]:
    """The driver says "fallen off the bus" with and without an Xid: where 79 stands, the other is
    the same event."""
    losses = [f for f in facts if isinstance(f, XidEvent) and f.xid == BUS_LOSS_XID]
    if not losses:
        return facts
    return [
        fact
        for fact in facts
        if not (
            isinstance(fact, HostEvent)
            and fact.sign is HostSign.GPU_OFF_BUS
            and any(_same_loss(fact, loss) for loss in losses)
        )
    ]


def _same_loss(host: HostEvent, loss: XidEvent) -> bool:
    if host.node != loss.node:
        return False
    if host.pci_bus_id is not None and pci_key(host.pci_bus_id) != pci_key(loss.pci_bus_id):
        return False
    return _within(_seconds(host), _seconds(loss), BUS_LOSS_WINDOW_S)
