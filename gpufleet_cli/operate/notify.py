"""Alertmanager's API, version 2: alerts are posted, and posted again while they last; it routes them to people.

https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml (`postableAlerts`). An alert is known by its
labels; one whose `endsAt` is over is resolved. Like Prometheus we state an end a few minutes ahead and post anew before,
so that an alert of a watch that was killed ends by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from gpufleet_cli.errors import SourceError, UsageError
from gpufleet_cli.live.service_access import headers_of
from gpufleet_cli.live.service_words import one_line, shown_url
from gpufleet_cli.plain_text import visible
from gpufleet_cli.redact import redact
from gpufleet_cli.settings_file import Access
from gpufleet_cli.timestamps import format_ns

PATH = "/api/v2/alerts"
CHARS = 2_000
TIMEOUT_S = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert as it is posted."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    starts_ns: int
    ends_ns: int
    generator: str


def payload(alerts: Sequence[Alert]) -> list[dict[str, object]]:
    """The body of a post. Annotations quote evidence: no secret and no control character leaves."""
    return [
        {
            "labels": {name: visible(value) for name, value in one.labels.items()},
            "annotations": {
                name: visible(redact(value))[:CHARS] for name, value in one.annotations.items()
            },
            "startsAt": format_ns(one.starts_ns),
            "endsAt": format_ns(one.ends_ns),
            "generatorURL": one.generator,
        }
        for one in alerts
    ]


def address(url: str) -> str:
    """Where to post, without user and password. UsageError for what is no http or https URL."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(
            f"--alertmanager {shown_url(url) or visible(url)!r} is no http or https URL",
            hint="write https://HOST[:PORT][/PATH]",
        )
    path = parts.path.rstrip("/").removesuffix(PATH)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], path + PATH, "", ""))


def post(url: str, alerts: Sequence[Alert], *, timeout_s: float = TIMEOUT_S) -> None:
    """Post them. SourceError in one line where they were not taken."""
    import httpx

    shown = shown_url(url)
    try:
        answer = httpx.post(
            address(url), json=payload(alerts), headers=headers_of(Access(), url), timeout=timeout_s
        )
    except httpx.HTTPError as exc:
        said = one_line(str(exc)) or type(exc).__name__
        raise SourceError(f"{shown}: {said}") from exc
    except (ValueError, OSError) as exc:  # a proxy or a CA file of this shell
        raise SourceError(f"{shown}: {one_line(str(exc))}") from exc
    if answer.status_code != 200:
        said = one_line(answer.text[:400])
        raise SourceError(f"{shown} answered {answer.status_code}{f': {said}' if said else ''}")
