"""What the small API server makes of a change: merge patches, new objects, deletions, evictions.

Races are told as the real server tells them: by resourceVersion, by uid, by a disruption budget. What it does not
take (other kinds of patch, subresources) is refused, so that no test passes by mistake. Held to the real server by
`test_contract_of_writes.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from live.fake_answers import Json, Said, answer, failure

if TYPE_CHECKING:
    from live.fake_api import FakeApi, Query

MERGE_PATCH = "application/merge-patch+json"
_VERBS = {"POST": "create", "PATCH": "patch", "DELETE": "delete"}
_EVICTION = re.compile(r"(/api/v1/namespaces/[^/]+/pods/([^/]+))/eviction")
_RESOURCE = re.compile(r"/(?:api/[^/]+|apis/[^/]+/[^/]+)(?:/namespaces/[^/]+)?/([^/]+)(?:/[^/]+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One request that would change something."""

    method: str
    path: str
    query: Query
    content_type: str
    body: Json

    @property
    def is_trial(self) -> bool:
        """A deletion that has a body takes its options from there, and the query counts for nothing."""
        if self.method == "DELETE" and self.body:
            return self.body.get("dryRun") == ["All"]
        return self.query.get("dryRun") == "All"


def changed(fake: FakeApi, asked: Change) -> Said:
    """What the server answers, and does unless it is a dry run."""
    evicted = _EVICTION.fullmatch(asked.path)
    resource = _RESOURCE.fullmatch(asked.path)
    what = "pods/eviction" if evicted else resource[1] if resource else ""
    if (_VERBS[asked.method], what) in fake.denied:
        return failure(403, f"{what} is forbidden: user {fake.user} cannot {_VERBS[asked.method]}")
    if asked.method == "POST":
        return _evicted(fake, asked, evicted[1]) if evicted else _created(fake, asked)
    found = _found(fake, asked.path)
    if found is None:
        return _not_found(asked.path)
    if asked.method == "DELETE":
        refused = _precondition(found, asked.body)
        return refused or _gone(fake, asked, asked.path, found, 200)
    return _patched(fake, asked, found)


def _found(fake: FakeApi, path: str) -> Json | None:
    collection, _, name = path.rpartition("/")
    every = fake.collections.get(collection, ())
    return next((one for one in every if one["metadata"]["name"] == name), None)


def _not_found(path: str) -> Said:
    _, kind, name = path.rsplit("/", 2)
    return failure(404, f'{kind} "{name}" not found')


def _patched(fake: FakeApi, asked: Change, found: Json) -> Said:
    if asked.content_type != MERGE_PATCH:
        return failure(415, f"{asked.content_type} is not taken here")
    version = found["metadata"]["resourceVersion"]
    wanted = asked.body.get("metadata", {}).get("resourceVersion", version)
    if wanted not in (version, "0"):  # 0 means any version
        return failure(409, "the object has been modified; please apply your changes to it")
    patched = merged(deepcopy(found), asked.body)
    if patched != found:
        patched["metadata"]["resourceVersion"] = str(int(version) + 1)
    if not asked.is_trial:
        found.clear()
        found.update(patched)
        if "/batch/" in asked.path and patched["spec"].get("suspend"):
            _drop_pods_of(fake, patched)  # as the Job controller does
    return answer(patched)


def merged(into: Json, change: Mapping[str, Any]) -> Json:
    """A merge patch (RFC 7386): null takes a key away."""
    for key, value in change.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict):
            before = into.get(key)
            into[key] = merged(before if isinstance(before, dict) else {}, value)
        else:
            into[key] = value
    return into


def _created(fake: FakeApi, asked: Change) -> Said:
    made = deepcopy(asked.body)
    name = made["metadata"]["name"]
    if _found(fake, f"{asked.path}/{name}") is not None:
        return failure(409, f'"{name}" already exists', reason="AlreadyExists")
    made["metadata"].setdefault("uid", f"uid-{name}")
    if not asked.is_trial:
        fake.add(asked.path, made)
    return answer(made, status=201)


def _evicted(fake: FakeApi, asked: Change, path: str) -> Said:
    pod = _found(fake, path)
    if pod is None:
        return _not_found(path)
    name = pod["metadata"]["name"]
    if name in fake.guarded:
        cause = {"reason": "DisruptionBudget", "message": "The disruption budget needs them all"}
        said = "Cannot evict pod as it would violate the pod's disruption budget."
        return failure(429, said, details={"causes": [cause]})
    refused = _precondition(pod, asked.body.get("deleteOptions") or {})
    return refused or _gone(fake, asked, path, pod, 201)


def _precondition(found: Json, options: Mapping[str, Any]) -> Said | None:
    for key, wanted in (options.get("preconditions") or {}).items():
        if found["metadata"][key] != wanted:
            said = f"Precondition failed: {key} in precondition: {wanted}, in object meta: "
            return failure(409, said + found["metadata"][key])
    return None


def _gone(fake: FakeApi, asked: Change, path: str, found: Json, status: int) -> Said:
    if not asked.is_trial:
        fake.collections[path.rpartition("/")[0]].remove(found)
        _drop_pods_of(fake, found)
    return answer({"kind": "Status", "status": "Success", "code": status}, status=status)


def _drop_pods_of(fake: FakeApi, owner: Json) -> None:
    """What garbage collection would take, at once."""
    uid = owner["metadata"].get("uid")
    for place, objects in fake.collections.items():
        if place.endswith("/pods"):
            objects[:] = [one for one in objects if uid not in _owners(one)]


def _owners(pod: Json) -> list[str]:
    return [one["uid"] for one in pod["metadata"].get("ownerReferences", ())]


def parsed(raw: bytes) -> Json:
    """The body of a request."""
    found = json.loads(raw or b"{}")
    assert isinstance(found, dict), "a body of ours is an object"
    return found
