"""Incidents of which little was collected: few nodes of a big job, a state given, no complaints yet."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from built_cases.fleet import (
    CONTAINED,
    CORDON,
    EVICT,
    FIX,
    MMU,
    OFF_BUS,
    PCI,
    QUIET,
    RESTART,
    TIMEOUT_S,
    UNNAMED,
    Incident,
    aborted,
    cleanup,
    job,
    kernel,
    said,
    steps,
    timed_out,
)

BIG = 512
CULPRIT, HOME = 413, "gpu-d052"
PLACES = {"gpu-a002": range(8, 16), HOME: range(408, 416), "gpu-b031": range(240, 248)}
INNOCENT = [r for ranks in PLACES.values() for r in ranks if r != CULPRIT]


def _bus(rank: int) -> str:
    return f"0000:{PCI[rank % 8]}:00"


def _xid(rank: int, code: int, text: str, *, pid: int | None = None) -> str:
    who = UNNAMED if pid is None else f"pid={pid}, name=python3, "
    return f"NVRM: Xid (PCI:{_bus(rank)}): {code}, {who}{text}"


def _topology(nodes: Sequence[str]) -> str:
    ranks = [
        {
            "rank": r,
            "pod": f"train-{r // 8}",
            "node": node,
            "local_rank": r % 8,
            "gpu_index": r % 8,
            "pci_bus_id": f"{_bus(r)}.0",
        }
        for node in nodes
        for r in PLACES[node]
    ]
    return json.dumps({"world_size": BIG, "ranks": ranks}) + "\n"


def _big(
    name: str,
    *,
    state: str,
    waited: bool,
    nodes: Sequence[str] = ("gpu-a002", HOME),
    until: float = -1.0,
    count: int = 12,
    **truth: object,
) -> Incident:
    """A job of 512 ranks of which some nodes are at hand. `waited`: watchdogs have complained."""
    fields = {
        "verdict": "hardware",
        "ranks": (CULPRIT,),
        "nodes": (HOME,),
        "actions": (EVICT,),
        "innocent": INNOCENT,
        "captured": TIMEOUT_S + 60 if waited else 60,
        **truth,
    }
    one = Incident(name=name, **fields)  # type: ignore[arg-type]
    one.add("topology.json", _topology(nodes))
    one.add("job.json", job(world_size=BIG, state=state))
    for node in nodes:
        ranks = PLACES[node]
        lines = steps(ranks, until=until, count=count)
        if waited:
            waiting = [r for r in ranks if r != CULPRIT]
            lines += timed_out(waiting) + aborted(waiting)
        one.add(f"logs/train-{ranks[0] // 8}.log", lines)
    return one


def incidents() -> Iterator[Incident]:
    yield from _not_yet_complained()
    yield from _application_codes()
    yield from _links()
    yield from _several()


def _not_yet_complained() -> Iterator[Incident]:
    for code, text in (
        (79, OFF_BUS),
        (
            119,
            "Timeout after 45s of waiting for RPC response from GPU2 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20808513 0x598).",
        ),
        (94, CONTAINED),
    ):
        one = _big(
            f"{code}-no-complaints-yet",
            state="stalled",
            waited=False,
            title=f"Xid {code} a minute ago; no watchdog has fired yet",
            why="The only cause code, at the last step of a job known to have stopped.",
        )
        one.add(f"kernel/{HOME}.log", [kernel(HOME, -0.4, _xid(CULPRIT, code, text))])
        yield one

    one = _big(
        "79-state-not-given",
        state="unknown",
        waited=False,
        captured=60,
        actions=(CORDON, EVICT),
        title="Xid 79 a minute ago; nothing says that the job stopped",
        why="Quiet logs alone leave the state unknown, and unknown is treated as running.",
    )
    one.files["job.json"] = job(world_size=BIG)
    one.add(f"kernel/{HOME}.log", [kernel(HOME, -0.4, _xid(CULPRIT, 79, OFF_BUS))])
    one.actions = (CORDON,)
    yield one

    one = _big(
        "154-alone-on-running-job",
        state="running",
        waited=False,
        until=58.0,
        count=30,
        actions=(*QUIET, CORDON),
        also=("healthy",),
        also_ranks=((),),
        title="Only the driver's summary: reset required",
        why="154 is no fault by itself; the job steps on.",
    )
    one.add(
        f"kernel/{HOME}.log",
        [
            kernel(
                HOME,
                0,
                f"NVRM: Xid (PCI:{_bus(CULPRIT)}): 154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)",
            )
        ],
    )
    yield one


def _application_codes() -> Iterator[Incident]:
    soft = {
        "verdict": "rank-crashed",
        "also": ("rank-missing", "cuda-oom"),
        "actions": (FIX, RESTART, "collect-more", "watch"),
    }
    one = _big(
        "13-once-no-traceback",
        state="aborted",
        waited=True,
        **soft,
        also_ranks=((),),
        title="One warp exception, no traceback kept",
        why="A single 13 is the application; no node is to blame.",
    )
    one.add(
        f"kernel/{HOME}.log",
        [
            kernel(
                HOME,
                -0.3,
                _xid(
                    CULPRIT,
                    13,
                    "Graphics SM Warp Exception on (GPC 1, TPC 0, SM 0): Out Of Range Address",
                    pid=4187,
                ),
            )
        ],
    )
    yield one

    one = _big(
        "13-burst-different-tpcs",
        state="aborted",
        waited=True,
        **soft,
        also_ranks=((),),
        title="Forty warp exceptions in two seconds over all TPCs",
        why="One burst is one crash; different units mean the application.",
    )
    one.add(
        f"kernel/{HOME}.log",
        [
            kernel(
                HOME,
                -0.3 + i * 0.05,
                _xid(
                    CULPRIT,
                    13,
                    f"Graphics SM Warp Exception on (GPC {i % 7}, TPC {i % 9}, SM {i % 2}): Out Of Range Address",
                    pid=4187,
                ),
            )
            for i in range(40)
        ],
    )
    yield one

    one = _big(
        "31-same-gpu-across-runs",
        state="aborted",
        waited=True,
        also=("rank-crashed",),
        actions=(EVICT, RESTART),
        title="Page faults on one GPU in four runs of different processes",
        why="Same GPU by PCI address across runs is hardware.",
    )
    one.add(
        f"kernel/{HOME}.log",
        [
            kernel(HOME, when, _xid(CULPRIT, 31, MMU, pid=pid))
            for when, pid in ((-5 * 86400, 911), (-3 * 86400, 20512), (-86400, 39001), (-0.2, 4187))
        ],
    )
    yield one

    one = _big(
        "31-another-gpu-each-run",
        state="aborted",
        waited=True,
        **soft,
        also_ranks=((),),
        title="Page faults that move over the node's GPUs from run to run",
        why="Different GPUs: the application.",
    )
    one.add(
        f"kernel/{HOME}.log",
        [
            kernel(HOME, when, _xid(rank, 31, MMU, pid=pid))
            for when, pid, rank in (
                (-5 * 86400, 911, 409),
                (-3 * 86400, 20512, 411),
                (-86400, 39001, 408),
                (-0.2, 4187, CULPRIT),
            )
        ],
    )
    yield one

    one = _big(
        "tenant-crash-before-62",
        state="stalled",
        waited=True,
        title="Application codes of another process on a witness's node a minute before; a PMU halt at the onset",
        why="13, 43 and 45 before the onset are application codes; 62 is the cause although later.",
    )
    one.add(
        "kernel/gpu-a002.log",
        [
            kernel(
                "gpu-a002",
                -60,
                _xid(
                    10,
                    13,
                    "Graphics SM Warp Exception on (GPC 1, TPC 0, SM 0): Out Of Range Address",
                    pid=991,
                ),
            ),
            kernel("gpu-a002", -59.9, _xid(10, 43, "channel 0x00000002", pid=991)),
            *cleanup(10, "gpu-a002", -59.8, 12),
        ],
    )
    one.add(
        f"kernel/{HOME}.log",
        [
            kernel(
                HOME,
                -0.4,
                f"NVRM: Xid (PCI:{_bus(CULPRIT)}): 62, 32260b5e 000154b0 00000000 20208001",
            )
        ],
    )
    yield one

    one = _big(
        "finished-then-45-storm",
        state="exited",
        waited=False,
        verdict="healthy",
        ranks=(),
        actions=QUIET,
        title="Training ends; the teardown leaves clean-up codes",
        why="Completed before the noise: no incident.",
    )
    one.files["job.json"] = job(world_size=BIG)
    one.add(
        "logs/train-1.log",
        [
            said(8, 0.2, "successfully saved checkpoint from iteration    4211 to /ckpt/run"),
            said(8, 0.5, "Training completed"),
        ],
    )
    one.add(
        "kernel/gpu-a002.log",
        [line for r in PLACES["gpu-a002"] for line in cleanup(r, "gpu-a002", 4 + r / 100, 16)],
    )
    yield one


def _links() -> Iterator[Incident]:
    def fatal(rank: int, link: int, words: str) -> str:
        return _xid(rank, 74, f"NVLink: fatal error detected on link {link}({words})")

    one = _big(
        "74-parity-end-and-sympathetic-end",
        state="stalled",
        waited=True,
        nodes=("gpu-a002", "gpu-b031"),
        title="Two ends of one link: one reports parity, the other sympathy",
        by_node=False,
        why="Register 3 bit 0 is ECC/parity hardware; register 1 bit 20 is sympathetic.",
    )
    one.files["topology.json"] = _topology(("gpu-a002", HOME, "gpu-b031"))
    one.add(
        f"kernel/{HOME}.log",
        [
            kernel(HOME, -0.9, fatal(409, 6, "0x100000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0")),
            kernel(HOME, -0.7, fatal(CULPRIT, 11, "0x0, 0x0, 0x1, 0x0, 0x0, 0x0, 0x0")),
        ],
    )
    yield one

    one = _big(
        "74-two-equal-ends",
        state="stalled",
        waited=True,
        nodes=("gpu-a002", "gpu-b031"),
        by_node=True,
        ranks=(409, CULPRIT),
        innocent=[r for r in INNOCENT if r != 409],
        title="Two ends of one link with the same bits",
        why="Which end is open; both are on one node, so the node goes.",
    )
    one.files["topology.json"] = _topology(("gpu-a002", HOME, "gpu-b031"))
    one.add(
        f"kernel/{HOME}.log",
        [
            kernel(HOME, -0.9, fatal(409, 6, "0x100, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0")),
            kernel(HOME, -0.9, fatal(CULPRIT, 11, "0x100, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0")),
        ],
    )
    yield one

    one = _big(
        "137-everywhere-79-once",
        state="stalled",
        waited=True,
        title="Remote access refused on peers, a bus loss on one",
        why="137 follows a vanished peer; 79 is the cause though logged last.",
    )
    one.add(
        f"kernel/{HOME}.log",
        [
            *(
                kernel(HOME, -1.0 + i * 0.01, _xid(r, 137, "NVLink PRIV error", pid=4000 + r))
                for i, r in enumerate(PLACES[HOME])
                if r != CULPRIT
            ),
            kernel(HOME, 1.5, _xid(CULPRIT, 79, OFF_BUS)),
        ],
    )
    yield one

    one = _big(
        "sxid-nonfatal-running",
        state="running",
        waited=False,
        until=58.0,
        count=30,
        verdict="healthy",
        ranks=(),
        actions=QUIET,
        title="A non-fatal switch error on a job that runs",
        why="12028 is non-fatal: watch.",
    )
    one.add(
        f"kernel/{HOME}.log",
        [
            kernel(
                HOME,
                0,
                "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)",
            )
        ],
    )
    yield one

    one = _big(
        "sxid-fatal-only",
        state="stalled",
        waited=True,
        nodes=("gpu-a002", "gpu-b031"),
        by_node=True,
        ranks=tuple(PLACES[HOME]),
        innocent=[*PLACES["gpu-a002"], *PLACES["gpu-b031"]],
        title="A fatal switch error on a node whose logs are missing",
        why="Fatal takes the whole node; no single GPU of it.",
    )
    one.files["topology.json"] = _topology(("gpu-a002", HOME, "gpu-b031"))
    one.add(
        f"kernel/{HOME}.log",
        [
            kernel(
                HOME,
                -0.5,
                "nvidia-nvswitch0: SXid (PCI:0000:07:00.0): 19084, Fatal, Link 14 AN1 Heartbeat Timeout Error",
            ),
            *(
                kernel(HOME, 0.5 + i / 100, _xid(r, 45, "Ch 00000008", pid=4100))
                for i, r in enumerate(PLACES[HOME])
            ),
        ],
    )
    yield one


def _several() -> Iterator[Incident]:
    yield _pair()

    one = _big(
        "second-fault-later",
        state="stalled",
        waited=True,
        nodes=("gpu-a002", HOME, "gpu-b031"),
        also_ranks=((243, CULPRIT),),
        innocent=[r for r in INNOCENT if r != 243],
        title="A GSP timeout stops the job; five minutes later another node loses a GPU",
        why="The first is the cause of the stall; the second came while everybody waited.",
    )
    one.add(
        f"kernel/{HOME}.log",
        [
            kernel(
                HOME,
                -0.4,
                _xid(
                    CULPRIT,
                    119,
                    "Timeout after 45s of waiting for RPC response from GPU2 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20808513 0x598).",
                ),
            )
        ],
    )
    one.add("kernel/gpu-b031.log", [kernel("gpu-b031", 300, _xid(243, 79, OFF_BUS))])
    yield one

    one = _big(
        "short-form-and-reversed-devices",
        state="stalled",
        waited=True,
        nodes=("gpu-a002", HOME),
        title="An old driver's short line; devices are numbered against the bus order",
        why="The PCI address of the topology decides, not the index.",
    )
    bare = json.loads(one.files["topology.json"])
    for entry in bare["ranks"]:
        entry["pci_bus_id"] = f"00000000:{PCI[7 - entry['local_rank']].upper()}:00.0"
    one.files["topology.json"] = json.dumps(bare) + "\n"
    one.add(
        f"kernel/{HOME}.log",
        [
            kernel(
                HOME,
                -0.4,
                f"NVRM: Xid (0000:{PCI[7 - CULPRIT % 8]}:00): 79, GPU has fallen off the bus.",
            )
        ],
    )
    yield one

    one = _big(
        "node-known-rank-not",
        state="stalled",
        waited=True,
        nodes=("gpu-a002", "gpu-b031"),
        by_node=True,
        ranks=tuple(PLACES[HOME]),
        innocent=[*PLACES["gpu-a002"], *PLACES["gpu-b031"]],
        title="No bus addresses anywhere: the node is known, the rank is not",
        why="rank is null where only the node is known.",
    )
    bare = json.loads(_topology(("gpu-a002", HOME, "gpu-b031")))
    for entry in bare["ranks"]:
        entry["pci_bus_id"] = entry["gpu_index"] = None
    one.files["topology.json"] = json.dumps(bare) + "\n"
    one.add(f"kernel/{HOME}.log", [kernel(HOME, -0.4, _xid(CULPRIT, 79, OFF_BUS))])
    yield one


def _pair() -> Incident:
    one = _big(
        "two-nodes-lose-a-gpu",
        state="stalled",
        waited=False,
        captured=TIMEOUT_S + 60,
        nodes=("gpu-a002", HOME, "gpu-b031"),
        ranks=(243, CULPRIT),
        innocent=[r for r in INNOCENT if r != 243],
        title="Two GPUs of two nodes leave the bus within a second",
        why="Both are causes and both ranks are silent: several culprits.",
    )
    one.nodes = (HOME, "gpu-b031")
    for ranks in PLACES.values():
        waiting = [r for r in ranks if r not in (CULPRIT, 243)]
        one.add(f"logs/train-{ranks[0] // 8}.log", timed_out(waiting) + aborted(waiting))
    one.add(f"kernel/{HOME}.log", [kernel(HOME, -0.4, _xid(CULPRIT, 79, OFF_BUS))])
    one.add("kernel/gpu-b031.log", [kernel("gpu-b031", -0.1, _xid(243, 79, OFF_BUS))])
    return one
