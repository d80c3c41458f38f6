"""Names that several writers must agree on: process ids, pod uids, addresses, the host in NCCL lines."""

from __future__ import annotations

import hashlib

from gpufleet_cli.operate.simulate.story import Story

# Wrappers of jobs that run on the nodes themselves; all others run in pods.
BARE = frozenset({"torchrun-tree", "srun-label", "rank-files"})
NAMESPACE, CONTAINER = "ml", "pytorch"


def agent_pid(story: Story, node_index: int) -> int:
    """The launcher on a node: on the host where the job runs without pods, else in its container."""
    if story.style.wrapper in BARE:
        return 20_000 + (story.seed * 7919 + node_index * 613) % 40_000
    return 64


def pid(story: Story, rank: int) -> int:
    """The process of a rank, as its own lines and its agent's name it."""
    layout = story.layout
    return agent_pid(story, layout.node_index(rank)) + 6 + layout.local_rank(rank)


def pod_uid(story: Story, node_index: int) -> str:
    """The uid of the pod on a node."""
    digest = hashlib.md5(f"{story.seed}/{node_index}".encode(), usedforsecurity=False).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-4{digest[13:16]}-9{digest[17:20]}-{digest[20:32]}"


def address(story: Story, node_index: int) -> str:
    """The address that peers see: the pod's, or the node's where the job runs without pods."""
    net = 61 if story.style.wrapper in BARE else 244
    return f"10.{net}.{4 + node_index // 200}.{10 + node_index % 200}"


def host(story: Story, node_index: int) -> str:
    """The host name inside the process, as NCCL cuts it."""
    layout = story.layout
    names = layout.nodes if story.style.wrapper in BARE else layout.pods
    return names[node_index].partition(".")[0]
