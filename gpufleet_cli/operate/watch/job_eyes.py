"""The job as the API server has it: which run it is, and whether it ended. A few small reads a look.

The list of all pods, which of a large gang is megabytes, is read at the start, when the job's status or a followed pod
changed, and seldom besides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

import msgspec

from gpufleet_cli.attempt_token import began_anew_ns
from gpufleet_cli.errors import SourceError, TargetError
from gpufleet_cli.live import find_job, first_facts, gang_view, kinds
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.find_job import Job, Wanted
from gpufleet_cli.live.pods import Pod, attempts_of, pods_of
from gpufleet_cli.operate import evict_target
from gpufleet_cli.operate.watch.model import Subject
from gpufleet_cli.parsers import json_documents as js

LIST_S, PODS_A_SECOND = 60.0, 10.0
"""All pods are listed again after so long, later of a large gang."""
LISTED_A_SECOND = 50.0
AT_MOST_S, AT_MOST_PODS_A_SECOND = 10.0, 100.0
"""And where something changed, no sooner than this after the last time."""


@dataclass(slots=True, kw_only=True)
class JobEyes:
    """One job. `followed`: names of the pods that are read at each look."""

    wanted: Wanted
    group: int | None = None
    job: Job | None = None
    pods: tuple[Pod, ...] = ()
    followed: Sequence[str] = ()
    listed_s: float = 0.0
    _prints: dict[str, str] = field(default_factory=dict)
    _path: str | None = None
    _is_stale: bool = False
    _subject: Subject | None = None

    def first(self, api: Api, now_s: float) -> Subject:
        """Find what was meant. TargetError, SourceError and UsageError as `find_job` has them."""
        self.job = find_job.find(api, self.wanted)
        if not self.job.pods and not self.job.objects:
            raise TargetError(f"{self.job.shown} has no pods")
        if self.job.kind is not None:
            kind = self.job.kind.kind.lower()
            target = f"{kind}/{self.job.name}"
            self.wanted = Wanted(target=target, selector=None, namespace=self.job.namespace)
            found = self.job.objects[0]
            typed = f"{js.text_at(found, 'apiVersion')}|{js.text_at(found, 'kind')}"
            self._path = kinds.path_of(typed, self.job.namespace, self.job.name)
        else:
            self.wanted = replace(self.wanted, namespace=self.job.namespace)
        return self._taken(api, self.job, now_s)

    def look(self, api: Api, lister: Callable[[float], Api], now_s: float) -> Subject:
        """The run as it is now. SourceError where the server did not tell. `lister`: the API server for so many
        seconds, since the list of a large gang takes longer than a look."""
        assert self.job is not None and self._subject is not None
        self._is_stale = self._changed(api) or self._is_stale
        since = now_s - self.listed_s
        least = max(AT_MOST_S, len(self.pods) / AT_MOST_PODS_A_SECOND)
        often = max(LIST_S, len(self.pods) / PODS_A_SECOND)
        if since < (least if self._is_stale else often):
            return self._subject
        try:
            longer = lister(len(self.pods) / LISTED_A_SECOND)
            found = find_job.find(longer, self.wanted)
            if found.gaps:  # a part of its pods: the run is not to be told by that
                return self._subject
            return self._taken(longer, found, now_s)
        except TargetError:
            was = self._subject
            ended = was if was.state == "failed" else replace(was, state="exited", why="it is gone")
            self._subject = replace(ended, is_over=True)
            return self._subject

    def _changed(self, api: Api) -> bool:
        """Whether the job's status or a followed pod is another than at the last list."""
        assert self.job is not None
        paths = {
            f"/api/v1/namespaces/{self.job.namespace}/pods/{name}": "pods" for name in self.followed
        }
        if self._path is not None:
            paths[self._path] = "object"
        answers = {path: api.get(path, kind=kind, tries=2) for path, kind in paths.items()}
        lost = [a for a in answers.values() if not a.ok and a.status not in (403, 404)]
        if lost:
            raise SourceError(f"the API server: {lost[0].message}")
        prints = {
            path: _print(answer.body) if answer.ok else str(answer.status)
            for path, answer in answers.items()
        }
        changed = any(self._prints.get(path) not in (None, told) for path, told in prints.items())
        if self._path is not None and not answers[self._path].ok:
            self._path = None  # not readable by that version or right: the lists alone tell
            changed = True
        self._prints |= prints
        return changed

    def _taken(self, api: Api, job: Job, now_s: float) -> Subject:
        uids = frozenset(pod.state.uid for pod in self.pods if pod.state.uid is not None)
        pods = evict_target.newest_pods(api, job, number=self.group, group_of=uids)
        self.job, self.listed_s, self._is_stale = job, now_s, False
        self.pods = pods or self.pods
        self._subject = subject_of(job, pods, self._subject)
        return self._subject


def subject_of(job: Job, pods: Sequence[Pod], before: Subject | None = None) -> Subject:
    """The run that these pods are; without any, the one that was, as the job's object tells of it."""
    top = job.objects[0] if job.kind is not None and job.objects else None
    word, reason, _ = gang_view.said(top)
    has_failed, has_ended = word in gang_view.FAILED, word in gang_view.ENDED
    number = job.attempts[-1].number if job.attempts else 0
    anew = max((began_anew_ns(pod.state) for pod in pods), default=0)
    made = min((pod.state.created_ns or 0 for pod in pods), default=0)
    token = f"{job.uid or job.namespace}/{number}/{made}/{anew}"
    if not pods:
        number = number if before is None else before.number
        token = token if before is None else before.token
    attempt = attempts_of(pods)[-1] if pods else None
    state = "pending" if attempt is None else attempt.state
    why = ""
    if has_failed or (state == "failed" and not has_ended):
        told = list(first_facts.ended(pods))
        why = told[0] if told else reason or word or "a container ended with an error"
        state = "failed"
    elif has_ended:
        state = "exited"
    ended = bool(pods) and all(not pod.is_running for pod in pods)
    return Subject(
        token=token,
        number=number,
        state=state,  # type: ignore[arg-type]
        why=why,
        is_over=has_failed or has_ended or (job.kind is None and ended) or state == "exited",
    )


def _print(body: bytes) -> str:
    """What matters of an object, in a few characters: status and suspension."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return "?"
    if js.text_at(found, "kind") == "Pod":
        pods = pods_of([js.mapping(found)])
        told: object = [
            (pod.state.uid, pod.state.phase, pod.state.terminating,
             [(c.name, c.state, c.restarts) for c in pod.state.containers])
            for pod in pods
        ]  # fmt: skip
    else:
        told = [js.at(found, "status"), js.at(found, "spec", "suspend")]
    return sha256(msgspec.json.encode(told)).hexdigest()[:16]
