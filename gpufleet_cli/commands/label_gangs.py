"""`gpufleet label-gangs`: mark the nodes that hold a gang, so that "may I drain it?" is a look-up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gpufleet_cli.commands.acting import DryRun, told
from gpufleet_cli.commands.cluster_api import connected
from gpufleet_cli.commands.options import one_of
from gpufleet_cli.commands.output import emit, look
from gpufleet_cli.errors import ExitCode, Refused, SourceError
from gpufleet_cli.settings import Settings

if TYPE_CHECKING:
    from gpufleet_cli.live.api import Api
    from gpufleet_cli.mark_card import MarkRun

DEADLINE_S = 300.0
EVERYWHERE = "all"


def label_gangs(
    *,
    remove: Annotated[
        bool, typer.Option("--remove", help="Take our marks away instead, all of them.")
    ] = False,
    dry_run: DryRun = False,
    settings: Settings,
) -> int:
    """Mark nodes that hold a gang, and clear those that hold none.

    Label gpufleet/gang, and annotations for job, size, since and uid; nothing else is touched, and
    nothing is written where the marks are right. Of all namespaces, or of one (-n).

    Exit status: 0, 4 when a right is missing or the server is lost, 5 when others wrote to a node
    each time, 2 usage.

    Examples:
      gpufleet label-gangs --dry-run
      gpufleet label-gangs -n train
      gpufleet label-gangs --remove
    """
    output = one_of(settings.output, ("text", "json"))
    from gpufleet_cli.render.marks_page import marks_json, marks_text

    api = connected(settings, deadline_s=DEADLINE_S)
    namespace = None if settings.namespace in (None, EVERYWHERE) else settings.namespace
    run = _run(api, namespace, remove=remove, dry_run=dry_run)
    refused = run.refusal
    if refused is not None and not run.changes_made:
        raise SourceError(f"nothing was written: {refused.why}", hint=_hint(refused.why))
    emit(marks_json(run) if output == "json" else marks_text(run, look(settings)))
    if refused is not None:
        told(dry_run, f"{len(run.not_made)} nodes not written: {refused.why}")
        return ExitCode.UNREADABLE
    if run.not_made:
        raise Refused(
            f"{len(run.not_made)} nodes not written: others wrote to them each time",
            hint="run it again",
        )
    return ExitCode.OK


def _run(api: Api, namespace: str | None, *, remove: bool, dry_run: bool) -> MarkRun:
    from gpufleet_cli.live import held_look
    from gpufleet_cli.operate import label_gangs as labels
    from gpufleet_cli.operate.writes import Writer

    writer = Writer(api=api, dry_run=dry_run)
    said: list[str] = []
    if remove:
        run = labels.remove(writer, namespace, said.append)
    else:
        run = labels.label(writer, held_look.look(api, namespace), said.append)
    for line in said[:1]:  # one reason for all nodes, as a rule
        more = f" (and {len(said) - 1} more)" if len(said) > 1 else ""
        told(dry_run, f"{line}{more}")
    return run


def _hint(why: str) -> str | None:
    return "needs gpufleet-operator (deploy/rbac)" if "no right" in why else None
