"""Rank containers that ended before the others complained: a death that no rank's own line tells.

Claims the pod, and its rank where it holds one. What could look the same: a peer of a failed adapter,
whose own log says so; the end of the whole job.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpufleet_cli.facts import ContainerState, PodState, Sign
from gpufleet_cli.reason import Case
from gpufleet_cli.reason.placed import NS
from gpufleet_cli.rules import adapters, claims
from gpufleet_cli.rules.claims import claim
from gpufleet_cli.verdict import Hypothesis, Kind, Remedy

RULE = "program_error"
SAME_MOMENT_S = 5.0
CLOCKS_S = 60.0
CONSEQUENCES = frozenset(
    {
        Sign.PYTHON_EXCEPTION,
        Sign.PEER_CLOSED,
        Sign.PEER_UNREACHABLE,
        Sign.STORE_LOST,
        Sign.REMOTE_ERROR,
        Sign.RENDEZVOUS_FAILED,
        Sign.ASYNC_ERROR,
    }
)
SIGNALS = {
    4: "SIGILL",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    11: "SIGSEGV",
    15: "SIGTERM",
}


def exit_words(code: int) -> str:
    """An exit code in words: of a signal its name.

    >>> exit_words(-11), exit_words(139), exit_words(1)
    ('killed by SIGSEGV', 'killed by SIGSEGV', 'exit code 1')
    """
    number = -code if code < 0 else code - 128 if code > 128 else None
    if number in SIGNALS:
        tail = ", sender unknown" if number == 9 else ""
        return f"killed by {SIGNALS[number]}{tail}"
    return f"exit code {code}"


def hypotheses(case: Case, known: set[int]) -> Iterator[Hypothesis]:
    """A rank container that ended before the others complained: its pod is known, its rank only
    where it holds one."""
    for pod, container in _first_exits(case.pods):
        if "OOMKilled" in (container.reason, container.last_reason) or pod.disruption is not None:
            continue
        ranks = case.topology.by_pod.get(pod.name, ())
        ahead = claims.before_others_s(case, container.finished_ns)
        # Its time is of another clock than the logs': only well before the timeouts is before them.
        late = case.timeouts and (ahead is None or ahead <= max(CLOCKS_S, case.timeout_s * 0.2))
        if late or not ranks or known & set(ranks) or _has_an_effect(case, pod):
            continue
        code = container.exit_code or 0
        # Where another node's adapter went, a peer of it ends like this too.
        is_peer = bool(set(adapters.own_events(case)) - {pod.node, pod.name})
        yield Hypothesis(
            kind=Kind.RANK_CRASHED,
            rule=RULE,
            summary=f"{pod.name} ended before the others complained: {exit_words(code)}.",
            claims=(
                claim(
                    f"container {container.name} of {pod.name} ended with {exit_words(code)}"
                    f"{claims.when(container.finished_ns)}",
                    pod.origin,
                    claims.MODEST if is_peer else claims.STRONG,
                    at_ns=container.finished_ns,
                ),
            ),
            remedy=Remedy.PROCESS,
            generic=True,
            ranks=ranks if len(ranks) == 1 else (),
            suspects=() if len(ranks) == 1 else ranks,
            nodes=(pod.node,) if pod.node is not None and len(ranks) == 1 else (),
            onset_ns=container.finished_ns,
            degrades=True,
            reason_tag=exit_words(code),
            would_settle=f"the last lines of {pod.name} and the kernel log of its node",
        )


def _has_an_effect(case: Case, pod: PodState) -> bool:
    """Whether the log of a pod says that what ended it happened to a peer."""
    effects = CONSEQUENCES - {Sign.PYTHON_EXCEPTION}
    return any(
        pod.node is not None and s.node == pod.node
        if s.fact.speaker.pod is None
        else s.fact.speaker.pod == pod.name
        for s in case.signs_of(*sorted(effects))
    )


def _first_exits(pods: Sequence[PodState]) -> list[tuple[PodState, ContainerState]]:
    """The rank containers that failed first. Where most of the job's failed in one moment, that is
    its end and tells nobody apart."""
    failed = [
        (pod, container)
        for pod in pods
        for container in pod.containers
        if container.name == pod.rank_container and container.exit_code not in (None, 0, 143, 134)
    ]
    first_ns = min((c.finished_ns for _, c in failed if c.finished_ns is not None), default=None)
    first = [
        (pod, container)
        for pod, container in failed
        if first_ns is None
        or (
            container.finished_ns is not None
            and (container.finished_ns - first_ns) / NS <= SAME_MOMENT_S
        )
    ]
    return first if len(first) == 1 or len(first) * 2 < len(pods) else []
