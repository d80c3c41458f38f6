"""What the NVIDIA driver writes: Xids of a sick GPU, Xids of GPUs whose process was ended, Xids that
mean nothing. Forms: facts on Xids, and published logs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from gpufleet_cli.operate.simulate import gathered
from gpufleet_cli.operate.simulate.gathered import XIDS
from gpufleet_cli.operate.simulate.story import Fault, Story
from gpufleet_cli.verdict import Kind

NOBODY = "pid='<unknown>', name=<unknown>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A kernel message and what it gives away: `names` are the kinds of the true cause, and `rank`
    is whose GPU it names by its bus."""

    at_s: float
    text: str
    names: tuple[Kind, ...] = ()
    rank: int | None = None
    loud: bool = True


def bus(story: Story, rank: int) -> str:
    """The address as the driver prints it in an Xid: no function."""
    return story.layout.bus(rank).removesuffix(".0")


def xid(story: Story, rank: int, code: int, rest: str) -> str:
    return f"NVRM: Xid (PCI:{bus(story, rank)}): {code}, {rest}"


def process(story: Story, rank: int, name: str = "python3") -> str:
    return f"pid={gathered.host_pid(story, rank)}, name={name}"


# --- The guilty GPU ---------------------------------------------------------------------------------


def sick(story: Story, fault: Fault, rng: Random) -> Iterator[Line]:
    """The lines of an Xid fault on the node of its GPU, with what goes with the code."""
    rank, at, code = fault.ranks[0], fault.at_s, XIDS[fault.cls]
    for after_s, text in _texts(story, rank, code, rng):
        is_named = " Xid (" in text or "fallen off the bus" in text
        yield Line(
            at_s=at + after_s,
            text=text,
            names=(Kind.HARDWARE,) if is_named else (),
            rank=rank,
        )
    if code != 119 and gathered.clears_own(story):
        yield from channels(story, rank, at + rng.uniform(0.4, 1.5), rng, with_43=False)


def _texts(story: Story, rank: int, code: int, rng: Random) -> Iterator[tuple[float, str]]:
    if rng.random() < 0.5:
        yield 0.0, f"NVRM: GPU at PCI:{bus(story, rank)}: {gathered.gpu_uuid(story, rank)}"
        yield 0.0, f"NVRM: GPU Board Serial Number: {1650000000000 + rng.randrange(10**9)}"
    match code:
        case 79:
            yield from _off_the_bus(story, rank, rng)
        case 119:
            yield from _no_answer(story, rank, rng)
        case 48:
            yield from _double_bit(story, rank, rng)
        case 94:
            yield from _contained(story, rank, rng)
        case _:
            yield from _uncontained(story, rank, rng)


def _off_the_bus(story: Story, rank: int, rng: Random) -> Iterator[tuple[float, str]]:
    if rng.random() < 0.4:
        bridge = f"{int(story.layout.board[story.layout.local_rank(rank)], 16) - 2:02x}"
        yield 0.0, f"pcieport 0000:{bridge}:01.0: pciehp: Slot({rng.randint(1, 20)}): Link Down"
    off = "GPU has fallen off the bus."
    yield 0.0001, xid(story, rank, 79, f"{NOBODY}, {off}" if rng.random() < 0.8 else off)
    yield 0.0002, f"NVRM: GPU {story.layout.bus(rank)}: {off}"
    if rng.random() < 0.5:
        yield 0.4, _recovery(story, rank, 2, "Node Reboot Required")
    if rng.random() < 0.5:
        yield 0.5, "NVRM: A GPU crash dump has been created. If possible, please run"
        yield 0.5, "NVRM: nvidia-bug-report.sh as root to collect this data before"
        yield 0.5, "NVRM: the NVIDIA kernel module is unloaded."


def _no_answer(story: Story, rank: int, rng: Random) -> Iterator[tuple[float, str]]:
    """The driver asks again and again; the name is whoever made it ask."""
    every_s = rng.choice((6.0, 45.0))
    who = rng.choice(("nvidia-smi", "dcgm-exporter", "python3", "nv-hostengine"))
    head = f"pid={gathered.host_pid(story, rank) + 7}, name={who}"
    device = story.layout.local_rank(rank)
    for i in range(rng.randint(2, 6)):
        asked = rng.choice(
            ("76 (GSP_RM_CONTROL) (0x2080014b 0x5)", "103 (GSP_RM_ALLOC) (0x80 0x38)")
        )
        text = (
            f"{head}, Timeout after {every_s:.0f}s of waiting for RPC response from GPU{device} GSP!"
            f" Expected function {asked}."
        )
        yield 0.1 + i * every_s, xid(story, rank, 119, text)
    if rng.random() < 0.4:
        yield 0.3, _recovery(story, rank, 1, "GPU Reset Required")


def _double_bit(story: Story, rank: int, rng: Random) -> Iterator[tuple[float, str]]:
    address = f"0x{rng.randrange(1 << 36):x}"
    text = (
        f"{NOBODY}, An uncorrectable double bit error (DBE) has been detected on GPU in the"
        f" framebuffer at physAddr {address} partition {rng.randrange(16)}, subpartition"
        f" {rng.randrange(4)}."
    )
    yield 0.0, xid(story, rank, 48, text)
    if rng.random() < 0.6:
        yield 0.01, _remap(story, rank, rng, is_full=rng.random() < 0.3)
    if rng.random() < 0.5:
        yield 0.02, xid(story, rank, 94, f"{process(story, rank)}, {_CONTAINED}")
    else:
        yield 0.02, xid(story, rank, 95, f"{NOBODY}, {_UNCONTAINED}")
        yield 0.03, _recovery(story, rank, 1, "GPU Reset Required")


_CONTAINED = "Contained: CE User Channel (0x9). RST: No, D-RST: No"
_UNCONTAINED = "Uncontained: LTC TAG (0x2,0x1). RST: Yes, D-RST: No"


def _contained(story: Story, rank: int, rng: Random) -> Iterator[tuple[float, str]]:
    if rng.random() < 0.5:
        yield 0.0, _remap(story, rank, rng, is_full=False)
    yield 0.01, xid(story, rank, 94, f"{process(story, rank)}, {_CONTAINED}")


def _uncontained(story: Story, rank: int, rng: Random) -> Iterator[tuple[float, str]]:
    yield 0.0, xid(story, rank, 95, f"{NOBODY}, {_UNCONTAINED}")
    if rng.random() < 0.6:
        yield 0.02, _recovery(story, rank, 1, "GPU Reset Required")


def _remap(story: Story, rank: int, rng: Random, *, is_full: bool) -> str:
    row = f"0x{rng.randrange(1 << 24):016x}"
    if is_full:
        text = f"Row Remapper Error: ({row}) - All reserved rows for bank are remapped"
        return xid(story, rank, 64, f"{NOBODY}, {text}")
    text = f"Row Remapper: New row ({row}) marked for remapping, reset gpu to activate."
    return xid(story, rank, 63, f"{NOBODY}, {text}")


def _recovery(story: Story, rank: int, value: int, name: str) -> str:
    text = f"GPU recovery action changed from 0x0 (None) to 0x{value:x} ({name})"
    return xid(story, rank, 154, text)


def unpowered(story: Story, fault: Fault) -> Iterator[Line]:
    """A board whose auxiliary power is off runs at reduced clocks."""
    rank = fault.ranks[0]
    text = xid(story, rank, 54, f"{NOBODY}, Auxiliary power is not connected to the GPU board")
    yield Line(at_s=fault.at_s - 0.2, text=text, names=(Kind.STRAGGLER, Kind.HARDWARE), rank=rank)


# --- GPUs that nothing is wrong with ----------------------------------------------------------------


def channels(story: Story, rank: int, at_s: float, rng: Random, *, with_43: bool) -> Iterator[Line]:
    """What is left of a process that was ended with work in flight."""
    who = process(story, rank)
    if with_43:
        where = "channel 0x00000002" if rng.random() < 0.5 else "Ch 00000008"
        yield Line(at_s=at_s, text=xid(story, rank, 43, f"{who}, {where}"))
    for i in range(rng.randint(1, 2)):
        yield Line(at_s=at_s + 0.0003 * i, text=xid(story, rank, 45, f"{who}, Ch {8 + i:08x}"))


def harmless(story: Story, decoy: Fault, rng: Random) -> Iterator[Line]:
    """An Xid that asks for nothing now, on the GPU of a rank that works."""
    rank = decoy.ranks[0]
    code = gathered.herring_code(story)
    if code == 63:
        text = _remap(story, rank, rng, is_full=False)
    else:
        words = {92: "High single-bit ECC error rate", 106: "SMBPBI test message"}[code]
        text = xid(story, rank, code, f"{NOBODY}, {words}")
    yield Line(at_s=decoy.at_s, text=text)


def others(story: Story, decoy: Fault, rng: Random) -> Iterator[Line]:
    """A program of another job broke here, long before."""
    rank, at = decoy.ranks[0], decoy.at_s
    pid = gathered.FIRST_HOST_PID - 1 - rng.randrange(400_000)
    who = f"pid={pid}, name={rng.choice(('python', 'vllm', 'pt_main_thread'))}"
    if rng.random() < 0.5:
        where = f"0x{rng.randrange(1 << 28):x}_{rng.randrange(1 << 32):08x}"
        text = (
            f"{who}, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_4 faulted"
            f" @ {where}. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"
        )
        yield Line(at_s=at, text=xid(story, rank, 31, text))
    else:
        gpc, tpc = rng.randrange(8), rng.randrange(9)
        text = (
            f"{who}, Graphics SM Warp Exception on (GPC {gpc}, TPC {tpc}, SM 0):"
            " Out Of Range Address"
        )
        yield Line(at_s=at, text=xid(story, rank, 13, text))
    yield Line(at_s=at + 0.01, text=xid(story, rank, 43, f"{who}, Ch 00000008"))
