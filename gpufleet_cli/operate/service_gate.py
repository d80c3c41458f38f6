"""What must have passed before a node goes back to service, each item judged by what could be seen.

Pure. Where nothing tells, an item is unknown and the gate stays shut until a person states it: absence of a
bad sign is none of a good one. A kubelet that restarted is no reboot, and XIDs that nobody watched for are
not absent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpufleet_cli import xid_catalog
from gpufleet_cli.cordon_card import GateItem
from gpufleet_cli.live.node_watch import Watched
from gpufleet_cli.render.layout import counted, duration
from gpufleet_cli.timestamps import format_ns

NS = 1_000_000_000
HOLE_S = 300.0
"""The longest pause between samples that still counts as watching."""
_FAILED = re.compile(
    r"\bfail(?:s|ed|ure|ures)?\b|\berrors?\b|\bnot\s+(?:ok|passed)\b", re.IGNORECASE
)
_PASSED = re.compile(r"\bpass(?:es|ed)?\b|\bok\b|\bsuccess(?:ful)?\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceFacts:
    """What was seen of a node. None is not known, also for `cordoned_ns` of an annotation without a time.

    `rebooted_ns` is the newest event `Rebooted`, `kubelet_ns` the newest `Starting`; `runs_since` names a
    job whose pods have run there since before the cordon.
    """

    now_ns: int
    cordoned_ns: int | None
    created_ns: int | None = None
    rebooted_ns: int | None = None
    kubelet_ns: int | None = None
    runs_since: str | None = None
    ready: str | None = None
    is_silent: bool | None = None
    bad: tuple[str, ...] = ()
    capacity: int | None = None
    allocatable: int | None = None
    watched: Watched | None = None
    why_not_watched: str = "no metrics were asked: --prometheus URL"
    xid_free_s: float = 3600.0
    diagnostics: str | None = None


def items(facts: ServiceFacts, stated: Mapping[str, str]) -> tuple[GateItem, ...]:
    """The whole gate, in the order of work."""
    found = (_reset(facts), _xids(facts), _diagnostics(facts), _healthy(facts), _gpus(facts))
    return tuple(
        GateItem(name=one.name, state=one.state, why=one.why, stated=stated.get(one.name))
        for one in found
    )


def _reset(facts: ServiceFacts) -> GateItem:
    """A reset or a reboot since the cordon. A reset of a GPU alone leaves no sign in the cluster."""
    since = facts.cordoned_ns
    if since is None:
        return _unknown("reset", "the annotation does not tell when it was cordoned")
    boot_ns = None if facts.watched is None else facts.watched.boot_ns
    signs = (
        (boot_ns, "booted", "node_boot_time_seconds"),
        (facts.rebooted_ns, "rebooted", "event"),
        (facts.created_ns, "registered anew", "creationTimestamp"),
    )
    for at_ns, what, told_by in signs:
        if at_ns is not None and at_ns > since:
            return _pass("reset", f"{what} at {format_ns(at_ns)} ({told_by})")
    if facts.runs_since is not None:
        why = f"{facts.runs_since} has run on it since before the cordon"
        return GateItem(name="reset", state="fail", why=why)
    if boot_ns is not None:
        told = f"up since {format_ns(boot_ns)}, before the cordon; a reset of GPUs leaves no sign"
        return _unknown("reset", told)
    if facts.kubelet_ns is not None and facts.kubelet_ns > since:
        told = (
            f"its kubelet started at {format_ns(facts.kubelet_ns)}, which is no proof of a reboot"
        )
        return _unknown("reset", told)
    return _unknown("reset", "no sign of one; events are kept for an hour")


def _xids(facts: ServiceFacts) -> GateItem:
    """No XID of the machine's for so long, and somebody watched all that time."""
    watched = facts.watched
    if watched is None:
        return _unknown("xid-free", facts.why_not_watched)
    begin_ns = facts.now_ns - round(facts.xid_free_s * NS)
    recent = [one for one in watched.xids if one.at_ns >= begin_ns and not _is_programs(one.xid)]
    if recent:
        newest = max(recent, key=lambda one: one.at_ns)
        gpu = "" if newest.gpu_index is None else f" of GPU {newest.gpu_index}"
        ago = duration((facts.now_ns - newest.at_ns) / NS)
        return GateItem(name="xid-free", state="fail", why=f"XID {newest.xid}{gpu} {ago} ago")
    if watched.not_whole:
        return _unknown("xid-free", f"the metrics are not whole: {watched.not_whole}")
    wanted = duration(facts.xid_free_s)
    hole = _hole(watched, begin_ns, facts.now_ns)
    if hole is not None:
        return _unknown("xid-free", f"the metrics do not cover {wanted}: {hole}")
    standing = [code for code in watched.standing if not _is_programs(code)]
    if standing:
        told = f"the gauge still stands at XID {standing[0]}: the same code again would not show"
        return _unknown("xid-free", told)
    return _pass("xid-free", f"none for {wanted} on {counted(watched.gpus, 'GPU')}")


def _is_programs(code: int) -> bool:
    """A program's own fault; an unknown code is nobody's and counts."""
    entry = xid_catalog.xid(code)
    return entry.known and entry.layer == "app"


def _hole(watched: Watched, begin_ns: int, now_ns: int) -> str | None:
    """Where nobody watched, of the whole time that is asked for."""
    if watched.first_ns is None or watched.last_ns is None:
        return "there is no sample"
    if watched.first_ns > begin_ns + HOLE_S * NS:
        return f"samples begin {duration((now_ns - watched.first_ns) / NS)} ago"
    if watched.last_ns < now_ns - HOLE_S * NS:
        return f"samples end {duration((now_ns - watched.last_ns) / NS)} ago"
    if watched.longest_pause_s > HOLE_S:
        return f"nothing for {duration(watched.longest_pause_s)} in between"
    return None


def _diagnostics(facts: ServiceFacts) -> GateItem:
    text = facts.diagnostics
    if not text:
        return _unknown("diagnostics", "no result given: --diagnostics 'dcgmi diag -r 3: pass'")
    if _FAILED.search(text):
        return GateItem(name="diagnostics", state="fail", why=text)
    if _PASSED.search(text):
        return _pass("diagnostics", text)
    return _unknown("diagnostics", f"{text!r} says neither pass nor fail")


def _healthy(facts: ServiceFacts) -> GateItem:
    told = list(_ills(facts))
    if told:
        return GateItem(name="healthy", state="fail", why=", ".join(told))
    if facts.ready is None:
        return _unknown("healthy", "the node has no Ready condition")
    if facts.is_silent is None:
        return _unknown("healthy", "Ready, but its lease could not be read")
    return _pass("healthy", "Ready, its lease is fresh, no bad condition")


def _ills(facts: ServiceFacts) -> Iterator[str]:
    if facts.ready not in (None, "True"):
        yield f"Ready={facts.ready}"
    if facts.is_silent:
        yield "its lease is stale"
    yield from facts.bad


def _gpus(facts: ServiceFacts) -> GateItem:
    capacity, allocatable = facts.capacity, facts.allocatable
    if not capacity or allocatable is None:
        return _unknown("gpus", "the node tells of no GPU")
    if allocatable < capacity:
        why = f"{allocatable} of {counted(capacity, 'GPU')} allocatable"
        return GateItem(name="gpus", state="fail", why=why)
    return _pass("gpus", f"{allocatable} of {capacity} allocatable")


def _pass(name: str, why: str) -> GateItem:
    return GateItem(name=name, state="pass", why=why)


def _unknown(name: str, why: str) -> GateItem:
    return GateItem(name=name, state="unknown", why=why)
