"""From the numbers of a job to its rules."""

from __future__ import annotations

from collections.abc import Sequence

from gpufleet_cli.alert_card import AlertGroup, AlertRules, Known
from gpufleet_cli.operate.alerts import gpu, training, xid
from gpufleet_cli.operate.alerts.numbers import Numbers

SOON_S, LATER_S = 30, 60
"""A fatal XID is to be told within two minutes, of which the scrape may take one; a reading has time."""


def build(numbers: Numbers, known: Sequence[Known]) -> AlertRules:
    """The whole file: what the job says, what its GPUs and nodes say, and their XIDs."""
    space = f"{numbers.namespace}." if numbers.namespace is not None else ""
    groups = (
        ("job", SOON_S, training.rules(numbers)),
        ("gpus", LATER_S, gpu.rules(numbers)),
        ("xids", SOON_S, xid.rules(numbers)),
    )
    return AlertRules(
        job=numbers.job,
        namespace=numbers.namespace,
        known=tuple(known),
        groups=tuple(
            AlertGroup(
                name=f"gpufleet.{space}{numbers.job}.{name}",
                interval_s=interval_s,
                rules=tuple(rules),
            )
            for name, interval_s, rules in groups
        ),
    )
