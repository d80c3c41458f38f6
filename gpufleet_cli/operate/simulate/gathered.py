"""What was gathered beside logs and dumps, and names that several files share.

All of it follows from the story's seed alone, so that the writers of different files agree without
knowing each other. Process ids, pod uids and addresses are in `identities`.
"""

from __future__ import annotations

import hashlib
from random import Random

from gpufleet_cli.operate.simulate import identities
from gpufleet_cli.operate.simulate.story import Class, Fault, How, Story

XIDS = {
    Class.XID_79: 79,
    Class.XID_119: 119,
    Class.XID_48: 48,
    Class.XID_94: 94,
    Class.XID_95: 95,
}
WITH_WORK_IN_FLIGHT: frozenset[How] = frozenset({"watchdog-abort", "agent-sigterm", "segfault"})
"""Endings after which the driver has channels to clear."""
MOST_ASKED = 12
FIRST_HOST_PID = 1_200_000
"""Above what a container counts to, so that no pid of a log is met by accident."""


def draw(story: Story, what: str) -> Random:
    """Chance for one question, the same whoever asks."""
    return Random(f"{story.cls}/{story.seed}/{what}")


def _digest(story: Story, what: str) -> str:
    return hashlib.blake2b(f"{story.cls}/{story.seed}/{what}".encode(), digest_size=16).hexdigest()


def uuid(story: Story, what: str) -> str:
    """An id of an object that no other file knows."""
    text = _digest(story, what)
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:32]}"


def gpu_uuid(story: Story, rank: int) -> str:
    """The UUID of the GPU that a rank runs on, as NVML prints it."""
    return f"GPU-{uuid(story, f'gpu/{rank}')}"


def container_id(story: Story, index: int) -> str:
    """The 64 digits of the container that runs the ranks of a node."""
    return _digest(story, f"container/{index}") + _digest(story, f"container/{index}/more")


def is_in_pods(story: Story) -> bool:
    return story.style.wrapper not in identities.BARE


def host_pid(story: Story, rank: int) -> int:
    """The pid of a rank's process on its host; a container counts its own."""
    if not is_in_pods(story):
        return identities.pid(story, rank)
    return FIRST_HOST_PID + (story.seed * 7919 + rank * 613) % 2_000_000


def nodes_of(story: Story, fault: Fault) -> tuple[int, ...]:
    """Indexes of the nodes that a fault touches; a storage outage is seen by all."""
    if fault.cls is Class.STORAGE:
        return tuple(range(len(story.layout.nodes)))
    if fault.node_indexes:
        return fault.node_indexes
    return tuple(sorted({story.layout.node_index(rank) for rank in fault.ranks}))


def ranks_on(story: Story, indexes: tuple[int, ...]) -> tuple[int, ...]:
    """All ranks of some nodes."""
    return tuple(rank for index in indexes for rank in story.layout.ranks_of(index))


def kernel_nodes(story: Story) -> tuple[int, ...]:
    """Nodes whose kernel log somebody took along: all, those that looked odd and a few more, or none.
    Of a dead node it often cannot be had."""
    rng = draw(story, "kernel")
    everybody = range(len(story.layout.nodes))
    guilty = {i for fault in story.faults for i in nodes_of(story, fault)}
    beside = {i for fault in story.decoys for i in nodes_of(story, fault)}
    how = rng.choices(("all", "some", "none"), (3, 4, 0 if beside else 3))[0]
    is_dead = any(fault.cls is Class.NODE_DEATH for fault in story.faults)
    is_lost = rng.random() < (0.5 if is_dead else 0.1)
    more = rng.sample(everybody, min(len(everybody), rng.randint(1, 3)))
    if how == "none":
        return ()
    asked = sorted(guilty)
    if len(asked) > MOST_ASKED:
        asked = rng.sample(asked, MOST_ASKED)
    kept = set(everybody) if how == "all" else {*asked, *beside, *more}
    if is_lost and guilty < set(everybody):
        kept -= guilty - beside
    return tuple(sorted(kept))


def names_buses(story: Story) -> bool:
    """Whether there is a topology.json with PCI bus ids."""
    return story.style.identity == "topology" and draw(story, "buses").random() < 0.85


def knows_buses(story: Story) -> bool:
    """Whether any file tells whose GPU is at a PCI address: topology.json, or NCCL's init lines (of which
    a log of rank 0 alone holds one)."""
    by_lines = story.style.identity == "pods" and not story.style.rank0_only
    return names_buses(story) or by_lines


def names_nodes(story: Story) -> bool:
    """Whether any file tells which node the ranks of a log ran on: a map, or the wrapper of the log."""
    by_wrapper = ("torchrun-tree", "rank-files", "srun-label", "docker-json", "loki-json")
    return story.style.identity != "logs" or story.style.wrapper in by_wrapper


def ties_ranks(story: Story, *, is_elastic: bool) -> bool:
    """Whether any file tells which ranks ran on a node: a map, pods that carry their index, or logs of all
    ranks that name their nodes."""
    if story.style.identity == "topology":
        return True
    if story.style.identity == "pods" and not is_elastic:
        return True
    return names_nodes(story) and not story.style.rank0_only


def boot_epoch(story: Story) -> int | None:
    """The Unix time of boot that topology.json states, for kernel logs that count from it. All nodes
    were booted together then."""
    rng = draw(story, "boot")
    if story.style.identity != "topology" or rng.random() < 0.75:
        return None
    return story.start_ns // 10**9 - rng.randrange(3 * 86_400, 60 * 86_400)


def has_metrics(story: Story) -> bool:
    """Whether somebody asked Prometheus: more often where the kernel log of a sick GPU is missing."""
    rng = draw(story, "metrics")
    logged = set(kernel_nodes(story))
    classes = {fault.cls for fault in story.faults}
    blind = any(f.cls in XIDS and not logged & set(nodes_of(story, f)) for f in story.faults)
    return rng.random() < (0.5 if blind or Class.SLOW_GPU in classes else 0.33)


def cleared_codes(story: Story) -> tuple[int, ...]:
    """The Xids that the driver writes when processes of this job are ended; often none."""
    return draw(story, "channels").choice(((), (45,), (43, 45)))


def clears_own(story: Story) -> bool:
    """Whether a sick GPU writes 45 a moment after its own code."""
    return draw(story, "own channels").random() < 0.35


def herring_code(story: Story) -> int:
    """An Xid that asks for nothing at once: a recorded remap, corrected errors, a test message."""
    return draw(story, "herring").choice((63, 92, 106))
