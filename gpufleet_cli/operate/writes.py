"""Changes to the cluster: one request each, with what makes it safe to lose a race.

A patch carries the resourceVersion that was read: who was overtaken gets a 409 and has written nothing. A
deletion carries the uid, so that a new object of the same name is never hit. `dry_run` is the server's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpufleet_cli.live.answers import Answer
from gpufleet_cli.live.api import Api, retry_after_s
from gpufleet_cli.parsers import json_documents as js

MERGE_PATCH = "application/merge-patch+json"
MANAGER = "gpufleet"
BUDGET_CAUSE = "DisruptionBudget"


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """Who writes, and whether the server only says what would happen."""

    api: Api
    dry_run: bool = False

    def patch(self, path: str, change: Mapping[str, object], *, version: str) -> Answer:
        """A merge patch of the object as it was read at `version`."""
        metadata = dict(js.mapping(change.get("metadata")))
        body = {**change, "metadata": {**metadata, "resourceVersion": version}}
        return self.api.write(
            "PATCH", path, body, content_type=MERGE_PATCH, params=self._params(fieldManager=MANAGER)
        )

    def delete(self, path: str, *, uid: str, grace_s: int | None = None) -> Answer:
        """Delete what has this uid, and what it owns with it."""
        options: dict[str, object] = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": {"uid": uid},
        }
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        if self.dry_run:  # a DELETE with a body takes it from there alone: seen on a v1.34 server
            options["dryRun"] = ["All"]
        return self.api.write("DELETE", path, options, params=self._params())

    def evict(self, namespace: str, pod: str, *, uid: str, grace_s: int | None = None) -> Answer:
        """Ask for a pod to go, which its disruption budgets may refuse (429)."""
        options: dict[str, object] = {"preconditions": {"uid": uid}}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
            "deleteOptions": options,
        }
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction"
        return self.api.write("POST", path, body, params=self._params())

    def _params(self, **more: str) -> dict[str, str | int]:
        return {**more, **({"dryRun": "All"} if self.dry_run else {})}


def is_conflict(answer: Answer) -> bool:
    """Somebody changed the object since it was read, or another one has its name now."""
    return answer.status == 409


def is_budget(answer: Answer) -> bool:
    """A PodDisruptionBudget refused. Throttling has the same code, and no such cause."""
    if answer.status != 429:
        return False
    causes = js.items(js.at(_status(answer), "details", "causes"))
    return any(js.text_at(cause, "reason") == BUDGET_CAUSE for cause in causes)


def wait_s(answer: Answer) -> float:
    """How long a throttling server asks us to wait before the next try."""
    return retry_after_s(answer) or 1.0


def why_not(answer: Answer, deed: str) -> str:
    """Why a change did not come about, for a person. `deed` is the right in words: `patch nodes`."""
    if answer.status == 0:
        return f"no answer ({answer.message}): it may have been done, or not"
    if answer.status == 403:
        return f"no right to {deed}: {answer.message}"
    if is_conflict(answer):
        return f"somebody else was first: {answer.message}"
    return f"the server answered {answer.status}: {answer.message}"


def _status(answer: Answer) -> object:
    import msgspec

    try:
        return msgspec.json.decode(answer.body)
    except (msgspec.DecodeError, ValueError):
        return None
