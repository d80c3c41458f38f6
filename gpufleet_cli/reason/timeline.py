"""Progress and checkpoints: last step, pace and its changes, last durable checkpoint.

A checkpoint counts when it is durable (a finished or finalised line); staged or scheduled never does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median

from gpufleet_cli.facts import JobNumbers, LogSign, Origin, Progress, Sign, StepPoint
from gpufleet_cli.reason.placed import NS, Checkpoints, Placed, Save, Steps

CHANGE_OF_PACE = 1.3
FEW_POINTS, SAME_STEPS = 32, 64
CLEAR_CHANGE, CLEAR_STEPS = 1.12, 5
EITHER = "staged, or finished"
NOT_A_SAVE_S = 24 * 3600.0
SAME_SAVE_S = 10.0


def steps(
    progress: Sequence[Placed[Progress]],
    earlier: Iterable[Progress],
    given: Sequence[JobNumbers],
) -> Steps:
    """Pace of the job from its main series: the one with most points."""
    main = _main(progress)
    by_rank: dict[int, int] = {}
    for series in progress:
        if series.rank is not None and series.fact.points:
            last = series.fact.points[-1].step
            by_rank[series.rank] = max(by_rank.get(series.rank, last), last)
    points: Sequence[StepPoint] = () if main is None else main.fact.points
    shift = 0 if main is None else _shift(main)
    path = "" if main is None else main.fact.path
    if main is not None and len(points) < FEW_POINTS:
        told = _of_all(progress, main)
        if len(told) > len(points):
            points, shift = told, 0
    paces = _paces(points)
    before, after, changed = _change(paces)
    if after is None and paces:
        older = [pace for series in earlier for _p, pace in _paces(series.points)]
        recent = median(pace for _p, pace in paces[-50:])
        if len(older) >= 5 and recent > CHANGE_OF_PACE * median(older):
            before, after, changed = median(older), recent, paces[0][0]
    pace = after if after is not None else (median(p for _, p in paces[-50:]) if paces else None)
    source = "evidence" if pace is not None else "unknown"
    for numbers in given:
        if numbers.step_s is not None:
            pace, source = numbers.step_s, numbers.source
            break
    newest = _newest(progress, main)
    longest = _longest(points)
    return Steps(
        last_step=None if newest is None else newest[1].step,
        last_step_ns=None if newest is None else newest[0],
        last_origin=None if newest is None else Origin(path=newest[2], line=newest[1].line),
        step_s=pace,
        step_source=source,  # type: ignore[arg-type]
        interval_s=_interval(points),
        before_s=before,
        after_s=after,
        changed_ns=None if changed is None or changed.at_ns is None else changed.at_ns + shift,
        change_origin=None
        if changed is None or main is None
        else Origin(path=path, line=changed.line),
        by_rank=dict(sorted(by_rank.items())),
        count=len(points),
        data_by_rank=_data_waits(progress),
        longest_s=None if longest is None else longest[0],
        longest_origin=None
        if longest is None or main is None
        else Origin(path=path, line=longest[1].line),
    )


def _shift(series: Placed[Progress]) -> int:
    """What puts the times of a series on the common clock."""
    points = series.fact.points
    if not points or points[-1].at_ns is None or series.at_ns is None:
        return 0
    return series.at_ns - points[-1].at_ns


def _of_all(progress: Sequence[Placed[Progress]], main: Placed[Progress]) -> list[StepPoint]:
    """The steps that any rank's lines of the main file tell of: of a big file, some lines of each
    rank are read, and all ranks of a job make the same steps."""
    first, last = main.fact.points[0].step, main.fact.points[-1].step
    found: dict[int, StepPoint] = {}
    for series in progress:
        fact = series.fact
        if fact.path != main.fact.path or fact.total_steps != main.fact.total_steps:
            continue
        if fact.series != main.fact.series or not fact.points:
            continue
        if fact.points[-1].step > last or fact.points[-1].step < first - SAME_STEPS:
            continue
        shift = _shift(series)
        for point in fact.points:
            if point.at_ns is None:
                continue
            known = found.get(point.step)
            if known is None or point.at_ns + shift < (known.at_ns or 0):
                found[point.step] = replace(point, at_ns=point.at_ns + shift)
    return [found[step] for step in sorted(found)]


def _data_waits(progress: Sequence[Placed[Progress]]) -> dict[int, tuple[float, Origin]]:
    """Median of each rank's last ten waits for data."""
    found: dict[int, tuple[float, Origin]] = {}
    for series in progress:
        waits = [p for p in series.fact.points[-10:] if p.data_s is not None]
        if series.rank is not None and waits:
            usual = median(p.data_s for p in waits if p.data_s is not None)
            found[series.rank] = (usual, Origin(path=series.fact.path, line=waits[-1].line))
    return dict(sorted(found.items()))


def _main(progress: Sequence[Placed[Progress]]) -> Placed[Progress] | None:
    return max(
        progress,
        key=lambda series: (
            len(series.fact.points) > 2,
            series.fact.points[-1].step if series.fact.points else -1,
            len(series.fact.points),
            series.fact.path,
            repr(series.fact.speaker),
        ),
        default=None,
    )


def _newest(
    progress: Sequence[Placed[Progress]], main: Placed[Progress] | None
) -> tuple[int | None, StepPoint, str] | None:
    """The newest step of any rank, on the corrected clock of its node."""
    best: tuple[int | None, StepPoint, str] | None = None
    for series in progress:
        if not series.fact.points:
            continue
        if main is not None and series.fact.total_steps != main.fact.total_steps:
            continue
        found = (series.at_ns, series.fact.points[-1], series.fact.path)
        if best is None or (found[1].step, found[0] or 0, found[2]) > (
            best[1].step,
            best[0] or 0,
            best[2],
        ):
            best = found
    return best


def _paces(points: Sequence[StepPoint]) -> list[tuple[StepPoint, float]]:
    """Seconds per step at every point: as printed, else from the times between two points."""
    printed = [(point, point.step_s) for point in points if point.step_s is not None]
    if len(printed) > len(points) // 2 and printed:
        return [(point, pace) for point, pace in printed if pace > 0]
    found = []
    for last, point in pairwise(points):
        if last.at_ns is None or point.at_ns is None or point.step <= last.step:
            continue
        pace = (point.at_ns - last.at_ns) / NS / (point.step - last.step)
        if pace > 0:
            found.append((point, pace))
    return found


def _change(
    paces: list[tuple[StepPoint, float]],
) -> tuple[float | None, float | None, StepPoint | None]:
    """The last lasting change to a slower pace: both medians and the first slow point.

    The slow stretch is the longest tail above the geometric middle of the two paces; it must hold
    at least three points, so that one long step (a save, an evaluation) is no change of pace.
    """
    values = [pace for _point, pace in paces]
    if len(values) < 6:
        return None, None, None
    after = median(values[-3:])
    start = len(values)
    best: tuple[float, float, int] | None = None
    head = median(values[: max(3, len(values) // 4)])
    limit = (head * after) ** 0.5
    while start > 0 and values[start - 1] > limit:
        start -= 1
    if 3 <= start <= len(values) - 3:
        best = (median(values[:start]), median(values[start:]), start)
    if best is None or not _is_slower(values[: best[2]], values[best[2] :]):
        return None, None, None
    return best[0], best[1], paces[best[2]][0]


def _is_slower(before: Sequence[float], after: Sequence[float]) -> bool:
    """By much; or by less, where enough steps are all slower than every one before them."""
    factor = median(after) / median(before)
    if factor >= CHANGE_OF_PACE:
        return True
    enough = min(len(before), len(after)) >= CLEAR_STEPS
    return enough and factor >= CLEAR_CHANGE and min(after) > max(before)


def _interval(points: Sequence[StepPoint]) -> float | None:
    gaps = [
        (point.at_ns - last.at_ns) / NS
        for last, point in pairwise(points)
        if last.at_ns is not None and point.at_ns is not None and point.step != last.step
    ]
    return median(gaps) if gaps else None


def _longest(points: Sequence[StepPoint]) -> tuple[float, StepPoint] | None:
    """The longest time from one step to the next, and the printed step that ended it. Where steps
    between them were not printed, they took what steps usually take."""
    gaps = [
        ((point.at_ns - last.at_ns) / NS, point.step - last.step, point)
        for last, point in pairwise(points)
        if last.at_ns is not None and point.at_ns is not None and point.step > last.step
    ]
    if not gaps:
        return None
    usual = median(gap_s / count for gap_s, count, _point in gaps)
    often = median(count for _gap_s, count, _point in gaps)
    return max(
        ((gap_s - max(0.0, count - often) * usual, point) for gap_s, count, point in gaps),
        key=lambda gap: (gap[0], gap[1].step),
    )


def checkpoints(
    signs: Sequence[Placed[LogSign]],
    earlier: Sequence[Placed[LogSign]],
    given: Sequence[JobNumbers],
    onset_ns: int | None,
) -> Checkpoints:
    """The last durable checkpoint before the onset, and how often one is made."""
    saves = _saves([*earlier, *signs])
    done = sorted(
        (save for save in saves if save.done_ns is not None),
        key=lambda save: (save.done_ns or 0, str(save.origin)),
    )
    usable = [s for s in done if onset_ns is None or (s.done_ns or 0) <= onset_ns + 60 * NS]
    undated = [save for save in saves if save.done_ns is None and save.started_ns is None]
    last = usable[-1] if usable else None
    lengths = [
        (save.done_ns - save.started_ns) / NS
        for save in done
        if save.done_ns is not None and save.started_ns is not None
    ]
    last_ns = None if last is None else last.done_ns
    last_step = None if last is None else last.step
    source = "unknown" if last is None else "evidence"
    interval = _between_saves(done)
    interval_source = "unknown" if interval is None else "evidence"
    for numbers in reversed(given):
        if numbers.last_checkpoint_ns is not None:
            last_ns, source = numbers.last_checkpoint_ns, numbers.source
            last_step = None
        if numbers.last_checkpoint_step is not None:
            last_step = numbers.last_checkpoint_step
            if numbers.last_checkpoint_ns is None and last is not None:
                last_ns = _time_of_step(saves, last_step, last)
        if numbers.checkpoint_interval_s is not None:
            interval, interval_source = numbers.checkpoint_interval_s, numbers.source
    unfinished = [save for save in saves if save.done_ns is None and save.started_ns is not None]
    open_save = max(
        (s for s in unfinished if last_ns is None or (s.started_ns or 0) > last_ns),
        key=lambda save: (save.started_ns or 0, str(save.origin)),
        default=undated[-1] if undated and last_ns is None else None,
    )
    return Checkpoints(
        last_ns=last_ns,
        last_step=last_step,
        source=source,  # type: ignore[arg-type]
        interval_s=interval,
        interval_source=interval_source,  # type: ignore[arg-type]
        save_s=median(lengths) if lengths else None,
        open_save=open_save,
        origin=None if last is None else last.origin,
    )


def _time_of_step(saves: Sequence[Save], step: int, last: Save) -> int | None:
    """When the checkpoint of a stated step was made, at the latest known time that cannot be too late."""
    if last.step in (None, step):
        return last.done_ns
    named = next((save for save in reversed(saves) if save.step == step), None)
    return None if named is None else named.done_ns or named.started_ns


def _between_saves(done: Sequence[Save]) -> float | None:
    """Seconds from one checkpoint to the next. Every rank may tell of the same one, seconds apart."""
    gaps = [
        gap_s
        for a, b in pairwise(done)
        if (gap_s := ((b.done_ns or 0) - (a.done_ns or 0)) / NS) > SAME_SAVE_S
        and (a.step is None or a.step != b.step)
    ]
    return median(gaps) if gaps else None


def _saves(signs: Sequence[Placed[LogSign]]) -> list[Save]:
    """Pair the start of each save with its durable end, by step where both name one."""
    ordered = sorted(
        (
            s
            for s in signs
            if s.fact.sign in (Sign.SAVE_STARTED, Sign.SAVE_DURABLE, Sign.SAVE_STAGED)
        ),
        key=lambda s: (s.at_ns or 0, s.fact.origin.path, s.fact.origin.line or 0),
    )
    staging = any(
        s.fact.sign is Sign.SAVE_STAGED and not (s.fact.detail or "").startswith((EITHER, "part"))
        for s in ordered
    )
    started: dict[int | None, Placed[LogSign]] = {}
    found: list[Save] = []
    for sign in ordered:
        step = sign.fact.step
        if sign.fact.sign is Sign.SAVE_STARTED:
            started.setdefault(step, sign)
        elif sign.fact.sign is Sign.SAVE_STAGED and not _is_durable(sign.fact, staging):
            if not (sign.fact.detail or "").startswith("part"):
                started.pop(step, None)
        else:
            begun = started.pop(step, None)
            if begun is None and step is None and started:
                begun = started.pop(next(reversed(started)))
            found.append(
                Save(
                    step=step if step is not None or begun is None else begun.fact.step,
                    started_ns=_plausible_start(begun, sign),
                    done_ns=sign.at_ns,
                    origin=sign.fact.origin,
                )
            )
    found.extend(
        Save(step=sign.fact.step, started_ns=sign.at_ns, done_ns=None, origin=sign.fact.origin)
        for _step, sign in sorted(
            started.items(), key=lambda item: (item[1].at_ns or 0, str(item[1].fact.origin))
        )
    )
    return found


def _is_durable(sign: LogSign, staging: bool) -> bool:
    """torchtitan prints one line for a finished save and for a staged one: it counts as finished
    where nothing in the log speaks of asynchronous saving."""
    return (sign.detail or "").startswith(EITHER) and not staging


def _plausible_start(begun: Placed[LogSign] | None, done: Placed[LogSign]) -> int | None:
    if begun is None or begun.at_ns is None or done.at_ns is None:
        return None
    return begun.at_ns if 0 <= (done.at_ns - begun.at_ns) / NS < NOT_A_SAVE_S else None
