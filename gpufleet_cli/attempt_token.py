"""A short word for "these pods, as they run now", so that a pasted command cannot hit another run.

It is computed from the pods in the evidence alone: the newest of them by uid, and how often their
containers were restarted in place. A job made again, a restarted gang, a pod that took another's
place and a container that runs anew all give another word; pods that went away without a successor
give the same one, unless they were the newest.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from gpufleet_cli.facts import PodState

CHARS = 10


def token_of(pods: Sequence[PodState]) -> str | None:
    """The token; None where no pod is known by its uid, or they are of several namespaces.

    >>> token_of([]) is None
    True
    """
    known = {pod.uid: pod for pod in pods if pod.uid is not None}
    spaces = {pod.namespace for pod in known.values()}
    if len(spaces) != 1:
        return None
    restarts = sum(one.restarts for pod in known.values() for one in pod.containers)
    newest = sorted(str(pod.uid) for pod in newest_of(list(known.values())))
    told = "\n".join([*map(str, spaces), str(restarts), *newest])
    return sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:CHARS]


def newest_of(pods: Sequence[PodState]) -> list[PodState]:
    """Those that were created last; several within the second that the API server counts in."""
    last = max((pod.created_ns or 0 for pod in pods), default=0)
    return [pod for pod in pods if (pod.created_ns or 0) == last]
