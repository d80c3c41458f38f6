"""Lines beside the end: what a guilty rank says before it goes quiet, straggler reports, decoys."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from gpufleet_cli.operate.simulate import log_lines as ll
from gpufleet_cli.operate.simulate.log_frameworks import Logged
from gpufleet_cli.operate.simulate.log_lines import Line, Says, rank_ns
from gpufleet_cli.operate.simulate.story import Class, Fault, Story
from gpufleet_cli.verdict import Kind

URL = "https://hub.example.net/datasets/acme/web-mix/resolve/main/part-{:05}.parquet"
REPORTS = ("nvrx", "megatron", "flagscale")


def fault_lines(story: Story, steps: list[Logged], rng: Random) -> Iterator[Line]:
    """What faults make ranks say, but for their ends."""
    for fault in story.faults:
        speaks = rng.random()
        if fault.cls is Class.LOADER_STALL and speaks < 0.5:
            yield from _data_retries(story, fault, fault.ranks[0], guilty=True)
        elif fault.cls in (Class.NIC_DOWN, Class.RAIL_FLAP) and speaks < 0.8:
            yield from _port(story, fault, rng)
        elif fault.cls in (Class.SLOW_GPU, Class.SLOW_LINK) and speaks < 0.7:
            yield from _slow_reports(story, fault, steps, rng)
        elif fault.cls is Class.IMBALANCE and speaks < 0.7:
            yield from _uneven_reports(story, steps, rng)
    for decoy in story.decoys:
        if decoy.cls is Class.OTHER_JOB or not decoy.ranks:
            continue
        if rng.random() < 0.5:
            yield from _data_retries(story, decoy, decoy.ranks[0], guilty=False)
        else:
            yield from _bounce(story, decoy)


# --- Data and network ----------------------------------------------------------------------------------


def _data_retries(story: Story, fault: Fault, rank: int, *, guilty: bool) -> Iterator[Line]:
    """A data source that answers too late: for an innocent once, for the guilty until nothing comes."""
    url = URL.format(rank * 7 + 12)
    error = "ReadTimeoutError(\"HTTPSConnectionPool(host='hub.example.net', port=443): Read timed out. (read timeout=10)\")"
    for attempt in range(1, 4 if guilty else 2):
        ns = rank_ns(story, rank, fault.at_s + 10.0 * attempt if guilty else fault.at_s + 0.1)
        text = f"'({error}, '(Request ID: 5b0c2a1e-{attempt})')' thrown while requesting GET {url}"
        told = f"thrown while requesting GET {url}"
        says = Says((rank,), fault.kinds, text=told) if guilty else None
        yield Line(ns, rank, True, text, says)
        yield Line(ns, rank, True, f"Retrying in {2 ** (attempt - 1)}s [Retry {attempt}/5].")


def _event(story: Story, rank: int, word: str) -> str:
    torch = story.style.torch
    if torch == "2.1":
        return f"NET/IB : Got async event : {word}"
    card = f"mlx5_{story.layout.local_rank(rank)}:1"
    if torch in ("2.4", "2.6"):
        return f"NET/IB : {card} Got async event : {word}"
    return f"NET/IB : {card} Got async error event: {word}"


def _port(story: Story, fault: Fault, rng: Random) -> Iterator[Line]:
    """The adapter's owner sees its port go, and come back and go where the rail flaps."""
    rank = fault.ranks[0]
    words = ["port error"]
    if fault.cls is Class.RAIL_FLAP:
        words = ["port error", "port active"] * rng.randint(1, 3) + ["port error"]
    at_s = fault.at_s - 1.7 * (len(words) - 1)
    for word in words:
        ns = rank_ns(story, rank, at_s)
        text = _event(story, rank, word)
        says = Says((rank,), fault.kinds, text=text) if word == "port error" else None
        yield Line(ns, rank, False, "")
        yield Line(
            ns, rank, False, ll.nccl_warn(story, rank, ns, "transport/net_ib.cc:93", text), says
        )
        at_s += 1.7


def _bounce(story: Story, decoy: Fault) -> Iterator[Line]:
    """A port that goes and is back at once; nothing is lost."""
    rank = decoy.ranks[0]
    for after, word in ((0.0, "port error"), (0.4, "port active")):
        ns = rank_ns(story, rank, decoy.at_s + after)
        text = ll.nccl_warn(story, rank, ns, "transport/net_ib.cc:93", _event(story, rank, word))
        yield Line(ns, rank, False, "")
        yield Line(ns, rank, False, text)


# --- Stragglers -----------------------------------------------------------------------------------------


def _slow_reports(story: Story, fault: Fault, steps: list[Logged], rng: Random) -> Iterator[Line]:
    """Reports of the steps since the fault; of a link too: the detector times each rank's sections."""
    form = rng.choice(REPORTS if story.layout.size <= 64 else REPORTS[:2])
    late = [(n, at) for n, at in _ends(story, steps) if at > fault.at_s]
    for step, at_s in late[::-2][:3][::-1]:
        yield from _report(story, form, step, at_s + 0.05, fault.ranks[0], fault, fault.kinds, rng)


def _uneven_reports(story: Story, steps: list[Logged], rng: Random) -> Iterator[Line]:
    form = rng.choice(REPORTS if story.layout.size <= 64 else REPORTS[:2])
    ranks: list[int] = []
    for step, at_s in _ends(story, steps)[-5:]:
        rank = rng.choice([r for r in range(story.layout.size) if r not in ranks])
        ranks.append(rank)
        yield from _report(story, form, step, at_s + 0.05, rank, None, (), rng)


def _ends(story: Story, steps: list[Logged]) -> list[tuple[int, float]]:
    """Each printed step that all ranks ended before the capture, and when the last did."""
    found = []
    for logged in steps:
        number = logged.step - story.first_step
        if logged.at_s is not None:
            found.append((logged.step, logged.at_s))
        elif all(len(ends) > number for ends in story.step_ends):
            found.append((logged.step, max(ends[number] for ends in story.step_ends)))
    return [(step, at_s) for step, at_s in found if at_s + 0.2 < story.captured_s]


def _report(
    story: Story,
    form: str,
    step: int,
    at_s: float,
    slowest: int,
    fault: Fault | None,
    kinds: tuple[Kind, ...],
    rng: Random,
) -> Iterator[Line]:
    """One report that names `slowest`; a clue where a fault made it so."""
    factor = 1.6 if fault is None else max(1.25, fault.factor)
    says = None if fault is None else Says((slowest,), kinds)
    usual = 0.62 * story.step_seconds
    writer = story.layout.size - 1 if form == "megatron" else 0
    ns = rank_ns(story, writer, at_s)
    if form == "megatron":
        yield Line(ns, writer, False, _megatron(story, ns, usual, factor, slowest, rng), says)
        return
    make = _nvrx if form == "nvrx" else _flagscale
    for text, named in make(story, step, usual, factor, slowest, rng):
        yield Line(ns, writer, False, text, says if named else None)


def _megatron(story: Story, ns: int, usual: float, factor: float, slowest: int, rng: Random) -> str:
    quick, cool, hot = (rng.randrange(story.layout.size) for _ in range(3))
    if quick == slowest:
        quick = (slowest + 1) % story.layout.size
    low, high = usual * 1000, usual * factor * 1000
    return (
        f"[{ll.day(ns)}] | MnRtt/Rnk: {low:.2f}ms/{quick} | MxRtt/Rnk: {high:.2f}ms/{slowest} | "
        f"MnPwr/Rnk: 601796W/{cool} | MxPwr/Rnk: 683801W/{hot} | MnDRtt/Rnk: 14.27ms/{cool} | "
        f"MxDRtt/Rnk: 14.65ms/{hot} | MnEtpt/Rnk: {296 / factor:.2f}TF/{slowest} | "
        f"MxEtpt/Rnk: 297.32TF/{quick}"
    )


def _nvrx(
    story: Story, _step: int, _usual: float, factor: float, slowest: int, rng: Random
) -> Iterator[tuple[str, bool]]:
    layout = story.layout
    other = (slowest + 1 + rng.randrange(layout.size - 1)) % layout.size
    best = (slowest + 1) % layout.size
    yield "GPU relative performance:", False
    yield f" Worst performing 2/{layout.size} ranks:", False
    yield f"  Rank={slowest} Node={layout.node_of(slowest)} Score={1 / factor:.2f}", True
    yield f"  Rank={other} Node={layout.node_of(other)} Score=0.98", False
    yield f" Best performing 1/{layout.size} ranks:", False
    yield f"  Rank={best} Node={layout.node_of(best)} Score=1.00", False


def _flagscale(
    story: Story, step: int, usual: float, factor: float, slowest: int, rng: Random
) -> Iterator[tuple[str, bool]]:
    size = story.layout.size
    yield f"=== Straggler Report at Step {step} ===", False
    yield "", False
    yield "Section Timings (ms):", False
    yield "", False
    for section, seconds, ratio in (
        ("optimizer", 0.0096, 1.0),
        ("forward_backward", usual, factor),
    ):
        times = [seconds * 1000 * rng.uniform(1.0, 1.02) for _ in range(size)]
        times[slowest] *= ratio
        middle = sum(times) / size
        low, high = min(times), max(times)
        yield f"  {section}:", False
        shape = (
            f"Min: {low:.2f}ms, Max: {high:.2f}ms, Avg: {middle:.2f}ms, Slowdown: {high / low:.2f}x"
        )
        yield f"    {shape}", False
        for rank, took in enumerate(times):
            yield f"    Rank {rank}: {took:.2f}ms", ratio > 1.0 and rank == slowest
        yield "", False
