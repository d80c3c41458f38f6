"""`gpufleet explain TARGET --rank N`: why this rank is, or is not, the culprit."""

from __future__ import annotations

from typing import Annotated

import typer

from gpufleet_cli.commands.live_options import Live
from gpufleet_cli.commands.options import Inputs, one_of
from gpufleet_cli.commands.output import emit, look
from gpufleet_cli.commands.target import TargetArgument, triage_of
from gpufleet_cli.settings import Settings


def explain(
    *,
    target: TargetArgument = None,
    rank: Annotated[int, typer.Option("--rank", metavar="N", min=0, help="The global rank.")],
    live: Live,
    inputs: Inputs,
    settings: Settings,
) -> int:
    """Say why one rank is, or is not, the culprit.

    Examples:
      gpufleet explain ./incident/ --rank 800
      gpufleet explain train-run-7 -n train --rank 0 -o json
    """
    output = one_of(settings.output, ("text", "json"))
    with triage_of(target, inputs, live, settings) as found:
        from gpufleet_cli.render import explain_card
        from gpufleet_cli.triage import explain as explain_rank

        render = explain_card.render_json if output == "json" else explain_card.render
        emit(render(explain_rank(found, rank), look(settings)))
    return 0
