"""One typed model for every kind of workload: what the rules read.

`None` is "not known": a number of GPUs that comes from a resource claim, a variable that a Secret holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from gpufleet_cli.node_card import Spares
from gpufleet_cli.operate.preflight.documents import Document, Object, Path
from gpufleet_cli.operate.preflight.launcher import Launcher
from gpufleet_cli.operate.preflight.shell import Env, Words, is_open
from gpufleet_cli.parsers import json_documents as js
from gpufleet_cli.spec_check import Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A variable under the first of its names that is there."""

    state: Literal["set", "unknown", "unset"]
    name: str = ""
    value: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """`env_open`: `envFrom` names something that is not in what was read, so more may be set."""

    name: str
    image: str
    env: Env
    env_open: bool
    commands: tuple[Words, ...]
    text: str
    launcher: Launcher | None
    gpus: int | None
    raw: Object
    path: Path

    def setting(self, *names: str) -> Setting:
        for name in names:
            if name in self.env:
                value = self.env[name]
                if is_open(value):
                    return Setting(state="unknown", name=name)
                return Setting(state="set", name=name, value=value or "")
        return Setting(state="unknown" if self.env_open else "unset")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One place where a rule finds something. `costs`: what it is paid with, in GPU-hours.

    `severity` only where it is not the rule's own; `document` where it stands beside the job."""

    message: str
    fix: str
    path: Path
    costs: str | None = None
    severity: Severity | None = None
    document: Document | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """Pods of one template. `pods`: how many; `in_world`: how many of them train together.

    `restart_by` says who fills in the restart policy where nobody wrote it, with the version read.
    `sets_world`: the controller tells torchrun how many nodes there are; `nproc` what it says of processes.
    `document`: where the template stands, if not in the job's own.
    """

    name: str
    pods: int
    in_world: int
    template: Object
    path: Path
    containers: tuple[Container, ...]
    restart: str | None
    restart_by: str | None
    restart_path: Path
    gpus: int | None
    is_rank: bool
    sets_world: bool = False
    nproc: str | None = None
    document: Document | None = None

    @property
    def main(self) -> Container:
        """The container of the ranks: the one with GPUs, else with a launcher, else the first."""
        with_gpus = [one for one in self.containers if one.gpus != 0]
        trained = [one for one in self.containers if one.launcher and one.launcher.is_trainer]
        return (with_gpus or trained or list(self.containers))[0]

    @property
    def pod(self) -> Object:
        return js.mapping(self.template.get("spec"))

    @property
    def labels(self) -> Mapping[str, object]:
        return js.mapping(js.at(self.template, "metadata", "labels"))

    @property
    def annotations(self) -> Mapping[str, object]:
        return js.mapping(js.at(self.template, "metadata", "annotations"))

    def hit(
        self,
        message: str,
        fix: str,
        *steps: str | int,
        inside: Container | None = None,
        costs: str | None = None,
        severity: Severity | None = None,
    ) -> Hit:
        """Something found in the template, or in one of its containers."""
        path = (*(self.path if inside is None else inside.path), *steps)
        return Hit(
            message=message, fix=fix, path=path, costs=costs, severity=severity,
            document=self.document,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """A workload. `is_gang`: its ranks must run together. `uses_torch`: something says so."""

    document: Document
    kind: str
    roles: tuple[Role, ...]
    is_serving: bool
    is_gang: bool
    uses_torch: bool
    beside: tuple[Document, ...] = ()
    made_labels: Mapping[str, str] = field(default_factory=dict)
    spares: Mapping[str, Spares] = field(default_factory=dict)
    """Of a job in the cluster: whether it places without each node that it is on."""

    @property
    def raw(self) -> Object:
        return self.document.raw

    @property
    def spec(self) -> Object:
        return js.mapping(self.raw.get("spec"))

    @property
    def ranks(self) -> tuple[Role, ...]:
        return tuple(role for role in self.roles if role.is_rank)

    @property
    def pods(self) -> int:
        """Pods that hold ranks, in all worlds."""
        return sum(role.pods for role in self.ranks)

    @property
    def in_world(self) -> int:
        return sum(role.in_world for role in self.ranks)

    @property
    def gpus(self) -> int | None:
        """All GPUs; None where a role's number is not known."""
        total = 0
        for role in self.roles:
            if role.gpus is None:
                return None
            total += role.gpus * role.pods
        return total

    @property
    def has_gpus(self) -> bool:
        return any(role.gpus != 0 for role in self.roles)

    @property
    def is_ray(self) -> bool:
        return self.kind in ("RayJob", "RayCluster")

    @property
    def is_training(self) -> bool:
        """Ranks on GPUs, or a gang without any."""
        return not self.is_serving and (self.is_gang or (self.uses_torch and self.has_gpus))

    def labels_of(self, role: Role) -> dict[str, str]:
        """Labels of the pods: the template's and those that the controller adds."""
        own = {key: str(value) for key, value in role.labels.items()}
        return {**own, **self.made_labels}

    def annotation(self, name: str) -> str | None:
        return js.text_at(self.raw, "metadata", "annotations", name)

    def of_kind(self, *kinds: str) -> Iterator[Document]:
        """Objects beside the job of these kinds, in its namespace as far as both say one."""
        own = self.document.namespace
        for one in self.beside:
            if one.kind in kinds and (own is None or one.namespace in (None, own)):
                yield one


# --- Rules ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """`looks_for` and `why` stand in the manual; `why` also in the report. `of_cluster`: manifests alone cannot
    tell."""

    id: str
    severity: Severity
    looks_for: str
    why: str
    check: Callable[[Spec], Iterator[Hit]]
    of_cluster: bool = False
