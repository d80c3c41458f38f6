"""A small client of the API server for the tests' own hand: JSON in, JSON out, no models, any thread."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import urlencode

import urllib3

Json = dict[str, Any]
In = TypeVar("In")
Out = TypeVar("Out")

_PATCHES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
}

# Kinds whose path is not their name in small letters and an s; kinds without a namespace.
_PLURALS = {"Endpoints": "endpoints", "Logs": "logs", "NetworkPolicy": "networkpolicies"}
_WITHOUT_NAMESPACE = {
    "Node",
    "Namespace",
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "PersistentVolume",
    "PriorityClass",
}


class ApiError(Exception):
    """The API server said no: its code and its body."""

    def __init__(self, method: str, path: str, status: int, body: str) -> None:
        super().__init__(f"{method} {path}: {status} {body[:500]}")
        self.status = status
        self.body = body


class Api:
    """One user at one server."""

    def __init__(self, url: str, *, ca: str, token: str) -> None:
        self.url = url
        self.token = token
        self._pool = urllib3.PoolManager(
            ca_certs=ca,
            maxsize=32,
            block=True,
            retries=False,
            timeout=urllib3.Timeout(connect=5, read=60),
        )

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()

    def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        kind: str = "application/json",
        **query: str,
    ) -> bytes:
        """One request; the bytes of the answer, or `ApiError`."""
        address = f"{self.url}{path}" + (f"?{urlencode(query)}" if query else "")
        answer = self._pool.request(
            method,
            address,
            body=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": kind},
        )
        if answer.status >= 400:
            raise ApiError(method, path, answer.status, answer.data.decode(errors="replace"))
        return answer.data

    def get(self, path: str, **query: str) -> Json:
        """Read."""
        found: Json = json.loads(self.send("GET", path, **query))
        return found

    def items(self, path: str, **query: str) -> list[Json]:
        """Read a list whole."""
        found: list[Json] = self.get(path, **query)["items"]
        return found

    def post(self, path: str, made: Json) -> Json:
        """Post; the answer."""
        answer: Json = json.loads(self.send("POST", path, made))
        return answer

    def create(self, made: Json) -> Json:
        """Create an object where its kind lives; the answer, with its uid."""
        return self.post(collection_of(made), made)

    def replace(self, path: str, made: Json) -> Json:
        """Put."""
        answer: Json = json.loads(self.send("PUT", path, made))
        return answer

    def patch(self, path: str, change: object, *, how: str = "merge", **query: str) -> Json:
        """Patch: merge, strategic or json."""
        answer: Json = json.loads(self.send("PATCH", path, change, kind=_PATCHES[how], **query))
        return answer

    def delete(self, path: str, **options: object) -> None:
        """Delete; what is gone already is gone."""
        try:
            self.send("DELETE", path, options or None)
        except ApiError as error:
            if error.status != 404:
                raise

    def answers(self, path: str = "/readyz") -> bool:
        """Whether the server answers this path with success."""
        try:
            self.send("GET", path)
        except (ApiError, urllib3.exceptions.HTTPError):
            return False
        return True

    def update(self, path: str, change: Callable[[Json], None], *, part: str = "") -> Json:
        """Read, change in place, write back (a subresource such as `/status`), again on a conflict."""
        for attempt in range(10):
            found = self.get(path)
            change(found)
            try:
                return self.replace(path + part, found)
            except ApiError as error:
                if error.status != 409 or attempt == 9:
                    raise
        raise AssertionError("unreachable")


def collection_of(made: Json) -> str:
    """The path where objects of this kind are created."""
    version, kind = made["apiVersion"], made["kind"]
    root = f"/api/{version}" if "/" not in version else f"/apis/{version}"
    plural = _PLURALS.get(kind, f"{kind.lower()}s")
    if kind in _WITHOUT_NAMESPACE:
        return f"{root}/{plural}"
    return f"{root}/namespaces/{made['metadata']['namespace']}/{plural}"


def path_of(made: Json) -> str:
    """The path of an object."""
    return f"{collection_of(made)}/{made['metadata']['name']}"


def in_parallel(do: Callable[[In], Out], many: Iterable[In]) -> list[Out]:
    """Do the same to many, eight at a time; results in their order."""
    with ThreadPoolExecutor(max_workers=8) as pool:
        return list(pool.map(do, many))
