"""Whether a restart would place without a node, as `gpufleet collect` judged it when it looked.

    {"schema": "gpufleet.spares/v1", "without": [
        {"node": "gpu-3", "places": false, "why": "quota: ...", "cause": "quota", "nodes": [], "spare_nodes": 0}]}

`places` null: it could not be told, and `why` says why. An entry of other types is none.

>>> matches("a.json", b'{"schema":"gpufleet.spares/v1"}')
True
"""

from __future__ import annotations

from collections.abc import Iterator

from gpufleet_cli.bundle import Evidence
from gpufleet_cli.errors import ParseError
from gpufleet_cli.facts import Fact, Origin, RestartRoom
from gpufleet_cli.parsers import json_documents as js
from gpufleet_cli.plain_text import is_name, visible

SCHEMA = "gpufleet.spares/v1"
MOST_NODES = 64
MOST_NAMED = 8
WHY_CHARS = 300


def matches(path: str, head: bytes) -> bool:
    """By the schema that its first key names."""
    return js.names_schema(head, SCHEMA)


def parse(evidence: Evidence) -> Iterator[Fact]:
    """One fact a node, for no more nodes than are ever judged."""
    document = next(js.documents(evidence.read()), None)
    if not isinstance(document, dict):
        raise ParseError(f"{evidence.path}: the top is no JSON object")
    for index, one in enumerate(js.items(document.get("without"))[:MOST_NODES]):
        node, why = js.text_at(one, "node"), js.text_at(one, "why")
        places = js.at(one, "places")
        if node is None or not is_name(node) or not why:
            continue
        if places is not None and not isinstance(places, bool):
            continue
        names = js.items(js.at(one, "nodes"))[:MOST_NAMED]
        yield RestartRoom(
            node=node,
            places=places,
            why=visible(why)[:WHY_CHARS],
            cause=js.text_at(one, "cause"),
            nodes=tuple(name for name in names if isinstance(name, str) and is_name(name)),
            spare_nodes=max(0, js.integer(js.at(one, "spare_nodes")) or 0),
            origin=Origin(path=evidence.path, entry=index),
        )
