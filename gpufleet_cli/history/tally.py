"""What the kept incidents say together: who repeats, how often, how fast. Pure: no clock, no file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from gpufleet_cli import repeats
from gpufleet_cli.chances import chance_of_at_least
from gpufleet_cli.cost_fleet import interval90_gpu_hours
from gpufleet_cli.history.record import DAY_NS, HOUR_NS, Incident
from gpufleet_cli.history_card import HistoryRow, HowFast, HowOften, Offender
from gpufleet_cli.node_card import FaultRate, PastIncident

ENOUGH = 10
"""Faults from which on the history's own rate stands for the fleet's."""
NS_A_S = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which incidents are asked for."""

    since_ns: int | None = None
    node: str | None = None
    job: str | None = None
    namespace: str | None = None
    kind: str | None = None

    def has(self, one: Incident) -> bool:
        """A job is meant by its name, or by NAMESPACE/NAME."""
        if self.since_ns is not None and (one.at_ns is None or one.at_ns < self.since_ns):
            return False
        if self.namespace not in (None, one.namespace):
            return False
        if self.node is not None and self.node not in one.nodes:
            return False
        if self.job is not None and self.job not in (one.job, f"{one.namespace}/{one.job}"):
            return False
        return self.kind is None or self.kind == one.kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """From when to when incidents are counted. `left_out`: the one that began the span by itself."""

    from_ns: int
    to_ns: int
    left_out: str | None = None

    @property
    def hours(self) -> float:
        return (self.to_ns - self.from_ns) / HOUR_NS

    def has(self, one: Incident) -> bool:
        is_inside = one.at_ns is not None and self.from_ns <= one.at_ns <= self.to_ns
        return is_inside and one.id != self.left_out


def span_of(incidents: Sequence[Incident], *, since_ns: int | None, as_of_ns: int) -> Span | None:
    """Since when anybody says, else since the first incident; None where neither is before now."""
    if since_ns is not None:
        return Span(from_ns=since_ns, to_ns=as_of_ns) if since_ns < as_of_ns else None
    dated = [one for one in incidents if one.at_ns is not None]
    if not dated:
        return None
    first = min(dated, key=lambda one: (one.at_ns or 0, one.id))
    if first.at_ns is None or first.at_ns >= as_of_ns:
        return None
    return Span(from_ns=first.at_ns, to_ns=as_of_ns, left_out=first.id)


# --- Nodes ----------------------------------------------------------------------------------------


def cluster_names(incidents: Iterable[Incident]) -> Callable[[Incident], str | None]:
    """How a cluster is told: by its server, which is the same for everybody; a context that stands beside
    one server alone means that one."""
    servers: dict[str, set[str]] = {}
    for one in incidents:
        if one.context and one.server:
            servers.setdefault(one.context, set()).add(one.server)

    def name(one: Incident) -> str | None:
        known = servers.get(one.context or "", set())
        return one.server or (next(iter(known)) if len(known) == 1 else one.context)

    return name


Node = tuple[str | None, str]
"""Cluster and name."""


def times_of_nodes(
    incidents: Sequence[Incident], counts: Callable[[Incident], bool]
) -> dict[Node, list[int]]:
    """When each node was named by the incidents that count."""
    cluster = cluster_names(incidents)
    found: dict[Node, list[int]] = {}
    for one in incidents:
        if counts(one) and one.at_ns is not None:
            for node in one.nodes:
                found.setdefault((cluster(one), node), []).append(one.at_ns)
    return found


def _is_fault(one: Incident) -> bool:
    return one.is_node_fault


def _singles_out(one: Incident) -> bool:
    return one.singles_out


def _seen(incidents: Sequence[Incident], counts: Callable[[Incident], bool], span: Span) -> int:
    inside = [one for one in incidents if span.has(one)]
    return sum(len(repeats.apart(times)) for times in times_of_nodes(inside, counts).values())


def own_rate(
    incidents: Sequence[Incident], span: Span | None, nodes: int | None
) -> tuple[FaultRate, tuple[float, float]] | None:
    """The rate that the history itself shows, with its 90 % interval; None from too few, or of unknown nodes.

    Offenders are in it, which errs on the side of the nodes.
    """
    if span is None or nodes is None:
        return None
    seen = _seen(incidents, _is_fault, span)
    node_days = nodes * span.hours / 24
    if seen < ENOUGH or node_days <= 0:
        return None
    low, high = interval90_gpu_hours(seen, node_days)
    return FaultRate(seen / node_days, "history"), (1 / (high or node_days), 1 / low)


def offenders(
    incidents: Sequence[Incident],
    *,
    as_of_ns: int,
    nodes: int | None,
    rate: FaultRate,
    span: Span | None = None,
) -> tuple[Offender, ...]:
    """Nodes that repeat, the least likely first; `span` and `nodes` tell how often any node is singled out."""
    faults = times_of_nodes(incidents, _is_fault)
    singled = times_of_nodes(incidents, _singles_out)
    named = times_of_nodes(incidents, lambda _: True)
    usual = None
    if span is not None and nodes is not None and span.hours > 0:
        usual = _seen(incidents, _singles_out, span) / (nodes * span.hours / 24)
    found = []
    begin = as_of_ns - repeats.LONG[0] * DAY_NS
    for (cluster, node), times in singled.items():
        test = repeats.judge(
            faults.get((cluster, node), ()), now_ns=as_of_ns, nodes=nodes, rate=rate
        )
        many = sum(begin <= at <= as_of_ns for at in repeats.apart(times))
        if many < repeats.LONG[1] and (test is None or test.faults < 2):
            continue
        chance = None if usual is None else chance_of_at_least(many, usual * repeats.LONG[0])
        found.append(
            Offender(
                node=node,
                cluster=cluster,
                named=len(named[cluster, node]),
                singled_out=many,
                singled_out_chance=chance,
                test=test,
            )
        )
    return tuple(sorted(found, key=_worst_first))


def _worst_first(one: Offender) -> tuple[bool, float, int, str]:
    chance = 1.0 if one.test is None else one.test.chance
    return not one.is_flagged, chance, -one.singled_out, one.node


def of_node(
    incidents: Sequence[Incident], node: str, *, context: str | None, server: str | None = None
) -> list[PastIncident]:
    """Those that name a node, newest first; of another cluster it is another node."""
    cluster = cluster_names(incidents)
    own = {one for one in (server, context) if one is not None}
    found = [
        PastIncident(
            at_ns=one.at_ns,
            kind=one.kind,
            action=one.action,
            is_node_fault=one.is_node_fault,
            job=one.job,
            namespace=one.namespace,
            xids=one.xids,
        )
        for one in incidents
        if node in one.nodes and (not own or cluster(one) in (None, *own))
    ]
    return sorted(found, key=lambda one: -(one.at_ns or 0))


# --- How often, how fast --------------------------------------------------------------------------


_BASES: tuple[tuple[str, str, Callable[[Incident], bool]], ...] = (
    ("node faults", "node_faults", lambda one: one.is_node_fault),
    ("stopped jobs", "stopped_jobs", lambda one: one.stopped_a_job),
)


def how_often(
    incidents: Sequence[Incident], span: Span | None, gpus: int | None
) -> tuple[HowOften, ...]:
    """For each basis, since they must not be mixed: faults of nodes, and stops of jobs of whatever cause."""
    return tuple(_often(what, name, counts, incidents, span, gpus) for what, name, counts in _BASES)


def _often(
    what: str,
    name: str,
    counts: Callable[[Incident], bool],
    incidents: Sequence[Incident],
    span: Span | None,
    gpus: int | None,
) -> HowOften:
    chosen = [one for one in incidents if counts(one)]
    if span is None:
        return HowOften(
            what=what, name=name, seen=len(chosen), without_first=False, hours=None, hours_each=None,
            interval90_hours=None, gpu_hours_each=None, interval90_gpu_hours=None,
        )  # fmt: skip
    seen = sum(span.has(one) for one in chosen)
    hours = span.hours
    return HowOften(
        what=what,
        name=name,
        seen=seen,
        without_first=any(one.id == span.left_out for one in chosen),
        hours=hours,
        hours_each=hours / seen if seen else None,
        interval90_hours=interval90_gpu_hours(seen, hours),
        gpu_hours_each=None if gpus is None or not seen else gpus * hours / seen,
        interval90_gpu_hours=None if gpus is None else interval90_gpu_hours(seen, gpus * hours),
    )


def how_fast(incidents: Sequence[Incident]) -> tuple[HowFast, ...]:
    """From the beginning to the first sign that anybody could not but see (the job's end, or somebody's
    look), and to the first verdict that was none of `undecidable`."""
    return (
        _fast("to detect", "detect", incidents, _noticed_ns),
        _fast("to diagnose", "diagnose", incidents, lambda one: one.diagnosed_ns),
    )


def _noticed_ns(one: Incident) -> int | None:
    return min((at for at in (one.ended_ns, one.looked_ns) if at is not None), default=None)


def _fast(
    what: str,
    name: str,
    incidents: Sequence[Incident],
    until: Callable[[Incident], int | None],
) -> HowFast:
    known = []
    for one in incidents:
        at = until(one)
        if at is not None and one.began_ns is not None and at >= one.began_ns:
            known.append((at - one.began_ns) / NS_A_S)
    return HowFast(
        what=what,
        name=name,
        median_s=median(known) if known else None,
        known=len(known),
        of=len(incidents),
    )


# --- For the page, and beside a verdict -----------------------------------------------------------


def rows(incidents: Sequence[Incident]) -> tuple[HistoryRow, ...]:
    """Newest first."""
    cluster = cluster_names(incidents)
    return tuple(_row(one, cluster(one)) for one in reversed(incidents))


def _row(one: Incident, cluster: str | None) -> HistoryRow:
    same: Mapping[str, object] = {
        name: getattr(one, name) for name in HistoryRow.__dataclass_fields__ if name != "cluster"
    }
    return HistoryRow(cluster=cluster, **same)  # type: ignore[arg-type]  # fields of one name


def beside_verdict(incidents: Sequence[Incident], own: Incident, rate: FaultRate) -> list[str]:
    """A line for each of the first nodes of this incident, which is one of `incidents`, that had a fault in
    the four weeks before it."""
    if not own.is_node_fault or own.at_ns is None:
        return []
    cluster = cluster_names(incidents)
    times = times_of_nodes(incidents, _is_fault)
    told = []
    for node in own.nodes:
        begin = own.at_ns - repeats.LONG[0] * DAY_NS
        test = repeats.judge(
            (at for at in times.get((cluster(own), node), ()) if begin <= at <= own.at_ns),
            now_ns=own.at_ns, nodes=None, rate=rate,
        )  # fmt: skip
        if test is not None and test.faults > 1:
            odds = f"by luck 1 in {1 / test.chance:,.0f} healthy nodes"
            told.append(f"history: {node}: {test.faults} faults in {test.days} d, {odds}")
    return told[:2]
