"""Every action and every refusal leaves a line in a file, and an Event on the node.

The file is `gpufleet/audit.jsonl` in the user's state folder, one JSON object a line, only added to. It is
written before the Event, and both after the deed: neither can fail an action that was done.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Literal

import msgspec

from gpufleet_cli.live.api import Api
from gpufleet_cli.operate import writes
from gpufleet_cli.redact import redact
from gpufleet_cli.settings import keeps_state, state_folder
from gpufleet_cli.timestamps import format_ns

SCHEMA = "gpufleet.audit/v1"
EVENTS = "/api/v1/namespaces/default/events"
COMPONENT = "gpufleet"
MESSAGE_CHARS = 1024  # the API server's limit for an Event's message

Outcome = Literal["done", "refused", "failed", "unknown"]


class Deed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One action as it came out. `outcome` unknown: the server did not answer, and it may have been done."""

    verb: str
    outcome: Outcome
    why: str
    nodes: tuple[str, ...] = ()
    job: str | None = None
    namespace: str | None = None
    incident: str | None = None
    gpu_hours: float | None = None


class _Line(msgspec.Struct, kw_only=True, omit_defaults=True):
    at: str
    deed: Deed
    schema: str = SCHEMA
    context: str | None = None
    server: str | None = None
    user: str | None = None


def place() -> Path:
    return state_folder() / "audit.jsonl"


def record(api: Api, deed: Deed, say: Callable[[str], None], *, dry_run: bool = False) -> None:
    """Keep the deed; what could not be kept is said. A dry run did nothing, and leaves nothing."""
    if dry_run:
        return
    _to_file(api, deed, say)
    for node in deed.nodes:
        answer = api.write("POST", EVENTS, event_of(deed, node, at_ns=api.now_ns()))
        if not answer.ok:
            say(f"no Event on {node}: {writes.why_not(answer, 'create events')}")


def _to_file(api: Api, deed: Deed, say: Callable[[str], None]) -> None:
    if not keeps_state():
        return
    access = api.access
    line = _Line(
        at=format_ns(api.now_ns()),
        deed=msgspec.structs.replace(deed, why=redact(deed.why)),
        context=access.context,
        server=access.server,
        user=access.user,
    )
    path = place()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # One write to a file opened for appending: lines of two runs never mix.
        opened = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(opened, msgspec.json.encode(line) + b"\n")
        finally:
            os.close(opened)
    except OSError as exc:
        say(f"no line in the audit log {path}: {(exc.strerror or 'not written').lower()}")


def event_of(deed: Deed, node: str, *, at_ns: int) -> dict[str, object]:
    """The Event of a deed on one node, as kubelets write theirs: a node's Event lives in `default`."""
    moment = format_ns(at_ns - at_ns % 1_000_000_000)
    tag = sha256(f"{node}\n{at_ns}\n{deed.verb}".encode()).hexdigest()[:16]
    reason = "".join(word.capitalize() for word in deed.verb.split("-"))
    told = {"done": "", "refused": "Refused", "failed": "Failed", "unknown": "NotConfirmed"}
    what = f" of {deed.namespace}/{deed.job}" if deed.job else ""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"gpufleet.{tag}", "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": node, "uid": node, "apiVersion": "v1"},
        "reason": f"Gpufleet{reason}{told[deed.outcome]}",
        "message": redact(f"{deed.verb}{what}: {deed.why}")[:MESSAGE_CHARS],
        "type": "Normal" if deed.outcome == "done" else "Warning",
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }
