"""`gpufleet alerts` judged by promtool: what pages nobody, what pages in time, and that doubled limits do not."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet
from operate.alert_histories import (
    HOURS_S,
    At,
    Course,
    History,
    Job,
    begins,
    changes,
    grows,
    steady,
    until,
    written,
)
from servers import programs
from servers.fixtures import require

from gpufleet_cli.operate.alerts.build import build
from gpufleet_cli.operate.alerts.numbers import Limits, Numbers
from gpufleet_cli.operate.alerts.promql import matchers
from gpufleet_cli.render.alert_rules import render_rules

SMALL = Job()
LARGE = Job(
    step_s=40.0, interval_s=3600.0, watchdog_s=1800.0, scrape_s=60.0, labels="own", host="hostname"
)
BARE = Job(step_s=2.0, scrape_s=30.0, labels="none", marks=False)
UNKUBED = Job(kube_pods=False)
RENAMED = Job(labels="none", scrape_node="kubernetes_node")
RELABELLED = Job(labels="none", scrape_node="node", host="hostname")
JOBS = {"small": SMALL, "large": LARGE, "bare": BARE}
AT = 7_230.0
"""When a fault begins: two hours in, and not on a scrape."""
SICK = ("train-run-7-worker-1", 1)
OTHER = ("other-run-worker-0", 0)
FIRING = 'ALERTS{alertstate="firing"}'
MINUTE = 60.0
MOST_NAMES = 4
Make = Callable[[Job], History]


@pytest.fixture(autouse=True)
def promtool() -> None:
    require("promtool")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sick:
    """A fault, the alert that is to tell of it, and between which seconds after it began."""

    make: Make
    alert: str
    soonest_s: Callable[[Job], float] = lambda _job: 0.0
    latest_s: Callable[[Job], float]


def rules(job: Job, limits: Limits, only: str | None) -> str:
    """The file as the command prints it, or the rules of one name."""
    numbers = Numbers(
        job="train-run-7",
        typed="train-run-7 -n train",
        namespace="train",
        match=matchers('job_id="run7"', "--match"),
        pods="train-run-7-.*",
        step_s=job.step_s,
        checkpoint_interval_s=job.interval_s,
        watchdog_s=job.watchdog_s,
        step_metric="training_step_seconds",
        last_step_metric="training_last_step_timestamp_seconds",
        checkpoint_metric="training_last_checkpoint_timestamp_seconds",
        limits=limits,
    )
    built = build(numbers, ())
    groups = (
        replace(one, rules=tuple(rule for rule in one.rules if only in (None, rule.name)))
        for one in built.groups
    )
    return render_rules(replace(built, groups=tuple(groups)), kind="rules", output="yaml")


def judged(
    folder: Path,
    history: History,
    asked: list[dict[str, Any]],
    limits: Limits,
    only: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """promtool's word on the questions."""
    (folder / "rules.yaml").write_text(rules(history.job, limits, only), encoding="utf-8")
    test = {
        "interval": f"{history.job.scrape_s:g}s",
        "input_series": written(history),
        "promql_expr_test": asked,
    }
    document = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [test]}
    (folder / "test.yaml").write_text(json.dumps(document), encoding="utf-8")
    return subprocess.run(
        [str(programs.find("promtool")), "test", "rules", "test.yaml"],
        cwd=folder, env=os.environ | {"GOGC": "800"},  # there is room: it spends a fifth of its time on less
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


def question(names: str, at_s: float, over_s: float, samples: list[str]) -> dict[str, Any]:
    """Which alert names fired in the time before a moment."""
    return {
        "expr": f"group by (alertname) (count_over_time({names}[{over_s:.0f}s]))",
        "eval_time": f"{at_s:.0f}s",
        "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in samples],
    }


# --- What pages nobody ----------------------------------------------------------------------------


def long_checkpoint(job: Job) -> History:
    """Each save of the second hour stops the job for four tenths of its watchdog's time."""
    starts = [3600.0 + k * job.interval_s for k in range(int(3600 / job.interval_s) + 1)]
    return History(
        job=job, course=Course(pauses=tuple((s, s + 0.4 * job.watchdog_s) for s in starts))
    )


def evaluation(job: Job) -> History:
    """No step for four tenths of the watchdog's time, and the step that holds it is ten times as long."""
    end = AT + 0.4 * job.watchdog_s
    course = Course(pauses=((AT, end),), slower=((end, end + 600.0, 10.0),))
    return History(job=job, course=course)


def first_compile(job: Job) -> History:
    """Twenty-five minutes without any step, at 0, then a first step that took all of them."""
    course = Course(begins_at=1500.0, gauge_at_zero=True, slower=((1500.0, 1800.0, 700.0),))
    return History(job=job, course=course)


def no_step_yet(job: Job) -> History:
    return History(job=job, course=Course(begins_at=HOURS_S + 1, gauge_at_zero=True))


def warm_up(job: Job) -> History:
    """The first forty minutes at twice the step time."""
    return History(job=job, course=Course(slower=((0.0, 2400.0, 2.0),)))


def restart_with_warm_up(job: Job) -> History:
    """Down for a few minutes just before a save, then slow for a quarter of an hour; no checkpoint of its own yet."""
    down = (
        saves_before(job) + 0.9 * job.interval_s,
        saves_before(job) + 0.9 * job.interval_s + 300.0,
    )
    history = History(job=job, course=Course(slower=((down[1], down[1] + 900.0, 1.6),)))

    def restarted(at: At, *, is_save: bool) -> At:
        def value(t: float) -> float | None:
            if down[0] <= t < down[1]:
                return None
            return 0.0 if is_save and down[1] <= t < down[1] + job.interval_s else at(t)

        return value

    for name, at in history.series().items():
        if name.startswith("training_"):
            history.extra[name] = restarted(at, is_save="checkpoint" in name)
    return history


def saves_before(job: Job) -> float:
    return AT // job.interval_s * job.interval_s


def never_saved(job: Job) -> History:
    """The gauge is there from the beginning, and 0."""
    history = History(job=job)
    for name in list(history.series()):
        if "last_checkpoint" in name:
            history.extra[name] = steady(0.0)
    return history


def ended(job: Job) -> History:
    return History(job=job, course=Course(ends_at=AT))


def ended_frozen(job: Job) -> History:
    """A gateway keeps the last values; the pods are gone."""
    return History(job=job, course=Course(ends_at=AT, frozen=True))


def sticky_value(job: Job) -> History:
    """A code of last week on a GPU of the job, and on one whose series was not scraped for a while."""
    gap = lambda t: None if AT <= t < AT + 1200 else 79.0  # noqa: E731
    readings = {
        ("DCGM_FI_DEV_XID_ERRORS", SICK): steady(79.0),
        ("DCGM_FI_DEV_XID_ERRORS", ("train-run-7-worker-0", 0)): gap,
    }
    return History(job=job, readings=readings)


def sticky_label(job: Job) -> History:
    readings = {
        ("DCGM_FI_DEV_XID_ERRORS", SICK): lambda _t: None,
        ('DCGM_FI_DEV_XID_ERRORS{err_code="79"}', SICK): lambda t: (
            None if AT <= t < AT + 1200 else 79.0
        ),
    }
    return History(job=job, readings=readings)


def moved(job: Job) -> History:
    """A restart takes a pod of the same name to another node; its old GPUs are idle, and have no pod."""
    pod, pause = "train-run-7-worker-1", (AT, AT + 0.4 * job.watchdog_s)
    history = History(job=job, course=Course(pauses=(pause,)), gone={(pod, 0): AT, (pod, 1): AT})
    info = f'kube_pod_info{{namespace="train", pod="{pod}", uid="{pod}-%d", node="%s"}}'
    history.extra = {info % (1, "node-b"): until(1.0, AT), info % (2, "node-d"): begins(AT, 1.0)}
    for index in (0, 1):
        held = history.gpu_series("DCGM_FI_DEV_GPU_TEMP", (pod, index))
        idle = (
            held.replace(f'pod="{pod}"', 'pod=""')
            if job.labels != "none"
            else f'{held[:-1]}, idle="1"}}'
        )
        history.extra[idle] = begins(AT, 40.0)
        history.extra[held.replace("node-b", "node-d")] = begins(AT, 61.0)
    return history


def eight_percent(job: Job) -> History:
    return History(job=job, course=Course(slower=((AT, HOURS_S + 1, 1.08),)))


def other_people(job: Job) -> History:
    """Everything that can go wrong, on a node and a pod that are somebody else's."""
    readings = {
        ("DCGM_FI_DEV_XID_ERRORS", OTHER): changes(0.0, AT, 79.0),
        ("DCGM_FI_DEV_ROW_REMAP_PENDING", OTHER): changes(0.0, AT, 1.0),
        ("DCGM_FI_DEV_PCIE_LINK_WIDTH", OTHER): changes(16.0, AT, 8.0),
        ("DCGM_FI_DEV_THERMAL_VIOLATION", OTHER): grows(AT, 3e8),
        ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", OTHER): changes(4.0, AT, 0x48),
    }
    return History(
        job=job,
        readings=readings,
        gone={("other-run-worker-0", 1): AT},
        unready={"node-c": AT + 3600},
    )


HEALTHY: tuple[Make, ...] = (
    lambda job: History(job=job),
    long_checkpoint, evaluation, first_compile, no_step_yet, warm_up, restart_with_warm_up,
    ended, ended_frozen, moved, sticky_value, sticky_label, eight_percent, other_people,
)  # fmt: skip


def name_of(story: Make | Sick) -> str:
    make = story.make if isinstance(story, Sick) else story
    return make.__name__.replace("<lambda>", "plain")


def in_turn(stories: Sequence[Make | Sick]) -> list[ParameterSet]:
    """Each story with one of the jobs; with every job where GPUFLEET_ALL_STORIES says so."""
    jobs = list(JOBS)
    return [
        pytest.param(story, JOBS[name], id=f"{name_of(story)}-{name}")
        for turn, story in enumerate(stories)
        for name in (jobs if os.environ.get("GPUFLEET_ALL_STORIES") else [jobs[turn % len(jobs)]])
    ]


@pytest.mark.parametrize(("make", "job"), in_turn(HEALTHY))
def test_a_healthy_job_pages_nobody(make: Make, job: Job, tmp_path: Path) -> None:
    """No alert of any name fires in four hours."""
    asked = [question(FIRING, HOURS_S, HOURS_S, [])]
    run = judged(tmp_path, make(job), asked, Limits())
    assert run.returncode == 0, run.stdout + run.stderr


# --- What pages -----------------------------------------------------------------------------------


def stall(job: Job) -> History:
    """No step any more, and every GPU at 100 %."""
    return History(job=job, course=Course(pauses=((AT, HOURS_S + 1),)))


def thirty_percent(job: Job) -> History:
    return History(job=job, course=Course(slower=((AT, HOURS_S + 1, 1.3),)))


def saves(job: Job) -> float:
    """When the last checkpoint was: three intervals of the four hours are left."""
    return min(AT, HOURS_S - 3 * job.interval_s) // job.interval_s * job.interval_s


def no_save(job: Job) -> History:
    return History(job=job, course=Course(saves_until=saves(job)))


def xid_value(job: Job) -> History:
    """A code that the job dies of: the GPU goes, the job stalls, the node follows."""
    return History(
        job=job,
        course=Course(pauses=((AT, HOURS_S + 1),)),
        readings={("DCGM_FI_DEV_XID_ERRORS", SICK): changes(0.0, AT, 79.0)},
        gone={SICK: AT + 900},
        unready={"node-b": AT + 3000},
    )


def xid_label(job: Job) -> History:
    readings = {
        ("DCGM_FI_DEV_XID_ERRORS", SICK): lambda _t: None,
        ('DCGM_FI_DEV_XID_ERRORS{err_code="79", err_msg="bus"}', SICK): begins(AT, 79.0),
    }
    return History(job=job, readings=readings)


def xid_count(job: Job) -> History:
    return History(
        job=job, readings={('DCGM_EXP_XID_ERRORS_COUNT{xid="95"}', SICK): begins(AT, 1.0)}
    )


def xid_after_xid(job: Job) -> History:
    """A sticky code of last week is followed by another."""
    return History(job=job, readings={("DCGM_FI_DEV_XID_ERRORS", SICK): changes(31.0, AT, 48.0)})


def gpu_gone(job: Job) -> History:
    return History(job=job, gone={SICK: AT})


def pod_without_gpus(job: Job) -> History:
    """All that a pod had: nothing but the scrape tells that the exporter lives."""
    gone = {SICK: AT, (SICK[0], 0): AT}
    up = 'up{job="dcgm-exporter", instance="node-b:9400"}'
    return History(job=job, gone=gone, extra={up: steady(1.0)})


def not_ready(job: Job) -> History:
    return History(job=job, course=Course(pauses=((AT, HOURS_S + 1),)), unready={"node-b": AT})


def reading(field: str, at: Callable[..., float | None]) -> Make:
    def made(job: Job) -> History:
        usual = {"DCGM_FI_DEV_PCIE_LINK_WIDTH": 16.0}.get(field, 0.0)
        others = (
            ("train-run-7-worker-0", 0),
            ("train-run-7-worker-0", 1),
            ("train-run-7-worker-1", 0),
        )
        readings = {(field, gpu): steady(usual) for gpu in others}
        return History(job=job, readings=readings | {(field, SICK): at})

    made.__name__ = field.removeprefix("DCGM_FI_DEV_").lower()
    return made


def late(minutes: float) -> Callable[[Job], float]:
    return lambda _job: minutes * MINUTE


SICK_ONES = (
    Sick(
        make=stall,
        alert="GpufleetStall",
        soonest_s=lambda job: 0.45 * job.watchdog_s,
        latest_s=lambda job: 0.5 * job.watchdog_s + job.scrape_s + job.step_s + 65,
    ),
    Sick(make=thirty_percent, alert="GpufleetStepTime", latest_s=late(25)),
    Sick(
        make=no_save,
        alert="GpufleetCheckpointLate",
        soonest_s=lambda job: saves(job) + 1.2 * job.interval_s - AT,
        latest_s=lambda job: min(saves(job) + 3 * job.interval_s, HOURS_S) - AT,
    ),
    Sick(
        make=never_saved,
        alert="GpufleetCheckpointLate",
        soonest_s=lambda job: 1.2 * job.interval_s - AT,
        latest_s=lambda job: 3 * job.interval_s - AT,
    ),
    Sick(make=xid_value, alert="GpufleetXid", latest_s=late(2)),
    Sick(make=xid_label, alert="GpufleetXid", latest_s=late(2)),
    Sick(make=xid_count, alert="GpufleetXid", latest_s=late(2)),
    Sick(make=xid_after_xid, alert="GpufleetXid", latest_s=late(2)),
    Sick(make=gpu_gone, alert="GpufleetGpuGone", latest_s=late(10)),
    Sick(make=pod_without_gpus, alert="GpufleetGpuGone", latest_s=late(10)),
    Sick(make=not_ready, alert="GpufleetNodeNotReady", latest_s=late(5)),
    Sick(
        make=reading("DCGM_FI_DEV_ROW_REMAP_PENDING", changes(0.0, AT, 1.0)),
        alert="GpufleetRowRemap",
        latest_s=late(15),
    ),
    Sick(
        make=reading("DCGM_FI_DEV_PCIE_LINK_WIDTH", changes(16.0, AT, 8.0)),
        alert="GpufleetLinkWidth",
        latest_s=late(15),
    ),
    Sick(
        make=reading("DCGM_FI_DEV_THERMAL_VIOLATION", grows(AT, 1.5e6)),
        alert="GpufleetThermal",
        latest_s=late(15),
    ),
    Sick(
        make=reading("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", changes(4.0, AT, 0x48)),
        alert="GpufleetThermal",
        latest_s=late(15),
    ),
    Sick(
        make=reading("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", changes(4.0, AT, 0x88)),
        alert="GpufleetPower",
        latest_s=late(15),
    ),
    Sick(
        make=reading("DCGM_FI_DEV_POWER_VIOLATION", grows(AT, 4e8)),
        alert="GpufleetPower",
        latest_s=late(15),
    ),
)


def in_time(sick: Sick, job: Job) -> list[dict[str, Any]]:
    """Not before it may, then within its delay, and few names in all."""
    named = f'ALERTS{{alertstate="firing", alertname="{sick.alert}"}}'
    soonest, latest = sick.soonest_s(job), sick.latest_s(job)
    names = f"count(group by (alertname) (count_over_time({FIRING}[{HOURS_S:.0f}s]))) <= bool {MOST_NAMES}"
    return [
        question(FIRING, AT + soonest, HOURS_S, []),
        question(named, AT + latest, latest - soonest, [sick.alert]),
        {
            "expr": names,
            "eval_time": f"{HOURS_S:.0f}s",
            "exp_samples": [{"labels": "{}", "value": 1}],
        },
    ]


@pytest.mark.parametrize(("sick", "job"), in_turn(SICK_ONES))
def test_a_fault_pages_in_time(sick: Sick, job: Job, tmp_path: Path) -> None:
    """Its own alert fires within its delay, none before, and at most four names in all."""
    run = judged(tmp_path, sick.make(job), in_time(sick, job), Limits())
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize(("sick", "job"), in_turn(SICK_ONES))
def test_doubled_limits_fail(sick: Sick, job: Job, tmp_path: Path) -> None:
    """The same questions are answered otherwise by rules whose every limit is doubled: each limit matters."""
    run = judged(tmp_path, sick.make(job), in_time(sick, job), Limits().doubled(), sick.alert)
    assert run.returncode == 1, run.stdout
    assert sick.alert in run.stdout + run.stderr


def sick_one(name: str) -> Sick:
    return next(one for one in SICK_ONES if name_of(one) == name)


@pytest.mark.parametrize(
    ("name", "job"),
    [
        pytest.param(name, job, id=f"{name}-{word}")
        for word, job, names in (
            ("unkubed", UNKUBED, ("not_ready", "gpu_gone")),
            ("renamed", RENAMED, ("not_ready", "gpu_gone", "xid_value", "row_remap_pending")),
            ("relabelled", RELABELLED, ("gpu_gone", "xid_label")),
        )
        for name in names
    ],
)
def test_a_fault_pages_however_nodes_are_named(name: str, job: Job, tmp_path: Path) -> None:
    """Without any series of pods DCGM's labels tell which nodes are the job's; without DCGM's labels of pods, the
    node that the scrape wrote, whatever the exporter takes its host to be."""
    sick = sick_one(name)
    run = judged(tmp_path, sick.make(job), in_time(sick, job), Limits())
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("job", [UNKUBED, RENAMED], ids=["unkubed", "renamed"])
def test_other_peoples_nodes_page_nobody_however_they_are_named(job: Job, tmp_path: Path) -> None:
    """Neither the fallback by labels nor the node of the scrape takes in what is somebody else's."""
    asked = [question(FIRING, HOURS_S, HOURS_S, [])]
    run = judged(tmp_path, other_people(job), asked, Limits())
    assert run.returncode == 0, run.stdout + run.stderr
