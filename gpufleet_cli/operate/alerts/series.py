"""Which series are the job's: its own metrics, its pods by kube-state-metrics, its GPUs by DCGM's labels.

DCGM's series name the pod that holds the GPU as `exported_pod` where Prometheus does not honour labels (`pod`
is the exporter then), as `pod` where it does, and not at all where the exporter does not ask the kubelet. In
that last case alone the node tells: it holds a pod of the job by `kube_pod_info`. `Hostname` became `hostname`,
may be a name of its own (the exporter's pod), and a scrape may add the node as `node` or `kubernetes_node`. The
other way about, those labels tell which nodes hold the job where nobody scrapes kube-state-metrics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpufleet_cli.live.metric_queries import literal, quoted
from gpufleet_cli.operate.alerts.numbers import Numbers
from gpufleet_cli.operate.alerts.promql import span

Selected = Callable[[str], str]
"""From matchers to a vector: `lambda m: f"rate(SOME_COUNTER{{{m}}}[5m])"`."""
NODE_LABELS = "Hostname, hostname"
_EXPORTER = "|.*dcgm-exporter.*"
INDENT = "  "
ENDED_LOOKBACK, ENDED_STEP = "1d", "10m"
"""So long a job that ended is known to have been there, and its pods are asked for so often."""

NODE_LOOKBACK, KUBE_LOOKBACK = "10m", "15m"
"""So long a node counts as the job's by its GPUs alone, and kube-state-metrics as one that knows better."""


def indented(text: str) -> str:
    return "\n".join(INDENT + line for line in text.splitlines())


def block(text: str) -> str:
    """An expression in parentheses of its own lines."""
    return f"(\n{indented(text)}\n)"


def with_node(vector: str) -> str:
    """The vector with the node's name as `node`, as kube-state-metrics has it: what a scrape says of itself
    (`node`, `kubernetes_node`) before what the exporter takes its host to be, and that before its address."""
    for to, label, what in (
        ("kubernetes_node", "node", "(.+)"),
        ("node", "instance", "([^:]+)(?::[0-9]+)?"),
        ("node", "hostname", "(.+)"),
        ("node", "Hostname", "(.+)"),
        ("node", "kubernetes_node", "(.+)"),
    ):
        vector = f'label_replace({vector}, "{to}", "$1", "{label}", "{what}")'
    return vector


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The selectors of one job."""

    numbers: Numbers

    def own(self, metric: str) -> str:
        """A metric that the job exports."""
        return f"{metric}{{{', '.join(str(one) for one in self.numbers.match)}}}"

    def kube(self, metric: str, extra: str = "") -> str:
        """A metric of kube-state-metrics about the job's pods."""
        space = self.numbers.namespace
        parts = [f"namespace={quoted(space)}"] if space is not None else []
        parts.append(f"pod=~{quoted(self.numbers.pods)}")
        return f"{metric}{{{', '.join([*parts, extra] if extra else parts)}}}"

    @property
    def held(self) -> str:
        """The job's pods that have not ended, by node."""
        over = self.kube("kube_pod_status_phase", 'phase=~"Succeeded|Failed"')
        return f"({self.kube('kube_pod_info')} unless on (namespace, pod) {over} == 1)"

    def nodes(self, presence: str) -> str:
        """The nodes under the job: by kube-state-metrics; where that tells nothing of its pods, by the labels of its
        GPUs, as they were some minutes ago, since an exporter goes with its node."""
        told = self.kube("kube_pod_info")
        ago = self.mapped(
            lambda given: f"last_over_time({metric(presence)(given)}[{NODE_LOOKBACK}])"
        )
        known = f"group(last_over_time({told}[{KUBE_LOOKBACK}]))"
        by_gpus = f"group by (node) (\n{indented(with_node(block(ago)))}\n)"
        return block(f"{self.held}\nor ({by_gpus} unless on () {known})")

    @property
    def ended(self) -> str:
        """One series where the job had pods in the last day and has none that runs: an exporter, or a
        Pushgateway, may go on with the last values for ever."""
        before = f"{self.kube('kube_pod_info')}[{ENDED_LOOKBACK}:{ENDED_STEP}]"
        return f"(group(last_over_time({before})) unless on () group{self.held})"

    def gpus(self, what: Selected) -> str:
        """What is asked of the job's GPUs: those that a label gives to its pods, and, on nodes that hold a pod of
        it, those that no label gives to anybody."""
        bare = f"({with_node(block(self.unmapped(what)))} and on (node) {self.held})"
        return block(f"{self.mapped(what)}\nor {bare}")

    def seen(self, what: Selected) -> str:
        """The job's GPUs as labels tell, and every one that no label gives to anybody, whatever its node."""
        return block(f"{self.mapped(what)}\nor {self.unmapped(what)}")

    def mapped(self, what: Selected) -> str:
        """What is asked of GPUs that a label gives to a pod of the job."""
        pods, space = quoted(self.numbers.pods), self.numbers.namespace
        first, second = [f"exported_pod=~{pods}"], ['exported_pod=""', f"pod=~{pods}"]
        if space is not None:
            either = quoted(f"{literal(space)}|")
            first.append(f"exported_namespace=~{either}")
            second.append(f"namespace=~{either}")
        return f"{what(', '.join(first))}\nor {what(', '.join(second))}"

    def unmapped(self, what: Selected) -> str:
        """Of GPUs that no label gives to any pod, anywhere: idle ones, or all where the exporter does not map."""
        return what(f'exported_pod="", pod=~{quoted(_EXPORTER)}')


def metric(name: str, extra: str = "", *, at_s: float | None = None) -> Selected:
    """An instant selector of a metric, or of several by a regular expression of their names."""
    offset = "" if at_s is None else f" offset {span(at_s)}"
    plain = name.replace("_", "").isalnum()

    def select(given: str) -> str:
        first = "" if plain else f"__name__=~{quoted(name)}"
        inner = ", ".join(part for part in (first, given, extra) if part)
        return f"{name if plain else ''}{{{inner}}}{offset}"

    return select


def rate(name: str, window: str) -> Selected:
    """The growth of a counter per second."""
    return lambda given: f"rate({name}{{{given}}}[{window}])"
