"""`gpufleet cost`: every worked number through the command line, and one line for what cannot be asked."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rules.stories import STOPPED, S, case, running, sign, xid

from gpufleet_cli import cli, completion, cost
from gpufleet_cli.commands import cost_options, cost_questions
from gpufleet_cli.errors import UsageError
from gpufleet_cli.facts import JobNumbers, Sign
from gpufleet_cli.recommend import recommend
from gpufleet_cli.rules import RULES
from gpufleet_cli.weigh import weigh

ROOT = Path(__file__).parents[2]
Capture = pytest.CaptureFixture[str]
DECIDE = (
    "decide --gpus 8192 --checkpoint-interval 60m --save 1m --restart 5m --planned-restart 5m"
    " --detection 10m"
)
ASKED = [f"{topic.name} {one}" for topic in cost_questions.TOPICS for one in topic.examples] + [
    f"{DECIDE} --since-checkpoint 29m --stopped",
    f"{DECIDE} --since-checkpoint 90m --hazard-per-hour 0.2",
    "mtbf --gpus 16384 --interruptions 0 --observed-gpu-hours 21233664",
    "mtbf --gpus 1 --gpu-hours-per-interruption 50000",
    "spares --nodes 130 --availability 0.9347 --stock-out 5%",
    "efficiency --target 0.9 --mtti 5h",
    "checkpoint-interval --save 5h --mtti 1h",
]


def document(asked: str, capsys: Capture) -> dict[str, Any]:
    """The whole answer."""
    assert 0 == cli.main(["cost", *asked.split(), "-o", "json"])
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def result(asked: str, capsys: Capture) -> dict[str, Any]:
    found = document(asked, capsys)["result"]
    assert isinstance(found, dict)
    return found


def page(asked: str, capsys: Capture) -> str:
    assert 0 == cli.main(["cost", *asked.split()])
    return capsys.readouterr().out


# --- Worked numbers -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "name", "expected", "within"),
    [
        ("recompute --gpus 8192 --since-checkpoint 29m", "gpu_hours", 3959.47, 0.005),
        ("recompute --gpus 8192 --checkpoint-interval 30m", "gpu_hours", 2048, 1e-9),
        ("idle --gpus 8192 --watchdog-timeout 10m", "gpu_hours", 1365.33, 0.005),
        ("idle --gpus 16384 --watchdog-timeout 10m", "gpu_hours", 2730.67, 0.005),
        ("idle --gpus 8192 --watchdog-timeout 30m", "gpu_hours", 4096, 1e-9),
        ("efficiency --target 90% --mtti 166.86m", "budget_seconds", 16.7 * 60, 3),
        ("efficiency --target 0.97 --gpus 9600 --gpu-hours-per-interruption 45566",
         "budget_seconds", 8.5 * 60, 3),
        ("efficiency --target 0.97 --gpus 9600 --gpu-hours-per-interruption 45566",
         "mtti_seconds", 4.746 * 3600, 2),
        ("efficiency --productive 9h --wall 10h", "ettr", 0.9, 1e-12),
        ("efficiency --scheduling-goodput 0.9 --runtime-goodput 0.8 --program-goodput 0.5",
         "goodput", 0.36, 1e-12),
        ("tail --ranks 1024 --slow-probability 0.01", "no_slow_rank", 3.3919e-05, 5e-10),
        ("tail --ranks 1024 --slow-probability 6.767e-4", "no_slow_rank", 0.5, 1e-4),
        ("tail --gpus 8192 --slowdown 1.05", "gpu_hours_per_hour", 390.1, 0.05),
        ("spares --nodes 130 --availability 0.9347 --stock-out 0.05", "spares", 14, 0),
    ],
)  # fmt: skip
def test_one_number(asked: str, name: str, expected: float, within: float, capsys: Capture) -> None:
    """As the facts have it."""
    assert result(asked, capsys)[name] == pytest.approx(expected, abs=within)


@pytest.mark.parametrize(
    ("save_min", "mtti_min", "young", "first", "higher"),
    [
        (5, 1440, 120.00, 115.00, 116.69),
        (5, 360, 60.00, 55.00, 56.71),
        (5, 15, 12.25, 7.25, 9.14),
        (0.5, 166.9, 12.92, 12.42, 12.588),
        (5, 166.9, 40.85, 35.85, 37.588),
    ],
)
def test_checkpoint_interval(
    save_min: float, mtti_min: float, young: float, first: float, higher: float, capsys: Capture
) -> None:
    """Young, and Daly in both orders; Daly's own figures are 117, 57 and 9.1."""
    found = result(f"checkpoint-interval --save {save_min}m --mtti {mtti_min}m", capsys)
    shown = [found[f"{name}_seconds"] / 60 for name in ("young", "daly_first_order", "daly")]
    assert shown == pytest.approx([young, first, higher], abs=0.005)


def test_checkpoint_interval_of_a_save_that_takes_too_long(capsys: Capture) -> None:
    """From twice the MTTI on the interval is the MTTI, and the first order has none."""
    found = result("checkpoint-interval --save 2h --mtti 1h", capsys)
    assert (3600, None) == (found["daly_seconds"], found["daly_first_order_seconds"])


def test_size_and_rate_stand_for_the_mtti(capsys: Capture) -> None:
    """The same interval, by its MTTI and by GPUs and GPU-hours per interruption."""
    by_size = result(
        "checkpoint-interval --save 30s --gpus 8192 --gpu-hours-per-interruption 40960", capsys
    )
    assert by_size == result("checkpoint-interval --save 30s --mtti 5h", capsys)
    rest = "--save 30s --restart 10m --checkpoint-interval 30m"
    sized = result(f"efficiency --gpus 8192 --gpu-hours-per-interruption 40960 {rest}", capsys)
    assert sized == result(f"efficiency --mtti 5h {rest}", capsys)


@pytest.mark.parametrize(
    ("restart", "interval", "exact", "first"),
    [("10m", "12.6m", 0.871, 0.863), ("5m", "10m", 0.8955, 0.890), ("10m", "30m", 0.844, 0.834)],
)
def test_efficiency(
    restart: str, interval: str, exact: float, first: float, capsys: Capture
) -> None:
    """A save of half a minute, 166.86 minutes between interruptions."""
    given = f"--mtti 166.86m --save 0.5m --restart {restart} --checkpoint-interval {interval}"
    found = result(f"efficiency {given}", capsys)
    assert found["ettr"] == pytest.approx(exact, abs=0.0005)
    assert found["ettr_first_order"] == pytest.approx(first, abs=0.0005)


@pytest.mark.parametrize(
    ("asked", "hours", "theta"),
    [
        ("--gpus 16384 --interruptions 466 --observed-gpu-hours 21233664", 2.7811, 45_565.8),
        ("--gpus 16384 --interruptions 419 --observed-gpu-hours 21233664", 3.0931, 50_677.0),
        ("--gpus 8192 --gpu-hours-per-interruption 45565.8", 5.562, 45_565.8),
        ("--gpus 1024 --gpu-hours-per-interruption 45565.8", 44.50, 45_565.8),
        ("--gpus 16384 --node-failures-per-day 6.5e-3 --gpus-per-node 8", 1.803, 29_538.5),
        ("--gpus 131072 --node-failures-per-day 6.5e-3 --gpus-per-node 8", 0.2254, 29_538.5),
        ("--gpus 8192 --node-failures-per-day 2.34e-3 --gpus-per-node 8", 10.016, 82_051.3),
    ],
)
def test_mtbf(asked: str, hours: float, theta: float, capsys: Capture) -> None:
    """From what was seen, from a rate, and from failures of a node per day."""
    found = result(f"mtbf {asked}", capsys)
    assert found["mtti_seconds"] / 3600 == pytest.approx(hours, rel=3e-4)
    assert found["gpu_hours_per_interruption"] == pytest.approx(theta, abs=0.06)
    assert found["hazard_per_hour"] == pytest.approx(3600 / found["mtti_seconds"])
    between = found["interval90_gpu_hours"]
    assert (between is None) == ("--interruptions" not in asked)
    if between is not None:
        assert between[0] < theta < between[1]


def test_hazard_of_8192_gpus(capsys: Capture) -> None:
    """0.1798 per hour at 45,565.8 GPU-hours."""
    found = result("mtbf --gpus 8192 --gpu-hours-per-interruption 45565.8", capsys)
    assert found["hazard_per_hour"] == pytest.approx(0.1798, abs=5e-5)


def test_mtbf_with_none_seen(capsys: Capture) -> None:
    """A lower bound, and null for the rest: none seen is not never."""
    found = result("mtbf --gpus 8 --interruptions 0 --observed-gpu-hours 59915", capsys)
    low, high = found.pop("interval90_gpu_hours")
    assert (low, high) == (pytest.approx(20_000, abs=1), None)
    assert {None} == set(found.values())


@pytest.mark.parametrize(
    ("per_hour", "repair", "out", "spares"),
    [
        (0.78 / 2.781, "4h", 1.12, (3, 4, 6)),
        (0.78 / 2.781, "24h", 6.73, (11, 13, 16)),
        (0.78 / 2.781, "72h", 20.19, (28, 31, 35)),
        (0.39 / 2.781, "24h", 3.37, (7, 8, 10)),
    ],
)
def test_spares(
    per_hour: float, repair: str, out: float, spares: tuple[int, ...], capsys: Capture
) -> None:
    """16,384 and 8,192 GPUs, 78 % of the interruptions by hardware; one rack of 16 nodes on top."""
    for chance, expected in zip(("0.05", "0.01", "0.001"), spares, strict=True):
        asked = f"spares --failures-per-hour {per_hour} --repair {repair} --stock-out {chance}"
        found = result(f"{asked} --rack-nodes 16", capsys)
        assert found["expected_out"] == pytest.approx(out, abs=0.006)
        assert (expected, expected + 16) == (found["spares"], found["spares_with_rack_loss"])
        assert result(asked, capsys)["spares_with_rack_loss"] is None


@pytest.mark.parametrize(
    ("since", "slowdown", "hazard", "evict", "wait", "action"),
    [
        (29, 1, 0, 4642.13, 682.67, "cordon-at-checkpoint"),
        (29, 1, 0.05, 4642.13, 880.01, "cordon-at-checkpoint"),
        (29, 1, 1.0, 4642.13, 3706.79, "cordon-at-checkpoint"),
        (29, 1.25, 0.05, 4642.13, 1967.75, "cordon-at-checkpoint"),
        (29, 2.5, 0.05, 4642.13, 7302.27, "evict-now"),
        (5, 1, 0.5, 1365.33, 2761.52, "evict-now"),
    ],
)
def test_decide(
    since: int,
    slowdown: float,
    hazard: float,
    evict: float,
    wait: float,
    action: str,
    capsys: Capture,
) -> None:
    """The table of the three questions."""
    given = f"--since-checkpoint {since}m --slowdown {slowdown} --hazard-per-hour {hazard}"
    found = result(f"{DECIDE} {given}", capsys)
    assert action == found["recommendation"]
    assert found["evict_gpu_hours"] == pytest.approx(evict, abs=0.005)
    assert found["wait_gpu_hours"] == pytest.approx(wait, abs=0.005)


@pytest.mark.parametrize(("since", "expected"), [(5, 1.091), (29, 1.935), (55, 12.0)])
def test_break_even_slowdown(since: int, expected: float, capsys: Capture) -> None:
    """The interval over what is left of it."""
    found = result(f"{DECIDE} --since-checkpoint {since}m", capsys)
    assert found["break_even_slowdown"] == pytest.approx(expected, abs=0.0005)


@pytest.mark.parametrize(
    ("since", "expected"), [(2, 0.051), (5, 0.134), (15, 0.508), (29, 1.49), (45, 4.97), (55, 17.1)]
)
def test_break_even_hazard(since: int, expected: float, capsys: Capture) -> None:
    """By minutes since the checkpoint."""
    found = result(f"{DECIDE} --since-checkpoint {since}m", capsys)
    assert found["break_even_hazard_per_hour"] == pytest.approx(expected, rel=0.01)


def test_decide_for_a_stopped_job(capsys: Capture) -> None:
    """It loses nothing more by an eviction, and waits for no checkpoint."""
    found = result(f"{DECIDE} --since-checkpoint 2m --stopped", capsys)
    assert found == {
        "recommendation": "evict-now",
        "evict_gpu_hours": 0.0,
        "wait_gpu_hours": None,
        "break_even_slowdown": None,
        "break_even_hazard_per_hour": None,
    }


def test_a_checkpoint_that_is_due(capsys: Capture) -> None:
    """No rest to slow, so that no slowdown tips it."""
    found = result(f"{DECIDE} --since-checkpoint 90m", capsys)
    assert ("cordon-at-checkpoint", None) == (found["recommendation"], found["break_even_slowdown"])


@pytest.mark.parametrize(
    ("events", "days", "percent", "nodes", "within"),
    [(2, 28, 1.468, 30, 0.1), (3, 28, 0.0877, 1.8, 0.05), (2, 7, 0.1004, 2.1, 0.05)],
)
def test_offenders(
    events: int, days: int, percent: float, nodes: float, within: float, capsys: Capture
) -> None:
    """Of 2,048 nodes with 6.5e-3 failures a day."""
    asked = f"--events {events} --days {days} --node-failures-per-day 6.5e-3 --nodes 2048"
    found = result(f"offenders {asked}", capsys)
    assert found["chance"] * 100 == pytest.approx(percent, rel=5e-4)
    assert found["expected_innocent_nodes"] == pytest.approx(nodes, abs=within)


# --- Agreement with triage ------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_decide_says_what_triage_says(seed: int, capsys: Capture) -> None:
    """A running job with a slow node, every input measured or given: the same action, the same prices."""
    drawn = random.Random(seed)
    interval, since = drawn.randint(600, 7200), drawn.randint(60, 3000)
    given = JobNumbers(
        source="flag",
        name="run-7",
        world_size=8,
        checkpoint_interval_s=float(interval),
        last_checkpoint_ns=STOPPED - since * S,
        restart_s=float(drawn.randint(30, 1200)),
        watchdog_timeout_s=float(drawn.randint(60, 1800)),
    )
    saved = drawn.randint(1, 120)
    saves = [
        sign(Sign.SAVE_STARTED, 0, STOPPED - (since + saved) * S, step=3),
        sign(Sign.SAVE_DURABLE, 0, STOPPED - since * S, step=3),
    ]
    made = case([given, *running(xid(63, gpu=2, at=STOPPED - S), *saves)], STOPPED)
    verdict, chosen = weigh(made, [h for rule in RULES for h in rule.propose(made)])
    assert chosen is not None
    slow = replace(chosen, xid=None, slowdown=drawn.uniform(1.0, 4.0))
    advice = recommend(made, verdict, slow)
    assert "arithmetic" == advice.decided_by
    known = {one.name: one.value for one in advice.inputs}
    found = result(
        f"decide --gpus 8 --checkpoint-interval {known['checkpoint_interval']}s"
        f" --since-checkpoint {known['since_checkpoint']}s --save {known['save']}s"
        f" --restart {known['restart']}s --planned-restart {known['restart']}s"
        f" --detection {known['watchdog_timeout']}s --slowdown {known['slowdown']}",
        capsys,
    )
    assert advice.action.value == found["recommendation"]
    options = {one.option: one.gpu_hours for one in advice.options}
    assert options["evict-now"] == pytest.approx(found["evict_gpu_hours"], abs=0.006)
    assert options["wait-for-boundary"] == pytest.approx(found["wait_gpu_hours"], abs=0.006)


@pytest.mark.parametrize("seed", range(15))
def test_decide_is_the_function_that_triage_calls(seed: int, capsys: Capture) -> None:
    """With a hazard too, which triage never takes for measured; a tie is never an eviction."""
    drawn = random.Random(seed)
    restart = drawn.uniform(0, 1200)
    stakes = cost.Stakes(
        gpus=drawn.choice([8, 1024, 16_384]),
        interval_s=round(drawn.uniform(60, 7200), 3),
        since_checkpoint_s=round(drawn.uniform(0, 9000), 3),
        save_s=round(drawn.uniform(0, 600), 3),
        restart_s=round(restart, 3),
        planned_restart_s=round(restart * drawn.choice([0, 0.5]), 3),
        detection_s=round(drawn.uniform(0, 1800), 3),
        slowdown=round(drawn.choice([1.0, drawn.uniform(1, 5)]), 3),
        hazard_per_hour=round(drawn.choice([0.0, 10 ** drawn.uniform(-3, 2)]), 3),
    )
    found = result(
        f"decide --gpus {stakes.gpus} --checkpoint-interval {stakes.interval_s}"
        f" --since-checkpoint {stakes.since_checkpoint_s} --save {stakes.save_s}"
        f" --restart {stakes.restart_s} --planned-restart {stakes.planned_restart_s}"
        f" --detection {stakes.detection_s} --slowdown {stakes.slowdown}"
        f" --hazard-per-hour {stakes.hazard_per_hour}",
        capsys,
    )
    assert cost.decide(stakes).action.value == found["recommendation"]
    evict, wait = found["evict_gpu_hours"], found["wait_gpu_hours"]
    is_dearer = wait > evict and not cost.is_tie(evict, wait)
    assert ("evict-now" if is_dearer else "cordon-at-checkpoint") == found["recommendation"]


# --- Inputs and bad input -------------------------------------------------------------------------


def test_every_input_says_what_it_was_and_where_it_came_from(capsys: Capture) -> None:
    """Durations in seconds; what was not given is a default."""
    found = document(f"{DECIDE} --since-checkpoint 29m --slowdown 1.25", capsys)["inputs"]
    assert {"value": 1740.0, "unit": "s", "source": "flag"} == found["since_checkpoint"]
    assert {"value": 8192, "unit": "GPUs", "source": "flag"} == found["gpus"]
    assert {"value": 1.25, "unit": "x", "source": "flag"} == found["slowdown"]
    assert {"value": 0.0, "unit": "per hour", "source": "default"} == found["hazard_per_hour"]
    assert {"value": False, "unit": "", "source": "default"} == found["stopped"]


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), ("0.5m", 30), ("5h", 18_000), ("2d", 172_800)]
)
def test_durations(text: str, seconds: float, capsys: Capture) -> None:
    """As the contract writes them."""
    found = document(f"idle --gpus 8 --watchdog-timeout {text}", capsys)["inputs"]
    assert seconds == found["watchdog_timeout"]["value"]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("", "cost of what?"),
        ("nonsense", "checkpoint-interval"),
        ("idle", "missing --gpus --watchdog-timeout"),
        ("idle --gpus 8", "missing --watchdog-timeout"),
        ("recompute --gpus 8", "missing --since-checkpoint, or --checkpoint-interval"),
        ("recompute --gpus 8 --since-checkpoint 1m --checkpoint-interval 2m", "do not go together"),
        ("checkpoint-interval --save 1m", "missing --mtti, or --gpus --gpu-hours-per-interruption"),
        ("checkpoint-interval --save 1m --mtti 5h --gpus 8", "--mtti and --gpus"),
        ("checkpoint-interval --save 1m --gpus 8", "missing --gpu-hours-per-interruption"),
        ("checkpoint-interval --save 0 --mtti 5h", "--save is 0"),
        ("mtbf --interruptions 4 --observed-gpu-hours 10", "missing --gpus"),
        ("mtbf --gpus 8 --interruptions 4", "missing --observed-gpu-hours"),
        ("mtbf --gpus 8 --interruptions 4 --gpu-hours-per-interruption 5", "do not go together"),
        ("efficiency --target 0.9 --mtti 5h --save 1m", "do not go together"),
        ("efficiency --productive 3h --wall 2h", "--productive is longer"),
        ("efficiency --productive 3h --target 0.9", "do not go together"),
        ("efficiency --runtime-goodput 0.9", "missing --scheduling-goodput --program-goodput"),
        ("spares --nodes 8 --stock-out 0.1 --repair 4h", "do not go together"),
        ("spares --nodes 8 --availability 0.9 --rack-nodes 2", "missing --stock-out"),
        ("spares --nodes 10000000 --availability 1e-9 --stock-out 0.1", "at most 10,000,000"),
        ("spares --failures-per-hour 1e6 --repair 9999d --stock-out 0.1", "at most 10,000,000"),
        ("tail --ranks 8 --slowdown 1.5", "--ranks and --slowdown"),
        (f"{DECIDE}", "missing --since-checkpoint"),
        (f"{DECIDE} --stopped", "missing --since-checkpoint"),
        (f"{DECIDE} --since-checkpoint 1m --restart 1m", "--planned-restart is longer"),
        ("idle --gpus 8 --watchdog-timeout", "--watchdog-timeout"),
        ("idle --gpus 8 --watchdog-timeout 10m --nodes 4", "--nodes"),
        ("idle --gpus 8 --watchdog-timeout 10m -o yaml", "yaml"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked(asked: str, told: str, capsys: Capture) -> None:
    """Exit 2, one line that says what, and nothing on standard output."""
    assert 2 == cli.main(["cost", *asked.split()])
    out, err = capsys.readouterr()
    assert ("", 1) == (out, err.count("\n"))
    assert told in err


@pytest.mark.parametrize("name", sorted(cost_options.OPTIONS))
def test_no_number(name: str) -> None:
    """The same for every option: it is named, with what would do."""
    for text in ("-1", "-5m", "nan", "NaN", "inf", "-inf", "1e999", "", "many", "1,5", "0x10", "٣", "9" * 50):  # fmt: skip
        with pytest.raises(UsageError) as caught:
            cost_options.value(name, text)
        assert caught.value.message.startswith(f"{cost_options.option(name)} ")
        assert caught.value.hint


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("idle --gpus -1 --watchdog-timeout 10m", "--gpus"),
        ("idle --gpus NaN --watchdog-timeout 10m", "--gpus"),
        ("idle --gpus 8 --watchdog-timeout -10m", "--watchdog-timeout"),
        ("idle --gpus 0 --watchdog-timeout 10m", "--gpus"),
        ("idle --gpus 8.5 --watchdog-timeout 10m", "--gpus"),
        ("idle --gpus 1e12 --watchdog-timeout 10m", "--gpus"),
        ("idle --gpus 8 --watchdog-timeout 0", "--watchdog-timeout"),
        ("idle --gpus 8 --watchdog-timeout 999999999999d", "--watchdog-timeout"),
        ("recompute --gpus 8 --checkpoint-interval 0s", "--checkpoint-interval"),
        ("mtbf --gpus 8 --gpu-hours-per-interruption 0", "--gpu-hours-per-interruption"),
        ("mtbf --gpus 8 --gpu-hours-per-interruption 1e-200", "--gpu-hours-per-interruption"),
        ("mtbf --gpus 8 --interruptions 4 --observed-gpu-hours 0", "--observed-gpu-hours"),
        ("mtbf --gpus 8 --interruptions 1e9 --observed-gpu-hours 1e9", "--interruptions"),
        ("efficiency --target 0 --mtti 5h", "--target"),
        ("efficiency --target 1.2 --mtti 5h", "--target"),
        ("efficiency --target 120% --mtti 5h", "--target"),
        ("efficiency --target 0.9 --mtti 0", "--mtti"),
        ("spares --failures-per-hour 1 --repair 1h --stock-out 0", "--stock-out"),
        ("spares --failures-per-hour 1 --repair 1h --stock-out 1", "--stock-out"),
        ("spares --nodes 8 --availability 0 --stock-out 0.1", "--availability"),
        ("spares --nodes 8 --availability 1.1 --stock-out 0.1", "--availability"),
        ("tail --ranks 8 --slow-probability 1.5", "--slow-probability"),
        ("tail --gpus 8 --slowdown 0.5", "--slowdown"),
        ("offenders --events 0 --days 7 --node-failures-per-day 0.1 --nodes 8", "--events"),
        ("offenders --events 2 --days 0 --node-failures-per-day 0.1 --nodes 8", "--days"),
    ],
)  # fmt: skip
def test_out_of_range(asked: str, name: str, capsys: Capture) -> None:
    """Zero where nothing can be zero, more than a whole, and what no fleet has."""
    assert 2 == cli.main(["cost", *asked.split()])
    out, err = capsys.readouterr()
    assert ("", 1) == (out, err.count("\n"))
    assert err.startswith(f"gpufleet: {name} ")


@pytest.mark.parametrize("topic", cost_questions.TOPICS, ids=lambda topic: topic.name)
def test_the_extremes_that_are_taken(topic: cost_questions.Topic, capsys: Capture) -> None:
    """Each way of asking with the least and the greatest of every number: strict JSON, and a page."""
    for way in topic.ways:
        for most in (False, True):
            asked = [topic.name]
            for name in way:
                asked += [cost_options.option(name), _extreme(name, most=most)]
            status = cli.main(["cost", *asked, "-o", "json"])
            out, err = capsys.readouterr()
            if status == 2:  # refused where they meet
                assert ("", 1) == (out, err.count("\n")), asked
                continue
            assert 0 == status, err
            json.loads(out, parse_constant=lambda word: pytest.fail(word))
            assert all(len(line) <= 80 for line in page(" ".join(asked), capsys).splitlines())


def _extreme(name: str, *, most: bool) -> str:
    row = cost_options.OPTIONS[name]
    if row.kind == "duration":
        return "999999d" if most else "0.000000001s" if row.above else "0"
    if row.kind == "share":
        return ("0.999999999999" if row.below else "1") if most else "1e-12" if row.above else "0"
    return f"{row.most:.0f}" if most else f"{row.least:g}"


# --- What is shown --------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", ASKED)
def test_a_page_fits_a_terminal(asked: str, capsys: Capture) -> None:
    """80 columns and 24 lines; each input as it was typed, and the formula's name."""
    asked = asked.replace(" \\\n", " ")
    shown = page(asked, capsys)
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 24
    assert "Formula: " in shown
    for word in asked.split():
        if word.startswith("--"):
            assert f"{word} " in shown


def test_a_page_says_what_to_do_first(capsys: Capture) -> None:
    """In the words of triage, with where each number came from."""
    shown = page(f"{DECIDE} --since-checkpoint 29m", capsys)
    assert "CORDON NOW, EVICT AT CHECKPOINT" in shown.splitlines()[2]
    assert "4,642 GPU-hours" in shown
    assert "by default  --slowdown 1  --hazard-per-hour 0  --stopped no" in shown
    assert ">  " in shown  # the row that is chosen, without colour too


def test_a_tie_is_said(capsys: Capture) -> None:
    """And the less disruptive taken."""
    shown = page(f"{DECIDE} --since-checkpoint 29m --slowdown 2", capsys)
    assert "a tie, so the less disruptive" in shown
    assert "CORDON NOW" in shown


def test_young_is_close_enough_for_a_short_save(capsys: Capture) -> None:
    """Under one per cent of the MTTI, and not above."""
    assert "Young's interval is close" in page("checkpoint-interval --save 1m --mtti 2h", capsys)
    assert "Young's interval" not in page("checkpoint-interval --save 5m --mtti 2h", capsys)


@pytest.mark.parametrize("asked", [ASKED[0], f"{DECIDE} --since-checkpoint 29m"])
def test_a_terminal_that_is_not_utf_8(asked: str) -> None:
    """Bars of ASCII, no colour, nothing lost."""
    done = subprocess.run(
        [sys.executable, "-m", "gpufleet_cli", "cost", *asked.split()],
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C", "GPUFLEET_NO_STATE": "1", "NO_COLOR": "1"},
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    assert done.stdout.isascii()
    assert b"####" in done.stdout
    assert b"\x1b" not in done.stdout


@pytest.mark.parametrize("topic", cost_questions.TOPICS, ids=lambda topic: topic.name)
def test_the_examples_of_the_help_run(topic: cost_questions.Topic, capsys: Capture) -> None:
    """As they stand there, folded over lines."""
    assert 0 == cli.main(["cost", topic.name, "--help"])
    shown = capsys.readouterr().out
    assert all(len(line) <= 80 for line in shown.splitlines())
    examples = shown.split("Examples:")[1].replace("\\\n", " ").strip().splitlines()
    assert len(examples) == len(topic.examples) >= 2
    for example in (line.split() for line in examples):
        assert ["gpufleet", "cost", topic.name] == example[:3]
        assert 0 == cli.main(example[1:])


def test_topics_are_those_of_the_completion(capsys: Capture) -> None:
    """In the order of the help; completion imports none of it."""
    assert completion.COST_TOPICS == tuple(topic.name for topic in cost_questions.TOPICS)
    assert 0 == cli.main(["cost", "--help"])
    shown = capsys.readouterr().out.split("Commands:")[1].split("Examples:")[0]
    assert [line.split()[0] for line in shown.splitlines() if line.strip()] == list(
        completion.COST_TOPICS
    )
    assert "..." not in shown


def test_global_options_stand_anywhere(capsys: Capture) -> None:
    """Before the command, between it and the topic, and behind."""
    idle = ["idle", "--gpus", "8", "--watchdog-timeout", "1h"]
    places = (
        ["-o", "json", "cost", *idle],
        ["cost", "-o", "json", *idle],
        ["cost", *idle, "-o", "json"],
    )
    for arguments in places:
        assert 0 == cli.main(arguments)
        assert 8.0 == json.loads(capsys.readouterr().out)["result"]["gpu_hours"]
