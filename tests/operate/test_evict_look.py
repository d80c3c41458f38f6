"""What is made of a look before a job that runs is stopped: which XIDs count, and which given numbers."""

from __future__ import annotations

from dataclasses import replace

import builders
import pytest

from gpufleet_cli.facts import Origin
from gpufleet_cli.operate.evict_look import _doubt
from gpufleet_cli.verdict import Ground, HardwareEvent

OWN = "namespaces/train/pods/run-1/trainer/trainer/logs/current.log"


def seen(xid: int, path: str, role: str = "cause") -> HardwareEvent:
    return HardwareEvent(
        at_ns=1, node="node-1", gpu=None, xid=xid, meaning="", role=role,  # type: ignore[arg-type]
        origin=Origin(path=path),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("events", "ground", "is_doubted"),
    [
        ([seen(95, OWN)], "corrupt", True),
        ([seen(95, "dumps/run-1/rank_2")], "corrupt", True),
        ([seen(95, "kernel/node-1.log")], "corrupt", False),
        ([seen(95, "metrics/xid-0001.json"), seen(95, OWN)], "corrupt", False),
        ([seen(63, "metrics/xid-0001.json"), seen(95, OWN)], "corrupt", True),
        ([seen(63, "metrics/xid-0001.json"), seen(95, OWN, "unrelated")], "corrupt", True),
        ([seen(63, "metrics/xid-0001.json")], "slowed", False),
        ([seen(63, OWN)], "slowed", True),
        ([], "slowed", False),
    ],
)
def test_an_xid_stops_a_running_job_where_its_node_tells_of_it(
    events: list[HardwareEvent], ground: Ground, is_doubted: bool
) -> None:
    """Its own log and what lies among its dumps it wrote itself; a harmless code of the node vouches for no other."""
    told = replace(builders.triage(), hardware=tuple(events))
    assert is_doubted is bool(_doubt(told, ground))
