"""What ties ranks to nodes, and what the cluster knows: topology.json, objects of Kubernetes, metrics,
job.json. Which of them exist depends on how the job was started and on what somebody took along."""

from __future__ import annotations

import json
from random import Random

from gpufleet_cli.operate.simulate import (
    cluster_metrics,
    cluster_nodes,
    cluster_pods,
    gathered,
    identities,
)
from gpufleet_cli.operate.simulate.story import Class, Clue, Story, Written


def write(story: Story, rng: Random, *, bus_known: bool | None = None) -> Written:
    """`bus_known`: some file tells whose GPU is at a PCI address; by default as `gathered` has it."""
    files: dict[str, bytes] = {}
    clues: list[Clue] = []
    if story.style.identity == "topology":
        files["topology.json"] = _topology(story, rng)
    if story.style.identity == "pods":
        lives = cluster_pods.lives(story, rng)
        document = {"apiVersion": "v1", "kind": "List", "items": cluster_pods.items(story, lives)}
        files[cluster_pods.PATH] = json.dumps(document, indent=1).encode()
        clues += cluster_pods.clues(story, lives)
        if rng.random() < 0.5:
            files[cluster_nodes.NODES], found = cluster_nodes.nodes(story, rng)
            clues += found
    if _has_events(story, rng):
        path, data, found = cluster_nodes.events(story, rng)
        files[path] = data
        clues += found
    if gathered.has_metrics(story):
        knows = gathered.knows_buses(story) if bus_known is None else bus_known
        files[cluster_metrics.PATH], found = cluster_metrics.answer(story, rng, bus_known=knows)
        clues += found
    if rng.random() < 0.5:
        files["job.json"] = _job(story)
    return Written(files=files, clues=tuple(clues))


def _has_events(story: Story, rng: Random) -> bool:
    """Beside pods, and where a pod did not come up: then people look at nothing else."""
    is_asked = story.style.identity == "pods" or (
        story.style.identity == "topology"
        and gathered.is_in_pods(story)
        and any(fault.cls is Class.RENDEZVOUS for fault in story.faults)
    )
    return is_asked and rng.random() < 0.5


def _topology(story: Story, rng: Random) -> bytes:
    """What a scheduler knows of each rank; of GPUs it does not always know."""
    layout = story.layout
    has_bus = gathered.names_buses(story)
    has_uuid = rng.random() < 0.3 and has_bus
    in_pods = gathered.is_in_pods(story)
    unplaced = cluster_nodes.unplaced(story) if in_pods else set()
    ranks = [
        {
            "rank": rank,
            "pod": layout.pod_of(rank) if in_pods else None,
            "container": identities.CONTAINER if in_pods else None,
            "node": None if layout.node_index(rank) in unplaced else layout.node_of(rank),
            "local_rank": layout.local_rank(rank),
            "gpu_index": layout.local_rank(rank) if has_bus else None,
            "pci_bus_id": layout.bus(rank) if has_bus else None,
            "gpu_uuid": gathered.gpu_uuid(story, rank) if has_uuid else None,
        }
        for rank in range(layout.size)
    ]
    document: dict[str, object] = {"world_size": layout.size, "ranks": ranks}
    epoch = gathered.boot_epoch(story)
    if epoch is not None:
        document["dmesg_boot_epoch"] = epoch
    return json.dumps(document).encode()


def _job(story: Story) -> bytes:
    document = {
        "name": cluster_pods.job_name(story),
        "namespace": identities.NAMESPACE,
        "world_size": story.layout.size,
        "gpus_per_node": story.layout.gpus_per_node,
        "checkpoint_interval_seconds": round(story.checkpoint_every * story.step_seconds, 3),
        "watchdog_timeout_seconds": story.timeout_s,
    }
    return json.dumps(document, indent=1).encode()
