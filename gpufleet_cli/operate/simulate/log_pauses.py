"""What a healthy trainer writes while it makes no step: evaluations and compilations.

Megatron-LM, Lightning, NeMo 2, DeepSpeed-Chat, torchtitan (which writes at the end only) and trainers
of one's own; TorchInductor's autotuning and Dynamo's recompilations (TORCH_LOGS=recompiles).
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from gpufleet_cli.operate.simulate import identities
from gpufleet_cli.operate.simulate import log_lines as ll
from gpufleet_cli.operate.simulate.log_frameworks import NOTHING_WRONG
from gpufleet_cli.operate.simulate.log_lines import Line, Says, rank_ns
from gpufleet_cli.operate.simulate.story import Class, Story

PARTS = 10
EVAL_BATCHES = 50
SHAPES = ("mm(8192x4096, 4096x14336)", "addmm(8192x5120, 8192x13824, 13824x5120)")


def phase_lines(story: Story, rng: Random) -> Iterator[Line]:
    """The lines of this pause, and of those before it that were of the same kind."""
    fault = story.faults[0] if story.faults else None
    says_it = rng.random() < 0.7
    if fault is None or not says_it:
        return
    seconds = story.rests[0].seconds if story.rests else story.captured_s - fault.at_s
    if fault.cls is Class.COMPILE:
        for rest in story.rests:
            yield from _compiles(story, story.ended_s(rest.after_step), rest.seconds, None)
        yield from _compiles(story, fault.at_s, seconds, NOTHING_WRONG)
    elif fault.cls is Class.LONG_STEP and _evaluates(story):
        shown = [(rest.after_step, rest.seconds) for rest in story.rests[:4]]
        for step, took in shown:
            yield from _evaluation(story, step, story.ended_s(step), took, None)
        yield from _evaluation(story, story.first_step, fault.at_s, seconds, NOTHING_WRONG)


def _evaluates(story: Story) -> bool:
    """Whether the host works between two steps: a step with much to compute has no word for it."""
    fault = story.faults[0]
    call = fault.call
    return call is None or all(
        enqueued[call] is None or (enqueued[call] or 0.0) > story.captured_s
        for enqueued in story.moments.enqueued
    )


# --- Compilations -----------------------------------------------------------------------------------


def _compiles(story: Story, at_s: float, seconds: float, says: Says | None) -> Iterator[Line]:
    """Each rank compiles for itself: a recompilation begins, then kernels are tuned one by one."""
    traced = story.seed % 2 == 0 and story.style.framework not in ("lightning", "nemo")
    for rank in range(story.layout.size):
        if traced:
            ns = rank_ns(story, rank, at_s + 0.01 + rank % 8 * 0.002)
            pid = identities.pid(story, rank)
            stamp = f"{ll.glog_day(ns)}.{ns // 1_000 % 1_000_000:06}"
            head = f"V{stamp} {pid} torch/_dynamo/guards.py:2813] [0/1] [__recompiles]"
            yield Line(ns, rank, True, f"{head} Recompiling function forward in model.py:212", says)
            yield Line(ns, rank, True, f"{head}     triggered by the following guard failure(s):")
            failed = "- 0/0: tensor 'tokens' size mismatch at index 1. expected 4096, actual 8192"
            yield Line(ns, rank, True, f"{head}     {failed}")
        for part, shape in enumerate(SHAPES):
            ns = rank_ns(story, rank, at_s + (0.2 + 0.3 * part) * seconds + rank % 8 * 0.05)
            yield Line(ns, rank, True, f"AUTOTUNE {shape}", says)
            yield Line(ns, rank, True, "  mm 0.6659 ms 100.0% ")
            yield Line(ns, rank, True, "  triton_mm_110 0.7683 ms 86.7% ACC_TYPE='tl.float32'")
            took = f"{0.04 * seconds:.4f} seconds and 0.0012 seconds precompiling"
            yield Line(ns, rank, True, f"SingleProcess AUTOTUNE benchmarking takes {took}")


# --- Evaluations -----------------------------------------------------------------------------------


def _evaluation(
    story: Story, step: int, at_s: float, seconds: float, says: Says | None
) -> Iterator[Line]:
    """By the framework's own lines. What lies behind the capture is cut off later."""
    loss = f"{2.2 + step % 7 / 50:.4f}"
    end = rank_ns(story, 0, at_s + seconds - 0.02)
    begin = rank_ns(story, 0, at_s + 0.01)
    size = story.layout.size
    match story.style.framework:
        case "megatron":
            yield Line(begin, 0, False, "Evaluating on 5120 samples", says)
            last = size - 1
            for part in range(1, PARTS + 1):
                ns = rank_ns(story, 0, at_s + 0.01 + part / (PARTS + 1) * seconds)
                yield Line(ns, 0, False, f"Evaluating iter {part}/{PARTS}", says)
            text = f" validation loss at iteration {step} on validation set | lm loss value: {loss}E+00 |"
            yield Line(rank_ns(story, last, at_s + seconds - 0.02), last, False, text)
        case "lightning":
            for part in range(PARTS):
                ns = rank_ns(story, 0, at_s + 0.01 + part / PARTS * seconds)
                done = EVAL_BATCHES * part // PARTS
                bar = f"{100 * part // PARTS:3}%|{'█' * part:10}| {done}/{EVAL_BATCHES}"
                yield Line(
                    ns, 0, True, f"Validation DataLoader 0: {bar} [00:10<01:15,  3.40s/it]", says
                )
            bar = f"100%|{'█' * 10}| {EVAL_BATCHES}/{EVAL_BATCHES}"
            yield Line(end, 0, True, f"Validation DataLoader 0: {bar} [02:50<00:00,  3.40s/it]")
        case "nemo":
            for part in range(1, PARTS + 1):
                last = size - 1
                ns = rank_ns(story, last, at_s + part / (PARTS + 1) * seconds)
                yield Line(ns, last, False, f"Validation: iteration {part}/{PARTS}", says)
        case "deepspeed":
            yield Line(begin, 0, False, "***** Evaluating perplexity, Epoch 1/2 *****", says)
            yield Line(end, 0, False, f"ppl: 9.1, loss: {loss}")
        case "torchtitan":
            text = f"validate step: {step:2}  loss: {loss}  memory: 40.12GiB(50.65%)  tps: 12,011"
            yield Line(end, 0, True, f"[titan] {ll.day_ms(end)} - root - INFO - {text}")
        case _:
            head = f"{ll.american(begin)} - INFO - __main__ -   "
            yield Line(begin, 0, True, f"{head}***** Running evaluation *****", says)
            yield Line(begin, 0, True, f"{head}  Num examples = 2048")
            text = f"{ll.american(end)} - INFO - __main__ -   eval_loss = {loss}"
            yield Line(end, 0, True, text)
