"""The topics of `gpufleet cost`, and which options make a question.

Signatures, `--help` and what is said of a missing or an extra option follow from `ways`.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated, Any

import typer

from gpufleet_cli.commands.cost_options import OPTIONS, Value, option, value
from gpufleet_cli.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One question. `ways` are the sets of options that ask it; `optional` holds what may be left out of
    any of them, with its default (None: then it is no input), and `flags` those without a value."""

    name: str
    module: str
    help: str
    examples: tuple[str, ...]
    ways: tuple[tuple[str, ...], ...]
    optional: tuple[tuple[str, float | None], ...] = ()
    flags: tuple[tuple[str, str], ...] = ()

    @property
    def function(self) -> str:
        return self.name.replace("-", "_")

    @property
    def options(self) -> tuple[str, ...]:
        """Each once, in the order in which the ways name them."""
        named = [name for way in self.ways for name in way]
        return tuple(dict.fromkeys([*named, *(name for name, _ in self.optional)]))


_MTTI = ("gpus", "gpu_hours_per_interruption")
_EXPECTED = ("save", "restart", "checkpoint_interval")
TOPICS: tuple[Topic, ...] = (
    Topic(
        name="checkpoint-interval",
        module="checkpoints",
        help="How often to save, after Young and Daly.",
        examples=(
            "--save 30s --mtti 2h47m",
            "--save 30s --gpus 8192 --gpu-hours-per-interruption 45000",
        ),
        ways=(("save", "mtti"), ("save", *_MTTI)),
    ),
    Topic(
        name="recompute",
        module="checkpoints",
        help="What a stop throws away, now or at a random time.",
        examples=(
            "--gpus 8192 --since-checkpoint 29m",
            "--gpus 8192 --checkpoint-interval 1h",
        ),
        ways=(("gpus", "since_checkpoint"), ("gpus", "checkpoint_interval")),
    ),
    Topic(
        name="idle",
        module="checkpoints",
        help="What a stall costs until the watchdog fires.",
        examples=(
            "--gpus 8192 --watchdog-timeout 10m",
            "--gpus 1024 --watchdog-timeout 600s",
        ),
        ways=(("gpus", "watchdog_timeout"),),
    ),
    Topic(
        name="mtbf",
        module="fleet",
        help="How often a job of a size is interrupted.",
        examples=(
            "--gpus 8192 --interruptions 466 --observed-gpu-hours 21233664",
            "--gpus 8192 --node-failures-per-day 6.5e-3 --gpus-per-node 8",
        ),
        ways=(
            ("gpus", "interruptions", "observed_gpu_hours"),
            ("gpus", "gpu_hours_per_interruption"),
            ("gpus", "node_failures_per_day", "gpus_per_node"),
            ("gpus", "fleet_gpus"),
        ),
    ),
    Topic(
        name="efficiency",
        module="checkpoints",
        help="ETTR, the budget for a target, goodput.",
        examples=(
            "--mtti 2h47m --save 30s --restart 10m --checkpoint-interval 12m36s",
            "--target 0.9 --mtti 2h47m",
        ),
        ways=(
            ("mtti", *_EXPECTED),
            (*_MTTI, *_EXPECTED),
            ("target", "mtti"),
            ("target", *_MTTI),
            ("productive", "wall"),
            ("scheduling_goodput", "runtime_goodput", "program_goodput"),
        ),
    ),
    Topic(
        name="spares",
        module="fleet",
        help="How many spare nodes for a chance of running out.",
        examples=(
            "--failures-per-hour 0.28 --repair 24h --stock-out 0.01 --rack-nodes 16",
            "--nodes 2048 --availability 0.93 --stock-out 0.01",
        ),
        ways=(
            ("failures_per_hour", "repair", "stock_out"),
            ("nodes", "availability", "stock_out"),
        ),
        optional=(("rack_nodes", None),),
    ),
    Topic(
        name="decide",
        module="decision",
        help="Evict now or at the next checkpoint, as triage would.",
        examples=(
            "--gpus 8192 --checkpoint-interval 60m --since-checkpoint 29m --save 1m"
            " --restart 5m --planned-restart 5m --detection 10m --slowdown 1.25",
            "--gpus 8192 --checkpoint-interval 60m --since-checkpoint 29m --save 1m"
            " --restart 5m --planned-restart 5m --detection 10m --stopped",
        ),
        ways=(
            (
                "gpus",
                "checkpoint_interval",
                "since_checkpoint",
                "save",
                "restart",
                "planned_restart",
                "detection",
            ),
        ),
        optional=(("slowdown", 1.0), ("hazard_per_hour", 0.0)),
        flags=(("stopped", "The job hangs or is dead already."),),
    ),
    Topic(
        name="tail",
        module="fleet",
        help="No slow rank: its chance; a slow one: its cost.",
        examples=(
            "--ranks 1024 --slow-probability 0.01",
            "--gpus 8192 --slowdown 1.25",
        ),
        ways=(("ranks", "slow_probability"), ("gpus", "slowdown")),
    ),
    Topic(
        name="offenders",
        module="fleet",
        help="Healthy nodes that fail as often by chance.",
        examples=(
            "--events 3 --days 28 --node-failures-per-day 6.5e-3 --nodes 2048",
            "--events 5 --days 90 --node-failures-per-day 6.5e-3 --nodes 16384",
        ),
        ways=(("events", "days", "node_failures_per_day", "nodes"),),
    ),
)
BY_NAME = {topic.name: topic for topic in TOPICS}


def parameters(topic: Topic) -> list[inspect.Parameter]:
    """The options of a topic for Typer: all may be left out, as far as the program's parser knows."""
    found = []
    for name in topic.options:
        row = OPTIONS[name]
        declared = typer.Option(option(name), metavar=row.metavar, help=row.help)
        found.append(_keyword(name, Annotated[str | None, declared], None))
    for name, told in topic.flags:
        declared = typer.Option(option(name), help=told)
        found.append(_keyword(name, Annotated[bool, declared], default=False))
    return found


def _keyword(name: str, annotation: Any, default: bool | None) -> inspect.Parameter:  # noqa: ANN401
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def values(topic: Topic, given: Mapping[str, str | None]) -> dict[str, Value]:
    """The numbers that were given, once they make a question; what is wrong is said first of all."""
    texts = {name: text for name, text in given.items() if text is not None}
    found = {name: value(name, text) for name, text in texts.items()}
    _complete(topic, frozenset(texts))
    return found


def _complete(topic: Topic, given: frozenset[str]) -> None:
    """One way is there whole, and nothing beside it."""
    named = given - {name for name, _ in topic.optional}
    fitting = [way for way in topic.ways if named <= set(way)]
    if not fitting:
        raise UsageError(f"cost {topic.name}: {_conflict(topic, named)}", hint=_see(topic))
    if any(named == set(way) for way in fitting):
        return
    lacking = (" ".join(option(name) for name in way if name not in named) for way in fitting)
    raise UsageError(
        f"cost {topic.name}: missing {', or '.join(dict.fromkeys(lacking))}", hint=_see(topic)
    )


def _conflict(topic: Topic, named: frozenset[str]) -> str:
    ordered = [name for name in topic.options if name in named]
    for first, second in combinations(ordered, 2):
        if not any(first in way and second in way for way in topic.ways):
            return f"{option(first)} and {option(second)} do not go together"
    return f"{' '.join(option(name) for name in ordered)} do not go together"


def _see(topic: Topic) -> str:
    return f"see gpufleet cost {topic.name} --help"
