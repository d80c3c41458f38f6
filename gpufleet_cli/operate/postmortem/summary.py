"""The three lines for a director: what happened, what it cost and how fast it was seen, what comes next."""

from __future__ import annotations

from collections.abc import Sequence

from gpufleet_cli.postmortem_card import BillLine, Lacking, Times
from gpufleet_cli.reason.placed import NS
from gpufleet_cli.render.layout import counted, date_clock, duration, gpu_hours
from gpufleet_cli.spec_check import Preflight
from gpufleet_cli.triage import Inquiry
from gpufleet_cli.verdict import Action, JobState, Kind, Triage


def summary(
    found: Inquiry,
    told: Times,
    spent: Sequence[BillLine],
    specs: Preflight | None,
    lacks: Sequence[Lacking],
) -> tuple[str, str, str]:
    """Each line stands by itself; what is not known is said."""
    return _what(found.triage, told), _price(found, told, spent), _next(found.triage, specs, lacks)


def _what(triage: Triage, told: Times) -> str:
    job = triage.job
    size = "" if job.world_size is None else f" ({counted(job.world_size, 'GPU')}"
    if size:
        size += f" on {counted(job.nodes, 'node')})" if job.nodes else ")"
    name = job.name or triage.target_name or "The job"
    when = "" if told.first_cause.at_ns is None else f" on {date_clock(told.first_cause.at_ns)} UTC"
    verb = {
        JobState.RUNNING: "ran on with a fault",
        JobState.STALLED: "stalled",
        JobState.ABORTED: "stopped",
        JobState.EXITED: "ended",
        JobState.UNKNOWN: "is not known to have stopped",
    }[job.state]
    if triage.verdict.kind is Kind.HEALTHY:
        verb = "was well"
    elif job.state is JobState.RUNNING and told.first_cause.at_ns is None:
        verb = "ran"
    elif job.state is JobState.RUNNING and triage.verdict.kind is Kind.UNDECIDABLE:
        verb = "ran on, perhaps with a fault,"
    return f"{name}{size} {verb}{when}. {triage.verdict.summary}"


def _price(found: Inquiry, told: Times, spent: Sequence[BillLine]) -> str:
    advice = found.triage.recommendation
    if advice.lost_gpu_hours is None:
        cost = "What it cost is not known"
        if not found.case.stop.stopped:
            cost = "The job is not known to have stopped, so nothing is counted as lost"
    else:
        parts = [
            (advice.lost_waiting_gpu_hours, "while the GPUs did nothing"),
            (advice.lost_recompute_gpu_hours, "of work to be done again"),
        ]
        known = [(value, words) for value, words in parts if value is not None]
        each = [f"{gpu_hours(value)} {words}" for value, words in known]
        cost = f"It cost {gpu_hours(advice.lost_gpu_hours)}"
        cost += f": {' and '.join(each)}" if len(known) > 1 else f" {known[0][1]}" if known else ""
    return f"{cost}. {_speed(told)}"


def _speed(told: Times) -> str:
    first = told.first_cause.at_ns
    if first is None:
        return f"{told.first_cause.why[:1].upper()}{told.first_cause.why[1:]}."
    said = []
    if told.detected.at_ns is not None:
        late = (told.detected.at_ns - first) / NS
        said.append(
            "it could be seen at once" if late < 1 else f"it could be seen after {duration(late)}"
        )
    if told.ended_ns is not None and told.ended_ns >= first:
        said.append(f"the job had ended after {duration((told.ended_ns - first) / NS)}")
    if told.recovered.at_ns is None:
        said.append(f"recovery: {told.recovered.why}")
    else:
        said.append(f"it worked again after {duration((told.recovered.at_ns - first) / NS)}")
    text = ", ".join(said)
    return f"{text[:1].upper()}{text[1:]}."


def _next(triage: Triage, specs: Preflight | None, lacks: Sequence[Lacking]) -> str:
    advice = triage.recommendation
    nodes = ", ".join(advice.nodes[:4])
    act = {
        Action.EVICT_NOW: f"Take {nodes or 'the node'} out and start again from the checkpoint elsewhere",
        Action.CORDON_AT_CHECKPOINT: f"Cordon {nodes or 'the node'} now, take it out at the next checkpoint",
        Action.RESTART_JOB: "Restart the job: no node is to blame",
        Action.FIX_CODE: "Mend the code or its settings before a restart: it would fail again",
        Action.WATCH: "Watch it: nothing calls for more",
        Action.NONE: "Nothing is to be done",
        Action.COLLECT_MORE: f"Not decided. This would settle it: {triage.verdict.would_settle or 'more evidence'}",
    }[advice.action]  # fmt: skip
    sure = f" (confidence {triage.verdict.confidence:.2f})"
    stand = [] if specs is None else [f for f in specs.findings if f.severity != "info"]
    after = []
    if stand:
        after.append(f"{counted(len(stand), 'setting')} of the job would make the next one dearer")
    if lacks:
        after.append(f"{counted(len(lacks), 'piece')} of evidence {'was' if len(lacks) == 1 else 'were'} missing")  # fmt: skip
    rest = f" Before the next one: {' and '.join(after)} (see below)." if after else ""
    return f"{act}{sure}.{rest}"
