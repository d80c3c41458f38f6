"""Names that log collectors give to pod, node, container and namespace.

Each collector spells them its own way (Promtail and Alloy, Fluent Bit, Vector, the OpenTelemetry
semantic conventions), flat or nested. A label `filename` of a node's pod log is a path with names.

>>> of({"pod": "sft-0", "node_name": "gpu-g01", "app": "x"})
(('node', 'gpu-g01'), ('pod', 'sft-0'))
>>> of({"kubernetes": {"pod_name": "sft-0", "host": "gpu-g01"}})
(('node', 'gpu-g01'), ('pod', 'sft-0'))
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpufleet_cli.parsers.wrappers import paths
from gpufleet_cli.parsers.wrappers.layer import Value, Who, who_of

_FIELDS = {
    "pod": ("pod", "pod_name", "podname", "kubernetes_pod_name", "k8s_pod_name", "k8s_pod", "k8s_pod_label_name"),
    "pod_uid": ("pod_uid", "pod_id", "poduid", "k8s_pod_uid", "kubernetes_pod_id", "kubernetes_pod_uid"),
    "container": (
        "container", "container_name", "containername", "kubernetes_container_name", "k8s_container_name",
    ),
    "namespace": (
        "namespace", "namespace_name", "namespacename", "pod_namespace", "kubernetes_namespace_name",
        "kubernetes_namespace", "kubernetes_pod_namespace", "k8s_namespace_name",
    ),
    "node": (
        "node", "node_name", "nodename", "host", "hostname", "host_name", "kubernetes_host", "kubernetes_node_name",
        "kubernetes_pod_node_name", "k8s_node_name", "kubernetes_node", "pod_node_name",
    ),
    "attempt": ("k8s_container_restart_count",),
}  # fmt: skip
_FIELD_OF = {name: field for field, names in _FIELDS.items() for name in names}
_PATHS = ("filename", "file", "path", "log_file_path", "log_file", "source", "log_path")
_NESTED = (
    "kubernetes", "k8s", "stream", "labels", "kubernetes_metadata", "resource", "attributes", "pod",
    "node", "container", "namespace", "file", "log", "host",
)  # fmt: skip


def of(labels: Mapping[str, Any]) -> Who:
    """Speaker fields of a set of labels; what a path label says counts where no label does."""
    fields: dict[str, Value | None] = {}
    for name, value in _flat(labels, "", 0):
        key = name.lower().replace(".", "_").replace("-", "_")
        field = _FIELD_OF.get(key)
        if field is not None and value:
            text = str(value)
            fields.setdefault(field, int(text) if field == "attempt" and text.isdigit() else text)
        elif key in _PATHS and isinstance(value, str):
            for path_field, path_value in paths.of_node_file(value):
                fields.setdefault(path_field, path_value)
    if isinstance(fields.get("attempt"), str):
        del fields["attempt"]
    return who_of(fields)


def _flat(labels: Mapping[str, Any], prefix: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Names joined by a dot, three levels deep at most; sub-objects that are no labels stay out."""
    for name, value in labels.items():
        if isinstance(value, str | int | float):
            yield f"{prefix}{name}", value
        elif isinstance(value, Mapping) and name in _NESTED and depth < 3:
            inner = "" if name in ("labels", "attributes", "stream", "resource") else f"{name}."
            yield from _flat(value, prefix + inner, depth + 1)
