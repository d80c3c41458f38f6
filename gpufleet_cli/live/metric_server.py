"""A server that speaks Prometheus' HTTP API: its flavour, one question at a time, and what its errors mean.

Prometheus, Thanos, Mimir, VictoriaMetrics, Grafana's proxy in front of them. Which one it is, is read from
`/api/v1/status/buildinfo` (facts: kubernetes 6). Thanos is asked for raw samples of all replicas, since
deduplication and downsampling can erase a flap; VictoriaMetrics for no cached answer.
API: https://prometheus.io/docs/prometheus/latest/querying/api/
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from gpufleet_cli.errors import SourceError
from gpufleet_cli.live.http_source import Fetch
from gpufleet_cli.live.service_words import (
    Response,
    document_of,
    header,
    one_line,
    refusal,
    words_of,
)

_TOO_MUCH = re.compile(
    r"too many (?:samples|points|series|chunks)|maximum resolution|max(?:imum)?[-_ ]?samples|limit|exceed|maxSeries|maxPoints"
    r"|timed? ?out|timeout|deadline|out of memory",
    re.IGNORECASE,
)
_LIMIT = re.compile(r"ResourceExhausted|limit \d+ violated|exceeded \w+ limit", re.IGNORECASE)
"""A store of Thanos that finds a question too much leaves its part out of an answer that is a success."""
_REMARK = re.compile(r"\s*PromQL (?:info|warning)\b", re.IGNORECASE)
"""On the question and not on the data; Prometheus 2.48 to 2.53 has these among the warnings."""


SHORTEST_S = 3600
"""A question about so little time is not halved any more."""


class Flavour(StrEnum):
    """Who answers."""

    PROMETHEUS = "Prometheus"
    THANOS = "Thanos"
    MIMIR = "Mimir"
    VICTORIA_METRICS = "VictoriaMetrics"
    UNKNOWN = "a server that speaks Prometheus' API"


_EXTRA: Mapping[Flavour, Mapping[str, str]] = {
    Flavour.THANOS: {"dedup": "false", "max_source_resolution": "0s", "partial_response": "true"},
    Flavour.VICTORIA_METRICS: {"nocache": "1"},
}


class TooMuch(SourceError):
    """The question is too large for the server; half of it may not be."""


class OneSeries(msgspec.Struct):
    """One series of an answer; its samples stay as the server wrote them, undecoded.

    `values` (`[[seconds, "value"], ...]`) is empty in a vector, `value` (one of these) in a matrix.
    """

    metric: dict[str, str]
    values: msgspec.Raw = msgspec.Raw()
    value: msgspec.Raw = msgspec.Raw()

    @property
    def number(self) -> float:
        """The value in a vector; NaN where there is none."""
        try:
            return float(msgspec.json.decode(self.value, type=tuple[float, str])[1])
        except (msgspec.DecodeError, ValueError):
            return math.nan


class _Data(msgspec.Struct):
    result: list[OneSeries] = []
    resultType: str = ""


class _Answer(msgspec.Struct):
    status: str = ""
    data: _Data | None = None
    error: str = ""
    errorType: str = ""
    warnings: list[str] | None = None
    isPartial: bool = False


class _Names(msgspec.Struct):
    data: list[str] | None = None
    warnings: list[str] | None = None
    isPartial: bool = False


@dataclass(slots=True, kw_only=True)
class Server:
    """Who is asked. `warnings` collects what it said of answers that are not whole."""

    fetch: Fetch
    name: str
    flavour: Flavour = Flavour.UNKNOWN
    version: str = ""
    warnings: set[str] = field(default_factory=set)

    def query(self, text: str, at_s: float | None) -> list[OneSeries]:
        """An instant query at that Unix time, None for the server's own now. TooMuch where less may be answered, else
        SourceError."""
        at = {} if at_s is None else {"time": f"{at_s:.3f}"}
        return self._asked("/api/v1/query", {"query": text, **at})

    def over(self, text_of: Callable[[int], str], end_s: float, span_s: int) -> list[OneSeries]:
        """An instant query about the time before `end_s`, `text_of` its seconds; about its halves, newest first, where
        the server finds that too long. What each piece told, one after the other. TooMuch where an hour is too long."""
        pending, found = [(end_s, span_s)], list[OneSeries]()
        while pending:
            piece_end_s, piece_s = pending.pop()
            try:
                found += self.query(text_of(piece_s), piece_end_s)
            except TooMuch:
                if piece_s <= SHORTEST_S:
                    raise
                later_s = piece_s // 2
                pending.append((piece_end_s - later_s, piece_s - later_s))
                pending.append((piece_end_s, later_s))
        return found

    def query_range(self, text: str, start_s: float, end_s: float, step_s: int) -> list[OneSeries]:
        """A range query: one value per step."""
        span = {"start": f"{start_s:.3f}", "end": f"{end_s:.3f}", "step": str(step_s)}
        return self._asked("/api/v1/query_range", {"query": text, **span})

    def _asked(self, path: str, params: Mapping[str, str]) -> list[OneSeries]:
        response = self.fetch(path, {**params, **_EXTRA.get(self.flavour, {})})
        if response[0] != 200:
            raise _refused(self.name, response)
        try:
            answer = _decode(response[2])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            document_of(self.name, response)  # says so, where it is no JSON at all
            raise SourceError(
                f"{self.name} answered in a form that Prometheus' API has not"
            ) from exc
        self._note(answer)
        if answer.status == "error":
            said = one_line(answer.error) or "no reason given"
            kind = TooMuch if _TOO_MUCH.search(said) else SourceError
            raise kind(f"{self.name}: {one_line(answer.errorType) or 'error'}: {said}")
        if answer.data is None:
            raise SourceError(f"{self.name} answered without data")
        return answer.data.result

    def names(self, match: str, start_s: float, end_s: float) -> set[str] | None:
        """Names of the metrics that a selector has in that time; None where the server cannot say."""
        params = {"match[]": match, "start": f"{start_s:.3f}", "end": f"{end_s:.3f}"}
        response = self.fetch("/api/v1/label/__name__/values", params)
        if response[0] != 200:
            return None
        try:
            found = msgspec.json.decode(response[2], type=_Names)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        try:
            self._note(found)
        except TooMuch:
            return None
        return None if found.data is None else set(found.data)

    def _note(self, answer: _Answer | _Names) -> None:
        """Remember that an answer is not whole: a store of Thanos, a node of a VictoriaMetrics cluster is down."""
        said = [text for text in answer.warnings or () if not _REMARK.match(text)]
        if answer.isPartial and not said:
            said = ["the answer is partial"]
        limit = next((text for text in said if _LIMIT.search(text)), None)
        if limit is not None:
            raise TooMuch(f"{self.name}: {_ending(limit)}")
        self.warnings.update(one_line(text) for text in said)


def _ending(text: str) -> str:
    """What a chain of errors says last: `rpc error: code = X desc = rpc error: code = Y desc = WORDS`."""
    return one_line(text.rpartition(" desc = ")[2])


_decode = msgspec.json.Decoder(_Answer).decode


def recognised(fetch: Fetch, name: str) -> Server:
    """The server with its flavour. SourceError where nobody answers, or does not let us in.

    A server without that page is asked on: some proxies let nothing but queries through.
    """
    response = fetch("/api/v1/status/buildinfo", {})
    status, headers, _ = response
    if status == 401 or 300 <= status < 400 or status == 429 or status >= 500:
        raise refusal(name, response)
    if status != 200:
        return Server(fetch=fetch, name=name, flavour=_by_headers(headers))
    document = document_of(name, response)
    data = document.get("data") if isinstance(document, dict) else None
    fields = data if isinstance(data, dict) else {}
    version = one_line(str(fields.get("version") or ""))
    if not isinstance(data, dict):
        return Server(fetch=fetch, name=name, flavour=_by_headers(headers))
    flavour = _flavour(data, version)
    return Server(fetch=fetch, name=name, flavour=flavour, version=version)


def _flavour(fields: Mapping[str, object], version: str) -> Flavour:
    application = str(fields.get("application") or "")
    if "Mimir" in application or "Cortex" in application:
        return Flavour.MIMIR
    if not fields.get("goVersion"):  # an empty `data`, or a version alone
        return Flavour.VICTORIA_METRICS
    return Flavour.THANOS if version.startswith("0.") else Flavour.PROMETHEUS


def _by_headers(headers: Mapping[str, str]) -> Flavour:
    is_victoria = header(headers, "x-server-hostname") is not None
    return Flavour.VICTORIA_METRICS if is_victoria else Flavour.UNKNOWN


def _refused(name: str, response: Response) -> SourceError:
    """A refused query: 400 and 422 may say that it is too large, 413, 503 and 504 do."""
    status, said = response[0], words_of(response[2])
    error = refusal(name, response)
    if status in (413, 503, 504) or (status in (400, 422, 500) and _TOO_MUCH.search(said)):
        return TooMuch(error.message, hint=error.hint)
    return error
