"""`gpufleet dumps TARGET`: Flight Recorder analysis alone."""

from __future__ import annotations

from gpufleet_cli.commands.live_options import Live
from gpufleet_cli.commands.options import Inputs, one_of
from gpufleet_cli.commands.output import emit, look
from gpufleet_cli.commands.target import TargetArgument, triage_of
from gpufleet_cli.settings import Settings


def dumps(*, target: TargetArgument = None, live: Live, inputs: Inputs, settings: Settings) -> int:
    """Say from Flight Recorder dumps alone who waits for whom.

    Examples:
      gpufleet dumps ./incident/
      gpufleet dumps train-run-7 -n train --dumps exec:/var/tmp/nccl_trace_rank_
    """
    output = one_of(settings.output, ("text", "json"))
    with triage_of(target, inputs, live, settings) as found:
        from gpufleet_cli.render import dumps_table

        render = dumps_table.render_json if output == "json" else dumps_table.render
        emit(render(found, look(settings)))
    return 0
