"""Why a gang does not start, in the words of what holds it back: Kueue, Volcano, or a job's own `suspend`.

    {"kind": "Workload", "status": {"conditions": [{"type": "QuotaReserved", "status": "False", "reason": "Pending",
      "message": "couldn't assign flavors to pod set main: insufficient unused quota ..."}]}}
    {"kind": "PodGroup", "status": {"phase": "Pending", "conditions": [{"type": "Unschedulable", "status": "True",
      "reason": "NotEnoughResources", "message": "3/4 tasks in gang unschedulable: ..."}]}}

What the API server refuses to make is told in an event on the controller's object (Job, StatefulSet, PyTorchJob,
RayCluster ...), whatever its reason is called:

    Error creating: pods "train-0-abc" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=8,
      used: requests.nvidia.com/gpu=0, limited: requests.nvidia.com/gpu=4
    admission webhook "policy.example" denied the request: no owner label

Conditions: kueue.x-k8s.io v1beta1 and v1beta2, scheduling.volcano.sh v1beta1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from gpufleet_cli.facts import GangHeld, Origin
from gpufleet_cli.parsers import json_documents as js
from gpufleet_cli.parsers.kubernetes_pods import time_of

MESSAGE_CHARS = 400
_WHY = re.compile(
    r"is forbidden: (?P<forbidden>.+)|(?P<webhook>admission webhook .+? denied the request.*)"
)
_MAKERS = ("FailedCreate", "FailedToCreate")
"""`FailedCreatePodSandBox` is a kubelet's, of a pod that was made."""
_OVER = frozenset({"Complete", "Completed", "Failed", "Succeeded", "Finished"})
_NOT_STARTED = ("Pending", "Inqueue")


def read(found: Mapping[str, object], kind: str, origin: Origin) -> Iterator[GangHeld]:
    """At most one fact; nothing of a gang that may start."""
    match kind:
        case "Workload":
            told = _workload(found)
        case "PodGroup":
            told = _pod_group(found)
        case _:
            told = ("Suspended", "spec.suspend is true", None) if is_suspended(found) else None
    name = js.text_at(found, "metadata", "name")
    if told is None or name is None:
        return
    reason, message, condition = told
    yield GangHeld(
        kind=kind,
        name=name,
        reason=reason,
        message=message[:MESSAGE_CHARS],
        since_ns=time_of(js.at(condition, "lastTransitionTime")),
        origin=origin,
        namespace=js.text_at(found, "metadata", "namespace"),
        queue=js.text_at(found, "spec", "queueName") or js.text_at(found, "spec", "queue"),
    )


def held_by(workload: Mapping[str, object]) -> tuple[str, str] | None:
    """Reason and message of a Workload of Kueue that is not admitted."""
    told = _workload(workload)
    return None if told is None else (told[0], told[1][:MESSAGE_CHARS])


def is_suspended(job: object) -> bool:
    """Whether a job is not to run for now; Kueue says it in the same field."""
    return (
        js.at(job, "spec", "suspend") is True or js.at(job, "spec", "runPolicy", "suspend") is True
    )


def why_refused(reason: str, message: str) -> str | None:
    """What an event of a controller gives as the reason; None where it tells of no refusal.

    >>> why_refused("FailedCreate", 'Error creating: pods "a" is forbidden: exceeded quota: gpus, used: x=0')
    'exceeded quota: gpus, used: x=0'
    >>> why_refused("FailedCreatePodSandBox", "is forbidden: by the runtime")
    """
    if not reason.startswith(_MAKERS) or "sandbox" in reason.lower():
        return None
    told = _WHY.search(message)
    return None if told is None else (told["forbidden"] or told["webhook"]).strip()


def is_over(job: object) -> bool:
    """Whether a job's controller is done with it."""
    if js.text_at(job, "status", "jobDeploymentStatus") in ("Complete", "Failed"):
        return True
    if js.text_at(job, "status", "state", "phase") in ("Completed", "Failed", "Terminated"):
        return True
    return any(
        js.text_at(one, "type") in _OVER and js.text_at(one, "status") == "True"
        for one in js.items(js.at(job, "status", "conditions"))
    )


_Told = tuple[str, str, object]


def _workload(found: Mapping[str, object]) -> _Told | None:
    """Not admitted, or thrown out again."""
    conditions = _conditions(found)
    if _is(conditions, "Finished") or _is(conditions, "Admitted"):
        return None
    for kind in ("Evicted", "QuotaReserved", "Admitted"):
        condition = conditions.get(kind)
        if condition is not None and _is(conditions, kind) == (kind == "Evicted"):
            reason = js.text_at(condition, "reason") or kind
            return reason, js.text_at(condition, "message") or "no message", condition
    return "Pending", "Kueue has not looked at it yet", None


def _pod_group(found: Mapping[str, object]) -> _Told | None:
    phase = js.text_at(found, "status", "phase")
    condition = _conditions(found).get("Unschedulable")
    if phase not in _NOT_STARTED:
        return None
    message = js.text_at(condition, "message") or f"its PodGroup is {phase}"
    return js.text_at(condition, "reason") or phase or "", message, condition


def _conditions(found: Mapping[str, object]) -> dict[str, object]:
    listed = js.items(js.at(found, "status", "conditions"))
    return {name: one for one in listed if (name := js.text_at(one, "type")) is not None}


def _is(conditions: Mapping[str, object], kind: str) -> bool:
    return js.text_at(conditions.get(kind), "status") == "True"
