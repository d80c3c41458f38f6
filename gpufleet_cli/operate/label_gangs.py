"""Marks on nodes as they should be: read, compare, and one patch for each node that differs.

A patch carries the resourceVersion that was read. Who was overtaken reads the node again and decides anew,
three times at most; a right that is missing or a server that is lost ends the run for all nodes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from gpufleet_cli.live import held_look, threads
from gpufleet_cli.live.answers import Answer
from gpufleet_cli.live.held_look import Held, NodeMeta
from gpufleet_cli.live.node_look import NODES
from gpufleet_cli.mark_card import NOT_ASKED, Came, MarkRun, NodeChange
from gpufleet_cli.operate import audit, gang_marks, writes
from gpufleet_cli.operate.audit import Deed
from gpufleet_cli.operate.gang_marks import Change, Mark
from gpufleet_cli.operate.writes import Writer

VERB = "label-gangs"
IN_FLIGHT = 16
MOST_TRIES = 4
MOST_WAIT_S = 10.0
_OUTCOMES: Mapping[Came, audit.Outcome] = {
    "done": "done", "overtaken": "failed", "refused": "failed", "unknown": "unknown",
}  # fmt: skip
_WORDS = {"mark": "marked", "change": "marked anew", "clear": "mark taken away"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What each node is to carry, and of which namespaces that is known."""

    marks: Mapping[str, Mark]
    spaces: frozenset[str] | None
    removes: bool

    def change(self, meta: NodeMeta) -> Change | None:
        mark = None if self.removes else self.marks.get(meta.name)
        return gang_marks.change(meta.name, meta.labels, meta.annotations, mark, spaces=self.spaces)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    writer: Writer
    plan: _Plan
    say: Callable[[str], None]
    stopped: threading.Event = field(default_factory=threading.Event)
    first: threading.Lock = field(default_factory=threading.Lock)
    """Whoever takes it was the first that the server stopped: the others have nothing to add."""


def label(writer: Writer, held: Held, say: Callable[[str], None]) -> MarkRun:
    """Mark the nodes that hold a gang, and take away the marks of gangs that are gone."""
    marks = gang_marks.wanted(held.gangs)
    plan = _Plan(marks=marks, spaces=held.spaces, removes=False)
    return _made(_Run(writer=writer, plan=plan, say=say), held)


def remove(writer: Writer, namespace: str | None, say: Callable[[str], None]) -> MarkRun:
    """Take all marks away, or those of one namespace's gangs."""
    spaces = None if namespace is None else frozenset({namespace})
    plan = _Plan(marks={}, spaces=spaces, removes=True)
    return _made(_Run(writer=writer, plan=plan, say=say), Held(gangs=(), spaces=spaces))


def _made(run: _Run, held: Held) -> MarkRun:
    api = run.writer.api
    nodes = held_look.nodes(api)
    asked = [(meta, one) for meta in nodes.values() if (one := run.plan.change(meta)) is not None]
    done = threads.each(
        lambda task: _changed(run, *task), asked, threads=IN_FLIGHT, deadline=api.deadline
    )
    results = {one.node: one for _, one in done}
    late = (
        NodeChange(
            node=meta.name, action=one.action, job=one.job, came="unknown",
            why="the deadline came first",
        )
        for meta, one in asked
        if meta.name not in results
    )  # fmt: skip
    left = _left(nodes.values(), run.plan)
    return MarkRun(
        gangs=len(held.gangs),
        nodes=len(run.plan.marks),
        others=held.others,
        changes=tuple(sorted((*results.values(), *late), key=lambda one: one.node)),
        unchanged=len(nodes) - len(asked) - left,
        left=left,
        dry_run=run.writer.dry_run,
        missing=held.missing,
    )


def _left(nodes: Iterable[NodeMeta], plan: _Plan) -> int:
    """Nodes whose mark would be another one if all namespaces had been looked at."""
    if plan.spaces is None:
        return 0
    whole = _Plan(marks=plan.marks, spaces=None, removes=plan.removes)
    return sum(whole.change(meta) is not None and plan.change(meta) is None for meta in nodes)


# --- One node -------------------------------------------------------------------------------------


def _changed(run: _Run, meta: NodeMeta, first: Change) -> NodeChange:
    """The change made, recorded, and how it came out."""
    came, why, change = _written(run, meta, first)
    outcome = _OUTCOMES.get(came)
    if outcome is not None and why != NOT_ASKED:
        _record(run, change, outcome, why)
    return NodeChange(node=change.node, action=change.action, job=change.job, came=came, why=why)


def _written(run: _Run, meta: NodeMeta, change: Change) -> tuple[Came, str, Change]:
    api = run.writer.api
    for _ in range(MOST_TRIES):
        if run.stopped.is_set():
            return "unknown", NOT_ASKED, change
        path = f"{NODES}/{meta.name}"
        answer = run.writer.patch(path, {"metadata": change.patch}, version=meta.resourceVersion)
        if answer.ok:
            return "done", "", change
        if answer.status == 404:
            return "gone", "the node is gone", change
        if answer.status == 429:
            api.deadline.pause(min(writes.wait_s(answer), MOST_WAIT_S))
            continue
        if not writes.is_conflict(answer):
            return *_ended(run, answer), change
        again = held_look.node(api, meta.name)
        if again is None or again.uid != meta.uid:
            return "gone", "the node is gone, or another one has its name", change
        decided = run.plan.change(again)
        if decided is None:
            return "not-needed", "it is so by now", change
        meta, change = again, decided
    return "overtaken", "others wrote to the node each time", change


def _ended(run: _Run, answer: Answer) -> tuple[Came, str]:
    """A refusal or a silence; where it would be the same for every other node, the run ends."""
    if answer.status in (0, 401, 403):
        run.stopped.set()
        if not run.first.acquire(blocking=False):
            return "unknown", NOT_ASKED
    why = writes.why_not(answer, "patch nodes")
    return ("unknown" if answer.status == 0 else "refused"), why


def _record(run: _Run, change: Change, outcome: audit.Outcome, why: str) -> None:
    """A line in the audit log, and an Event on the node; where we may not even patch it, the line alone."""
    namespace, _, rest = change.job.partition(",")[0].partition("/")
    done = f"{_WORDS[change.action]}: {change.job}"
    deed = Deed(
        verb=VERB,
        outcome=outcome,
        why=done if outcome == "done" else f"not {done}: {why}",
        nodes=() if run.stopped.is_set() and outcome != "done" else (change.node,),
        job=rest.rpartition("/")[2] or None,
        namespace=namespace or None,
    )
    audit.record(run.writer.api, deed, run.say, dry_run=run.writer.dry_run)
