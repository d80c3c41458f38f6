"""`gpufleet drain-check NODE...`: would a drain kill a gang? The exit status is the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gpufleet_cli.commands.cluster_api import connected
from gpufleet_cli.commands.options import one_of
from gpufleet_cli.commands.output import emit, look
from gpufleet_cli.errors import ExitCode, SourceError, TargetError
from gpufleet_cli.settings import Settings, parse_duration

if TYPE_CHECKING:
    from gpufleet_cli.drain_card import DrainCard
    from gpufleet_cli.live.api import Api
    from gpufleet_cli.operate.drain_check import Given

DEADLINE_S = 30.0


def drain_check(
    *,
    names: Annotated[list[str], typer.Argument(metavar="NODE...", help="Names of nodes.")],
    since_checkpoint: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="How long ago the last checkpoint was complete: 12m."),
    ] = None,
    checkpoint_interval: Annotated[
        str | None, typer.Option(metavar="TIME", help="Between two checkpoints: 30m, 1800.")
    ] = None,
    restart: Annotated[
        str | None, typer.Option(metavar="TIME", help="From failure to the first useful step.")
    ] = None,
    spares: Annotated[
        bool, typer.Option("--spares", help="Also: would the gang find room without the node?")
    ] = False,
    settings: Settings,
) -> int:
    """Say whether a drain would kill a running gang, and its price.

    Judged by the pods on the node now. It changes nothing and needs no more than to read.

    Exit status: 0 no running gang would die, 5 one would, 4 it cannot be told, 2 usage.

    Examples:
      gpufleet drain-check gpu-node-0417 && kubectl drain gpu-node-0417
      gpufleet drain-check gpu-node-0417 --since-checkpoint 20m --spares
    """
    output = one_of(settings.output, ("text", "json"))
    flags = _flags(since_checkpoint, checkpoint_interval, restart)
    api = connected(settings, deadline_s=DEADLINE_S)
    given = _with_file(flags, api.access.context)
    asked = list(dict.fromkeys(name.removeprefix("node/") for name in names))
    cards = _cards(api, asked, given, spares=spares)
    if all(card.safe is None for card in cards):
        raise _nothing_told(cards[0])
    from gpufleet_cli.render.drain_page import drain_json, drain_text

    emit(drain_json(cards) if output == "json" else drain_text(cards, look(settings)))
    if any(card.safe is False for card in cards):
        return ExitCode.REFUSED
    return ExitCode.UNREADABLE if any(card.safe is None for card in cards) else ExitCode.OK


def _flags(since: str | None, interval: str | None, restart: str | None) -> Given:
    """What the command line says, before anybody is asked."""
    from gpufleet_cli.operate.drain_check import Given

    def seconds(text: str | None, option: str) -> float | None:
        return None if text is None else parse_duration(text, option)

    return Given(
        since_checkpoint_s=seconds(since, "--since-checkpoint"),
        interval_s=seconds(interval, "--checkpoint-interval"),
        interval_by="--checkpoint-interval",
        restart_s=seconds(restart, "--restart"),
        restart_by="--restart",
    )


def _with_file(flags: Given, context: str | None) -> Given:
    """The settings file's numbers where no flag says otherwise."""
    from dataclasses import replace

    from gpufleet_cli import settings_file

    kept = settings_file.load().of(context)
    given = flags
    if flags.interval_s is None and kept.checkpoint_interval_s is not None:
        by = "checkpoint_interval of the settings file"
        given = replace(given, interval_s=kept.checkpoint_interval_s, interval_by=by)
    if flags.restart_s is None and kept.restart_s is not None:
        given = replace(given, restart_s=kept.restart_s, restart_by="settings file")
    return given


def _cards(api: Api, names: list[str], given: Given, *, spares: bool) -> list[DrainCard]:
    from dataclasses import replace

    from gpufleet_cli.live import drain_look, spare_look
    from gpufleet_cli.operate import drain_check as check

    seen = drain_look.look(api, names)
    cards = [
        check.judged(
            one.name, seen.gangs_on(one.name), given, now_ns=api.now_ns(), missing=one.missing
        )
        for one in seen.nodes
    ]
    if not spares:
        return cards
    fleets = spare_look.Fleets(api)
    return [replace(card, spares=spare_look.of_node(fleets, seen, card.node)) for card in cards]


def _nothing_told(card: DrainCard) -> SourceError | TargetError:
    """The error of a look that told nothing of any node."""
    first = card.missing[0]
    if first.why.startswith("no node "):
        return TargetError(first.why)
    return SourceError(
        f"{card.node}: {first.what} could not be read: {first.why}",
        hint="needs get on nodes and list on pods in all namespaces (gpufleet-reader)",
    )
