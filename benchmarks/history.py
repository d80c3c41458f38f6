"""Does the history find the nodes that keep failing, and how many innocents does it name by luck?

    python benchmarks/history.py [--fleets 10] [--calendars 400] [--ranks 16]

A fleet has 96 nodes and 50 incidents in 42 days: 3 nodes that fail four times each in the last four weeks,
24 faults of nodes drawn by lot, 14 faults of programs. Each incident is a world of `operate/simulate`: its
evidence is written to a folder, triaged as `gpufleet history add` does it, and kept, twice and in
any order. The names of nodes and the date are put into the record after the triage: a node that the verdict
names stands for the guilty node of the fleet if it is the guilty one of the world, else for any other.

The second table has no evidence: calendars of healthy nodes alone, to hold the stated number of innocents against.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import msgspec

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

import accuracy  # noqa: E402 - beside this file

from gpufleet_cli import repeats  # noqa: E402
from gpufleet_cli.history import folder, record, tally  # noqa: E402
from gpufleet_cli.history.record import DAY_NS, Incident, with_id  # noqa: E402
from gpufleet_cli.node_card import FaultRate  # noqa: E402
from gpufleet_cli.operate.simulate import world  # noqa: E402
from gpufleet_cli.operate.simulate.story import Class  # noqa: E402
from gpufleet_cli.operate.simulate.truth import Truth  # noqa: E402

NODES, DAYS = 96, 42
OFFENDERS, TIMES, BY_LOT, PROGRAMS = 3, 4, 24, 14
NOW_NS = 20_600 * DAY_NS
OF_NODES = (
    Class.XID_79,
    Class.XID_119,
    Class.XID_48,
    Class.XID_95,
    Class.NODE_DEATH,
    Class.NIC_DOWN,
)
OF_PROGRAMS = (Class.PYTHON_CRASH, Class.LOADER_STALL, Class.MISMATCH, Class.SEGFAULT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One incident to come: what goes wrong, on which node of the fleet, when."""

    cls: Class
    node: int
    at_ns: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the history said of one fleet."""

    kept: int
    node_faults: int
    right: int
    offenders: int
    listed: int
    innocents: int
    stated: float


def plan(seed: int) -> list[Planned]:
    """Fifty incidents; nodes 0 to 2 are the offenders."""
    draw = Random(f"history/{seed}")
    days = [(node, draw.uniform(0.1, 27.9)) for node in range(OFFENDERS) for _ in range(TIMES)]
    days += [(draw.randrange(NODES), draw.uniform(0.1, DAYS)) for _ in range(BY_LOT)]
    planned = [(draw.choice(OF_NODES), node, ago) for node, ago in days]
    planned += [
        (draw.choice(OF_PROGRAMS), draw.randrange(NODES), draw.uniform(0.1, DAYS))
        for _ in range(PROGRAMS)
    ]
    return [
        Planned(cls=cls, node=node, at_ns=NOW_NS - round(ago * DAY_NS), seed=seed * 1_000 + number)
        for number, (cls, node, ago) in enumerate(planned)
    ]


def incident_of(one: Planned, ranks: int) -> tuple[Incident, bool] | None:
    """The record of a triage of made evidence, and whether it names the guilty node and no other."""
    made = world.make(one.cls, seed=one.seed, size=ranks)
    with tempfile.TemporaryDirectory(dir=accuracy.scratch()) as place:
        made.write(Path(place))
        found = accuracy.answer(Path(place), made.truth, strict=True)
        kept = record.of_triage(found, None, is_asked=True)
    if kept is None:
        return None
    named = _on_the_fleet(kept.nodes, made.truth, one)
    right = kept.is_node_fault and set(kept.nodes) == set(made.truth.nodes)
    laid = msgspec.structs.replace(
        kept, nodes=named, at_ns=one.at_ns, began_ns=None, ended_ns=None, as_of_ns=one.at_ns,
        job=f"job-{one.seed}", namespace="ml", attempt=0,
    )  # fmt: skip
    return with_id(laid), right


def _on_the_fleet(nodes: Sequence[str], truth: Truth, one: Planned) -> tuple[str, ...]:
    draw = Random(f"names/{one.seed}")
    others = draw.sample([node for node in range(NODES) if node != one.node], len(nodes))
    guilty = truth.nodes
    return tuple(
        sorted(
            {f"gpu-{one.node if n in guilty else o}" for n, o in zip(nodes, others, strict=True)}
        )
    )


def run(seed: int, *, ranks: int) -> Found:
    """One fleet: made, triaged, kept, and read as `gpufleet history --nodes 96` reads it."""
    planned = plan(seed)
    made = [found for one in planned if (found := incident_of(one, ranks)) is not None]
    with tempfile.TemporaryDirectory() as place:
        twice = [one for one, _ in made] * 2
        Random(seed).shuffle(twice)
        for one in twice:
            folder.keep(Path(place), one, is_own=True)
        kept = folder.read(Path(place)).incidents
    span = tally.span_of(kept, since_ns=NOW_NS - DAYS * DAY_NS, as_of_ns=NOW_NS)
    own = tally.own_rate(kept, span, NODES)
    assert own is not None
    rate = own[0]
    repeat = tally.offenders(kept, as_of_ns=NOW_NS, nodes=NODES, rate=rate, span=span)
    listed = {int(one.node.removeprefix("gpu-")): one.is_flagged for one in repeat}
    named = [node for node, is_flagged in listed.items() if is_flagged]
    return Found(
        kept=len(kept),
        node_faults=sum(one.is_node_fault for one in kept),
        right=sum(right for _, right in made),
        offenders=sum(node < OFFENDERS for node in named),
        listed=sum(node < OFFENDERS for node in listed),
        innocents=sum(node >= OFFENDERS for node in named),
        stated=(NODES - OFFENDERS) * repeats.chance_flagged(rate.a_node_day),
    )


def healthy(seed: int, *, nodes: int, rate: float) -> int:
    """How many of so many healthy nodes the test names today."""
    draw = Random(f"healthy/{seed}/{nodes}/{rate}")
    days = repeats.LONG[0]
    named = 0
    for _ in range(nodes):
        times, at = [], draw.expovariate(rate)
        while at < days:
            times.append(NOW_NS - round(at * DAY_NS))
            at += draw.expovariate(rate)
        test = repeats.judge(times, now_ns=NOW_NS, nodes=nodes, rate=FaultRate(rate, "flag"))
        named += test is not None and test.is_flagged
    return named


def main() -> None:
    """Print both tables."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--fleets", type=int, default=10)
    options.add_argument("--calendars", type=int, default=400)
    options.add_argument("--ranks", type=int, default=16)
    given = options.parse_args()
    accuracy.read_dumps_here()
    found = [run(seed, ranks=given.ranks) for seed in range(given.fleets)]
    print("| fleets | incidents | of nodes, made / kept as such / right node alone ", end="")
    print(
        "| offenders named | or listed | innocents named | innocents stated |\n|---|---|---|---|---|---|---|"
    )
    faults = (OFFENDERS * TIMES + BY_LOT) * len(found)
    print(
        f"| {len(found)} | {sum(one.kept for one in found)} | {faults} /"
        f" {sum(one.node_faults for one in found)} / {sum(one.right for one in found)}"
        f" | {sum(one.offenders for one in found)} of {OFFENDERS * len(found)}"
        f" | {sum(one.listed for one in found)} of {OFFENDERS * len(found)}"
        f" | {sum(one.innocents for one in found)}"
        f" | {sum(one.stated for one in found):.1f} |\n"
    )
    print("| healthy nodes | faults a node-day | calendars | named, mean | stated |")
    print("|---|---|---|---|---|")
    for nodes, rate in ((256, 6.5e-3), (2048, 6.5e-3), (2048, 1e-3), (2048, 3e-2)):
        named = [healthy(seed, nodes=nodes, rate=rate) for seed in range(given.calendars)]
        stated = nodes * repeats.chance_flagged(rate)
        mean = sum(named) / len(named)
        print(f"| {nodes:,} | {rate:g} | {len(named)} | {mean:.2f} | {stated:.2f} |")


if __name__ == "__main__":
    main()
