"""The guard of `evict` over every combination: what may never be, told apart from how the guard reasons."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest

from gpufleet_cli.operate.evict_guard import EvictFacts, may_wait, price, price_defaults, rule
from gpufleet_cli.operate.rulings import Ruling
from gpufleet_cli.verdict import Action, Input, JobState, Option, Recommendation

STATES = tuple(JobState)
PROOFS = (None, "terminated", "own-lines", "recorder", "hint", "older-attempt")
SECONDS = ("still", "idle", "moves", "open", "early", "unseen")
GROUNDS = (None, "stopped", "corrupt", "slowed", "arithmetic")
OWNERS = ("known", "slinky", "other")
RIGHTS = (True, False, None)
TOKENS = ((None, "a"), ("a", "a"), ("b", "a"), ("a", None))
STRANGERS = (((), ()), (("run-9",), ()), ((), ("run-3",)))
"""Pods that are new, and pods that were restarted in place."""
BOUNDARIES = ("not-asked", "waiting", "reached")
MEANS = "kubectl patch jobsets.jobset.x-k8s.io run -n train --type merge -p '{}'"


def every() -> Iterator[EvictFacts]:
    """583,200 of them; strings are given throughout, so that none is needed to tell cases apart."""
    for state, proof, second, ground, owner, may, tokens, strangers, boundary, blocked in product(
        STATES, PROOFS, SECONDS, GROUNDS, OWNERS, RIGHTS, TOKENS, STRANGERS, BOUNDARIES,
        (None, "no such field"),
    ):  # fmt: skip
        yield EvictFacts(
            state=state, state_why="a line", proof=proof, second=second, ground=ground,  # type: ignore[arg-type]
            ground_why="a reason", owner=owner, owner_name="StatefulSet/run", may=may,  # type: ignore[arg-type]
            right="patch jobs", wanted_token=tokens[0], token=tokens[1], changed="run-3 is new",
            strangers=strangers[0], restarted=strangers[1], boundary=boundary, gpu_hours=12.5, means=MEANS,  # type: ignore[arg-type]
            at_boundary="gpufleet evict run --at-checkpoint", blocked=blocked,
        )  # fmt: skip


def is_another_run(facts: EvictFacts) -> bool:
    return bool(facts.strangers or facts.restarted) or facts.wanted_token not in (None, facts.token)


def test_over_every_combination_nothing_wrong_is_let_through() -> None:
    """Each invariant by itself, over the whole product."""
    count = 0
    for facts in every():
        count += 1
        ruling = rule(facts)
        if ruling.goes:
            _right(facts)
        elif ruling.answer == "no":
            _tells(facts, ruling)
    assert 5 * 6 * 6 * 5 * 3 * 3 * 4 * 3 * 3 * 2 == count


def _right(facts: EvictFacts) -> None:
    """A `go` is for this very run, by somebody who may, with means that work, and for one of the four reasons."""
    assert "known" == facts.owner
    assert facts.may is not False
    assert facts.blocked is None
    assert not is_another_run(facts)
    if facts.boundary == "reached" or facts.ground in ("corrupt", "slowed", "arithmetic"):
        return
    assert facts.state not in (JobState.RUNNING, JobState.UNKNOWN), facts
    assert "moves" != facts.second, facts
    assert facts.proof in ("terminated", "own-lines", "recorder", "hint"), facts
    assert "terminated" == facts.proof or facts.second in ("still", "idle"), facts
    assert "hint" != facts.proof or "still" == facts.second, facts


def _tells(facts: EvictFacts, ruling: Ruling) -> None:
    """A refusal says why and what serves instead; of a job that runs, the price and its controller's means."""
    assert ruling.why
    assert ruling.instead, facts
    is_plain = (
        facts.owner == "known"
        and facts.may is not False
        and facts.blocked is None
        and not is_another_run(facts)
    )
    if is_plain:
        assert 12.5 == ruling.gpu_hours
        assert MEANS in ruling.instead


def test_what_is_let_through_when_nothing_is_in_the_way() -> None:
    """The four reasons, each alone; and nothing else."""
    plain = EvictFacts(state=JobState.RUNNING, means=MEANS)
    stopped = replace(plain, state=JobState.ABORTED, proof="own-lines", second="still")
    assert rule(stopped).goes
    assert rule(replace(stopped, state=JobState.STALLED)).goes
    assert rule(replace(stopped, second="idle")).goes
    assert rule(replace(stopped, state=JobState.EXITED, proof="terminated", second="unseen")).goes
    for second in ("unseen", "open", "early"):
        told = rule(replace(stopped, second=second, second_why="its log cannot be read"))  # type: ignore[arg-type]
        assert ("no", True) == (told.answer, "its log cannot be read" in told.why)
    assert rule(replace(plain, ground="corrupt", ground_why="XID 95")).goes
    assert rule(replace(plain, ground="slowed", ground_why="x2")).goes
    assert rule(replace(plain, boundary="reached")).goes
    assert "no" == rule(plain).answer
    assert "no" == rule(replace(plain, state=JobState.UNKNOWN)).answer
    assert "no" == rule(replace(plain, boundary="waiting")).answer
    assert "no" == rule(replace(plain, ground="stopped")).answer, "a report is no evidence"


@pytest.mark.parametrize("state", STATES)
def test_a_token_of_another_run_stops_even_what_has_stopped(state: JobState) -> None:
    """The pasted command is about a run that is no more; it says which pods are new."""
    facts = EvictFacts(
        state=state, proof="terminated", wanted_token="3f9a", token="77aa", changed="run-3 is new"
    )
    assert "no" == rule(facts).answer == may_wait(facts).answer
    assert "run-3 is new" in rule(facts).why


def test_waiting_is_refused_only_for_what_no_moment_mends() -> None:
    """A running job may be waited for; another run, Slurm's pods and a missing right may not."""
    runs = EvictFacts(state=JobState.RUNNING)
    assert may_wait(runs).goes
    assert may_wait(replace(runs, state=JobState.UNKNOWN)).goes
    for bad in (
        replace(runs, owner="slinky"),
        replace(runs, owner="other"),
        replace(runs, may=False),
        replace(runs, strangers=("x",)),
        replace(runs, blocked="no"),
    ):
        assert "no" == may_wait(bad).answer


def test_nothing_that_holds_a_node_is_nothing_to_do() -> None:
    """And no failure: the command may be run again."""
    assert "done" == rule(EvictFacts(state=JobState.RUNNING, holds=False)).answer


def advice(options: tuple[Option, ...], inputs: tuple[Input, ...]) -> Recommendation:
    return Recommendation(
        action=Action.NONE, nodes=(), questions=(), options=options, decided_by="rule",
        would_flip="", lost_gpu_hours=None, lost_waiting_gpu_hours=None,
        lost_recompute_gpu_hours=None, commands=(), why="", inputs=inputs,
    )  # fmt: skip


def test_the_price_is_the_option_s_else_made_of_the_inputs() -> None:
    """1,024 GPUs, half an hour since the checkpoint, five minutes to restart: 597.33 GPU-h."""
    inputs = (
        Input(name="gpus", value=1024, unit="GPUs", source="evidence"),
        Input(name="since_checkpoint", value=1800.0, unit="s", source="evidence"),
        Input(name="restart", value=300.0, unit="s", source="default"),
    )
    assert 597.33 == price(advice((), inputs))
    assert 40.0 == price(advice((Option(option="evict-now", gpu_hours=40.0),), inputs))
    assert price(advice((), inputs[1:])) is None


def test_a_price_names_the_numbers_that_nobody_knew() -> None:
    """A restart and the time since the checkpoint; an interval that is not in the price is not named."""
    inputs = (
        Input(name="since_checkpoint", value=900.0, unit="s", source="default"),
        Input(name="checkpoint_interval", value=1800.0, unit="s", source="default"),
        Input(name="restart", value=480.0, unit="s", source="default"),
    )
    assert "a restart of 8m, 15m since the last checkpoint" == price_defaults(advice((), inputs))
    known = tuple(replace(one, source="evidence") for one in inputs)
    assert "" == price_defaults(advice((), known))
