"""Causes that several lines name together: each rule on what it finds, on what looks alike, on too little."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpufleet_cli.facts import ClusterEvent, HostSign, IdentityLink, Link, Origin, Sign, Speaker
from gpufleet_cli.rules import (
    gpu_fault,
    host_fault,
    network_fault,
    node_fault,
    program_error,
    storage_fault,
)
from gpufleet_cli.verdict import Kind
from rules.stories import (
    GAVE_UP,
    STOPPED,
    S,
    hang,
    host,
    proposed,
    running,
    sign,
    verdict,
    xid,
)


def link(node: int, after: float, *, down: bool = True, device: str = "ib0") -> object:
    kind = HostSign.NIC_DOWN if down else HostSign.NIC_UP
    return host(kind, node=node, at=STOPPED + round(after * S), device=device)


def accuse(rank: int, peer: str) -> object:
    return sign(Sign.PEER_UNREACHABLE, rank, STOPPED + 9 * S, peer=peer, detail="status 12")


# --- network_fault -------------------------------------------------------------------------------


def test_links_of_several_nodes_that_go_together_blame_none_of_them() -> None:
    """Two of four nodes lose their links within a second: what they share."""
    facts = hang(link(1, 0.1), link(2, 0.7), quiet=(), size=16)
    found = verdict(facts)
    assert (found.kind, found.culprits) == (Kind.NETWORK, ())


def test_links_that_go_minutes_apart_are_two_stories() -> None:
    """Far from one moment: a node each, and nothing shared."""
    found = proposed(network_fault, hang(link(1, -500), link(2, 0.1), size=16))
    assert [h.nodes for h in found] == [("node-1",), ("node-2",)]


def test_a_link_that_came_back_at_once_is_no_fault() -> None:
    assert proposed(network_fault, hang(link(1, 0), link(1, 0.5, down=False))) == []


def test_a_link_that_comes_and_goes_is_one() -> None:
    """Three times within a minute: node-1, although it always came back."""
    flaps = [link(1, 20 * n + up, down=not up) for n in range(3) for up in (0, 1)]
    [found] = proposed(network_fault, hang(*flaps))
    assert (found.kind, found.nodes) == (Kind.NETWORK, ("node-1",))


def test_an_adapter_that_one_process_reports_names_its_rank() -> None:
    [found] = proposed(network_fault, hang(sign(Sign.NIC_ERROR, 5, STOPPED, detail="port error")))
    assert (found.ranks, found.nodes) == ((5,), ("node-1",))


def test_a_port_that_one_process_saw_come_back_is_no_fault() -> None:
    gone = sign(Sign.NIC_ERROR, 5, STOPPED, detail="port error", device="mlx5_1:1")
    back = sign(Sign.NIC_RECOVERED, 5, STOPPED + S, detail="port active", device="mlx5_1:1")
    assert proposed(network_fault, hang(gone, back)) == []


@pytest.mark.parametrize(("lines_between", "is_fault"), [(2, False), (400, True)])
def test_a_port_that_came_back_a_few_lines_on_is_no_fault(
    lines_between: int, is_fault: bool
) -> None:
    """NCCL's lines bear no time here: in one file their order tells."""
    gone = sign(Sign.NIC_ERROR, 5, None, detail="port error", device="mlx5_1:1")
    later = Origin(path=gone.origin.path, line=(gone.origin.line or 0) + lines_between)
    back = replace(gone, sign=Sign.NIC_RECOVERED, detail="port active", origin=later)
    assert bool(proposed(network_fault, hang(gone, back))) is is_fault


def test_an_address_that_all_others_accuse_is_the_last_nodes() -> None:
    """No file says whose 10.9.9.9 is; three of four nodes cannot reach it, and nobody accuses itself."""
    facts = running(*(accuse(rank, "10.9.9.9<4242>") for rank in (0, 4, 8)), size=16)
    [found] = proposed(network_fault, facts)
    assert found.nodes == ("node-3",)


def test_an_address_that_nobody_explains_is_no_node() -> None:
    """Two accusers leave two nodes: their ranks are in question."""
    facts = running(*(accuse(rank, "10.9.9.9<4242>") for rank in (0, 4)), size=16)
    [found] = proposed(network_fault, facts)
    assert (found.nodes, found.ranks, found.suspects) == ((), (), tuple(range(8, 16)))


def test_a_closed_connection_leaves_the_ranks_elsewhere() -> None:
    """All that is left is one rank that lost a peer: anybody else may be the one."""
    closed = sign(Sign.PEER_CLOSED, 1, STOPPED, peer="10.9.9.9")
    ended = sign(Sign.ABORT, 1, STOPPED + S)
    found = proposed(network_fault, [*running()[:9], closed, ended])
    assert [(h.generic, h.suspects) for h in found] == [(True, (4, 5, 6, 7))]


# --- host_fault ----------------------------------------------------------------------------------

LOADER = sign(Sign.LOADER_KILLED, 3, STOPPED, detail="Killed")


def test_a_kill_for_memory_joined_to_the_rank_by_its_loader() -> None:
    """The kernel killed a process of node-0; rank 3 lost a worker of its loader in that moment."""
    found = verdict(hang(host(HostSign.OOM_KILL, pid=4711), LOADER))
    assert (found.kind, [c.rank for c in found.culprits]) == (Kind.HOST_OOM, [3])


def test_a_killed_loader_alone_does_not_say_why() -> None:
    found = verdict(hang(LOADER))
    assert (found.kind, [c.rank for c in found.culprits]) == (Kind.RANK_CRASHED, [3])


def test_a_kill_in_a_pod_of_another_job_is_not_this_jobs() -> None:
    """The uids of this job's pods are known, and the kill was in none of them."""
    own = IdentityLink(
        how=Link.TOPOLOGY_FILE,
        origin=Origin(path="topology.json"),
        rank=0,
        pod="pod-0",
        pod_uid="1111",
        node="node-0",
    )
    kill = host(HostSign.OOM_KILL, pid=4711, pod_uid="2222")
    assert proposed(host_fault, hang(own, kill)) == []


def test_an_event_repeats_the_kernels_kill() -> None:
    event = ClusterEvent(
        reason="OOMKilling",
        kind="Node",
        name="node-0",
        namespace=None,
        message="Memory cgroup out of memory: Killed process 4711 (python)",
        warning=True,
        at_ns=STOPPED + S,
        age_s=None,
        age_error_s=0.0,
        count=1,
        origin=Origin(path="events.json", entry=1),
    )
    exited = sign(Sign.CHILD_FAILED, 3, STOPPED + 2 * S, named_ranks=(3,), exit_code=-9)
    [found] = proposed(host_fault, hang(event, exited))
    assert (found.kind, found.ranks) == (Kind.HOST_OOM, (3,))


# --- gpu_fault -----------------------------------------------------------------------------------


def test_a_lost_gpu_whose_host_gives_up_like_all_others() -> None:
    """All eight watchdogs complain, that of the sick GPU too: its CPU lives."""
    found = verdict(hang(xid(119, node=0, gpu=3), quiet=()))
    assert (found.kind, [c.rank for c in found.culprits]) == (Kind.HARDWARE, [3])


def test_a_lost_gpu_that_waited_beside_a_rank_that_gave_up_on_nothing() -> None:
    """Rank 3 alone complains of nothing: a code on rank 6, which waited, does not make it rank 6."""
    [found] = proposed(gpu_fault, hang(xid(119, node=1, gpu=2)))
    assert any(not claim.supports for claim in found.claims)


# --- node_fault ----------------------------------------------------------------------------------


def unplaced(facts: list[object], *ranks: int) -> list[object]:
    """Without the map's word on some ranks."""
    return [f for f in facts if not (isinstance(f, IdentityLink) and f.rank in ranks)]


def test_a_failed_node_that_placed_no_rank_ran_those_that_nobody_placed() -> None:
    """srun names a node that no rank's line did; four ranks of sixteen have no node."""
    lost = range(8, 12)
    facts = unplaced(hang(quiet=lost, size=16), *lost)
    facts = [
        replace(f, speaker=Speaker(stream="x", rank=f.speaker.rank))
        if getattr(f, "speaker", None) and f.speaker.rank in lost
        else f
        for f in facts
    ]  # type: ignore[attr-defined,type-var]
    line = replace(sign(Sign.NODE_FAILED, None, None, peer="node-9"), speaker=Speaker(stream="s"))
    [found] = proposed(node_fault, [*facts, line])  # type: ignore[list-item]
    assert (found.nodes, found.ranks) == (("node-9",), (8, 9, 10, 11))


def test_a_failed_node_of_another_job_is_not_this_jobs() -> None:
    """All ranks have nodes, and this is none of them."""
    line = replace(sign(Sign.NODE_FAILED, None, None, peer="node-9"), speaker=Speaker(stream="s"))
    assert proposed(node_fault, hang(line)) == []


def not_ready(node: str, first_ns: int, last_ns: int) -> ClusterEvent:
    return ClusterEvent(
        reason="NodeNotReady",
        kind="Node",
        name=node,
        namespace=None,
        message=f"Node {node} status is now: NodeNotReady",
        warning=False,
        at_ns=last_ns,
        first_ns=first_ns,
        age_s=None,
        age_error_s=0.0,
        origin=Origin(path="events.json", entry=1),
    )


def test_a_control_plane_that_lost_sight_of_many_nodes_hides_no_fault() -> None:
    """Nodes that were called not ready and whose ranks went on are many: none of them is a suspect. The node
    all of whose ranks fell silent still is."""
    at = STOPPED + 40 * S
    lost_sight = [not_ready(f"node-{index}", at, at) for index in range(1, 50)]
    facts = hang(*lost_sight, xid(79, gpu=3, at=STOPPED + 20 * S), size=200)
    assert proposed(node_fault, facts) == []
    found = verdict(facts)
    assert (found.kind, [c.node for c in found.culprits]) == (Kind.HARDWARE, ["node-0"])
    dead = hang(*lost_sight, not_ready("node-0", at, at), quiet=range(4), size=200)
    assert [one.nodes for one in proposed(node_fault, dead)] == [("node-0",)]


@pytest.mark.parametrize(
    ("first_s", "last_s", "is_told"),
    [(40, 40, True), (1200, 1200, False), (-90_000, -90_000, False), (-90_000, 45, True)],
    ids=["in-the-stall", "after-the-end", "the-day-before", "flapping-until-now"],
)
def test_an_event_of_a_node_counts_at_its_time(first_s: int, last_s: int, *, is_told: bool) -> None:
    """A node that the cluster lost after the job was over did not end it, nor did one of yesterday."""
    event = not_ready("node-0", STOPPED + first_s * S, STOPPED + last_s * S)
    assert bool(proposed(node_fault, hang(event, quiet={0, 1, 2, 3}))) is is_told


def without_nodes(facts: list[object]) -> list[object]:
    return [replace(f, node=None) if isinstance(f, IdentityLink) else f for f in facts]


def test_a_pod_whose_ranks_all_fall_silent_together_is_a_set() -> None:
    """Nothing names what its four ranks have in common: none of them is named, and nobody else."""
    facts = without_nodes(hang(quiet=range(4, 8), size=16))
    found = verdict(facts)  # type: ignore[arg-type]
    assert (found.kind, found.culprits) == (Kind.UNDECIDABLE, ())
    assert found.alternatives[0].ranks == (4, 5, 6, 7)


# --- storage_fault -------------------------------------------------------------------------------


def test_one_nodes_mount_and_its_one_silent_rank() -> None:
    """node-0 alone has lost its server, and rank 3 on it stands still: rank 3."""
    found = verdict(hang(host(HostSign.NFS_DOWN, server="nfs01"), size=16))
    assert (found.kind, [c.rank for c in found.culprits]) == (Kind.STORAGE_STALL, [3])


def saves(*ranks: int, finished: bool = False) -> list[object]:
    kinds = (Sign.SAVE_STARTED, Sign.SAVE_DURABLE) if finished else (Sign.SAVE_STARTED,)
    return [sign(k, r, STOPPED + n * S // 9) for r in ranks for n, k in enumerate(kinds)]


def test_most_ranks_that_never_come_out_of_a_save() -> None:
    """Six of eight began a checkpoint and gave up on nothing: storage, nobody to blame."""
    stuck = (0, 1, 2, 4, 5, 6)
    facts = hang(*saves(*stuck), *saves(3, 7, finished=True), quiet=stuck)  # type: ignore[arg-type]
    found = verdict(facts)
    assert (found.kind, found.culprits) == (Kind.STORAGE_STALL, ())


def test_one_rank_that_never_comes_out_of_a_save_is_no_outage() -> None:
    others = saves(*(r for r in range(8) if r != 3), finished=True)
    assert proposed(storage_fault, hang(*saves(3), *others)) == []  # type: ignore[arg-type]


# --- Two faults ----------------------------------------------------------------------------------


def crash_and_stall(*more: object) -> list[object]:
    """Rank 1 dies by a signal and takes node-0 along; rank 6 stands still on node-1 of four."""
    died = sign(Sign.CHILD_FAILED, 1, STOPPED, named_ranks=(1,), exit_code=-11)
    ended = [sign(Sign.CHILD_SIGTERM, r, STOPPED + S, named_ranks=(r,)) for r in (0, 2, 3)]
    return hang(died, *ended, *more, quiet=(0, 1, 2, 3, 6), size=16)  # type: ignore[arg-type,return-value]


def test_a_crash_and_a_rank_of_another_node_that_stands_still() -> None:
    alive = sign(Sign.DUMP_SIGNAL_OTHER, 6, GAVE_UP + S)
    found = verdict(crash_and_stall(alive))  # type: ignore[arg-type]
    assert [c.rank for c in found.culprits] == [1, 6]


def test_a_crash_and_a_rank_that_lost_its_peer_are_one_fault() -> None:
    """Rank 6 ended because a peer did: no second fault."""
    alive = sign(Sign.DUMP_SIGNAL_OTHER, 6, GAVE_UP + S)
    victim = sign(Sign.PEER_CLOSED, 6, STOPPED + 2 * S, peer="10.0.0.0")
    found = verdict(crash_and_stall(alive, victim))  # type: ignore[arg-type]
    assert 6 not in [c.rank for c in found.culprits] or len(found.culprits) == 1


def test_a_crash_alone_is_one_fault() -> None:
    died = sign(Sign.CHILD_FAILED, 3, STOPPED, named_ranks=(3,), exit_code=-11)
    assert [c.rank for c in verdict(hang(died)).culprits] == [3]


@pytest.mark.parametrize("detail", ["Killed", "Bus error"])
def test_only_a_kill_leaves_open_why_a_loader_ended(detail: str) -> None:
    """A bus error is told by its words: shared memory."""
    [found] = proposed(program_error, hang(replace(LOADER, detail=detail)))
    assert found.generic is (detail == "Killed")


# --- More of what lines tell together ------------------------------------------------------------


def test_a_crash_that_only_the_kernel_saw_leaves_its_nodes_ranks() -> None:
    """A Python process of node-0 crashed: the node, its rank open."""
    crash = host(HostSign.SEGFAULT, process="python3", pid=77)
    [found] = proposed(host_fault, hang(crash))
    assert (found.kind, found.nodes, found.ranks) == (Kind.RANK_CRASHED, ("node-0",), ())
    assert found.suspects == (0, 1, 2, 3)


def test_a_crash_of_another_program_is_none_of_a_rank() -> None:
    assert proposed(host_fault, hang(host(HostSign.SEGFAULT, process="java", pid=77))) == []


def test_all_adapters_of_a_node_do_not_fail_by_themselves() -> None:
    """Four links of node-1 within a second: what they hang on, and node-1 is not evicted for it."""
    links = [link(1, n / 9, device=f"ib{n}") for n in range(4)]
    [found] = proposed(network_fault, hang(*links, quiet=()))
    assert (found.nodes, found.spread) == ((), ("node-1",))


def test_an_adapter_of_a_node_explains_who_is_accused() -> None:
    """Two of four nodes accuse an address that no file explains; node-3 reports its own adapter."""
    own = sign(Sign.NIC_ERROR, 12, STOPPED, detail="port error")
    facts = running(own, *(accuse(rank, "10.9.9.9<4242>") for rank in (0, 4)), size=16)
    [found] = proposed(network_fault, facts)
    assert (found.nodes, found.ranks) == (("node-3",), (12,))
    assert len(found.claims) == 3


def test_two_crashes_of_two_nodes_are_two_faults() -> None:
    """Clocks differ by seconds; an exception of one's own and a segmentation fault explain neither the other."""
    one = sign(Sign.PYTHON_EXCEPTION, 1, STOPPED, detail="KeyError: 'text'")
    other = sign(Sign.FATAL_SIGNAL, 6, STOPPED + 20 * S, detail="Segmentation fault")
    [found] = proposed(program_error, hang(one, other, quiet=(1, 6)))
    assert found.ranks == (1, 6)


def test_a_signal_that_is_none_of_its_own_is_no_second_fault() -> None:
    one = sign(Sign.PYTHON_EXCEPTION, 1, STOPPED, detail="KeyError: 'text'")
    other = sign(Sign.FATAL_SIGNAL, 6, STOPPED + 20 * S, detail="Aborted")
    [found] = proposed(program_error, hang(one, other, quiet=(1, 6)))
    assert found.ranks == (1,)


def test_many_ranks_in_a_save_whose_nodes_nobody_tells() -> None:
    """Pods stand for nodes: six ranks of two pods never came out of a save."""
    stuck = (0, 1, 2, 4, 5, 6)
    facts = hang(*saves(*stuck), *saves(3, 7, finished=True), quiet=stuck)  # type: ignore[arg-type]
    [found] = proposed(storage_fault, without_nodes(facts))  # type: ignore[arg-type]
    assert (found.kind, found.nodes, found.spread) == (Kind.STORAGE_STALL, (), ("pod-0", "pod-1"))
