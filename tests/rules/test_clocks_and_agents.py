"""What a clock that nobody compares, an agent, and a merged log let a rule conclude."""

from __future__ import annotations

from dataclasses import replace

from gpufleet_cli.facts import (
    Fact,
    IdentityLink,
    Link,
    LogSign,
    Sign,
    Speaker,
)
from gpufleet_cli.reason.recorder_finding import GraphFinding, Stall
from gpufleet_cli.rules import claims, missing_rank, named_rank, network_fault, program_error
from gpufleet_cli.verdict import JobState, Kind

from .stories import (
    GAVE_UP,
    STOPPED,
    S,
    case,
    ended_pod,
    hang,
    origin,
    places,
    proposed,
    sign,
    steps,
    verdict,
)

HOUR = 3600 * S
NODE_1 = (4, 5, 6, 7)


def without_nodes(facts: list[Fact]) -> list[Fact]:
    """The same facts where no file tells the nodes."""
    return [replace(f, node=None) if isinstance(f, IdentityLink) else f for f in facts]


def silent_node(*more: Fact) -> list[Fact]:
    """All four ranks of node-1 fall silent: nothing compares its clock with node-0's."""
    return hang(*more, quiet=NODE_1)


def exited(rank: int, at: int, code: int = -11) -> LogSign:
    named = {"exit_code": code, "named_ranks": (rank,)}
    return sign(Sign.ROOT_CAUSE_BLOCK, None, at, origin=origin(rank, 97), **named)


def crash(rank: int, at: int | None) -> LogSign:
    return sign(Sign.PYTHON_EXCEPTION, rank, at, detail="KeyError: 'text'", origin=origin(rank, 92))


# --- Clocks --------------------------------------------------------------------------------------


def test_a_crash_of_a_clock_that_nothing_compares_is_not_late() -> None:
    """The node's clock is an hour ahead, so its crash reads as long after the timeouts."""
    facts = silent_node(crash(6, STOPPED + HOUR))
    assert [h.ranks for h in proposed(program_error, facts)] == [(6,)]


def test_a_crash_after_the_timeouts_of_its_own_node_is_late() -> None:
    """Rank 6's node saw timeouts by the same clock: what comes after them is their consequence."""
    facts = hang(crash(6, GAVE_UP + 60 * S), quiet=(3,))
    assert proposed(program_error, facts) == []
    made = case(facts)
    [line] = made.signs_of(Sign.PYTHON_EXCEPTION)
    assert claims.is_late(made, line)


def test_pods_have_clocks_where_nodes_are_not_known() -> None:
    """Shared steps measure the offset of a pod; its crash is put where it belongs."""
    ahead = [
        replace(p, points=tuple(replace(x, at_ns=(x.at_ns or 0) + HOUR) for x in p.points))
        for p in (steps(6),)
    ]
    facts = without_nodes(silent_node(*ahead, crash(6, STOPPED + HOUR)))
    made = case(facts)
    [line] = made.signs_of(Sign.PYTHON_EXCEPTION)
    assert made.offsets["pod pod-1"].offset_s - made.offsets["pod pod-0"].offset_s == 3600
    assert line.clock == "pod pod-1"


def test_a_complaint_of_an_unknown_clock_does_not_make_a_job_run_on() -> None:
    """A crash stamped 40 s early by a clock that nothing compares: the steps after it prove nothing."""
    early = silent_node(crash(6, STOPPED - 40 * S), exited(6, STOPPED - 40 * S, 1))
    assert case(early).stop.state is JobState.ABORTED


def test_a_death_without_a_date_happened_when_its_agent_saw_it() -> None:
    """An undated traceback and a signal of another node: the agents saw both go in the same second."""
    facts = hang(
        crash(1, None), exited(1, STOPPED, 1), exited(6, STOPPED + S), quiet=(0, 1, 2, 3, *NODE_1)
    )
    assert {1, 6} <= set(proposed(program_error, facts)[0].ranks)


# --- Agents --------------------------------------------------------------------------------------


def test_an_agent_ends_all_of_its_ranks_but_the_one_that_failed() -> None:
    """The line names a process and no rank."""
    ended = sign(
        Sign.CHILD_SIGTERM,
        None,
        STOPPED + 3 * S,
        speaker=Speaker(stream="pod-1.log", pod="pod-1"),
    )
    made = case(silent_node(exited(6, STOPPED), ended))
    assert claims.ended_by_agent(made) == {4, 5, 7}


def test_of_two_quiet_ranks_the_one_that_exited_is_missing() -> None:
    """Rank 5 got a dump signal late, rank 6 beside it was seen to exit: rank 6."""
    told = sign(Sign.DUMP_SIGNAL_OTHER, 5, GAVE_UP + S)
    found = proposed(missing_rank, hang(exited(6, STOPPED, 1), told, quiet=(5, 6)))
    assert [(h.ranks, h.suspects) for h in found] == [((6,), ())]


def test_the_exit_of_a_container_whose_log_calls_it_an_effect_is_no_cause() -> None:
    """Its log says that a peer was out of reach; without that line the pod is the first to end."""
    gone = ended_pod(1, STOPPED)
    effect = sign(Sign.PEER_UNREACHABLE, 6, STOPPED, peer="10.0.0.0")
    [found] = proposed(program_error, silent_node(gone))
    assert found.suspects == NODE_1
    assert proposed(program_error, silent_node(gone, effect)) == []


def test_the_exit_of_a_container_says_less_where_anothers_adapter_went() -> None:
    """Peers of a failed adapter end like that."""
    port = sign(Sign.NIC_ERROR, 1, STOPPED - S, detail="port error", device="mlx5_0")
    alone, beside = (
        proposed(program_error, silent_node(ended_pod(1, STOPPED), *more))[0].claims[0].weight
        for more in ([], [port])
    )
    assert alone > beside


def test_a_rank_cut_off_from_a_node_that_reports_its_adapter_is_not_missing() -> None:
    """Rank 6 could not reach node-0, whose adapter says that its port failed."""
    port = sign(Sign.NIC_ERROR, 1, STOPPED - S, detail="port error", device="mlx5_0")
    unreachable = sign(Sign.PEER_UNREACHABLE, 6, STOPPED, peer="10.0.0.0")
    facts = hang(port, unreachable, quiet=(6,))
    assert (6,) not in [h.ranks for h in proposed(missing_rank, facts)]
    assert (6,) in [h.ranks for h in proposed(missing_rank, hang(unreachable, quiet=(6,)))]


def test_an_adapter_explains_whichever_rank_of_its_node_fell_silent() -> None:
    """Rank 1 reports the port, rank 3 beside it is the one that the others miss: one story."""
    port = [
        sign(Sign.NIC_ERROR, 1, STOPPED - n * S, detail="port error", device="mlx5_0")
        for n in (9, 6, 3)
    ]
    found = verdict(hang(*port, quiet=(3,)))
    assert (found.kind, [c.rank for c in found.culprits]) == (Kind.NETWORK, [1])


def test_an_accused_pod_without_a_node_is_the_node_whose_kernel_reports_its_adapter() -> None:
    """Nothing else joins the kernel's node name with the pod that its peers accuse."""
    accused = {"pod-1": {"pod-0": object(), "pod-2": object()}}
    made = case(without_nodes(hang(quiet=(6,))))
    moved = network_fault._of_the_reporting(made, {"gpu-a": None}, accused)  # type: ignore[arg-type, dict-item]
    assert set(moved) == {"gpu-a"}
    kept = network_fault._of_the_reporting(case(hang(quiet=(6,))), {"gpu-a": None}, accused)  # type: ignore[arg-type, dict-item]
    assert set(kept) == {"pod-1"}


# --- Two at once ---------------------------------------------------------------------------------


def test_a_second_rank_of_another_node_that_gave_up_on_nothing_is_named_too() -> None:
    """Rank 1 crashed; rank 6 lived, alone of its node saw no timeout, and nothing held it."""
    told = sign(Sign.DUMP_SIGNAL_OTHER, 6, GAVE_UP + S)
    facts = hang(crash(1, STOPPED), exited(1, STOPPED, 1), told, quiet=(1, 6))
    found = verdict(facts)
    assert sorted(c.rank or 0 for c in found.culprits) == [1, 6]


def test_a_quiet_rank_beside_a_crash_of_its_own_node_is_not_named() -> None:
    """Its agent may have ended it."""
    told = sign(Sign.DUMP_SIGNAL_OTHER, 2, GAVE_UP + S)
    facts = hang(crash(1, STOPPED), exited(1, STOPPED, 1), told, quiet=(1, 2))
    assert [c.rank for c in verdict(facts).culprits] == [1]


# --- Numbering -----------------------------------------------------------------------------------


def agent(rank: int, local: int, pod: str) -> IdentityLink:
    return IdentityLink(
        how=Link.AGENT, origin=origin(rank), rank=rank, local_rank=local, pod=pod, host=pod
    )


def test_ranks_follow_from_the_numbering_of_their_agents() -> None:
    """Each agent names one rank; their first ranks lie four apart and fill the world."""
    facts: list[Fact] = [agent(2, 2, "a"), agent(7, 3, "b")]
    places_ = case(facts).topology
    assert places_.by_pod == {"a": (0, 1, 2, 3), "b": (4, 5, 6, 7)}
    assert (places_.world_size, places_.places[5].local_rank) == (8, 1)
    assert places_.places[5].how is Link.DERIVED


def test_agents_that_leave_a_hole_place_nobody_else() -> None:
    """A third agent in between has said nothing."""
    facts: list[Fact] = [agent(2, 2, "a"), agent(7, 3, "b"), agent(17, 1, "c")]
    assert sorted(case(facts).topology.places) == [2, 7, 17]


def test_agents_that_contradict_a_line_place_nobody_else() -> None:
    """Rank 5 wrote in pod a."""
    stray = IdentityLink(how=Link.LOG, origin=origin(5), rank=5, pod="a")
    facts: list[Fact] = [agent(2, 2, "a"), agent(7, 3, "b"), stray]
    assert sorted(case(facts).topology.places) == [2, 5, 7]


def test_a_desync_report_against_ranks_that_wait_by_their_dumps_names_nobody() -> None:
    """Rank 2's dump shows it waiting for somebody else; without dumps the row is all that there is."""
    row = sign(Sign.DESYNC_REPORT, 0, GAVE_UP, named_ranks=(2,), detail="finished #1, not #2")
    bare = case(hang(row))
    seen = GraphFinding(dumps=8, world_size=8, stall=Stall.TIMED_OUT, waiting=frozenset({1, 2}))
    waits = replace(bare, graph=seen)
    assert [h.ranks for h in named_rank.propose(bare)] == [(2,)]
    assert list(named_rank.propose(waits)) == []


def test_places_of_the_small_job() -> None:
    """The helper that the rules use to tell a rank's neighbours."""
    topology = case(places()).topology
    assert topology.unit_of(5) == {4, 5, 6, 7}
    assert topology.unit_of(99) == {99}
