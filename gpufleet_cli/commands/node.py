"""`gpufleet node NODE` and `gpufleet nodes`: what a person asks of a node at night, in one screen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from gpufleet_cli.commands.cluster_api import connected
from gpufleet_cli.commands.options import one_of
from gpufleet_cli.commands.output import emit, look, say
from gpufleet_cli.commands.past import of_place, place_of, rate_of, stated_rate
from gpufleet_cli.settings import Settings, keeps_state

if TYPE_CHECKING:
    from gpufleet_cli.live.api import Api
    from gpufleet_cli.live.metric_fleet import Found
    from gpufleet_cli.live.node_look import Fleet
    from gpufleet_cli.live.threads import Beside
    from gpufleet_cli.node_card import FaultRate, Missing, NodeCard

RIGHTS_S = 0.5
"""So long the page waits for what our rights are, whose reviews began before the reads."""


def node(
    *,
    name: Annotated[str, typer.Argument(metavar="NODE", help="A node's name.")],
    prometheus: Annotated[
        str | None, typer.Option(metavar="URL", help="Metrics with the GPUs' XID history.")
    ] = None,
    spares: Annotated[
        bool, typer.Option("--spares", help="Also: would its gang find room without it?")
    ] = False,
    node_failures_per_day: Annotated[
        str | None,
        typer.Option(
            metavar="RATE",
            help="Failures of a healthy node in a day, for the test of repeat offenders.",
        ),
    ] = None,
    settings: Settings,
) -> None:
    """Show one node: its gang, GPUs, XIDs, conditions and past.

    Its cordon, its lease and the incidents it was in as well.
    Exit status: 0, 4 when nothing could be read, 2 usage.

    Examples:
      gpufleet node gpu-node-0417
      gpufleet node gpu-node-0417 --spares   # is there room for its gang?
      gpufleet node gpu-node-0417 --prometheus svc:monitoring/prometheus:9090
    """
    output = one_of(settings.output, ("text", "json"))
    stated = stated_rate(node_failures_per_day)
    from gpufleet_cli.live import rights
    from gpufleet_cli.live.node_look import look_at
    from gpufleet_cli.render.node_json import node_json
    from gpufleet_cli.render.node_page import node_text

    api = connected(settings)
    from gpufleet_cli.live.stores import node_history

    asked = rights.Round(api, rights.to_look_at_nodes())
    card = look_at(api, name.removeprefix("node/"), node_history(api, prometheus))
    if spares:
        from gpufleet_cli.live import drain_look, spare_look

        seen = drain_look.look(api, [card.name])
        card = replace(card, spares=spare_look.of_node(spare_look.Fleets(api), seen, card.name))
    card = _with_past(api, card, rate_of(stated, api.access.context), settings)
    rights.tell(asked.refused(RIGHTS_S), say)
    _remember(api, settings, (card,))
    emit(node_json(card) if output == "json" else node_text(card, look(settings)))


def nodes(
    *,
    prometheus: Annotated[
        str | None, typer.Option(metavar="URL", help="Metrics with the GPUs' XID history.")
    ] = None,
    settings: Settings,
) -> None:
    """List the nodes and their XIDs, those that look ill first.

    The XIDs are those of 30 days, where metrics are known.
    Exit status: 0, 4 when nothing could be read, 2 usage.

    Examples:
      gpufleet nodes
      gpufleet nodes --prometheus svc:monitoring/prometheus:9090 -o json
    """
    output = one_of(settings.output, ("text", "json"))
    from gpufleet_cli.live.node_look import look_at_all
    from gpufleet_cli.live.stores import fleet_history
    from gpufleet_cli.live.threads import Beside
    from gpufleet_cli.render.node_json import nodes_json
    from gpufleet_cli.render.node_page import nodes_text

    api = connected(settings)
    history = Beside(lambda: fleet_history(api, prometheus), deadline=api.deadline)
    fleet = look_at_all(api)
    cards, missing = _with_xids(fleet, history)
    _remember(api, settings, cards)
    if output == "json":
        emit(nodes_json(cards, missing))
    else:
        emit(nodes_text(cards, missing, look(settings)))


def _with_xids(
    fleet: Fleet, history: Beside[tuple[Found | None, list[Missing]]]
) -> tuple[Sequence[NodeCard], Sequence[Missing]]:
    """The cards as the metrics complete them, and all that could not be had."""
    from gpufleet_cli.live.node_past import with_xids
    from gpufleet_cli.node_card import Missing

    late = [Missing(what="XID history", why="not there by the deadline")]
    found, missing = history.result() or (None, late)
    if found is None:
        return fleet.cards, (*fleet.missing, *missing)
    cards, lacking = with_xids(fleet.cards, fleet.addresses, found)
    return cards, (*fleet.missing, *lacking)


def _with_past(api: Api, card: NodeCard, rate: FaultRate, settings: Settings) -> NodeCard:
    """The card with past incidents of the history, and the test that they and the XIDs allow."""
    from gpufleet_cli.history import tally
    from gpufleet_cli.live.node_look import count_of_nodes
    from gpufleet_cli.live.node_past import repeat_test

    place = place_of(settings, card.context)
    kept = of_place(place) if keeps_state() or not place.is_own else None
    incidents = () if kept is None else kept.incidents
    past = tally.of_node(incidents, card.name, context=card.context, server=card.server)
    test = repeat_test(card.xids, past, now_ns=card.read_at_ns, nodes=None, rate=rate)
    if test is not None:
        nodes = count_of_nodes(api)
        test = repeat_test(card.xids, past, now_ns=card.read_at_ns, nodes=nodes, rate=rate)
    return replace(card, incidents=None if kept is None else tuple(past), repeat=test)


def _remember(api: Api, settings: Settings, cards: Iterable[NodeCard]) -> None:
    """Names for completion."""
    from gpufleet_cli.live import name_cache, names_met

    name_cache.remember(api.access, settings.kubeconfig, names_met.of_cards(cards))
