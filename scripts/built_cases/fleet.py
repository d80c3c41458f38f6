"""The job that every built incident happens to, and the lines that its programs write.

64 ranks on eight nodes of eight GPUs; a step each two seconds; `HALT` is the moment of the fault.
Formats: `kubectl logs --timestamps` around `[rankN]:` lines, c10d watchdog lines of torch 2.6,
`journalctl -k -o short-iso-precise` for kernels unless a case says otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

WORLD = 64
HALT = datetime(2026, 4, 14, 9, 12, 7, 300000, tzinfo=UTC)
CHECKPOINT = HALT - timedelta(minutes=26)
TIMEOUT_S = 600
PCI = ("1b", "43", "52", "61", "9d", "c3", "d1", "df")
NODES = tuple(f"gpu-n{i:02d}" for i in range(1, 9))
STEP = 4200


def at(seconds: float) -> datetime:
    """The moment this long after the fault."""
    return HALT + timedelta(seconds=seconds)


def stamp(moment: datetime, digits: int = 6) -> str:
    """RFC 3339 with `Z`."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond:06d}"[:digits] + "Z"


def node_of(rank: int) -> str:
    return NODES[rank // 8]


def bus(rank: int, domain: str = "0000:") -> str:
    """PCI address as the kernel prints it in an Xid line: no function digit."""
    return f"{domain}{PCI[rank % 8]}:00"


def ranks_on(node: str) -> tuple[int, ...]:
    first = NODES.index(node) * 8
    return tuple(range(first, first + 8))


# --- What the scheduler knows -----------------------------------------------------------------


def topology(*, pods: bool = True, **extra: Any) -> str:  # noqa: ANN401 - fields of one table
    ranks = [
        {
            "rank": rank,
            "pod": f"train-{rank // 8}" if pods else None,
            "node": node_of(rank),
            "local_rank": rank % 8,
            "gpu_index": rank % 8,
            "pci_bus_id": f"{bus(rank)}.0",
        }
        for rank in range(WORLD)
    ]
    return json.dumps({"world_size": WORLD, "ranks": ranks, **extra}) + "\n"


def job(**extra: Any) -> str:  # noqa: ANN401 - fields of one table
    known = {
        "name": "train",
        "namespace": "ml",
        "world_size": WORLD,
        "gpus_per_node": 8,
        "checkpoint_interval_seconds": 3600,
        "last_checkpoint_at": stamp(CHECKPOINT),
        "watchdog_timeout_seconds": TIMEOUT_S,
    }
    return json.dumps({**known, **extra}) + "\n"


# --- What ranks write -------------------------------------------------------------------------


def steps(
    ranks: Iterable[int], *, until: float, count: int = 8, pace: float = 2.0, first: int = STEP
) -> list[str]:
    """Step lines of several ranks; the last one stands `until` seconds after the fault."""
    lines = []
    for number in range(count):
        moment = at(until - (count - 1 - number) * pace)
        text = f"step {first + number} loss 2.1 step_time {pace:.1f}s"
        lines += [f"{stamp(moment)} [rank{rank}]: {text}" for rank in ranks]
    return lines


def timed_out(
    ranks: Iterable[int], *, after: float = TIMEOUT_S, timeout_s: int = TIMEOUT_S
) -> list[str]:
    """Watchdog lines of waiting ranks, one an instant after the other, then the abort."""
    lines = []
    for index, rank in enumerate(ranks):
        moment = at(after + 0.2 + index * 0.037)
        head = f"{stamp(moment)} [rank{rank}]:[E{moment.month}{moment:%d %H:%M:%S}.{moment.microsecond:06d}412"
        lines.append(
            f"{head} ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught collective operation"
            f" timeout: WorkNCCL(SeqNum=5120, OpType=ALLREDUCE, NumelIn=268435456,"
            f" NumelOut=268435456, Timeout(ms)={timeout_s * 1000}) ran for {timeout_s * 1000 + 12}"
            " milliseconds before timing out."
        )
    return lines


def aborted(ranks: Iterable[int], *, after: float = TIMEOUT_S + 61) -> list[str]:
    lines = []
    for index, rank in enumerate(ranks):
        moment = at(after + index * 0.02)
        head = f"{stamp(moment)} [rank{rank}]:[E{moment.month}{moment:%d %H:%M:%S}.{moment.microsecond:06d}412"
        lines.append(
            f"{head} ProcessGroupNCCL.cpp:695] [Rank {rank}] To avoid data inconsistency, we are"
            " taking the entire process down."
        )
    return lines


def said(rank: int, seconds: float, text: str) -> str:
    return f"{stamp(at(seconds))} [rank{rank}]: {text}"


# --- What kernels write -----------------------------------------------------------------------


def kernel(node: str, seconds: float, message: str) -> str:
    """One line as `journalctl -k -o short-iso-precise` prints it."""
    return f"{at(seconds):%Y-%m-%dT%H:%M:%S}.{at(seconds).microsecond:06d}+00:00 {node} kernel: {message}"


UNNAMED = "pid='<unknown>', name=<unknown>, "


def xid(rank: int, code: int, text: str, *, pid: bool = False) -> str:
    """The message of an Xid on a rank's GPU."""
    who = "pid=41877, name=python3, " if pid else UNNAMED
    return f"NVRM: Xid (PCI:{bus(rank)}): {code}, {who}{text}"


OFF_BUS = "GPU has fallen off the bus."
DBE = (
    "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at"
    " physAddr 0x3a1f7c40 partition 16, subpartition 3."
)
REMAP = "Row Remapper: New row (0x000000000030c2b5) marked for remapping, reset gpu to activate."
REMAP_FAILED = "Row Remapper Error: (0x000000000030c2b5) - All reserved rows for bank are remapped"
CONTAINED = "Contained: CE User Channel (0x9). RST: No, D-RST: No"
UNCONTAINED = "Uncontained: LTC TAG (0x2,0x1). RST: Yes, D-RST: No"
MMU = (
    "Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_4 faulted @ 0x7f2c_11000000."
    " Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"
)
WARP = "Graphics SM Warp Exception on (GPC 3, TPC 5, SM 1): Out Of Range Address"


def cleanup(rank: int, node: str, seconds: float, count: int = 6) -> list[str]:
    """Xid 45, one a channel."""
    return [
        kernel(node, seconds + i * 0.004, xid(rank, 45, f"Ch {8 + i:08x}", pid=True))
        for i in range(count)
    ]


# --- One incident -----------------------------------------------------------------------------


@dataclass(kw_only=True)
class Incident:
    """Evidence and truth of one built case. `ranks` None: nobody may be named."""

    name: str
    title: str
    why: str
    verdict: str
    ranks: Sequence[int] | None
    actions: Sequence[str]
    nodes: Sequence[str] = ()
    also: Sequence[str] = ()
    also_ranks: Sequence[Sequence[int]] = ()
    by_node: bool = False
    innocent: Sequence[int] = ()
    captured: float = TIMEOUT_S + 75
    files: dict[str, str] = field(default_factory=dict)

    def answer(self) -> str:
        expected: dict[str, Any] = {
            "verdict": self.verdict,
            "acceptable_verdicts": list(self.also),
            "culprit_ranks": None if self.ranks is None else list(self.ranks),
            "acceptable_culprits": [list(ranks) for ranks in self.also_ranks],
            "acceptable_actions": list(self.actions),
            "culprit_nodes": list(self.nodes),
            "must_not_blame": list(self.innocent),
            "recommend": "",
        }
        if self.by_node:
            expected["culprit_match"] = "node"
        case = {
            "title": self.title,
            "captured_at": stamp(at(self.captured)),
            "expected": expected,
            "why": self.why,
            "note": "Composed in real line formats; hosts, pids and addresses are invented.",
        }
        return json.dumps(case, indent=1) + "\n"

    def add(self, path: str, lines: Iterable[str] | str) -> None:
        text = lines if isinstance(lines, str) else "\n".join(lines) + "\n"
        self.files[path] = self.files.get(path, "") + text


EVICT, CORDON, RESTART, FIX = "evict-now", "cordon-at-checkpoint", "restart-job", "fix-code"
QUIET = ("none", "watch")


def stalled(
    name: str,
    *,
    culprit: Sequence[int],
    witness_pods: Sequence[int] = (0, 2),
    state: bool = False,
    culprit_logs: bool = True,
    timeout_s: int = TIMEOUT_S,
    whole_node: bool = False,
    plain: bool = True,
    **truth: Any,  # noqa: ANN401 - fields of one table
) -> Incident:
    """A job that hung: the culprits write no more, the others time out; few pods were collected."""
    node = node_of(culprit[0])
    truth.setdefault("verdict", "hardware")
    truth.setdefault("ranks", culprit)
    truth.setdefault("nodes", (node,))
    truth.setdefault("actions", (EVICT,))
    truth.setdefault("captured", timeout_s + 75)
    pod = culprit[0] // 8
    witnesses = [r for p in witness_pods for r in range(p * 8, p * 8 + 8) if r not in culprit]
    siblings = [r for r in range(pod * 8, pod * 8 + 8) if r not in culprit and not whole_node]
    truth.setdefault("innocent", [*witnesses, *siblings])
    made = Incident(name=name, **truth)
    if plain:
        made.add("topology.json", topology())
        made.add(
            "job.json",
            job(**({"state": "stalled"} if state else {}), watchdog_timeout_seconds=timeout_s),
        )
    for number in witness_pods:
        own = [r for r in range(number * 8, number * 8 + 8) if r not in culprit]
        made.add(
            f"logs/train-{number}.log",
            steps(own, until=-1.0)
            + timed_out(own, after=timeout_s, timeout_s=timeout_s)
            + aborted(own, after=timeout_s + 61),
        )
    if culprit_logs and pod not in witness_pods:
        lines = steps([*culprit, *siblings], until=-1.0)
        lines += timed_out(siblings, after=timeout_s + 0.4, timeout_s=timeout_s)
        lines += aborted(siblings, after=timeout_s + 61.4)
        made.add(f"logs/train-{pod}.log", lines)
    return made


def running(name: str, *, rank: int, pods: Sequence[int] | None = None, **truth: Any) -> Incident:  # noqa: ANN401 - fields of one table
    """A job that steps on for two minutes after the event at `HALT`."""
    truth.setdefault("captured", 124.0)
    truth.setdefault("nodes", (node_of(rank),))
    made = Incident(name=name, **truth)
    made.add("topology.json", topology())
    made.add("job.json", job())
    for number in pods or sorted({0, rank // 8}):
        own = range(number * 8, number * 8 + 8)
        made.add(
            f"logs/train-{number}.log",
            steps(
                [own[0], *([rank] if rank in own and rank != own[0] else [])], until=121.0, count=40
            ),
        )
    return made
