"""Short makers of incidents for the tests of the history."""

from __future__ import annotations

from typing import Any

import msgspec

from gpufleet_cli.history.record import DAY_NS, HOUR_NS, Incident, with_id

NOW_NS = 20_500 * DAY_NS


def incident(days_ago: float = 1.0, node: str | None = "gpu-1", **more: Any) -> Incident:
    """A fault of a node's hardware that stopped the job `train`, unless told otherwise."""
    at_ns = NOW_NS - round(days_ago * DAY_NS)
    made: dict[str, Any] = {
        "id": "0" * 16,
        "kind": "hardware",
        "at_ns": at_ns,
        "began_ns": at_ns,
        "as_of_ns": at_ns + HOUR_NS // 6,
        "job": "train",
        "namespace": "ml",
        "attempt": 0,
        "state": "aborted",
        "remedy": "node",
        "action": "evict-now",
        "confidence": 0.9,
        "facts": 100,
        "nodes": () if node is None else (node,),
    }
    return with_id(Incident(**{**made, **more}))


def changed(one: Incident, **more: Any) -> Incident:
    """The same incident, known otherwise."""
    return msgspec.structs.replace(one, **more)
