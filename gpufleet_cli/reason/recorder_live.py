"""Dumps that were taken from a job that runs: what they show as waiting is a job in mid-step.

A recorder has no word for "just now": a snapshot of a healthy step has ranks that wait for others
everywhere. Where the log shows that the job went on until the evidence was taken, or why it pauses,
the waiting leads nowhere. One rank or one node that all others wait for in a pause is kept: a
pause does not explain why it alone is behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from gpufleet_cli.reason import pauses
from gpufleet_cli.reason.placed import NS, Pause, Steps
from gpufleet_cli.reason.recorder_finding import GraphClaim, GraphFinding, Stall, Terminal
from gpufleet_cli.reason.recorder_report import sentence

JUST_NOW_S = 30.0
FEW = 8  # an eighth of the ranks with a dump
SCATTERED, MOST_OF_ONE = 4, 0.5
CONVICTS = frozenset({Terminal.HOST_SILENT, Terminal.GPU_STALLED})


def in_a_running_job(
    graph: GraphFinding | None,
    steps: Steps,
    pause: Pause | None,
    taken_ns: int | None,
    timeout_s: float,
    newest_ns: Sequence[int] = (),
) -> GraphFinding | None:
    """The finding without its ends, where the job is known to run; else as it is. `taken_ns`: when
    the evidence was taken, None where nobody told or where watchdogs complained. `newest_ns` are the
    newest times of all dumps: a node's clock may be hours off."""
    if graph is None or graph.timed_out_origin is not None or graph.no_fault:
        return graph
    if taken_ns is not None and newest_ns:
        since = abs(taken_ns - median(newest_ns)) / NS
        if since <= min(JUST_NOW_S, pauses.NOTICED * timeout_s):
            text = f"most dumps hold operations of the last {since:,.0f} s before the evidence was taken"
            found = _in_order(graph, GraphClaim(text=f"{text}: a job in mid-step", origin=None))
            return replace(found, is_live=True)
    age, rhythm = pauses.age_s(steps, taken_ns), pauses.rhythm_s(steps)
    if age is None or rhythm is None:
        return graph
    if age <= min(rhythm, pauses.NOTICED * timeout_s):
        text = f"step {steps.last_step} was printed {max(0.0, age):,.0f} s before the evidence was taken"
        return _in_order(
            graph, GraphClaim(text=f"{text}: a job in mid-step", origin=steps.last_origin)
        )
    if pause is not None and not _singles_out(graph):
        text = f"no operation has timed out, and {pause.why}"
        return _in_order(graph, GraphClaim(text=text, origin=pause.origin))
    return graph


def is_scattered(graph: GraphFinding) -> bool:
    """Whether the waiting ends in many places that have nothing to do with one another, and nothing has
    timed out: a step that goes on, or a hang of what all share. One fault has one end, two have two."""
    ends = graph.roots
    if graph.timed_out_origin is not None or graph.mismatches or len(ends) < SCATTERED:
        return False
    is_circle = any(root.kind is Terminal.CYCLE for root in ends)
    return not is_circle and max(root.share for root in ends) <= MOST_OF_ONE


def without_ends(graph: GraphFinding) -> GraphFinding:
    """The finding with no end singled out: it neither shows a fault nor that there is none."""
    found = replace(graph, stall=Stall.NONE, roots=(), waiting=frozenset(), onset_ns=None)
    if graph.report is None:
        return found
    places = {root.waited_on.desc for root in graph.roots if root.waited_on.desc}
    of = f" of {', '.join(sorted(places))}" if places else ""
    text = (
        f"The waiting ends in {len(graph.roots)} places{of} that do not wait for one another, and nothing"
        " has timed out: a step that goes on, or a hang of what they share."
    )
    return replace(found, report=replace(graph.report, roots=(), finding=text))


def _singles_out(graph: GraphFinding) -> bool:
    """Few ranks that all others wait for. Where many GPUs are at work, each by itself, none is alone."""
    convicted = {rank for root in graph.roots if root.kind in CONVICTS for rank in root.ranks}
    return 0 < len(convicted) * FEW <= graph.dumps


def _in_order(graph: GraphFinding, why: GraphClaim) -> GraphFinding:
    found = replace(
        graph,
        stall=Stall.NONE,
        roots=(),
        mismatches=(),
        waiting=frozenset(),
        waited_on=None,
        onset_ns=None,
        no_fault=True,
        no_fault_claims=(why,),
        unsettled=(),
    )
    if graph.report is None:
        return found
    return replace(found, report=replace(graph.report, roots=(), finding=sentence(found)))
