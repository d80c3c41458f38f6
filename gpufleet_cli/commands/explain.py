"""`gpufleet explain TARGET --rank N`: why this rank is, or is not, the culprit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gpufleet_cli.commands.live_options import Live
from gpufleet_cli.commands.options import Inputs, one_of
from gpufleet_cli.commands.output import emit, look
from gpufleet_cli.commands.target import TargetArgument, triage_of
from gpufleet_cli.errors import UsageError
from gpufleet_cli.settings import Settings

if TYPE_CHECKING:
    from gpufleet_cli.verdict import Triage


def explain(
    *,
    target: TargetArgument = None,
    rank: Annotated[int, typer.Option("--rank", metavar="N", min=0, help="The global rank.")],
    live: Live,
    inputs: Inputs,
    settings: Settings,
) -> int:
    """Say why one rank is, or is not, the culprit.

    Exit status: 0 done, 4 the target cannot be read, 2 usage, and a rank that the job does not have.

    Examples:
      gpufleet explain ./incident/ --rank 800
      gpufleet explain train-run-7 -n train --rank 0 -o json
    """
    output = one_of(settings.output, ("text", "json"))
    with triage_of(target, inputs, live, settings) as found:
        from gpufleet_cli.render import explain_card
        from gpufleet_cli.triage import explain as explain_rank

        _must_be_a_rank(found, rank)
        render = explain_card.render_json if output == "json" else explain_card.render
        emit(render(explain_rank(found, rank), look(settings)))
    return 0


def _must_be_a_rank(found: Triage, rank: int) -> None:
    """A world that is only guessed at, by the highest rank that an agent named, refuses nobody."""
    size = found.job.world_size
    if size is None or found.job.world_size_source == "agent" or rank < size:
        return
    if all(row.rank != rank for row in found.ranks):
        raise UsageError(
            f"--rank {rank}: the ranks of this job are 0 to {size - 1}",
            hint=f"its {size:,} ranks are known by: {found.job.world_size_source}",
        )
