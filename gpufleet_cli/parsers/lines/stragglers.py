"""Straggler reports: which rank was slowest in a section, and what was usual there.

FlagScale prints a section per line block with every rank, Megatron-LM's detector and Composer's callback only
the extremes, NVRx a score of each GPU (the fastest rank's time over its own). One `SLOW_SECTION` for the
slowest rank of each section, and one for every other rank a fifth above the median; rules decide whether
it matters. `value` and `expected_value` are seconds, or for scores the factor by which the rank is slower.

    === Straggler Report at Step 300 ===
      forward_backward:
        Min: 613.26ms, Max: 2140.55ms, Avg: 807.86ms, Slowdown: 3.49x
        Rank 5: 2140.55ms
    [2024-03-14 23:07:56] | MnRtt/Rnk: 3453.08ms/8 | MxRtt/Rnk: 3468.20ms/0 | ... | MxDRtt/Rnk: 34.65ms/3 | ...

>>> from gpufleet_cli.parsers.lines.pasted import read
>>> fact, = read(recognise, '''=== Straggler Report at Step 300 ===
...
... Section Timings (ms):
...   forward_backward:
...     Min: 613.26ms, Max: 2140.55ms, Avg: 807.86ms, Slowdown: 3.49x
...     Rank 4: 619.98ms
...     Rank 5: 2140.55ms
...     Rank 6: 620.35ms''')
>>> fact.named_ranks, fact.value, fact.expected_value, fact.step, fact.detail
((5,), 2.14055, 0.62035, 300, 'forward_backward')
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from statistics import median

from gpufleet_cli.facts import Fact, Sign
from gpufleet_cli.parsers.lines.signs import (
    Rule,
    by_literal,
    continuation,
    make_sign,
    patterns_of,
)
from gpufleet_cli.parsers.log_line import Following, LogLine

_REPORT = re.compile(r"Straggler Report at Step (?P<step>\d{1,12})")
_SECTION = re.compile(r"\s{1,16}(?P<name>[A-Za-z_][\w ./-]{0,80}):\s{0,4}")
_RANGE = re.compile(
    r"\s{1,16}Min: (?P<min>[\d.]{1,16})(?P<unit>ms|s), Max: (?P<max>[\d.]{1,16})(?:ms|s), Avg: (?P<avg>[\d.]{1,16})"
)
_ROW = re.compile(r"\s{1,16}Rank (?P<rank>\d{1,7}): (?P<time>[\d.]{1,16}) ?(?P<unit>ms|s)\b")
_EXTREME = re.compile(
    r"(?P<end>Mn|Mx|Min|Max)(?P<what>Rtt|DRtt|RoundtripTime|DataLoadTime)/(?:Rnk|Rank): (?P<time>[\d.]{1,16}) ?"
    r"(?P<unit>ms|s)/(?P<rank>\d{1,7})"
)
_THROUGHPUT = re.compile(
    r"Min?n?(?:Etpt|Throughput)/(?:Rnk|Rank): (?P<rate>[\d.]{1,16}) ?TF/(?P<rank>\d{1,7})"
)
_SCORE = re.compile(
    r"Rank=(?P<rank>\d{1,7}) Node=(?P<node>\S{1,253}) Score=(?P<score>\d{1,3}\.\d{1,4})"
)
_WARNED = re.compile(r"rank=(?P<rank>\d{1,7})")
_NAMES = {
    "Rtt": "round trip",
    "DRtt": "get_batch",
    "RoundtripTime": "round trip",
    "DataLoadTime": "data",
}
_SLOWER = 1.2
_SCORE_LIMIT = 0.87
_ROWS = 4096
_STRANGERS = 2
_PER_SECTION = 16


def _report(line: LogLine, following: Following) -> Iterator[Fact]:
    """FlagScale's report: sections with a row per rank."""
    found = _REPORT.search(line.text)
    if found is None:
        return
    step = int(found["step"])
    name, usual, strangers = "", None, 0
    times: list[tuple[float, int]] = []
    for row in continuation(line, following, _ROWS):
        rank, header, limits = (
            _ROW.match(row.text),
            _SECTION.fullmatch(row.text),
            _RANGE.match(row.text),
        )
        if rank is not None:
            times.append((_seconds(rank["time"], rank["unit"]), int(rank["rank"])))
        elif limits is not None:
            usual = _seconds(limits["avg"], limits["unit"])
        elif header is not None:
            yield from _slowest(line, name, times, usual, step)
            name, usual, times = header["name"].strip(), None, []
        elif row.text.strip() and "Section Timings" not in row.text:
            strangers += 1
            if strangers >= _STRANGERS or "Straggler Report" in row.text:
                break
    yield from _slowest(line, name, times, usual, step)


def _slowest(
    line: LogLine, name: str, times: list[tuple[float, int]], usual: float | None, step: int
) -> Iterator[Fact]:
    if not times:
        return
    expected = median(time for time, _ in times) if len(times) > 2 else usual
    by_time = sorted(times, key=lambda pair: (-pair[0], pair[1]))
    for place, (time, rank) in enumerate(by_time[:_PER_SECTION]):
        if place and (expected is None or time < _SLOWER * expected):
            break
        yield make_sign(
            Sign.SLOW_SECTION,
            line,
            named_ranks=(rank,),
            value=time,
            expected_value=expected,
            step=step,
            detail=name or "section",
        )


def _seconds(time: str, unit: str) -> float:
    try:
        value = float(time)
    except ValueError:
        return 0.0
    return round(value / 1000, 9) if unit == "ms" else value


def _extremes(line: LogLine, following: Following) -> Iterator[Fact]:
    """Megatron-LM and Composer: the largest and smallest time of a section, with their ranks."""
    text = line.text
    if "/Rank:" in text:
        text = "\n".join([text, *(row.text for row in following(12) if "/Rank:" in row.text)])
    found = {(f["end"][:2], f["what"]): f for f in _EXTREME.finditer(text)}
    own = {f["what"] for f in _EXTREME.finditer(line.text) if f["end"] in ("Mx", "Max")}
    for what in sorted(own):
        largest = found["Mx", what] if ("Mx", what) in found else found["Ma", what]
        least = found.get(("Mn", what), found.get(("Mi", what)))
        yield make_sign(
            Sign.SLOW_SECTION,
            line,
            named_ranks=(int(largest["rank"]),),
            value=_seconds(largest["time"], largest["unit"]),
            expected_value=_seconds(least["time"], least["unit"]) if least is not None else None,
            detail=_NAMES[what],
        )
    lowest = _THROUGHPUT.search(line.text)
    if lowest is not None:
        detail = "lowest throughput"
        yield make_sign(Sign.SLOW_SECTION, line, named_ranks=(int(lowest["rank"]),), detail=detail)


def _scores(line: LogLine, following: Following) -> Iterator[Fact]:
    """NVRx: scores of GPUs; 0.5 takes twice as long as the fastest (or as itself before)."""
    kind = "individual" if "individual" in line.text else "relative"
    for row in continuation(line, following, 64):
        found = _SCORE.search(row.text)
        if found is None:
            if row.text.strip() and "performing" not in row.text:
                return
            continue
        score = float(found["score"])
        if 0 < score < _SCORE_LIMIT:
            yield make_sign(
                Sign.SLOW_SECTION,
                row,
                named_ranks=(int(found["rank"]),),
                peer=found["node"],
                value=round(1 / score, 6),
                expected_value=1.0,
                detail=f"one unit of work (NVRx {kind} score)",
            )


def _warned(line: LogLine, following: Following) -> Iterator[Fact]:
    ranks = tuple(int(found["rank"]) for found in _WARNED.finditer(line.text))
    yield make_sign(Sign.SLOW_SECTION, line, named_ranks=ranks, detail="NVRx names stragglers")


_RULES: tuple[Rule, ...] = (
    (("Straggler Report at Step",), _report),
    (
        ("MxRtt/Rnk", "Throughput/Rank: ", "RoundtripTime/Rank: ", "DataLoadTime/Rank: "),
        _extremes,
    ),
    (("GPU relative performance", "GPU individual performance"), _scores),
    (("STRAGGLER DETECTION WARNING",), _warned),
)
PATTERNS: tuple[str, ...] = patterns_of(_RULES)


def recognise(line: LogLine, following: Following) -> Iterator[Fact]:
    """Slow ranks that a report names."""
    return by_literal(_RULES, line, following)
