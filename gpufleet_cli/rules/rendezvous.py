"""The job never started: somebody did not come to the rendezvous.

Claims it when the store counted fewer clients than expected, a rendezvous error stands, or a pod of the gang
is in a state in which it cannot start, and no step was made in this attempt. The absent one is named by its pod's state or events, or as the only rank that
left nothing. What could look the same: a late survivor that finds the rendezvous closed after a crash.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpufleet_cli.facts import IdentityLink, PodState, Sign
from gpufleet_cli.plain_text import is_name
from gpufleet_cli.reason import Case
from gpufleet_cli.reason.placed import PlacedSign
from gpufleet_cli.reason.rank_numbering import of_pods
from gpufleet_cli.rules import claims
from gpufleet_cli.rules.claims import about, claim, ranks_text
from gpufleet_cli.rules.refused_pods import Refusal, refusal
from gpufleet_cli.verdict import Claim, Hypothesis, Kind, Remedy

NAME = "rendezvous"
POD_TROUBLE = frozenset(
    {
        "Failed",
        "BackOff",
        "FailedScheduling",
        "FailedMount",
        "FailedCreatePodSandBox",
        "ErrImagePull",
        "ImagePullBackOff",
        "InspectFailed",
        "FailedAttachVolume",
    }
)


MOST_REASON = 90
_QUOTA = re.compile(r"exceeded quota: ([a-z0-9][a-z0-9.-]{0,252}),")
_IMAGE = re.compile(r'image "([^"\s]{1,100})"')
STARTING = frozenset({None, "ContainerCreating", "PodInitializing", "CrashLoopBackOff"})
"""Waiting for these is the way of every pod, or comes after it ran."""


def propose(case: Case) -> Iterator[Hypothesis]:
    """At most one hypothesis a way of not starting; none once a step was made."""
    yield from _stuck_in_init(case)
    joined = [
        s
        for s in case.signs_of(Sign.CLIENTS_JOINED)
        if s.fact.joined is not None
        and s.fact.expected is not None
        and s.fact.joined < s.fact.expected
    ]
    failed = case.signs_of(Sign.RENDEZVOUS_FAILED, Sign.PORT_IN_USE)
    if case.steps.count > 0 or case.timeouts:
        return
    if not (joined or failed):
        yield from _never_began(case)
        return
    found: list[Claim] = []
    if joined:
        first = joined[0]
        found.append(
            about(
                first,
                f"{first.fact.joined} of {first.fact.expected} clients joined{claims.when(first.at_ns)}",
                claims.STRONG,
            )
        )
    found += [about(s, s.fact.text[:120], claims.GOOD if not joined else 0.5) for s in failed[:1]]
    clash = failed and failed[0].fact.sign is Sign.PORT_IN_USE
    refused = refusal(case)
    found += [] if refused is None else [_refused_claim(refused, claims.FAIR)]
    troubled = _troubled_pods(case)
    ranks, nodes = _absent(case, [pod for pod, _c in troubled], joined)
    found += [c for _pod, c in troubled[:3]]
    pods = () if ranks else _unstarted(case)
    who = ranks_text(ranks) if ranks else ", ".join(pods[:3]) or "an absent peer"
    yield Hypothesis(
        kind=Kind.RENDEZVOUS_FAILURE,
        rule=NAME,
        summary="The rendezvous port is taken by another process."
        if clash
        else f"The job never started: {who} did not join the rendezvous{_why(case, refused)}.",
        claims=tuple(found),
        remedy=Remedy.OUTSIDE,
        ranks=() if clash else ranks,
        nodes=() if clash else nodes,
        pods=() if clash else pods,
        onset_ns=None,
        degrades=True,
        worsens=None,
        worsens_why="a restart waits for the same peer",
        reason_tag="rendezvous",
        would_settle="events and state of the pods that did not join",
        settle_command=None
        if clash
        else _describe_refused(refused) or _describe_pod(_waiting(case)),
    )


def _never_began(case: Case) -> Iterator[Hypothesis]:
    """A gang whose state says why it is not whole, before anybody has given up waiting for it."""
    gang = of_pods(case.pods)
    waiting = _waiting(case)
    if case.held and len(waiting) == len(gang):
        yield _held(case)
        return
    refused = refusal(case)
    if refused is not None and not waiting:
        yield _not_made(refused, len(gang))
    if not waiting:
        return
    everybody = len(waiting) == len(gang)
    names = tuple(pod.name for pod in waiting)
    ranks = tuple(sorted({r for name in names for r in case.topology.by_pod.get(name, ())}))
    count = f"all {len(gang)} pods" if len(gang) > 1 else names[0]
    who = count if everybody else ", ".join(names[:3]) + _more(len(names) - 3)
    yield Hypothesis(
        kind=Kind.RENDEZVOUS_FAILURE,
        rule=NAME,
        summary=f"The job has not started: {who} cannot start{_since(waiting)}{_why(case)}"
        + ("." if everybody else f"; {len(gang) - len(waiting)} others wait for it."),
        claims=tuple(
            claim(_state_trouble(pod) or "", pod.origin, claims.STRONG if i == 0 else claims.WEAK)
            for i, pod in enumerate(waiting[:3])
        ),
        remedy=Remedy.OUTSIDE,
        ranks=() if everybody else ranks,
        pods=() if everybody or ranks else names,
        degrades=True,
        worsens=None,
        worsens_why="it lasts until those pods can start",
        reason_tag="not started",
        would_settle="events and state of the pods that cannot start",
        settle_command=_describe_pod(waiting),
    )


def _not_made(refused: Refusal, there: int) -> Hypothesis:
    """Pods that the API server refused, and the others that are there and wait for them."""
    since = claims.when(refused.event.first_ns or refused.event.at_ns).replace(" at ", " since ", 1)
    others = f"; {there} others wait for it" if there else ""
    return Hypothesis(
        kind=Kind.RENDEZVOUS_FAILURE,
        rule=NAME,
        summary=f"The job has not started: {refused.who}{since} ({refused.why[:180]}){others}.",
        claims=(_refused_claim(refused, claims.STRONG),),
        remedy=Remedy.OUTSIDE,
        degrades=there > 0,
        degrades_why="the others hold their GPUs idle" if there else "it holds no GPUs",
        worsens=None if there else False,
        worsens_why="it lasts until those pods may be made",
        reason_tag="not started",
        would_settle="the quota or the policy that refuses, and what uses it up",
        settle_command=_describe_refused(refused),
    )


def _refused_claim(refused: Refusal, weight: float) -> Claim:
    event = refused.event
    return claim(
        f"{event.kind} {event.name}: {event.reason}: {refused.why[:200]}",
        event.origin,
        weight,
        at_ns=event.at_ns,
    )


def _describe_refused(refused: Refusal | None) -> str | None:
    """The quota itself where it is named, else the object whose pods are refused."""
    if refused is None:
        return None
    quota = _QUOTA.match(refused.why)
    if quota is not None:
        return _describe("resourcequota", quota[1], refused.event.namespace)
    kind = refused.event.kind.lower()
    return _describe(kind, refused.event.name, refused.event.namespace)


HOLDERS = {"Workload": "Kueue has not admitted it", "PodGroup": "Volcano has not placed its gang"}
RESOURCES = {
    "Workload": "workloads.kueue.x-k8s.io",
    "PodGroup": "podgroups.scheduling.volcano.sh",
    "VolcanoJob": "jobs.batch.volcano.sh",
}
"""What kubectl calls them, where a short name may be another's."""


def _held(case: Case) -> Hypothesis:
    """No pod of it runs, and what holds it back says why; a queue tells more than `suspend` does."""
    first = min(case.held, key=lambda held: (held.kind not in HOLDERS, held.kind, held.name))
    who = HOLDERS.get(first.kind, f"{first.kind} {first.name} is suspended")
    since = claims.when(first.since_ns).replace(" at ", " since ", 1)
    queue = f"; its queue: {first.queue}" if first.queue else ""
    return Hypothesis(
        kind=Kind.RENDEZVOUS_FAILURE,
        rule=NAME,
        summary=f"The job has not started: {who} ({first.reason}: {first.message[:180]}){since}{queue}.",
        claims=(
            claim(
                f"{first.kind} {first.name}: {first.reason}{since}: {first.message[:120]}",
                first.origin,
                claims.STRONG,
                at_ns=first.since_ns,
            ),
        ),
        remedy=Remedy.OUTSIDE,
        degrades=False,
        degrades_why="it holds no GPUs",
        worsens=False,
        worsens_why="it waits, and holds nobody up",
        reason_tag="not started",
        would_settle="the quota of its queue, and what runs in it",
        settle_command=_describe(
            RESOURCES.get(first.kind, first.kind.lower()), first.name, first.namespace
        ),
    )


def _describe(resource: str, name: str, namespace: str | None) -> str | None:
    """The command that shows all that the cluster says of an object."""
    if not (is_name(name) and is_name(resource) and is_name(namespace or "default")):
        return None
    return f"kubectl describe {resource} {name}" + (f" -n {namespace}" if namespace else "")


def _describe_pod(waiting: list[PodState]) -> str | None:
    return _describe("pod", waiting[0].name, waiting[0].namespace) if waiting else None


def _waiting(case: Case) -> list[PodState]:
    return [pod for pod in of_pods(case.pods) if _state_trouble(pod) is not None]


def _since(waiting: list[PodState]) -> str:
    """` since 03:00:12`: what never started has waited since it was made."""
    made = [pod.created_ns for pod in waiting if pod.created_ns is not None]
    return claims.when(min(made, default=None)).replace(" at ", " since ", 1)


def _more(count: int) -> str:
    return f" and {count} more" if count > 0 else ""


def _state_trouble(pod: PodState) -> str | None:
    """Why a pod cannot start, by its state; None where it has, or is on its way."""
    if pod.scheduled is False:
        why = _lacking_first(pod.unscheduled_why or "no reason given")
        return f"{pod.name} is not scheduled: {why}"[:160]
    waiting = next((c for c in pod.containers if c.state == "waiting"), None)
    troubled = next(
        (c for c in pod.containers if c.state == "waiting" and c.reason not in STARTING), None
    )
    if waiting is None or troubled is None or pod.phase not in ("Pending", None):
        return None
    told = _of_image(troubled.message or "") if "Image" in (troubled.reason or "") else None
    return f"{pod.name}: {troubled.reason}: {told or troubled.message or ''}"[:160].rstrip(": ")


def _lacking_first(why: str) -> str:
    """The scheduler's list of nodes, those that lack a resource before those that were no choice anyhow."""
    first, stop, rest = why.partition(". ")
    head, available, kinds = first.rstrip(".").partition(" are available: ")
    if not available:
        return why
    parts = sorted(kinds.split(", "), key=lambda one: "Insufficient" not in one)
    return f"{head}{available}{', '.join(parts)}{stop}{rest}"


def _of_image(message: str) -> str | None:
    """`registry.example/train:1, not found`: the image and the end of the reason, without the runtime's path to it."""
    image = _IMAGE.search(message)
    if image is None:
        return None
    last = message.rpartition(": ")[2].strip()
    return image[1] if image[1] in last else f"{image[1]}, {last[:60]}"


def _why(case: Case, refused: Refusal | None = None) -> str:
    """The reason in brackets, where all that cannot start give one."""
    reasons = set() if refused is None else {refused.why[:180]}
    for pod in of_pods(case.pods):
        text = _state_trouble(pod)
        if text is not None:
            reason = text.removeprefix(pod.name).removeprefix(" is ").lstrip(": ")
            reasons.add(_short(reason))
    return f" ({reasons.pop()})" if len(reasons) == 1 else ""


def _short(reason: str) -> str:
    """The first parts of a reason; the scheduler lists every kind of node."""
    first = reason.partition(". ")[0].rstrip(".")
    if len(first) <= MOST_REASON or "Image" in first.partition(":")[0]:
        return first
    return f"{first[:MOST_REASON].rpartition(', ')[0] or first[:MOST_REASON]}, ..."


def _unstarted(case: Case) -> tuple[str, ...]:
    """The pods whose state says that they cannot start, unless that is all of them."""
    gang = of_pods(case.pods)
    names = tuple(pod.name for pod in gang if _state_trouble(pod) is not None)
    return names if len(names) < len(gang) else ()


def _stuck_in_init(case: Case) -> Iterator[Hypothesis]:
    """NCCL's init started on all ranks of the world but some, and completed on none."""
    if case.steps.count > 0 or case.timeouts:
        return
    started: dict[str, dict[int, IdentityLink]] = {}
    done: set[str] = set()
    for link in case.init_links:
        if link.comm is None or link.rank is None or link.rank_in != case.topology.world_size:
            continue
        if link.comm_ready:
            done.add(link.comm)
        started.setdefault(link.comm, {}).setdefault(link.rank, link)
    for comm, links in sorted(started.items()):
        absent = tuple(r for r in case.world if r not in links and r in case.silence)
        unseen = [r for r in case.world if r not in links and r not in case.silence]
        if comm in done or not absent or unseen or len(absent) * 2 > len(case.world):
            continue
        first = links[min(links)]
        yield Hypothesis(
            kind=Kind.RANK_MISSING,
            rule=NAME,
            summary=f"{claims.sentence(ranks_text(absent))} never entered NCCL's initialisation;"
            f" {len(links)} others wait in it.",
            claims=(
                claim(
                    f"{len(links)} of {len(case.world)} ranks began to initialise communicator"
                    f" {comm}, none completed; {ranks_text(absent)} never began",
                    first.origin,
                    claims.GOOD,
                ),
            ),
            remedy=Remedy.PROCESS,
            ranks=absent,
            onset_ns=case.onset_ns,
            would_settle=f"the stack of {ranks_text(absent)}",
        )


def _troubled_pods(case: Case) -> list[tuple[str, Claim]]:
    """Pods that cannot start, with the event or state that says so; one claim a pod."""
    found: dict[str, Claim] = {}
    for event in case.events:
        if event.kind.lower() == "pod" and event.reason in POD_TROUBLE and event.warning:
            found.setdefault(
                event.name,
                claim(
                    f"{event.name}: {event.reason}: {event.message[:100]}",
                    event.origin,
                    claims.FAIR,
                    at_ns=event.at_ns,
                ),
            )
    for pod in case.pods:
        text = _state_trouble(pod)
        if text is not None:
            found.setdefault(pod.name, claim(text[:140], pod.origin, claims.FAIR))
    return sorted(found.items())


def _absent(
    case: Case, pods: list[str], joined: list[PlacedSign]
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Ranks of the pods that cannot start; else the ranks without a line, if their number fits."""
    by_pod = sorted({r for pod in pods for r in case.topology.by_pod.get(pod, ())})
    silent = [r for r in case.world if r not in case.silence]
    missing = None
    if joined:
        missing = (joined[0].fact.expected or 0) - (joined[0].fact.joined or 0)
    ranks = tuple(by_pod)
    if (
        not ranks
        and silent
        and (missing is None or missing == len(silent))
        and len(silent) < len(case.world)
    ):
        ranks = tuple(silent)
    nodes = {case.topology.node_of_pod.get(pod) for pod in pods} | {
        case.topology.node_of(rank) for rank in ranks
    }
    return ranks, tuple(sorted(n for n in nodes if n is not None))
