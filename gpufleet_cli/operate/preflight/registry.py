"""The rules by theme. To add one: a `Rule` in a theme's `RULES`; to add a theme: a line here."""

from __future__ import annotations

from gpufleet_cli.operate.preflight import (
    checkpoints,
    disruption,
    logs,
    network,
    ranks,
    recorder,
    resources,
    restarts,
    scheduling,
    supply,
)
from gpufleet_cli.operate.preflight.model import Rule

THEMES: tuple[tuple[str, tuple[Rule, ...]], ...] = (
    ("Restarts and retries", restarts.RULES),
    ("Recorder", recorder.RULES),
    ("Logs and what deletes them", logs.RULES),
    ("Resources", resources.RULES),
    ("Network", network.RULES),
    ("Scheduling", scheduling.RULES),
    ("Disruption", disruption.RULES),
    ("Checkpoints", checkpoints.RULES),
    ("How ranks are started", ranks.RULES),
    ("Code, secrets, images", supply.RULES),
)
RULES: tuple[Rule, ...] = tuple(rule for _, rules in THEMES for rule in rules)
