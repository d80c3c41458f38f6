"""Facts of small incidents, for tests of rules: a job of eight ranks on two nodes that hangs.

`hang(quiet={3})` is what eight ranks leave when rank 3 stops and seven watchdogs give up ten minutes
later. Every maker takes further facts, so that a test names only what it is about.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gpufleet_cli.facts import (
    ContainerState,
    Fact,
    GroupRef,
    GroupStatus,
    HostEvent,
    HostSign,
    IdentityLink,
    JobNumbers,
    Link,
    LogSign,
    Origin,
    PodState,
    Progress,
    Sign,
    Speaker,
    StepPoint,
    WatchdogTimeout,
    Writes,
    XidEvent,
)
from gpufleet_cli.reason import Case
from gpufleet_cli.reason.build import build_case
from gpufleet_cli.verdict import Hypothesis, Verdict
from gpufleet_cli.weigh import weigh

S = 1_000_000_000
STOPPED = 1_772_420_000 * S
TIMEOUT_S = 600
GAVE_UP = STOPPED + TIMEOUT_S * S
WORLD = GroupRef(name="0", desc="default_pg")


def speaker(rank: int) -> Speaker:
    return Speaker(stream=f"pod-{rank // 4}.log", rank=rank, pod=f"pod-{rank // 4}")


def origin(rank: int, line: int = 1) -> Origin:
    return Origin(path=f"pod-{rank // 4}.log", line=line)


def places(size: int = 8) -> list[Fact]:
    return [
        IdentityLink(
            how=Link.TOPOLOGY_FILE,
            origin=Origin(path="topology.json"),
            rank=rank,
            pod=f"pod-{rank // 4}",
            node=f"node-{rank // 4}",
            local_rank=rank % 4,
            pci_bus_id=f"0000:{0x10 + rank % 4:02x}:00.0",
            pod_ip=f"10.0.0.{rank // 4}",
        )
        for rank in range(size)
    ]


def writes(rank: int, last: int, *, normal: int = STOPPED, complained: bool = False) -> Writes:
    return Writes(
        speaker=speaker(rank),
        first_ns=STOPPED - 3600 * S,
        last_ns=last,
        last_normal_ns=normal,
        last_line=100,
        last_normal_line=90,
        last_text="x",
        last_normal_text="step 9",
        lines=100,
        habit_s=2.0,
        habit_max_s=4.0,
        zone_stated=True,
        dated=True,
        cut=False,
        buffered=False,
        complained=complained,
        path=f"pod-{rank // 4}.log",
    )


def timeout(
    rank: int, *, at: int = GAVE_UP, seq: int | None = 77, numel: int = 64
) -> WatchdogTimeout:
    return WatchdogTimeout(
        speaker=speaker(rank),
        at_ns=at + rank * 1_000_000,
        group=WORLD,
        group_rank=rank,
        seq=seq,
        op="ALLREDUCE",
        numel_in=numel,
        numel_out=numel,
        timeout_ms=TIMEOUT_S * 1000,
        ran_ms=TIMEOUT_S * 1000,
        origin=origin(rank, 95),
    )


def status(rank: int, enqueued: int, completed: int) -> GroupStatus:
    return GroupStatus(
        speaker=speaker(rank),
        at_ns=GAVE_UP,
        group=WORLD,
        group_rank=rank,
        work=None,
        last_enqueued=enqueued,
        last_completed=completed,
        from_signal=True,
        origin=origin(rank, 96),
    )


def sign(kind: Sign, rank: int | None, at: int | None, **known: object) -> LogSign:
    made = LogSign(
        sign=kind,
        speaker=speaker(rank) if rank is not None else Speaker(stream="pod-0.log", pod="pod-0"),
        at_ns=at,
        text=f"{kind} line",
        origin=origin(rank or 0, 91),
    )
    return replace(made, **known)  # type: ignore[arg-type]


def xid(
    code: int, node: int = 0, gpu: int = 0, at: int | None = STOPPED - S, **known: object
) -> XidEvent:
    made = XidEvent(
        xid=code,
        node=f"node-{node}",
        pci_bus_id=f"0000:{0x10 + gpu:02x}:00",
        at_ns=at,
        text=f"NVRM: Xid {code}",
        origin=Origin(path=f"kernel/node-{node}.log", line=code),
        source="kernel",
    )
    return replace(made, **known)  # type: ignore[arg-type]


def host(kind: HostSign, node: int = 0, at: int = STOPPED - S, **known: object) -> HostEvent:
    made = HostEvent(
        sign=kind,
        node=f"node-{node}",
        at_ns=at,
        text=f"{kind} line",
        origin=Origin(path=f"kernel/node-{node}.log", line=7),
    )
    return replace(made, **known)  # type: ignore[arg-type]


def ended_pod(number: int, at: int) -> PodState:
    """A pod of four ranks whose container ended with exit code 1."""
    ended = ContainerState(
        name="c",
        state="terminated",
        reason="Error",
        message=None,
        exit_code=1,
        started_ns=None,
        finished_ns=at,
        restarts=0,
        has_gpu=True,
    )
    return PodState(
        name=f"pod-{number}",
        namespace=None,
        uid=None,
        node=None,
        pod_ip=None,
        phase="Failed",
        reason=None,
        created_ns=None,
        deleted_ns=None,
        containers=(ended,),
        rank_container="c",
        disruption=None,
        disrupted_ns=None,
        gpus=4,
        labels=(),
        node_rank=None,
        owner=None,
        origin=Origin(path="pods.json", entry=number),
    )


def steps(
    rank: int = 0, *, count: int = 20, until: int = STOPPED, every_s: float = 2.0
) -> Progress:
    first = until - round((count - 1) * every_s * S)
    points = tuple(
        StepPoint(at_ns=first + round(i * every_s * S), step=i, step_s=None, line=i + 1)
        for i in range(count)
    )
    return Progress(
        speaker=speaker(rank), points=points, total_steps=None, path=f"pod-{rank // 4}.log"
    )


def hang(
    *more: Fact, quiet: Iterable[int] = (3,), absent: Iterable[int] = (), size: int = 8
) -> list[Fact]:
    """Ranks of `quiet` wrote last when the job stopped; those of `absent` left nothing at all."""
    silent, gone = set(quiet), set(absent)
    facts: list[Fact] = [
        *places(size),
        JobNumbers(source="file", world_size=size),
        steps(until=STOPPED),
    ]
    for rank in range(size):
        if rank in gone:
            continue
        if rank in silent:
            facts.append(writes(rank, STOPPED))
        else:
            facts += [writes(rank, GAVE_UP + 60 * S, complained=True), timeout(rank)]
    return [*facts, *more]


def running(*more: Fact, size: int = 8) -> list[Fact]:
    """All ranks step until now."""
    facts: list[Fact] = [*places(size), JobNumbers(source="file", world_size=size)]
    facts += [steps(rank, until=STOPPED) for rank in range(size)]
    facts += [writes(rank, STOPPED) for rank in range(size)]
    return [*facts, *more]


def case(facts: Sequence[Fact], as_of: int | None = None) -> Case:
    return build_case(facts, as_of_ns=as_of, captured_ns=None)


def proposed(rule: object, facts: Sequence[Fact], as_of: int | None = None) -> list[Hypothesis]:
    return list(rule.propose(case(facts, as_of)))  # type: ignore[attr-defined]


def verdict(facts: Sequence[Fact], as_of: int | None = None) -> Verdict:
    from gpufleet_cli.rules import RULES

    made = case(facts, as_of)
    return weigh(made, [h for rule in RULES for h in rule.propose(made)])[0]
