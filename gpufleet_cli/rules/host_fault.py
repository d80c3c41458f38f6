"""The host ran out of memory and killed a rank, or a rank's pod was taken away from outside.

Host OOM is claimed by the kernel's kill (or the event that repeats it), joined to the pod by its uid and
to the rank by the agent's exit line or the loader's word (container pids differ from the kernel's); by a container that ended as OOMKilled; or by Slurm's
words. A removed pod did not die by itself. It cannot tell which process of a pod the kernel killed
without the agent's line.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpufleet_cli.facts import ContainerState, HostSign, Origin, PodState, Sign
from gpufleet_cli.reason import Case
from gpufleet_cli.reason.placed import NS, PlacedHost, PlacedSign
from gpufleet_cli.reason.xid_history import node_name, window
from gpufleet_cli.rules import claims, removed_pods
from gpufleet_cli.rules.claims import about, claim, ranks_text
from gpufleet_cli.verdict import Claim, Hypothesis, Kind, Remedy

NAME = "host_fault"
KILL_TO_EXIT_S = 60.0


def propose(case: Case) -> Iterator[Hypothesis]:
    """Memory, then crashes that the kernel saw, then removed pods."""
    yield from _oom(case)
    yield from _crashed(case)
    yield from removed_pods.hypotheses(case)


# --- Memory --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kill:
    """One kill for memory, by the kernel's line or by an event that repeats it."""

    node: str | None
    pod: str | None
    text: str
    origin: Origin
    at_ns: int | None


def _oom(case: Case) -> Iterator[Hypothesis]:
    by_place: dict[tuple[str | None, str | None], list[_Kill]] = {}
    for kill in _kills(case):
        by_place.setdefault((kill.node, kill.pod), []).append(kill)
    yield from (_oom_kernel(case, by_place[place]) for place in sorted(by_place, key=str))
    if not by_place:
        yield from _oom_pods(case)
        yield from _oom_words(case)


def _kills(case: Case) -> list[_Kill]:
    """The kernel's lines; else the events in which node-problem-detector repeats them."""
    killed = [
        h
        for h in case.hosts
        if h.event.sign is HostSign.OOM_KILL and h.relevant and not _is_of_another_job(case, h)
    ]
    if killed:
        return [
            _Kill(
                node=h.node,
                pod=h.pod or h.event.pod_uid,
                text=f"the kernel of {h.node} killed process {h.event.pid} for memory"
                f"{claims.when(h.at_ns)}" + (f", in {h.pod}" if h.pod else ""),
                origin=h.event.origin,
                at_ns=h.at_ns,
            )
            for h in killed
        ]
    span = window(case.onset_ns, case.as_of_ns, case.timeout_s)
    return [
        _Kill(
            node=node_name(event.name, case.topology),
            pod=None,
            text=f"event {event.reason} of {event.name}: {event.message[:90]}",
            origin=event.origin,
            at_ns=event.at_ns,
        )
        for event in case.events
        if event.reason == "OOMKilling"
        and event.kind.lower() == "node"
        and event.at_ns is not None
        and span is not None
        and span[0] <= event.at_ns <= span[1]
    ]


def _is_of_another_job(case: Case, host: PlacedHost) -> bool:
    """In a pod that is none of this job's, where the uids of its own pods on that node are known."""
    uid = host.event.pod_uid
    if uid is None or uid in case.topology.pod_by_uid:
        return False
    known = set(case.topology.pod_by_uid.values())
    return any(
        case.topology.node_of_pod.get(pod) == host.node and host.node is not None for pod in known
    )


def _oom_kernel(case: Case, kills: list[_Kill]) -> Hypothesis:
    first = kills[0]
    node = first.node
    found = [claim(first.text, first.origin, claims.STRONG, at_ns=first.at_ns)]
    candidates = case.topology.by_pod.get(first.pod or "", ()) or case.topology.by_node.get(
        node or "", ()
    )
    victims, told = _victims(case, candidates, first.at_ns)
    ranks = victims if victims or len(candidates) != 1 else candidates
    return Hypothesis(
        kind=Kind.HOST_OOM,
        rule=NAME,
        summary=f"{claims.sentence(ranks_text(ranks) if ranks else node or 'a node')} ran out of host"
        " memory and was killed.",
        claims=(*found, *told),
        remedy=Remedy.CODE,
        ranks=ranks,
        nodes=() if node is None else (node,),
        onset_ns=first.at_ns,
        degrades=True,
        worsens=True,
        worsens_why="the next run meets the same limit",
        reason_tag="host OOM",
        narrows=True,
        would_settle="" if ranks else "the agent's exit line: which local rank was killed",
    )


def _victims(
    case: Case, candidates: tuple[int, ...], at_ns: int | None
) -> tuple[tuple[int, ...], list[Claim]]:
    """Whose process the kernel killed: of a rank that its agent saw end by SIGKILL then, or whose data
    loader's worker was killed."""
    exits = _killed_exits(case, candidates, at_ns)
    ranks = {r for s in exits for r in _ranks(s, case) if r in candidates or not candidates}
    if ranks:
        return tuple(sorted(ranks)), [
            about(s, f"its agent saw exit {s.fact.exit_code} (SIGKILL) there", claims.GOOD)
            for s in exits[:1]
        ]
    loaders = [
        s
        for s in case.signs_of(Sign.LOADER_KILLED)
        if s.rank is not None
        and (s.rank in candidates or not candidates)
        and (s.fact.detail or "").startswith("Killed")
        and _is_close(s.at_ns, at_ns)
    ]
    ranks = {s.rank for s in loaders if s.rank is not None}
    return tuple(sorted(ranks)), [
        about(s, f"a worker of rank {s.rank}'s data loader was killed (SIGKILL)", claims.GOOD)
        for s in loaders[:1]
    ]


def _is_close(at_ns: int | None, kill_ns: int | None) -> bool:
    """An end that a kill explains, as far as the times are known."""
    if at_ns is None or kill_ns is None:
        return True
    return -KILL_TO_EXIT_S <= (at_ns - kill_ns) / NS <= KILL_TO_EXIT_S


def _killed_exits(case: Case, candidates: tuple[int, ...], at_ns: int | None) -> list[PlacedSign]:
    found = []
    for sign in case.signs_of(Sign.ROOT_CAUSE_BLOCK, Sign.CHILD_FAILED, Sign.TASK_EXIT):
        if sign.fact.exit_code not in (-9, 137) or not _is_close(sign.at_ns, at_ns):
            continue
        if not candidates or any(r in candidates for r in _ranks(sign, case)):
            found.append(sign)
    return found


def _ranks(sign: PlacedSign, case: Case) -> tuple[int, ...]:
    if sign.fact.named_ranks:
        return sign.fact.named_ranks
    local, pod = sign.fact.local_rank, sign.fact.speaker.pod
    if local is None:
        return () if sign.rank is None else (sign.rank,)
    unit = case.topology.by_pod.get(pod or "", ()) or case.topology.by_node.get(sign.node or "", ())
    return tuple(r for r in unit if case.topology.places[r].local_rank == local)


def _oom_pods(case: Case) -> Iterator[Hypothesis]:
    killed = [
        (pod, container)
        for pod in case.pods
        for container in pod.containers
        if _oom_killed(pod, container, case)
    ]
    if not killed:
        return
    ranks: tuple[int, ...] = ()
    told: list[Claim] = []
    for pod, container in killed:
        own = case.topology.by_pod.get(pod.name, ())
        victims, why = _victims(case, own, container.finished_ns) if own else ((), [])
        ranks += victims or (own if len(own) == 1 else ())
        told += why
    single = len(ranks) >= len(killed)
    names = ", ".join(sorted(pod.name for pod, _c in killed)[:3])
    many = "was" if len(killed) == 1 else "were"
    yield Hypothesis(
        kind=Kind.HOST_OOM,
        rule=NAME,
        summary=f"{names} {many} killed for memory (OOMKilled).",
        claims=tuple(
            claim(
                f"container {container.name} of {pod.name} ended as OOMKilled"
                f"{claims.when(container.finished_ns)}",
                pod.origin,
                claims.STRONG if i == 0 else claims.WEAK,
                at_ns=container.finished_ns,
            )
            for i, (pod, container) in enumerate(killed[:3])
        )
        + tuple(told[:1]),
        remedy=Remedy.CODE,
        ranks=tuple(sorted(ranks)) if single else (),
        nodes=tuple(sorted({pod.node for pod, _c in killed if pod.node is not None})),
        pods=() if single else tuple(sorted({pod.name for pod, _c in killed})),
        onset_ns=min(
            (c.finished_ns for _p, c in killed if c.finished_ns is not None), default=None
        ),
        degrades=True,
        reason_tag="host OOM",
        would_settle="the kernel logs of their nodes: which process was killed",
    )


def _oom_killed(pod: PodState, container: ContainerState, case: Case) -> bool:
    """The rank container was killed for memory: now, or in its last instance within this incident."""
    if pod.rank_container is not None and container.name != pod.rank_container:
        return False
    if container.reason == "OOMKilled":
        return not claims.is_after(case, container.finished_ns)
    ended = container.last_finished_ns
    if container.last_reason != "OOMKilled" or ended is None or case.as_of_ns is None:
        return False
    start = case.onset_ns if case.onset_ns is not None else case.as_of_ns
    return container.state != "running" or abs(start - ended) / NS < KILL_TO_EXIT_S * 15


def _oom_words(case: Case) -> Iterator[Hypothesis]:
    """The job's own log or Slurm says so; the line that names a task or host speaks for the rest."""
    signs = sorted(
        case.signs_of(Sign.HOST_OOM),
        key=lambda s: (s.rank is None, s.node is None and s.fact.speaker.host is None),
    )
    if not signs:
        return
    first = signs[0]
    node = first.node or first.fact.speaker.host
    who = ranks_text((first.rank,)) if first.rank is not None else node or "a task"
    yield Hypothesis(
        kind=Kind.HOST_OOM,
        rule=NAME,
        summary=f"{who[:1].upper()}{who[1:]} was killed for memory.",
        claims=tuple(
            about(s, s.fact.text[:160], claims.STRONG if i == 0 else claims.WEAK)
            for i, s in enumerate(signs[:2])
        ),
        remedy=Remedy.CODE,
        ranks=() if first.rank is None else (first.rank,),
        nodes=() if node is None else (node,),
        onset_ns=first.at_ns,
        degrades=True,
        reason_tag="host OOM",
        would_settle="the kernel log of its node",
    )


def _crashed(case: Case) -> Iterator[Hypothesis]:
    """A Python process of a node of this job that crashed by the kernel's word, where one did. Its pid is
    the host's, and seldom the one that an agent knows."""
    crashes = [
        h
        for h in case.hosts
        if h.event.sign is HostSign.SEGFAULT
        and h.relevant
        and h.node is not None
        and (h.event.process or "").startswith(RANK_PROCESSES)
        and (not case.topology.by_node or h.node in case.topology.by_node)
    ]
    if len({h.node for h in crashes}) != 1 or not case.stop.stopped:
        return
    first = crashes[0]
    node = first.node or ""
    exited = {
        rank
        for s in case.signs_of(Sign.ROOT_CAUSE_BLOCK, Sign.CHILD_FAILED)
        if s.fact.pid is not None and s.fact.pid == first.event.pid
        for rank in _ranks(s, case)
    }
    there = case.topology.by_node.get(node, ())
    yield Hypothesis(
        kind=Kind.RANK_CRASHED,
        rule=NAME,
        summary=f"A process of {node} crashed: {first.event.text[:90]}",
        claims=(
            claim(
                f"{node}: {first.event.text[:120]}",
                first.event.origin,
                claims.STRONG if first.event.zone_stated else claims.GOOD,
                at_ns=first.at_ns,
            ),
        ),
        remedy=Remedy.CODE,
        generic=True,
        ranks=tuple(sorted(exited)) if len(exited) == 1 else (),
        suspects=() if len(exited) == 1 else there,
        nodes=(node,),
        narrows=True,
        onset_ns=first.at_ns,
        degrades=True,
        reason_tag="segmentation fault",
        would_settle=f"the agent's exit line on {node}: which local rank ended by SIGSEGV",
    )


RANK_PROCESSES = ("python", "pt_", "torch", "train")
