"""A small server that speaks Loki's query API and keeps its limits; Loki itself is not to be had here.

After the HTTP API of Loki 3: https://grafana.com/docs/loki/latest/reference/loki-http-api/ and the defaults of
`limits_config`. Errors are plain text, as Loki's are.
"""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from servers import logql
from servers.api import Json
from servers.victoria import Stream

_SECOND_NS = 1_000_000_000


@dataclass(slots=True, kw_only=True)
class Loki:
    """One such server: its limits may be changed while it runs."""

    url: str
    streams: dict[str, list[Stream]]  # tenant -> its streams; without tenants the key is ""
    needs_tenant: bool = False
    max_entries: int = 5000
    max_series: int = 500
    max_range_s: float = 721 * 3600
    asked: list[str] = field(default_factory=list)  # path and query of each request


class _Refused(Exception):
    """An answer that is no success: code and text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@contextmanager
def running(
    streams: Sequence[Stream] = (), *, tenants: dict[str, list[Stream]] | None = None
) -> Iterator[Loki]:
    """A Loki that holds these streams; with `tenants` each request must name one (or several, `a|b`)."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    made = Loki(
        url=f"http://127.0.0.1:{server.server_port}",
        streams=tenants or {"": list(streams)},
        needs_tenant=tenants is not None,
    )
    server.RequestHandlerClass = type("Handler", (_Handler,), {"loki": made})
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    """Takes GET, and POST with a form, as Loki does."""

    protocol_version = "HTTP/1.1"
    loki: Loki

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def serve(self) -> None:
        """One request."""
        place = urlsplit(self.path)
        form = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        asked = {name: values[-1] for name, values in parse_qs(f"{place.query}&{form}").items()}
        self.loki.asked.append(self.path)
        try:
            if place.path == "/ready":
                self._send(200, b"ready\n", "text/plain")
                return
            streams = _of_tenant(self.loki, self.headers.get("X-Scope-OrgID"))
            data = _answer(self.loki, streams, place.path, asked)
            body = json.dumps({"status": "success", "data": data}).encode()
            self._send(200, body, "application/json")
        except _Refused as refusal:
            self._send(refusal.status, str(refusal).encode(), "text/plain; charset=utf-8")
        except logql.LogqlError as error:
            self._send(400, str(error).encode(), "text/plain; charset=utf-8")

    do_GET = do_POST = serve

    def _send(self, status: int, body: bytes, kind: str) -> None:
        """An answer whole."""
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _of_tenant(loki: Loki, header: str | None) -> list[Stream]:
    """The streams that this request may see."""
    if not loki.needs_tenant:
        return loki.streams[""]
    if not header:
        raise _Refused(401, "no org id")
    return [stream for name in header.split("|") for stream in loki.streams.get(name, ())]


def _answer(loki: Loki, streams: list[Stream], path: str, asked: dict[str, str]) -> object:
    """The `data` of the answer."""
    match path.removeprefix("/loki/api/v1/").split("/"):
        case ["query_range"]:
            return _query_range(loki, streams, asked)
        case ["labels"]:
            return sorted({name for stream in streams for name in stream.labels})
        case ["label", name, "values"]:
            return sorted({stream.labels[name] for stream in streams if name in stream.labels})
        case ["series"]:
            wanted = logql.parse(asked["match[]"])
            return [dict(stream.labels) for stream in streams if wanted.matches(stream.labels)]
        case _:
            raise _Refused(404, "404 page not found\n")


def _query_range(loki: Loki, streams: list[Stream], asked: dict[str, str]) -> Json:
    """Lines or counts; the limits first, in Loki's order and words."""
    end = _time_ns(asked.get("end"), time.time_ns())
    start = _time_ns(asked.get("start"), end - 3600 * _SECOND_NS)
    limit = int(asked.get("limit", 100))
    query = logql.parse(asked.get("query", ""))
    if end < start:
        raise _Refused(400, "end timestamp must not be before or equal to start time")
    if query.window_s is None and limit > loki.max_entries:
        raise _Refused(
            400,
            f"max entries limit per query exceeded, limit > max_entries_limit_per_query ({limit} > {loki.max_entries})",
        )
    if (end - start) / _SECOND_NS > loki.max_range_s:
        raise _Refused(
            400,
            f"the query time range exceeds the limit (query length: {_words(end - start)}, limit: {_words(int(loki.max_range_s * _SECOND_NS))})",
        )
    chosen = [stream for stream in streams if query.matches(stream.labels)]
    if query.window_s is not None:
        return _counts(loki, query, chosen, start, end, asked)
    newest_first = asked.get("direction", "backward").lower() == "backward"
    return _lines(query, chosen, (start, end), limit, newest_first=newest_first)


def _lines(
    query: logql.Query,
    streams: list[Stream],
    span: tuple[int, int],
    limit: int,
    *,
    newest_first: bool,
) -> Json:
    """The lines themselves. The limit is one for all streams; the end is not part of the span."""
    start, end = span
    found = [
        (at, index, text)
        for index, stream in enumerate(streams)
        for moment, text in stream.lines
        if start <= (at := _ns(moment)) < end and query.keeps(text)
    ]
    found.sort(key=lambda row: row[0], reverse=newest_first)
    by_stream: dict[int, list[list[str]]] = defaultdict(list)
    for at, index, text in found[:limit]:
        by_stream[index].append([str(at), text])
    result = [
        {"stream": dict(streams[index].labels), "values": values}
        for index, values in by_stream.items()
    ]
    return {"resultType": "streams", "result": result, "stats": {}}


def _counts(
    loki: Loki,
    query: logql.Query,
    streams: list[Stream],
    start: int,
    end: int,
    asked: dict[str, str],
) -> Json:
    """`count_over_time` at each step, over the window that ends there."""
    assert query.window_s is not None
    window = int(query.window_s * _SECOND_NS)
    step = int(_step_s(asked.get("step"), start, end) * _SECOND_NS)
    if (end - start) // step > 11_000:
        raise _Refused(
            400,
            "exceeded maximum resolution of 11,000 points per time series. Try increasing the value of the step parameter",
        )
    groups: dict[tuple[tuple[str, str], ...], list[int]] = defaultdict(list)
    for stream in streams:
        names = stream.labels if query.by is None else query.by
        key = tuple((name, stream.labels[name]) for name in names if name in stream.labels)
        times = [_ns(at) for at, text in stream.lines if query.keeps(text)]
        groups[key] += [at for at in times if start - window < at <= end]
    if len(groups) > loki.max_series:
        raise _Refused(400, f"maximum of series ({loki.max_series}) reached for a single query")
    result = []
    for key, times in groups.items():
        values = []
        for at in range(start, end + 1, step):
            count = sum(at - window < moment <= at for moment in times)
            if count:
                values.append([at / _SECOND_NS, str(count)])
        if values:
            result.append({"metric": dict(key), "values": values})
    return {"resultType": "matrix", "result": result, "stats": {}}


def _ns(at: datetime) -> int:
    """A time as Loki counts it."""
    return round(at.timestamp() * 1_000_000) * 1000


def _time_ns(text: str | None, otherwise: int) -> int:
    """A parameter: nanoseconds, seconds with a fraction, or RFC 3339."""
    if text is None:
        return otherwise
    try:
        number = float(text)
    except ValueError:
        return _ns(datetime.fromisoformat(text))
    return int(text) if text.isdigit() and len(text) > 10 else round(number * _SECOND_NS)


def _step_s(text: str | None, start: int, end: int) -> float:
    """The step: seconds, or a duration such as `30s`; else a 250th of the span, as Loki has it."""
    if text is None:
        return max((end - start) // _SECOND_NS // 250, 1)
    return float(text.removesuffix("s")) if not text.endswith("m") else float(text[:-1]) * 60


def _words(span_ns: int) -> str:
    """A duration as Go writes it."""
    seconds = span_ns // _SECOND_NS
    return f"{seconds // 3600}h{seconds % 3600 // 60}m{seconds % 60}s"
