"""What ProcessGroupNCCL says of a timeout, of the signal to dump, and when it ends the process.

Wording per release; `[Rank N]` and the rank behind `PG` count inside the group. The numbers behind
the dump signal are the default group's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random

from gpufleet_cli.operate.simulate import log_lines as ll
from gpufleet_cli.operate.simulate import numbering
from gpufleet_cli.operate.simulate.layout import Group
from gpufleet_cli.operate.simulate.log_lines import Line, Says, TimedOut, rank_ns
from gpufleet_cli.operate.simulate.programs import Op
from gpufleet_cli.operate.simulate.story import Class, Ending, Firing, Story

OP_TYPES = {
    "all_reduce": "ALLREDUCE",
    "all_to_all": "ALLTOALL_BASE",
    "send": "SEND",
    "recv": "RECV",
    "ring": "COALESCED",
    "all_gather": "ALLGATHER",
    "_all_gather_base": "_ALLGATHER_BASE",
    "_reduce_scatter_base": "_REDUCE_SCATTER_BASE",
}
UNSET = 18_446_744_073_709_551_615
# Lines of ProcessGroupNCCL.cpp: timeout, status, stack, dump signal, dump, failed, down, terminated.
_SITES = {
    "2.1": (474, 0, 0, 0, 0, 488, 494, 915),
    "2.4": (607, 1664, 0, 1414, 1286, 621, 627, 1515),
    "2.6": (629, 2168, 667, 1679, 1471, 681, 695, 1895),
    "2.8": (688, 2414, 727, 1870, 1589, 740, 754, 1968),
    "2.10": (690, 2441, 730, 1890, 1590, 742, 756, 1987),
}
_CAUSES = (
    "This is most likely caused by incorrect usages of collectives, e.g., wrong sizes used across ranks, "
    "the order of collectives is not same for all ranks or the scheduled collective, for some reason, "
    "didn't run. Additionally, this can be caused by GIL deadlock or other reasons such as network errors "
    "or bugs in the communications library (e.g. NCCL), etc. "
)
_NO_STACK = (
    "Stack trace of the failed collective not found, potentially because FlightRecorder is disabled. "
    "You can enable it by setting TORCH_NCCL_TRACE_BUFFER_SIZE to a non-zero value."
)
_FAILED = (
    "Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, "
    "subsequent GPU operations might run on corrupted/incomplete data."
)
_LIBRARY = "/opt/conda/lib/python3.11/site-packages/torch/lib/libtorch_cuda.so"
_FRAMES = (
    "frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x96 "
    "(0x7fe5f3a6ff0d in /opt/conda/lib/python3.11/site-packages/torch/lib/libc10.so)",
    f"frame #1: c10d::ProcessGroupNCCL::WorkNCCL::checkTimeout() + 0x1d2 (0x7fe5f3c12a49 in {_LIBRARY})",
    f"frame #2: c10d::ProcessGroupNCCL::watchdogHandler() + 0x233 (0x7fe5f3c14a49 in {_LIBRARY})",
    f"frame #3: c10d::ProcessGroupNCCL::ncclCommWatchdog() + 0x10c (0x7fe5f3c16a49 in {_LIBRARY})",
)
_DESYNC = frozenset(
    {Class.SKIPPED, Class.REORDERED, Class.MISMATCH, Class.GC_STALL, Class.LOADER_STALL}
)


@dataclass(frozen=True, slots=True)
class Counted:
    """A rank's program with the number that the watchdog shows for each call, and where groups began."""

    rank: int
    shown: tuple[int, ...]
    begun: Mapping[int, int]


def counted(story: Story, rank: int) -> Counted:
    """The numbers of a rank's calls: of its own kind for a lone send or receive."""
    program = story.programs[rank]
    pairs = numbering.numbers(story, rank)
    shown = tuple(
        pair[1] if op.does in ("send", "recv") else pair[0]
        for op, pair in zip(program, pairs, strict=True)
    )
    begun = {
        number: collectives or p2p
        for number, (collectives, p2p) in numbering.before(story, rank).items()
    }
    return Counted(rank, shown, begun)


def status(story: Story, of: Counted, group: Group, at_s: float) -> tuple[int, int]:
    """(last enqueued, last completed) of a group on a rank, as the watchdog knows them; -1: none."""
    rank = of.rank
    enqueued, done = story.moments.enqueued[rank], story.moments.done[rank]
    last = completed = of.begun.get(group.number, 0) or -1
    for call, op in enumerate(story.programs[rank]):
        if op.group is None or op.group.number != group.number or not of.shown[call]:
            continue
        began, ended = enqueued[call], done[call]
        if began is None or began > at_s:
            break
        last = of.shown[call]
        if ended is not None and ended <= at_s:
            completed = of.shown[call]
    return last, completed


def numels(op: Op) -> tuple[int, int]:
    """Elements in and out, as `WorkNCCL` prints them: not set for a batch."""
    if op.does == "ring":
        return UNSET, UNSET
    size = 1
    for n in op.size:
        size *= n
    members = 1 if op.group is None else len(op.group.members)
    if "gather" in op.name:
        return size, size * members
    if "reduce_scatter" in op.name:
        return size, max(1, size // members)
    return size, size


def op_type(op: Op) -> str:
    """The name of an operation in logs."""
    return OP_TYPES.get(op.name, op.name.upper())


def _group_name(story: Story, rank: int, group: Group) -> str:
    local = group.members.index(rank)
    if story.style.torch == "2.4":
        return f"[PG {group.number} ({group.desc}) Rank {local}]"
    own = list(story.layout.groups_of[rank].values()).index(group)
    return f"[PG ID {own} PG GUID {group.number}({group.desc}) Rank {local}]"


def timeout_text(story: Story, firing: Firing, shown: int) -> str:
    """The sentence of a watchdog that fires."""
    op = story.programs[firing.rank][firing.call]
    assert op.group is not None
    inside = op.group.members.index(firing.rank)
    into, out = numels(op)
    limit = round(story.timeout_s * 1000)
    return (
        f"[Rank {inside}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={shown}, "
        f"OpType={op_type(op)}, NumelIn={into}, NumelOut={out}, Timeout(ms)={limit}) ran for "
        f"{firing.ran_ms} milliseconds before timing out."
    )


# --- The timeout --------------------------------------------------------------------------------------


def firing_lines(story: Story, firing: Firing, of: Counted) -> Iterator[Line]:
    """A rank's own timeout, with what its release says beside it."""
    rank, torch = firing.rank, story.style.torch
    group = story.programs[rank][firing.call].group
    assert group is not None
    shown = of.shown[firing.call]
    sites = _SITES[torch]
    ns = rank_ns(story, rank, firing.at_s)

    def say(after_ns: int, site: int, text: str, says: TimedOut | None = None) -> Line:
        at = ns + after_ns
        return Line(at, rank, True, ll.c10(story, rank, at, site) + text, says)

    yield say(0, sites[0], timeout_text(story, firing, shown), TimedOut(firing.call))
    if torch == "2.1":
        return
    name = _group_name(story, rank, group)
    last, completed = status(story, of, group, firing.at_s)
    if torch == "2.4":
        text = (
            f"{name} Exception (either an error or timeout) detected by watchdog at work: {shown}, "
            f"last enqueued NCCL work: {last}, last completed NCCL work: {completed}."
        )
        yield say(300_000, sites[1], text)
        yield say(310_000, sites[3], f"{name} First PG on this rank to signal dumping.")
    else:
        text = (
            f"{name}  failure detected by watchdog at work sequence id: {shown} "
            f"PG status: last enqueued work: {last}, last completed work: {completed}"
        )
        yield say(80_000, sites[1], text)
        yield from _stack(story, firing, ns + 95_000, sites[2])
        text = "Broadcasting flight-recorder dump signal to other processes via TCPStore."
        yield say(130_000, sites[3] - 40, f"{name} {text}")
    yield from _dump_lines(story, of, firing.at_s + 0.6, "this local rank")


def _stack(story: Story, firing: Firing, ns: int, site: int) -> Iterator[Line]:
    rank = firing.rank
    head = ll.c10(story, rank, ns, site)
    op = story.programs[rank][firing.call]
    if not story.style.frames or story.style.ring <= 0:
        yield Line(ns, rank, True, head + _NO_STACK)
        return
    yield Line(ns, rank, True, f"{head}Stack trace of the failed collective: ")
    library = "/opt/conda/lib/python3.11/site-packages/torch/distributed"
    for n, frame in enumerate(
        (
            f"{op.name} from {library}/distributed_c10d.py:2810",
            f"wrapper from {library}/c10d_logger.py:81",
            f"{op.phase} from /workspace/train.py:{211 + len(op.phase)}",
        )
    ):
        yield Line(ns, rank, True, f"#{n} {frame}")
    yield Line(ns, rank, True, "")


def _dump_lines(story: Story, of: Counted, at_s: float, source: str) -> Iterator[Line]:
    """The monitor's thread of the default group: it was told to dump."""
    rank, torch = of.rank, story.style.torch
    world = story.layout.groups_of[rank]["world"]
    name, sites = _group_name(story, rank, world), _SITES[torch]
    last, completed = status(story, of, world, at_s)
    numbers = f"Last enqueued NCCL work: {last}, last completed NCCL work: {completed}."
    ns = rank_ns(story, rank, at_s)
    if torch == "2.4":
        word = (
            f"Received a timeout signal from {source} and"
            if source == "this local rank"
            else f"Received a global dump signal from {source.strip()}, and"
        )
        text = f"{name} {word} will start to dump the debug info. {numbers}"
    else:
        text = (
            f"{name} Received a dump signal due to a collective timeout from {source} and we will try "
            f"our best to dump the debug info. {numbers}{_CAUSES}"
        )
    yield Line(ns, rank, True, ll.c10(story, rank, ns, sites[3]) + text)
    active = ", only active collectives: 0" if torch == "2.10" else ""
    text = f"{name} ProcessGroupNCCL preparing to dump debug info. Include stack trace: 1{active}"
    ns += 100_000
    yield Line(ns, rank, True, ll.c10(story, rank, ns, sites[4]) + text)


def signal_lines(story: Story, of: Counted, at_s: float) -> Iterator[Line]:
    """A rank sees that another rank's watchdog fired."""
    rank, torch = of.rank, story.style.torch
    if torch == "2.1":
        return
    told = [f for f in story.firings if f.at_s <= at_s]
    first = min(told, key=lambda f: (f.at_s, f.rank), default=None)
    ns = rank_ns(story, rank, at_s)
    if torch != "2.4":
        world = story.layout.groups_of[rank]["world"]
        text = "Observed flight recorder dump signal from another rank via TCPStore."
        head = ll.c10(story, rank, ns, _SITES[torch][3] - 64)
        yield Line(ns, rank, True, f"{head}{_group_name(story, rank, world)} {text}")
    source = f" rank {-1 if first is None else first.rank}"
    yield from _dump_lines(story, of, at_s + 0.0004, source)


# --- The end --------------------------------------------------------------------------------------------


def abort_lines(
    story: Story, ending: Ending, firing: Firing | None, of: Counted, desync: list[str]
) -> Iterator[Line]:
    """The watchdog ends its process: with its own timeout, or after the dump that others asked for."""
    rank, torch = ending.rank, story.style.torch
    assert ending.at_s is not None
    ns = rank_ns(story, rank, ending.at_s - 0.01)
    sites = _SITES[torch]
    if firing is None:
        if torch != "2.1":
            name = _group_name(story, rank, story.layout.groups_of[rank]["world"])
            why = "Terminating the process after attempting to dump debug info, due to collective timeout or exception."
            yield Line(
                ns, rank, True, f"{ll.c10(story, rank, ns, sites[4] - 30, level='F')}{name} {why}"
            )
        return
    group = story.programs[rank][firing.call].group
    assert group is not None
    name = _group_name(story, rank, group)
    inside = "" if torch == "2.1" else f"[Rank {group.members.index(rank)}] "
    shown = of.shown[firing.call]
    if torch == "2.4":
        last, completed = status(story, of, group, ending.at_s)
        text = (
            f"{name} Timeout at NCCL work: {shown}, last enqueued NCCL work: {last}, "
            f"last completed NCCL work: {completed}."
        )
        yield Line(ns, rank, True, ll.c10(story, rank, ns, 1709) + text)
    down = "To avoid data inconsistency, we are taking the entire process down."
    yield Line(ns, rank, True, f"{ll.c10(story, rank, ns, sites[5])}{inside}{_FAILED}")
    yield Line(ns, rank, True, f"{ll.c10(story, rank, ns, sites[6])}{inside}{down}")
    thread = "Process group" if torch != "2.1" else "NCCL"
    who = name if torch != "2.1" else f"[Rank {group.members.index(rank)}]"
    what = f"{who} {thread} watchdog thread terminated with exception: {timeout_text(story, firing, shown)}"
    ns += 2_000_000
    yield Line(ns, rank, True, ll.c10(story, rank, ns, sites[7]) + what)
    for text in desync:
        yield Line(ns, rank, True, text, _desync_says(story, group, text))
    if torch != "2.1":
        site = f"/pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:{sites[0] + 2}"
        yield Line(
            ns,
            rank,
            True,
            f"Exception raised from checkTimeout at {site} (most recent call first):",
        )
        for frame in _FRAMES:
            yield Line(ns, rank, True, frame)
        yield Line(ns, rank, True, "")
    ns += 1_000_000
    yield Line(
        ns, rank, True, "terminate called after throwing an instance of 'c10::DistBackendError'"
    )
    yield Line(ns, rank, True, f"  what():  {what}")


def wants_desync(story: Story, rng: Random) -> bool:
    """Whether this job ran with NCCL_DESYNC_DEBUG, which releases to 2.6 report by."""
    odds = rng.random()
    return story.style.torch in ("2.1", "2.4", "2.6") and odds < (
        0.3 if any(f.cls in _DESYNC for f in story.faults) else 0.05
    )


def desync_report(story: Story, firing: Firing, numbers: Mapping[int, Counted]) -> list[str]:
    """The report of a group whose collective timed out: ranks inside the group."""
    op = story.programs[firing.rank][firing.call]
    group = op.group
    assert group is not None
    if op.does in ("send", "recv"):
        return []
    number = numbers[firing.rank].shown[firing.call]
    joined: list[int] = []
    missing: dict[int, list[int]] = {}
    for inside, rank in enumerate(group.members):
        last, _completed = status(story, numbers[rank], group, firing.at_s)
        if last >= number:
            joined.append(inside)
        else:
            missing.setdefault(last, []).append(inside)
    found = [
        "\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:",
        f"\t   - {joined} joined but didn't finish collective #{number} (count from 1)",
    ]
    for last in sorted(missing):
        ranks = missing[last]
        found.append(
            f"\t     {ranks} finished collective #{last}, but didn't join collective "
            f"#{last + 1} (count from 1)"
        )
    return found


def _desync_says(story: Story, group: Group, text: str) -> Says | None:
    """The line that names absent ranks is a clue where a guilty one is among them."""
    if "didn't join" not in text:
        return None
    inside = text[text.index("[") + 1 : text.index("]")].split(",")
    ranks = tuple(group.members[int(n)] for n in inside)
    faults = [f for f in story.faults if set(f.ranks) & set(ranks)]
    if not faults:
        return None
    return Says(
        ranks, tuple(sorted({k for f in faults for k in f.kinds})), loud=False, text=text.strip()
    )


def stuck_lines(
    story: Story, rank: int, since_s: float, until_s: float, rng: Random
) -> Iterator[Line]:
    """The monitor of a process whose interpreter is held: after its own time it says that nothing moves."""
    torch = story.style.torch
    after = 600 if torch == "2.4" else 480
    speaks = rng.random() < 0.5
    if torch == "2.1" or not speaks or since_s + after + 1 > until_s:
        return
    name = _group_name(story, rank, story.layout.groups_of[rank]["world"])
    fault = next((f for f in story.faults if rank in f.ranks), None)
    kinds = fault.kinds if fault is not None else ()
    ns = rank_ns(story, rank, since_s + after + 0.5)
    text = (
        f"{name} ProcessGroupNCCL's watchdog got stuck for {after} seconds without making progress in "
        "monitoring enqueued collectives. This typically indicates a NCCL/CUDA API hang blocking the watchdog"
    )
    head = ll.c10(story, rank, ns, _SITES[torch][4] - 45)
    yield Line(ns, rank, True, head + text, Says((rank,), kinds, loud=False))
    ns += 310_000_000
    text = f"{name} Could not acquire GIL within 300 ms on exit, possible GIL induced hang"
    head = ll.c10(story, rank, ns, _SITES[torch][4] - 20)
    yield Line(ns, rank, True, head + text, Says((rank,), kinds, loud=True))
