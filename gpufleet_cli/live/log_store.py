"""Where the logs of pods that are gone are kept: what to ask for, and lines page by page, newest first.

A store is a `Store`: `loki` and `victoria_logs` are the two. `gather` writes a file per pod,
`log-store/POD.jsonl`, one object a line, oldest first, as `logcli -o jsonl` and VictoriaLogs write them and
as the wrappers of `parsers` read them. Times are Unix nanoseconds and stay integers. Time in a store is the
shipper's; the last lines of a node that died may never have come. Facts: kubernetes.md 6, "Logs".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from gpufleet_cli.errors import SourceError, UsageError
from gpufleet_cli.facts import Gap
from gpufleet_cli.live.gathered import Gathered
from gpufleet_cli.plain_text import visible
from gpufleet_cli.timestamps import format_ns

PAGE = 5_000
"""Lines asked for at once: Loki's own limit, over all streams of a query."""
MOST_LINES = 100_000
MOST_BYTES = 32 << 20
THREADS = 8
_SHOWN = 6

POD_FIELDS = (
    "pod", "kubernetes.pod_name", "kubernetes_pod_name", "k8s_pod_name", "k8s.pod.name", "pod_name", "podName",
    "kubernetes.pod.name", "k8s_pod", "kubernetes_pod", "instance_pod",
)  # fmt: skip
NAMESPACE_FIELDS = (
    "namespace", "kubernetes.pod_namespace", "kubernetes.namespace_name", "kubernetes_namespace_name",
    "kubernetes_pod_namespace", "k8s_namespace_name", "k8s.namespace.name", "namespace_name", "pod_namespace",
    "kubernetes.namespace", "kubernetes_namespace",
)  # fmt: skip
"""Names that collectors give to pod and namespace (Promtail, Alloy, Fluent Bit, Vector, OpenTelemetry)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Logs of these pods in [start, end]; of `pod_names` all that have lines in that time.

    `most_lines` and `most_bytes` are per pod; the newest are kept.
    """

    namespace: str
    start_ns: int
    end_ns: int
    pods: Sequence[str] = ()
    pod_names: re.Pattern[str] | None = None
    most_lines: int = MOST_LINES
    most_bytes: int = MOST_BYTES


class Line(NamedTuple):
    """One line as it is kept: its time, and one JSON object without a newline."""

    ns: int
    record: bytes


class Fields(NamedTuple):
    """How this store's collector spells pod and namespace; no namespace field means that none is asked by."""

    pod: str
    namespace: str | None


class Store(Protocol):
    """A log store. Every method raises SourceError in one line."""

    name: str
    kind: str
    limit: int

    def field_names(self, start_ns: int, end_ns: int) -> list[str]:
        """Names of fields (of labels, in Loki) that lines of that time have."""

    def values(
        self, name: str, start_ns: int, end_ns: int, *, within: tuple[str, str] | None
    ) -> list[str]:
        """Values of a field, of lines whose other field (`within`) has a value."""

    def page(
        self, fields: Fields, wanted: Wanted, pod: str, end_ns: int
    ) -> tuple[list[Line], bool]:
        """Newest lines of a pod before `end_ns` (which is out), newest first, and whether there may be more."""


def gather(store: Store, wanted: Wanted, *, fields: Mapping[str, str] | None = None) -> Gathered:
    """The logs of these pods. SourceError where the store cannot be asked at all.

    `fields` are `log_store_fields` of the settings: they win over what is found by asking.
    """
    chosen, names = found_fields(store, wanted, fields or {})
    pods = sorted({*wanted.pods, *_matching(names, wanted)})
    with ThreadPoolExecutor(THREADS) as pool:
        parts = list(pool.map(lambda pod: _log_of(store, chosen, wanted, pod), pods))
    files: list[tuple[str, bytes]] = []
    gaps: list[Gap] = []
    empty: list[str] = []
    lines = 0
    for pod, (found, told) in zip(pods, parts, strict=True):
        gaps += told
        lines += len(found)
        if found:
            files.append(
                (f"log-store/{pod}.jsonl", b"\n".join(line.record for line in found) + b"\n")
            )
        elif not told:
            empty.append(pod)
    if empty or not pods:
        gaps.append(_nothing(store, wanted, empty))
    by = f"{chosen.pod}, {chosen.namespace}" if chosen.namespace else chosen.pod
    found_line = f"{store.kind}: {lines:,} lines of {len(files):,} pods (fields {by})"
    return Gathered(files=tuple(files), gaps=tuple(gaps), found=found_line)


def found_fields(
    store: Store, wanted: Wanted, stated: Mapping[str, str]
) -> tuple[Fields, list[str]]:
    """How pod and namespace are spelled here, and the pods that have lines; asked, unless stated.

    Of several names that exist the one wins under which the job's pods are found.
    """
    start, end = wanted.start_ns, wanted.end_ns
    known = store.field_names(start, end)
    namespace = stated.get("namespace") or next((f for f in NAMESPACE_FIELDS if f in known), None)
    candidates = [stated["pod"]] if "pod" in stated else [f for f in POD_FIELDS if f in known]
    if not candidates:
        if not known:
            raise SourceError(f"{store.name}: no lines at all in that time")
        shown = ", ".join(map(visible, known[:_SHOWN]))
        raise SourceError(
            f"{store.name}: no field that names pods among {shown}",
            hint="log_store_fields = { pod = ... } in the settings file",
        )
    within = None if namespace is None else (namespace, wanted.namespace)
    first: tuple[Fields, list[str]] | None = None
    for candidate in candidates:
        names = store.values(candidate, start, end, within=within)
        fields = Fields(candidate, namespace)
        if set(names) & set(wanted.pods) or list(_matching(names, wanted)):
            return fields, names
        first = first or (fields, names)
    assert first is not None
    return first


def _matching(names: Sequence[str], wanted: Wanted) -> Iterator[str]:
    pattern = wanted.pod_names
    return (name for name in names if pattern is not None and pattern.fullmatch(name))


def _log_of(store: Store, fields: Fields, wanted: Wanted, pod: str) -> tuple[list[Line], list[Gap]]:
    """The lines of one pod, oldest first, back to the start or to a limit."""
    found: list[Line] = []
    gaps: list[Gap] = []
    end_ns, size = wanted.end_ns + 1, 0
    what = f"log of {visible(pod)} in the log store"
    while end_ns > wanted.start_ns:
        try:
            page, may_be_more = store.page(fields, wanted, pod, end_ns)
        except SourceError as exc:
            before = f" before {format_ns(found[-1].ns)}" if found else ""
            gaps.append(Gap(what=what + before, why=exc.message, would_settle="its last lines"))
            break
        if not page or not may_be_more:
            found += page
            break
        # A full page may cut through lines of one moment: these are left to the next, which has them all.
        end_ns = page[-1].ns + 1
        kept = [line for line in page if line.ns >= end_ns]
        if not kept:
            kept, end_ns = page, page[-1].ns
            if len(page) >= store.limit:
                why = f"more lines at {format_ns(end_ns)} than one page has"
                gaps.append(Gap(what=what, why=why, would_settle="lines of that moment"))
        found += kept
        size += sum(len(line.record) for line in kept)
        if len(found) >= wanted.most_lines or size >= wanted.most_bytes:
            before = f"{what} before {format_ns(found[-1].ns)}"
            why = f"the newest {len(found):,} lines are kept"
            gaps.append(Gap(what=before, why=why, would_settle="earlier lines"))
            break
    return found[::-1], gaps


def _nothing(store: Store, wanted: Wanted, pods: Sequence[str]) -> Gap:
    shown = ", ".join(map(visible, pods[:_SHOWN]))
    if len(pods) > _SHOWN:
        shown += f" and {len(pods) - _SHOWN:,} more"
    span = f"between {format_ns(wanted.start_ns)} and {format_ns(wanted.end_ns)}"
    return Gap(
        what=f"logs of {shown or 'pods of the job'} in the log store",
        why=f"{store.name} has no line of them {span}",
        would_settle="what they last did; a dead node's last lines may never have been shipped",
    )


class StoreAddress(NamedTuple):
    """`loki+URL` or `victorialogs+URL` taken apart; the URL may be `svc:NAMESPACE/NAME:PORT`."""

    kind: str
    url: str


def store_address(text: str) -> StoreAddress:
    """What `--log-store` names; UsageError for anything else.

    >>> store_address("loki+svc:monitoring/loki-gateway:80")
    StoreAddress(kind='loki', url='svc:monitoring/loki-gateway:80')
    """
    kind, plus, url = text.strip().partition("+")
    if not plus or kind not in ("loki", "victorialogs") or not url:
        raise UsageError(
            f"--log-store {visible(text)!r} names no log store",
            hint="write loki+URL or victorialogs+URL, with http(s)://... or svc:NAMESPACE/NAME:PORT as URL",
        )
    return StoreAddress(kind, url)
