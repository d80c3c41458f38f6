"""By which label the series of a job's nodes are found: it differs between exporters and set-ups.

`node` of service discovery, dcgm-exporter's `Hostname` (`hostname` since 2026), `instance` with a name or an
address: each is asked whom it knows, and the one that knows most nodes is used; the others for the rest.
Nodes that none knows are found by the pods that held their GPUs, and then asked for whole, since a pod's
label goes when the pod does, and a series that ends there would look like a dead GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from gpufleet_cli.live import metric_queries
from gpufleet_cli.live.metric_queries import Matcher
from gpufleet_cli.live.metric_server import Server


class Where(NamedTuple):
    """A selector for some nodes. The first condition is the one on `nodes`, the values of its label."""

    nodes: tuple[str, ...]
    conditions: tuple[Matcher, ...]

    def pieces(self, most: int) -> Iterator[tuple[list[str], Matcher]]:
        """Its nodes in pieces, each with its own condition."""
        label = self.conditions[0].label
        for piece in metric_queries.chunks(self.nodes, most=most):
            yield piece, metric_queries.one_of(label, piece)


class Found(NamedTuple):
    """Where the nodes are, and those that are nowhere."""

    places: list[Where]
    lost: list[str]


def find(
    server: Server,
    *,
    gauges: Sequence[str],
    nodes: Mapping[str, Sequence[str]],
    pods: Sequence[str],
    namespace: str | None,
    matchers: tuple[Matcher, ...],
    span_s: int,
    end_s: float,
) -> Found:
    """The labels and values under which `gauges` have series of these nodes. SourceError where nobody answers."""
    ask = _Ask(server, gauges, matchers, span_s, end_s)
    by_label = {label: ask.values(label, nodes) for label in metric_queries.NODE_LABELS}
    left: set[str] = set(nodes)
    places: list[Where] = []
    while left:
        label = max(by_label, key=lambda name: len(left & by_label[name].keys()))
        known = left & by_label[label].keys()
        if not known:
            break
        values = sorted(value for node in known for value in by_label[label][node])
        places.append(Where(tuple(values), (metric_queries.one_of(label, values),)))
        left -= known
    if (left or not nodes) and pods and namespace is not None:
        taken = {(place.conditions[0].label, value) for place in places for value in place.nodes}
        found = ask.by_pods(pods, namespace, taken)
        for label, those in found.items():
            places.append(Where(tuple(sorted(those)), (metric_queries.one_of(label, those),)))
        if sum(map(len, found.values())) >= len(left):
            left = set()  # the pods' GPUs are there, under other names
    return Found(places, sorted(left))


class Forms(NamedTuple):
    """Names and addresses to the node that bears them; `short` are first parts that one node alone has."""

    exact: Mapping[str, str]
    short: Mapping[str, str]


def forms_of(nodes: Mapping[str, Sequence[str]]) -> Forms:
    """What a label may say of these nodes."""
    exact = {form: node for node, addresses in nodes.items() for form in (node, *addresses) if form}
    bearers: dict[str, set[str]] = {}
    for form, node in exact.items():
        if "." in form and not metric_queries.is_address(form):
            bearers.setdefault(form.partition(".")[0], set()).add(node)
    short = {form: next(iter(those)) for form, those in bearers.items() if len(those) == 1}
    return Forms(exact, short)


class _Ask(NamedTuple):
    server: Server
    gauges: Sequence[str]
    matchers: tuple[Matcher, ...]
    span_s: int
    end_s: float

    def values(self, label: str, nodes: Mapping[str, Sequence[str]]) -> dict[str, set[str]]:
        """The label's values that stand for each node."""
        forms = forms_of(nodes)
        is_instance = label == "instance"
        names = (
            sorted(forms.exact)
            if is_instance
            else sorted(form for form in forms.exact if not metric_queries.is_address(form))
        )
        found: dict[str, set[str]] = {}
        for piece in metric_queries.chunks(names):
            for (value,) in self._asked((label,), (metric_queries.of_nodes(label, piece),)):
                node = node_of_value(value, forms, is_instance=is_instance)
                if node is not None:
                    found.setdefault(node, set()).add(value)
        return found

    def by_pods(
        self, pods: Sequence[str], namespace: str, taken: set[tuple[str, str]]
    ) -> dict[str, list[str]]:
        """Label and values under which the GPUs that these pods held are found, those of `taken` left out."""
        labels = ("instance", "node", "hostname", "Hostname")
        found: dict[str, set[str]] = {}
        for pod, space in metric_queries.POD_LABELS:
            is_known = False
            for piece in metric_queries.chunks(pods):
                of_job = (metric_queries.one_of(pod, piece), Matcher(space, "=", namespace))
                for values in self._asked(labels, of_job):
                    pairs = [pair for pair in zip(labels, values, strict=True) if pair[1]]
                    is_known = is_known or bool(pairs)
                    if pairs and not taken.intersection(pairs):
                        found.setdefault(pairs[0][0], set()).add(pairs[0][1])
            if is_known:
                break
        return {label: sorted(values) for label, values in sorted(found.items())}

    def _asked(self, labels: Sequence[str], of: tuple[Matcher, ...]) -> list[tuple[str, ...]]:
        """The combinations of values that these labels have in the window."""
        conditions = (*of, *self.matchers)

        def text(span_s: int) -> str:
            highest = metric_queries.highest(self.gauges, conditions, span_s)
            return f"count by ({','.join(labels)}) ({highest})"

        answer = self.server.over(text, self.end_s, self.span_s)
        told = (tuple(one.metric.get(label, "") for label in labels) for one in answer)
        return list(dict.fromkeys(told))


def node_of_value(value: str, forms: Forms, *, is_instance: bool) -> str | None:
    """Which node a label's value names: itself, without its port, or in its short form."""
    name = value
    if is_instance and value not in forms.exact:
        head, _, port = value.rpartition(":")
        name = head.strip("[]") if head and port.isdecimal() else value
    for form in (name, name.partition(".")[0]):
        if form in forms.exact:
            return forms.exact[form]
    return forms.short.get(name)
