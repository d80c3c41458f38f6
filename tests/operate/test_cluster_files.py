"""Topology, Kubernetes objects and metrics of made incidents, read back by gpufleet's own parsers."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from builders import evidence
from incident_stories import story

from gpufleet_cli.facts import (
    ClusterEvent,
    Fact,
    GpuReading,
    IdentityLink,
    JobNumbers,
    NodeState,
    PodState,
    SeriesEnd,
    XidEvent,
)
from gpufleet_cli.operate.simulate import cluster_files, gathered
from gpufleet_cli.operate.simulate.gathered import XIDS
from gpufleet_cli.operate.simulate.story import Class, Story, Written
from gpufleet_cli.parsers import dcgm_metrics, job_files, kubernetes_objects, kubernetes_tables
from gpufleet_cli.verdict import Kind

SEEDS = range(30)


def write(of: Story, *, bus_known: bool | None = None) -> Written:
    return cluster_files.write(of, Random(of.seed), bus_known=bus_known)


def worlds(cls: Class, *, seeds: range = SEEDS, **how: object) -> Iterator[tuple[Story, Written]]:
    for seed in seeds:
        made = story(cls, seed=seed, **how)  # type: ignore[arg-type]
        yield made, write(made)


def facts(found: Written, path: str) -> list[Fact]:
    """What the parser of a file reads."""
    given = evidence(found.files[path], path)
    for parser in (job_files, dcgm_metrics, kubernetes_objects, kubernetes_tables):
        if parser.matches(path, given.head):
            return list(parser.parse(given))
    raise AssertionError(f"nobody reads {path}")


@pytest.mark.parametrize("identity", ["topology", "pods", "logs"])
@pytest.mark.parametrize("cls", [c for c in Class if c is not Class.TWO_FAULTS])
def test_every_file_is_read_and_every_clue_stands_in_its_file(cls: Class, identity: str) -> None:
    for made, found in worlds(cls, seeds=range(10), identity=identity, size=16):
        for path in found.files:
            assert facts(found, path)
        guilty = {rank for fault in made.faults for rank in fault.ranks}
        for clue in found.clues:
            assert clue.text in found.files[clue.path].decode()
            assert guilty <= set(clue.ranks)


def test_identity_decides_what_ties_ranks_to_nodes() -> None:
    for identity, wanted in (
        ("topology", {"topology.json"}),
        ("pods", {"pods.json"}),
        ("logs", set()),
    ):
        for _, found in worlds(Class.SKIPPED, identity=identity):
            assert wanted == found.files.keys() & {"topology.json", "pods.json"}


def test_topology_says_where_each_rank_is() -> None:
    """With PCI addresses in most worlds, and always when `names_buses` says so."""
    known = 0
    for made, found in worlds(Class.XID_79):
        links = [f for f in facts(found, "topology.json") if isinstance(f, IdentityLink)]
        assert [made.layout.node_of(r) for r in range(64)] == [
            x.node for x in links if x.rank is not None
        ]
        buses = {x.pci_bus_id for x in links}
        assert gathered.names_buses(made) == (made.layout.bus(5) in buses)
        known += gathered.names_buses(made)
    assert 18 < known <= 30


@pytest.mark.parametrize("size", [16, 256])
def test_pods_name_their_nodes_and_never_a_wrong_node_rank(size: int) -> None:
    for made, found in worlds(Class.SKIPPED, identity="pods", size=size):
        pods = [f for f in facts(found, "pods.json") if isinstance(f, PodState)]
        assert dict(zip(made.layout.pods, made.layout.nodes, strict=True)) == {
            p.name: p.node for p in pods
        }
        for pod in pods:
            index = made.layout.pods.index(pod.name)
            assert pod.node_rank in (index, None)
            assert len(made.layout.ranks_of(index)) == pod.gpus == pod.nproc


def test_a_pod_that_never_came_is_pending() -> None:
    """In most worlds; then it is a clue, in pods.json and in the events."""
    pending = 0
    for made, found in worlds(Class.RENDEZVOUS, identity="pods"):
        pods = {f.name: f for f in facts(found, "pods.json") if isinstance(f, PodState)}
        if pods[made.layout.pods[1]].phase == "Pending":
            pending += 1
            assert (Kind.RENDEZVOUS_FAILURE,) == found.clues[0].kinds
        else:
            assert not found.clues
        assert {"Running"} == {p.phase for n, p in pods.items() if n != made.layout.pods[1]}
    assert 14 < pending < 30


def test_a_dead_node_is_unknown_and_its_pod_seems_to_run() -> None:
    for made, found in worlds(Class.NODE_DEATH, identity="pods"):
        pods = {f.name: f for f in facts(found, "pods.json") if isinstance(f, PodState)}
        dead = pods[made.layout.pods[1]]
        assert ("Running", "DeletionByTaintManager") == (dead.phase, dead.disruption)
        if "nodes.json" in found.files:
            nodes = {f.name: f for f in facts(found, "nodes.json") if isinstance(f, NodeState)}
            assert [made.layout.nodes[1]] == [
                n.name for n in nodes.values() if n.ready == "Unknown"
            ]
            assert any(clue.path == "nodes.json" for clue in found.clues)


def test_a_dead_node_is_not_known_at_once() -> None:
    for _, found in worlds(Class.NODE_DEATH, identity="pods", captured_s=20.0):
        assert not [c for c in found.clues if c.path != "metrics/dcgm.json"]


def test_a_kill_for_memory_is_told_by_some_pods() -> None:
    reasons = {
        c.reason
        for _, found in worlds(Class.OOM_KILL, identity="pods")
        for f in facts(found, "pods.json")
        if isinstance(f, PodState)
        for c in f.containers
    }
    assert {"OOMKilled", "Error"} == reasons


def test_events_are_within_their_hour() -> None:
    for cls in (Class.NODE_DEATH, Class.OOM_KILL, Class.RENDEZVOUS):
        for made, found in worlds(cls, identity="pods"):
            for path in found.files.keys() & {"events.txt", "events.json"}:
                for event in facts(found, path):
                    if isinstance(event, ClusterEvent) and event.at_ns is not None:
                        age_s = (made.wall_ns(made.captured_s) - event.at_ns) / 1e9
                        assert -1 <= age_s <= 3601


@pytest.mark.parametrize("cls", list(XIDS))
def test_the_gauge_shows_a_code_as_a_step(cls: Class) -> None:
    """Within a scrape of the fault, on the guilty GPU; 45 may hide what it cleans up after."""
    met = 0
    for made, found in worlds(cls):
        if "metrics/dcgm.json" not in found.files:
            continue
        read = facts(found, "metrics/dcgm.json")
        xids = [f for f in read if isinstance(f, XidEvent) and f.xid == XIDS[cls] and f.at_ns]
        clues = [c for c in found.clues if c.path == "metrics/dcgm.json"]
        assert bool(xids) == bool(clues)
        for event in xids:
            met += 1
            assert (made.layout.node_of(5), 5) == (event.node, event.gpu_index)
            assert abs((event.at_ns or 0) - made.wall_ns(3.0)) < 61 * 10**9
        if cls is Class.XID_79:
            gone = {f.gpu_index for f in read if isinstance(f, SeriesEnd)}
            assert {5} == gone
    assert met > 3


def test_a_slow_gpu_throttles_and_no_other_does() -> None:
    met = 0
    for made, found in worlds(Class.SLOW_GPU, captured_s=90.0):
        if "metrics/dcgm.json" not in found.files:
            continue
        met += 1
        readings = [f for f in facts(found, "metrics/dcgm.json") if isinstance(f, GpuReading)]
        hot = [f for f in readings if f.field == "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS" and f.last]
        assert [(made.layout.node_of(5), 5)] == [(f.node, f.gpu_index) for f in hot]
        assert {(Kind.STRAGGLER, Kind.HARDWARE)} == {c.kinds for c in found.clues}
    assert met > 4


def test_decoys_give_no_clue() -> None:
    for cls in (Class.RED_HERRING, Class.OTHER_JOB):
        for identity in ("topology", "pods"):
            for made, found in worlds(cls, identity=identity):
                last = made.layout.size - 1
                assert not [c for c in found.clues if last in c.ranks]


def test_job_file_states_the_job() -> None:
    for made, found in worlds(Class.SKIPPED):
        if "job.json" in found.files:
            numbers = [f for f in facts(found, "job.json") if isinstance(f, JobNumbers)]
            assert [(64, 8, 600.0)] == [
                (n.world_size, n.gpus_per_node, n.watchdog_timeout_s) for n in numbers
            ]
            assert [100.0] == [n.checkpoint_interval_s for n in numbers]
            assert made.layout.pods[0].startswith(numbers[0].name or "?")


def test_the_same_story_gives_the_same_bytes() -> None:
    for identity in ("topology", "pods"):
        made = story(Class.XID_94, seed=3, identity=identity)
        assert write(made) == write(made)
