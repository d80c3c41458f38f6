"""Kubernetes events, of core/v1 and events.k8s.io/v1.

Which time is the event's: `series.lastObservedTime`, then `lastTimestamp`, then `eventTime`, then the
object's creation; `eventTime: null` occurs. Node events carry the node's name in `involvedObject`.
What kubectl prints has ages instead, relative and cut: `14m` is any time within that minute.

>>> age("3h25m"), age("14m"), age("80s"), age("<unknown>")
((12300.0, 60.0), (840.0, 60.0), (80.0, 1.0), None)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from gpufleet_cli.facts import ClusterEvent, Fact, IdentityLink, Link, Origin
from gpufleet_cli.parsers import json_documents as js
from gpufleet_cli.parsers.kubernetes_pods import time_of

MESSAGE_CHARS = 400
_UNITS_S = {"y": 31_536_000, "d": 86_400, "h": 3_600, "m": 60, "s": 1, "ms": 0.001}
_AGE = re.compile(r"(?:\d{1,6}(?:ms|[ydhms])){1,5}")
_AGE_PART = re.compile(r"(\d{1,6})(ms|[ydhms])")
_REPEATED = re.compile(r"^(?P<last>\S{1,40})\s\(x(?P<count>\d{1,9}) over (?P<first>\S{1,20})\)$")
_ASSIGNED = re.compile(r"Successfully assigned (?:(\S{1,253})/)?(\S{1,253}) to (\S{1,253})")


def read(event: Mapping[str, object], origin: Origin) -> Iterator[Fact]:
    """The event; "Successfully assigned" also ties a pod to its node."""
    target = js.mapping(event.get("involvedObject")) or js.mapping(event.get("regarding"))
    name = js.text(target.get("name"))
    if name is None:
        return
    message = js.text(event.get("message")) or js.text(event.get("note")) or ""
    reason = js.text(event.get("reason")) or ""
    namespace = js.text(target.get("namespace")) or js.text_at(event, "metadata", "namespace")
    yield ClusterEvent(
        reason=reason,
        kind=js.text(target.get("kind")) or "",
        name=name,
        namespace=namespace,
        message=message[:MESSAGE_CHARS],
        warning=event.get("type") == "Warning",
        at_ns=_last(event),
        age_s=None,
        age_error_s=0.0,
        origin=origin,
        first_ns=_first(event),
        count=_count(event),
        node=_reporter(event),
    )
    yield from assigned(message, origin)


def _last(event: Mapping[str, object]) -> int | None:
    for path in (
        ("series", "lastObservedTime"),
        ("lastTimestamp",),
        ("deprecatedLastTimestamp",),
        ("eventTime",),
        ("metadata", "creationTimestamp"),
    ):
        at_ns = time_of(js.at(event, *path))
        if at_ns is not None:
            return at_ns
    return None


def _first(event: Mapping[str, object]) -> int | None:
    for path in (
        ("firstTimestamp",),
        ("deprecatedFirstTimestamp",),
        ("eventTime",),
        ("metadata", "creationTimestamp"),
    ):
        at_ns = time_of(js.at(event, *path))
        if at_ns is not None:
            return at_ns
    return None


def _count(event: Mapping[str, object]) -> int:
    for path in (("series", "count"), ("count",), ("deprecatedCount",)):
        found = js.integer(js.at(event, *path))
        if found is not None and found > 0:
            return found
    return 1


def _reporter(event: Mapping[str, object]) -> str | None:
    """The node whose kubelet reported it."""
    host = js.text_at(event, "source", "host") or js.text_at(event, "deprecatedSource", "host")
    if host is not None:
        return host
    is_kubelet = event.get("reportingComponent") == "kubelet" or (
        event.get("reportingController") == "kubelet"
    )
    return js.text(event.get("reportingInstance")) if is_kubelet else None


def assigned(message: str, origin: Origin) -> Iterator[IdentityLink]:
    """`Successfully assigned ml/p-0 to gpu-h01`."""
    found = _ASSIGNED.match(message)
    if found:
        yield IdentityLink(
            how=Link.SCHEDULER,
            origin=origin,
            namespace=found[1],
            pod=found[2],
            node=found[3].rstrip("."),
        )


# --- Relative ages ------------------------------------------------------------------------------


def age(text: str) -> tuple[float, float] | None:
    """(seconds, width of the last unit) of a relative age, None for what is none."""
    if not _AGE.fullmatch(text):
        return None
    parts = _AGE_PART.findall(text)
    total = sum(int(number) * _UNITS_S[unit] for number, unit in parts)
    return float(total), float(_UNITS_S[parts[-1][1]])


def relative(
    *,
    kind: str,
    name: str,
    namespace: str | None,
    reason: str,
    warning: bool,
    message: str,
    seen: str,
    first_seen: str,
    count: str,
    origin: Origin,
) -> ClusterEvent:
    """An event with a relative age, a repeated one, or (custom columns) a time."""
    repeated = _REPEATED.match(seen.strip())
    last = repeated["last"] if repeated else seen.strip()
    first = repeated["first"] if repeated else first_seen.strip()
    times = repeated["count"] if repeated else count.strip()
    known, known_first = age(last), age(first)
    return ClusterEvent(
        reason=reason,
        kind=kind,
        name=name,
        namespace=namespace,
        message=message[:MESSAGE_CHARS],
        warning=warning,
        at_ns=time_of(last),
        age_s=known[0] if known else None,
        age_error_s=known[1] if known else 0.0,
        origin=origin,
        first_ns=time_of(first),
        first_age_s=known_first[0] if known_first else None,
        count=int(times) if times.isdecimal() and len(times) <= 9 else 1,
    )
