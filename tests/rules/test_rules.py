"""Every rule: a case it finds, one that looks alike and it must not claim, one with too little."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from gpufleet_cli.facts import (
    Fact,
    GpuReading,
    HostSign,
    JobNumbers,
    LogSign,
    Origin,
    PodState,
    Progress,
    Sign,
    StepPoint,
)
from gpufleet_cli.reason.recorder_finding import GraphClaim, GraphFinding, Root, Stall, Terminal
from gpufleet_cli.rules import (
    RULES,
    claims,
    collective_mismatch,
    gpu_fault,
    gpu_reading,
    healthy,
    missing_rank,
    network_fault,
    program_error,
    rendezvous,
    slow_rank,
    storage_fault,
)
from gpufleet_cli.verdict import CollectiveRef, Kind
from gpufleet_cli.weigh import weigh
from rules import stories
from rules.stories import (
    GAVE_UP,
    STOPPED,
    S,
    case,
    ended_pod,
    hang,
    host,
    places,
    proposed,
    running,
    sign,
    status,
    timeout,
    verdict,
    writes,
    xid,
)

POD = PodState(
    name="pod-0",
    namespace=None,
    uid=None,
    node=None,
    pod_ip=None,
    phase="Running",
    reason=None,
    created_ns=None,
    deleted_ns=None,
    containers=(),
    rank_container="c",
    disruption=None,
    disrupted_ns=None,
    gpus=4,
    labels=(),
    node_rank=None,
    owner=None,
    origin=Origin(path="pods.json", entry=0),
)

# --- missing_rank --------------------------------------------------------------------------------


def test_the_only_rank_without_a_timeout_is_missing() -> None:
    """Seven watchdogs complain, rank 3 does not: rank 3."""
    assert [(h.ranks, h.suspects) for h in proposed(missing_rank, hang())] == [((3,), ())]


def test_a_sibling_that_the_agent_ended_is_not_missing() -> None:
    """SIGTERM from the agent before any timeout explains the silence of rank 2."""
    ended = sign(Sign.CHILD_SIGTERM, 2, STOPPED, named_ranks=(2,))
    found = proposed(missing_rank, hang(ended, quiet=(2, 3)))
    assert [h.ranks for h in found] == [(3,)]


def test_a_sigterm_after_the_timeouts_explains_no_silence() -> None:
    """The agent ends a frozen rank at the end of the incident: it stays the missing one."""
    ended = sign(Sign.CHILD_SIGTERM, 3, GAVE_UP + 60 * S, named_ranks=(3,))
    assert [h.ranks for h in proposed(missing_rank, hang(ended))] == [(3,)]


def test_ranks_without_logs_are_suspects_not_culprits() -> None:
    """Only rank 0's log is at hand, and it waited: nobody may be named."""
    [found] = proposed(missing_rank, hang(quiet=(), absent=range(1, 8)))
    assert (found.ranks, found.suspects) == ((), (1, 2, 3, 4, 5, 6, 7))


def test_the_rank_with_lower_counters_is_singled_out() -> None:
    """Two quiet ranks; only one enqueued less than those that wait."""
    counts = [status(r, 40, 39) for r in (0, 1, 2)] + [status(5, 38, 38), status(6, 40, 39)]
    found = proposed(missing_rank, hang(*counts, quiet=(5, 6)))
    assert [h.ranks for h in found] == [(5,)]


def silent(ranks: Iterable[int]) -> GraphFinding:
    """Dumps in which these ranks stand still and all others wait for them."""
    claim = GraphClaim(text="it never entered it", origin=Origin(path="dumps/rank_0"))
    root = Root(
        kind=Terminal.HOST_SILENT,
        ranks=tuple(ranks),
        share=1.0,
        blocked=8,
        virtual=False,
        claims=(claim,),
        waited_on=CollectiveRef(desc="default_pg", op="all_reduce", seq=77),
    )
    return GraphFinding(dumps=32, world_size=32, stall=Stall.TIMED_OUT, roots=(root,), blocked=8)


@pytest.mark.parametrize("ranks", [range(4), (3,), (3, 17)])
def test_few_that_stand_still_are_named(ranks: Sequence[int]) -> None:
    made = replace(case(hang(size=32, quiet=())), graph=silent(ranks))
    assert [(h.ranks, h.touched) for h in missing_rank.propose(made)] == [(tuple(ranks), ())]


def test_many_on_several_nodes_share_a_cause() -> None:
    """Twelve ranks of three nodes do not stop by themselves at once: nobody is named or suspected."""
    many = tuple(range(2, 14))
    made = replace(case(hang(size=32, quiet=many)), graph=silent(many))
    found = list(missing_rank.propose(made))
    assert [(h.ranks, h.suspects, h.touched) for h in found] == [((), (), many)]
    said, chosen = weigh(made, found)
    assert (said.kind, said.culprits, chosen) == (Kind.UNDECIDABLE, (), None)
    assert not any(other.ranks for other in said.alternatives)
    assert "none of them is to blame" in said.summary


def test_no_timeouts_no_missing_rank() -> None:
    """Quiet logs alone say nothing."""
    assert proposed(missing_rank, running()) == []


# --- gpu_fault -----------------------------------------------------------------------------------


def test_xid_79_on_the_silent_rank() -> None:
    """The cause code on rank 3's GPU, a second before the silence."""
    found = verdict(hang(xid(79, node=0, gpu=3)))
    assert (found.kind, [c.rank for c in found.culprits]) == (Kind.HARDWARE, [3])
    assert found.confidence > 0.95


@pytest.mark.parametrize("code", [43, 45])
def test_symptom_codes_blame_nobody(code: int) -> None:
    """43 and 45 on an innocent rank leave the verdict as it was."""
    before = verdict(hang())
    after = verdict(hang(xid(code, node=1, gpu=2, at=GAVE_UP + S)))
    assert [c.rank for c in after.culprits] == [c.rank for c in before.culprits] == [3]
    assert after.confidence <= before.confidence
    assert after.kind is Kind.RANK_MISSING


def test_an_old_code_is_no_cause() -> None:
    """Xid 79 two days before on another node is history."""
    assert proposed(gpu_fault, hang(xid(79, node=1, at=STOPPED - 2 * 86400 * S))) == []


def test_an_undated_gauge_is_no_event() -> None:
    """A sticky gauge that never changed has no time and claims nothing."""
    assert proposed(gpu_fault, hang(xid(74, at=None, source="dcgm"))) == []


def test_a_pending_remap_on_a_running_job_is_hardware_without_a_stop() -> None:
    """Xid 63 while the job steps: the GPU is named and nothing says that the job has stopped."""
    found = verdict(running(xid(63, node=0, gpu=2, at=STOPPED - 60 * S)), STOPPED)
    assert found.kind in (Kind.HARDWARE, Kind.HEALTHY)


def test_a_remap_among_many_in_question_explains_no_stop() -> None:
    """The waiting leads to twelve ranks without a dump, and one of their GPUs has Xid 63, which hardly
    ever stops a job: nobody is named for it. Xid 79 in its place is named."""
    graph = silent(range(4, 16))
    root = replace(graph.roots[0], kind=Terminal.HIDDEN)
    for code, named in ((63, []), (79, ["node-1"])):
        facts = hang(xid(code, node=1, gpu=2), size=16, quiet=(), absent=range(1, 16))
        made = replace(case(facts), graph=replace(graph, roots=(root,)))
        found = weigh(made, [h for rule in RULES for h in rule.propose(made)])[0]
        assert [c.node for c in found.culprits] == named


def test_an_xid_on_a_waiting_rank_does_not_beat_the_missing_one() -> None:
    """A fatal code on a rank that waited itself: never that rank at high confidence."""
    found = verdict(hang(xid(74, node=1, gpu=2)))
    assert [c.rank for c in found.culprits] in ([3], [])


# --- network_fault -------------------------------------------------------------------------------


def test_an_adapter_that_reports_itself() -> None:
    """A port error on node-1, accused by node-0: node-1."""
    own = sign(Sign.NIC_ERROR, 5, STOPPED, detail="port error")
    accuse = sign(Sign.PEER_UNREACHABLE, 1, STOPPED + S, peer="10.0.0.1<4242>", detail="status 12")
    found = verdict([*running()[:9], own, accuse])
    assert found.kind is Kind.NETWORK
    assert {c.node for c in found.culprits} == {"node-1"}


def test_one_accusation_alone_names_nobody_for_sure() -> None:
    """A single completion error can be the accuser's own fault."""
    accuse = sign(Sign.PEER_UNREACHABLE, 1, STOPPED + S, peer="10.0.0.1<4242>", detail="status 12")
    assert verdict([*running()[:9], accuse]).kind is Kind.UNDECIDABLE


def test_flushed_completions_are_ignored() -> None:
    """Status 5 follows another error."""
    flushed = sign(Sign.PEER_UNREACHABLE, 1, STOPPED, peer="10.0.0.1<4242>", detail="flushed")
    assert proposed(network_fault, [*running()[:9], flushed]) == []


# --- host_fault ----------------------------------------------------------------------------------


def test_oom_kill_joined_to_the_rank_by_the_agents_exit() -> None:
    """The kernel names a host pid, the agent names local rank 1 with exit -9: rank 5."""
    kill = host(HostSign.OOM_KILL, node=1, at=STOPPED, pid=918234)
    seen = sign(Sign.ROOT_CAUSE_BLOCK, 5, STOPPED + 4 * S, exit_code=-9, named_ranks=(5,))
    found = verdict([*running()[:9], kill, seen])
    assert (found.kind, [c.rank for c in found.culprits]) == (Kind.HOST_OOM, [5])


def test_a_kill_without_an_oom_line_is_a_crash_of_unknown_cause() -> None:
    """Exit -9 alone: killed, sender unknown."""
    seen = sign(Sign.ROOT_CAUSE_BLOCK, 5, STOPPED, exit_code=-9, named_ranks=(5,))
    found = verdict([*running()[:9], seen])
    assert (found.kind, [c.rank for c in found.culprits]) == (Kind.RANK_CRASHED, [5])


def test_storage_that_every_kernel_names_blames_nobody() -> None:
    """Both nodes' kernels say that the file server does not answer."""
    down = [host(HostSign.NFS_DOWN, node=n, at=STOPPED, server="nfs01") for n in (0, 1)]
    found = verdict([*running()[:9], *down], STOPPED + 900 * S)
    assert (found.kind, found.culprits) == (Kind.STORAGE_STALL, ())


def test_retries_of_the_silent_rank_make_it_a_data_stall() -> None:
    """Rank 3 retried its download while seven waited."""
    retry = sign(Sign.DATA_RETRY, 3, STOPPED + 30 * S)
    found = verdict(hang(retry))
    assert (found.kind, [c.rank for c in found.culprits]) == (Kind.DATA_STALL, [3])


def test_retries_of_a_rank_that_waited_are_no_data_stall() -> None:
    """A rank with a timeout of its own did reach the collective."""
    assert proposed(storage_fault, hang(sign(Sign.DATA_RETRY, 2, STOPPED))) == []


# --- program_error -------------------------------------------------------------------------------


def test_an_exception_before_the_others_timeouts() -> None:
    """Rank 3's own exception, ten minutes before the first timeout."""
    crash = sign(Sign.PYTHON_EXCEPTION, 3, STOPPED, detail="ValueError: bad sample")
    found = verdict(hang(crash))
    assert (found.kind, [c.rank for c in found.culprits]) == (Kind.RANK_CRASHED, [3])


def test_an_exception_after_the_timeouts_is_a_consequence() -> None:
    """What a witness raises while it aborts is no cause."""
    late = sign(Sign.PYTHON_EXCEPTION, 2, GAVE_UP + 30 * S, detail="RuntimeError: aborted")
    assert proposed(program_error, hang(late)) == []


def test_an_effect_by_its_own_words_is_no_cause() -> None:
    """A remote peer's death shows as an exception here."""
    effect = sign(Sign.PYTHON_EXCEPTION, 2, STOPPED, detail="effect: DistBackendError")
    assert proposed(program_error, hang(effect)) == []


@pytest.mark.parametrize("code", [-6, -15, 134, 143])
def test_aborts_and_sigterms_are_innocent(code: int) -> None:
    """SIGABRT is what a watchdog does, SIGTERM comes from outside."""
    seen = sign(Sign.ROOT_CAUSE_BLOCK, 2, GAVE_UP + S, exit_code=code, named_ranks=(2,))
    assert proposed(program_error, hang(seen)) == []


def test_the_same_error_everywhere_blames_nobody() -> None:
    """All ranks raise the same exception at once: code, no rank."""
    crash = [sign(Sign.PYTHON_EXCEPTION, r, STOPPED, detail="KeyError: 'lr'") for r in range(8)]
    [found] = proposed(program_error, [*running()[:9], *crash])
    assert (found.kind, found.ranks) == (Kind.RANK_CRASHED, ())


# --- collective_mismatch -------------------------------------------------------------------------


def test_the_odd_size_is_named_against_a_majority() -> None:
    """Seven sizes agree on number 77, rank 0's does not."""
    facts = [*hang(quiet=())[:10], *[timeout(r, numel=99 if r == 0 else 64) for r in range(8)]]
    [found] = proposed(collective_mismatch, facts)
    assert found.ranks == (0,)


def test_an_even_split_names_nobody() -> None:
    """Four against four: a mismatch, and no side."""
    facts = [*hang(quiet=())[:10], *[timeout(r, numel=99 if r < 4 else 64) for r in range(8)]]
    [found] = proposed(collective_mismatch, facts)
    assert found.ranks == ()


def test_different_numbers_are_no_mismatch() -> None:
    """Operations of different sequence numbers may differ."""
    facts = [*hang(quiet=())[:10], *[timeout(r, numel=r, seq=r) for r in range(8)]]
    assert proposed(collective_mismatch, facts) == []


# --- slow_rank -----------------------------------------------------------------------------------


def report(rank: int, value: float) -> LogSign:
    return sign(
        Sign.SLOW_SECTION,
        0,
        STOPPED,
        named_ranks=(rank,),
        value=value,
        expected_value=0.6,
        detail="fwd",
    )


def test_the_outlier_of_a_report_is_a_straggler() -> None:
    """Rank 5 needs 2.1 s where the others need 0.6 s, and the job runs."""
    reports = [report(r, 2.1 if r == 5 else 0.61) for r in range(8)]
    found = verdict(running(*reports), STOPPED)
    assert (found.kind, [c.rank for c in found.culprits]) == (Kind.STRAGGLER, [5])


def test_even_sections_are_no_straggler() -> None:
    """A report in which nobody stands out."""
    reports = [report(r, 0.6 + r / 100) for r in range(8)]
    assert proposed(slow_rank, running(*reports), STOPPED) == []


def reports(*slowest: int, value: float = 2.1) -> list[LogSign]:
    """One report a step, each with its slowest rank."""
    return [
        replace(report(rank, value), at_ns=STOPPED - (9 - n) * 2 * S, step=10 + n)
        for n, rank in enumerate(slowest)
    ]


def test_reports_that_name_one_rank_after_the_other_blame_nobody() -> None:
    """The work is uneven: no culprit, and nothing is cordoned."""
    found = verdict(running(*reports(5, 2, 7, 1, 4)), STOPPED)
    assert (found.kind, found.culprits) == (Kind.STRAGGLER, ())
    assert "unevenly" in found.summary


def test_reports_that_agree_name_a_rank_that_is_a_little_slower() -> None:
    """A fifth slower in each of three reports; one such report is too little."""
    found = verdict(running(*reports(5, 5, 5, value=0.72)), STOPPED)
    assert (found.kind, [c.rank for c in found.culprits]) == (Kind.STRAGGLER, [5])
    assert proposed(slow_rank, running(*reports(5, value=0.72)), STOPPED) == []


def test_rows_without_times_are_reports_of_their_own() -> None:
    """Three reports in a log without times, some lines apart."""
    rows = [
        replace(report(rank, 1.6), at_ns=None, origin=stories.origin(0, 10 * n))
        for n, rank in enumerate((5, 2, 7), start=1)
    ]
    assert verdict(running(*rows), STOPPED).culprits == ()


def slower(factor: float, *more: Fact) -> list[Fact]:
    """All ranks step in 2 s until twenty steps ago, and slower since."""
    facts: list[Fact] = []
    for fact in running(*more):
        if isinstance(fact, Progress):
            begin = STOPPED - round(20 * 2 * factor * S)
            since = tuple(
                StepPoint(
                    at_ns=begin + round(2 * factor * n * S), step=19 + n, step_s=None, line=40 + n
                )
                for n in range(1, 21)
            )
            early = tuple(replace(p, at_ns=(p.at_ns or 0) - (STOPPED - begin)) for p in fact.points)
            fact = replace(fact, points=early + since)
        facts.append(fact)
    return facts


FELL = STOPPED - 60 * S  # the pace, where steps take 3 s for 20 steps


def test_a_slowdown_that_names_nobody_leaves_everybody() -> None:
    """Undecidable, with all ranks in question."""
    found = verdict(slower(1.5), STOPPED)
    assert found.kind is Kind.UNDECIDABLE
    assert found.alternatives[0].ranks == tuple(range(8))


def test_a_small_slowdown_counts_where_it_is_clear() -> None:
    """A fifth longer, each step; a twentieth is nothing."""
    assert [h.reason_tag for h in proposed(slow_rank, slower(1.2), STOPPED)] == ["slow steps"]
    assert proposed(slow_rank, slower(1.05), STOPPED) == []


def test_the_gpu_that_lost_power_when_the_pace_fell_is_the_slow_one() -> None:
    """XID 54 on one GPU in that minute; an hour before it is something else, on two it is nobody."""
    [found] = [
        h
        for h in proposed(slow_rank, slower(1.5, xid(54, at=FELL)), STOPPED)
        if h.kind is Kind.HARDWARE
    ]
    assert (found.ranks, found.degrades, round(found.slowdown or 0, 1)) == ((0,), True, 1.5)
    for others in ([xid(54, at=FELL - 3600 * S)], [xid(54, at=FELL), xid(54, 1, 2, at=FELL)]):
        made = proposed(slow_rank, slower(1.5, *others), STOPPED)
        assert [h.kind for h in made] == [Kind.STRAGGLER]


@pytest.mark.parametrize(
    ("count", "kind", "named"),
    [
        (3, HostSign.PCIE_ERROR, True),
        (1, HostSign.PCIE_ERROR, False),
        (1, HostSign.PCIE_DEGRADED, True),
    ],
)
def test_a_pcie_link_that_fell_ill_with_the_pace(count: int, kind: HostSign, named: bool) -> None:
    """Errors that do not end, or a width that fell, on one node; one corrected error is nothing."""
    lines = [host(kind, 1, FELL + n * S, fatal=False) for n in range(count)]
    made = [h for h in proposed(slow_rank, slower(1.5, *lines), STOPPED) if h.nodes]
    assert [h.nodes for h in made] == ([("node-1",)] if named else [])


def test_a_straggler_on_a_node_with_a_slowing_fault_is_one_story() -> None:
    """The fault names the node, the reports the rank."""
    unplaced = xid(54, 1, at=FELL, pci_bus_id="0000:7f:00")
    found = verdict(slower(1.5, unplaced, *reports(5, 5, 5)), STOPPED)
    assert (found.kind, [c.rank for c in found.culprits]) == (Kind.HARDWARE, [5])


# --- rendezvous ----------------------------------------------------------------------------------


def test_the_absent_client_is_named_by_its_pod() -> None:
    """Seven of eight joined; pod-1 cannot pull its image; only rank 7 left no line."""
    joined = sign(Sign.CLIENTS_JOINED, 0, STOPPED, joined=7, expected=8)
    facts = [*stories.places(), JobNumbers(source="file", world_size=8), joined]
    facts += [writes(r, STOPPED) for r in range(7)]
    [found] = proposed(rendezvous, facts)
    assert found.ranks == (7,)


def test_a_step_rules_out_a_rendezvous_failure() -> None:
    """Once a step was made the job had started."""
    joined = sign(Sign.CLIENTS_JOINED, 0, STOPPED, joined=7, expected=8)
    assert proposed(rendezvous, running(joined), STOPPED) == []


def test_nobody_is_named_when_the_numbers_do_not_fit() -> None:
    """Three missing clients and seven ranks without a line: the set is not told."""
    joined = sign(Sign.CLIENTS_JOINED, 0, STOPPED, joined=5, expected=8)
    facts = [*stories.places(), JobNumbers(source="file", world_size=8), joined, writes(0, STOPPED)]
    [found] = proposed(rendezvous, facts)
    assert found.ranks == ()


# --- healthy -------------------------------------------------------------------------------------


def test_a_job_in_rhythm_is_healthy() -> None:
    """The last step is a second old."""
    found = verdict(running(), STOPPED + S)
    assert (found.kind, found.culprits) == (Kind.HEALTHY, ())


def test_an_old_last_step_is_not_healthy() -> None:
    """Twenty minutes without a step of a job that prints one each two seconds."""
    assert proposed(healthy, running(), STOPPED + 1200 * S) == []


def test_a_job_is_not_called_healthy_where_nobody_told_what_time_it_is() -> None:
    """Its last line may be the last one for an hour."""
    found = verdict(running())
    assert found.kind is Kind.UNDECIDABLE
    assert "--as-of now" in found.summary


def test_finished_before_the_noise() -> None:
    """Errors after the end of training are teardown."""
    done = [sign(Sign.FINISHED, r, STOPPED) for r in range(8)]
    noise = sign(Sign.WATCHDOG_STUCK, 2, STOPPED + 480 * S)
    assert verdict(running(*done, noise), STOPPED + 900 * S).kind is Kind.HEALTHY


def test_an_attempt_of_one_step_is_too_young_to_be_called_healthy() -> None:
    """Younger than two of its own steps: time will settle it."""
    facts = [f for f in running() if not hasattr(f, "points")]
    assert verdict([*facts, stories.steps(count=1)], STOPPED).kind is Kind.UNDECIDABLE


def test_terminated_containers_of_all_ranks_stop_the_job() -> None:
    """A rank's life is its container's status, never the pod's phase."""
    pod = ended_pod(0, STOPPED)
    assert stories.case([pod, replace(pod, name="pod-1")]).stop.stopped is True


def test_containers_that_end_together_blame_nobody() -> None:
    """The end of a job is no crash of each of its pods; one that ended a minute earlier is."""
    together = [ended_pod(n, STOPPED + n * S // 4) for n in range(4)]
    alone = [ended_pod(0, STOPPED - 60 * S), *together[1:]]
    assert proposed(program_error, [*places(16), *together]) == []
    [found] = proposed(program_error, [*places(16), *alone])
    assert (found.ranks, found.suspects) == ((), (0, 1, 2, 3))


# --- a job that pauses ---------------------------------------------------------------------------


PAUSED = STOPPED + 100 * S  # fifty step intervals without a step


def test_a_save_that_began_after_the_last_step_explains_the_pause() -> None:
    """A hundred seconds into a save, well within half of the watchdog timeout."""
    facts = running(sign(Sign.SAVE_STARTED, 0, STOPPED + S))
    found = verdict(facts, PAUSED)
    assert (found.kind, found.culprits) == (Kind.HEALTHY, ())
    assert "save began" in found.summary


def test_a_save_far_longer_than_saves_take_explains_nothing() -> None:
    """Saves took five seconds; this one has run for a hundred."""
    earlier = [
        sign(Sign.SAVE_STARTED, 0, STOPPED - 20 * S, step=9),
        sign(Sign.SAVE_DURABLE, 0, STOPPED - 15 * S, step=9),
    ]
    facts = running(*earlier, sign(Sign.SAVE_STARTED, 0, STOPPED + S, step=19))
    assert verdict(facts, PAUSED).kind is Kind.UNDECIDABLE


@pytest.mark.parametrize("phase", [Sign.EVAL_STARTED, Sign.COMPILE_STARTED])
def test_an_evaluation_or_a_compilation_explains_the_pause(phase: Sign) -> None:
    """It began after the last step; an older one, or one that has run for ever, explains nothing."""
    assert verdict(running(sign(phase, 0, STOPPED + S)), PAUSED).kind is Kind.HEALTHY
    assert verdict(running(sign(phase, 0, STOPPED - 30 * S)), PAUSED).kind is Kind.UNDECIDABLE
    long_ago = STOPPED + 400 * S
    assert verdict(running(sign(phase, 0, STOPPED + S)), long_ago).kind is Kind.UNDECIDABLE


def pausing(seconds: int) -> list[Fact]:
    """A job that paused once between its steps."""
    facts = []
    for fact in running():
        if isinstance(fact, Progress):
            early = tuple(
                replace(p, at_ns=(p.at_ns or 0) - seconds * S) if p.step < 10 else p
                for p in fact.points
            )
            fact = replace(fact, points=early)
        facts.append(fact)
    return facts


def test_a_pause_as_long_as_an_earlier_one_is_a_habit() -> None:
    """It paused for 90 s before and went on; after 20 s nothing like it was seen."""
    assert verdict(pausing(90), PAUSED).kind is Kind.HEALTHY
    assert verdict(pausing(20), PAUSED).kind is Kind.UNDECIDABLE
    assert verdict(running(), PAUSED).kind is Kind.UNDECIDABLE


def test_a_pause_with_an_error_in_it_is_not_healthy() -> None:
    """A save was open when a rank died of an exception."""
    error = sign(Sign.PYTHON_EXCEPTION, 3, STOPPED + 50 * S)
    found = verdict(running(sign(Sign.SAVE_STARTED, 0, STOPPED + S), error), PAUSED)
    assert found.kind is not Kind.HEALTHY


def test_a_watchdog_that_gave_up_is_no_pause() -> None:
    """The save is open, and seven ranks timed out."""
    facts = hang(sign(Sign.SAVE_STARTED, 0, STOPPED + S))
    assert verdict(facts, GAVE_UP + 60 * S).kind is not Kind.HEALTHY


# --- gpu_reading ---------------------------------------------------------------------------------


def clock(gpu: int, last: float, *, high: float = 1980.0, median: float = 1980.0) -> GpuReading:
    return GpuReading(
        field="DCGM_FI_DEV_SM_CLOCK",
        node="node-0",
        gpu_uuid=f"GPU-{gpu}",
        pci_bus_id=f"0000:{0x10 + gpu:02x}:00.0",
        gpu_index=gpu,
        first=high,
        last=last,
        low=last,
        high=high,
        median=median,
        first_ns=STOPPED - 600 * S,
        last_ns=STOPPED,
        changed_ns=STOPPED - 60 * S if last != high else None,
        samples=40,
        origin=Origin(path="metrics/dcgm.json", entry=gpu),
    )


@pytest.mark.parametrize(
    ("lasts", "named"),
    [
        ((1980, 1275, 1980, 1980), [(1,)]),
        ((1275, 1275, 1275, 1980), []),
        ((1980, 1900, 1980, 1980), []),
    ],
)
def test_a_clock_that_fell_late(lasts: Sequence[float], named: list[tuple[int, ...]]) -> None:
    """Most samples are older than the fall, so that the median does not show it; where most GPUs fell
    together none stands out."""
    facts = running(*(clock(gpu, last) for gpu, last in enumerate(lasts)))
    assert [h.ranks for h in proposed(gpu_reading, facts)] == named


# --- claims --------------------------------------------------------------------------------------


def test_who_was_ended_with_its_node_was_not_lost_by_chance() -> None:
    """Rank 5 stopped and the agent ended its node: that its siblings left no dump says nothing of how
    often dumps are lost, so that a hang in flight is no likelier for it."""
    whole, some = (4, 5, 6, 7), (0, 5, 9, 14)
    odds = []
    for missing in (whole, some):
        graph = silent((5,))
        root = replace(graph.roots[0], kind=Terminal.HIDDEN, flight=(1, 5))
        made = replace(case(hang(size=16)), graph=replace(graph, roots=(root,), missing=missing))
        odds.append(claims.flight_odds(made, root))
    assert odds[0] < odds[1]


@pytest.mark.parametrize(
    ("facts", "missing", "named"),
    [
        (hang(size=16, quiet=(), absent=range(1, 16)), (2, 5, 9, 14), False),
        (hang(size=16, quiet=(5,), absent={*range(1, 16)} - {5}), (2, 5, 9, 14), True),
        (hang(size=16, quiet=(), absent=(5,)), (2, 5, 9, 14), True),
        (hang(size=16, quiet=(), absent=range(1, 16)), (5,), True),
    ],
    ids=[
        "many dumps lost",
        "its log has no timeout",
        "all others complained",
        "no other dump lost",
    ],
)
def test_who_may_wait_in_a_hang_in_flight_is_not_named(
    facts: Sequence[Fact], missing: tuple[int, ...], named: bool
) -> None:
    """The waiting leads to rank 5, which left no dump. Where dumps are lost by chance, and no log tells
    that it did not wait, its operation may as well hang in flight."""
    graph = silent((5,))
    root = replace(graph.roots[0], kind=Terminal.HIDDEN, flight=(1, 5))
    made = replace(case(facts), graph=replace(graph, roots=(root,), missing=missing))
    ranks = {h.ranks for h in missing_rank.propose(made) if h.claims[0].weight >= claims.FAIR}
    assert ranks == ({(5,)} if named else {()})
