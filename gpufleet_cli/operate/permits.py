"""Asked before anything is changed: do we have the rights that the action takes?

A firm no ends the command with one line, before a write. What could not be asked is tried: the server's own
answer then tells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpufleet_cli.errors import SourceError
from gpufleet_cli.live import rights
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.rights import Reviewed, Right


def require(
    api: Api,
    needed: Sequence[Right],
    say: Callable[[str], None],
    *,
    useful: Sequence[Right] = (),
    by_hand: str | None = None,
) -> None:
    """SourceError (exit 4) where one of `needed` is missing for sure; of `useful` ones a line says so. `by_hand` is
    kubectl's command for the same."""
    require_own_way(api, by_hand)
    found = {one.right: one for one in rights.review(api, (*needed, *useful))}
    lacked = missing(list(found.values()), needed)
    if lacked:
        raise refusal(lacked)
    for right in useful:
        if found[right].allowed is False:
            say(f"not allowed: {right.shown}: without it no {right.loses.removeprefix('an ')}")


def require_own_way(api: Api, by_hand: str | None = None) -> None:
    """SourceError where requests go through a `kubectl proxy`, which is for reads."""
    if api.access.through_kubectl:
        raise SourceError(
            "nothing is written through kubectl proxy: nothing was changed",
            hint="our own way in failed for the reason above; kubectl itself can do it"
            + (f": {by_hand}" if by_hand else ""),
        )


def missing(reviews: Sequence[Reviewed], needed: Sequence[Right]) -> list[Right]:
    """Those of the needed ones that the server firmly says no to."""
    return [one.right for one in reviews if one.right in needed and one.allowed is False]


def refusal(lacked: Sequence[Right]) -> SourceError:
    """One line: which rights, and who grants them."""
    shown = ", ".join(dict.fromkeys(right.shown for right in lacked))
    roles = " and ".join(sorted({right.role for right in lacked}))
    return SourceError(
        f"not allowed: {shown}: nothing was changed",
        hint=f"whoever administers the cluster binds {roles} (deploy/rbac)",
    )
