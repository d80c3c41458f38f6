"""The job's own metrics: one question a look, whatever the number of ranks.

The server takes the newest of all ranks' series (every rank of a synchronous job makes each step) and gives back one
number each: when the last step was, when that was scraped, the last checkpoint, seconds a step. Series that differ in a
label that names a cluster are not joined: then none is used. Names and defaults are those of `gpufleet alerts`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from gpufleet_cli import settings_file
from gpufleet_cli.errors import SourceError, UsageError
from gpufleet_cli.live import known_services, metric_queries, stores
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.metric_queries import Matcher
from gpufleet_cli.live.metric_scopes import SCOPE_LABELS
from gpufleet_cli.live.metric_server import Flavour, OneSeries, Server, recognised
from gpufleet_cli.operate.watch import habits
from gpufleet_cli.operate.watch.model import Habit, Mark, Plan, Signs
from gpufleet_cli.settings_file import Access

NS = 1_000_000_000
LAST_STEP = "training_last_step_timestamp_seconds"
LAST_CHECKPOINT = "training_last_checkpoint_timestamp_seconds"
STEP_SECONDS = "training_step_seconds"
TAG = "gpufleet"
MOST_PODS = 8
"""So many pods' series are asked for, where more have one."""
FEW_NAMES = 200
MOST_POINTS = 1_800
CHANGES = 20
LEAST_FRESH_S, MOST_FRESH_S = 15.0, 120.0
MOST_S = 4_102_444_800.0  # 2100: what is beyond counts in milliseconds
_NAME = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]{0,200}", re.ASCII)
_SCOPES = ",".join(SCOPE_LABELS)


class NoSeries(SourceError):
    """The server answers, and knows no such series of this job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Which metrics, and whose: `match` chooses the series, else the job's pods do."""

    last_step: str = LAST_STEP
    last_checkpoint: str = LAST_CHECKPOINT
    step_seconds: str = STEP_SECONDS
    match: str | None = None

    def checked(self) -> Names:
        """UsageError for what is no name of a metric, or no matcher."""
        for option, name in (
            ("--last-step-metric", self.last_step),
            ("--last-checkpoint-metric", self.last_checkpoint),
            ("--step-seconds-metric", self.step_seconds),
        ):
            if _NAME.fullmatch(name) is None:
                raise UsageError(f"{option} {name!r} is no name of a metric")
        metric_queries.matchers(self.match)
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the metrics are asked, and who said so."""

    url: str
    source: str
    access: Access
    matchers: str | None


def place_of(api: Api, flag: str | None) -> Place | None:
    """Flag over environment over settings file, else the first known one among the cluster's Services."""
    file = settings_file.load()
    context = file.of(api.access.context)
    chosen = settings_file.choose("prometheus", flag=flag, file=file, context=api.access.context)
    if chosen is not None:
        url, source = chosen
    else:
        found = stores.candidates(api, (known_services.METRICS,))
        if not found:
            return None
        url, source = str(found[0].service), stores.FOUND
    return Place(url=url, source=source, access=context.access, matchers=context.matchers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One answer, on the server's clock. None: there is no such series."""

    now_s: float
    step_s: float | None = None
    scraped_s: float | None = None
    saved_s: float | None = None
    pace_s: float | None = None


@dataclass(slots=True, kw_only=True)
class MetricEyes:
    """One job's metrics. `conditions` None until its series were found."""

    place: Place
    names: Names
    flavour: Flavour | None = None
    conditions: tuple[Matcher, ...] | None = None
    lag_s: float | None = None
    """The least that a value was behind the scrape that told it: how wrong the job's clock is, at most."""
    whose: str = ""

    @contextmanager
    def _server(self, api: Api) -> Iterator[Server]:
        with stores.opened(api, self.place.url, self.place.access) as (fetch, name):
            if self.flavour is None:
                self.flavour = recognised(fetch, name).flavour
            yield Server(fetch=fetch, name=name, flavour=self.flavour)

    def find(self, api: Api, namespace: str, pods: Sequence[str]) -> None:
        """The series of these pods, by whichever label knows them. SourceError where there are none."""
        shared = metric_queries.matchers(self.place.matchers)
        if self.names.match is not None:
            self.conditions = (*metric_queries.matchers(self.names.match), *shared)
            self.whose = self.names.match
            return
        own = frozenset(pods)
        with self._server(api) as server:
            for label, space in metric_queries.POD_LABELS:
                named = (_among(label, pods), Matcher(space, "=", namespace), *shared)
                text = (
                    f"count by ({label}) ({metric_queries.selector(self.names.last_step, named)})"
                )
                there = sorted(
                    own & {one.metric.get(label, "") for one in server.query(text, None)}
                )
                if there:
                    few = [there[i * len(there) // MOST_PODS] for i in range(MOST_PODS)]
                    chosen = there if len(there) <= MOST_PODS else few
                    which = metric_queries.one_of(label, chosen)
                    self.conditions = (which, Matcher(space, "=", namespace), *shared)
                    self.whose = f"{len(chosen)} of {len(pods)} pods"
                    return
        raise NoSeries(f"no series of {self.names.last_step} is of this job's pods")

    def look(self, api: Api, plan: Plan) -> Signs:
        """What the metrics tell now. SourceError where they tell nothing that is current."""
        with self._server(api) as server:
            reading = read(server.query(self._question(), None), server.name)
        return self._signs(reading, plan)

    def _question(self) -> str:
        assert self.conditions is not None
        step, saved, pace = (
            metric_queries.selector(name, self.conditions)
            for name in (self.names.last_step, self.names.last_checkpoint, self.names.step_seconds)
        )
        return " or ".join(
            f'label_replace({text}, "{TAG}", "{tag}", "", "")'
            for tag, text in (
                ("step", f"max by ({_SCOPES}) ({step})"),
                ("scraped", f"max by ({_SCOPES}) (timestamp({step}))"),
                ("saved", f"max by ({_SCOPES}) ({saved})"),
                ("pace", f"quantile by ({_SCOPES}) (0.5, {pace})"),
            )
        )

    def _signs(self, reading: Reading, plan: Plan) -> Signs:
        if reading.step_s is None or reading.scraped_s is None:
            raise NoSeries(f"no series of {self.names.last_step} is there now ({self.whose})")
        fresh_s = max(LEAST_FRESH_S, min(MOST_FRESH_S, plan.notice_s / 4))
        late_s = reading.now_s - reading.scraped_s
        if late_s > fresh_s:
            raise SourceError(f"{self.names.last_step} was scraped {late_s:.0f} s ago last")
        lag = reading.scraped_s - reading.step_s
        self.lag_s = lag if self.lag_s is None else min(self.lag_s, lag)
        before = None if reading.saved_s is None else reading.step_s - reading.saved_s
        return Signs(
            source="metrics",
            marks={"": Mark(0, round(reading.step_s * NS))},
            age_s=max(0.0, reading.now_s - reading.step_s - self.lag_s),
            pace_s=reading.pace_s,
            saved_ns=None if reading.saved_s is None else round(reading.saved_s * NS),
            saved_before_s=before,
        )

    def history(self, api: Api, lookback_s: float) -> Habit:
        """How the job went, by what the server kept; `lag_s` is learnt from it as well."""
        with self._server(api) as server:
            end = read(server.query(self._question(), None), server.name).now_s
            every = max(1, math.ceil(lookback_s / MOST_POINTS))
            found = server.query_range(self._question(), end - lookback_s, end, every)
            kept = {one.metric.get(TAG): _samples(one) for one in one_scope(found, server.name)}
        steps = [pair for pair in kept.get("step", []) if 0 < pair[1] < MOST_S]
        saves = sorted({value for _, value in kept.get("saved", []) if 0 < value < MOST_S})
        paces = [value for _, value in kept.get("pace", []) if value > 0]
        moved = [(at, value) for (_, old), (at, value) in pairwise(steps) if value != old]
        lags = [at - value for at, value in (moved or steps)[-CHANGES:]]
        if lags:
            self.lag_s = min(lags)
        thin = paces[:: max(1, len(paces) // habits.MOST_PACES)]
        return habits.of_samples(steps, saves, paces=thin)[1]


def _among(label: str, pods: Sequence[str]) -> Matcher:
    """These pods; of very many the beginning that they share, and the answer is compared with their names."""
    if len(pods) <= FEW_NAMES:
        return metric_queries.one_of(label, pods)
    first, last = min(pods), max(pods)
    shared = next(
        (n for n, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]),
        min(len(first), len(last)),
    )
    stem = metric_queries.literal(first[:shared])
    return Matcher(label, "=~", f"{stem}.*" if stem else ".+")


# --- Answers --------------------------------------------------------------------------------------


def one_scope(found: Sequence[OneSeries], name: str) -> list[OneSeries]:
    """The series, where all are of one cluster. SourceError that says what would choose, where they are not."""
    scopes = {
        tuple(sorted((key, value) for key, value in one.metric.items() if key != TAG))
        for one in found
    }
    if len(scopes) > 1:
        label = next(key for scope in sorted(scopes, reverse=True) for key, _ in scope)
        raise SourceError(
            f"{name}: series of {len(scopes)} places fit, so none is used",
            hint=f"""--match '{label}="..."', or matchers in the settings file""",
        )
    return list(found)


def read(found: Sequence[OneSeries], name: str) -> Reading:
    """One number each; what is no number, or no time of our days, is not there."""
    now_s, values = 0.0, {}
    for one in one_scope(found, name):
        try:
            at, text = msgspec.json.decode(one.value, type=tuple[float, str])
            value = float(text)
        except (msgspec.DecodeError, ValueError):
            continue
        now_s = max(now_s, at)
        if math.isfinite(value) and 0 < value < MOST_S:
            values[one.metric.get(TAG, "")] = value
    return Reading(
        now_s=now_s,
        step_s=values.get("step"),
        scraped_s=values.get("scraped"),
        saved_s=values.get("saved"),
        pace_s=values.get("pace"),
    )


def _samples(one: OneSeries) -> list[tuple[float, float]]:
    try:
        raw = msgspec.json.decode(one.values, type=list[tuple[float, str]])
        pairs = [(at, float(text)) for at, text in raw]
    except (msgspec.DecodeError, ValueError):
        return []
    return [(at, value) for at, value in pairs if math.isfinite(at) and math.isfinite(value)]
