"""From documents to workloads: roles with their containers, and what kind of work it is.

What is taken for training is asked for a training job's needs, so the line is drawn by what stands in the
manifest: a server's command makes it serving, a launcher of ranks or a kind made for them makes it a gang,
and a Deployment, StatefulSet or LeaderWorkerSet without such a launcher serves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gpufleet_cli.operate.preflight import pod_gangs
from gpufleet_cli.operate.preflight.containers import ConfigMaps, container_of, gpus_of
from gpufleet_cli.operate.preflight.documents import Document
from gpufleet_cli.operate.preflight.kinds import MADE_LABELS, Part, reader_of, shown_kind
from gpufleet_cli.operate.preflight.launcher import SERVERS, is_torch
from gpufleet_cli.operate.preflight.model import Role, Spec
from gpufleet_cli.parsers import json_documents as js

_FOR_RANKS = frozenset(
    {"PyTorchJob", "MPIJob", "TrainJob", "TFJob", "JAXJob", "XGBoostJob", "PaddleJob"}
)
_FOR_SERVING = frozenset(
    {
        "Deployment",
        "StatefulSet",
        "ReplicaSet",
        "DaemonSet",
        "LeaderWorkerSet",
        "RayService",
        "InferenceService",
    }
)
_MEETING = (
    "MASTER_ADDR", "PET_NNODES", "NNODES", "PET_RDZV_ENDPOINT", "RDZV_ENDPOINT", "WORLD_SIZE",
    "JAX_COORDINATOR_ADDRESS", "COORDINATOR_ADDRESS", "PET_MASTER_ADDR", "NUM_NODES",
)  # fmt: skip
_TORCH_ENV = re.compile(r"(?:TORCH|PET|PYTORCH|TORCHELASTIC)_\w+")
_IDLE = re.compile(
    r"\bjupyter|\bsleep\s+(?:infinity|inf|\d)|\btail\s+-f\s+/dev/null|\bcode-server\b|nvidia-smi"
)
_SERVING_IMAGE = re.compile(
    r"vllm-openai|/sglang|tritonserver|text-generation-inference|/nim/|text-embeddings-inference"
)


def specs_of(documents: Sequence[Document]) -> list[Spec]:
    """Every workload among the documents, in their order."""
    opened = [inner for one in documents for inner in _opened(one)]
    maps = _config_maps(opened)
    read: list[tuple[Document, list[Role]]] = []
    gangs: dict[tuple[str | None, str], list[Role]] = {}
    for one in opened:
        reader = reader_of(one)
        if reader is None or _is_owned(one, opened):
            continue
        roles = [role for part in reader(one, opened) if (role := _role(part, maps)) is not None]
        point = pod_gangs.address(roles[0]) if one.kind == "Pod" and roles else None
        if point is not None:
            others = gangs.setdefault((one.namespace, point), roles)
            if others is not roles:
                others += roles
                continue
        read.append((one, roles))
    return [
        _spec(one, _ranked(one, pod_gangs.roles_of(roles) if one.kind == "Pod" else roles), opened)
        for one, roles in read
    ]


def _opened(one: Document) -> Iterator[Document]:
    """An AppWrapper's components besides itself."""
    yield one
    if one.kind == "AppWrapper":
        for part in js.items(js.at(one.raw, "spec", "components")):
            inner = js.at(part, "template")
            if isinstance(inner, dict):
                yield Document(source=one.source, raw=inner)


def _is_owned(one: Document, every: Sequence[Document]) -> bool:
    """Whether the object that made this one is there too (`kubectl get all -o yaml`)."""
    uids = {js.text_at(other.raw, "metadata", "uid") for other in every if reader_of(other)}
    owners = js.items(js.at(one.raw, "metadata", "ownerReferences"))
    return any((uid := js.text_at(owner, "uid")) is not None and uid in uids for owner in owners)


def _config_maps(every: Sequence[Document]) -> ConfigMaps:
    return {one.name: js.mapping(one.raw.get("data")) for one in every if one.kind == "ConfigMap"}


def _role(part: Part, maps: ConfigMaps) -> Role | None:
    base = (*part.path, "spec", "containers")
    raws = js.items(js.at(part.template, "spec", "containers"))
    gpus = [gpus_of(raw) for raw in raws]
    containers = tuple(
        container_of(
            raw, (*base, index), maps, given=part.given,
            runs=part.runs if part.runs and index == _first(gpus) else None,
        )
        for index, raw in enumerate(raws)
    )  # fmt: skip
    if not containers:
        return None
    known = [one for one in gpus if one is not None]
    return Role(
        name=part.name,
        pods=part.pods,
        in_world=part.pods if part.in_world is None else part.in_world,
        template=part.template,
        path=part.path,
        containers=containers,
        restart=part.restart,
        restart_by=part.restart_by,
        restart_path=part.restart_path or (*part.path, "spec", "restartPolicy"),
        gpus=sum(known) if len(known) == len(gpus) else None,
        is_rank=not part.is_driver,
        sets_world=part.sets_world,
        nproc=part.nproc,
        document=part.document,
    )


def _first(gpus: Sequence[int | None]) -> int:
    return next((index for index, one in enumerate(gpus) if one != 0), 0)


def _ranked(one: Document, roles: list[Role]) -> list[Role]:
    """Which roles hold ranks: those with GPUs, else those with a launcher, else all but the driver."""
    from dataclasses import replace

    if any(role.gpus != 0 for role in roles):
        return [replace(role, is_rank=role.gpus != 0) for role in roles]
    launching = [role for role in roles if role.main.launcher and role.main.launcher.is_trainer]
    if launching and one.kind not in _FOR_RANKS:
        return [replace(role, is_rank=role in launching) for role in roles]
    return roles


def _spec(one: Document, roles: list[Role], every: Sequence[Document]) -> Spec:
    kind = shown_kind(one)
    texts = [c.text for role in roles for c in role.containers]
    trains = any(c.launcher and c.launcher.is_trainer for role in roles for c in role.containers)
    is_serving = one.kind == "RayService" or (
        not trains and (any(map(SERVERS.search, texts)) or _serves(one, roles))
    )
    is_idle = bool(texts) and not trains and all(map(_IDLE.search, texts))
    uses_torch = one.kind == "PyTorchJob" or (not is_idle and any(map(_speaks_of_torch, roles)))
    return Spec(
        document=one,
        kind=kind,
        roles=tuple(roles),
        is_serving=is_serving,
        is_gang=not is_serving and _is_gang(one, roles, trains=trains, uses_torch=uses_torch),
        uses_torch=uses_torch,
        beside=tuple(other for other in every if other is not one),
        made_labels=_made(kind, one.name),
    )


def _made(kind: str, name: str) -> dict[str, str]:
    """Labels that the controller gives the pods; a Job's go by an old name too."""
    label = MADE_LABELS.get(kind)
    if label is None:
        return {}
    return {label: name, "job-name": name} if kind == "Job" else {label: name}


def _serves(one: Document, roles: Sequence[Role]) -> bool:
    """A kind for servers, or a server's image run as it is."""
    if one.kind in _FOR_SERVING:
        return True
    return any(
        not c.text and _SERVING_IMAGE.search(c.image) for role in roles for c in role.containers
    )


def _speaks_of_torch(role: Role) -> bool:
    if role.sets_world:
        return True
    for one in role.containers:
        launcher = one.launcher
        if launcher is not None and launcher.tool in (
            "torchrun",
            "accelerate",
            "deepspeed",
            "composer",
        ):
            return True
        if any(_TORCH_ENV.fullmatch(name) for name in one.env):
            return True
        if is_torch(one.image.partition("@")[0]) or is_torch(one.text):
            return True
    return False


def _is_gang(one: Document, roles: Sequence[Role], *, trains: bool, uses_torch: bool) -> bool:
    ranks = [role for role in roles if role.is_rank]
    if sum(role.in_world for role in ranks) < 2:
        return False
    if one.kind in _FOR_RANKS:
        return True
    launchers = [role.main.launcher for role in ranks if role.main.launcher]
    if any(launcher.option("standalone") for launcher in launchers):
        return False
    meets = any(name in role.main.env for role in ranks for name in _MEETING)
    if one.kind in ("JobSet", "LeaderWorkerSet") or one.group == "batch.volcano.sh":
        return trains or meets or any(role.gpus != 0 for role in ranks)
    if one.kind in ("RayJob", "RayCluster"):
        return uses_torch
    return trains or meets
