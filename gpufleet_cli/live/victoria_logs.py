"""VictoriaLogs' query API: https://docs.victoriametrics.com/victorialogs/querying/

    {"_time": "2025-05-12T09:57:45Z", "_msg": "text", "_stream": "{pod=\\"sft-0\\"}", "kubernetes.pod_name": "sft-0"}

Answers are JSON lines, kept as they come. There is no limit unless one is sent; with `limit` the newest lines
of the time are given. Field names may hold dots and are quoted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from gpufleet_cli.errors import SourceError
from gpufleet_cli.live.http_source import Fetch
from gpufleet_cli.live.log_store import PAGE, Fields, Line, Wanted
from gpufleet_cli.live.service_words import document_of, refusal
from gpufleet_cli.timestamps import format_ns, parse_rfc3339

_MOST_VALUES = 50_000


class _Record(msgspec.Struct):
    time: str = msgspec.field(name="_time", default="")


class _Value(msgspec.Struct):
    value: str
    hits: object = None


class _Values(msgspec.Struct):
    values: list[_Value] | None = None


_decode = msgspec.json.Decoder(_Record).decode
_decode_values = msgspec.json.Decoder(_Values).decode


@dataclass(slots=True, kw_only=True)
class VictoriaLogs:
    """One VictoriaLogs."""

    fetch: Fetch
    name: str
    kind: str = "VictoriaLogs"
    limit: int = PAGE

    def field_names(self, start_ns: int, end_ns: int) -> list[str]:
        """The fields of that time, most frequent first as the server gives them."""
        return self._values("field_names", "*", start_ns, end_ns, {})

    def values(
        self, name: str, start_ns: int, end_ns: int, *, within: tuple[str, str] | None
    ) -> list[str]:
        """Values of a field."""
        query = "*" if within is None else _is(*within)
        params = {"field": name, "limit": str(_MOST_VALUES)}
        return self._values("field_values", query, start_ns, end_ns, params)

    def _values(
        self, page: str, query: str, start_ns: int, end_ns: int, params: Mapping[str, str]
    ) -> list[str]:
        asked = {"query": f"{query} {_between(start_ns, end_ns + 1)}", **params}
        response = self.fetch(f"/select/logsql/{page}", asked)
        if response[0] != 200:
            raise refusal(self.name, response)
        try:
            found = _decode_values(response[2])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            document_of(self.name, response)
            raise SourceError(
                f"{self.name} answered in a form that VictoriaLogs' API has not"
            ) from exc
        return [one.value for one in found.values or ()]

    def page(
        self, fields: Fields, wanted: Wanted, pod: str, end_ns: int
    ) -> tuple[list[Line], bool]:
        """Lines of one pod, newest first."""
        conditions = [_is(fields.pod, pod)]
        if fields.namespace is not None:
            conditions.append(_is(fields.namespace, wanted.namespace))
        query = " ".join((*conditions, _between(wanted.start_ns, end_ns)))
        response = self.fetch("/select/logsql/query", {"query": query, "limit": str(self.limit)})
        if response[0] != 200:
            raise refusal(self.name, response)
        lines = self._lines(response[2])
        lines.sort(key=lambda line: line.ns, reverse=True)
        return lines, len(lines) >= self.limit

    def _lines(self, body: bytes) -> list[Line]:
        found = []
        for row in body.split(b"\n"):
            if not row.strip():
                continue
            try:
                time = parse_rfc3339(_decode(row).time)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
                raise SourceError(
                    f"{self.name}: an answer that is cut off, or is no VictoriaLogs"
                ) from exc
            if time is not None:
                found.append(Line(time[0], row.strip()))
        return found


def _is(name: str, value: str) -> str:
    """A field that is exactly this."""
    return f"{_quoted(name)}:={_quoted(value)}"


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _between(start_ns: int, end_ns: int) -> str:
    """Times from start on and before end, to the nanosecond."""
    return f"_time:[{_full(start_ns)}, {_full(end_ns)})"


def _full(ns: int) -> str:
    """All nine digits: a time of fewer means all of its second, or of what its last digit leaves open."""
    return f"{format_ns(ns - ns % 10**9)[:-1]}.{ns % 10**9:09}Z"
