"""A straggler: the job moves, but one rank makes everybody slow.

Claims the rank whose own section times stand out in straggler reports, one that stands out in data
wait, or the device that failed when the pace fell. What could look the same: an imbalance
of work, in which each report names another rank (no culprit), a slow link, a network fallback for all.
The iteration time alone cannot tell who is slow, since the others wait inside collectives.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from gpufleet_cli.facts import HostSign, Sign
from gpufleet_cli.reason import Case
from gpufleet_cli.reason.placed import NS, PlacedHost, PlacedSign, PlacedXid
from gpufleet_cli.rules import claims
from gpufleet_cli.rules.claims import about, claim
from gpufleet_cli.verdict import Claim, GpuRef, Hypothesis, JobState, Kind, Remedy

NAME = "slow_rank"
OUTLIER = 1.3
STEADY, STEADY_REPORTS = (
    1.15,
    3,
)  # a smaller excess counts where one report after the other shows it
RECENT, MOST_OF_THEM = 5, 0.8
LEAST_SHARE = 0.03
ONE_REPORT_S, ONE_REPORT_LINES = 0.1, 1
AT_ONCE_S, LEAST_ERRORS = 60.0, 3


def propose(case: Case) -> Iterator[Hypothesis]:
    """The rank that the newest straggler reports agree on, when it stands out."""
    if case.timeouts or case.stop.stopped:
        return
    yield from _waits_for_data(case)
    yield from _failed_at_the_change(case)
    before, after = case.steps.before_s, case.steps.after_s
    slowdown = after / before if before and after else None
    told = [_judged(case, reports) for _section, reports in sorted(_reports(case).items())]
    slow = [outcome for outcome in told if outcome.rank is not None]
    if slow:
        best = max(slow, key=lambda outcome: (outcome.ratio, -(outcome.rank or 0)))
        yield _straggler(case, best, slowdown)
        return
    uneven = [outcome for outcome in told if len(outcome.signs) > 1]
    if uneven:
        yield _uneven(case, max(uneven, key=lambda outcome: outcome.ratio), slowdown)
    elif slowdown is not None and (
        case.stop.state is JobState.RUNNING or case.steps.last_step_ns is None
    ):
        yield _nobody(case, slowdown)


# --- Straggler reports ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """What the last reports of a section say: `rank` is the one they agree on, None where they name
    one after the other (`signs` of more than one report) or nobody. `ratio` is a median."""

    rank: int | None = None
    signs: tuple[PlacedSign, ...] = ()
    ratio: float = 1.0


def _reports(case: Case) -> dict[str, list[list[PlacedSign]]]:
    """The reports of each section, oldest first: rows of one step, or of one place in the log."""
    by_section: dict[str, list[PlacedSign]] = defaultdict(list)
    for sign in case.signs_of(Sign.SLOW_SECTION):
        if sign.fact.named_ranks:
            by_section[sign.fact.detail or ""].append(sign)
    found: dict[str, list[list[PlacedSign]]] = {}
    for section, signs in by_section.items():
        reports: list[list[PlacedSign]] = []
        for sign in signs:
            if reports and _is_same_report(reports[-1], sign):
                reports[-1].append(sign)
            else:
                reports.append([sign])
        found[section] = reports
    return found


def _is_same_report(report: Sequence[PlacedSign], sign: PlacedSign) -> bool:
    last = report[-1]
    if sign.fact.step is not None or last.fact.step is not None:
        return sign.fact.step == last.fact.step
    if any(sign.fact.named_ranks == other.fact.named_ranks for other in report):
        return False
    if sign.at_ns is not None and last.at_ns is not None:
        return abs(sign.at_ns - last.at_ns) <= ONE_REPORT_S * NS
    mine, its = sign.fact.origin, last.fact.origin
    near = abs((mine.line or 0) - (its.line or 0)) <= ONE_REPORT_LINES
    return mine.path == its.path and near


def _judged(case: Case, reports: Sequence[Sequence[PlacedSign]]) -> _Outcome:
    """Who stands out in the last reports that see an outlier at all."""
    outliers = [
        [sign for sign in report if _stands_out(case, sign)] for report in reports[-RECENT:]
    ]
    telling = [report for report in outliers if report]
    if not telling:
        return _Outcome()
    by_rank: dict[int, list[PlacedSign]] = defaultdict(list)
    for report in telling:
        for sign in report:
            by_rank[sign.fact.named_ranks[0]].append(sign)
    least = STEADY if len(telling) >= STEADY_REPORTS else OUTLIER
    agreed = {
        rank: median(map(_ratio, signs))
        for rank, signs in by_rank.items()
        if len(signs) >= MOST_OF_THEM * len(telling) and median(map(_ratio, signs)) >= least
    }
    ranks = case.world or tuple(by_rank)
    if agreed and len(agreed) <= max(1, len(ranks) // 4):
        rank = max(agreed, key=lambda r: (agreed[r], -r))
        return _Outcome(rank=rank, signs=(by_rank[rank][-1],), ratio=agreed[rank])
    if agreed or len(by_rank) < 2 or len(telling) < 2:
        return _Outcome()
    worst = [max(report, key=_ratio) for report in telling]
    if median(map(_ratio, worst)) < OUTLIER or len({s.fact.named_ranks for s in worst}) < 2:
        return _Outcome()
    return _Outcome(signs=tuple(worst), ratio=median(map(_ratio, worst)))


def _stands_out(case: Case, sign: PlacedSign) -> bool:
    """Slower than usual by a part of the section and, where seconds are told, of the step: a tiny
    section that varies slows nobody."""
    excess = (sign.fact.value or 0.0) - (sign.fact.expected_value or 0.0)
    pace = case.steps.step_s
    is_score = "score" in (sign.fact.detail or "")
    if pace is not None and not is_score and excess < LEAST_SHARE * pace:
        return False
    return _ratio(sign) >= STEADY


def _ratio(sign: PlacedSign) -> float:
    value, expected = sign.fact.value, sign.fact.expected_value
    return value / expected if value and expected else 1.0


def _straggler(case: Case, outcome: _Outcome, slowdown: float | None) -> Hypothesis:
    rank, sign = outcome.rank, outcome.signs[-1]
    assert rank is not None
    factor = slowdown or outcome.ratio
    return Hypothesis(
        kind=Kind.STRAGGLER,
        rule=NAME,
        summary=f"Rank {rank} is {outcome.ratio:.1f} times slower than the others;"
        f" a step takes {factor:.1f} times as long.",
        claims=(
            about(
                sign,
                f"rank {rank} needs {sign.fact.value:.3f} s for {sign.fact.detail or 'its section'},"
                f" the others {sign.fact.expected_value or 0:.3f} s",
                claims.DECISIVE,
            ),
            *_pace(case),
        ),
        remedy=Remedy.NODE,
        ranks=(rank,),
        onset_ns=case.steps.changed_ns,
        degrades=True,
        degrades_why=f"steps take {factor:.2f} times as long",
        slowdown=factor,
        reason_tag="straggler",
        would_settle="clocks, power and throttle reasons of that GPU against its peers",
    )


def _uneven(case: Case, outcome: _Outcome, slowdown: float | None) -> Hypothesis:
    """One report after the other names another rank: the work differs, and not the machines."""
    named = list(dict.fromkeys(sign.fact.named_ranks[0] for sign in outcome.signs))
    first, last = outcome.signs[0], outcome.signs[-1]
    return Hypothesis(
        kind=Kind.STRAGGLER,
        rule=NAME,
        summary=f"The slowest rank changes from report to report ({', '.join(map(str, named))}):"
        " the work is dealt unevenly; no rank and no node is to blame.",
        claims=(
            about(last, f"rank {named[-1]} was the slowest in this report", claims.FAIR),
            about(
                first,
                f"and rank {named[0]} in this: {len(named)} ranks in {len(outcome.signs)} reports",
                claims.OUTLIER,
            ),
        ),
        remedy=Remedy.NOTHING,
        degrades=True,
        degrades_why="each step waits for its slowest rank",
        slowdown=slowdown,
        reason_tag="uneven work",
        would_settle="the lengths of the samples that each rank gets",
    )


# --- Other signs ----------------------------------------------------------------------------------


def _failed_at_the_change(case: Case) -> Iterator[Hypothesis]:
    """The one device with an error that slows, in the minute in which the pace of the job fell: a GPU
    with a code that slows, or a PCIe link that corrects errors all the time. More than one: nobody."""
    changed, before, after = case.steps.changed_ns, case.steps.before_s, case.steps.after_s
    if changed is None or not before or not after or case.stop.state is not JobState.RUNNING:
        return
    within = max(AT_ONCE_S, 3 * after) * NS
    codes = [
        xid
        for xid in case.xids
        if xid.at_ns is not None
        and abs(xid.at_ns - changed) <= within
        and xid.reading.entry.degrades == "yes"
    ]
    if len({(xid.node, xid.event.pci_bus_id) for xid in codes}) == 1:
        yield _failed(case, codes[0], after / before)
    links = [
        host
        for host in case.hosts
        if host.event.sign in (HostSign.PCIE_ERROR, HostSign.PCIE_DEGRADED)
        and host.at_ns is not None
        and abs(host.at_ns - changed) <= within
    ]
    errors = sum(1 + host.event.repeats for host in links)
    narrow = [host for host in links if host.event.sign is HostSign.PCIE_DEGRADED]
    if codes or len({host.node for host in links}) != 1:
        return
    if narrow or errors >= LEAST_ERRORS:
        yield _link(case, (narrow or links)[0], errors, after / before)


def _failed(case: Case, xid: PlacedXid, factor: float) -> Hypothesis:
    code, what = xid.event.xid, xid.reading.entry.meaning
    who = f"Rank {xid.rank}" if xid.rank is not None else str(xid.node)
    made = _device(case, f"{who}: {what} (XID {code})", factor)
    found = claim(
        f"XID {code} on {xid.node} GPU {xid.event.pci_bus_id}{claims.when(xid.at_ns)}: {what}",
        xid.event.origin,
        claims.GOOD,
        rank=xid.rank,
        at_ns=xid.at_ns,
    )
    return replace(
        made,
        claims=(found, *made.claims),
        ranks=() if xid.rank is None else (xid.rank,),
        nodes=() if xid.node is None else (xid.node,),
        gpu=GpuRef(pci_bus_id=xid.event.pci_bus_id),
        xid=code,
        reason_tag=f"XID {code}",
    )


def _link(case: Case, host: PlacedHost, errors: int, factor: float) -> Hypothesis:
    is_narrow = host.event.sign is HostSign.PCIE_DEGRADED
    what = "a PCIe link runs below its width or speed" if is_narrow else "a PCIe link has errors"
    made = _device(case, f"{host.node}: {what}", factor)
    found = claim(
        f"{errors} kernel lines about PCIe on {host.node}{claims.when(host.at_ns)}, none on other"
        f" nodes: {host.event.text[:120]}",
        host.event.origin,
        claims.OUTLIER,
        at_ns=host.at_ns,
    )
    return replace(
        made,
        claims=(found, *made.claims),
        nodes=() if host.node is None else (host.node,),
        reason_tag="PCIe link",
    )


def _device(case: Case, what: str, factor: float) -> Hypothesis:
    return Hypothesis(
        kind=Kind.HARDWARE,
        rule=NAME,
        summary=f"{what}; a step takes {factor:.1f} times as long since.",
        claims=tuple(_pace(case)),
        remedy=Remedy.NODE,
        onset_ns=case.steps.changed_ns,
        degrades=True,
        degrades_why=f"steps take {factor:.2f} times as long",
        slowdown=factor,
        would_settle="clocks, power and link width of that node's GPUs and adapters",
    )


def _waits_for_data(case: Case) -> Iterator[Hypothesis]:
    """One rank spends its steps waiting for data where the others do not."""
    waits = case.steps.data_by_rank
    if len(waits) < 3:
        return
    usual = median(wait for wait, _origin in waits.values())
    pace = case.steps.step_s or 0.0
    late = {r: w for r, w in waits.items() if w[0] > max(OUTLIER * usual, usual + 0.1 * pace)}
    if not late or len(late) > max(1, len(waits) // 4):
        return
    rank = max(late, key=lambda r: (late[r][0], -r))
    wait, origin = late[rank]
    before, after = case.steps.before_s, case.steps.after_s
    factor = after / before if before and after else None
    yield Hypothesis(
        kind=Kind.STRAGGLER,
        rule=NAME,
        summary=f"Rank {rank} waits {wait:.2f} s a step for data, the others {usual:.2f} s.",
        claims=(
            claim(
                f"rank {rank} waits {wait:.2f} s for data in each step, the others {usual:.2f} s",
                origin,
                claims.DECISIVE,
                rank=rank,
            ),
            *_pace(case),
        ),
        remedy=Remedy.CODE,
        ranks=(rank,),
        onset_ns=case.steps.changed_ns,
        degrades=True,
        degrades_why=f"steps take {factor:.2f} times as long" if factor else "steps wait for data",
        slowdown=factor or 1.0,
        reason_tag="data wait",
        would_settle="the data source and loader of that rank",
    )


def _pace(case: Case) -> list[Claim]:
    steps = case.steps
    if steps.before_s is None or steps.after_s is None:
        return []
    return [
        claim(
            f"a step took {steps.before_s:.2f} s before and {steps.after_s:.2f} s since"
            f"{claims.when(steps.changed_ns)}",
            steps.change_origin,
            claims.FAIR,
            at_ns=steps.changed_ns,
        )
    ]


def _nobody(case: Case, slowdown: float) -> Hypothesis:
    """Anybody of the job, where its size is known."""
    suspects = case.world if (case.topology.world_size or 0) > 1 else ()
    return Hypothesis(
        kind=Kind.STRAGGLER,
        rule=NAME,
        summary=f"The job runs, but a step takes {slowdown:.1f} times as long; who is slow is not told.",
        claims=(
            *_pace(case),
            *(
                [claim("the pace changed and stayed", case.steps.change_origin, 1.0)]
                if suspects
                else []
            ),
        ),
        remedy=Remedy.NOTHING,
        suspects=suspects,
        onset_ns=case.steps.changed_ns,
        degrades=True,
        degrades_why=f"steps take {slowdown:.2f} times as long",
        slowdown=slowdown,
        reason_tag="slow steps",
        would_settle="per-rank section times, GPU clocks and network transport of every rank",
    )
