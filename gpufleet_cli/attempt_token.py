"""A short word for "these pods, as they run now", so that a pasted command cannot hit another run.

It is computed from the pods in the evidence alone: where they are, when the newest of them was made,
and when a container last began anew in its place. A job made again, a restarted gang, a pod that took
another's place and a container that was restarted all give another word. Pods that went away without a
successor give the same one while one of the newest is left, so that a tear-down that broke off can be
gone on with by the same command.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from gpufleet_cli.facts import PodState

CHARS = 10


def token_of(pods: Sequence[PodState]) -> str | None:
    """The token; None where no pod's creation is known, or they are of several namespaces.

    >>> token_of([]) is None
    True
    """
    spaces = {pod.namespace for pod in pods}
    made = [pod.created_ns for pod in pods if pod.created_ns is not None]
    if len(spaces) != 1 or not made:
        return None
    told = f"{spaces.pop()}\n{max(made)}\n{max(map(began_anew_ns, pods))}"
    return sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:CHARS]


def began_anew_ns(pod: PodState) -> int:
    """When the last life of a container in this pod ended that another one followed; 0 for none."""
    return max((one.last_finished_ns or 0 for one in pod.containers), default=0)
