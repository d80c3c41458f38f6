"""The bytes pass finds the same lines with both engines, once each, in bounded work."""

from __future__ import annotations

import random
import re

import pytest

from gpufleet_cli.parsers import scan
from gpufleet_cli.parsers.scan import LONG_LINE, Scanner, Span, compile_patterns

MODULES: tuple[tuple[str, ...], ...] = (
    (re.escape("NCCL WARN"), r"Watchdog caught collective (?:operation )?timeout"),
    (),
    (re.escape("Traceback (most"), r"\w{1,20}Error\b", re.escape("Trace")),
    (r"exitcode *: *-?\d+", r"a[^b]c"),
)

engines = pytest.mark.parametrize(
    "engine",
    [
        pytest.param("re2", marks=pytest.mark.skipif(scan.re2 is None, reason="no google-re2")),
        "re",
    ],
)


def lines_of(scanner: Scanner, data: bytes) -> list[bytes]:
    return [data[span.start : span.end] for span in scanner.spans(data, 0, len(data))]


@engines
def test_candidates_are_whole_lines_once(engine: str) -> None:
    """Two matches in one line are one candidate; lines without a match are none."""
    scanner = compile_patterns(MODULES, engine=engine)
    data = b"step 1\nTraceback (most recent\n x\nKeyError: NCCL WARN\nexitcode  : -9 (pid"
    assert lines_of(scanner, data) == [
        b"Traceback (most recent",
        b"KeyError: NCCL WARN",
        b"exitcode  : -9 (pid",
    ]


@engines
def test_a_match_does_not_cross_a_newline(engine: str) -> None:
    """`a[^b]c` would match over the end of a line; it must not, and the next line still counts."""
    scanner = compile_patterns(MODULES, engine=engine)
    assert lines_of(scanner, b"xxa\ncyy\nazc\na\nc NCCL WARN") == [b"azc", b"c NCCL WARN"]


@engines
def test_only_the_asked_part_is_scanned(engine: str) -> None:
    """A line that begins before the part is not reported."""
    scanner = compile_patterns(MODULES, engine=engine)
    data = b"NCCL WARN 1\nNCCL WARN 2\nNCCL WARN 3\n"
    assert list(scanner.spans(data, 12, 24)) == [Span(12, 23)]


@engines
def test_modules_are_told(engine: str) -> None:
    """Whose patterns a line matches, in order."""
    scanner = compile_patterns(MODULES, engine=engine)
    assert list(scanner.modules_for(b"ValueError after NCCL WARN")) == [0, 2]
    assert list(scanner.modules_for(b"nothing")) == []


@engines
def test_a_line_without_end_costs_a_window_per_match(engine: str) -> None:
    """A file without newlines gives bounded spans, and a second match far away is found."""
    scanner = compile_patterns(MODULES, engine=engine)
    data = b"x" * 300_000 + b"NCCL WARN one" + b"y" * 300_000 + b"NCCL WARN two" + b"z" * 10
    found = lines_of(scanner, data)
    assert [b"one" in found[0], b"two" in found[1], len(found)] == [True, True, 2]
    assert all(len(text) <= LONG_LINE + scan.BEFORE_MATCH for text in found)


@engines
def test_no_patterns_no_candidates(engine: str) -> None:
    """A scanner of nothing finds nothing."""
    scanner = compile_patterns([(), ()], engine=engine)
    assert lines_of(scanner, b"NCCL WARN\n") == []
    assert list(scanner.modules_for(b"NCCL WARN")) == []


@pytest.mark.skipif(scan.re2 is None, reason="no google-re2")
def test_both_engines_agree_on_noise() -> None:
    """Random mixtures of pieces, bytes that are no UTF-8 and newlines give equal candidates."""
    rng = random.Random(7)
    pieces = [b"NCCL WARN", b"Trace", b"Key", b"Error", b" ", b"a", b"b", b"c", b"\n", b"\r", b"\xff\xfe",
              b"\x00", "é".encode(), b"exitcode : -", b"12", b"Watchdog caught collective timeout"]  # fmt: skip
    one, two = compile_patterns(MODULES, engine="re2"), compile_patterns(MODULES, engine="re")
    for _ in range(400):
        data = b"".join(rng.choices(pieces, k=rng.randrange(60)))
        assert lines_of(one, data) == lines_of(two, data)
        for line in data.split(b"\n"):
            assert list(one.modules_for(line)) == list(two.modules_for(line))


@pytest.mark.skipif(scan.re2 is None, reason="no google-re2")
def test_every_pattern_of_the_registry_means_the_same_to_both() -> None:
    """The recognisers' own patterns compile in both engines and find themselves."""
    lines = pytest.importorskip("gpufleet_cli.parsers.lines")
    modules = [module.PATTERNS for module in lines.RECOGNISERS]
    one, two = compile_patterns(modules, engine="re2"), compile_patterns(modules, engine="re")
    words = [re.sub(r"\\(.)", r"\1", p) for patterns in modules for p in patterns]
    data = "\n".join(f"before {word} behind\nplain" for word in words).encode()
    assert lines_of(one, data) == lines_of(two, data)
    assert len(lines_of(one, data)) >= len([w for w in words if re.escape(w) in sum(modules, ())])
