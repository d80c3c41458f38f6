"""`gpufleet ranks TARGET`: every rank, sorted by silence."""

from __future__ import annotations

from gpufleet_cli.commands.live_options import Live
from gpufleet_cli.commands.options import Inputs, one_of
from gpufleet_cli.commands.output import emit, look
from gpufleet_cli.commands.target import TargetArgument, triage_of
from gpufleet_cli.settings import Settings


def ranks(*, target: TargetArgument = None, live: Live, inputs: Inputs, settings: Settings) -> int:
    """List every rank with pod, node and GPU, the quietest first.

    Examples:
      gpufleet ranks ./incident/
      gpufleet ranks train-run-7 -n train -o json
    """
    output = one_of(settings.output, ("text", "json"))
    with triage_of(target, inputs, live, settings) as found:
        from gpufleet_cli.render import ranks_table

        render = ranks_table.render_json if output == "json" else ranks_table.render
        emit(render(found, look(settings)))
    return 0
