"""Which logs of the gang's pods are worth reading, and where each has its place in a bundle."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpufleet_cli.facts import ContainerState
from gpufleet_cli.live.pods import Pod

_SIDECAR = re.compile(
    r"istio|linkerd|envoy|sidecar|fluent|vector|promtail|vault|otel|filebeat|tcpx|fastrak|kueue",
    re.I,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTask:
    """One log: a container of a pod, its running instance or the one before."""

    pod: str
    namespace: str
    node: str | None
    container: str
    previous: bool
    started_ns: int | None
    is_suspect: bool = False

    @property
    def path(self) -> str:
        """In the layout of `oc adm must-gather`, whose names are certain."""
        which = "previous" if self.previous else "current"
        folder = f"namespaces/{self.namespace}/pods/{self.pod}/{self.container}/{self.container}"
        return f"{folder}/logs/{which}.log"

    @property
    def shown(self) -> str:
        what = "previous log" if self.previous else "log"
        return f"{what} of {self.pod}/{self.container}"


def tasks_of(pods: Sequence[Pod], suspects: frozenset[str]) -> list[LogTask]:
    """Every log worth reading; those of suspect nodes at the end."""
    found: list[LogTask] = []
    for pod in pods:
        for container in pod.state.containers:
            if not _matters(pod, container):
                continue
            task = LogTask(
                pod=pod.name,
                namespace=pod.namespace,
                node=pod.state.node,
                container=container.name,
                previous=False,
                started_ns=container.started_ns,
                is_suspect=pod.state.node in suspects,
            )
            if container.state in ("running", "terminated", "unknown") or container.restarts:
                found.append(task)
            if container.restarts or container.last_exit_code is not None:
                found.append(replace(task, previous=True, started_ns=None))
    return sorted(found, key=lambda task: task.is_suspect)


def _matters(pod: Pod, container: ContainerState) -> bool:
    """The rank's container, any with GPUs, and any that failed; of the rest what is no sidecar."""
    if container.name == pod.state.rank_container or container.has_gpu:
        return True
    if container.exit_code or container.last_exit_code:
        return True
    return not is_sidecar(container.name)


def is_sidecar(name: str) -> bool:
    """By its name, a container that serves the one beside it."""
    return _SIDECAR.search(name) is not None
