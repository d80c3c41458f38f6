"""Broken, cut, glued and hostile lines: nothing raises, nothing takes long, ordinary lines stay silent."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator

import pytest
from parsers.lines.sample_files import Sample, read_samples

from gpufleet_cli.facts import LogSign
from gpufleet_cli.parsers.lines import RECOGNISERS
from gpufleet_cli.parsers.lines.pasted import read

SAMPLES = read_samples()
EVENTS = tuple(m for m in RECOGNISERS if not getattr(m, "SAMPLED", False))
ORDINARY = (
    "",
    "    ",
    "2025-05-12 09:14:02,000 - root - INFO - Starting job: Llama 3 8B training",
    "[titan] 2025-05-12 09:16:04 - root - INFO - step: 10  loss:  7.8800  grad_norm:  0.9062  tps: 5,123  mfu: 30%",
    " [2025-09-02 03:02:21] iteration     4001/   50000 | consumed samples: 2048512 | elapsed time per iteration"
    " (ms): 21385.4 | lm loss: 2.309000E+00 | loss scale: 1.0 | grad norm: 0.412 | number of nan iterations:   0 |",
    "{'loss': 1.9000, 'grad_norm': 2.1000, 'learning_rate': 1.98e-05, 'epoch': 0.00}",
    " 12%|##        | 60/500 [03:01<22:04,  3.01s/it]",
    "INFO trainer: step=0 phase=forward done",
    "INFO trainer: step=0 loss=4.0212 grad_norm=0.800 lr=3.0e-04 step_time=0.073s tok/s=450100",
    "epoch 3 step 4020 loss 2.3070 step_time 2.98s",
    "gpu-1:10:20 [0] NCCL INFO Channel 03/0 : 11[3] -> 3[3] [send] via NET/IB/0/GDRDMA",
    "gpu-1:10:20 [0] NCCL INFO transport/net.cc:990 -> 6",
    "gpu-1:10:20 [0] NCCL INFO Trees [0] 1/-1/-1->0->-1 [1] 1/-1/-1->0->-1",
    "gpu-1:10:20 [0] NCCL INFO Bootstrap : Using eth0:10.244.8.32<0>",
    "> rank 3 finished building datasets ...",
    '  File "/app/train.py", line 3, in main',
    "frame #3: c10d::ProcessGroupNCCL::ncclCommWatchdog() + 0x10c (0x7f011f378c50 in libtorch_cuda.so)",
    "[Rank 0] step=10, skipped=0, lr=[0.0001], mom=[(0.9, 0.999)]",
    "wandb: Syncing run sunny-1",
    "Some weights were newly initialized",
    "INFO evaluated 500 samples, accuracy 0.91",
)


def _everything(text: str) -> list[object]:
    return [fact for module in RECOGNISERS for fact in read(module.recognise, text)]


@pytest.mark.parametrize("line", ORDINARY)
def test_an_ordinary_line_matches_no_pattern_of_an_unsampled_module(line: str) -> None:
    """Lines of every step and of every start must not be decoded: they are nearly all of a log."""
    patterns = [p for module in EVENTS for p in module.PATTERNS if re.search(p, line)]
    assert [] == patterns


@pytest.mark.parametrize("line", ORDINARY)
def test_an_ordinary_line_is_no_sign(line: str) -> None:
    """Without the bytes pass in front, no module makes a sign of it either."""
    assert [] == [fact for fact in _everything(line) if isinstance(fact, LogSign)]


def test_patterns_survive_a_json_wrapper() -> None:
    """Raw lines may be JSON: a pattern with a quote, a tab, an angle bracket or an anchor never matches."""
    for module in RECOGNISERS:
        for pattern in module.PATTERNS:
            literal = re.sub(r"\\(.)", r"\1", pattern)
            assert not set(literal) & set('"\t\n<>&'), (module.__name__, pattern)
            assert not re.search(r"(?<!\\)[$]|(?<![\\\[])\^", pattern), (module.__name__, pattern)


def test_patterns_are_short_and_each_once_in_its_module() -> None:
    """One alternation of all of them runs over gigabytes."""
    for module in RECOGNISERS:
        assert len(module.PATTERNS) == len(set(module.PATTERNS))
        assert all(len(pattern) <= 90 for pattern in module.PATTERNS)


def test_re2_and_re_agree() -> None:
    """google-re2 takes every pattern, and finds the same lines as re."""
    re2 = pytest.importorskip("re2")
    joined = "|".join(f"(?:{p})" for module in RECOGNISERS for p in module.PATTERNS)
    fast, slow = re2.compile(joined.encode()), re.compile(joined.encode())
    for text in [*ORDINARY, *(sample.text for sample in SAMPLES)]:
        data = text.encode()
        assert bool(fast.search(data)) is bool(slow.search(data)), text


def _mutations(text: str, dice: random.Random) -> Iterator[str]:
    """Cut, doubled, torn into another line, bytes lost, digits grown, brackets gone."""
    for _ in range(6):
        yield text[: dice.randrange(len(text) + 1)]
        yield text[dice.randrange(len(text) + 1) :]
    yield text + text
    yield text.encode().decode("ascii", "replace").replace("e", "\ufffd")
    yield re.sub(r"\d+", lambda found: found.group() * 30, text)
    yield re.sub(r"\d+", "", text)
    yield re.sub(r"[\[\](){}]", "", text)
    yield text.replace("=", "").replace(":", "")
    other = dice.choice(SAMPLES).text
    at = dice.randrange(len(text) + 1)
    yield text[:at] + other + text[at:]
    yield "".join(dice.sample(text, len(text)))


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_a_mutilated_line_never_raises(sample: Sample) -> None:
    """Whatever a torn or hostile line says, a recogniser says less, not an exception."""
    dice = random.Random(str(sample))
    for text in _mutations(sample.text, dice):
        for fact in _everything(text):
            if isinstance(fact, LogSign):
                assert len(fact.text) <= 400
                assert fact.detail is None or len(fact.detail) <= 240


@pytest.mark.parametrize(
    "text",
    [
        "[PG ID " * 9_000,
        "Rank 1, " * 9_000 + "failed to pass monitoredBarrier",
        "To our best knowledge, ranks [" + "1, " * 20_000 + "x are the lagging ranks",
        "NCCL error: " + "a" * 60_000,
        "gpu-1:10:20 [0] " + "int f(a_t*, b_t*) " * 4_000 + "NCCL WARN",
        "Rank 0 is running collective: " * 2_000 + "Detected mismatch between collectives on ranks",
        "Traceback (most recent call last):\n" + '  File "x", line 1, in f\n' * 4_000,
        "Got completion from peer " + "1." * 30_000 + "<1> with error 12",
        "NET/IB : Got async event : " + "x" * 60_000,
        "saved checkpoint " + "/a" * 30_000 + " step=1",
        "1/2 [" * 12_000 + "s/it",
        "step " * 12_000 + "loss",
        "srun: error: h: tasks " + "1-9," * 15_000 + "1: Killed",
        "missing_ranks" + '"missing_ranks": [' + "{" * 30_000,
        "Straggler Report at Step 1\n" + "    Rank 1: 1.0ms\n" * 5_000,
        "Failures:\n" + "[1]:\n  rank : 1 (local_rank: 1)\n" * 4_000,
        "{'a': " * 10_000 + "world_size=1 rank=1",
        " " * 60_000 + "Killed",
    ],
    ids=range(18),
)
def test_a_long_hostile_line_costs_little(text: str) -> None:
    """Every regex is bounded: 60,000 characters made to backtrack take well under a second."""
    began = time.perf_counter()
    _everything(text)
    assert time.perf_counter() - began < 2.0


def test_a_huge_range_of_tasks_is_bounded() -> None:
    """`tasks 0-9999999` is not ten million facts."""
    facts = _everything("srun: error: gpu-1: tasks 0-9999999: Killed")
    assert len(facts) == 1024
