"""What stood in the way of a look, a line each for the person who waits: what is missing, why, what to do.

The bundle's manifest names every gap; here gaps of one cause are one line, gravest first. Gaps that no
trouble of the way made (a container without `cat`, a pod that is gone) are left to the manifest.

>>> gaps = [Gap(what=f"log of w-{n}/t", why=answers.NO_LOGIN) for n in range(5)]
>>> next(lines(gaps))
'missing: log of w-0/t, log of w-1/t and 3 more: the credentials are not accepted (any more); log in again (does kubectl get nodes work?), then run the same command again'
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from gpufleet_cli.facts import Gap
from gpufleet_cli.live import answers

SHOWN = 2
AGAIN = "run the same command again"
NO_KUBELET = "no node answers: tunnel or firewall, not the nodes"
SILENT_KUBELET = "the kubelet of its node does not answer"


class Trouble(NamedTuple):
    """One cause. `why` finds it in a gap, `told` is what is said of it (the gap's own words where empty)."""

    why: re.Pattern[str]
    told: str
    then: str
    is_mended_by_again: bool = False


def _trouble(why: str, told: str, then: str, *, again: bool = False) -> Trouble:
    return Trouble(re.compile(why), told, then, again)


TROUBLES = (
    _trouble(re.escape(answers.LOST) + "|exec did not connect", "the API server stopped answering", "when it is back", again=True),
    _trouble(re.escape(answers.NO_LOGIN), answers.NO_LOGIN, "log in again (does kubectl get nodes work?), then", again=True),
    _trouble(re.escape(answers.THROTTLED), answers.THROTTLED, "later", again=True),
    _trouble(re.escape(NO_KUBELET), f"no kubelet answers the API server: {NO_KUBELET.partition(': ')[2]}",
             "no node is to blame; ask who runs the control plane, or give --log-store"),
    _trouble(re.escape(SILENT_KUBELET), "", "look at it: gpufleet node NODE"),
    _trouble(r"needs .{1,40} on pods/exec", "", "ask for that role, or give --dumps"),
    _trouble(r"^not allowed", "", "ask for the ClusterRole gpufleet-reader"),
    _trouble(r"^interrupted", "interrupted", "to go on,", again=True),
    _trouble(re.escape(answers.LATE) + "|^--deadline of|^the deadline came", "the deadline came first", "give --deadline more, or", again=True),
)  # fmt: skip
_NODE = re.compile(r"\(node ([^\s:()]{1,253}): evidence about the node\)")


def lines(gaps: Iterable[Gap], *, resumes: str = "") -> Iterator[str]:
    """A line a trouble. `resumes` is said of a second run of the same command, where it goes on."""
    found: dict[Trouble, list[Gap]] = {}
    for gap in sorted(set(gaps), key=lambda gap: (not gap.what.startswith("log"), gap.what)):
        trouble = next((one for one in TROUBLES if one.why.search(gap.why)), None)
        if trouble is not None:
            found.setdefault(trouble, []).append(gap)
    for trouble in TROUBLES:
        if trouble in found:
            yield _line(trouble, found[trouble], resumes)


def _line(trouble: Trouble, gaps: Sequence[Gap], resumes: str) -> str:
    named = ", ".join(gap.what for gap in gaps[:SHOWN])
    more = f" and {len(gaps) - SHOWN} more" if len(gaps) > SHOWN else ""
    then = trouble.then
    if trouble.is_mended_by_again:
        then = f"{then} {AGAIN}{resumes}"
    nodes = sorted({found[1] for gap in gaps if (found := _NODE.search(gap.why))})
    then = then.replace("NODE", nodes[0] if nodes else "NODE")
    return f"missing: {named}{more}: {trouble.told or _NODE.sub('', gaps[0].why).strip()}; {then}"


def hint_of(why: str) -> str | None:
    """What to do where nothing at all was had for this reason."""
    found = next((one for one in TROUBLES if one.why.search(why)), None)
    if found is None:
        return None
    return f"{found.then} {AGAIN}" if found.is_mended_by_again else found.then
