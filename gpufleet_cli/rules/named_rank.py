"""A rank that others, or its own process, name as the one that is behind.

Claims the ranks of NCCL_DESYNC_DEBUG reports, monitored barriers, NCCL RAS, in-process restart aborts,
error propagation, and group rank 0 when its peers wait for its ncclUniqueId; and the rank whose watchdog
got stuck, or that held the GIL, before anybody timed out. What could look the same: a barrier that
accuses in a circle, a single RAS snapshot of a running job, a watchdog stuck after the end. Ranks
in such lines are inside their group, so they count only where the group's members are known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from gpufleet_cli.facts import LogSign, Sign
from gpufleet_cli.reason import Case
from gpufleet_cli.reason.placed import PlacedSign
from gpufleet_cli.rules import claims
from gpufleet_cli.rules.claims import about, collective_text, ranks_text, waited_in
from gpufleet_cli.verdict import Claim, Hypothesis, Kind, Remedy

NAME = "named_rank"
WEIGHTS = {
    Sign.DESYNC_REPORT: claims.DECISIVE,
    Sign.RAS_MISSING: claims.GOOD,
    Sign.BARRIER_MISSING: claims.GOOD,
    Sign.NVRX_ABORT: claims.OUTLIER,
    Sign.REMOTE_ERROR: claims.FAIR,
    Sign.STORE_WAIT: claims.GOOD,
}
DEFAULT_GROUP = ("default_pg", "0")


def propose(case: Case) -> Iterator[Hypothesis]:
    """One hypothesis a set of ranks that the same kind of line names, and one for stuck watchdogs."""
    named: dict[tuple[int, ...], list[Claim]] = defaultdict(list)
    accusers = {rank for s in case.signs_of(*WEIGHTS) for rank in (s.rank,) if rank is not None}
    members = _reported(case)
    ended = claims.ended_by_agent(case)
    for sign in case.signs_of(*WEIGHTS):
        if sign.fact.sign is Sign.DESYNC_REPORT and not _accuses(sign, members, len(case.world)):
            continue
        ranks = _global_ranks(case, sign.fact)
        if sign.fact.sign is Sign.DESYNC_REPORT:
            ranks = tuple(rank for rank in ranks if rank not in ended) or ranks
            if _wait_elsewhere(case, ranks):
                continue
        if not ranks or _is_circular(sign, ranks, accusers) or len(named[ranks]) >= 3:
            continue
        weight = WEIGHTS[sign.fact.sign] if not named[ranks] else claims.WEAK
        named[ranks].append(about(sign, f"{sign.fact.text[:140]}", weight))
    for ranks, found in sorted(named.items()):
        if found:
            yield _hypothesis(case, ranks, found, "is named by its peers")
    yield from _stuck(case)


def _hypothesis(case: Case, ranks: tuple[int, ...], found: list[Claim], how: str) -> Hypothesis:
    where = waited_in(case)
    return Hypothesis(
        kind=Kind.RANK_MISSING,
        rule=NAME,
        summary=f"{claims.sentence(ranks_text(ranks))} {how} as the one that did not reach"
        f" {collective_text(where)}.",
        claims=tuple(found),
        remedy=Remedy.PROCESS,
        generic=True,
        ranks=ranks,
        collective=where,
        onset_ns=case.onset_ns,
        would_settle=f"stacks or logs of {ranks_text(ranks)}",
    )


def _global_ranks(case: Case, sign: LogSign) -> tuple[int, ...]:
    """The ranks a line names as global ranks, empty where that cannot be told."""
    ranks = sign.named_ranks
    if sign.sign is Sign.STORE_WAIT and not ranks:
        ranks = (0,)
    if not sign.ranks_are_group_local and sign.sign is not Sign.STORE_WAIT:
        return ranks
    group = sign.group
    if group is None or group.desc in DEFAULT_GROUP or group.name in DEFAULT_GROUP:
        return ranks
    if case.graph is not None and case.graph.report is not None:
        for report in case.graph.report.groups:
            if report.name == group.name and (group.desc is None or report.desc == group.desc):
                members = report.members
                if all(rank < len(members) for rank in ranks):
                    return tuple(members[rank] for rank in ranks)
    return ()


def _reported(case: Case) -> dict[tuple[int | None, str], set[int]]:
    """By the rank that printed it and the collective, all ranks in a desync report."""
    found: dict[tuple[int | None, str], set[int]] = defaultdict(set)
    for sign in case.signs_of(Sign.DESYNC_REPORT):
        found[sign.rank, _collective(sign)].update(sign.fact.named_ranks)
    return found


def _collective(sign: PlacedSign) -> str:
    """The number that a row says was not joined, or not finished."""
    return (sign.fact.detail or "").rpartition("#")[2]


def _accuses(sign: PlacedSign, members: dict[tuple[int | None, str], set[int]], world: int) -> bool:
    """Whether a row of a desync report names who is missing, in numbers that are global.

    Who joined waits. A report that names no group speaks in the numbers of the printer's own group:
    they are global only where it accounts for all ranks, or where nothing else can be meant.
    """
    if (sign.fact.detail or "").startswith("waiting"):
        return False
    listed = members[sign.rank, _collective(sign)]
    return sign.fact.group is not None or len(listed) == world or len(members) == 1


def _wait_elsewhere(case: Case, ranks: tuple[int, ...]) -> bool:
    """Whether the dumps of all these ranks show them waiting for somebody else: they are late, not first."""
    if case.graph is None or not ranks:
        return False
    blamed = {rank for root in case.graph.roots for rank in root.ranks}
    return set(ranks) <= case.graph.waiting - blamed


def _is_circular(sign: PlacedSign, ranks: tuple[int, ...], accusers: set[int]) -> bool:
    """A monitored barrier in which the accused accuses back tells nothing (pytorch#83289)."""
    if sign.fact.sign is not Sign.BARRIER_MISSING:
        return False
    return sign.rank in ranks or set(ranks) <= accusers


def _stuck(case: Case) -> Iterator[Hypothesis]:
    """A watchdog that got stuck, or a GIL that was held, before anybody's timeout."""
    witnesses = case.witnesses
    found: dict[int, PlacedSign] = {}
    for sign in case.signs_of(Sign.WATCHDOG_STUCK, Sign.GIL_HELD):
        if sign.rank is None or sign.rank in witnesses:
            continue
        ahead = claims.before_others_s(case, sign.at_ns)
        if case.timeouts and (ahead is None or ahead < 0):
            continue
        found.setdefault(sign.rank, sign)
    if not found or len(found) > max(1, len(case.world) // 2) or case.signs_of(Sign.FINISHED):
        return
    ranks = tuple(sorted(found))
    yield _hypothesis(
        case,
        ranks,
        [about(found[ranks[0]], found[ranks[0]].fact.text[:140], claims.GOOD)],
        "got stuck inside its own process",
    )
