"""How often a job is interrupted, how many spares to keep, what a slow rank costs, and who fails too often."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gpufleet_cli import cost_fleet
from gpufleet_cli.cost_card import CostCard, Curve, Figure, Point
from gpufleet_cli.errors import UsageError

MOST_NODES = 10_000_000
"""Of a pool, or out of service at once; beyond, the numbers are no fleet's."""
_SIZES = (0.25, 0.5, 1.0, 2.0, 4.0)
_HOUR_S = 3600.0
_YEAR_H = 24 * 365.0


def mtbf(
    *,
    gpus: int,
    interruptions: int | None = None,
    observed_gpu_hours: float | None = None,
    gpu_hours_per_interruption: float | None = None,
    node_failures_per_day: float | None = None,
    gpus_per_node: int | None = None,
) -> CostCard:
    """How often a job of this size is interrupted."""
    between: tuple[float, float | None] | None = None
    theta = gpu_hours_per_interruption
    formula = "GPU-hours per interruption / GPUs"
    notes = ["Do not mix bases: hardware failures, unexpected interruptions, all interruptions."]
    if interruptions is not None and observed_gpu_hours is not None:
        between = cost_fleet.interval90_gpu_hours(interruptions, observed_gpu_hours)
        theta = observed_gpu_hours / interruptions if interruptions else None
        formula = "observed GPU-hours / interruptions; exact Poisson interval (chi-squared)"
        least = cost_fleet.mtti_s(gpus, between[0]) / _HOUR_S
        if theta is None:
            notes.insert(
                0, f"None was seen: the MTTI is {least:,.4g} hours or more, with 95 % certainty."
            )
    elif node_failures_per_day is not None and gpus_per_node is not None:
        theta = cost_fleet.gpu_hours_per_interruption(node_failures_per_day, gpus_per_node)
        formula = "24 / failures of a node per day x GPUs of a node"
    if theta is not None:
        notes.append(f"That is {theta / _YEAR_H:,.3g} years of one GPU per interruption.")
    return CostCard(
        title=f"How often a job of {gpus:,} GPUs is interrupted",
        figures=_rates(gpus, theta, between),
        formula=formula,
        notes=tuple(notes),
        curve=None if theta is None else _by_size(gpus, theta),
    )


def _rates(
    gpus: int, theta: float | None, between: tuple[float, float | None] | None
) -> tuple[Figure, ...]:
    none_seen = "not known: none was seen"
    return (
        Figure(
            name="mtti_seconds",
            words="mean time to interruption",
            value=None if theta is None else cost_fleet.mtti_s(gpus, theta),
            unit="s",
            why_none=none_seen,
        ),
        Figure(
            name="hazard_per_hour",
            words="hazard",
            value=None if theta is None else cost_fleet.hazard_per_hour(gpus, theta),
            unit="per hour",
            why_none=none_seen,
        ),
        Figure(
            name="gpu_hours_per_interruption",
            words="per interruption",
            value=theta,
            unit="GPU-h",
            why_none=none_seen,
        ),
        Figure(
            name="interval90_gpu_hours",
            words="90 % interval of it",
            value=between,
            unit="GPU-h range",
            why_none="not known: a rate alone does not tell how much was seen",
        ),
    )


def _by_size(gpus: int, theta: float) -> Curve:
    sizes = sorted({max(1, round(gpus * step)) for step in _SIZES})
    return Curve(
        title="mean time to interruption, by size of the job",
        unit="s",
        points=tuple(
            Point(
                label=f"{size:,} GPU{'s' if size != 1 else ''}",
                value=cost_fleet.mtti_s(size, theta),
                is_chosen=size == gpus,
            )
            for size in sizes
        ),
    )


def spares(
    *,
    stock_out: float,
    failures_per_hour: float | None = None,
    repair: float | None = None,
    nodes: int | None = None,
    availability: float | None = None,
    rack_nodes: int | None = None,
) -> CostCard:
    """How many nodes to keep in reserve."""
    chance: Callable[[int], float]
    if nodes is not None and availability is not None:
        _not_too_many(nodes / availability, "--nodes / --availability")
        out = nodes * (1.0 - availability)
        found = cost_fleet.spares_of_pool(nodes, availability, stock_out)
        formula = "fewest S with P(Binomial(N + S, availability) < N) <= stock-out"
        chance = partial(cost_fleet.chance_of_too_few, nodes, availability)
    else:
        assert failures_per_hour is not None
        assert repair is not None
        out = failures_per_hour * repair / _HOUR_S
        _not_too_many(out, "--failures-per-hour x --repair")
        found = cost_fleet.spares_for(out, stock_out)
        formula = "fewest S with P(Poisson(failures x repair) > S) <= stock-out"
        chance = partial(cost_fleet.chance_of_stock_out, out)
    return CostCard(
        title="How many spare nodes to keep",
        figures=(
            Figure(name="expected_out", words="out at a time, on average", value=out, unit="nodes"),
            Figure(name="spares", words="spares", value=found, unit="nodes"),
            Figure(
                name="spares_with_rack_loss",
                words="spares with one rack lost",
                value=None if rack_nodes is None else found + rack_nodes,
                unit="nodes",
                why_none="not asked for: --rack-nodes",
            ),
        ),
        formula=formula,
        notes=("Nodes that fail together (a rack, a switch) are in none of these chances.",),
        curve=Curve(
            title="chance of a stock-out, by spares",
            unit="share",
            points=tuple(
                Point(label=f"{spare:,}", value=chance(spare), is_chosen=spare == found)
                for spare in range(max(0, found - 4), found + 3)
            ),
        ),
    )


def _not_too_many(nodes: float, what: str) -> None:
    if nodes > MOST_NODES:
        raise UsageError(f"{what} is {nodes:.3g} nodes", hint=f"at most {MOST_NODES:,}")


def tail(
    *,
    ranks: int | None = None,
    slow_probability: float | None = None,
    gpus: int | None = None,
    slowdown: float | None = None,
) -> CostCard:
    """What one slow rank does to all."""
    if ranks is not None and slow_probability is not None:
        return CostCard(
            title=f"Chance that none of {ranks:,} ranks is slow",
            figures=(
                Figure(
                    name="no_slow_rank",
                    words="no slow rank",
                    value=cost_fleet.no_slow_rank(ranks, slow_probability),
                    unit="share",
                ),
                Figure(
                    name="even_odds_slow_probability",
                    words="even odds at a chance of",
                    value=cost_fleet.even_odds_probability(ranks),
                    unit="share",
                ),
            ),
            formula="(1 - p)^ranks, ranks by themselves",
        )
    assert gpus is not None
    assert slowdown is not None
    return CostCard(
        title="What a slow rank costs, since all others wait for it",
        figures=(
            Figure(
                name="gpu_hours_per_hour",
                words="lost in an hour",
                value=cost_fleet.slow_gpu_hours_per_hour(gpus, slowdown),
                unit="GPU-h/h",
            ),
        ),
        formula="GPUs x (1 - 1/slowdown)",
    )


def offenders(*, events: int, days: float, node_failures_per_day: float, nodes: int) -> CostCard:
    """Is a node with so many failures ill, or would chance do it?"""
    chance = cost_fleet.chance_of_offence(events, days, node_failures_per_day)
    return CostCard(
        title=f"Healthy nodes that show {events:,} or more failures in {days:g} days",
        figures=(
            Figure(name="chance", words="chance of one node", value=chance, unit="share"),
            Figure(
                name="expected_innocent_nodes",
                words=f"expected among {nodes:,}",
                value=nodes * chance,
                unit="nodes",
            ),
            Figure(
                name="shrunk_failures_per_day",
                words="best guess of its own rate",
                value=cost_fleet.shrunk_failures_per_day(events, days, node_failures_per_day),
                unit="per day",
            ),
        ),
        formula="Poisson tail of mean rate x days; own rate (a + k)/(a/f + T), a = 0.5",
        notes=("gpufleet node flags 3 in 28 days or 2 in 7, and says the expected number too.",),
    )
