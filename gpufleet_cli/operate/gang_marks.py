"""Which marks a node is to carry, and the change that brings it there. Pure.

The label `gpufleet/gang` and four annotations say that a node holds a gang. Of several gangs on one node the
largest running one gives label, size, since and uid; `gang-job` names them all, that one first. No other
key is ever written, and a node whose marks are right already gets no change at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

from gpufleet_cli.live import held_gangs
from gpufleet_cli.live.held_gangs import Gang
from gpufleet_cli.live.node_gangs import JobRef
from gpufleet_cli.timestamps import NS_PER_S, format_ns

LABEL = "gpufleet/gang"
JOB, SIZE, SINCE, UID = (f"gpufleet/gang-{name}" for name in ("job", "size", "since", "uid"))
ANNOTATIONS = (JOB, SIZE, SINCE, UID)
LABEL_CHARS = 63
_HASH_CHARS = 8
_ODD = re.compile(r"[^A-Za-z0-9._-]+")

Action = Literal["mark", "change", "clear"]
Patch = Mapping[str, Mapping[str, str | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What a node that holds a gang is to carry. `jobs` are all of its gangs, the marked one first."""

    label: str
    jobs: tuple[str, ...]
    size: int
    since: str | None
    uid: str | None

    @property
    def annotations(self) -> dict[str, str | None]:
        return {JOB: ",".join(self.jobs), SIZE: str(self.size), SINCE: self.since, UID: self.uid}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The change of one node. `job` is that of its new mark, else of the one that is taken away."""

    node: str
    action: Action
    job: str
    patch: Patch


def label_of(job: JobRef) -> str:
    """`NAMESPACE.NAME`, valid as a label's value and of this job alone; a namespace holds no dot.

    What is too long or holds other characters is shortened, with a mark of the whole at its end.

    >>> label_of(JobRef(namespace="train", kind="PyTorchJob", name="run-7"))
    'train.run-7'
    >>> label_of(JobRef(namespace="train", kind="pods", name="job-id=a"))
    'train.job-id-a-d23ddb2a'
    """
    whole = f"{job.namespace}.{job.name}"
    plain = _ODD.sub("-", whole)
    if plain == whole and len(whole) <= LABEL_CHARS and whole[-1].isalnum():
        return whole
    tag = sha256(f"{job.namespace}/{job.kind}/{job.name}".encode()).hexdigest()[:_HASH_CHARS]
    return f"{plain[: LABEL_CHARS - _HASH_CHARS - 1].rstrip('._-')}-{tag}"


def name_of(job: JobRef) -> str:
    """`NAMESPACE/KIND/NAME`; of plain pods the kind is `pods` and the name their label."""
    return f"{job.namespace}/{job.kind}/{job.name}"


def wanted(gangs: Iterable[Gang]) -> dict[str, Mark]:
    """The mark of every node that holds a gang."""
    held: dict[str, list[Gang]] = {}
    for gang in sorted(gangs, key=held_gangs.order):
        for node in gang.nodes:
            held.setdefault(node, []).append(gang)
    return {node: _mark(own) for node, own in held.items()}


def _mark(gangs: list[Gang]) -> Mark:
    first = gangs[0]
    since_ns = first.since_ns
    return Mark(
        label=label_of(first.job),
        jobs=tuple(dict.fromkeys(name_of(gang.job) for gang in gangs)),
        size=first.size or len(first.living),
        since=None if since_ns is None else format_ns(since_ns - since_ns % NS_PER_S),
        uid=first.uid,
    )


def change(
    node: str,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    mark: Mark | None,
    *,
    spaces: frozenset[str] | None,
) -> Change | None:
    """What has to be written, None where nothing has.

    `spaces` are the namespaces that were read, None for all: a mark for a gang of another one stays as
    it is, since nobody knows whether that gang is gone, or smaller.
    """
    has = {key: annotations[key] for key in ANNOTATIONS if key in annotations}
    old = labels.get(LABEL)
    if old is None and not has and mark is None:
        return None
    if spaces is not None and (old is not None or has) and not _is_of(has.get(JOB), spaces):
        return None
    if mark is None:
        gone: dict[str, str | None] = dict.fromkeys(has)
        patch: Patch = {
            **({"labels": {LABEL: None}} if old is not None else {}),
            **({"annotations": gone} if gone else {}),
        }
        return Change(node=node, action="clear", job=has.get(JOB, old or ""), patch=patch)
    want = {key: value for key, value in mark.annotations.items() if has.get(key) != value}
    if old == mark.label and not want:
        return None
    return Change(
        node=node,
        action="mark" if old is None else "change",
        job=mark.jobs[0],
        patch={
            **({"labels": {LABEL: mark.label}} if old != mark.label else {}),
            **({"annotations": want} if want else {}),
        },
    )


def _is_of(jobs: str | None, spaces: frozenset[str]) -> bool:
    """Whether all gangs that a mark names are of these namespaces; one that names none is of no other."""
    if not jobs:
        return True
    return all(one.partition("/")[0] in spaces for one in jobs.split(","))


def is_ours(labels: Mapping[str, str], annotations: Mapping[str, str]) -> bool:
    """Whether a node carries a mark, whole or in part."""
    return LABEL in labels or any(key in annotations for key in ANNOTATIONS)
