"""What is made of answers of a metrics server and of the lines of logs; which pods are read."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from gpufleet_cli.errors import SourceError, UsageError
from gpufleet_cli.live.log_tasks import LogTask
from gpufleet_cli.live.metric_server import OneSeries
from gpufleet_cli.live.pods import pods_of
from gpufleet_cli.operate import progress_look
from gpufleet_cli.operate.watch import metric_eyes, numbers
from gpufleet_cli.operate.watch.log_eyes import ASKED, LogEyes, Voice
from gpufleet_cli.operate.watch.metric_eyes import MetricEyes, Names, NoSeries, Place
from gpufleet_cli.operate.watch.model import Plan
from gpufleet_cli.settings_file import Access, ContextSettings

NOW = 1_790_000_000.0
PLAN = Plan(timeout_s=600.0)


def series(tag: str, value: str, **labels: str) -> OneSeries:
    raw = json.dumps([NOW, value]).encode()
    return OneSeries(metric={"gpufleet": tag, **labels}, value=msgspec.Raw(raw))


def answer(step: float = NOW - 5, scraped: float = NOW - 3, **more: str) -> list[OneSeries]:
    found = [series("step", str(step)), series("scraped", str(scraped))]
    return found + [series(tag, value) for tag, value in more.items()]


def eyes() -> MetricEyes:
    place = Place(url="http://p", source="--prometheus", access=Access(), matchers=None)
    return MetricEyes(place=place, names=Names())


def test_one_answer_has_a_number_each() -> None:
    found = metric_eyes.read(answer(saved=str(NOW - 700), pace="0.42"), "p")
    assert (NOW, NOW - 5, NOW - 700, 0.42) == (
        found.now_s,
        found.step_s,
        found.saved_s,
        found.pace_s,
    )


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-5", "0", "1790000000000", "no"])
def test_what_is_no_time_of_our_days_is_not_there(value: str) -> None:
    """Not a number, endless, before 1970, in milliseconds."""
    found = metric_eyes.read([series("step", value), series("scraped", str(NOW))], "p")
    assert found.step_s is None
    with pytest.raises(NoSeries):
        eyes()._signs(found, PLAN)


def test_series_of_two_clusters_are_never_joined() -> None:
    """Which setting would choose is said."""
    two = [series("step", str(NOW), cluster=name) for name in ("a", "b")]
    with pytest.raises(SourceError, match="2 places") as told:
        metric_eyes.read(two, "p")
    assert "cluster" in (told.value.hint or "")


def test_a_gauge_that_is_scraped_no_more_tells_nothing() -> None:
    """The exporter is gone: that is no silence of the job."""
    with pytest.raises(SourceError, match="scraped"):
        eyes()._signs(metric_eyes.read(answer(scraped=NOW - 200), "p"), PLAN)


@pytest.mark.parametrize("wrong_s", [-900.0, 0.0, 900.0])
def test_the_age_of_a_step_does_not_go_by_the_jobs_clock(wrong_s: float) -> None:
    """The least lag that was ever seen between a value and its scrape is what the clock is wrong by."""
    own = eyes()
    first = own._signs(metric_eyes.read(answer(step=NOW - 3 + wrong_s), "p"), PLAN)
    later = own._signs(metric_eyes.read(answer(step=NOW - 60 + wrong_s), "p"), PLAN)
    assert 3.0 == pytest.approx(first.age_s)
    assert 60.0 == pytest.approx(later.age_s)


def test_names_and_matchers_are_checked_before_anybody_is_asked() -> None:
    assert Names() == Names().checked()
    for names in (Names(last_step="a b"), Names(step_seconds="{}"), Names(match="job_id=7")):
        with pytest.raises(UsageError):
            names.checked()


# --- Logs -----------------------------------------------------------------------------------------


def lines(*texts: str, at: int = 0) -> bytes:
    return "".join(
        f"2026-03-11T03:{(at + n) // 60:02}:{(at + n) % 60:02}.5Z {text}\n"
        for n, text in enumerate(texts)
    ).encode()


def heard(voice: Voice, body: bytes, now_s: float = 0.0) -> Voice:
    voice.add(progress_look.heard_in("p-0", body), body, now_s)
    return voice


def test_what_a_log_opens_is_open_until_it_is_done() -> None:
    voice = heard(
        Voice(), lines("[rank0]: step 7 loss 2.3", "saving checkpoint at iteration       7 to /c")
    )
    assert "save" == voice.opens
    heard(voice, lines("  successfully saved checkpoint from iteration       7 to /c", at=30))
    assert voice.opens is None
    assert 7 == voice.step


def test_the_pace_goes_by_the_logs_own_stamps() -> None:
    voice = Voice()
    for look in range(4):
        heard(voice, lines(f"[rank0]: step {10 * look} loss 2.3", at=30 * look), now_s=15.0 * look)
    assert 3.0 == pytest.approx(voice.pace_s)


def pod(name: str, gpus: int = 8, args: tuple[str, ...] = ()) -> dict[str, Any]:
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    container = {"name": "trainer", "args": list(args), "resources": {"limits": limits}}
    state = {"name": "trainer", "state": {"running": {"startedAt": "2026-03-11T03:00:00Z"}}}
    return {
        "metadata": {"name": name, "namespace": "ml", "uid": name},
        "spec": {"nodeName": f"node-{name}", "containers": [container]},
        "status": {"phase": "Running", "containerStatuses": [{**state, "restartCount": 0}]},
    }


def names(tasks: list[LogTask]) -> list[str]:
    return [one.pod for one in tasks]


def test_few_logs_of_a_large_gang_are_read() -> None:
    """The first, the last, and others in turn, until somebody tells steps; then he alone, whatever the size."""
    found = LogEyes(pods=tuple(pods_of([pod(f"w-{n}") for n in range(1_000)])))
    first, second = found._wanted(), found._wanted()
    assert ASKED == len(first) == len(second)
    assert {"w-0", "w-999"} <= set(names(first)) & set(names(second))
    assert len({*names(first), *names(second)}) > ASKED
    heard(found.voices.setdefault("w-999", Voice()), lines("[rank7999]: step 7 loss 2.3"))
    assert ["w-999"] == names(found._wanted())


def test_a_launcher_without_gpus_is_asked_first() -> None:
    made = [pod(f"w-{n}") for n in range(20)] + [pod("launcher", gpus=0)]
    assert "launcher" in names(LogEyes(pods=tuple(pods_of(made)))._wanted())


def test_a_quiet_log_is_read_by_its_last_lines() -> None:
    """By its stamps it would be silent for ever where its node's clock was set back."""
    found = LogEyes(pods=tuple(pods_of([pod("w-0")])))
    (task,) = found._wanted()
    assert "tailLines" in found._params(task, 0.0)
    heard(found.voices.setdefault("w-0", Voice()), lines("[rank0]: step 7 loss 2.3"), now_s=10.0)
    assert "sinceTime" in found._params(task, 20.0)
    assert "tailLines" in found._params(task, 60.0)


# --- Numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flag", "file", "args", "logged", "told"),
    [
        (90.0, 60.0, ("--distributed-timeout-minutes 30",), 5.0, (90.0, "--watchdog-timeout")),
        (None, 60.0, ("--distributed-timeout-minutes 30",), 5.0, (60.0, "config.toml")),
        (
            None,
            None,
            ("--distributed-timeout-minutes", "30"),
            5.0,
            (1800.0, "the command line of w-0"),
        ),
        (None, None, (), 5.0, (5.0, "its log")),
        (None, None, (), None, (600.0, "torch's default")),
    ],
)
def test_each_number_says_where_it_came_from(
    flag: float | None,
    file: float | None,
    args: tuple[str, ...],
    logged: float | None,
    told: object,
) -> None:
    own = ContextSettings(watchdog_timeout_s=file)
    found = numbers.numbers(
        numbers.Flags(timeout_s=flag), own, "config.toml", pods_of([pod("w-0", args=args)]), logged
    )
    assert told == found.timeout
