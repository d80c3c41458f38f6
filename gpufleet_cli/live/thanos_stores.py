"""Stores that a Thanos has lost: their part is missing in its answers, and those do not say so.

Once a check of a store's health failed (five seconds), Thanos Query asks it no more, without a warning; for five
minutes `/api/v1/stores` still lists it with its `lastError`. Seen with Thanos 0.42:

    {"status": "success", "data": {"sidecar": [{"name": "10.0.0.7:10901", "lastError": "rpc error: ...",
     "labelSets": [{"cluster": "prod", "prometheus_replica": "a"}], "minTime": 1796032085000, "maxTime": 9223372036854775807}]}}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from gpufleet_cli.errors import SourceError
from gpufleet_cli.live.metric_queries import Matcher
from gpufleet_cli.live.metric_server import Flavour, Server
from gpufleet_cli.live.service_words import one_line


class _Store(msgspec.Struct):
    name: str = ""
    lastError: str | None = None
    labelSets: list[dict[str, str]] | None = None
    minTime: int = 0
    maxTime: int = 0


class _Stores(msgspec.Struct):
    data: dict[str, list[_Store]] | None = None


def note_lost(server: Server, matchers: Sequence[Matcher], start_s: float, end_s: float) -> None:
    """Add those that could hold our series to the server's warnings. A server that cannot list them adds nothing."""
    if server.flavour is not Flavour.THANOS:
        return
    try:
        status, _, body = server.fetch("/api/v1/stores", {})
        told = msgspec.json.decode(body, type=_Stores).data if status == 200 else None
    except (SourceError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    server.warnings.update(_lost(told or {}, matchers, start_s, end_s))


def _lost(
    told: Mapping[str, Sequence[_Store]],
    matchers: Sequence[Matcher],
    start_s: float,
    end_s: float,
) -> Iterator[str]:
    for kind, stores in told.items():
        for store in stores:
            if (
                not store.lastError
                or store.minTime > end_s * 1000
                or store.maxTime < start_s * 1000
            ):
                continue
            if _may_hold(store.labelSets or [], matchers):
                why = store.lastError.rpartition(" desc = ")[2]
                yield one_line(f"{kind} {store.name} does not answer: {why}")


def _may_hold(label_sets: Sequence[Mapping[str, str]], matchers: Sequence[Matcher]) -> bool:
    """Whether the matchers of the settings let any of the store's label sets through."""
    wanted = {one.label: one.value for one in matchers if one.operator == "="}
    return not label_sets or any(
        all(labels.get(name, value) == value for name, value in wanted.items())
        for labels in label_sets
    )
