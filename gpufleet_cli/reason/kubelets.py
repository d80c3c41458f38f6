"""Which kubelets are silent, where that speaks of their nodes and not of the way to them."""

from __future__ import annotations

from collections.abc import Iterable

from gpufleet_cli.facts import KubeletReply
from gpufleet_cli.parsers.log_reads import is_way_at_fault


def silent_nodes(replies: Iterable[KubeletReply]) -> tuple[KubeletReply, ...]:
    """The kubelets whose silence is evidence about their nodes; none where the way is at fault."""
    listed = tuple(replies)
    replied = {reply.node for reply in listed if reply.replied}
    silent = tuple(one for one in listed if not one.replied and one.node not in replied)
    nodes = {one.node for one in silent}
    return () if is_way_at_fault(len(nodes), len(replied)) else silent
