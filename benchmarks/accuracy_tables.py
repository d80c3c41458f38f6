"""From judged worlds to figures, and from figures to tables: on the terminal, as JSON, as a page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpufleet_cli.operate.simulate import scoring
from gpufleet_cli.operate.simulate.judge import Judged
from gpufleet_cli.operate.simulate.story import HEALTHY

if TYPE_CHECKING:
    from accuracy import Outcome

OVERALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """So many of so many."""

    count: int
    total: int

    @property
    def rate(self) -> float | None:
        return self.count / self.total if self.total else None

    def __str__(self) -> str:
        """`61/67 91% [82-96]`, the last its Wilson interval at 95 %."""
        if self.rate is None:
            return "-"
        low, high = scoring.wilson(self.count, self.total)
        return f"{self.count}/{self.total} {self.rate:.0%} [{low * 100:.0f}-{high * 100:.0f}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One class, or all. Rates of `exact` are of the worlds whose files single out the truth."""

    name: str
    worlds: int
    broken: int
    right: Share
    exact: Share
    exact_by_lost: Mapping[float, Share]
    lost_per_tenth: float | None
    sets: Share
    guesses: Share
    set_size: float | None
    abstained: Share
    abstained_where_told: Share
    node_right: Share
    innocents: Share
    software_called_hardware: Share
    hardware_called_software: Share
    healthy_wrong: Share
    brier: float | None
    confidence: float | None
    regret_gpu_hours: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """All that is shown."""

    command: str
    lost: tuple[float, ...]
    classes: tuple[Summary, ...]
    overall: Summary
    ece: float | None
    ece_named: float | None
    reliability: tuple[scoring.Bin, ...]
    reliability_named: tuple[scoring.Bin, ...]
    rules: Mapping[str, tuple[Share, Share]]


def results(outcomes: Sequence[Outcome], *, lost: Sequence[float], command: str) -> Results:
    """The figures: classes worst first."""
    by_class: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_class.setdefault(str(outcome.plan.cls), []).append(outcome)
    columns = tuple(dict.fromkeys(lost))
    classes = [summary(name, group, columns) for name, group in by_class.items()]
    classes.sort(key=lambda s: (s.right.rate or 0.0, -(s.regret_gpu_hours or 0.0), s.name))
    judged = [o.judged for o in outcomes if o.judged is not None]
    claims, named = claims_of(judged), claims_of(j for j in judged if not j.abstained)
    return Results(
        command=command,
        lost=columns,
        classes=tuple(classes),
        overall=summary(OVERALL, outcomes, columns),
        ece=scoring.ece(claims),
        ece_named=scoring.ece(named),
        reliability=scoring.reliability(claims),
        reliability_named=scoring.reliability(named),
        rules=rules(outcomes),
    )


def claims_of(judged: Iterable[Judged]) -> list[scoring.Claimed]:
    """What each answer believed of itself, and whether it held; answers that claim nothing left out."""
    return [(j.confidence, j.held) for j in judged if j.held is not None]


def summary(name: str, outcomes: Sequence[Outcome], lost: Sequence[float]) -> Summary:
    known = [(o, o.judged) for o in outcomes if o.judged is not None]
    judged = [j for _o, j in known]
    told = [(o, j) for o, j in known if o.decided]
    open_ones = [j for o, j in known if not o.decided]
    slope = scoring.slope((o.plan.lost, float(j.exact)) for o, j in told)
    claims = claims_of(judged)
    healthy = [j for o, j in known if o.plan.cls in HEALTHY]
    return Summary(
        name=name,
        worlds=len(outcomes),
        broken=len(outcomes) - len(known),
        right=share(judged, lambda j: j.right),
        exact=share([j for _o, j in told], lambda j: j.exact),
        exact_by_lost={
            column: share([j for o, j in told if o.plan.lost == column], lambda j: j.exact)
            for column in lost
        },
        lost_per_tenth=None if slope is None else -0.1 * slope + 0.0,  # no minus zero
        sets=share(open_ones, lambda j: j.set_right),
        guesses=share([j for j in open_ones if not j.abstained], lambda j: j.exact),
        set_size=scoring.mean(float(j.set_size) for j in judged if j.set_size),
        abstained=share(judged, lambda j: j.abstained),
        abstained_where_told=share([j for _o, j in told], lambda j: j.abstained and not j.exact),
        node_right=share([j for j in judged if j.node_right is not None], lambda j: j.node_right),
        innocents=share([j for j in judged if j.acts], lambda j: j.acted_on_innocents),
        software_called_hardware=share(judged, lambda j: j.software_called_hardware),
        hardware_called_software=share(judged, lambda j: j.hardware_called_software),
        healthy_wrong=share(healthy, lambda j: j.healthy_wrong),
        brier=scoring.brier(claims),
        confidence=scoring.mean(belief for belief, _held in claims),
        regret_gpu_hours=scoring.mean(j.regret_gpu_hours for j in judged),
    )


def share(judged: Sequence[Judged], is_so: Callable[[Judged], bool | None]) -> Share:
    return Share(count=sum(bool(is_so(j)) for j in judged), total=len(judged))


def rules(outcomes: Sequence[Outcome]) -> dict[str, tuple[Share, Share]]:
    """Each rule, ours last: right of the worlds with somebody to blame, and of those without.

    Only worlds whose files single out the truth. A short rule is right when it names one guilty rank;
    ours has to name all of them, and the kind.
    """
    told = [o for o in outcomes if o.judged is not None and o.decided and o.rules]
    found: dict[str, tuple[Share, Share]] = {}

    def add(name: str, is_right: Callable[[Outcome], bool]) -> None:
        halves = [[o for o in told if o.guilty is guilty] for guilty in (True, False)]
        first, second = (Share(count=sum(map(is_right, h)), total=len(h)) for h in halves)
        found[name] = (first, second)

    for name in dict.fromkeys(name for o in told for name in o.rules):
        add(name, lambda o, name=name: o.rules.get(name, False))  # type: ignore[misc]
    if told:
        add("gpufleet", lambda o: o.judged is not None and o.judged.exact)
    return found


# --- Tables --------------------------------------------------------------------------------------

Table = list[list[str]]  # the first row is the header


def percent(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value * 100:.{digits}f}"


def number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def named_table(found: Results) -> Table:
    """Who was named."""
    head = ["class", "worlds", "right", "told", *(f"lost {share:.0%}" for share in found.lost)]
    head += ["-pp per 10% lost", "abstained though told", "open: right set"]
    head += ["open: guesses that hit", "set size", "node right"]
    rows = [head]
    for s in (*found.classes, found.overall):
        name = s.name if not s.broken else f"{s.name} ({s.broken} broken)"
        row = [name, str(s.worlds), str(s.right), str(s.exact.total)]
        row += [str(s.exact_by_lost[column]) for column in found.lost]
        row += [percent(s.lost_per_tenth), _count(s.abstained_where_told)]
        row += [str(s.sets), _count(s.guesses)]
        rows.append([*row, number(s.set_size, 1), str(s.node_right)])
    return rows


def harm_table(found: Results) -> Table:
    """What the answers did to whom, what they believed of themselves, what they cost."""
    rows = [
        [
            "class",
            "innocents of evict, cordon",
            "software called hardware",
            "hardware called software",
            "healthy called ill or unsure",
            "abstained",
            "Brier",
            "confidence",
            "regret GPU-h",
        ]
    ]
    rows += [
        [
            s.name,
            str(s.innocents),
            _count(s.software_called_hardware),
            _count(s.hardware_called_software),
            _count(s.healthy_wrong),
            _count(s.abstained),
            number(s.brier, 3),
            number(s.confidence),
            number(s.regret_gpu_hours),
        ]
        for s in (*found.classes, found.overall)
    ]
    return rows


def _count(found: Share) -> str:
    return f"{found.count}/{found.total}" if found.total else "-"


def calibration_table(bins: Sequence[scoring.Bin]) -> Table:
    """Belief against what came true."""
    rows = [["confidence", "answers", "mean confidence", "came true"]]
    for found in bins:
        came_true = Share(count=found.right, total=found.count)
        label = f"{found.low:.1f}-{found.high:.1f}"
        rows.append([label, str(found.count), number(found.mean_confidence, 3), str(came_true)])
    return rows


def rules_table(found: Results) -> Table:
    rows = [["rule", "somebody is to blame: names", "nobody is: names nobody"]]
    rows += [
        [name, str(guilty), str(blameless)] for name, (guilty, blameless) in found.rules.items()
    ]
    return rows


def overall_lines(found: Results) -> list[str]:
    s = found.overall
    return [
        f"right, of all worlds: {s.right}",
        f"exactly right, of those whose files single out the truth: {s.exact}",
        f"right set, of those whose files do not: {s.sets}",
        f"an innocent in an eviction or a cordon: {s.innocents}",
        f"healthy worlds called anything else: {s.healthy_wrong}",
        f"software called hardware {s.software_called_hardware}; the reverse {s.hardware_called_software}",
        f"expected calibration error, ten bins: {percent(found.ece)} % over all that claim something,"
        f" {percent(found.ece_named)} % over verdicts; Brier {number(s.brier, 3)}",
        f"regret: {number(s.regret_gpu_hours)} GPU-hours an incident",
    ]


def as_text(table: Table) -> str:
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    lines = ("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in table)
    return "\n".join(line.rstrip() for line in lines)


def as_markdown(table: Table) -> str:
    head, *rows = ["| " + " | ".join(row) + " |" for row in table]
    return "\n".join([head, "|" + "---|" * len(table[0]), *rows])


def text(found: Results) -> str:
    """Everything, for a terminal."""
    parts = [
        as_text(named_table(found)),
        as_text(harm_table(found)),
        "\n".join(overall_lines(found)),
        "All that claim something\n" + as_text(calibration_table(found.reliability)),
        "Verdicts\n" + as_text(calibration_table(found.reliability_named)),
    ]
    if found.rules:
        parts.append(as_text(rules_table(found)))
    return "\n\n".join(parts)


def document(found: Results, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Everything, for a program."""
    return {
        "command": found.command,
        "overall": plain(found.overall),
        "expected_calibration_error": found.ece,
        "expected_calibration_error_of_verdicts": found.ece_named,
        "classes": {s.name: plain(s) for s in found.classes},
        "reliability": [asdict(b) for b in found.reliability],
        "reliability_of_verdicts": [asdict(b) for b in found.reliability_named],
        "rules": {name: [asdict(s) for s in pair] for name, pair in found.rules.items()},
        "worlds": [
            {
                "world": o.plan.name,
                "decided": o.decided,
                "said": o.said,
                "truth": o.truth,
                "broken": o.broken,
                "rules": dict(o.rules),
                "judged": None if o.judged is None else asdict(o.judged),
            }
            for o in outcomes
        ],
    }


def plain(found: Summary) -> dict[str, Any]:
    values = asdict(found)
    values["exact_by_lost"] = {f"{k:g}": v for k, v in values["exact_by_lost"].items()}
    return values


# --- The page ------------------------------------------------------------------------------------

_BY_HAND = re.compile(r"<!-- by hand: ([\w-]+) -->\n(.*?)<!-- end -->", re.DOTALL)

_HEAD = """# How often the right one is named

Made by `benchmarks/accuracy.py`; the sections between `by hand` and `end` are kept when it runs again.

## What was measured

Incidents of a simulated training job, whose truth is known: a layout of ranks and groups, one fault (or
two, or a decoy), and the files that it leaves, of which a share of the recorder dumps is lost. Nothing in
the simulator uses the code that reads and judges. Each world is triaged from its files alone.

- **told**: worlds whose files single out the guilty, by the simulator's own record of what it wrote. There,
  an answer is right when kind and culprits are exactly right (the node alone, where the world allows it).
- **open**: the other worlds. They want a *set*: nobody named, the guilty among the suspects, nobody among
  them whom the files clear. A name there is a guess, and wrong even if it hits.
- **innocents**: answers that advise an eviction or a cordon, and name a rank or a node that did nothing.
- **regret**: GPU-hours that following the advice loses against knowing the truth (`judge.py` has the prices).
- **calibration**: of an answer that names somebody or nobody, confidence is held against whether kind and
  culprits are right; of one that leaves a set, against whether the guilty are in it.
- Brackets are Wilson intervals at 95 %. Worst classes first.

## How to repeat it

```
{command}
```

Rules and weights were fitted on seeds from 1,000,000 on; the figures here are of seeds from the one that the
command names.
"""


def page(found: Results, by_hand: Mapping[str, str]) -> str:
    """The whole page, with the hand-written sections as they were."""

    def kept(name: str) -> str:
        return f"<!-- by hand: {name} -->\n{by_hand.get(name, '')}<!-- end -->\n"

    parts = [
        _HEAD.replace("{command}", found.command) + "\n" + kept("notes"),
        "## Overall\n\n" + "\n".join(f"- {line}" for line in overall_lines(found)) + "\n",
        "## Who was named\n\n" + as_markdown(named_table(found)) + "\n",
        "## Whom it harmed, and what it cost\n\n" + as_markdown(harm_table(found)) + "\n",
        "## What misses, and why\n\n" + kept("misses"),
        "## Calibration\n\nAll answers that claim something:\n\n"
        + as_markdown(calibration_table(found.reliability))
        + "\n\nVerdicts alone:\n\n"
        + as_markdown(calibration_table(found.reliability_named))
        + "\n",
    ]
    if found.rules:
        parts.append(
            "## Against short rules\n\nOn the told worlds. A short rule is right with one guilty rank;"
            " gpufleet has to name all of them, and the kind.\n\n"
            + as_markdown(rules_table(found))
            + "\n"
        )
    return "\n".join(parts)


def write_page(path: Path, found: Results) -> None:
    """Write the page; what a person wrote between the markers stays."""
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    by_hand = {match[1]: match[2] for match in _BY_HAND.finditer(before)}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(found, by_hand), encoding="utf-8")
