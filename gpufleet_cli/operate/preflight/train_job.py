"""A TrainJob with its runtime: the runtime's JobSet template under what the TrainJob sets itself.

The runtime is taken from the same input; of those that come with Kubeflow Trainer `torch-distributed` is
known (read in 2.3): no restart policy, no volumes, no recorder. Any other that was not given is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpufleet_cli.operate.preflight.documents import Document, Object, Path
from gpufleet_cli.parsers import json_documents as js

STOCK = "torch-distributed"
_STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
_STOCK_SPEC: Object = {
    "mlPolicy": {"numNodes": 1, "torch": {"numProcPerNode": "auto"}},
    "template": {
        "spec": {
            "replicatedJobs": [
                {
                    "name": "node",
                    "template": {
                        "metadata": {"labels": {_STEP: "trainer"}},
                        "spec": {"template": {"spec": {"containers": [{"name": "node"}]}}},
                    },
                }
            ]
        }
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainPart:
    """One replicated job of the runtime, merged. `document`: where the template stands."""

    name: str
    pods: int
    template: Object
    path: Path
    sets_world: bool
    nproc: str | None
    of_runtime: str
    document: Document | None
    is_driver: bool


def runtime_of(found: Document, beside: Sequence[Document]) -> Document | None:
    """The runtime that the TrainJob names, where it was given too."""
    name = js.text_at(found.raw, "spec", "runtimeRef", "name")
    kind = js.text_at(found.raw, "spec", "runtimeRef", "kind") or "ClusterTrainingRuntime"
    return next((one for one in beside if one.kind == kind and one.name == name), None)


def is_known(found: Document, beside: Sequence[Document]) -> bool:
    name = js.text_at(found.raw, "spec", "runtimeRef", "name")
    return runtime_of(found, beside) is not None or name == STOCK


def train_job_parts(found: Document, beside: Sequence[Document]) -> Iterator[TrainPart]:
    runtime = runtime_of(found, beside)
    if not is_known(found, beside):
        return
    name = js.text_at(found.raw, "spec", "runtimeRef", "name") or STOCK
    spec = _STOCK_SPEC if runtime is None else js.mapping(runtime.raw.get("spec"))
    trainer = js.mapping(js.at(found.raw, "spec", "trainer"))
    policy = js.mapping(spec.get("mlPolicy"))
    nodes = js.integer(trainer.get("numNodes")) or js.integer(policy.get("numNodes")) or 1
    torch = policy.get("torch")
    nproc = trainer.get("numProcPerNode") or js.at(torch, "numProcPerNode") or "auto"
    for index, one in enumerate(js.items(js.at(spec, "template", "spec", "replicatedJobs"))):
        job = js.text_at(one, "name") or str(index)
        inner = js.at(one, "template", "spec")
        step = js.text_at(one, "template", "metadata", "labels", _STEP)
        is_trainer = step == "trainer" or (step is None and job == "node")
        template = js.mapping(js.at(inner, "template"))
        template = _overridden(template, found.raw, job)
        if is_trainer:
            template = _trained(template, trainer)
        at = ("spec", "template", "spec", "replicatedJobs", index, "template", "spec", "template")
        yield TrainPart(
            name=job,
            pods=nodes if is_trainer else 1,
            template=template,
            path=("spec", "runtimeRef") if runtime is None else at,
            sets_world=torch is not None,
            nproc=str(nproc) if torch is not None else None,
            of_runtime=f" for the runtime {name}"
            + (" (read in Trainer 2.3)" if runtime is None else ""),
            document=runtime,
            is_driver=not is_trainer,
        )


def _trained(template: Object, trainer: Object) -> Object:
    """The trainer's image, command, environment and resources in the container `node`."""
    change: dict[str, object] = {
        key: trainer[key] for key in ("image", "command", "args") if trainer.get(key)
    }
    if trainer.get("resourcesPerNode"):
        change["resources"] = trainer["resourcesPerNode"]
    containers = js.items(js.at(template, "spec", "containers"))
    names = [js.text_at(one, "name") for one in containers]
    main = "node" if "node" in names else (names or [None])[0]
    change |= {"name": main, "env": trainer.get("env") or []}
    return _merged(template, {"spec": {"containers": [change]}})


def _overridden(template: Object, raw: Object, job: str) -> Object:
    """`podTemplateOverrides` (2.0 to 2.2) and `runtimePatches` for this replicated job."""
    for one in js.items(js.at(raw, "spec", "podTemplateOverrides")):
        targets = [js.text_at(target, "name") for target in js.items(js.at(one, "targetJobs"))]
        if not targets or job in targets:
            change = {key: js.at(one, key) for key in ("metadata", "spec") if js.at(one, key)}
            template = _merged(template, change)
    for patch in js.items(js.at(raw, "spec", "runtimePatches")):
        inner = js.at(patch, "trainingRuntimeSpec", "template", "spec", "replicatedJobs")
        for one in js.items(inner):
            if js.text_at(one, "name") == job:
                template = _merged(template, js.mapping(js.at(one, "template", "spec", "template")))
    return template


_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "volumeMounts": "mountPath",
}


def _merged(base: Object, change: Mapping[str, object]) -> Object:
    """As a strategic merge does: maps key by key, the lists that have names by name."""
    result = dict(base)
    for key, value in change.items():
        old = result.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            result[key] = _merged(old, value)
        elif isinstance(old, list) and isinstance(value, list) and key in _KEYS:
            result[key] = _by_name(old, value, _KEYS[key])
        else:
            result[key] = value
    return result


def _by_name(old: list[object], new: list[object], name: str) -> list[object]:
    found = list(old)
    for one in new:
        wanted = js.at(one, name)
        at = next((i for i, was in enumerate(found) if js.at(was, name) == wanted), None)
        if at is None:
            found.append(one)
        else:
            found[at] = _merged(js.mapping(found[at]), js.mapping(one))
    return found
