"""The job's own objects in the evidence: what `preflight` says of them, and the names of this run elsewhere.

A bundle has the job's object beside its pods; where only pods were kept, one pod of each template stands for
all of it, and what only the job's object could say is not judged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gpufleet_cli.errors import ParseError
from gpufleet_cli.evidence import Target
from gpufleet_cli.operate.preflight.check import checked
from gpufleet_cli.operate.preflight.documents import Document, read_text
from gpufleet_cli.operate.preflight.kinds import reader_of
from gpufleet_cli.parsers import json_documents as js
from gpufleet_cli.parsers import kubernetes_objects
from gpufleet_cli.postmortem_card import TrackingId
from gpufleet_cli.redact import HIDDEN
from gpufleet_cli.spec_check import Preflight, SpecFinding

MOST_FILES = 64
MOST_IDS = 8
_TEMPLATE = "spec.template"

RUN_NAMES = (
    "WANDB_RUN_ID", "WANDB_RUN_GROUP", "MLFLOW_RUN_ID", "COMET_EXPERIMENT_KEY", "NEPTUNE_CUSTOM_RUN_ID",
    "NEPTUNE_RUN_ID", "CLEARML_TASK_ID", "AIM_RUN_HASH", "DVC_EXP_NAME", "RUN_ID", "SWANLAB_RUN_ID",
    "FLYTE_INTERNAL_EXECUTION_ID", "KFP_RUN_ID",
)  # fmt: skip
COMMIT_NAMES = (
    "GIT_COMMIT", "GIT_SHA", "GIT_REVISION", "COMMIT_SHA", "GITHUB_SHA", "CI_COMMIT_SHA", "WANDB_GIT_COMMIT",
    "VCS_REF", "SOURCE_COMMIT", "COMMIT", "REVISION",
)  # fmt: skip
_RUN_KEY = re.compile(
    r"(?:wandb|mlflow|comet|neptune|clearml|aim)?[-_./a-z]{0,40}run[-_.]?(?:id|uid)"
)
_COMMIT_KEY = re.compile(
    r"(?:[a-z0-9.-]{1,80}/)?(?:git[-_.]?)?(?:commit|sha|revision|vcs-ref)(?:[-_.]?(?:sha|id|hash))?"
)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def documents_of(target: Target) -> list[Document]:
    """Every Kubernetes object of the evidence."""
    found: list[Document] = []
    files = [e for e in target.evidences if kubernetes_objects.matches(e.path, e.head)]
    for evidence in files[:MOST_FILES]:
        try:
            documents, _unread = read_text(evidence.name, evidence.read())
        except ParseError:
            continue
        found += documents
    return found


# --- Preflight ------------------------------------------------------------------------------------


def preflight_of(documents: Sequence[Document]) -> tuple[Preflight | None, str]:
    """What the rules find in the job's objects, and what they were read from; None where there is none."""
    jobs = [d for d in documents if d.kind != "Pod" and reader_of(d) is not None]
    if jobs:
        return checked([*jobs, *_beside(documents)]), f"the job's {jobs[0].kind} in the evidence"
    pods = [d for d in documents if d.kind == "Pod" and _has_spec(d)]
    if not pods:
        return None, ""
    owned = [d for d in pods if js.items(js.at(d.raw, "metadata", "ownerReferences"))]
    alone = [d for d in pods if d not in owned]
    found = checked([*_as_jobs(owned), *alone, *_beside(documents)])
    kept = tuple(_of_pod(one) for one in found.findings if _is_of_pod(one))
    quiet = tuple(
        replace(s, finding=_of_pod(s.finding)) for s in found.silenced if _is_of_pod(s.finding)
    )
    return replace(found, findings=kept, silenced=quiet), _told(pods)


def _told(pods: Sequence[Document]) -> str:
    many = f"{len(pods):,} pods" if len(pods) > 1 else "1 pod"
    return f"{many} in the evidence; the job's own object is not there, so its rules were not asked"


def _beside(documents: Sequence[Document]) -> list[Document]:
    others = (
        "PodDisruptionBudget",
        "HorizontalPodAutoscaler",
        "NetworkPolicy",
        "Service",
        "ConfigMap",
    )
    return [d for d in documents if d.kind in others]


def _has_spec(pod: Document) -> bool:
    """An excerpt that somebody made has no image, no command and no settings: nothing could be said of it."""
    containers = js.items(js.at(pod.raw, "spec", "containers"))
    told = ("image", "command", "args", "env")
    return any(js.at(one, key) is not None for one in containers for key in told)


def _as_jobs(pods: Sequence[Document]) -> list[Document]:
    """One Job for the pods of each template, in place of the object that made them."""
    alike: dict[str, list[Document]] = {}
    for pod in pods:
        alike.setdefault(_shape(pod), []).append(pod)
    found = []
    for members in alike.values():
        first = members[0]
        template = {"metadata": first.raw.get("metadata"), "spec": first.raw.get("spec")}
        raw = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": first.name, "namespace": first.namespace},
            "spec": {
                "parallelism": len(members),
                "completions": len(members),
                "template": template,
            },
        }
        found.append(Document(source=first.source, raw=raw))
    return found


def _shape(pod: Document) -> str:
    """What pods of one template share: images, commands and settings that are no rank's own."""
    told = [
        [js.text_at(one, "image"), js.at(one, "command"), js.at(one, "resources")]
        for one in js.items(js.at(pod.raw, "spec", "containers"))
    ]
    return json.dumps(told, sort_keys=True, default=str)


def _is_of_pod(one: SpecFinding) -> bool:
    return any(f" {_TEMPLATE}." in where or " Pod/" in where for where in one.where)


def _of_pod(one: SpecFinding) -> SpecFinding:
    """The place as it is in the pod."""
    where = tuple(w.replace(f"{_TEMPLATE}.", "").replace(" Job/", " Pod/") for w in one.where)
    return replace(one, where=where)


# --- Names of this run ----------------------------------------------------------------------------


def tracking_ids(documents: Sequence[Document]) -> tuple[TrackingId, ...]:
    """Run ids, the job's uid, image digests and commits, as far as objects name them; each once."""
    found: dict[tuple[str, str, str], TrackingId] = {}
    for document in documents:
        for one in _ids(document):
            if one.value and HIDDEN not in one.value:
                found.setdefault((one.kind, one.name, one.value), one)
    kept: list[TrackingId] = []
    for kind in ("run_id", "job_uid", "image_digest", "commit"):
        kept += [one for one in found.values() if one.kind == kind][:MOST_IDS]
    return tuple(kept)


def _ids(document: Document) -> Iterator[TrackingId]:
    if document.kind == "Pod":
        yield from _of_owner(document)
        yield from _of_images(document)
    elif reader_of(document) is None:
        return
    else:
        uid = js.text_at(document.raw, "metadata", "uid")
        if uid is not None:
            where = f"{document.source} {document.kind}/{document.name}"
            yield TrackingId(kind="job_uid", name=f"{document.kind}/{document.name}", value=uid, source=where)  # fmt: skip
    yield from _of_marks(document, js.mapping(document.raw.get("metadata")))
    for container in _containers(document.raw):
        yield from _of_environment(document, container)


def _of_owner(pod: Document) -> Iterator[TrackingId]:
    for owner in js.items(js.at(pod.raw, "metadata", "ownerReferences")):
        kind, name, uid = (js.text_at(owner, key) for key in ("kind", "name", "uid"))
        if uid is not None:
            where = f"{pod.source} owner of Pod/{pod.name}"
            yield TrackingId(kind="job_uid", name=f"{kind}/{name}", value=uid, source=where)


def _of_images(pod: Document) -> Iterator[TrackingId]:
    for status in js.items(js.at(pod.raw, "status", "containerStatuses")):
        digest = _DIGEST.search(js.text_at(status, "imageID") or "")
        if digest is not None:
            image = js.text_at(status, "image") or js.text_at(status, "name") or ""
            where = f"{pod.source} Pod/{pod.name} status.containerStatuses"
            yield TrackingId(kind="image_digest", name=image, value=digest[0], source=where)


def _of_marks(document: Document, metadata: Mapping[str, object]) -> Iterator[TrackingId]:
    where = f"{document.source} {document.kind}/{document.name}"
    for place in ("labels", "annotations"):
        for key, value in js.mapping(metadata.get(place)).items():
            low = key.lower()
            if not isinstance(value, str) or len(value) > 256:
                continue
            if _RUN_KEY.fullmatch(low):
                yield TrackingId(kind="run_id", name=key, value=value, source=f"{where} {place}")
            elif _COMMIT_KEY.fullmatch(low):
                yield TrackingId(kind="commit", name=key, value=value, source=f"{where} {place}")


def _containers(raw: object, depth: int = 0) -> Iterator[object]:
    """Containers of a pod, or of the templates inside a job's object."""
    if depth > 12:
        return
    if isinstance(raw, dict):
        for key, value in raw.items():
            if key == "containers" and isinstance(value, list):
                yield from value
            elif isinstance(value, dict | list):
                yield from _containers(value, depth + 1)
    elif isinstance(raw, list):
        for value in raw:
            yield from _containers(value, depth + 1)


def _of_environment(document: Document, container: object) -> Iterator[TrackingId]:
    for variable in js.items(js.at(container, "env")):
        name, value = js.text_at(variable, "name"), js.text_at(variable, "value")
        if not name or not value or len(value) > 256:
            continue
        where = f"{document.source} {document.kind}/{document.name} env"
        if name in RUN_NAMES:
            yield TrackingId(kind="run_id", name=name, value=value, source=where)
        elif name in COMMIT_NAMES:
            yield TrackingId(kind="commit", name=name, value=value, source=where)
