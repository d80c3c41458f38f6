"""Step lines of training frameworks: the step number, and the seconds per step where they are printed.

One `Progress` of one point per line; the scanner merges the points of one speaker, series and total. Every
step prints such a line, so this module is sampled. A bar that counts inside an epoch is made to count on
(epoch times length), and one that names validation is a series of its own; bars of downloads, tokenising
or loading are none. Lines about a phase inside a step, and dicts without a step (HF Trainer), say nothing.

    Megatron-LM   iteration       10/    3000 | ... | elapsed time per iteration (ms): 1916.8 | ...
    torchtitan    step: 10  loss:  7.8  grad_norm: .. memory: .. tps: 5,123
    tqdm           12%|##| 60/500 [03:01<22:04,  3.01s/it]      (HF Trainer, Lightning, NeMo 1, YOLO)
    NeMo 2        Training epoch 0, iteration 9/99 | ... global_step: 9 | ... train_step_timing in s: 6.08
    DeepSpeed     [Rank 0] step=10, skipped=0, ...   epoch=0/micro_step=10/global_step=10, ...
    Composer      [batch=10/1000]:
    torchvision   Epoch: [4]  [ 40/20000]  eta: .. time: 3.01 data: 0.01
    lit, nanoGPT  iter 83592: loss .., time: 4401.19ms
    fairseq       epoch 001:  100 / 5000 loss=.., ups=2.1, num_updates=100
    MaxText       completed step: 100, seconds: 2.34, ...

>>> from gpufleet_cli.parsers.lines.pasted import read
>>> fact, = read(recognise, " [2025-12-01 12:00:19] iteration       10/    3000 | consumed samples: 2560 | "
...     "elapsed time per iteration (ms): 1916.8 | loss scale: 1.0 |")
>>> fact.points[0].step, fact.points[0].step_s, fact.total_steps
(10, 1.9168, 3000)
>>> fact, = read(recognise, "Epoch 2:   6%|#| 32/500 [06:28<94:39, 2.00it/s, loss=2.6]")
>>> fact.points[0].step, fact.points[0].step_s, fact.series
(1032, 0.5, 'train')
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Literal, NamedTuple

from gpufleet_cli.facts import Fact, Progress, StepPoint
from gpufleet_cli.parsers.log_line import Following, Form, LogLine, Numbers

SAMPLED = True
PATTERNS: tuple[str, ...] = (
    r"[Ss]teps?[^0-9A-Za-z]{1,5}[0-9]",
    r"[Ii]ter(ation)?[ :=]+[0-9]",
    r"it/s",
    r"s/it",
    r"s/(step|batch)",
    r"(step|batch)/s",
    r"\[batch=[0-9]",
    r"(Epoch|Train|Test|Val): *([0-9]+ *)?\[",
    r"num_updates",
)

_BAR = re.compile(
    r"(?<![\d.])(?P<step>\d{1,12})/(?P<total>\d{1,12}) \[(?P<clock>[\d:]{2,12})<(?P<left>[\d:?]{1,12}), {0,4}"
    r"(?P<rate>[\d.]{1,12}|\?) ?(?P<unit>(?:it|step|steps|batch|ba)/s|s/(?:it|step|batch|ba))"
)
_OPEN_BAR = re.compile(
    r"(?<![\d.])(?P<step>\d{1,12})it \[(?P<clock>[\d:]{2,12}), {0,4}(?P<rate>[\d.]{1,12}|\?) ?(?P<unit>it/s|s/it)"
)
_BAR_EPOCH = re.compile(
    r"(?:[Ee]poch[ :=\[]{1,3}(?P<epoch>\d{1,7})|^ {0,8}(?P<first>\d{1,7})/\d{1,7} {1,8}[\d.]{1,8}G)"
)
_VALIDATION = re.compile(
    r"(?:^|[^a-z])(?:val|valid\w*|eval\w*|test\w*|sanity|predict\w*|class +images)", re.IGNORECASE
)
_NO_STEPS = re.compile(
    r"load|download|\bmap\b|token|shard|extract|scan|cach|filter|pack|process|resolv|fetch|sav|upload|convert|"
    r"compil|quant|generat|collat|index|read|writ|import|warm|captur|profil",
    re.IGNORECASE,
)
_MEGATRON = re.compile(r"iteration {1,10}(?P<step>\d{1,12})/ {0,10}(?P<total>\d{1,12})")
_MEGATRON_TIME = re.compile(
    r"elapsed time per iteration \((?P<unit>ms|s)\): {0,4}(?P<time>[\d.]{1,16})"
)
_EPOCH_ROW = re.compile(
    r"(?P<kind>Epoch|Train|Test|Val)\w{0,6}: {0,2}\[?(?P<epoch>\d{1,7})?\]?[ \t]{0,4}"
    r"\[ {0,9}(?P<step>\d{1,12})/(?P<total>\d{1,12})"
)
_ROW_TIME = re.compile(r"\b[Tt]ime:?[ \t]{1,4}(?P<time>\d{1,7}(?:\.\d{1,9})?)")
_ROW_DATA = re.compile(r"\b[Dd]ata:?[ \t]{1,4}(?P<time>\d{1,7}(?:\.\d{1,9})?)")
_COMPOSER = re.compile(r"\[batch=(?P<step>\d{1,12})/(?P<total>\d{1,12})\]")
_UPDATES = re.compile(r"num_updates['\"]?[=: ]{1,3}['\"]?(?P<step>\d{1,12})")
_UPS = re.compile(r"\bups['\"]?[=: ]{1,3}['\"]?(?P<rate>\d{1,7}(?:\.\d{1,6})?)")
_STEP_WORD = r"(?<![A-Za-z_/.-])(?:global[_ ]step|[Ss]teps?|[Ii]ter(?:ation)?)['\"]?[ =:]{1,10}\[?"
_STEP = re.compile(
    rf"{_STEP_WORD}(?P<step>\d{{1,12}})(?:\.0{{1,4}})?"
    r"(?:(?:/ {0,9}| of )(?P<total>\d{1,12}))?(?![\d.]|-\d)"
)
_WITH_FRACTION = re.compile(rf"{_STEP_WORD}\d{{1,12}}\.\d")
"""Where it takes the digits to tell: `step 12.0` is a step, `step 12.5` is none."""
_GLOBAL_STEP = re.compile(r"global[_ ]step['\"]?[ =:]{1,3}(?P<step>\d{1,12})(?!\d)")
_COMPANION = re.compile(
    r"loss|\blr\b|learning rate|grad|tok(?:en)?s?/s|tps|samples|time|\bmfu\b|tflops|ppl|s/it|skipped=|reward|score",
    re.IGNORECASE,
)
_NOT_A_STEP = re.compile(
    r"phase=|monitor: |main thread|\bcheckpoint|\bckpt\b|\bsaving\b|\bloading\b|\bresum|\bevery\b|\btotal[_ ]\w{0,9}[_ ]?"
    r"steps|max_step|\bevaluat|\beval\b|\bvalidat|\bfail|\berror|timeout|timed out|Straggler Report",
    re.IGNORECASE,
)
_TIMES = tuple(
    re.compile(pattern)
    for pattern in (
        r"timing_s/step:(?P<time>\d{1,7}(?:\.\d{1,9})?)(?P<unit>)",
        r"train_step_timing in s[=:] ?(?P<time>\d{1,7}(?:\.\d{1,9})?)(?P<unit>)",
        r"(?:step|iter|iteration|batch)[_ ]time(?:_(?P<unit_before>ms|s|sec))?['\"]?(?: \(s\))?[ =:]{1,3}(?P<time>\d{1,9}(?:\.\d{1,9})?) ?(?P<unit>ms|s)?\b",
        r"(?P<time>\d{1,7}(?:\.\d{1,9})?) ?s(?:ec)?/(?:it|iter|step|batch)\b(?P<unit>)",
        r"(?:time|sec(?:ond)?s?)[_/ ](?:per[_ ])?(?:step|iter|it|iteration)['\"]?[ =:]{1,3}"
        r"(?P<time>\d{1,9}(?:\.\d{1,9})?) ?(?P<unit>ms|s)?\b",
        r"\bseconds: (?P<time>\d{1,7}(?:\.\d{1,9})?)(?P<unit>)",
        r"\b(?:time|dt|elapsed)[ =:]{1,3}(?P<time>\d{1,9}(?:\.\d{1,9})?) ?(?P<unit>ms|s)\b",
    )
)
_DATA_TIMES = re.compile(
    r"\bdata(?:[_ ](?:load(?:er|ing)?[_ ])?time|[_ ]wait)['\"]?[ =:]{1,3}(?P<time>\d{1,9}(?:\.\d{1,9})?) ?(?P<unit>ms|s)?\b"
)
Series = Literal["train", "validation"]
_DIGITS = str.maketrans("123456789", "000000000")
_SHAPES, _LONGEST_SHAPE = 512, 2048


def recognise(line: LogLine, following: Following) -> Iterator[Fact]:
    """The progress that a line states, if it is a step line of any known form."""
    for parse in (_bar, _epoch_row, _megatron, _nemo_or_generic):
        fact = parse(line)
        if fact is not None:
            yield fact
            return


def _progress(
    line: LogLine,
    *,
    step: int,
    total: int | None = None,
    step_s: float | None = None,
    data_s: float | None = None,
    series: Series = "train",
) -> Progress:
    point = StepPoint(at_ns=line.at_ns, step=step, step_s=step_s, line=line.line, data_s=data_s)
    return Progress(
        speaker=line.speaker,
        points=(point,),
        total_steps=total,
        path=line.path,
        series=series,
    )


def _bar(line: LogLine) -> Progress | None:
    """A tqdm bar, the last one of the line; `global_step=` inside it wins over its own count."""
    if " [" not in line.text:
        return None
    bars = list(_BAR.finditer(line.text))
    total = int(bars[-1]["total"]) if bars else None
    found = bars[-1] if bars else _OPEN_BAR.search(line.text)
    if found is None:
        return None
    title = line.text[max(0, found.start() - 200) : found.start()]
    is_validation = _VALIDATION.search(title) is not None
    if not is_validation and _NO_STEPS.search(title) is not None:
        return None
    step, series = int(found["step"]), "validation" if is_validation else "train"
    epoch = _BAR_EPOCH.search(title)
    inside = _GLOBAL_STEP.search(line.text)
    if inside is not None and not is_validation:
        step, total = int(inside["step"]), None
    elif epoch is not None and total is not None and not is_validation:
        step, total = int(epoch["epoch"] or epoch["first"]) * total + step, None
    return _progress(
        line,
        step=step,
        total=total,
        step_s=_bar_seconds(found["rate"], found["unit"]),
        series="validation" if series == "validation" else "train",
    )


def _bar_seconds(rate: str, unit: str) -> float | None:
    value = _float(rate)
    if value is None or value <= 0:
        return None
    return value if unit.startswith("s/") else round(1 / value, 9)


def _epoch_row(line: LogLine) -> Progress | None:
    """`Epoch: [4]  [ 40/20000] ... time: 3.01 data: 0.01`, and timm's `Train: 0 [  50/1251 ( 4%)]`."""
    found = _EPOCH_ROW.search(line.text) if "[" in line.text else None
    if found is None:
        return None
    step, total = int(found["step"]), int(found["total"])
    is_validation = found["kind"] in ("Test", "Val")
    time, data = _ROW_TIME.search(line.text), _ROW_DATA.search(line.text)
    if found["epoch"] is not None and not is_validation:
        step, total = int(found["epoch"]) * total + step, 0
    return _progress(
        line,
        step=step,
        total=total or None,
        step_s=_float(time["time"]) if time is not None else None,
        data_s=_float(data["time"]) if data is not None else None,
        series="validation" if is_validation else "train",
    )


def _megatron(line: LogLine) -> Progress | None:
    found = _MEGATRON.search(line.text) if "|" in line.text else None
    if found is None or "global_step" in line.text:
        return None
    time = _MEGATRON_TIME.search(line.text)
    step_s = None
    if time is not None:
        value = _float(time["time"])
        step_s = value / 1000 if value is not None and time["unit"] == "ms" else value
    return _progress(line, step=int(found["step"]), total=int(found["total"]), step_s=step_s)


def _nemo_or_generic(line: LogLine) -> Progress | None:
    """Composer, fairseq, NeMo 2, and anything that says `step N` beside a loss or a time."""
    text = line.text
    for pattern, word in ((_COMPOSER, "[batch="), (_UPDATES, "num_updates")):
        found = pattern.search(text) if word in text else None
        if found is not None:
            ups = _UPS.search(text)
            rate = _float(ups["rate"]) if ups is not None else None
            return _progress(
                line,
                step=int(found["step"]),
                total=int(found["total"]) if pattern is _COMPOSER else None,
                step_s=round(1 / rate, 9) if rate else None,
            )
    places = _places(text)
    if places is None:
        return None
    step, total, step_s, data_s = _numbers(places, text)
    return _progress(line, step=step, total=total, step_s=step_s, data_s=data_s)


def form_of(line: LogLine) -> Form | None:
    """How to read a line that says `step N` beside a loss or a time; None for any other."""
    text = line.text
    if len(text) > _LONGEST_SHAPE or any(pattern.search(text) for pattern in _WITH_RULES):
        return None
    places = _places(text)
    return None if places is None else partial(_numbers, places)


_WITH_RULES = (_BAR, _OPEN_BAR, _EPOCH_ROW, _MEGATRON, _COMPOSER, _UPDATES, _WITH_FRACTION)
"""Forms that more than the places of their numbers tells apart."""

Place = tuple[int, int, str | None]
"""Where in a line a number stands, and its unit."""


class _Places(NamedTuple):
    step: slice
    total: slice | None
    step_s: Place | None
    data_s: Place | None


def _places(text: str) -> _Places | None:
    """Where a line prints its numbers, None unless it tells of a step.

    A stream prints the same line at each step but for the digits, and but for a step with a fraction
    no pattern asked here tells one digit from another: twenty searches a line become one look-up.
    """
    if len(text) > _LONGEST_SHAPE or _WITH_FRACTION.search(text) is not None:
        return _places_of.__wrapped__(text)
    return _places_of(text.translate(_DIGITS))


@lru_cache(maxsize=_SHAPES)
def _places_of(shape: str) -> _Places | None:
    found = (_GLOBAL_STEP.search(shape) if "global" in shape else None) or _STEP.search(shape)
    if found is None or _COMPANION.search(shape) is None or _NOT_A_STEP.search(shape) is not None:
        return None
    total = slice(*found.span("total")) if found.re is _STEP and found["total"] else None
    step_s: Place | None = None
    for pattern in _TIMES:
        time = pattern.search(shape)
        if time is not None:
            step_s = *time.span("time"), time["unit"] or time.groupdict().get("unit_before")
            break
    data = _DATA_TIMES.search(shape)
    data_s = None if data is None else (*data.span("time"), data["unit"])
    return _Places(slice(*found.span("step")), total, step_s, data_s)


def _numbers(places: _Places, text: str) -> Numbers:
    """The numbers of a line whose places are known."""
    step, total, step_s, data_s = places
    return (
        int(text[step]),
        None if total is None else int(text[total]),
        None if step_s is None else _seconds(text, step_s),
        None if data_s is None else _seconds(text, data_s),
    )


def _seconds(text: str, place: Place) -> float | None:
    start, end, unit = place
    value = _float(text[start:end])
    return round(value / 1000, 9) if value is not None and unit == "ms" else value


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
