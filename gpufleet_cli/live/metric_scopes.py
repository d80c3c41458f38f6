"""Series of another cluster, which must never be joined with ours.

A store that many clusters write to holds nodes, GPUs and pods of one name more than once. What tells them
apart are labels such as `cluster` or `region`. Where the series of one node, GPU or pod differ in such a
label, none of them is used; where a job's nodes differ, those of the few are not. Each is a Gap that says
which setting would choose.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gpufleet_cli.facts import Gap
from gpufleet_cli.plain_text import visible

SCOPE_LABELS = (
    "cluster", "cluster_name", "clusterName", "cluster_id", "k8s_cluster", "k8s_cluster_name", "kube_cluster",
    "kubernetes_cluster", "kubernetes_cluster_name", "region", "aws_region", "cloud_region", "environment", "env",
    "datacenter", "data_center", "dc", "site", "project_id", "__tenant_id__", "tenant_id", "vm_account_id",
    "vm_project_id",
)  # fmt: skip
"""Labels that name where a series comes from; the last are tenants, as Mimir (asked for several at once), Thanos Receive
and VictoriaMetrics name them. Not those of an NVLink fabric's cluster."""

_SCOPE_LABELS = frozenset(SCOPE_LABELS)
_SHOWN = 6

Scope = tuple[tuple[str, str], ...]


class Placed(NamedTuple):
    """One series: its labels, and the things it speaks of, such as ("node", "gpu-1")."""

    metric: Mapping[str, str]
    of: tuple[tuple[str, str], ...]


class Judged(NamedTuple):
    """Which of the series may be used, in the order they came, and what was left out."""

    kept: list[bool]
    gaps: tuple[Gap, ...]


def scope_of(labels: Mapping[str, str]) -> Scope:
    """What the labels say of the place; a label that is absent says nothing."""
    if _SCOPE_LABELS.isdisjoint(labels):
        return ()
    return tuple((name, labels[name]) for name in SCOPE_LABELS if labels.get(name))


def judge(series: Sequence[Placed]) -> Judged:
    """Leaves out what could be another cluster's. `series` must be all that was asked for, of all metrics."""
    by_thing: dict[tuple[str, str], list[Mapping[str, str]]] = defaultdict(list)
    for one in series:
        for thing in one.of:
            by_thing[thing].append(one.metric)
    mixed = {thing: told for thing, members in by_thing.items() if (told := _difference(members))}
    kept = [not any(thing in mixed for thing in one.of) for one in series]
    gaps = list(_mixed_gaps(mixed))
    strangers, ours = _strangers(one for one, is_kept in zip(series, kept, strict=True) if is_kept)
    if strangers:
        kept = [
            is_kept and not any(thing in strangers for thing in one.of)
            for one, is_kept in zip(series, kept, strict=True)
        ]
        gaps.append(_strangers_gap(strangers, ours))
    return Judged(kept, tuple(gaps))


def _difference(members: Iterable[Mapping[str, str]]) -> str:
    """How the scopes of one thing's series differ; empty where they do not.

    Within one metric a missing label differs too; metrics of different exporters may carry different labels.
    """
    by_metric: dict[str, set[Scope]] = defaultdict(set)
    by_label: dict[str, set[str]] = defaultdict(set)
    for labels in members:
        scope = scope_of(labels)
        by_metric[labels.get("__name__", "")].add(scope)
        for name, value in scope:
            by_label[name].add(value)
    for name, values in by_label.items():
        if len(values) > 1:
            return f"{name} " + _listed(sorted(values), "and")
    for scopes in by_metric.values():
        if len(scopes) > 1:
            name, value = next(pair for scope in scopes for pair in scope)
            return f"{name} {visible(value)} and none"
    return ""


def _mixed_gaps(mixed: Mapping[tuple[str, str], str]) -> Iterable[Gap]:
    """One gap for all things that differ alike, nodes before the GPUs on them."""
    nodes = {thing for thing in mixed if thing[0] == "node"}
    chosen = nodes or set(mixed)
    by_difference: dict[str, list[str]] = defaultdict(list)
    for kind, name in sorted(chosen):
        by_difference[mixed[kind, name]].append(f"{kind} {name}")
    for difference, things in by_difference.items():
        label = difference.partition(" ")[0]
        yield Gap(
            what=f"metrics of {_listed(things, 'and')}",
            why=f"series of several places bear the name ({difference}), so none is used",
            would_settle=f"matchers = '{label}=\"...\"' of the context in the settings file",
        )


def _strangers(series: Iterable[Placed]) -> tuple[set[tuple[str, str]], Scope]:
    """Nodes whose scope is not that of most nodes, with the scope of most; all of them without a majority."""
    scopes: dict[tuple[str, str], Scope] = {}
    for one in series:
        scope = scope_of(one.metric)
        for thing in one.of:
            if thing[0] == "node" and len(scope) > len(scopes.get(thing, ())):
                scopes[thing] = scope
    if len(set(scopes.values())) < 2:
        return set(), ()
    (most, count), *_ = Counter(scopes.values()).most_common(1)
    if count * 2 <= len(scopes):
        return set(scopes), ()
    return {thing for thing, scope in scopes.items() if scope != most}, most


def _strangers_gap(strangers: set[tuple[str, str]], ours: Scope) -> Gap:
    names = sorted(name for _, name in strangers)
    those = (
        f"the job's other nodes have {_said(ours)}"
        if ours
        else "no place has most nodes of the job"
    )
    return Gap(
        what=f"metrics of {_listed([f'node {name}' for name in names], 'and')}",
        why=f"the only series of that name are of another place: {those}",
        would_settle="matchers of the context in the settings file",
    )


def _said(scope: Scope) -> str:
    return ", ".join(f"{name} {visible(value)}" for name, value in scope)


def _listed(names: Sequence[str], joint: str) -> str:
    shown = [visible(name) for name in names[:_SHOWN]]
    more = len(names) - len(shown)
    if more > 0:
        return f"{', '.join(shown)} and {more:,} more"
    return (
        f" {joint} ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else "".join(shown)
    )
