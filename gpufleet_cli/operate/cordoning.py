"""Cordon and uncordon on a cluster: read, ask the guard, one patch; read again where somebody was first.

The patch holds `spec.unschedulable` and all four annotations, and carries the resourceVersion that the guard
judged: of two engineers one wins, and the other's next read finds a cordon. A kubelet's heartbeat changes the
resourceVersion too, so a conflict means a new look and no more. A patch without an answer is told from one
that came about by reading again.
"""

from __future__ import annotations

import getpass
import os
import random
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from gpufleet_cli.errors import GpufleetError, SourceError, TargetError, UsageError
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.kinds import Object
from gpufleet_cli.live.node_look import NODES
from gpufleet_cli.operate import cordon_facts, cordon_guard, writes
from gpufleet_cli.operate.audit import Deed, Outcome, record
from gpufleet_cli.operate.cordon_facts import AT, BY, INCIDENT, KEYS, REASON, CordonFacts, Marks
from gpufleet_cli.operate.rulings import Ruling, go, no
from gpufleet_cli.operate.writes import Writer
from gpufleet_cli.parsers import json_documents as js
from gpufleet_cli.plain_text import is_name, visible
from gpufleet_cli.redact import redact
from gpufleet_cli.timestamps import format_ns

MOST_TRIES = 8
MOST_REASON = 1024
Guard = Callable[[CordonFacts, str], Ruling]
"""(the node now, its uid as first read) -> may the change be written?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """How it came out for one node. `wrote`: our patch changed it (or would have, in a dry run).

    `failed` is a right, a server or a node that is missing: exit 4.
    """

    node: str
    ruling: Ruling
    wrote: bool = False
    failed: GpufleetError | None = None
    facts: CordonFacts | None = None


def node_name(typed: str) -> str:
    """A node's name as typed, also `node/NAME`; UsageError for what cannot be one (it goes into a path)."""
    name = typed.removeprefix("node/")
    if not is_name(name) or "+" in name or "_" in name:
        raise UsageError(f"{visible(typed)!r} cannot be a node's name")
    return name


def reason_of(text: str) -> str:
    """The reason as it is kept: one line, no secret in it."""
    reason = " ".join(redact(text).split())
    if not reason or not reason.isprintable():
        raise UsageError("--reason is empty", hint="gpufleet cordon NODE --reason 'XID 79'")
    if len(reason) > MOST_REASON:
        raise UsageError(f"--reason has {len(reason):,} characters; {MOST_REASON:,} are kept")
    return reason


def incident_of(text: str | None) -> str | None:
    """The incident's id as it is kept."""
    if text is None:
        return None
    found = " ".join(redact(text).split())
    if not found or not found.isprintable() or len(found) > MOST_REASON:
        raise UsageError("--incident is no id", hint="--incident INC-42")
    return found


def owner_of(api: Api, stated: str | None) -> str:
    """Who cordons: the settings' `owner`, else the kubeconfig's user, with the person at this machine."""
    try:
        person = getpass.getuser()
    except (KeyError, OSError):  # no such user in this container
        person = f"uid-{os.getuid()}"
    owner = stated or api.access.user or person
    return f"{owner} ({person}@{socket.gethostname()})"


def marks(api: Api, *, owner: str, reason: str, incident: str | None) -> Marks:
    """What is written, to the microsecond by the server's clock."""
    now_ns = api.now_ns()
    return Marks(by=owner, at=format_ns(now_ns - now_ns % 1000), reason=reason, incident=incident)


def read(api: Api, node: str) -> Object:
    """The node as it is now. TargetError where there is none, SourceError where it cannot be read."""
    answer = api.get(f"{NODES}/{node}", kind="nodes", tries=3)
    if answer.status == 404:
        raise TargetError(f"no node {node} in {api.access.context or api.access.server}",
                          hint="gpufleet nodes lists them")  # fmt: skip
    if not answer.ok:
        why = "not allowed (get on nodes)" if answer.status == 403 else answer.message
        raise SourceError(f"node {node} could not be read: {why}")
    try:
        return js.mapping(msgspec.json.decode(answer.body))
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise SourceError(f"node {node} could not be read: no JSON came") from None


def cordon(writer: Writer, node: str, wanted: Marks) -> Done:
    """Make it unschedulable and put it into the queue."""
    change = {
        "spec": {"unschedulable": True},
        "metadata": {"annotations": {BY: wanted.by, AT: wanted.at, REASON: wanted.reason,
                                     INCIDENT: wanted.incident}},
    }  # fmt: skip

    def guard(facts: CordonFacts, first_uid: str) -> Ruling:
        return cordon_guard.may_cordon(facts, reason=wanted.reason, first_uid=first_uid)

    def came_about(facts: CordonFacts) -> bool:
        return facts.is_cordoned and facts.marks == wanted

    return _change(writer, node, change, guard, came_about)


def release(writer: Writer, node: str, guard: Guard) -> Done:
    """Undo our cordon: schedulable again, and every annotation that cordoning wrote is gone."""
    change = {
        "spec": {"unschedulable": None},
        "metadata": {"annotations": dict.fromkeys(KEYS)},
    }

    def came_about(facts: CordonFacts) -> bool:
        return not facts.is_cordoned and facts.marks is None

    return _change(writer, node, change, guard, came_about)


def _change(
    writer: Writer,
    node: str,
    change: Mapping[str, object],
    guard: Guard,
    came_about: Callable[[CordonFacts], bool],
) -> Done:
    """Read, judge, patch; again after a conflict. Whatever fails is told in `failed`."""
    first_uid: str | None = None
    unsure = ""
    facts: CordonFacts | None = None
    for turn in range(MOST_TRIES):
        try:
            facts = cordon_facts.read(read(writer.api, node))
        except (SourceError, TargetError) as exc:
            return failed(node, _unsure(exc, unsure))
        first_uid = facts.uid if first_uid is None else first_uid
        if unsure and came_about(facts):
            return Done(node=node, ruling=_found_again(unsure), wrote=True, facts=facts)
        ruling = guard(facts, first_uid)
        if not ruling.goes:
            return Done(node=node, ruling=ruling, facts=facts)
        answer = writer.patch(f"{NODES}/{node}", change, version=facts.version)
        if answer.ok:
            return Done(node=node, ruling=ruling, wrote=True, facts=facts)
        if answer.status == 0 or answer.status >= 500:
            unsure = answer.message
        elif answer.status == 429:
            writer.api.deadline.pause(writes.wait_s(answer))
        elif not writes.is_conflict(answer):
            why = writes.why_not(answer, "patch nodes")
            return failed(node, SourceError(f"{node}: nothing was changed: {why}"))
        writer.api.deadline.pause(random.uniform(0.02, 0.1) * (turn + 1))
    if unsure:
        return failed(node, _unsure(SourceError(f"{node}: {unsure}"), unsure))
    told = f"somebody else changed it each of {MOST_TRIES} times between our look and our patch"
    return Done(node=node, ruling=no(told, instead="run it again"), facts=facts)


def _found_again(unsure: str) -> Ruling:
    """The patch whose answer was lost came about all the same."""
    return go(f"its answer was lost ({unsure}), but a new look finds it done")


def _unsure(exc: GpufleetError, unsure: str) -> GpufleetError:
    if not unsure:
        return exc
    return SourceError(f"{exc.message}; our patch may have come about or not ({unsure})",
                       hint="run it again: it finishes what was begun")  # fmt: skip


def failed(node: str, exc: GpufleetError) -> Done:
    """A right, a server or a node that is missing."""
    return Done(node=node, ruling=no(exc.message), failed=exc)


def keep(
    api: Api, verb: str, came: Done, say: Callable[[str], None], *, dry_run: bool, why: str,
    incident: str | None = None,
) -> None:  # fmt: skip
    """One line in the audit log and one Event, unless there was nothing to do."""
    if came.ruling.answer == "done" or isinstance(came.failed, TargetError):
        return  # nothing to do, or no node to keep an Event of
    outcome: Outcome = "done" if came.wrote else "refused"
    if came.failed is not None:
        outcome = "unknown" if "may have come about" in came.failed.message else "failed"
    deed = Deed(verb=verb, outcome=outcome, why=why, nodes=(came.node,), incident=incident)
    record(api, deed, say, dry_run=dry_run)
