"""What a healthy trainer writes: start-up, steps and who prints them, checkpoints, phases.

Forms of torchtitan, Megatron-LM, DeepSpeed, Lightning, NeMo 2 and of trainers of one's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from statistics import median

from gpufleet_cli.operate.simulate import identities
from gpufleet_cli.operate.simulate import log_lines as ll
from gpufleet_cli.operate.simulate.fault_kinds import UNEVEN
from gpufleet_cli.operate.simulate.log_lines import Line, Says, rank_ns
from gpufleet_cli.operate.simulate.story import HEALTHY, Class, Save, Story
from gpufleet_cli.verdict import Kind

FRAMEWORKS = ("torchtitan", "megatron", "deepspeed", "lightning", "nemo", "plain")
TOTAL, BATCH = 50_000, 512
STUCK_IN_A_SAVE = (Class.CHECKPOINT_STALL, Class.STORAGE)
SLOWING = (Class.SLOW_GPU, Class.SLOW_LINK, Class.IMBALANCE)
# A job that makes no step for so many of its intervals, or seconds, is nothing to look at; nor is
# one that paused for nearly as long before.
CALM, CALM_S, ONCE_MORE = 3.0, 30.0, 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """One printed step: seconds at which it ended (None: by `Story.step_ends`), and how long it took.
    `tells`: its line shows that nothing is wrong now."""

    step: int
    at_s: float | None
    took_s: float
    since: int = 1
    tells: bool = False


def has_started(story: Story) -> bool:
    """Whether any step was ever made."""
    return all(fault.cls is not Class.RENDEZVOUS for fault in story.faults)


def began_s(story: Story) -> float:
    """When the processes were started."""
    return story.ended_s(story.first_step - story.steps_before - 1) - 75.0


def printers(story: Story) -> tuple[int, ...]:
    """Who prints steps."""
    match story.style.framework:
        case "megatron":
            return (story.layout.size - 1,)
        case "torchtitan" | "plain":
            return tuple(range(story.layout.size))
        case _:
            return (0,)


# --- Steps ------------------------------------------------------------------------------------------


def logged_steps(story: Story, rng: Random) -> list[Logged]:
    """The steps that the log shows before the window: all of a tail, or every n-th since the start."""
    before, tail = story.steps_before, rng.randint(15, 26)
    if story.rests and rng.random() < 0.85:
        shown = story.rests[min(len(story.rests), rng.randint(1, 2)) - 1]
        tail = max(tail, min(80, story.first_step - shown.after_step + rng.randint(3, 9)))
    every = 1
    if before > 40 and story.cls not in SLOWING and rng.random() < 0.5:
        every = next(
            n for n in (5, 10, 20, 25, 50, 100, 200, 500, 1000, 10_000) if before / n <= 28
        )
        first = story.first_step - before
    else:
        first = story.first_step - min(before, tail)
    uneven = _uneven_ends(story, first, rng) if story.cls is Class.IMBALANCE else {}
    found = []
    last_s = None
    for step in range(first, story.first_step):
        at_s = uneven.get(step, story.ended_s(step))
        took = story.step_seconds if last_s is None or story.rests else at_s - last_s
        last_s = at_s
        if step % every == 0 and step >= 0:
            found.append(Logged(step=step, at_s=at_s, took_s=took, since=every))
    window = max((len(ends) for ends in story.step_ends), default=0)
    for number in range(window):
        step = story.first_step + number
        if step % every == 0:
            found.append(Logged(step=step, at_s=None, took_s=0.0, since=every))
    found += _onward(story, window)
    return _telling(story, found) if story.cls in HEALTHY else found


def _uneven_ends(story: Story, first: int, rng: Random) -> dict[int, float]:
    """When the steps before the window ended, each of which waited for its slowest rank."""
    at_s, found = 0.0, {}
    for step in range(story.first_step - 1, first - 1, -1):
        found[step] = at_s
        at_s -= (1 + rng.uniform(*UNEVEN)) * story.step_seconds
    return found


def _telling(story: Story, steps: list[Logged]) -> list[Logged]:
    """Where the last step is young, or a pause as long as this one came before, its line says so."""
    ends = [
        logged.at_s
        if logged.at_s is not None
        else max(ends[logged.step - story.first_step] for ends in story.step_ends)
        for logged in steps
    ]
    ends = [at for at in ends if at <= story.captured_s]
    gaps = [b - a for a, b in pairwise(ends)]
    if len(gaps) < 2:
        return steps
    behind_s = max(0.0, *(-skew for skew in story.skew_s))  # a clock may make it look older
    age, usual = story.captured_s - ends[-1] + behind_s, median(gaps)
    told = len(ends) - 1 if age <= max(CALM * usual, CALM_S) else None
    if told is None and age <= ONCE_MORE * max(gaps):
        told = gaps.index(max(gaps)) + 1
    return [replace(logged, tells=number == told) for number, logged in enumerate(steps)]


def _onward(story: Story, window: int) -> list[Logged]:
    """Steps after the window of a job that goes on, at the pace of its last."""
    if story.cls not in SLOWING or window < 2:
        return []
    ends = [max(ends[n] for ends in story.step_ends if len(ends) > n) for n in (-2, -1)]
    pace = ends[1] - ends[0]
    count = min(40, int((story.captured_s - ends[1]) / pace)) if pace > 0 else 0
    return [
        Logged(step=story.first_step + window + n, at_s=ends[1] + (n + 1) * pace, took_s=pace)
        for n in range(count)
    ]


def step_lines(story: Story, steps: list[Logged], rng: Random) -> Iterator[Line]:
    """The step lines of all who print them."""
    form = _FORMS[story.style.framework]
    if story.style.framework == "plain":
        form = rng.choice(PLAIN)
    lateness = rng.uniform(0.001, 0.004)
    wall, layout = story.wall_ns, story.layout
    base = wall(0.0)
    bodies = [form(logged.step, logged) for logged in steps if logged.at_s is not None]
    for rank in printers(story):
        node_ns = wall(0.0, layout.node_index(rank)) - base
        own = story.step_ends[rank] if story.step_ends else ()
        shift = base + node_ns + int((lateness + rank % 13 * 0.00031) * 1e9)
        body = iter(bodies)
        for logged in steps:
            if logged.at_s is not None:
                at_s, say = logged.at_s, next(body)
            else:
                number = logged.step - story.first_step
                if number >= len(own):
                    break
                at_s = own[number]
                before = own[number - 1] if number else 0.0
                took = (at_s - before) if logged.since == 1 else story.step_seconds
                say = form(logged.step, Logged(step=logged.step, at_s=at_s, took_s=took))
            ns = shift + int(at_s * 1e9)
            says = NOTHING_WRONG if logged.tells else None
            for err, text in say(ns):
                yield Line(ns, rank, err, text, says)


NOTHING_WRONG = Says((), (Kind.HEALTHY,))
Body = Callable[[int], list[tuple[bool, str]]]


def _loss(step: int) -> float:
    return 2.1 + 8.4 * math.exp(-step / 700) + 0.03 * ((step * 7919) % 13 - 6) / 6


def _torchtitan(step: int, logged: Logged) -> Body:
    tps = f"{int(9000 / max(logged.took_s, 0.05)):,}"
    text = (
        f"step: {step:2}  loss: {_loss(step):7.4f}  grad_norm: {0.4 + step % 7 / 10:7.4f}  "
        f"memory: 61.24GiB(77.31%)  tps: {tps}  tflops: 301.18  mfu: 30.45%"
    )
    return lambda ns: [(True, f"[titan] {ll.day_ms(ns)} - root - INFO - {text}")]


def _megatron(step: int, logged: Logged) -> Body:
    text = (
        f"iteration {step:8}/{TOTAL:8} | consumed samples: {step * BATCH:12} | elapsed time per "
        f"iteration (ms): {logged.took_s * 1000:.1f} | throughput per GPU (TFLOP/s/GPU): 401.2 | "
        f"learning rate: 1.500000E-04 | global batch size: {BATCH:5} | lm loss: {_loss(step):.6E} | "
        f"loss scale: 1.0 | grad norm: 0.412 | number of skipped iterations:   0 | "
        f"number of nan iterations:   0 |"
    )
    return lambda ns: [(False, f" [{ll.day(ns)}] {text}")]


def _deepspeed(step: int, logged: Logged) -> Body:
    speed = f"{BATCH / max(logged.took_s, 0.05):.3f}"
    first = f"[INFO] [logging.py:96:log_dist] [Rank 0] step={step}, skipped=0, lr=[0.0001], mom=[(0.9, 0.999)]"
    second = (
        f"[INFO] [timer.py:215:stop] epoch=0/micro_step={step}/global_step={step}, "
        f"RunningAvgSamplesPerSec={speed}, CurrSamplesPerSec={speed}, MemAllocated=21.06GB, "
        "MaxMemAllocated=61.68GB"
    )
    return lambda ns: [
        (False, f"[{ll.day_ms(ns)}] {first}"),
        (False, f"[{ll.day_ms(ns)}] {second}"),
    ]


def _lightning(step: int, logged: Logged) -> Body:
    took = max(logged.took_s, 0.001)
    share = 100 * step // TOTAL
    rate = f"{1 / took:.2f}it/s" if took < 1 else f"{took:.2f}s/it"
    spent, left = _clock(step * took), _clock((TOTAL - step) * took)
    text = (
        f"Epoch 0: {share:3}%|{'█' * (share // 10):10}| {step}/{TOTAL} [{spent}<{left}, {rate}, "
        f"loss={_loss(step):.2f}, v_num=0]"
    )
    return lambda _ns: [(True, text)]


def _clock(seconds: float) -> str:
    whole = int(seconds)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes:02}:{rest:02}"


def _nemo(step: int, logged: Logged) -> Body:
    text = (
        f"Training epoch 0, iteration {step}/{TOTAL - 1} | lr: 0.0001 | global_batch_size: {BATCH} | "
        f"global_step: {step} | reduced_train_loss: {_loss(step):.3f} | train_step_timing in s: "
        f"{logged.took_s:.3g} | consumed_samples: {step * BATCH}"
    )
    return lambda _ns: [(False, text)]


def _plain_words(step: int, logged: Logged) -> Body:
    text = f"epoch 0 step {step} loss {_loss(step):.4f} step_time {logged.took_s:.2f}s"
    return lambda ns: [(False, f"{ll.day_ms(ns)} INFO train.py:211 - {text}")]


def _plain_pairs(step: int, logged: Logged) -> Body:
    text = (
        f"step={step} loss={_loss(step):.4f} host_mem_gib={120 + step % 9 / 10:.1f} data_time=0.02"
    )
    return lambda ns: [(True, f"{ll.day_ms(ns)} INFO trainer {text}")]


def _plain_bars(step: int, logged: Logged) -> Body:
    text = f"step {step} | loss {_loss(step):.3f} | {logged.took_s:.2f} s/it"
    return lambda ns: [(True, f"{ll.american(ns)} - INFO - __main__ -   {text}")]


def _plain_lit(step: int, logged: Logged) -> Body:
    text = f"iter {step}: loss {_loss(step):.4f}, time: {logged.took_s * 1000:.2f}ms, speed: 1764 toks/s/device"
    return lambda _ns: [(False, text)]


PLAIN = (_plain_words, _plain_pairs, _plain_bars, _plain_lit)
_FORMS: dict[str, Callable[[int, Logged], Body]] = {
    "torchtitan": _torchtitan,
    "megatron": _megatron,
    "deepspeed": _deepspeed,
    "lightning": _lightning,
    "nemo": _nemo,
    "plain": _plain_words,
}


# --- Start ------------------------------------------------------------------------------------------


def start_lines(story: Story, rng: Random) -> Iterator[Line]:
    """What the processes print before the first step; with NCCL's init lines where pods.json needs them."""
    begin = began_s(story)
    framework = story.style.framework
    comm = rng.getrandbits(63) | 1 << 62
    tells_rank = rng.random() < 0.5
    for rank in range(story.layout.size):
        ns = rank_ns(story, rank, begin + 8 + rank % 8 * 0.1)
        if framework in ("lightning", "nemo"):
            text = f"Initializing distributed: GLOBAL_RANK: {rank}, MEMBER: {rank + 1}/{story.layout.size}"
            yield Line(ns, rank, True, text)
        elif framework == "plain" and tells_rank:
            local = story.layout.local_rank(rank)
            text = f"RANK={rank} LOCAL_RANK={local} WORLD_SIZE={story.layout.size} starting"
            yield Line(ns, rank, False, text)
        elif framework == "megatron":
            yield Line(ns, rank, False, f"> rank {rank} finished building datasets ...")
        elif framework == "torchtitan":
            text = f"[titan] {ll.day_ms(ns)} - root - INFO - Building 1-D device mesh"
            yield Line(ns, rank, True, text)
        if story.style.identity == "pods":
            yield from _nccl_init(story, rank, begin + 20, comm)
    yield from _loaded(story, begin + 40)


def _nccl_init(story: Story, rank: int, at_s: float, comm: int) -> Iterator[Line]:
    layout = story.layout
    version = ll.NCCL[story.style.torch]
    local = layout.local_rank(rank)
    function = "ncclCommInitRank " if version >= (2, 21, 0) else ""
    bus = f"{int(layout.bus(rank)[5:7], 16):x}000"
    own = f"0x55{(comm >> 8 ^ rank * 0x9E3779B1) & 0xFFFFFFFFFF:010x}"
    who = (
        f"{function}comm {own} rank {rank} nranks {layout.size} cudaDev {local} nvmlDev {local} "
        f"busId {bus} commId {comm:#x}"
    )
    address = identities.address(story, layout.node_index(rank))
    card = f"NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [2]mlx5_2:1/IB [3]mlx5_3:1/IB [RO]; OOB eth0:{address}<0>"
    for after, text in (
        (0.0, f"Bootstrap : Using eth0:{address}<0>"),
        (0.4, card),
        (0.5, "Using network IB"),
        (0.6, f"{who} - Init START"),
        (3.1, f"{who} - Init COMPLETE"),
    ):
        ns = rank_ns(story, rank, at_s + after + rank % 7 * 0.01)
        yield Line(ns, rank, False, ll.nccl(story, rank, text))


def _loaded(story: Story, at_s: float) -> Iterator[Line]:
    """A job that goes on from a checkpoint says so."""
    step = story.first_step - story.steps_before - 1
    if step <= 0 or step % max(1, story.checkpoint_every) or not has_started(story):
        return
    ns = rank_ns(story, 0, at_s)
    if story.style.framework == "megatron":
        where = f"/ckpt/run7 [ t 1/2, p 1/1 ] at iteration {step}"
        yield Line(ns, 0, False, f"  successfully loaded checkpoint from {where}")
    elif story.style.framework == "torchtitan":
        text = f"Loading the checkpoint from ./outputs/checkpoint/step-{step}."
        yield Line(ns, 0, True, f"[titan] {ll.day_ms(ns)} - root - INFO - {text}")


# --- Checkpoints ------------------------------------------------------------------------------------


def all_saves(story: Story, steps: list[Logged]) -> list[Save]:
    """Those of the story, and those of the steps before its window that the log reaches."""
    found = {save.step: save for save in story.saves}
    earlier = [logged for logged in steps if logged.at_s is not None and logged.at_s <= 0]
    if earlier and story.checkpoint_every > 0:
        first = earlier[0].step
        every = story.checkpoint_every
        due = [s for s in range(story.first_step - 1, first, -1) if s % every == 0][:4]
        for step in due:
            ended = story.ended_s(step)
            rested = next((r.seconds for r in story.rests if r.after_step == step), 0.0)
            took = rested if story.cls is Class.CHECKPOINT else 0.4 * story.step_seconds
            found.setdefault(step, Save(step=step, began_s=ended + 0.05, ended_s=ended + took))
    return [found[step] for step in sorted(found)]


def save_lines(story: Story, saves: list[Save]) -> Iterator[Line]:
    """Checkpoints begun and finished. Where one hangs for some, the others have their part done."""
    stuck = {r for f in story.faults if f.cls in STUCK_IN_A_SAVE for r in f.ranks}
    kinds = tuple(sorted({k for f in story.faults if f.cls in STUCK_IN_A_SAVE for k in f.kinds}))
    writer = _SAVERS[story.style.framework]
    for save in saves:
        hangs = stuck if save in story.saves else set()
        is_open = save in story.saves and story.cls is Class.CHECKPOINT
        for line in writer(story, save, hangs, kinds):
            yield line._replace(says=NOTHING_WRONG) if is_open else line


Kinds = tuple[Kind, ...]


def _own_end(story: Story, save: Save, rank: int, hangs: set[int]) -> float | None:
    """When the part of a rank was written: never for those that hang, nor in a save that is open."""
    if rank in hangs:
        return None
    if save.ended_s is not None or not hangs:
        return save.ended_s
    return save.began_s + 0.3 * story.step_seconds + rank % 8 * 0.01


def _begun(hangs: set[int], kinds: Kinds, rank: int) -> Says | None:
    return Says(tuple(sorted(hangs)), kinds, loud=False) if rank in hangs else None


def _save_torchtitan(story: Story, save: Save, hangs: set[int], kinds: Kinds) -> Iterator[Line]:
    torch = story.style.torch
    for rank in range(story.layout.size):
        ns = rank_ns(story, rank, save.began_s + rank % 8 * 0.001)
        text = "Saving the checkpoint (or staging if async is enabled)."
        head = f"[titan] {ll.day_ms(ns)} - root - INFO - "
        yield Line(ns, rank, True, head + text, _begun(hangs, kinds, rank))
        end = _own_end(story, save, rank, hangs)
        if end is None:
            continue
        ns = rank_ns(story, rank, end)
        took = f"{end - save.began_s:.2f} seconds."
        words = {
            "2.1": f"(or staging if async is enabled)in {took}",
            "2.4": f"(or staging if async is enabled)in {took}",
            "2.6": f"(or staging if async is enabled) in {took}",
        }.get(torch, f"in {took}")
        text = f"[titan] {ll.day_ms(ns)} - root - INFO - Finished saving the checkpoint {words}"
        yield Line(ns, rank, True, text)


def _save_megatron(story: Story, save: Save, hangs: set[int], kinds: Kinds) -> Iterator[Line]:
    ns = rank_ns(story, 0, save.began_s)
    text = f"saving checkpoint at iteration {save.step:7} to /ckpt/run7 in torch_dist format"
    says = Says(tuple(range(story.layout.size)), kinds, loud=False) if hangs else None
    yield Line(ns, 0, False, text, says)
    if save.ended_s is not None and not hangs:
        mark = " [ t 1/2, p 1/1 ]" if story.style.torch not in ("2.1", "2.4") else ""
        text = f"  successfully saved checkpoint from iteration {save.step:7} to /ckpt/run7{mark}"
        yield Line(rank_ns(story, 0, save.ended_s), 0, False, text)


def _save_deepspeed(story: Story, save: Save, hangs: set[int], kinds: Kinds) -> Iterator[Line]:
    where = f"/mnt/nfs/run3/global_step{save.step}"
    ns = rank_ns(story, 0, save.began_s)
    head = "[INFO] [logging.py:96:log_dist] [Rank 0] [Torch] Checkpoint"
    yield Line(
        ns, 0, False, f"[{ll.day_ms(ns)}] {head} global_step{save.step} is about to be saved!"
    )
    engine = "[INFO] [torch_checkpoint_engine.py"
    for rank in range(story.layout.size):
        part = f"{where}/zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"
        ns = rank_ns(story, rank, save.began_s + 0.02 + rank % 8 * 0.003)
        text = f"[{ll.day_ms(ns)}] {engine}:21:save] [Torch] Saving {part}..."
        yield Line(ns, rank, False, text, _begun(hangs, kinds, rank))
        end = _own_end(story, save, rank, hangs)
        if end is not None:
            ns = rank_ns(story, rank, end - 0.01)
            text = f"[{ll.day_ms(ns)}] {engine}:23:save] [Torch] Saved {part}."
            yield Line(ns, rank, False, text)
    if save.ended_s is not None and not hangs:
        ns = rank_ns(story, 0, save.ended_s)
        text = f"[{ll.day_ms(ns)}] {engine}:33:commit] [Torch] Checkpoint global_step{save.step} is ready now!"
        yield Line(ns, 0, False, text)


def _save_lightning(story: Story, save: Save, hangs: set[int], kinds: Kinds) -> Iterator[Line]:
    ns = rank_ns(story, 0, save.began_s)
    where = f"/out/epoch=0-step={save.step}.ckpt"
    loss = f"{_loss(save.step):.5f}"
    text = (
        f"Epoch 0, global step {save.step}: 'val_loss' reached {loss} (best {loss}), "
        f"saving model to '{where}' as top 1"
    )
    says = Says(tuple(range(story.layout.size)), kinds, loud=False) if hangs else None
    yield Line(ns, 0, True, text, says)


def _save_nemo(story: Story, save: Save, hangs: set[int], kinds: Kinds) -> Iterator[Line]:
    where = f"/results/model--step={save.step}.ckpt"
    text = f"Scheduled async checkpoint save for {where}"
    says = Says(tuple(range(story.layout.size)), kinds, loud=False) if hangs else None
    if story.cls is not Class.CHECKPOINT:  # a save that the job waits for has no such line
        yield Line(rank_ns(story, 0, save.began_s), 0, False, text, says)
    if save.ended_s is None or hangs:
        return
    started = f"{story.wall_ns(save.began_s) / 1e9:.3f}s"
    took = f"{save.ended_s - save.began_s:.3f}s"
    ns = rank_ns(story, 0, save.ended_s)
    for text in (
        f"Global Checkpoint Save : Rank: 0 : Iteration: {save.step} : Start time: {started} : Save duration: {took}",
        f"Successfully saved checkpoint from iteration {save.step:7} to {where}",
        f"Async checkpoint save for step {save.step} ({where}) finalized successfully.",
    ):
        yield Line(ns, 0, False, text)


def _save_plain(story: Story, save: Save, hangs: set[int], kinds: Kinds) -> Iterator[Line]:
    for rank in range(story.layout.size):
        ns = rank_ns(story, rank, save.began_s + rank % 8 * 0.002)
        where = f"s3://bucket/run/step_{save.step}"
        text = f"{ll.day_ms(ns)} INFO writing checkpoint at step {save.step} to {where}"
        yield Line(ns, rank, False, text, _begun(hangs, kinds, rank))
        end = _own_end(story, save, rank, hangs)
        if end is not None:
            ns = rank_ns(story, rank, end)
            text = f"{ll.day_ms(ns)} INFO train.py:260 - checkpoint written: step {save.step}"
            yield Line(ns, rank, False, text)


_SAVERS: dict[str, Callable[[Story, Save, set[int], Kinds], Iterator[Line]]] = {
    "torchtitan": _save_torchtitan,
    "megatron": _save_megatron,
    "deepspeed": _save_deepspeed,
    "lightning": _save_lightning,
    "nemo": _save_nemo,
    "plain": _save_plain,
}
