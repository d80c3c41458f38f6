"""From what a person typed to the job: its object, its pods, and the attempt that is meant.

NAME or KIND/NAME in one namespace or in every readable one, or plain pods by a selector. A kind that is
not installed (404) or not readable (403) costs nothing. Several kinds of one name: exit 2 with the names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from gpufleet_cli.errors import SourceError, TargetError, UsageError
from gpufleet_cli.facts import Gap
from gpufleet_cli.live import kinds, threads
from gpufleet_cli.live.answers import LATE, Answer, why_not
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.kinds import JobKind, Object
from gpufleet_cli.live.pods import Attempt, Pod, attempts_of, pods_of
from gpufleet_cli.live.served_kinds import Served, served
from gpufleet_cli.live.troubles import hint_of
from gpufleet_cli.parsers import json_documents as js

MOST_NAMESPACES = 500
MOST_HOPS = 6
SHOWN = 4
NAMED_SO = "give NAME or KIND/NAME, and -n NAMESPACE; or -l SELECTOR for plain pods"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job that was found. `kind` None: plain pods. `gang`: how many pods must run together."""

    name: str
    namespace: str
    kind: JobKind | None
    uid: str | None
    objects: tuple[Object, ...]
    pods: tuple[Pod, ...]
    attempts: tuple[Attempt, ...]
    gang: int | None
    gaps: tuple[Gap, ...] = ()
    selector: str | None = None

    @property
    def shown(self) -> str:
        kind = "pods" if self.kind is None else self.kind.kind
        return f"{kind} {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What was asked for: NAME, KIND/NAME or a selector; `namespace` None: every readable one. `is_whole`: a bare
    name of a part (a Job of a JobSet) means the job that it is of."""

    target: str | None
    selector: str | None
    namespace: str | None
    is_whole: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    kind: JobKind
    found: Object

    @property
    def name(self) -> str:
        return js.text_at(self.found, "metadata", "name") or "?"

    @property
    def namespace(self) -> str:
        return js.text_at(self.found, "metadata", "namespace") or "default"

    @property
    def uid(self) -> str | None:
        return js.text_at(self.found, "metadata", "uid")

    @property
    def shown(self) -> str:
        return f"{self.kind.kind.lower()}/{self.name}"


def find(api: Api, wanted: Wanted) -> Job:
    """The job, or the error that says what there is instead."""
    if wanted.selector is not None:
        if wanted.target is not None:
            raise UsageError("TARGET and -l are two ways to say one thing", hint="give one of them")
        return _by_selector(api, wanted.selector, wanted.namespace)
    assert wanted.target is not None
    word, _, name = wanted.target.rpartition("/")
    if word and kinds.WORKLOAD.answers_to(word):
        return _of_workload(api, name, wanted)
    searched = kinds.kinds_for(word) if word else kinds.KINDS
    if not searched:
        known = ", ".join(kind.kind.lower() for kind in (*kinds.KINDS, kinds.WORKLOAD))
        raise UsageError(f"{word!r} is no kind of job", hint=f"one of {known}")
    candidates, refused = _look(api, served(api, searched), name, wanted.namespace)
    if not candidates and not word and not refused:
        return _of_workload(api, name, wanted)
    chosen = _choose(candidates, name, wanted, refused, _where(api))
    return _job(api, _top(api, chosen) if wanted.is_whole and not word else chosen)


def _top(api: Api, part: _Candidate) -> _Candidate:
    """The highest job above a Job or JobSet; itself where that is it, or cannot be read."""
    for _ in range(MOST_HOPS):
        typed, owner, _ = _controller(part.found)
        kind = kinds.kind_of(*typed.split("|")) if typed else None
        if kind is None or part.kind.kind not in ("Job", "JobSet"):
            break
        answer = api.get(kinds.path_of(typed, part.namespace, owner), kind="owner")
        if not answer.ok:
            break
        part = _Candidate(kind=kind, found=js.mapping(_decoded(answer.body)))
    return part


def _where(api: Api) -> str:
    return api.access.context or api.access.server


def _of_workload(api: Api, name: str, wanted: Wanted) -> Job:
    """The job that a Workload of Kueue stands for; one of a group of plain pods has the group's name."""
    found, refused = _look(api, served(api, (kinds.WORKLOAD,)), name, wanted.namespace)
    one = _choose(found, name, wanted, refused, _where(api))
    typed, owner, _ = _controller(one.found)
    kind = kinds.kind_of(*typed.split("|")) if typed else None
    if kind is None:
        return _by_selector(api, f"{kinds.POD_GROUP}={name}", one.namespace)
    answer = api.get(kinds.path_of(typed, one.namespace, owner), kind="owner")
    if not answer.ok:
        why = why_not(answer, kind.plural)
        raise TargetError(
            f"{one.shown} is of {kind.kind.lower()}/{owner}, which cannot be read: {why}"
        )
    return _job(api, _Candidate(kind=kind, found=js.mapping(_decoded(answer.body))))


# --- Looking ------------------------------------------------------------------------------------------


def _look(
    api: Api, served: Served, name: str, namespace: str | None
) -> tuple[list[_Candidate], list[str]]:
    """Every object of that name, and where we were not allowed to look."""
    if namespace is not None:
        return _in_namespaces(api, served, name, [namespace])
    found: list[_Candidate] = []
    refused: list[Served] = []
    asked = threads.each(
        lambda one: api.list(
            f"{one[0].root(one[1])}/{one[0].plural}", {"fieldSelector": f"metadata.name={name}"}
        ),
        served,
        threads=min(api.threads, 8),
        deadline=api.deadline,
    )
    failed: Answer | None = None
    for one, listed in asked:
        if listed.answer.status == 403:
            refused.append((one,))
        elif not listed.ok and listed.answer.status != 404:
            failed = listed.answer
        found.extend(_candidates(one[0], listed.items))
    if not found and (failed is not None or api.deadline.is_over()):
        why = LATE if failed is None else why_not(failed, "jobs")
        raise SourceError(f"cannot look for {name}: {why}", hint=hint_of(why))
    if not refused:
        return found, []
    rest = tuple(pair for group in refused for pair in group)
    more, closed = _in_namespaces(api, rest, name, _namespaces(api))
    return [*found, *more], closed


def _namespaces(api: Api) -> list[str]:
    """The readable ones; only the context's where we may not list them."""
    listed = api.list("/api/v1/namespaces", kind="namespaces")
    names = [n for o in listed.items if (n := js.text_at(_decoded(o), "metadata", "name"))]
    own = api.access.namespace
    return [own, *(name for name in names if name != own)][:MOST_NAMESPACES]


def _in_namespaces(
    api: Api, served: Served, name: str, names: Sequence[str]
) -> tuple[list[_Candidate], list[str]]:
    tasks = [(pair, namespace) for namespace in names for pair in served]
    found: list[_Candidate] = []
    closed: set[str] = set()
    asked = threads.each(
        lambda task: api.get(
            f"{task[0][0].root(task[0][1])}/namespaces/{task[1]}/{task[0][0].plural}/{name}"
        ),
        tasks,
        threads=min(api.threads, 16),
        deadline=api.deadline,
    )
    for (pair, namespace), answer in asked:
        if answer.ok:
            found.append(_Candidate(kind=pair[0], found=js.mapping(_decoded(answer.body))))
        elif answer.status == 403:
            closed.add(f"{pair[0].plural} in {namespace}")
        elif answer.status in (0, 401, 429):
            why = why_not(answer, pair[0].plural)
            raise SourceError(
                f"cannot read {pair[0].plural} in {namespace}: {why}", hint=hint_of(why)
            )
    return found, sorted(closed)


def _candidates(kind: JobKind, items: Sequence[msgspec.Raw]) -> Iterator[_Candidate]:
    for raw in items:
        yield _Candidate(kind=kind, found=js.mapping(_decoded(raw)))


def _decoded(raw: bytes | msgspec.Raw) -> object:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


def _choose(
    candidates: Sequence[_Candidate],
    name: str,
    wanted: Wanted,
    refused: Sequence[str],
    where: str,
) -> _Candidate:
    """The one that is meant; what another of the same name owns (the JobSet of a TrainJob) is a part."""
    uids = {one.uid for one in candidates}
    tops = [one for one in candidates if _controller(one.found)[2] not in uids]
    tops.sort(key=lambda one: (one.namespace, one.shown))
    if len(tops) == 1:
        return tops[0]
    if not tops:
        space = f"namespace {wanted.namespace}" if wanted.namespace else "any readable namespace"
        nothing = f"no job {name} in {space} of {where}"
        if refused:
            more = f" and {len(refused) - SHOWN} more" if len(refused) > SHOWN else ""
            doctor = f"gpufleet doctor{f' -n {wanted.namespace}' if wanted.namespace else ''}"
            raise TargetError(
                f"not allowed to read {', '.join(refused[:SHOWN])}{more}; else {nothing}",
                hint=f"{doctor} names the rights that are missing",
            )
        raise TargetError(nothing, hint=NAMED_SO)
    spaces = sorted({one.namespace for one in tops})
    if len(spaces) > 1:
        shown = ", ".join(f"{one.shown} -n {one.namespace}" for one in tops[:8])
        raise UsageError(f"{name} is in several namespaces: {shown}", hint="give -n NAMESPACE")
    raise UsageError(
        f"several kinds have the name {name}: {', '.join(one.shown for one in tops)}",
        hint="give KIND/NAME",
    )


def _controller(found: Object) -> tuple[str, str, str | None]:
    """(apiVersion/kind, name, uid) of the controlling owner."""
    for owner in js.items(js.at(found, "metadata", "ownerReferences")):
        if js.at(owner, "controller") is True:
            version, kind = js.text_at(owner, "apiVersion") or "v1", js.text_at(owner, "kind") or ""
            return f"{version}|{kind}", js.text_at(owner, "name") or "", js.text_at(owner, "uid")
    return "", "", None


# --- Its pods -------------------------------------------------------------------------------------


def _job(api: Api, chosen: _Candidate) -> Job:
    raws: dict[str, Object] = {}
    gaps: list[Gap] = []
    for selector in _selectors(chosen):
        items, gap = _pods(api, chosen.namespace, selector)
        gaps.extend(() if gap is None else (gap,))
        for one in items:
            raws.setdefault(js.text_at(one, "metadata", "uid") or str(len(raws)), one)
    pods = pods_of(raws.values())
    return Job(
        name=chosen.name,
        namespace=chosen.namespace,
        kind=chosen.kind,
        uid=chosen.uid,
        objects=(_typed(chosen), *owners(api, pods, known={chosen.uid})),
        pods=tuple(pods),
        attempts=tuple(attempts_of(pods, newest=_newest(chosen))),
        gang=chosen.kind.gang(chosen.found),
        gaps=tuple(gaps),
    )


def _newest(chosen: _Candidate) -> int | None:
    """The number of a RayJob's newest attempt: its controller deletes the cluster of one that failed."""
    if chosen.kind.kind != "RayJob":
        return None
    failed = js.integer(js.at(chosen.found, "status", "failed")) or 0
    is_over = js.text_at(chosen.found, "status", "jobDeploymentStatus") == "Failed"
    return max(0, failed - is_over)


def _typed(chosen: _Candidate) -> Object:
    """The object with its type, which the items of a list lack."""
    kind = "Job" if chosen.kind.kind == "VolcanoJob" else chosen.kind.kind
    version = f"{chosen.kind.group}/{chosen.kind.versions[0]}"
    return {"apiVersion": version, "kind": kind, **chosen.found}


def _selectors(chosen: _Candidate) -> Iterator[str]:
    """Label selectors of the job's pods; a RayJob's clusters carry its name, its submitter is a Job."""
    name = chosen.name
    if chosen.kind.kind == "RayJob":
        yield f"ray.io/originated-from-cr-name={name},ray.io/originated-from-crd=RayJob"
        cluster = js.text_at(chosen.found, "status", "rayClusterName")
        if cluster is not None:
            yield f"ray.io/cluster={cluster}"
        yield f"batch.kubernetes.io/job-name={name}"
        return
    yield f"{chosen.kind.label}={name}"


def _pods(api: Api, namespace: str, selector: str) -> tuple[list[Object], Gap | None]:
    path = f"/api/v1/namespaces/{namespace}/pods"
    listed = api.list(path, {"labelSelector": selector}, kind="pods")
    found = [js.mapping(_decoded(raw)) for raw in listed.items]
    if listed.answer.status == 403 and not found:
        raise SourceError(
            f"not allowed to list pods in {namespace}", hint="needs list on pods (gpufleet-reader)"
        )
    if not listed.ok or listed.note:
        if not found:
            why = why_not(listed.answer, "pods")
            raise SourceError(f"cannot list the pods of {namespace}: {why}", hint=hint_of(why))
        why = listed.note or listed.answer.message
        return found, Gap(what=f"pods of {namespace}", why=why, would_settle="the other ranks")
    return found, None


def owners(api: Api, pods: Sequence[Pod], known: set[str | None]) -> Iterator[Object]:
    """The controllers above the pods, up to six hops; one that is gone or closed is passed over."""
    waiting = {(pod.namespace, *_controller(pod.raw)) for pod in pods}
    for _ in range(MOST_HOPS):
        tasks = sorted(
            {one for one in waiting if one[3] is not None and one[3] not in known}, key=str
        )
        known |= {one[3] for one in tasks}
        waiting = set()
        asked = threads.each(
            lambda task: api.get(kinds.path_of(task[1], task[0], task[2]), kind="owner"),
            tasks,
            threads=min(api.threads, 8),
            deadline=api.deadline,
        )
        found = sorted(
            (js.mapping(_decoded(answer.body)) for _, answer in asked if answer.ok),
            key=lambda one: (
                js.text_at(one, "kind") or "",
                js.text_at(one, "metadata", "name") or "",
            ),
        )
        for one in found:
            yield one
            waiting.add((js.text_at(one, "metadata", "namespace") or "default", *_controller(one)))


def _by_selector(api: Api, selector: str, namespace: str | None) -> Job:
    """Plain pods that carry these labels; in one namespace."""
    if namespace is not None:
        items, _ = _pods(api, namespace, selector)
    else:
        listed = api.list("/api/v1/pods", {"labelSelector": selector}, kind="pods")
        if listed.answer.status == 403:
            items, _ = _pods(api, api.access.namespace, selector)
        elif not listed.ok and not listed.items:
            raise _selector_error(selector, listed.answer)
        else:
            items = [js.mapping(_decoded(raw)) for raw in listed.items]
    pods = pods_of(items)
    where = f"namespace {namespace}" if namespace else "any readable namespace"
    if not pods:
        raise TargetError(f"-l {selector}: no pod in {where} of {_where(api)}")
    spaces = sorted({pod.namespace for pod in pods})
    if len(spaces) > 1:
        raise UsageError(
            f"-l {selector} matches pods in several namespaces: {', '.join(spaces[:8])}",
            hint="give -n NAMESPACE",
        )
    name = selector.rpartition("=")[2] if selector.count("=") == 1 else selector
    return Job(
        name=name,
        namespace=spaces[0],
        kind=None,
        uid=None,
        objects=tuple(owners(api, pods, known=set())),
        pods=tuple(pods),
        attempts=tuple(attempts_of(pods)),
        gang=None,
        selector=selector,
    )


def _selector_error(selector: str, answer: Answer) -> SourceError | UsageError:
    if answer.status == 400:
        return UsageError(f"-l {selector!r} is no label selector: {answer.message}")
    why = why_not(answer, "pods")
    return SourceError(f"cannot list pods: {why}", hint=hint_of(why))
