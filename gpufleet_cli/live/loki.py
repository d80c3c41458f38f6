"""Loki's query API: https://grafana.com/docs/loki/latest/reference/loki-http-api/

    {"status": "success", "data": {"resultType": "streams", "result":
      [{"stream": {"pod": "sft-0"}, "values": [["1747043865000000000", "text"], ...]}]}}

Lines are kept as `logcli -o jsonl` writes them. The limit of a query is one for all its streams, so each pod
is asked for by itself. Errors are plain text. A label may be missing and stand among the structured metadata.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from gpufleet_cli.errors import SourceError
from gpufleet_cli.live.http_source import Fetch
from gpufleet_cli.live.log_store import PAGE, Fields, Line, Wanted
from gpufleet_cli.live.metric_queries import quoted
from gpufleet_cli.live.service_words import document_of, one_line, refusal, words_of
from gpufleet_cli.timestamps import format_ns

_LIMIT = re.compile(
    r"limit > max_entries_limit_per_query \((\d{1,9}) > (\d{1,9})\)|max_entries_limit\D{1,20}(\d{2,9})"
)
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)


class _Stream(msgspec.Struct):
    stream: dict[str, str] = {}
    values: list[list[msgspec.Raw]] = []


class _Data(msgspec.Struct):
    result: list[_Stream] = []


class _Answer(msgspec.Struct):
    data: _Data
    status: str = ""
    warnings: list[str] | None = None


_decode = msgspec.json.Decoder(_Answer).decode
_text = msgspec.json.Decoder(str).decode


@dataclass(slots=True, kw_only=True)
class Loki:
    """One Loki. `limit` is what it lets us ask for at once."""

    fetch: Fetch
    name: str
    kind: str = "Loki"
    limit: int = PAGE
    labels: set[str] = field(default_factory=set)

    def field_names(self, start_ns: int, end_ns: int) -> list[str]:
        """The labels of that time."""
        found = self._list("/loki/api/v1/labels", {"start": str(start_ns), "end": str(end_ns)})
        self.labels.update(found)
        return found

    def values(
        self, name: str, start_ns: int, end_ns: int, *, within: tuple[str, str] | None
    ) -> list[str]:
        """Values of a label; nothing for what is no label, since nobody can list those."""
        if name not in self.labels or not _LABEL.fullmatch(name):
            return []
        params = {"start": str(start_ns), "end": str(end_ns)}
        if within is None or within[0] not in self.labels:
            return self._list(f"/loki/api/v1/label/{name}/values", params)
        # Values of a label narrowed by a query came late; all versions list the series of a selector.
        params["match[]"] = f'{{{within[0]}={quoted(within[1])}, {name}=~".+"}}'
        found = self._data("/loki/api/v1/series", params)
        names = {one.get(name) for one in found if isinstance(one, dict)}
        return sorted(value for value in names if isinstance(value, str))

    def _list(self, path: str, params: Mapping[str, str]) -> list[str]:
        return [value for value in self._data(path, params) if isinstance(value, str)]

    def _data(self, path: str, params: Mapping[str, str]) -> list[object]:
        document = document_of(self.name, self.fetch(path, params))
        data = document.get("data") if isinstance(document, dict) else None
        if data is None:
            return []
        if not isinstance(data, list):
            raise SourceError(f"{self.name} answered in a form that Loki's API has not")
        return data

    def page(
        self, fields: Fields, wanted: Wanted, pod: str, end_ns: int
    ) -> tuple[list[Line], bool]:
        """Lines of one pod, newest first."""
        query = self._query(fields, wanted.namespace, pod)
        while True:
            params = {
                "query": query,
                "start": str(wanted.start_ns),
                "end": str(end_ns),
                "limit": str(self.limit),
                "direction": "backward",
            }
            response = self.fetch("/loki/api/v1/query_range", params)
            lower = self._lower_limit(
                response[0], words_of(response[2]) if response[0] == 400 else ""
            )
            if lower is None:
                break
            self.limit = lower
        if response[0] != 200:
            raise refusal(self.name, response)
        try:
            answer = _decode(response[2])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            document_of(self.name, response)
            raise SourceError(f"{self.name} answered in a form that Loki's API has not") from exc
        lines = [line for stream in answer.data.result for line in _lines(stream)]
        lines.sort(key=lambda line: line.ns, reverse=True)
        # A proxy may cut to a limit of its own: a round number of lines is taken for one.
        return lines, bool(lines) and (len(lines) >= self.limit or len(lines) % 100 == 0)

    def _lower_limit(self, status: int, said: str) -> int | None:
        """The limit that this server has, where it says that ours is above it."""
        found = _LIMIT.search(said) if status == 400 else None
        if found is None:
            return None
        lower = int(found[2] or found[3])
        return lower if 0 < lower < self.limit else None

    def _query(self, fields: Fields, namespace: str, pod: str) -> str:
        """A selector of labels; what is none becomes a filter on structured metadata."""
        pairs = [(fields.pod, pod)]
        if fields.namespace is not None:
            pairs.insert(0, (fields.namespace, namespace))
        for name, _ in pairs:
            if not _LABEL.fullmatch(name):
                raise SourceError(f"{self.name}: {one_line(name)} can be no label of Loki")
        inside = [f"{name}={quoted(value)}" for name, value in pairs if name in self.labels]
        behind = [f"{name}={quoted(value)}" for name, value in pairs if name not in self.labels]
        if not inside:
            anyhow = min(self.labels, default="service_name")
            inside = [f'{anyhow}=~".+"']
        return "".join((f"{{{', '.join(inside)}}}", *(f" | {one}" for one in behind)))


def _lines(stream: _Stream) -> list[Line]:
    found = []
    for value in stream.values:
        try:
            ns, text = int(_text(value[0])), _text(value[1])
            more = msgspec.json.decode(value[2], type=dict[str, object]) if len(value) > 2 else {}
        except (msgspec.DecodeError, ValueError, IndexError):
            continue
        metadata = more.get("structuredMetadata", more)
        extra = (
            {k: v for k, v in metadata.items() if isinstance(v, str)}
            if isinstance(metadata, dict)
            else {}
        )
        record = {"labels": {**stream.stream, **extra}, "line": text, "timestamp": format_ns(ns)}
        found.append(Line(ns, msgspec.json.encode(record)))
    return found
