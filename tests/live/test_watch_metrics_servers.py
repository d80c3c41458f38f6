"""The watch's questions, asked of real servers: they take them, and answer what was put in."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from servers.metrics import Series

from gpufleet_cli.errors import SourceError
from gpufleet_cli.live.access import Access as ClusterAccess
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.deadline import Deadline
from gpufleet_cli.operate.watch.metric_eyes import (
    LAST_CHECKPOINT,
    LAST_STEP,
    STEP_SECONDS,
    MetricEyes,
    Names,
    NoSeries,
    Place,
)
from gpufleet_cli.operate.watch.model import Plan
from gpufleet_cli.settings_file import Access

PLAN = Plan(timeout_s=600.0)
PODS = [f"run-{n}" for n in range(300)]
Start = Callable[[list[Series]], str]


@pytest.fixture(params=["prometheus", "victoria_metrics"])
def start(request: pytest.FixtureRequest) -> Start:
    found: Start = request.getfixturevalue(request.param)
    return found


def gauges(**more: str) -> Iterator[Series]:
    """Half an hour of a job that steps each second and saved ten minutes ago for a minute, as two of its pods export it."""
    now = int(time.time())
    for pod in ("run-0", "run-299"):
        labels = {
            "exported_pod": pod,
            "exported_namespace": "ml",
            "pod": "exporter",
            "namespace": "mon",
            **more,
        }
        steps, saves, paces = [], [], []
        for at in range(now - 1800, now, 15):
            when = datetime.fromtimestamp(at, UTC)
            pause = now - 660 < at < now - 600
            steps.append((when, float(now - 660 if pause else at)))
            saves.append((when, float(now - 1500 if at < now - 600 else now - 601)))
            paces.append((when, 0.42))
        for name, samples in ((LAST_STEP, steps), (LAST_CHECKPOINT, saves), (STEP_SECONDS, paces)):
            yield Series(name=name, labels=labels, samples=samples)


def eyes(url: str, **names: Any) -> MetricEyes:
    place = Place(url=url, source="--prometheus", access=Access(), matchers=None)
    return MetricEyes(place=place, names=Names(**names))


def api() -> Api:
    """Of no cluster: a store by its URL is asked past it."""
    way: Any = None
    access: ClusterAccess = way
    return Api(access, deadline=Deadline(60))


def test_the_series_of_the_jobs_pods_are_found_and_read(start: Start) -> None:
    """By the label under which they are known; one question has all four numbers, and the past its pauses."""
    own = eyes(start(list(gauges())))
    own.find(api(), "ml", PODS)
    assert "2 of 300 pods" == own.whose
    signs = own.look(api(), PLAN)
    assert 0.42 == signs.pace_s
    assert signs.saved_before_s is not None and 500 < signs.saved_before_s < 620
    assert signs.age_s is not None and signs.age_s < 60
    habit = own.history(api(), 3600.0)
    assert ["save"] == [past.kind for past in habit.pauses]
    assert 45 <= habit.pauses[0].seconds <= 90
    assert habit.interval_s is not None and 10 <= habit.interval_s <= 20
    assert {0.42} == set(habit.paces)


def test_other_peoples_series_are_not_this_jobs(start: Start) -> None:
    """Another namespace, another job whose name begins alike."""
    own = eyes(start(list(gauges())))
    for namespace, pods in (
        ("dev", PODS),
        ("ml", ["run-"]),
        ("ml", [f"run-{n}-x" for n in range(300)]),
    ):
        with pytest.raises(NoSeries):
            own.find(api(), namespace, pods)


def test_two_clusters_in_one_store_need_a_matcher(start: Start) -> None:
    """None is used without one; with it the job's own."""
    url = start([*gauges(cluster="a"), *gauges(cluster="b")])
    own = eyes(url)
    own.find(api(), "ml", PODS)
    with pytest.raises(SourceError, match="2 places"):
        own.look(api(), PLAN)
    chosen = eyes(url, match='exported_namespace="ml",cluster="a"')
    chosen.find(api(), "ml", PODS)
    assert 0.42 == chosen.look(api(), PLAN).pace_s


def test_a_metric_of_another_name_is_asked_for(start: Start) -> None:
    """Names of the command line; what is not there is said."""
    url = start(
        [
            Series(name="my_step", labels=one.labels, samples=one.samples)
            for one in gauges()
            if one.name == LAST_STEP
        ]
    )
    own = eyes(url, last_step="my_step")
    own.find(api(), "ml", PODS)
    signs = own.look(api(), PLAN)
    assert signs.pace_s is None and signs.saved_ns is None
    with pytest.raises(NoSeries, match=LAST_STEP):
        eyes(url).find(api(), "ml", PODS)
