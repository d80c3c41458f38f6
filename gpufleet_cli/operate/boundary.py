"""Waiting for the next durable checkpoint: by the job's logs, a metric, or a file that it touches.

Only what is new since the wait began counts, told by the same clock that told the old ones: a node's clock may be
hours off, so a log is read on from its own newest line, and its saves are compared with its earlier saves. What was
out of sight for a while (a kubelet, a metric that was not scraped) is over when it is seen. A staged or scheduled save
never counts.
The wait ends without a boundary where the job dies, changes, or stops stepping: then nothing is touched.
"""

from __future__ import annotations

import stat
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from gpufleet_cli.errors import SourceError, UsageError
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.deadline import Deadline
from gpufleet_cli.live.pods import Pod
from gpufleet_cli.operate import progress_look
from gpufleet_cli.operate.progress_look import Heard, Save

NS = 1_000_000_000
POLL_S = 2.0
METRIC_FRESH_S = 120.0
"""So old may a time in the metrics be when it is first seen there: it is scraped now and then."""
FRESH_S = 60.0
"""A boundary that a slow round may have missed by more is over: the next one is waited for."""
LEAST_STALL_S = 60.0
STALL_STEPS = 10.0
MARKER_BYTES = 4096
How = Literal["boundary", "late", "died", "changed", "stalled"]

MetricTime = Callable[[], float | None]
"""The newest time of a checkpoint that the metrics know, in Unix seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a wait ended, and the line that a person reads."""

    how: How
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rhythm:
    """What is known of the job's pace: seconds a step, and the watchdog's patience."""

    step_s: float | None = None
    watchdog_s: float | None = None


@dataclass(slots=True)
class Saves:
    """The newest durable save of each log that was read, 0 where it told of none, and when it was last read."""

    known: dict[str, int] = field(default_factory=dict)
    read_s: dict[str, float] = field(default_factory=dict)

    def new(self, heard: Heard, now_s: float = 0.0) -> list[Save]:
        """Those that are later than what their log said before; the first that is read of a log is the past, and so is
        what a log says that could not be read for a while."""
        fresh = [
            one
            for one in heard.saves
            if one.pod in self.known
            and one.at_ns > self.known[one.pod]
            and now_s - self.read_s[one.pod] < FRESH_S
        ]
        for pod in heard.answered:
            self.known.setdefault(pod, 0)
            self.read_s[pod] = now_s
        for one in heard.saves:
            self.known[one.pod] = max(one.at_ns, self.known[one.pod])
        return fresh


def wait(
    api: Api,
    first: Sequence[Pod],
    pods: Callable[[], Sequence[Pod]],
    *,
    rhythm: Rhythm,
    deadline: Deadline,
    marker: Path | None = None,
    metric: MetricTime | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Ended:
    """Until a boundary, the end of the deadline, or of the job. `first` are the gang's pods as they were
    looked at, `pods` reads them anew."""
    uids = {pod.state.uid for pod in first}
    began = {pod.name: _life(pod) for pod in first}
    tasks = progress_look.logs_of(first)
    saves = Saves()
    file, told = read_marker(marker), _metric(metric, say)
    newest_ns: dict[str, int] = {}
    watch = Watch(rhythm=rhythm)
    last_round: float | None = None
    while True:
        now = pods()
        gone = _another(now, uids, began)
        if gone is not None:
            return gone
        heard = progress_look.listen(api, tasks, newest_ns)
        newest_ns |= heard.newest_ns
        is_fresh = last_round is None or time.monotonic() - last_round < FRESH_S
        last_round = time.monotonic()
        reached = _by_log(saves.new(heard, last_round))
        file, by_file = _by_file(marker, file)
        told, by_metric = _by_metric(metric, told, api.now_ns() / NS, say)
        reached = reached or by_file or by_metric
        if reached is not None and is_fresh:
            return Ended(how="boundary", why=reached)
        stalled = watch.stalled(heard, time.monotonic())
        if stalled is not None:
            return Ended(how="stalled", why=stalled)
        if deadline.is_over():
            return Ended(how="late", why=f"no checkpoint within {deadline.seconds:g} s")
        deadline.pause(POLL_S + len(first) / 200)  # a thousand pods are a list of six megabytes


# --- The job as it was ----------------------------------------------------------------------------


def _life(pod: Pod) -> tuple[int, str]:
    """Restarts and state of the rank's container."""
    own = next((c for c in pod.state.containers if c.name == pod.state.rank_container), None)
    return (0, "unknown") if own is None else (own.restarts, own.state)


def _another(
    now: Sequence[Pod], uids: set[str | None], began: dict[str, tuple[int, str]]
) -> Ended | None:
    """Whether the gang is no longer the one that is waited for."""
    strangers = [pod.name for pod in now if pod.state.uid not in uids]
    if strangers:
        return Ended(how="changed", why=f"new pods came: {', '.join(strangers[:4])}")
    gone = sorted(set(began) - {pod.name for pod in now})
    if gone:
        return Ended(how="died", why=f"pods are gone: {', '.join(gone[:4])}")
    for pod in now:
        restarts, state = _life(pod)
        before, was = began[pod.name]
        if restarts > before:
            return Ended(how="changed", why=f"{pod.name} was restarted in place")
        if state == "terminated" and was != "terminated":
            return Ended(how="died", why=f"the container of {pod.name} ended")
        if pod.state.terminating or pod.state.disruption is not None:
            return Ended(how="died", why=f"{pod.name} was told to go")
    return None


@dataclass(slots=True)
class Watch:
    """When the newest step was first seen, by our own clock: no node's clock has a part in it."""

    rhythm: Rhythm
    last_step: int | None = None
    last_step_ns: int | None = None
    seen_s: float | None = None
    opened_ns: int | None = None

    def stalled(self, heard: Heard, now_s: float) -> str | None:
        """Why it is taken for stalled, None while it steps, or nothing tells its pace."""
        is_new = heard.last_step is not None and heard.last_step != self.last_step
        opens = heard.opened_ns is not None and heard.opened_ns != self.opened_ns
        self.last_step_ns = heard.last_step_ns or self.last_step_ns
        if is_new or opens or self.seen_s is None:
            self.last_step = heard.last_step if heard.last_step is not None else self.last_step
            self.opened_ns = heard.opened_ns or self.opened_ns
            self.seen_s = now_s
            return None
        if self.last_step is None or self.rhythm.step_s is None:
            return None
        still = now_s - self.seen_s
        if still <= self._patience_s():
            return None
        return f"no step after {self.last_step} for {still:.0f} s"

    def _patience_s(self) -> float:
        """Ten steps, a minute at least; while a save, an evaluation or a compilation is open, a watchdog's."""
        assert self.rhythm.step_s is not None
        steps = max(LEAST_STALL_S, STALL_STEPS * self.rhythm.step_s)
        is_open = self.opened_ns is not None and self.opened_ns > (self.last_step_ns or 0)
        return max(steps, self.rhythm.watchdog_s or 600.0) if is_open else steps


# --- The three who tell ---------------------------------------------------------------------------


def _by_log(fresh: Sequence[Save]) -> str | None:
    if not fresh:
        return None
    last = max(fresh, key=lambda one: one.at_ns)
    step = "" if last.step is None else f" of step {last.step}"
    return f"{last.pod} logged a durable checkpoint{step}"


def read_marker(marker: Path | None) -> tuple[int, bytes] | None:
    """When the marker was written and what it says; of a link to a folder, which one it names now."""
    if marker is None:
        return None
    try:
        state = marker.stat()
        if stat.S_ISDIR(state.st_mode):
            return _folder(marker)
        with marker.open("rb") as opened:
            return state.st_mtime_ns, opened.read(MARKER_BYTES)
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise SourceError(f"{marker} cannot be read: {(exc.strerror or '').lower()}") from exc


def _folder(marker: Path) -> tuple[int, bytes]:
    """A folder changes when a save begins in it: only the link that is moved on once a save is whole tells of one."""
    if not marker.is_symlink():
        raise UsageError(
            f"--checkpoint-marker {marker} is a folder, which changes while a save has only begun",
            hint="name a file, or a link, that the job writes when the save is whole",
        )
    return 0, str(marker.resolve()).encode()


def _by_file(
    marker: Path | None, before: tuple[int, bytes] | None
) -> tuple[tuple[int, bytes] | None, str | None]:
    now = read_marker(marker)
    if now is None or now == before:
        return now if now is not None else before, None
    return now, f"{marker} was written"


def _metric(metric: MetricTime | None, say: Callable[[str], None]) -> float | None:
    try:
        return None if metric is None else metric()
    except SourceError as exc:
        say(f"no checkpoint time from the metrics: {exc.message}")
        return None


def _by_metric(
    metric: MetricTime | None, before: float | None, now_s: float, say: Callable[[str], None]
) -> tuple[float | None, str | None]:
    """A later time than was known, and of just now: a metric that was not scraped for a while brings the past."""
    told = _metric(metric, say)
    if told is None or (before is not None and told <= before):
        return before, None
    if before is None:
        return told, None
    age = now_s - told
    if age > METRIC_FRESH_S:
        say(f"the metrics tell of a checkpoint {age:,.0f} s ago: too long for a boundary")
        return told, None
    return told, f"the metrics tell of a checkpoint {max(0.0, age):,.0f} s ago"
