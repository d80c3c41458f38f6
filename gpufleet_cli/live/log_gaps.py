"""Logs that did not come: a gap each in the manifest, and what the kubelets' silence says as a file of evidence.

The file is read back by `parsers.log_reads`, so that a saved bundle weighs a silent kubelet as a live look does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from gpufleet_cli.live.answers import NODE_EVIDENCE, REPLIED, LogRead
from gpufleet_cli.live.bundle_writer import BundleWriter, stamp
from gpufleet_cli.live.log_tasks import LogTask
from gpufleet_cli.live.troubles import NO_KUBELET
from gpufleet_cli.parsers import json_documents as js
from gpufleet_cli.parsers.log_reads import SCHEMA, is_way_at_fault

READS_FILE = "kubernetes/log_reads.json"
MOST_READS = 50_000
SETTLES = "its last lines"


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """A log that did not come: what the answer means, that for a person, and the API server's words."""

    what: LogRead
    why: str
    said: str = ""
    asked_ns: int | None = None
    is_untold: bool = False
    """No answer came at all: the API server itself may be the one that is silent."""


def report(missed: Mapping[LogTask, Missed], had: Sequence[LogTask], sink: BundleWriter) -> None:
    """Gaps, and the file where a kubelet was silent or was so when the bundle was begun."""
    replied = {task.node for task in had if task.node is not None}
    replied |= {
        task.node for task, one in missed.items() if one.what in REPLIED and task.node is not None
    }
    silent = {
        task.node
        for task, one in missed.items()
        if one.what in NODE_EVIDENCE and task.node is not None and task.node not in replied
    }
    for task, one in missed.items():
        if one.what is not LogRead.NO_PREVIOUS:  # normal
            sink.gap(task.shown, _why(task, one, silent, replied), SETTLES)
    _write(missed, replied, sink)


def _why(task: LogTask, one: Missed, silent: set[str], replied: set[str]) -> str:
    """Where no kubelet at all answers, the way to the nodes is at fault and not they."""
    if one.what not in NODE_EVIDENCE or task.node is None:
        return one.why
    if task.node in replied:
        return f"{one.why} (node {task.node} answered for other logs)"
    if not is_way_at_fault(len(silent), len(replied)):
        return f"{one.why} (node {task.node}: evidence about the node)"
    if len(silent) == 1:
        return f"{one.why} (only node {task.node} was asked: it, or the way to it)"
    return f"{one.why} ({NO_KUBELET})" if not replied else f"{one.why} (most nodes do not: the way)"


def _write(missed: Mapping[LogTask, Missed], replied: set[str], sink: BundleWriter) -> None:
    reads = [
        {
            "pod": task.pod,
            "namespace": task.namespace,
            "container": task.container,
            "node": task.node,
            "at": stamp(one.asked_ns),
            "said": one.said,
        }
        for task, one in sorted(missed.items(), key=lambda pair: pair[0].path)
        if one.what in NODE_EVIDENCE and task.node is not None
    ]
    before = _silent_before(sink) if _is_taken_up(sink) else []
    asked = {str(read["node"]) for read in reads} | replied
    kept = [read for read in before if js.text_at(read, "node") not in asked]
    if reads or _is_taken_up(sink):
        document = {
            "schema": SCHEMA,
            "replied": sorted(replied),
            "silent": [*reads, *kept][:MOST_READS],
        }
        sink.add_document(READS_FILE, document)


def _is_taken_up(sink: BundleWriter) -> bool:
    known = sink.before.get("files")
    return isinstance(known, dict) and READS_FILE in known


def _silent_before(sink: BundleWriter) -> list[object]:
    """The silent reads of the run that began this bundle; a node that was not asked again keeps its own."""
    try:
        return js.items(js.at(msgspec.json.decode(sink.read(READS_FILE)), "silent"))
    except (OSError, ValueError):
        return []
