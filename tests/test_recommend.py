"""Recommendation: the three questions, the price, the action, the commands."""

from __future__ import annotations

import shlex

import pytest
from rules.stories import GAVE_UP, STOPPED, S, case, hang, running, sign, xid

from gpufleet_cli.facts import Fact, JobNumbers, Origin, SchedulerJob, Sign
from gpufleet_cli.recommend import recommend
from gpufleet_cli.rules import RULES
from gpufleet_cli.verdict import Action, Recommendation
from gpufleet_cli.weigh import weigh

JOB = JobNumbers(
    source="file",
    name="run-7",
    namespace="train",
    world_size=8,
    checkpoint_interval_s=3600.0,
    last_checkpoint_ns=STOPPED - 1740 * S,
)


def advised(facts: list[Fact], as_of: int | None = None) -> Recommendation:
    made = case(facts, as_of)
    verdict, chosen = weigh(made, [h for rule in RULES for h in rule.propose(made)])
    return recommend(made, verdict, chosen)


def test_a_stopped_job_with_a_node_fault_is_evicted_and_costs_nothing_more() -> None:
    """XID 79 on the silent rank of a stopped job."""
    found = advised([JOB, *hang(xid(79, gpu=3))])
    assert (found.action, found.nodes) == (Action.EVICT_NOW, ("node-0",))
    assert [o.gpu_hours for o in found.options] == [0.0, None, None]
    assert [q.answer for q in found.questions] == ["no", "yes", "yes"]


def test_lost_so_far_is_waiting_and_recompute() -> None:
    """Eight GPUs: ten minutes of waiting, 29 minutes to recompute."""
    found = advised([JOB, *hang(xid(79, gpu=3), sign(Sign.ABORT, 1, GAVE_UP))])
    assert found.lost_waiting_gpu_hours == pytest.approx(8 * 600 / 3600, abs=0.02)
    assert found.lost_recompute_gpu_hours == pytest.approx(8 * 1740 / 3600, abs=0.01)


def test_a_missing_rank_without_a_blamed_node_restarts_the_job() -> None:
    """No cordon without a reason in the evidence."""
    found = advised([JOB, *hang()])
    assert (found.action, found.nodes) == (Action.RESTART_JOB, ())
    assert [c.run for c in found.commands] == ["gpufleet evict run-7 -n train"]


@pytest.mark.parametrize("code", [63, 94, 74])
def test_a_running_job_is_never_stopped_for_a_contained_fault(code: int) -> None:
    """Contained and pending faults wait for the boundary."""
    found = advised([JOB, *running(xid(code, gpu=2, at=STOPPED - 60 * S))], STOPPED)
    assert found.action is not Action.EVICT_NOW


@pytest.mark.parametrize("codes", [(95,), (48,)])
def test_suspected_corruption_stops_a_running_job(codes: tuple[int, ...]) -> None:
    """Uncontained, or 48 without 94: the node must not take part in another save."""
    events = [xid(code, gpu=2, at=STOPPED - 60 * S) for code in codes]
    assert advised([JOB, *running(*events)], STOPPED).action is Action.EVICT_NOW


def test_a_slowdown_that_nobody_measured_is_not_claimed() -> None:
    """79 on a job that still runs: the code often slows or stops one, and no step line says so."""
    found = advised([JOB, *running(xid(79, gpu=2, at=STOPPED - S))], STOPPED)
    [slows] = [q for q in found.questions if q.id == "degrading-now"]
    assert (found.action, slows.answer) == (Action.CORDON_AT_CHECKPOINT, "unknown")


def test_48_with_94_is_contained() -> None:
    """The same 48 with 94 beside it waits."""
    events = [xid(48, gpu=2, at=STOPPED - 60 * S), xid(94, gpu=2, at=STOPPED - 60 * S)]
    assert advised([JOB, *running(*events)], STOPPED).action is Action.CORDON_AT_CHECKPOINT


def test_a_software_cause_is_never_answered_with_a_cordon() -> None:
    """An exception: fix the code, no node, no cordon command."""
    found = advised([JOB, *hang(sign(Sign.PYTHON_EXCEPTION, 3, STOPPED, detail="ValueError: x"))])
    assert (found.action, found.nodes) == (Action.FIX_CODE, ())
    assert not [c for c in found.commands if "cordon" in c.run]


def test_undecided_collects_more() -> None:
    """Nothing is acted on."""
    found = advised([JOB, *hang(quiet=(), absent=range(1, 8))])
    assert (found.action, found.nodes) == (Action.COLLECT_MORE, ())


def test_arithmetic_decides_when_every_input_is_known() -> None:
    """A running job, 29 minutes after the checkpoint, nothing slow: waiting is cheaper."""
    given = JobNumbers(source="flag", restart_s=300.0, watchdog_timeout_s=600.0)
    saves = [
        sign(Sign.SAVE_STARTED, 0, STOPPED - 1800 * S, step=3),
        sign(Sign.SAVE_DURABLE, 0, STOPPED - 1740 * S, step=3),
    ]
    found = advised([given, JOB, *running(xid(9999, gpu=2, at=STOPPED - S), *saves)], STOPPED)
    assert found.decided_by in ("arithmetic", "rule")
    assert found.action is not Action.EVICT_NOW


def test_commands_of_slurm_drain_and_cancel() -> None:
    """On Slurm, drain is our cordon and scancel takes the gang down."""
    job = SchedulerJob(
        job_id="418822",
        name="run",
        state="RUNNING",
        reason=None,
        exit_code=None,
        nodes=("node-0",),
        started_ns=None,
        ended_ns=None,
        batch_host=None,
        tasks=None,
        origin=Origin(path="scontrol.txt", line=1),
    )
    found = advised([JOB, job, *hang(xid(79, gpu=3))])
    assert [c.run for c in found.commands] == [
        "scontrol update nodename=node-0 state=drain reason='XID 79'",
        "scancel 418822",
    ]


def test_hostile_names_are_not_pasted() -> None:
    """Shell text that stands for a job's name reaches no command: the node's name does."""
    given = JobNumbers(source="file", name="x; reboot", namespace="$(id)", world_size=8)
    found = advised([given, *hang(xid(79, gpu=3))])
    assert [shlex.split(c.run) for c in found.commands] == [
        ["gpufleet", "cordon", "node-0", "--reason", "XID 79"],
        ["gpufleet", "evict", "node/node-0"],
    ]


def test_every_input_says_where_it_came_from() -> None:
    """File, evidence or default; nothing is unlabelled."""
    found = advised([JOB, *hang(xid(79, gpu=3))])
    sources = {i.name: i.source for i in found.inputs}
    assert sources["checkpoint_interval"] == "file"
    assert sources["watchdog_timeout"] == "evidence"
    assert sources["restart"] == "default"
