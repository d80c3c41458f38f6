"""Slurm's `--json` answers: scontrol, squeue and sacct share their shape, not their details.

    {"jobs": [{"job_id": 418822, "name": "train", "job_state": ["NODE_FAIL"], "nodes": "gpu-[1-2]",
               "end_time": {"set": true, "number": 1739852575}}], "meta": {"slurm": {...}}}

States are a word or a list of words, numbers are plain or {"set", "infinite", "number"}; times are
Unix seconds. Data parsers 0.0.37 to 0.0.42.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpufleet_cli import timestamps
from gpufleet_cli.errors import ParseError
from gpufleet_cli.facts import Fact, Gap, Origin, SchedulerJob, SchedulerNode
from gpufleet_cli.parsers import json_documents as js
from gpufleet_cli.parsers.host_list import expand_host_list
from gpufleet_cli.parsers.slurm_states import ENDED

_HEAD = re.compile(
    rb'"(?:job_id|job_state|slurmd_start_time|state_flags|reason_changed_at)"\s{0,4}:'
)


def matches(head: bytes) -> bool:
    """A JSON object with keys that only Slurm writes."""
    start = head.lstrip()[:1]
    return start == b"{" and _HEAD.search(head) is not None and b'"apiVersion"' not in head[:4096]


def parse(data: bytes, path: str) -> Iterator[Fact]:
    """Jobs and nodes of one answer."""
    try:
        document = next(js.documents(data), None)
        jobs, nodes = js.items(js.at(document, "jobs")), js.items(js.at(document, "nodes"))
    except ParseError:
        jobs, nodes = js.salvage(data, "jobs"), []
        if not jobs:
            raise
    for index, job in enumerate(jobs):
        yield from _job(job, Origin(path=path, entry=index))
    for index, node in enumerate(nodes):
        name = js.text_at(node, "name")
        if name is not None:
            yield SchedulerNode(
                name=name,
                state="+".join(_words(js.at(node, "state"))) or "UNKNOWN",
                reason=js.text_at(node, "reason"),
                since_ns=_time(js.at(node, "reason_changed_at")),
                origin=Origin(path=path, entry=index),
            )


def _job(job: object, origin: Origin) -> Iterator[Fact]:
    number = js.integer(js.at(job, "job_id"))
    if number is None:
        return
    states = _words(js.at(job, "job_state")) or _words(js.at(job, "state", "current"))
    text = js.text_at(job, "nodes") or js.text_at(job, "job_resources", "nodes") or ""
    names: tuple[str, ...] = ()
    try:
        names = expand_host_list(text)
    except ParseError as exc:
        yield Gap(what="the nodes of a Slurm job", why=exc.message, origin=origin)
    has_ended = bool(states) and states[0] in ENDED
    end = _time(js.at(job, "end_time")) or _time(js.at(job, "time", "end"))
    reason = js.text_at(job, "state_reason") or js.text_at(job, "state", "reason")
    yield SchedulerJob(
        job_id=str(number),
        name=js.text_at(job, "name"),
        state="+".join(states) or None,
        reason=None if reason == "None" else reason,
        exit_code=_exit_code(js.at(job, "exit_code")),
        nodes=names,
        started_ns=_time(js.at(job, "start_time")) or _time(js.at(job, "time", "start")),
        ended_ns=end if has_ended else None,
        batch_host=js.text_at(job, "batch_host"),
        tasks=_number(js.at(job, "tasks")),
        origin=origin,
    )


def _words(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [word for word in js.items(value) if isinstance(word, str)]


def _number(value: object) -> int | None:
    if isinstance(value, dict):
        return js.integer(value.get("number")) if value.get("set", True) is True else None
    return js.integer(value)


def _time(value: object) -> int | None:
    seconds = _number(value)
    return timestamps.from_epoch(seconds) if seconds else None


def _exit_code(value: object) -> str | None:
    """`0:9`, as the text commands print it."""
    if isinstance(value, dict):
        code = _number(value.get("return_code"))
        signal = _number(js.at(value, "signal", "id")) or _number(
            js.at(value, "signal", "signal_id")
        )
        return None if code is None and signal is None else f"{code or 0}:{signal or 0}"
    raw = js.integer(value)
    return None if raw is None or raw < 0 else f"{raw >> 8 & 0xFF}:{raw & 0x7F}"
