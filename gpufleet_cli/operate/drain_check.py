"""Would a drain of a node kill a gang, and at what price. Pure.

A drain evicts all pods of a node but those of DaemonSets and mirror pods. A gang with one living pod among
them stops with it, however it does now: a stalled one too. Pods that ended hold nothing, and those that are
being deleted already go without a drain; both are named. A node of which not all pods were seen is safe only
if somebody says so who has seen them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpufleet_cli import cost
from gpufleet_cli.drain_card import DrainCard, GangAtStake, NotAtStake, Price
from gpufleet_cli.live import held_gangs
from gpufleet_cli.live.held_gangs import Gang
from gpufleet_cli.live.node_gangs import phase_of
from gpufleet_cli.live.pods import Pod
from gpufleet_cli.node_card import Missing
from gpufleet_cli.parsers import json_documents as js
from gpufleet_cli.timestamps import NS_PER_S

MIRROR = "kubernetes.io/config.mirror"
UNKNOWN = "not known: neither --since-checkpoint nor --checkpoint-interval, nor the settings file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What is known of checkpoints and restarts, with who said so."""

    since_checkpoint_s: float | None = None
    interval_s: float | None = None
    interval_by: str = ""
    restart_s: float | None = None
    restart_by: str = ""


def is_drained(pod: Pod) -> bool:
    """Whether a drain evicts it at all: not what a DaemonSet made, and no mirror of a static pod."""
    if MIRROR in js.mapping(js.at(pod.raw, "metadata", "annotations")):
        return False
    owner = pod.state.owner or ""
    return not owner.startswith(("DaemonSet/", "Node/"))


def judged(
    node: str,
    gangs: Iterable[Gang],
    given: Given,
    *,
    now_ns: int,
    missing: Sequence[Missing] = (),
) -> DrainCard:
    """The answer for one node. `gangs` are those of its pods, with all their pods, on whatever node;
    `missing`: what could hide another one."""
    at_stake: list[GangAtStake] = []
    others: list[NotAtStake] = []
    for gang in sorted(gangs, key=held_gangs.order):
        here = [pod for pod in gang.pods if pod.state.node == node and is_drained(pod)]
        if not here:
            continue
        dying = [pod for pod in here if held_gangs.is_living(pod)]
        if dying and gang.is_gang:
            at_stake.append(_stake(gang, dying, given, now_ns))
        elif any(pod.state.gpus for pod in here) or gang.is_gang:
            others.append(_other(gang, here, dying))
    return DrainCard(
        node=node,
        safe=False if at_stake else None if missing else True,
        why=_why(at_stake, others, missing),
        read_at_ns=now_ns,
        gangs=tuple(at_stake),
        others=tuple(others),
        missing=tuple(missing),
    )


def _stake(gang: Gang, dying: Sequence[Pod], given: Given, now_ns: int) -> GangAtStake:
    age_s = None if gang.since_ns is None else max(0.0, (now_ns - gang.since_ns) / NS_PER_S)
    return GangAtStake(
        namespace=gang.job.namespace,
        kind=gang.job.kind,
        name=gang.shown,
        size=gang.size,
        pods=tuple(pod.name for pod in dying),
        gpus=gang.gpus,
        gpus_here=sum(pod.state.gpus or 0 for pod in dying),
        state="running" if gang.is_running else "starting",
        since_ns=gang.since_ns,
        price=price(gang.gpus, age_s, given),
    )


def _other(gang: Gang, here: Sequence[Pod], living: Sequence[Pod]) -> NotAtStake:
    if living:
        why = "one pod, no gang" if (gang.size or 1) < 2 else f"a {gang.job.kind}, no training gang"
    elif any(phase_of(pod) == "terminating" for pod in here):
        why = "its pods here are being deleted already"
    else:
        why = "its pods here have ended"
    return NotAtStake(
        namespace=gang.job.namespace,
        kind=gang.job.kind,
        name=gang.shown,
        pods=tuple(pod.name for pod in here),
        gpus=sum(pod.state.gpus or 0 for pod in living),
        why=why,
    )


def _why(
    at_stake: Sequence[GangAtStake], others: Sequence[NotAtStake], missing: Sequence[Missing]
) -> str:
    if at_stake:
        names = ", ".join(f"{one.namespace}/{one.name}" for one in at_stake)
        return f"a drain would kill {names}"
    if missing:
        return f"cannot be told: {missing[0].what}: {missing[0].why}"
    if any(one.gpus for one in others):
        return "no running gang would die, but the pods below would"
    return "no running gang would die"


# --- The price ------------------------------------------------------------------------------------


def price(gpus: int, age_s: float | None, given: Given) -> Price:
    """GPU-hours of the work since the last checkpoint, and of a restart.

    Without a known checkpoint half an interval is expected; a gang younger than one interval has done
    no more than its age. Nobody's word on either: not known.
    """
    since_s, since_by = _since_checkpoint(age_s, given)
    restart_s = cost.DEFAULT_RESTART_S if given.restart_s is None else given.restart_s
    return Price(
        since_checkpoint_s=since_s,
        since_checkpoint_by=since_by,
        restart_s=restart_s,
        restart_by="default" if given.restart_s is None else given.restart_by,
        recompute_gpu_hours=None if since_s is None else cost.gpu_hours(gpus, since_s),
        restart_gpu_hours=cost.gpu_hours(gpus, restart_s),
    )


def _since_checkpoint(age_s: float | None, given: Given) -> tuple[float | None, str]:
    if given.since_checkpoint_s is not None:
        return given.since_checkpoint_s, "--since-checkpoint"
    if given.interval_s is None:
        return None, UNKNOWN
    if age_s is not None and age_s < given.interval_s:
        return age_s, f"all since its start, younger than {given.interval_by}"
    return given.interval_s / 2, f"half of {given.interval_by}"
