"""Kernel logs of made incidents: what gpufleet's own parsers make of them, and what they give away."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from builders import evidence
from incident_stories import story

from gpufleet_cli.facts import HostEvent, HostSign, XidEvent
from gpufleet_cli.operate.simulate import gathered, kernel_files
from gpufleet_cli.operate.simulate.gathered import XIDS
from gpufleet_cli.operate.simulate.story import Class, Story, Written
from gpufleet_cli.parsers import kernel_log, kernel_xid

SEEDS = range(30)
SIGNS = {
    Class.OOM_KILL: {HostSign.OOM_KILL},
    Class.SEGFAULT: {HostSign.SEGFAULT},
    Class.NIC_DOWN: {HostSign.NIC_DOWN},
    Class.RAIL_FLAP: {HostSign.NIC_DOWN},
    Class.SWITCH: {HostSign.NIC_DOWN},
    Class.STORAGE: {HostSign.NFS_DOWN, HostSign.FS_ERROR},
    Class.CHECKPOINT_STALL: {HostSign.NFS_DOWN, HostSign.FS_ERROR},
    Class.NODE_DEATH: {HostSign.PANIC, HostSign.MACHINE_CHECK},
}


def write(of: Story, *, bus_known: bool = True) -> Written:
    return kernel_files.write(of, Random(of.seed), bus_known=bus_known)


def worlds(cls: Class, **how: object) -> Iterator[tuple[Story, Written]]:
    for seed in SEEDS:
        made = story(cls, seed=seed, **how)  # type: ignore[arg-type]
        yield made, write(made)


def events(of: Story, found: Written) -> list[XidEvent | HostEvent]:
    """What the parser reads, dated as triage would date it."""
    facts = []
    for path, data in found.files.items():
        for fact in kernel_log.parse(evidence(data, path)):
            if isinstance(fact, XidEvent | HostEvent):
                epoch = gathered.boot_epoch(of)
                boot_ns = None if epoch is None else epoch * 10**9
                facts.append(kernel_log.dated(fact, of.start_ns, boot_ns))
    return facts


@pytest.mark.parametrize("cls", list(XIDS))
def test_a_sick_gpu_is_read_back_with_its_code_address_and_time(cls: Class) -> None:
    """Whatever the form of the log, and by the node's own clock."""
    met = 0
    for made, found in worlds(cls, skew_s=20.0):
        clues = [clue for clue in found.clues if f"): {XIDS[cls]}," in clue.text]
        if not clues:
            continue
        met += 1
        xids = [e for e in events(made, found) if isinstance(e, XidEvent) and e.xid == XIDS[cls]]
        assert {made.layout.node_of(5).partition(".")[0]} == {
            (e.node or "").partition(".")[0] for e in xids
        }
        assert {kernel_xid.pci_key(made.layout.bus(5))} == {
            kernel_xid.pci_key(e.pci_bus_id) for e in xids
        }
        at = made.wall_ns(3.0, 0) if gathered.boot_epoch(made) is None else made.wall_ns(3.0)
        assert abs(min(e.at_ns or 0 for e in xids) - at) < 2 * 10**9
        assert {(5,)} == {clue.ranks for clue in clues}
    assert met > 10


@pytest.mark.parametrize("cls", list(SIGNS))
def test_a_clue_of_the_host_is_read_back_as_such(cls: Class) -> None:
    """Each class that the kernel speaks of is told in some worlds, with the sign that is meant."""
    met = 0
    for made, found in worlds(cls):
        if found.clues:
            met += 1
            signs = {e.sign for e in events(made, found) if isinstance(e, HostEvent)}
            assert signs & SIGNS[cls], (made.seed, signs)
    assert met > 1


@pytest.mark.parametrize("cls", list(Class))
def test_every_clue_stands_in_its_file(cls: Class) -> None:
    """And it leaves the guilty among its ranks."""
    if cls is Class.TWO_FAULTS:
        return
    for made, found in worlds(cls):
        guilty = {rank for fault in made.faults for rank in fault.ranks}
        for clue in found.clues:
            assert clue.text in found.files[clue.path].decode()
            assert clue.kinds
            assert guilty <= set(clue.ranks)


def test_without_a_map_of_addresses_a_line_leaves_its_node() -> None:
    made = next(made for made, found in worlds(Class.XID_79) if found.clues)
    clues = write(made, bus_known=False).clues
    assert {tuple(made.layout.ranks_of(0))} == {clue.ranks for clue in clues}


def test_the_same_story_gives_the_same_bytes() -> None:
    for cls in (Class.XID_48, Class.STORAGE, Class.SLOW_LINK):
        made = story(cls, seed=4)
        assert write(made) == write(made)


def test_decoys_are_written_and_give_nothing_away() -> None:
    """A harmless Xid before the onset; another job's hours before."""
    for cls in (Class.RED_HERRING, Class.OTHER_JOB):
        for made, found in worlds(cls):
            node = made.layout.nodes[-1]
            assert any(node in path for path in found.files)
            assert not any(node in clue.path for clue in found.clues)
            if cls is Class.RED_HERRING:
                code = gathered.herring_code(made)
                xids = [e.xid for e in events(made, found) if isinstance(e, XidEvent)]
                assert code in xids
                assert not found.clues


def test_quiet_faults_leave_no_clue() -> None:
    """Programs that differ, loaders and interpreters that stall: the kernel knows nothing of them."""
    for cls in (Class.LOADER_STALL, Class.MISMATCH, Class.LOCK_STALL, Class.LONG_STEP):
        assert all(not found.clues for _, found in worlds(cls))


def test_logs_of_a_dead_node_end_with_it() -> None:
    for made, found in worlds(Class.NODE_DEATH):
        node = made.layout.nodes[1]
        for path, data in found.files.items():
            if node in path:
                ns = [e.at_ns for e in events(made, Written(files={path: data}))]
                assert all(at is None or at <= made.wall_ns(3.0, 1) for at in ns)


def test_seconds_since_boot_are_written_only_with_the_time_of_boot() -> None:
    """Without topology.json nobody could date them."""
    for identity in ("topology", "pods", "logs"):
        for made, found in worlds(Class.STORAGE, identity=identity):
            is_bare = any(path.endswith(".dmesg.txt") for path in found.files)
            assert is_bare == (gathered.boot_epoch(made) is not None and bool(found.files))


def test_a_kill_names_the_pod_where_the_job_runs_in_pods() -> None:
    for made, found in worlds(Class.OOM_KILL, identity="pods"):
        kills = [e for e in events(made, found) if isinstance(e, HostEvent) and e.pod_uid]
        assert bool(kills) == bool(found.clues)
