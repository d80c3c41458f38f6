"""Pods that the API server refused to make: a quota that is used up, a policy, an admission webhook.

A controller tells it in an event on its own object, see `kubernetes_gangs.why_refused`.
"""

from dataclasses import dataclass

from gpufleet_cli.facts import ClusterEvent
from gpufleet_cli.parsers.kubernetes_gangs import why_refused
from gpufleet_cli.reason import Case
from gpufleet_cli.reason.rank_numbering import of_pods, processes


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The newest refusal, and how many pods are lacking where that is known."""

    event: ClusterEvent
    why: str
    lacking: int | None

    @property
    def who(self) -> str:
        """`2 of its pods were refused`."""
        if self.lacking is None:
            return "its pods were refused"
        return f"{self.lacking} of its pods {'was' if self.lacking == 1 else 'were'} refused"


def refusal(case: Case) -> Refusal | None:
    """The refusal that keeps the gang from being whole; None where all its pods are there, whatever was refused
    before."""
    gang = of_pods(case.pods)
    told = [
        (event, why)
        for event in case.events
        if event.warning
        and event.kind.lower() != "pod"
        and (why := why_refused(event.reason, event.message)) is not None
    ]
    lacking = _lacking(case)
    if not told or lacking == 0 or (lacking is None and gang):
        return None
    event, why = max(told, key=lambda one: (one[0].at_ns or 0, one[0].name))
    return Refusal(event=event, why=why, lacking=lacking)


def _lacking(case: Case) -> int | None:
    """How many pods of the gang were never made, by the size of the world and what each pod starts."""
    gang = of_pods(case.pods)
    size, each = case.topology.world_size, processes(gang)
    if size is None or not each:
        return None
    return max(0, size // each - len(gang))
