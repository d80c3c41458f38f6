"""How processes say that they end: tracebacks, CUDA and NCCL errors of ranks, and a job that never met."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from gpufleet_cli.operate.simulate import identities
from gpufleet_cli.operate.simulate import log_lines as ll
from gpufleet_cli.operate.simulate.log_lines import Line, Says, rank_ns
from gpufleet_cli.operate.simulate.story import Class, Ending, Fault, Story
from gpufleet_cli.verdict import Kind

LOADER = (
    '  File "/opt/conda/lib/python3.11/site-packages/torch/utils/data/dataloader.py", line 633, in __next__',
    "    data = self._next_data()",
)
CRASHES = (
    (('  File "/workspace/data/jsonl.py", line 88, in __getitem__', "    return self.encode(row['text'])"), "KeyError: 'text'"),
    (('  File "/workspace/model.py", line 241, in forward', "    x = x + residual"),
     "RuntimeError: The size of tensor a (4096) must match the size of tensor b (4032) at non-singleton dimension 1"),
    (('  File "/workspace/data/pack.py", line 57, in pack', "    return shard[self.offsets[index]]"), "IndexError: list index out of range"),
    (('  File "/workspace/train.py", line 402, in check', "    raise ValueError(message)"), "ValueError: loss is nan at this rank, stopping"),
)  # fmt: skip
LOADER_PID = 240  # a worker's process id stands so far above its rank's
ECC = "uncorrectable ECC error encountered"
ASYNC = (
    "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below "
    "might be incorrect."
)
WEAK = ("unspecified launch failure", "unknown error")
DIED = frozenset({"exception", "segfault", "oom-kill", "cuda-error", "vanished"})
OVER_NETWORK = frozenset(
    {
        Class.NIC_DOWN,
        Class.RAIL_FLAP,
        Class.SWITCH,
        Class.LINK_IN_FLIGHT,
        Class.PARTIAL,
        Class.NODE_DEATH,
    }
)
STATUS_12 = {
    "2.1": "with error 12, opcode 1, len 0, vendor err 129 (Recv) localGid ::ffff:{own} remoteGid ::ffff:{peer}",
    "2.4": "with status=12 opcode=0 len=0 vendor err 129 (Send) localGid ::ffff:{own} remoteGids::ffff:{peer}",
    "2.6": "with status=12 opcode=0 len=0 vendor err 129 (Send) localGid ::ffff:{own} remoteGids::ffff:{peer}",
}
STATUS_12_NEW = (
    "with status=12 opcode=32523 len=0 vendor err 129 (Recv) localGid ::ffff:{own} "
    "remoteGids::ffff:{peer} hca mlx5_{card}"
)


def fault_of(story: Story, rank: int) -> Fault | None:
    """What is wrong with a rank itself."""
    return next((fault for fault in story.faults if rank in fault.ranks), None)


def kills_loader(story: Story, ending: Ending) -> bool:
    """In half of the worlds in pods the kernel kills a worker of the loader, and its rank ends with
    exit 1. On bare nodes pids tie the kernel's victim to the rank itself."""
    if ending.how != "oom-kill" or story.style.wrapper in identities.BARE:
        return False
    return ending.code == 1 or story.seed % 2 == 1


def exit_code(story: Story, ending: Ending) -> int | None:
    """The code that an agent shows for a rank: of a rank whose loader was killed, that of an exception."""
    return 1 if kills_loader(story, ending) else ending.code


def last_words(story: Story, ending: Ending, rng: Random) -> Iterator[Line]:
    """What a process prints of its own end, but for what its watchdog does."""
    match ending.how:
        case "exception":
            yield from _exception(story, ending, rng)
        case "oom-kill" if kills_loader(story, ending):
            yield from _killed_loader(story, ending)
        case "segfault":
            yield from _segfault(story, ending, rng)
        case "cuda-error":
            yield from _cuda_error(story, ending, rng)
        case "network-error":
            yield from _network_error(story, ending, rng)
        case _:
            return


def traceback(
    story: Story, ending: Ending, frames: tuple[str, ...], words: list[tuple[str, Says | None]]
) -> Iterator[Line]:
    """A traceback of user code, each line with torch's own tag."""
    rank = ending.rank
    assert ending.at_s is not None
    ns = rank_ns(story, rank, ending.at_s - 0.02)
    tag = ll.python_tag(story, rank)
    head = (
        "Traceback (most recent call last):",
        '  File "/workspace/train.py", line 462, in <module>',
        "    main()",
        '  File "/workspace/train.py", line 311, in main',
        "    loss = train_step(model, next(batches))",
    )
    for text in (*head, *frames):
        yield Line(ns, rank, True, tag + text)
        ns += 20_000
    for text, says in words:
        yield Line(ns, rank, True, tag + text, says)
        ns += 20_000


def _exception(story: Story, ending: Ending, rng: Random) -> Iterator[Line]:
    fault = fault_of(story, ending.rank)
    frames, words = rng.choice(CRASHES)
    if fault is None:
        lost = (
            "torch.distributed.DistNetworkError: failed to recv, got 0 bytes"
            if story.style.torch != "2.1"
            else "RuntimeError: Connection reset by peer"
        )
        yield from traceback(story, ending, (), [(lost, None)])
        return
    yield from traceback(
        story, ending, frames, [(words, Says((ending.rank,), fault.kinds, text=words))]
    )


def _killed_loader(story: Story, ending: Ending) -> Iterator[Line]:
    fault = fault_of(story, ending.rank)
    worker = identities.pid(story, ending.rank) + LOADER_PID
    words = f"RuntimeError: DataLoader worker (pid {worker}) is killed by signal: Killed. "
    # Somebody killed it: that the kernel did, for memory, the line does not say.
    told = words.strip()
    says = None if fault is None else Says((ending.rank,), fault.kinds, loud=False, text=told)
    yield from traceback(story, ending, LOADER, [(words, says)])


def _segfault(story: Story, ending: Ending, rng: Random) -> Iterator[Line]:
    """Only where Python's fault handler is on does the process say anything."""
    if rng.random() < 0.5:
        return
    assert ending.at_s is not None
    rank, fault = ending.rank, fault_of(story, ending.rank)
    ns = rank_ns(story, rank, ending.at_s - 0.001)
    text = "Fatal Python error: Segmentation fault"
    says = None if fault is None else Says((rank,), fault.kinds, text=text)
    yield Line(ns, rank, True, text, says)
    yield Line(ns, rank, True, "")
    thread = f"Current thread 0x00007f{rank:04x}a1b740 (most recent call first):"
    yield Line(ns, rank, True, thread)
    yield Line(ns, rank, True, '  File "/workspace/train.py", line 311 in main')


# --- GPU --------------------------------------------------------------------------------------------


def cuda_words(story: Story, fault: Fault | None) -> tuple[str, bool]:
    """CUDA's sentence for a fault, and whether it says what the cause is."""
    cls = None if fault is None else fault.cls
    if cls in (Class.XID_48, Class.XID_94, Class.XID_95):
        return ECC, True
    if cls is Class.SWITCH:
        return "Invalid access of peer GPU memory over nvlink or a hardware error", True
    return WEAK[story.seed % 2], False


def _cuda_error(story: Story, ending: Ending, rng: Random) -> Iterator[Line]:
    rank, fault = ending.rank, fault_of(story, ending.rank)
    words, loud = cuda_words(story, fault)
    text = f"CUDA error: {words}"
    says = None if fault is None else Says((rank,), fault.kinds, loud=loud, text=text)
    if ending.code == -6:
        assert ending.at_s is not None
        ns = rank_ns(story, rank, ending.at_s - 0.02)
        who = f"[PG ID 0 PG GUID 0(default_pg) Rank {rank}] Process group"
        if story.style.torch == "2.4":
            who = f"[PG 0 (default_pg) Rank {rank}] Process group"
        if story.style.torch == "2.1":
            who = f"[Rank {rank}] NCCL"
        what = f"{who} watchdog thread terminated with exception: {text}"
        yield Line(ns, rank, True, ll.c10(story, rank, ns, 1895) + what, says)
        yield Line(ns, rank, True, ASYNC)
        yield Line(
            ns, rank, True, "terminate called after throwing an instance of 'c10::DistBackendError'"
        )
        yield Line(ns, rank, True, f"  what():  {what}")
        return
    frames = ('  File "/workspace/train.py", line 287, in train_step', "    loss.backward()")
    if rng.random() < 0.3:
        yield from _nccl_cuda_failure(story, ending, words)
    yield from traceback(story, ending, frames, [(f"RuntimeError: {text}", says), (ASYNC, None)])


def _nccl_cuda_failure(story: Story, ending: Ending, words: str) -> Iterator[Line]:
    rank = ending.rank
    assert ending.at_s is not None
    ns = rank_ns(story, rank, ending.at_s - 0.05)
    number = {ECC: 214, WEAK[0]: 719, WEAK[1]: 999}.get(words, 999)
    text = f"Cuda failure {number} '{words}'"
    yield Line(ns, rank, False, "")
    yield Line(ns, rank, False, ll.nccl_warn(story, rank, ns, "enqueue.cc:1200", text))


# --- Network ----------------------------------------------------------------------------------------


def peer_of(story: Story, rank: int, rng: Random) -> int:
    """The rank whose silence a witness notices: a guilty one on another node, where there is one. Of two
    guilty ranks the one whose process ended: one that hangs closes no connection."""
    layout = story.layout
    own = layout.node_index(rank)
    ended = {e.rank for e in story.endings if e.how not in ("alive", "frozen", "network-error")}
    died = {e.rank for e in story.endings if e.how in DIED}
    guilty = [r for f in story.faults for r in f.ranks if layout.node_index(r) != own]
    guilty = [r for r in guilty if r in died] or guilty
    nodes = [n for f in story.faults for n in f.node_indexes if n != own]
    if guilty:
        return guilty[rank % len(guilty)]
    if nodes:
        return layout.ranks_of(nodes[rank % len(nodes)])[layout.local_rank(rank)]
    others = [r for r in range(layout.size) if layout.node_index(r) != own]
    gone = [r for r in others if r in ended]
    return rng.choice(gone or others or [r for r in range(layout.size) if r != rank])


def tells_address(story: Story, index: int) -> bool:
    """Whether the files tell whose address a node's is: a list of pods, or complaints of every other node,
    since nobody complains of itself."""
    if story.style.identity == "pods":
        return True
    if story.style.rank0_only:
        return False
    layout = story.layout
    complained = [e.rank for e in story.endings if e.how == "network-error"]
    accusers = {
        layout.node_index(rank)
        for rank in complained
        if layout.node_index(peer_of(story, rank, Random(0))) == index
    }
    return accusers == set(range(len(layout.nodes))) - {index}


def _network_error(story: Story, ending: Ending, rng: Random) -> Iterator[Line]:
    rank, layout = ending.rank, story.layout
    assert ending.at_s is not None
    peer = peer_of(story, rank, rng)
    faults = [
        f for f in story.faults if peer in f.ranks or layout.node_index(peer) in f.node_indexes
    ]
    over_wire = any(f.cls in OVER_NETWORK for f in story.faults)
    text, source = _broken(story, rank, peer, over_wire=over_wire)
    kinds: tuple[Kind, ...] = faults[0].kinds if faults and over_wire else ()
    node = tuple(layout.ranks_of(layout.node_index(peer)))
    known = tells_address(story, layout.node_index(peer))
    says = Says(node, kinds, loud=False, text=text) if faults and known else None
    ns = rank_ns(story, rank, ending.at_s - 0.3)
    yield Line(ns, rank, False, "")
    yield Line(ns, rank, False, ll.nccl_warn(story, rank, ns, source, text), says)
    version = ".".join(str(n) for n in ll.NCCL[story.style.torch])
    words = "remote process exited or there was a network error"
    error = (
        "torch.distributed.DistBackendError: NCCL error in: "
        f"../torch/csrc/distributed/c10d/NCCLUtils.hpp:275, {words}, NCCL version {version}"
    )
    remote = "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely."
    frames = ('  File "/workspace/train.py", line 287, in train_step', "    loss.backward()")
    tail = [(error, None), (remote, None), ("Last error:", None), (text, None)]
    yield from traceback(story, ending, frames, list(tail))


def _broken(story: Story, rank: int, peer: int, *, over_wire: bool) -> tuple[str, str]:
    """NCCL's words for a connection that broke, and the place in its source."""
    layout, torch = story.layout, story.style.torch
    own = identities.address(story, layout.node_index(rank))
    far = identities.address(story, layout.node_index(peer))
    port = 37_900 + peer % 64
    if not over_wire:
        return (
            f"socketProgress: Connection closed by remote peer {far}<{port}>",
            "misc/socket.cc:50",
        )
    colon = "NET/IB :" if torch in ("2.1", "2.4", "2.6") else "NET/IB:"
    form = STATUS_12.get(torch, STATUS_12_NEW)
    words = form.format(own=own, peer=far, card=layout.local_rank(rank))
    return f"{colon} Got completion from peer {far}<{port}> {words}", "transport/net_ib.cc:1696"


# --- A job that never met ----------------------------------------------------------------------------


def rendezvous_lines(story: Story, began_s: float) -> Iterator[Line]:
    """A pod never comes: the master counts who joined, the others lose it, or never find it."""
    fault = next((f for f in story.faults if f.cls is Class.RENDEZVOUS), None)
    if fault is None:
        return
    layout, absent = story.layout, set(fault.ranks)
    master = layout.pods[0] if story.style.wrapper not in identities.BARE else layout.nodes[0]
    ends = {e.rank: e.at_s for e in story.endings if e.rank not in absent}
    first = min((at for at in ends.values() if at is not None), default=None)
    if first is None:
        fits = [s for s in (300, 600, 900, 1800) if began_s + s + 6 < story.captured_s]
        if not fits:
            return
        first = began_s + fits[-1] + 1
    for rank in sorted(ends):
        end = ends[rank]
        at = first + 1.5 * (rank > 0) + rank % 8 * 0.02 if end is None else end - 0.02
        yield from _waited(story, fault, rank, at, master, first - began_s)


def _waited(
    story: Story, fault: Fault, rank: int, at_s: float, master: str, waited: float
) -> Iterator[Line]:
    ns = rank_ns(story, rank, at_s)
    ending = Ending(rank=rank, how="exception", at_s=at_s + 0.02)
    layout = story.layout
    frames = (
        '  File "/workspace/train.py", line 31, in setup',
        "    dist.init_process_group('nccl')",
    )
    if 0 in fault.ranks:
        words = (
            f"torch.distributed.DistNetworkError: The client socket has timed out after "
            f"{round(waited * 1000)}ms while trying to connect to ({master}, 29500)."
        )
        says = Says(tuple(layout.ranks_of(0)), fault.kinds, text=words)
        yield from traceback(story, ending, frames, [(words, says)])
    elif rank == 0:
        joined = layout.size - len(fault.ranks)
        words = (
            f"torch.distributed.DistStoreError: Timed out after {round(waited)} seconds waiting for "
            f"clients. {joined}/{layout.size} clients joined."
        )
        says = Says(tuple(range(1, layout.size)), fault.kinds, text=words)
        yield from traceback(story, ending, frames, [(words, says)])
    else:
        own = identities.host(story, layout.node_index(rank))
        text = (
            f"[c10d] recvValue failed on SocketImpl(fd=3, addr=[{own}]:{50_000 + rank}, "
            f"remote=[{master}]:29500): failed to recv, got 0 bytes"
        )
        yield Line(ns, rank, True, ll.c10_of(story, rank, ns, "TCPStore.cpp:125", level="W") + text)
        words = "torch.distributed.DistNetworkError: failed to recv, got 0 bytes"
        yield from traceback(story, ending, frames, [(words, None)])
