"""A job that writes nothing any more and of which nobody said that it stopped."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpufleet_cli.facts import ContainerState, Fact, JobNumbers
from gpufleet_cli.next_commands import commands
from gpufleet_cli.reason.quiet import quiet
from gpufleet_cli.verdict import Action, Kind

from .stories import STOPPED, S, case, ended_pod, hang, running, verdict, writes

LATER = STOPPED + 316 * S


def test_all_ranks_quiet_is_told_with_the_time_that_the_watchdog_has_left() -> None:
    """How long, since when, the last step, and the default timeout as a default."""
    found = verdict(running(), LATER)
    assert Kind.UNDECIDABLE == found.kind
    assert "All 8 ranks wrote nothing for 316 s (since " in found.summary
    assert ", step " in found.summary
    assert "a watchdog of 600 s, the default, would give up in 284 s" in found.summary


def test_a_stated_timeout_that_is_over() -> None:
    """No countdown below nothing."""
    facts = running(JobNumbers(source="flag", watchdog_timeout_s=120.0))
    assert "no watchdog (120 s) has spoken yet" in verdict(facts, LATER).summary


@pytest.mark.parametrize(
    ("facts", "as_of"),
    [
        (running(), STOPPED + 20 * S),
        (running(), None),
        (running(writes(3, LATER - 5 * S)), LATER),
        (hang(), LATER + 3600 * S),
    ],
    ids=["a moment", "nobody knows when", "one writes", "watchdogs spoke"],
)
def test_what_is_no_such_job(facts: list[Fact], as_of: int | None) -> None:
    """Nothing is said of it."""
    assert quiet(case(facts, as_of)) is None


def _pods(state: str) -> list[Fact]:
    one = ContainerState(
        name="c",
        state=state,  # type: ignore[arg-type]
        reason=None,
        message=None,
        exit_code=None,
        started_ns=None,
        finished_ns=None,
        restarts=0,
        has_gpu=True,
    )
    return [
        replace(ended_pod(i, STOPPED), containers=(one,), phase="Running", namespace="ml")
        for i in range(2)
    ]


def _asks(facts: list[Fact], gathered_as: str | None = None) -> list[str]:
    made = case(facts, LATER)
    found = commands(made, verdict(facts, LATER), None, Action.COLLECT_MORE, (), None, gathered_as)
    return [one.run for one in found if "--capture" in one.run]


def test_while_its_ranks_are_there_a_fresh_look_is_offered() -> None:
    """By its name, else as it was gathered; not where no container runs or its name is none."""
    named = JobNumbers(source="file", name="run-7", namespace="ml")
    assert ["gpufleet triage run-7 -n ml --capture"] == _asks(running(named, *_pods("running")))
    assert [] == _asks(running(named, *_pods("terminated")))
    assert ["gpufleet triage -l app=x -n ml --capture"] == _asks(
        running(*_pods("running")), "-l app=x -n ml"
    )
    hostile = JobNumbers(source="file", name="--help; rm", namespace="ml")
    assert [] == _asks(running(hostile, *_pods("running")))
