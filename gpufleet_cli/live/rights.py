"""What we may do, asked of the API server before it matters: one round of reviews, side by side.

A SelfSubjectAccessReview is open to anybody who is authenticated and stores nothing. `allowed: false`
beside an `evaluationError` is no firm no (an authorizer could not be asked), and a review that fails
says nothing either: both are None here. SelfSubjectRulesReview is not asked: webhook authorizers leave it
incomplete. https://kubernetes.io/docs/reference/access-authn-authz/authorization/
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from gpufleet_cli.errors import SourceError
from gpufleet_cli.live import threads
from gpufleet_cli.live.answers import Answer
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.service_ref import service_ref
from gpufleet_cli.parsers import json_documents as js

ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
WHO_AM_I = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
NODE_LEASES = "kube-node-lease"
MOST_IN_FLIGHT = 12
READER, CAPTURE, OPERATOR = "gpufleet-reader", "gpufleet-capture", "gpufleet-operator"
PROXY_ROLE = "a Role for services/proxy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """One right: `verb` on `resource` (`pods/log`) in a namespace, or anywhere for None.

    `loses` is what is not seen without it; `role` is the ClusterRole of `deploy/rbac` that has it.
    """

    verb: str
    resource: str
    loses: str
    group: str = ""
    namespace: str | None = None
    name: str | None = None
    role: str = READER

    @property
    def shown(self) -> str:
        """`get pods/log in ml`."""
        what = f"{self.resource}.{self.group}" if self.group else self.resource
        where = f" in {self.namespace}" if self.namespace is not None else ""
        return f"{self.verb} {what}{where}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviewed:
    """The server's answer. `allowed` None: it could not tell, and `why` says why."""

    right: Right
    allowed: bool | None
    why: str = ""


# --- Which rights ---------------------------------------------------------------------------------


def to_read_a_job(namespace: str | None, *, many_nodes: bool = False) -> tuple[Right, ...]:
    """What `triage` and `collect` read of a job that was found in `namespace`, exec left out."""
    verb = "list" if many_nodes else "get"
    return (
        Right(verb="list", resource="pods", namespace=namespace, loses="the job's pods"),
        Right(
            verb="get", resource="pods/log", namespace=namespace,
            loses="what every rank wrote: who fell silent, and every error line",
        ),
        Right(
            verb="list", resource="events", namespace=namespace,
            loses="who removed, evicted or could not place a pod",
        ),
        Right(
            verb=verb, resource="nodes",
            loses="whether a node is dead, cordoned or lost a GPU",
        ),
        Right(
            verb=verb, resource="leases", group="coordination.k8s.io", namespace=NODE_LEASES,
            loses="when a node died",
        ),
        Right(
            verb="list", resource="events", namespace="default",
            loses="reboots and warnings of the nodes",
        ),
    )  # fmt: skip


def to_exec(namespace: str | None) -> tuple[Right, ...]:
    """What reading a dump out of a container takes: `get` for a WebSocket, `create` from newer servers."""
    loses = "Flight Recorder dumps out of running containers"
    return tuple(
        Right(
            verb=verb, resource="pods/exec", namespace=namespace, loses=loses, role=CAPTURE
        )
        for verb in ("get", "create")
    )  # fmt: skip


def to_find_services() -> tuple[Right, ...]:
    """What finding a metrics or log store that nobody configured takes."""
    return (
        Right(
            verb="list", resource="services",
            loses="metrics and log stores that no flag and no setting names",
        ),
    )  # fmt: skip


def to_reach(place: str, loses: str) -> tuple[Right, ...]:
    """What a store behind the API server's service proxy takes; nothing for one at a URL. No role of ours has it: it
    opens every port of a Service, so it is given for one by its name."""
    try:
        service = service_ref(place)
    except SourceError:  # said where the store is asked
        return ()
    if service is None:
        return ()
    return (
        Right(
            verb="get", resource="services/proxy", namespace=service.namespace,
            name=service.target, loses=loses, role=PROXY_ROLE,
        ),
    )  # fmt: skip


def grant_of(namespace: str, target: str, whom: str) -> str:
    """How whoever administers the cluster gives that right. `whom`: `--user=...` or `--serviceaccount=...`."""
    name = f"gpufleet-{target.split(':')[-2]}"
    role = f"kubectl create role {name} -n {namespace} --verb=get --resource=services/proxy"
    bound = f"kubectl create rolebinding {name} -n {namespace} --role={name} {whom}"
    return f"{role} --resource-name={target}; {bound}"


def to_look_at_nodes() -> tuple[Right, ...]:
    """What `node` reads."""
    return (
        Right(verb="get", resource="nodes", loses="its conditions, taints, GPUs and cordon"),
        Right(verb="list", resource="pods", loses="the gang that holds it"),
        Right(
            verb="get", resource="leases", group="coordination.k8s.io", namespace=NODE_LEASES,
            loses="since when it is silent",
        ),
        Right(
            verb="list", resource="events", namespace="default", loses="its reboots and warnings"
        ),
    )  # fmt: skip


PATCH_NODES = Right(
    verb="patch", resource="nodes", role=OPERATOR,
    loses="cordon, uncordon and the queue: all are patches of a node",
)  # fmt: skip
WRITE_EVENTS = Right(
    verb="create", resource="events", namespace="default", role=OPERATOR,
    loses="an Event on the node for each action and refusal",
)  # fmt: skip


# --- Asking ---------------------------------------------------------------------------------------


def review(api: Api, wanted: Iterable[Right]) -> list[Reviewed]:
    """All at once; in the order of `wanted`. What did not come by the deadline is not known."""
    rights = tuple(dict.fromkeys(wanted))
    asked = threads.each(
        lambda right: _reviewed(right, api.ask(ACCESS_REVIEWS, _question(right), kind="review")),
        rights,
        threads=min(api.threads, MOST_IN_FLIGHT),
        deadline=api.deadline,
    )
    found = dict(asked)
    late = "no answer in time"
    return [found.get(one, Reviewed(right=one, allowed=None, why=late)) for one in rights]


def _question(right: Right) -> object:
    resource, _, part = right.resource.partition("/")
    stated = {
        "verb": right.verb,
        "group": right.group,
        "resource": resource,
        "subresource": part,
        "namespace": right.namespace,
        "name": right.name,
    }
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {key: value for key, value in stated.items() if value}},
    }


def _reviewed(right: Right, answer: Answer) -> Reviewed:
    if not answer.ok:
        return Reviewed(right=right, allowed=None, why=answer.message)
    try:
        status = js.at(msgspec.json.decode(answer.body), "status")
    except (msgspec.DecodeError, ValueError, RecursionError):
        return Reviewed(right=right, allowed=None, why="an answer that is not understood")
    trouble = js.text_at(status, "evaluationError")
    if js.at(status, "allowed") is True:
        return Reviewed(right=right, allowed=True)
    if trouble and js.at(status, "denied") is not True:
        return Reviewed(right=right, allowed=None, why=" ".join(trouble.split())[:160])
    return Reviewed(right=right, allowed=False, why=js.text_at(status, "reason") or "")


def who_am_i(api: Api) -> str | None:
    """The user's name as the server knows it (from Kubernetes 1.28 on)."""
    question = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = api.ask(WHO_AM_I, question, kind="review")
    if not answer.ok:
        return None
    try:
        return js.text_at(msgspec.json.decode(answer.body), "status", "userInfo", "username")
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


class Round:
    """Reviews under way beside other reads. `tell` hands out what has come, each once."""

    def __init__(self, api: Api, wanted: Sequence[Right]) -> None:
        self._api = api
        self._wanted = tuple(wanted)
        self._found: list[Reviewed] | None = None
        self._done = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        self._found = review(self._api, self._wanted)
        self._done.set()

    def refused(self, wait_s: float) -> list[Reviewed]:
        """The firm noes, as soon as they are known; none twice, and none later than `wait_s`."""
        if not self._done.wait(self._api.deadline.bound(wait_s)):
            return []
        found, self._found = self._found or [], []
        return [one for one in found if one.allowed is False]


def tell(refused: Sequence[Reviewed], say: Callable[[str], None]) -> None:
    """A line for each right that is missing, and one for what to do."""
    for one in refused:
        say(f"not allowed: {one.right.shown}: not seen tonight: {one.right.loses}")
    roles = sorted({one.right.role for one in refused})
    if roles:
        say(f"whoever administers the cluster binds {' and '.join(roles)} (deploy/rbac)")
