"""A straggler: the job moves, but one rank makes everybody slow.

Claims the rank whose own section times stand out in a straggler report, or whose data wait does.
What could look the same: an imbalance of work (no culprit), a slow link, a network fallback for all.
The iteration time alone cannot tell who is slow, since the others wait inside collectives.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from statistics import median

from gpufleet_cli.facts import Sign
from gpufleet_cli.reason import Case
from gpufleet_cli.reason.placed import PlacedSign
from gpufleet_cli.rules import claims
from gpufleet_cli.rules.claims import about, claim
from gpufleet_cli.verdict import Claim, Hypothesis, JobState, Kind, Remedy

NAME = "slow_rank"
OUTLIER = 1.3
LEAST_SHARE = 0.03


def propose(case: Case) -> Iterator[Hypothesis]:
    """The rank that the newest straggler reports name, when it stands out."""
    if case.timeouts or case.stop.stopped:
        return
    yield from _waits_for_data(case)
    slow = _slow_ranks(case)
    before, after = case.steps.before_s, case.steps.after_s
    slowdown = after / before if before and after else None
    if not slow:
        if slowdown is not None and slowdown >= OUTLIER and case.stop.state is JobState.RUNNING:
            yield _nobody(case, slowdown)
        return
    rank, sign = max(slow.items(), key=lambda item: (_ratio(item[1]), -item[0]))
    reported = {r for s in case.signs_of(Sign.SLOW_SECTION) for r in s.fact.named_ranks}
    if len(slow) > max(1, (len(case.world) or len(reported)) // 4):
        return
    factor = slowdown or _ratio(sign)
    found = [
        about(
            sign,
            f"rank {rank} needs {sign.fact.value:.3f} s for {sign.fact.detail or 'its section'},"
            f" the others {sign.fact.expected_value or 0:.3f} s",
            claims.DECISIVE,
        )
    ]
    found.extend(_pace(case))
    yield Hypothesis(
        kind=Kind.STRAGGLER,
        rule=NAME,
        summary=f"Rank {rank} is {_ratio(sign):.1f} times slower than the others;"
        f" a step takes {factor:.1f} times as long.",
        claims=tuple(found),
        remedy=Remedy.NODE,
        ranks=(rank,),
        onset_ns=case.steps.changed_ns,
        degrades=True,
        degrades_why=f"steps take {factor:.2f} times as long",
        slowdown=factor,
        reason_tag="straggler",
        would_settle="clocks, power and throttle reasons of that GPU against its peers",
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


def _ratio(sign: PlacedSign) -> float:
    value, expected = sign.fact.value, sign.fact.expected_value
    return value / expected if value and expected else 1.0


def _slow_ranks(case: Case) -> dict[int, PlacedSign]:
    """Ranks that the newest report of each section sees as outliers."""
    newest: dict[tuple[str, int], PlacedSign] = {}
    for sign in case.signs_of(Sign.SLOW_SECTION):
        for rank in sign.fact.named_ranks:
            newest[sign.fact.detail or "", rank] = sign
    by_rank: dict[int, PlacedSign] = {}
    sections: dict[str, int] = defaultdict(int)
    for (section, rank), sign in sorted(newest.items()):
        excess = (sign.fact.value or 0.0) - (sign.fact.expected_value or 0.0)
        if case.steps.step_s is not None and excess < LEAST_SHARE * case.steps.step_s:
            continue  # a tiny section that varies slows nobody
        if _ratio(sign) >= OUTLIER:
            sections[section] += 1
            if rank not in by_rank or _ratio(sign) > _ratio(by_rank[rank]):
                by_rank[rank] = sign
    return by_rank


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
    return Hypothesis(
        kind=Kind.STRAGGLER,
        rule=NAME,
        summary=f"The job runs, but a step takes {slowdown:.1f} times as long; who is slow is not told.",
        claims=(
            *_pace(case),
            claim("the pace changed and stayed", case.steps.change_origin, 1.0),
        ),
        remedy=Remedy.NOTHING,
        onset_ns=case.steps.changed_ns,
        degrades=True,
        degrades_why=f"steps take {slowdown:.2f} times as long",
        slowdown=slowdown,
        reason_tag="slow steps",
        would_settle="per-rank section times, GPU clocks and network transport of every rank",
    )
