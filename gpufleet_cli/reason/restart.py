"""What a restart would find once the nodes to blame are out, from what was judged for each alone. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gpufleet_cli.facts import RestartRoom
from gpufleet_cli.node_card import Spares
from gpufleet_cli.verdict import RestartView


def without(rooms: Sequence[RestartRoom], nodes: Sequence[str]) -> RestartView | None:
    """The answer for these nodes; None where nobody asked.

    A gang that does not place without one node does not without several. That it places without each of
    them alone says nothing of all of them together.
    """
    found = [one for one in rooms if one.node in nodes]
    if not found:
        return None
    first = min(found, key=lambda one: (one.places is not False, one.node))
    told = Spares(
        places=first.places,
        why=first.why,
        cause=first.cause,
        nodes=first.nodes,
        spare_nodes=first.spare_nodes,
    )
    if len(nodes) > 1 and first.places is not False:
        why = f"judged for one node at a time, and {len(nodes):,} are to go"
        told = Spares(places=None, why=why)
    return RestartView(node=first.node, spares=told)
