"""Which kinds of job the API server has, and the version of each to ask for."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gpufleet_cli.errors import SourceError
from gpufleet_cli.live.answers import why_not
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.kinds import JobKind
from gpufleet_cli.live.troubles import hint_of
from gpufleet_cli.parsers import json_documents as js

Served = tuple[tuple[JobKind, str], ...]


def served(api: Api, searched: Sequence[JobKind]) -> Served:
    """The kinds whose group the server has, each with the version to ask for. Without discovery: all."""
    answer = api.get("/apis", kind="discovery")
    groups: dict[str, tuple[list[str], str]] = {}
    if answer.ok:
        try:
            document = msgspec.json.decode(answer.body)
        except (msgspec.DecodeError, ValueError):
            document = None
        for group in js.items(js.at(document, "groups")):
            name = js.text_at(group, "name") or ""
            versions = [
                v for o in js.items(js.at(group, "versions")) if (v := js.text_at(o, "version"))
            ]
            groups[name] = versions, js.text_at(group, "preferredVersion", "version") or ""
    elif answer.status in (0, 401, 429):
        why = why_not(answer, "/apis")
        raise SourceError(
            f"cannot ask {api.access.server} what it serves: {why}", hint=hint_of(why)
        )
    if not groups:
        return tuple((kind, kind.versions[0]) for kind in searched)
    found = []
    for kind in searched:
        versions, preferred = groups.get(kind.group, ([], ""))
        known = next((v for v in kind.versions if v in versions), None)
        if versions:
            found.append((kind, known or preferred or versions[0]))
    return tuple(found)
