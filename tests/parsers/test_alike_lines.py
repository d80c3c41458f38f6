"""Lines that differ in digits alone are read once and copied: the answer must be that of reading."""

from typing import Any

import pytest
from parsers.log_reading import evidence_of

from gpufleet_cli.facts import Progress, Writes
from gpufleet_cli.parsers import training_log
from gpufleet_cli.parsers.log_pages import Page
from gpufleet_cli.parsers.log_reader import LineReader, Raw
from gpufleet_cli.parsers.scan import compile_patterns
from gpufleet_cli.parsers.wrappers import paths

STAMPS = tuple(f"2026-11-29T14:3{n}:17.84949263{n}Z" for n in range(4))
BODIES = (
    "[rank{n}]: step: 4794{n}  loss:  2.224{n}  tps: 9,79{n}",
    "[default0]:[rank{n}]: hello",
    "step {n} done",
    "stdout F [rank{n}]: in a runtime's own file",
    "stdout P a part of",
    "host-{n}:41{n}:42{n} [{n}] NCCL INFO its own process",
    "[rank1]:[E1129 14:49:38.00690000{n} ProcessGroupNCCL.cpp:1794] [Rank {n}] it waited",
    "[rank1]: text[rank{n}]:[E1129 14:49:38.006900000 X.cpp:1] glued",
    '{{"log": "json {n}"}}',
    "Mon Feb 1{n} 04:11:47 2025 a second time",
    "2026-11-29 14:30:0{n} its own time",
    "épochs é{n}",
)


def _lines() -> list[str]:
    """Each form four times, digits apart, the rank changing only in the second half."""
    found = []
    for body in BODIES:
        for n, stamp in enumerate(STAMPS):
            found.append(f"{stamp} {body.format(n=n)}")
            found.append(f"{stamp} {body.format(n=1)}")
        found.append(f"2026-11-29T14:99:17Z {body.format(n=1)}")
    return found


def _reader(data: bytes) -> LineReader:
    return LineReader([Page("logs/a.log", lambda: data)], paths.hints("logs/a.log"), near_ns=None)


def _shown(raw: Raw) -> tuple[Any, ...]:
    return (*raw._replace(voice=None, glued=()), raw.voice.fields, [g.text for g in raw.glued])  # type: ignore[arg-type]


@pytest.mark.parametrize("body", range(len(BODIES)))
def test_a_copied_line_is_the_line_that_reading_gives(body: int) -> None:
    """One reader for all lines against a fresh one, which knows no shape yet, for each."""
    count = len(_lines()) // len(BODIES)
    lines = _lines()[body * count : (body + 1) * count]
    data = "".join(line + "\n" for line in lines).encode()
    one = _reader(data)
    at = 0
    for line in lines:
        assert _shown(_reader(data).line(0, at)) == _shown(one.line(0, at))
        at += len(line.encode()) + 1


@pytest.mark.parametrize("engine", ["re", None])
def test_spans_with_owners_are_those_of_the_plain_pass(engine: str | None) -> None:
    """Asked shape by shape or line by line: the same lines and the same modules."""
    data = "".join(line + "\n" for line in _lines() * 2).encode() + b"step 12 at the end"
    for patterns in (
        [(r"[Ss]teps?[^0-9A-Za-z]{1,5}[0-9]", "hello"), (r"tps: \d",)],
        [(r"step 1",), ("rank2",)],  # these tell digits apart
    ):
        scanner = compile_patterns(patterns, engine=engine)
        expected = [
            (span, list(scanner.modules_for(data[span.start : span.end])))
            for span in scanner.spans(data, 0, len(data))
        ]
        found = [(span, list(own)) for span, own in scanner.owned_spans(data, 0, len(data))]
        assert expected == found
        assert scanner.digits_alike == ("hello" in patterns[0])


STEPS = (
    ("step: 4{n}  loss:  2.2{n}  tps: 9,79{n}", True),
    ("step: {n}/900 loss 2.0 step_time: 1{n}.5ms data_time: 0.{n}", True),
    ("global_step={n} loss=1.{n} seconds: 2.{n}", True),
    ("iteration       {n}/    3000 | elapsed time per iteration (ms): 1{n}6.8 | loss: 1", True),
    (" 12%|##| {n}/500 [03:01<22:04,  3.0{n}s/it]", True),
    ("step {n} saving checkpoint, loss 2", False),
    ("step {n}.{n} loss 2", False),
    ("step {n}.0 loss 2", True),
    ("at step {n}.{n} of epoch 1: step {n} loss 2", True),
)


@pytest.mark.parametrize(("body", "is_step"), STEPS)
def test_a_step_line_read_by_its_shape_says_what_it_says_alone(body: str, is_step: bool) -> None:
    """A whole log against its lines one by one, which have no line before them to be like."""
    lines = [
        f"2026-11-29T14:38:{10 + n}.{'5' * (n % 3 + 1)}Z {body.format(n=n)}\n" for n in range(1, 24)
    ]

    def points(text: str) -> list[tuple[object, ...]]:
        return [
            (fact.total_steps, point.at_ns, point.step, point.step_s, point.data_s)
            for fact in training_log.parse(evidence_of("a.log", text))
            if isinstance(fact, Progress)
            for point in fact.points
        ]

    alone = [point for line in lines for point in points(line)]
    assert alone == points("".join(lines))
    assert (len(lines) if is_step else 0) == len(alone)


def test_a_line_is_seen_once_however_it_is_read() -> None:
    """Blank lines, lines of another wrapper, another rank or no time between lines of a known shape."""
    step = "2026-11-29T14:38:{n}.5Z [rank3]: step: {n} loss: 2.0"
    lines = [step.format(n=n) for n in range(10, 50)]
    other = lines[3].replace("rank3", "rank4")
    lines[7:7] = ["", "bare text", "[pod/train-0/main] " + lines[3], lines[3], other]
    lines.append("2026-11-29T14:61:17.5Z [rank3]: step: 50 loss: 2.0")
    facts = list(training_log.parse(evidence_of("a.log", "\n".join(lines))))
    written = {
        (fact.speaker.pod, fact.speaker.prefix_rank): fact.lines
        for fact in facts
        if isinstance(fact, Writes)
    }
    assert {(None, 3): 41, (None, 4): 1, ("train-0", 3): 1, (None, None): 2} == written
    steps = {
        fact.speaker.prefix_rank: len(fact.points) for fact in facts if isinstance(fact, Progress)
    }
    assert steps[4] == 1
