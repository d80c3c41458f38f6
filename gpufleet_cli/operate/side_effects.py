"""What a cordon sets off besides keeping new pods away, and who holds the node: pure, on what was read."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from gpufleet_cli.live.kinds import Object
from gpufleet_cli.live.node_view import Seen
from gpufleet_cli.live.pods import Pod
from gpufleet_cli.node_card import HeldGang, NodeCard
from gpufleet_cli.parsers import json_documents as js
from gpufleet_cli.parsers.kubernetes_ranks import annotations_of, labels_of
from gpufleet_cli.plain_text import is_name
from gpufleet_cli.render.layout import counted, duration

SLINKY = "nodeset.slinky.slurm.net/"
_EXCLUSIVE = {
    "alpha.jobset.sigs.k8s.io/exclusive-topology": "JobSet's exclusive placement",
    "leaderworkerset.sigs.k8s.io/exclusive-topology": "LeaderWorkerSet's exclusive placement",
    "kueue.x-k8s.io/podset-required-topology": "the topology that Kueue must keep to",
}
_POOLS = (
    "karpenter.sh/nodepool",
    "eks.amazonaws.com/nodegroup",
    "cloud.google.com/gke-nodepool",
    "kubernetes.azure.com/agentpool",
)


def sets_off(seen: Seen, card: NodeCard) -> list[str]:
    """A sentence for each thing that follows by itself, as far as the node and its pods tell."""
    return [
        *_slinky(seen),
        *_repairs(card),
        *_topology(seen, card),
        *_pool(seen.node or {}, card),
    ]


def _slinky(seen: Seen) -> Iterator[str]:
    owned = any(_is_slinky(pod) for pod in seen.pods or ())
    if owned or any(key.startswith(SLINKY) for key in annotations_of(seen.node or {})):
        yield (
            "Slinky drains the Slurm node too: no new Slurm job starts there, those that run go on"
        )


def _is_slinky(pod: Pod) -> bool:
    owners = js.items(js.at(pod.raw, "metadata", "ownerReferences"))
    if any((js.text_at(one, "apiVersion") or "").startswith("slinky.slurm.net/") for one in owners):
        return True
    return any(key.startswith(SLINKY) for key in pod.marks)


def _repairs(card: NodeCard) -> Iterator[str]:
    """Agents whose clock runs already; the cordon does not stop it."""
    for one in card.bad:
        if one.repair_at_ns is None:
            continue
        left_s = (one.repair_at_ns - card.read_at_ns) / 1e9
        when = f"in {duration(left_s)}" if left_s > 0 else "any time now"
        yield (
            f"{one.source or 'an agent'} may reboot or replace it {when}"
            f" ({one.kind}={one.status}): collect the evidence first"
        )


def _topology(seen: Seen, card: NodeCard) -> Iterator[str]:
    told: set[str] = set()
    for pod in (*(seen.pods or ()), *seen.mates):
        for key, words in _EXCLUSIVE.items():
            place = pod.marks.get(key)
            if place is None or not pod.state.gpus or words in told:
                continue
            told.add(words)
            gang = next((one for one in card.gangs if not one.is_over), None)
            name = "a restart of its gang" if gang is None else f"a restart of {gang.name}"
            yield f"{name} may find no place: {words} ({place}) loses this node"


def _pool(node: Object, card: NodeCard) -> Iterator[str]:
    """An autoscaler deletes what is empty; with the node goes its evidence."""
    for taint in card.taints:
        if taint.shown.startswith(("ToBeDeleted", "DeletionCandidate", "karpenter.sh/disrupted")):
            yield f"{taint.words or taint.shown}: with the node goes its evidence"
            return
    labels = labels_of(node)
    pool = next((f"{key}={labels[key]}" for key in _POOLS if labels.get(key)), None)
    if pool is not None:
        yield f"where its pool ({pool}) autoscales, the node may be deleted once it is empty"


# --- Who holds it ---------------------------------------------------------------------------------


def holders(card: NodeCard) -> list[HeldGang]:
    """The gangs whose pods are still there."""
    return [gang for gang in card.gangs if not gang.is_over]


def is_running(gang: HeldGang) -> bool:
    return any(pod.phase == "running" for pod in gang.pods)


def held_words(gang: HeldGang) -> str:
    """`train/run-7 (JobSet, 8 GPUs here, 16 pods in all, running)`."""
    size = f", {counted(gang.size, 'pod')} in all" if gang.size else ""
    state = "running" if is_running(gang) else gang.pods[0].phase
    here = f"{counted(gang.gpus, 'GPU')} here"
    return f"{gang.namespace}/{gang.name} ({gang.kind}, {here}{size}, {state})"


def next_step(gang: HeldGang) -> str | None:
    """The command that takes the gang down at its next checkpoint; none for what is no name."""
    if not (is_name(gang.name) and is_name(gang.namespace)):
        return None
    where = f"-n {shlex.quote(gang.namespace)}"
    return f"gpufleet evict {shlex.quote(gang.name)} {where} --at-checkpoint"
