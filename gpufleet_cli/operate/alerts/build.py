"""From the numbers of a job to its rules."""

from __future__ import annotations

from collections.abc import Sequence

from gpufleet_cli.alert_card import AlertGroup, AlertRules, Known
from gpufleet_cli.operate.alerts import gpu, training, xid
from gpufleet_cli.operate.alerts.numbers import Numbers

INTERVAL_S = 30
"""A fatal XID is to be told within two minutes, of which the scrape may take one."""


def build(numbers: Numbers, known: Sequence[Known]) -> AlertRules:
    """The whole file: what the job says, and what its GPUs and nodes say."""
    space = f"{numbers.namespace}." if numbers.namespace is not None else ""
    return AlertRules(
        job=numbers.job,
        namespace=numbers.namespace,
        known=tuple(known),
        groups=(
            AlertGroup(
                name=f"gpufleet.{space}{numbers.job}.job",
                interval_s=INTERVAL_S,
                rules=tuple(training.rules(numbers)),
            ),
            AlertGroup(
                name=f"gpufleet.{space}{numbers.job}.gpus",
                interval_s=INTERVAL_S,
                rules=(*gpu.rules(numbers), *xid.rules(numbers)),
            ),
        ),
    )
