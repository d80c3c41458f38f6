"""VictoriaMetrics and VictoriaLogs with what a test gives them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import urllib3

from servers import programs, running
from servers.metrics import Series, exposition


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """The log of one container: its labels and its lines."""

    labels: Mapping[str, str]
    lines: Sequence[tuple[datetime, str]]


@contextmanager
def running_metrics(folder: Path, series: Iterable[Series] = ()) -> Iterator[str]:
    """The URL of a VictoriaMetrics that knows these series."""
    flags = ("-storageDataPath=data", "-retentionPeriod=100y")
    with _running(folder, "victoria-metrics", flags) as url:
        _post(f"{url}/api/v1/import/prometheus", exposition(series))
        _post(f"{url}/internal/force_flush", "")
        yield url


@contextmanager
def running_logs(folder: Path, streams: Iterable[Stream] = ()) -> Iterator[str]:
    """The URL of a VictoriaLogs that holds these lines, each stream under its labels."""
    # Lines may be old here; by default those of more than a week ago are dropped at the door.
    flags = ("-storageDataPath=data", "-retentionPeriod=100y")
    with _running(folder, "victoria-logs", flags) as url:
        for stream in streams:
            rows = [
                json.dumps({**stream.labels, "_time": at.astimezone(UTC).isoformat(), "_msg": text})
                for at, text in stream.lines
            ]
            fields = ",".join(stream.labels)
            _post(f"{url}/insert/jsonline?_stream_fields={fields}", "\n".join(rows))
        _post(f"{url}/internal/force_flush", "")
        yield url


@contextmanager
def _running(folder: Path, name: str, flags: Sequence[str]) -> Iterator[str]:
    """One of the two, on a free port."""
    program = programs.find(name)
    folder.mkdir(parents=True, exist_ok=True)
    (port,) = running.free_ports(1)
    url = f"http://127.0.0.1:{port}"
    try:
        running.launch(folder, name, [program, f"-httpListenAddr=127.0.0.1:{port}", *flags])
        running.wait_ready(folder, name, lambda: _is_healthy(url))
        yield url
    finally:
        running.stop(folder, name)


def _is_healthy(url: str) -> bool:
    """Whether it takes requests."""
    try:
        return urllib3.request("GET", f"{url}/health", retries=False).status == 200
    except urllib3.exceptions.HTTPError:
        return False


def _post(url: str, body: str) -> None:
    """Hand something in."""
    answer = urllib3.request("POST", url, body=body.encode(), retries=False, timeout=60)
    if answer.status >= 300:
        raise RuntimeError(f"{url}: {answer.status} {answer.data!r}")
