"""`gpufleet node NODE` and `gpufleet nodes`: what a person asks of a node at night, in one screen."""

from __future__ import annotations

from typing import Annotated

import typer

from gpufleet_cli.commands.cluster_api import connected
from gpufleet_cli.commands.options import one_of
from gpufleet_cli.commands.output import emit, look
from gpufleet_cli.settings import Settings


def node(
    *,
    name: Annotated[str, typer.Argument(metavar="NODE", help="A node's name.")],
    settings: Settings,
) -> None:
    """Show one node: gang, GPUs, conditions, cordon, lease.

    Exit status: 0, 4 when nothing could be read, 2 usage.
    """
    output = one_of(settings.output, ("text", "json"))
    from gpufleet_cli.live.node_look import look_at
    from gpufleet_cli.render.node_page import node_json, node_text

    card = look_at(connected(settings), name.removeprefix("node/"))
    emit(node_json(card) if output == "json" else node_text(card, look(settings)))


def nodes(*, settings: Settings) -> None:
    """List the nodes, those that look ill first.

    Exit status: 0, 4 when nothing could be read, 2 usage.
    """
    output = one_of(settings.output, ("text", "json"))
    from gpufleet_cli.live.node_look import look_at_all
    from gpufleet_cli.render.node_page import nodes_json, nodes_text

    fleet = look_at_all(connected(settings))
    if output == "json":
        emit(nodes_json(fleet.cards, fleet.missing))
    else:
        emit(nodes_text(fleet.cards, fleet.missing, look(settings)))
