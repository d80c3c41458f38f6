"""`gpufleet node NODE` and `gpufleet nodes`: what a person asks of a node at night, in one screen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from gpufleet_cli.commands.cluster_api import connected
from gpufleet_cli.commands.options import one_of
from gpufleet_cli.commands.output import emit, look, say
from gpufleet_cli.settings import Settings

if TYPE_CHECKING:
    from gpufleet_cli.live.api import Api
    from gpufleet_cli.node_card import NodeCard

RIGHTS_S = 0.5
"""So long the page waits for what our rights are, whose reviews began before the reads."""


def node(
    *,
    name: Annotated[str, typer.Argument(metavar="NODE", help="A node's name.")],
    settings: Settings,
) -> None:
    """Show one node: gang, GPUs, conditions, cordon, lease.

    Exit status: 0, 4 when nothing could be read, 2 usage.
    """
    output = one_of(settings.output, ("text", "json"))
    from gpufleet_cli.live import rights
    from gpufleet_cli.live.node_look import look_at
    from gpufleet_cli.render.node_page import node_json, node_text

    api = connected(settings)
    asked = rights.Round(api, rights.to_look_at_nodes())
    card = look_at(api, name.removeprefix("node/"))
    rights.tell(asked.refused(RIGHTS_S), say)
    _remember(api, settings, (card,))
    emit(node_json(card) if output == "json" else node_text(card, look(settings)))


def nodes(*, settings: Settings) -> None:
    """List the nodes, those that look ill first.

    Exit status: 0, 4 when nothing could be read, 2 usage.
    """
    output = one_of(settings.output, ("text", "json"))
    from gpufleet_cli.live.node_look import look_at_all
    from gpufleet_cli.render.node_page import nodes_json, nodes_text

    api = connected(settings)
    fleet = look_at_all(api)
    _remember(api, settings, fleet.cards)
    if output == "json":
        emit(nodes_json(fleet.cards, fleet.missing))
    else:
        emit(nodes_text(fleet.cards, fleet.missing, look(settings)))


def _remember(api: Api, settings: Settings, cards: Iterable[NodeCard]) -> None:
    """Names for completion."""
    from gpufleet_cli.live import name_cache, names_met

    name_cache.remember(api.access, settings.kubeconfig, names_met.of_cards(cards))
