"""How an eviction looks, as text and as JSON (`gpufleet.evict/v1`)."""

from __future__ import annotations

import json

from gpufleet_cli.evict_card import EvictCard
from gpufleet_cli.plain_text import visible
from gpufleet_cli.render.clean import clean

SCHEMA = "gpufleet.evict/v1"


def evict_text(card: EvictCard) -> str:
    """What was done; a refusal or a failure has its line on standard error."""
    return "".join(f"{visible(line)}\n" for line in card.lines)


def evict_json(card: EvictCard) -> str:
    """One document, whatever came of it."""
    one = clean(card)
    job = {"kind": one.kind, "name": one.name, "namespace": one.namespace}
    found = {
        "schema": SCHEMA,
        "outcome": one.outcome,
        "why": one.why,
        "exit_code": one.code,
        "dry_run": one.dry_run,
        "job": None if one.name is None else job,
        "node": one.node,
        "state": one.state,
        "state_why": one.state_why,
        "means": one.means,
        "gpu_hours": one.gpu_hours,
        "evicted": list(one.evicted),
        "standing": list(one.standing),
        "bundle": one.bundle,
        "attempt_token": one.attempt_token,
        "commands": [{"run": run, "does": does} for does, run in one.commands],
    }
    return json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
