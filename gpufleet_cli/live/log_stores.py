"""The log stores that there are: one made for an address, and one tried by daylight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpufleet_cli.errors import SourceError
from gpufleet_cli.live import log_store
from gpufleet_cli.live.gathered import Probe
from gpufleet_cli.live.http_source import Fetch
from gpufleet_cli.live.log_store import Store, Wanted
from gpufleet_cli.live.loki import Loki
from gpufleet_cli.live.victoria_logs import VictoriaLogs
from gpufleet_cli.plain_text import visible
from gpufleet_cli.timestamps import format_ns

LOOK_NS = 3600 * 10**9


def made(kind: str, fetch: Fetch, name: str) -> Store:
    """The store of a kind that `log_store.store_address` gives; `fetch` should be `http_source.Patient`."""
    if kind == "loki":
        return Loki(fetch=fetch, name=name)
    return VictoriaLogs(fetch=fetch, name=name)


def probe(
    store: Store,
    *,
    now_ns: int,
    namespace: str,
    pods: Sequence[str] = (),
    fields: Mapping[str, str] | None = None,
) -> Probe:
    """What the last hour holds of a namespace (and of a job's pods), with the newest line of a pod as a sample.

    Never raises SourceError: that is a finding.
    """
    wanted = Wanted(
        namespace=namespace,
        start_ns=now_ns - LOOK_NS,
        end_ns=now_ns,
        pods=pods,
    )
    try:
        return _probed(store, wanted, fields or {})
    except SourceError as exc:
        what = exc.message if exc.hint is None else f"{exc.message} ({exc.hint})"
        return Probe(
            source="log store", ok=False, what=what, would_lack="logs of pods that are gone"
        )


def _probed(store: Store, wanted: Wanted, stated: Mapping[str, str]) -> Probe:
    chosen, names = log_store.found_fields(store, wanted, stated)
    by = f"{chosen.pod}, {chosen.namespace}" if chosen.namespace else chosen.pod
    head = f"{store.kind}, fields {by}"
    asked = [name for name in names if name in wanted.pods]
    is_asked = bool(wanted.pods)
    shown = asked if is_asked else names
    if not shown:
        of = "of the job" if is_asked else f"of namespace {visible(wanted.namespace)}"
        return Probe(
            source="log store",
            ok=False,
            what=f"{head}: no line {of} in the last hour",
            would_lack="logs of pods that are gone",
        )
    pod = min(shown)
    lines, _ = store.page(chosen, wanted, pod, wanted.end_ns + 1)
    newest = f", newest line {format_ns(lines[0].ns)}" if lines else ""
    what = f"{head}: lines of {len(shown):,} pods, such as {visible(pod)}{newest}"
    lost = sorted(set(wanted.pods) - set(names))
    lack = f"logs of {visible(lost[0])} and {len(lost) - 1:,} more pods" if lost else ""
    return Probe(source="log store", ok=True, what=what, would_lack=lack)
