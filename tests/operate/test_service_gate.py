"""The gate of the return to service: a pass needs a sign, and no sign is unknown, never a pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpufleet_cli.live.node_watch import Watched
from gpufleet_cli.node_card import XidSeen
from gpufleet_cli.operate.service_gate import ServiceFacts, items

NS = 1_000_000_000
NOW = 1_773_200_000 * NS
H = 3600 * NS
WATCHED = Watched(
    xids=(), standing=(), gpus=8, first_ns=NOW - 2 * H, last_ns=NOW - 20 * NS,
    longest_pause_s=30.0, boot_ns=None,
)  # fmt: skip
WELL = ServiceFacts(
    now_ns=NOW, cordoned_ns=NOW - 5 * H, created_ns=NOW - 900 * H, rebooted_ns=NOW - 3 * H,
    ready="True", is_silent=False, capacity=8, allocatable=8, watched=WATCHED,
    diagnostics="dcgmi diag -r 3: pass",
)  # fmt: skip


def states(facts: ServiceFacts) -> dict[str, str]:
    return {one.name: one.state for one in items(facts, {})}


def test_all_of_it_passes() -> None:
    """The case that opens it."""
    assert {"pass"} == set(states(WELL).values())
    assert ["reset", "xid-free", "diagnostics", "healthy", "gpus"] == list(states(WELL))


def seen(code: int, hours: float) -> Watched:
    return replace(WATCHED, xids=(XidSeen(at_ns=NOW - round(hours * H), xid=code, gpu_index=0),))


@pytest.mark.parametrize(
    ("change", "item", "state"),
    [
        ({"rebooted_ns": None}, "reset", "unknown"),
        ({"rebooted_ns": NOW - 6 * H}, "reset", "unknown"),  # before the cordon
        ({"rebooted_ns": None, "created_ns": NOW - H}, "reset", "pass"),  # replaced
        ({"rebooted_ns": None, "kubelet_ns": NOW - H}, "reset", "unknown"),  # no reboot
        ({"rebooted_ns": None, "watched": replace(WATCHED, boot_ns=NOW - H)}, "reset", "pass"),
        ({"rebooted_ns": None, "watched": replace(WATCHED, boot_ns=NOW - 9 * H)}, "reset", "unknown"),
        ({"rebooted_ns": None, "runs_since": "train/run-7"}, "reset", "fail"),
        ({"cordoned_ns": None}, "reset", "unknown"),
        ({"watched": None}, "xid-free", "unknown"),
        ({"watched": seen(79, 0.5)}, "xid-free", "fail"),
        ({"watched": seen(79, 1.5)}, "xid-free", "pass"),
        ({"watched": replace(WATCHED, not_whole="store gone")}, "xid-free", "unknown"),
        ({"watched": replace(seen(79, 0.5), not_whole="store gone")}, "xid-free", "fail"),
        ({"watched": seen(79, 1.5), "xid_free_s": 6000.0}, "xid-free", "fail"),
        ({"watched": seen(13, 0.5)}, "xid-free", "pass"),  # a program's own
        ({"watched": seen(9999, 0.5)}, "xid-free", "fail"),  # unknown is not harmless
        ({"watched": replace(WATCHED, standing=(79,))}, "xid-free", "unknown"),
        ({"watched": replace(WATCHED, standing=(13,))}, "xid-free", "pass"),
        ({"watched": replace(WATCHED, first_ns=NOW - H // 2)}, "xid-free", "unknown"),
        ({"watched": replace(WATCHED, last_ns=NOW - H // 2)}, "xid-free", "unknown"),
        ({"watched": replace(WATCHED, longest_pause_s=1200.0)}, "xid-free", "unknown"),
        ({"watched": replace(WATCHED, first_ns=None, last_ns=None, gpus=0)}, "xid-free", "unknown"),
        ({"diagnostics": None}, "diagnostics", "unknown"),
        ({"diagnostics": "dcgmi diag -r 3: FAIL (memory)"}, "diagnostics", "fail"),
        ({"diagnostics": "7 passed, 1 failed"}, "diagnostics", "fail"),
        ({"diagnostics": "ran it"}, "diagnostics", "unknown"),
        ({"ready": "False"}, "healthy", "fail"),
        ({"ready": "Unknown"}, "healthy", "fail"),
        ({"ready": None}, "healthy", "unknown"),
        ({"is_silent": True}, "healthy", "fail"),
        ({"is_silent": None}, "healthy", "unknown"),
        ({"bad": ("XIDErrors=True",)}, "healthy", "fail"),
        ({"allocatable": 7}, "gpus", "fail"),
        ({"allocatable": 0}, "gpus", "fail"),
        ({"capacity": None}, "gpus", "unknown"),
        ({"allocatable": None}, "gpus", "unknown"),
    ],
)  # fmt: skip
def test_each_item(change: dict[str, Any], item: str, state: str) -> None:
    """One thing is otherwise, and its item alone says so."""
    found = states(replace(WELL, **change))
    assert state == found[item]
    others = {name: told for name, told in found.items() if name != item}
    assert {"pass"} == set(others.values())


def test_what_is_stated_is_kept_beside_what_was_seen() -> None:
    """The state stays what it was: the record shows both."""
    (reset, *_) = items(replace(WELL, rebooted_ns=None), {"reset": "nvidia-smi -r"})
    assert ("unknown", "nvidia-smi -r", True) == (reset.state, reset.stated, reset.is_met)
