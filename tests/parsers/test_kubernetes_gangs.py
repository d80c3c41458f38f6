"""What holds a gang back, as its queue says it."""

from __future__ import annotations

from typing import Any

import pytest

from gpufleet_cli.facts import Origin
from gpufleet_cli.parsers import kubernetes_gangs

HERE = Origin(path="kubernetes/pods.json", entry=0)


def told(kind: str, spec: Any = None, **status: Any) -> list[tuple[str, str]]:
    """(reason, message) of what is read in such an object."""
    found = {"metadata": {"name": "g"}, "spec": spec or {}, "status": status}
    return [(fact.reason, fact.message) for fact in kubernetes_gangs.read(found, kind, HERE)]


def condition(kind: str, status: str, reason: str = "R", message: str = "why") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([condition("QuotaReserved", "False", "Pending", "no quota")], [("Pending", "no quota")]),
        ([condition("QuotaReserved", "True"), condition("Admitted", "True")], []),
        ([condition("QuotaReserved", "True"), condition("Admitted", "False", "Checks")], [("Checks", "why")]),
        ([condition("Evicted", "True", "Preempted"), condition("Admitted", "False")], [("Preempted", "why")]),
        ([condition("Finished", "True"), condition("Admitted", "False")], []),
        ([], [("Pending", "Kueue has not looked at it yet")]),
    ],
)  # fmt: skip
def test_a_workload(conditions: list[dict[str, str]], expected: list[tuple[str, str]]) -> None:
    """Admitted and finished ones hold nobody back; an eviction tells more than the missing quota after it."""
    assert expected == told("Workload", conditions=conditions)


def test_a_pod_group() -> None:
    """Pending and Inqueue wait; the condition has the numbers where it is there."""
    why = condition("Unschedulable", "True", "NotEnoughResources", "3/4 tasks")
    assert [("NotEnoughResources", "3/4 tasks")] == told(
        "PodGroup", phase="Inqueue", conditions=[why]
    )
    assert [("Pending", "its PodGroup is Pending")] == told("PodGroup", phase="Pending")
    assert [] == told("PodGroup", phase="Running", conditions=[why])


@pytest.mark.parametrize("spec", [{"suspend": True}, {"runPolicy": {"suspend": True}}])
def test_a_job_that_is_suspended(spec: Any) -> None:
    """In either of the two fields."""
    assert [("Suspended", "spec.suspend is true")] == told("Job", spec)
    assert [] == told("Job", {"suspend": False, "runPolicy": None})
