"""Kernel logs of a made incident, one file a node, and which of their lines name the cause.

Each line is stamped by its node's clock. Faults of programs and of peers leave nothing here; a
process that is ended with work in flight leaves Xids on a GPU that nothing is wrong with.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from gpufleet_cli.operate.simulate import gathered, kernel_forms, kernel_gpu, kernel_host
from gpufleet_cli.operate.simulate.gathered import XIDS
from gpufleet_cli.operate.simulate.kernel_gpu import Line
from gpufleet_cli.operate.simulate.story import Class, Clue, Fault, Story, Written


def write(story: Story, rng: Random, *, bus_known: bool) -> Written:
    """The logs of the nodes of `gathered.kernel_nodes`. `bus_known`: some file tells whose GPU is at
    a PCI address."""
    files: dict[str, bytes] = {}
    clues: list[Clue] = []
    form = kernel_forms.choose(story, rng)
    for index in gathered.kernel_nodes(story):
        path = form.path(story.layout.nodes[index])
        told = _told(story, index, rng)
        texts = [kernel_forms.line(form, story, index, t.at_s, t.text) for t, _ in told]
        if not texts:
            continue
        files[path] = ("\n".join(texts) + "\n").encode()
        for (line, fault), text in zip(told, texts, strict=True):
            if fault is not None and line.names:
                ranks = _left(story, fault, index, line, bus_known=bus_known)
                clues.append(
                    Clue(
                        ranks=ranks,
                        path=path,
                        text=text,
                        kinds=line.names,
                        loud=line.loud,
                        nodes=(index,),
                    )
                )
    return Written(files=files, clues=tuple(clues))


def _told(story: Story, index: int, rng: Random) -> list[tuple[Line, Fault | None]]:
    """The lines of a node in order, with the fault that each tells of."""
    found: list[tuple[Line, Fault | None]] = []
    if rng.random() < 0.85:
        found += [(line, None) for line in kernel_host.ordinary(story, index, rng)]
    for fault in story.faults:
        if index in gathered.nodes_of(story, fault):
            found += [(line, fault) for line in _of(story, fault, index, rng)]
    for decoy in story.decoys:
        if index in gathered.nodes_of(story, decoy):
            found += [(line, None) for line in _beside(story, decoy, index, rng)]
    found += [(line, None) for line in _cleaned_up(story, index, rng)]
    end = _end_of_log(story, index)
    return sorted((f for f in found if f[0].at_s <= end), key=lambda f: f[0].at_s)


def _end_of_log(story: Story, index: int) -> float:
    deaths = [
        fault.at_s
        for fault in story.faults
        if fault.cls is Class.NODE_DEATH and index in gathered.nodes_of(story, fault)
    ]
    return min([story.captured_s, *deaths])


def _of(story: Story, fault: Fault, index: int, rng: Random) -> Iterator[Line]:
    """What the fault leaves on one of its nodes. Faults that half of the worlds see: by the world,
    not by the node."""
    is_told = gathered.draw(story, "kernel tells").random() < 0.5
    match fault.cls:
        case cls if cls in XIDS:
            return kernel_gpu.sick(story, fault, rng)
        case Class.OOM_KILL:
            return kernel_host.killed(story, fault, index, rng)
        case Class.SEGFAULT:
            return kernel_host.segfault(story, fault, rng)
        case Class.NIC_DOWN:
            return kernel_host.nic_down(story, fault, rng)
        case Class.RAIL_FLAP:
            return kernel_host.flapping(story, fault, rng)
        case Class.SWITCH:
            return kernel_host.unplugged(story, fault, index, rng)
        case Class.STORAGE:
            return kernel_host.storage(story, fault, index, rng)
        case Class.CHECKPOINT_STALL if is_told:
            return kernel_host.storage(story, fault, index, rng)
        case Class.NODE_DEATH if is_told:
            return kernel_host.last_words(fault, rng)
        case Class.SLOW_LINK if is_told:
            return kernel_host.slow_link(story, fault, rng)
        case Class.SLOW_GPU if is_told:
            if gathered.draw(story, "slow GPU").random() < 0.5:
                return kernel_gpu.unpowered(story, fault)
            return kernel_host.hot_chassis(fault, rng)
        case _:
            return iter(())


def _beside(story: Story, decoy: Fault, index: int, rng: Random) -> Iterator[Line]:
    """What happened too: a harmless Xid, or another job's trouble hours before."""
    if decoy.cls is Class.RED_HERRING:
        return kernel_gpu.harmless(story, decoy, rng)
    if rng.random() < 0.3:
        return kernel_host.others_killed(story, decoy, index, rng)
    return kernel_gpu.others(story, decoy, rng)


def _cleaned_up(story: Story, index: int, rng: Random) -> Iterator[Line]:
    """In some jobs the driver clears the channels of every process that was ended."""
    codes = gathered.cleared_codes(story)
    if not codes:
        return
    for rank in story.layout.ranks_of(index):
        ending = story.endings[rank]
        if ending.at_s is not None and ending.how in gathered.WITH_WORK_IN_FLIGHT:
            at = ending.at_s + rng.uniform(0.01, 0.6)
            yield from kernel_gpu.channels(story, rank, at, rng, with_43=43 in codes)


def _left(
    story: Story, fault: Fault, index: int, line: Line, *, bus_known: bool
) -> tuple[int, ...]:
    """The ranks that a line leaves. Of a fault of several nodes one line does not clear the others."""
    if line.rank is not None and bus_known:
        return (line.rank,)
    if fault.cls in (Class.SWITCH, Class.STORAGE):
        return gathered.ranks_on(story, gathered.nodes_of(story, fault))
    return tuple(story.layout.ranks_of(index))
