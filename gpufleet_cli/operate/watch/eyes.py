"""All that is read of a job at a look: its object, a few logs, its metrics; bounded in requests and in time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from gpufleet_cli.errors import SourceError
from gpufleet_cli.live import threads
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.deadline import Deadline
from gpufleet_cli.operate.watch import habits, metric_eyes
from gpufleet_cli.operate.watch.job_eyes import JobEyes
from gpufleet_cli.operate.watch.log_eyes import LogEyes
from gpufleet_cli.operate.watch.metric_eyes import MetricEyes, Names
from gpufleet_cli.operate.watch.model import Habit, Look, Plan, Signs, Subject

LEAST_READ_S, MOST_READ_S = 8.0, 20.0
FIND_EVERY = 4
"""Series that are not there are sought at each so many looks."""


@dataclass(slots=True, kw_only=True)
class Eyes:
    """One job's eyes. `no_metrics`: why there are none to ask. `is_new`: the past of this run was not read yet."""

    api: Api
    job: JobEyes
    logs: LogEyes
    metrics: MetricEyes | None
    no_metrics: str = ""
    is_new: bool = True
    turn: int = 0
    token: str | None = None
    learnt: Habit | None = None
    notes: list[str] = field(default_factory=list)

    def look(self, plan: Plan, lookback_s: float) -> Look:
        """What can be read now. `learnt` is set where it was the first of a run."""
        unread: list[str] = []
        api = self._bounded(min(MOST_READ_S, max(LEAST_READ_S, plan.poll_s)))
        metered = threads.Beside(lambda: self._metric_signs(api, plan), deadline=api.deadline)
        subject = self._subject(api, unread)
        logged = self._log_signs(api, unread)
        told = metered.result()
        metric, why = (None, "metrics: not there in time") if told is None else told
        unread += [why] if why else []
        signs = tuple(one for one in (metric, logged) if one is not None)
        self.learnt = self._past(api, lookback_s) if self.is_new and signs else None
        return Look(
            now_s=time.monotonic(),
            at_ns=time.time_ns(),
            subject=subject,
            signs=signs,
            unread=tuple(unread),
        )

    def _bounded(self, seconds: float) -> Api:
        """The API server for so long: a look has to end in time."""
        api = Api(self.api.access, deadline=Deadline(seconds), threads=8)
        api.clock_ahead_s = self.api.clock_ahead_s
        return api

    def _lister(self, seconds: float) -> Api:
        return self._bounded(max(MOST_READ_S, seconds))

    def _subject(self, api: Api, unread: list[str]) -> Subject | None:
        followed = self.logs.tellers or self.logs.tasks[:1]
        self.job.followed = [task.pod for task in followed]
        try:
            subject = self.job.look(api, self._lister, time.monotonic())
        except SourceError as exc:
            unread.append(exc.message)
            return None
        if self.token != subject.token:
            self.token, self.is_new, self.turn = subject.token, True, 0
            self.logs = LogEyes(pods=self.job.pods, timeout_s=self.logs.timeout_s)
            if self.metrics is not None:
                self.metrics.conditions = None
        elif self.job.pods is not self.logs.pods:
            self.logs.take(self.job.pods)
        return subject

    def _log_signs(self, api: Api, unread: list[str]) -> Signs | None:
        if not self.logs.tasks:
            return None
        signs, why = self.logs.look(api, time.monotonic())
        unread += [] if why is None else [why]
        return signs

    def _metric_signs(self, api: Api, plan: Plan) -> tuple[Signs | None, str]:
        """What the metrics tell, or why they do not."""
        if self.metrics is None:
            return None, self.no_metrics
        assert self.job.job is not None
        try:
            if self.metrics.conditions is None:
                self.turn += 1
                if self.turn % FIND_EVERY != 1:
                    return None, "metrics: no series of this job's pods yet"
                pods = [pod.name for pod in self.job.pods]
                self.metrics.find(api, self.job.job.namespace, pods)
            return self.metrics.look(api, plan), ""
        except metric_eyes.NoSeries as exc:
            self.metrics.conditions = None
            return None, f"metrics: {exc.message}"
        except SourceError as exc:
            return None, f"metrics: {exc.message}{f' ({exc.hint})' if exc.hint else ''}"

    def _past(self, api: Api, lookback_s: float) -> Habit:
        """The habit that the past of this run shows."""
        self.is_new = False
        logged = self.logs.history(api)
        metered = Habit()
        if self.metrics is not None and self.metrics.conditions is not None:
            try:
                metered = self.metrics.history(api, lookback_s)
            except SourceError as exc:
                self.notes.append(f"the metrics' past: {exc.message}")
        return habits.of_both(metered, logged)


def opened(
    api: Api, job: JobEyes, names: Names, prometheus: str | None, now: Callable[[], float]
) -> Eyes:
    """Find the job and the places to look at. Errors of the finder are raised, of the metrics told."""
    subject = job.first(api, now())
    metrics, why = None, "metrics: no --prometheus is given, and none is among the Services"
    try:
        place = metric_eyes.place_of(api, prometheus)
        metrics = None if place is None else MetricEyes(place=place, names=names)
    except SourceError as exc:
        why = f"metrics: {exc.message}"
    logs = LogEyes(pods=job.pods)
    return Eyes(api=api, job=job, logs=logs, metrics=metrics, no_metrics=why, token=subject.token)
