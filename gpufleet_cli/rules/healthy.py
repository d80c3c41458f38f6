"""Nothing is wrong: the job steps in its rhythm, has finished, or was ended from outside.

"Healthy" is a hypothesis that has to win like any other. What could look the same: a stall younger
than the job's own rhythm of printing, which time settles. It cannot see a slow corruption.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpufleet_cli.facts import Origin, Sign
from gpufleet_cli.reason import Case, pauses
from gpufleet_cli.reason.placed import NS, PlacedSign
from gpufleet_cli.rules import claims
from gpufleet_cli.rules.claims import about, claim, is_outside
from gpufleet_cli.verdict import Claim, Hypothesis, JobState, Kind, Remedy

NAME = "healthy"
OWN_CAUSES = frozenset(
    {
        Sign.PYTHON_EXCEPTION,
        Sign.CUDA_OOM,
        Sign.HOST_OOM,
        Sign.CHILD_FAILED,
        Sign.ECC_ERROR,
        Sign.NODE_FAILED,
        Sign.FATAL_SIGNAL,
    }
)
TEARDOWN = frozenset({Sign.WATCHDOG_STUCK, Sign.ABORT, Sign.FATAL_SIGNAL, Sign.STORE_LOST})


def propose(case: Case) -> Iterator[Hypothesis]:
    """The first of: finished before the noise, ended from outside, steps in rhythm, dumps in order."""
    for found in (
        _finished(case),
        _ended_outside(case),
        _ended_by_scheduler(case),
        _in_rhythm(case),
        _in_a_pause(case),
        _in_habit(case),
        _dumps_in_order(case),
    ):
        if found is not None:
            yield found
            return


def _healthy(summary: str, found: tuple[Claim, ...], tag: str) -> Hypothesis:
    return Hypothesis(
        kind=Kind.HEALTHY,
        rule=NAME,
        summary=summary,
        claims=found,
        remedy=Remedy.NOTHING,
        degrades=False,
        worsens=False,
        reason_tag=tag,
    )


def _finished(case: Case) -> Hypothesis | None:
    done = case.signs_of(Sign.FINISHED)
    if not done:
        return None
    at = max((s.at_ns for s in done if s.at_ns is not None), default=None)
    if case.first_timeout_ns is not None and at is not None and case.first_timeout_ns < at:
        return None
    found = [
        about(
            done[-1],
            f"the training loop finished{claims.when(done[-1].at_ns)} ({len(done)} such lines)",
            claims.DECISIVE,
        )
    ]
    noise = [
        s
        for s in case.signs
        if s.fact.sign in TEARDOWN and at is not None and s.at_ns is not None and s.at_ns > at
    ]
    if noise:
        found.append(
            about(noise[0], f"{len(noise)} error lines came after it: teardown, no incident", 1.0)
        )
    if case.checkpoints.last_ns is not None and case.checkpoints.origin is not None:
        found.append(claim("the last checkpoint is durable", case.checkpoints.origin, 0.5))
    return _healthy(
        "Training finished before the errors; what follows is teardown noise."
        if noise
        else "Training finished.",
        tuple(found),
        "finished",
    )


def _ended_outside(case: Case) -> Hypothesis | None:
    """A time limit or preemption that comes first is the scheduler's doing, not a fault."""
    signs = case.signs_of(Sign.JOB_CANCELLED, Sign.PREEMPTION, Sign.AGENT_TOLD_TO_STOP)
    outside = [s for s in signs if is_outside(s.fact)]
    if not outside or case.timeouts:
        return None
    first = outside[0]
    earlier = [
        s
        for s in case.signs
        if s.fact.sign in OWN_CAUSES
        and not (s.fact.detail or "").startswith("effect")
        and _is_before(s, first)
    ]
    if earlier:
        return None
    return _healthy(
        f"The job was ended from outside ({first.fact.detail or first.fact.sign}); no fault is shown.",
        (
            about(
                first,
                f"told to stop{claims.when(first.at_ns)}: {first.fact.text[:120]}",
                claims.GOOD,
            ),
        ),
        "ended-outside",
    )


def _ended_by_scheduler(case: Case) -> Hypothesis | None:
    """Slurm's own word for the job: its time was up, it was preempted, or somebody cancelled it."""
    for job in case.scheduler_jobs:
        state = (job.state or "").upper()
        if (
            state.startswith(("TIMEOUT", "PREEMPTED", "CANCELLED", "DEADLINE"))
            and not case.timeouts
        ):
            return _healthy(
                f"The scheduler ended the job ({job.state}); no fault is shown.",
                (claim(f"job {job.job_id} is {job.state}", job.origin, claims.GOOD),),
                "ended-outside",
            )
    return None


def _is_before(one: PlacedSign, other: PlacedSign) -> bool:
    if one.at_ns is not None and other.at_ns is not None:
        return one.at_ns < other.at_ns
    mine, its = one.fact.origin, other.fact.origin
    return mine.path == its.path and (mine.line or 0) < (its.line or 0)


def _in_rhythm(case: Case) -> Hypothesis | None:
    """The last step is younger than the job's own rhythm, and the job is two steps old at least."""
    steps = case.steps
    if case.stop.state is not JobState.RUNNING or case.timeouts:
        return None
    if steps.count < 3 or steps.last_step_ns is None or case.as_of_ns is None:
        return None
    age = (case.as_of_ns - steps.last_step_ns) / NS
    interval = steps.interval_s or steps.step_s or 0.0
    if interval and age > max(pauses.RHYTHMS * interval, pauses.LEAST_RHYTHM_S):
        return None
    found = claim(
        f"step {steps.last_step} was printed {age:,.0f} s before the end of the evidence; the job"
        f" prints one each {interval:,.0f} s",
        steps.last_origin,
        claims.GOOD,
        at_ns=steps.last_step_ns,
    )
    return _runs(case, f"The job runs: step {steps.last_step}, {age:,.0f} s ago.", found)


def _in_a_pause(case: Case) -> Hypothesis | None:
    """No step within the rhythm, but something else that the job does, or a habit of pausing. Where no step
    has a date, a save that follows a completed one shows as well that the job gets on."""
    pause, steps, saved_ns = case.pause, case.steps, case.checkpoints.last_ns
    if pause is None or case.stop.state is not JobState.RUNNING or case.timeouts:
        return None
    if case.as_of_ns is None:
        return None
    if steps.last_step_ns is not None and steps.count >= 3:
        moved_ns, what = steps.last_step_ns, f"step {steps.last_step} was printed"
    elif steps.last_step_ns is None and pause.is_announced and saved_ns is not None:
        moved_ns, what = saved_ns, "the last checkpoint was complete"
    else:
        return None
    if any(s.fact.sign in OWN_CAUSES and (s.at_ns or 0) >= moved_ns for s in case.signs):
        return None
    ago = f"{what} {(case.as_of_ns - moved_ns) / NS:,.0f} s"
    found = claim(
        f"{pause.why}; {ago} before the end of the evidence, and no watchdog complains",
        pause.origin,
        claims.GOOD,
        at_ns=pause.since_ns,
    )
    return _runs(case, f"No fault is shown: {pause.why}. {ago[:1].upper()}{ago[1:]} ago.", found)


def _in_habit(case: Case) -> Hypothesis | None:
    """No step is printed, but a stream goes on in its own habit of writing and nothing complains."""
    if case.steps.count > 0 or case.timeouts or case.stop.stopped or case.as_of_ns is None:
        return None
    if any(s.fact.sign in OWN_CAUSES or s.fact.sign in TEARDOWN for s in case.signs):
        return None
    for writes in sorted(case.writes, key=lambda w: (-(w.last_ns or 0), w.path)):
        if writes.last_ns is None or writes.habit_s is None or writes.lines < 10:
            continue
        age = (case.as_of_ns - writes.last_ns) / NS
        if writes.habit_s > 0 and 0 <= age <= 2 * writes.habit_s:
            found = claim(
                f"{writes.path} was written {age:,.0f} s before the end of the evidence, as it is"
                f" each {writes.habit_s:,.0f} s",
                Origin(path=writes.path, line=writes.last_line),
                claims.GOOD - 0.4,
                at_ns=writes.last_ns,
            )
            return _runs(case, "The job goes on writing in its habit.", found)
    return None


def _runs(case: Case, summary: str, found: Claim) -> Hypothesis:
    """Where nobody told when the evidence was collected, it may have hung after its last line."""
    if case.is_as_of_told:
        return _healthy(summary, (found, *_nothing_else(case, found.origin)), "running")
    last = claims.when(case.as_of_ns).strip()
    return _healthy(
        f"The job ran {last}, where its evidence ends. Quiet since? Ask again with --as-of now.",
        (replace(found, weight=found.weight - claims.WEAK),),
        "running",
    )


def _nothing_else(case: Case, origin: Origin | None) -> Iterator[Claim]:
    """That nothing at all speaks of a fault, where that is so."""
    faults = any(x.relevant for x in case.xids) or any(h.relevant for h in case.hosts)
    slow = case.steps.after_s is not None or case.signs_of(Sign.SLOW_SECTION)
    if not faults and not slow and not case.signs_of(*OWN_CAUSES, *TEARDOWN):
        text = "no error, no fault of the hardware and no slower pace stands beside it"
        yield claim(text, origin, claims.WEAK)


def _dumps_in_order(case: Case) -> Hypothesis | None:
    graph = case.graph
    if graph is None or not graph.no_fault or case.timeouts:
        return None
    if len(graph.missing) > graph.dumps:  # most ranks have not been seen
        return None
    return _healthy(
        "The dumps show a job in mid-step: nothing has timed out and nobody is stuck.",
        tuple(claim(c.text, c.origin, claims.GOOD, rank=c.rank) for c in graph.no_fault_claims[:1]),
        "dumps",
    )
