"""What came of an eviction, as the card that is shown and the error that ends the command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpufleet_cli.attempt_token import token_of
from gpufleet_cli.errors import ExitCode, GpufleetError, Refused, SourceError
from gpufleet_cli.evict_card import EvictCard, Outcome, Step
from gpufleet_cli.operate import tear_down_run
from gpufleet_cli.operate.evict_look import PROGRAM, Order, Seen
from gpufleet_cli.operate.rulings import Ruling
from gpufleet_cli.operate.tear_down_run import Result

Ended = tuple[EvictCard, GpufleetError | None]
"""A card, and the error that the command ends with, None where it was done."""


def no_gang(node: str | None) -> Ended:
    why = f"no gang holds {node}: nothing to tear down"
    return EvictCard(outcome="already", why=why, code=0, node=node, lines=(why,)), None


def already(order: Order, seen: Seen, why: str) -> Ended:
    """What was asked for is so, and that is no failure."""
    card = _card(order, seen, "already", why, code=ExitCode.OK)
    standing = tuple(pod.name for pod in seen.job.pods if pod.is_running)
    return replace(card, standing=standing, lines=(f"{seen.job.shown}: {why}",)), None


def refused(order: Order, seen: Seen, ruling: Ruling) -> Ended:
    """The reason, the price of what was asked, and what serves instead."""
    price = ""
    if ruling.gpu_hours is not None:
        rests = f" (by default: {seen.facts.by_default})" if seen.facts.by_default else ""
        price = f" It would cost {ruling.gpu_hours:,.0f} GPU-h{rests}."
    text = f"{seen.job.shown}: not evicted: {ruling.why}.{price}"
    known: tuple[tuple[Step, str], ...] = (
        ("waits-for-checkpoint", seen.facts.at_boundary),
        ("by-its-own-means", seen.facts.means),
    )
    offers = [(step, run) for step, run in known if run and run in (ruling.instead or "")]
    again: tuple[Step, str] = ("looks-again", f"{PROGRAM} triage {seen.which.words}")
    return _left(order, seen, ruling.why, [*offers, again], hours=ruling.gpu_hours), Refused(
        text, hint=ruling.instead
    )


def no_boundary(order: Order, seen: Seen, why: str, *, is_late: bool, token: str | None) -> Ended:
    """The wait ended without a checkpoint: a fresh look, and the command for the job as it is now."""
    bound = "" if token is None else f" --if-attempt {token}"
    again = f"{PROGRAM} triage {seen.which.words}"
    evict = f"{PROGRAM} evict {seen.which.words}{' --at-checkpoint' if is_late else ''}{bound}"
    steps: list[tuple[Step, str]] = [
        ("looks-again", again),
        ("waits-for-checkpoint" if is_late else "finishes", evict),
    ]
    error = Refused(f"{seen.job.shown}: {why}", hint=f"{again}; {evict}")
    return _left(order, seen, why, steps), error


def by_hand(order: Order, seen: Seen, ruling: Ruling) -> Ended:
    """Requests go through `kubectl proxy`, which is for reads: the command that a person may paste."""
    why = f"{ruling.why}; but nothing is written through kubectl proxy: nothing was changed"
    card = _left(order, seen, why, [("by-its-own-means", seen.facts.means)])
    card = replace(card, outcome="failed", code=int(ExitCode.UNREADABLE))
    return card, SourceError(f"{seen.job.shown}: {why}", hint=f"kubectl can: {seen.facts.means}")


def no_right(order: Order, seen: Seen, error: SourceError) -> Ended:
    card = _left(order, seen, error.message, [])
    return replace(card, outcome="failed", code=int(ExitCode.UNREADABLE)), error


def came(order: Order, seen: Seen, result: Result, left: Sequence[str]) -> Ended:
    """How the deed came out; `left` are pods that still stand though they were told to go."""
    if result.outcome != "done":
        return _broken_off(order, seen, result)
    one_by_one = seen.planned.is_one_by_one
    names = () if order.dry_run else tuple(pod.name for pod in seen.pods)
    undo: list[tuple[Step, str]] = []
    if seen.planned.undo is not None and not order.dry_run:
        undo = [("starts-again", seen.planned.undo)]
    card = replace(
        _card(order, seen, "done", result.why, code=ExitCode.OK),
        evicted=result.gone if one_by_one and not order.dry_run else names,
        standing=tuple(left),
        commands=tuple(undo),
    )
    dry = "dry run: " if order.dry_run else ""
    lines = [f"{dry}{seen.job.shown}: {result.why}"]
    if left:
        more = ", ..." if len(left) > 4 else ""
        lines.append(f"{len(left)} pods still stand, told to go: {', '.join(left[:4])}{more}")
    lines += [f"it starts again with: {run}" for _, run in undo]
    return replace(card, lines=tuple(lines)), None


def _broken_off(order: Order, seen: Seen, result: Result) -> Ended:
    """What stands, and whether the same command finishes it."""
    again = f"{PROGRAM} evict {seen.which.words}"
    finish = f"; again finishes it: {again}" if result.gone else ""
    told = [f"{seen.job.shown}: {result.why}", *tear_down_run.standing_lines(result)]
    text = "; ".join(told) + finish
    is_no = result.outcome in ("refused", "changed")
    code = ExitCode.REFUSED if is_no else ExitCode.UNREADABLE
    outcome: Outcome = "refused" if result.outcome == "changed" else result.outcome
    step: tuple[Step, str] = ("finishes", again)
    if is_no and not result.gone:
        step = ("by-its-own-means", seen.planned.by_hand)
    card = replace(
        _card(order, seen, outcome, result.why, code=code),
        evicted=result.gone,
        standing=result.stand,
        commands=(step,),
    )
    if is_no:
        return card, Refused(text, hint=f"by its own means: {seen.planned.by_hand}")
    return card, SourceError(text)


def _left(
    order: Order,
    seen: Seen,
    why: str,
    commands: Sequence[tuple[Step, str]],
    *,
    hours: float | None = None,
) -> EvictCard:
    """Nothing was touched."""
    card = _card(order, seen, "refused", why, code=ExitCode.REFUSED)
    standing = tuple(pod.name for pod in seen.pods if pod.is_running)
    return replace(card, gpu_hours=hours, standing=standing, commands=tuple(commands))


def _card(order: Order, seen: Seen, outcome: Outcome, why: str, *, code: ExitCode) -> EvictCard:
    is_kept = order.options.keeps and seen.found is not None
    return EvictCard(
        outcome=outcome,
        why=why,
        code=int(code),
        node=seen.which.node,
        kind="pods" if seen.job.kind is None else seen.job.kind.kind,
        name=seen.job.name,
        namespace=seen.job.namespace,
        means=seen.planned.means,
        state=None if seen.found is None else str(seen.facts.state),
        state_why=seen.facts.state_why,
        bundle=str(order.place) if is_kept else None,
        attempt_token=token_of([pod.state for pod in seen.pods]),
        dry_run=order.dry_run,
    )
