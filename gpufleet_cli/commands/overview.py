"""`gpufleet` alone: what is running here and what looks ill."""

from __future__ import annotations

from gpufleet_cli.commands.cluster_api import connected
from gpufleet_cli.commands.options import one_of
from gpufleet_cli.commands.output import emit, look
from gpufleet_cli.errors import ExitCode, SourceError
from gpufleet_cli.settings import Settings

DEADLINE_S = 4.5
"""With the start of the program within five seconds; `--deadline` says otherwise."""


def overview(settings: Settings) -> int:
    """List the gangs of the context, worst first.

    Exit status: 0, 4 when nothing could be read, 2 usage.

    Examples:
      gpufleet -n train                      # the gangs of a namespace
      gpufleet triage train-run-7 -n train   # which rank, and what to do
      gpufleet triage ./incident/            # the same from files
      gpufleet xid 79
    """
    output = one_of(settings.output, ("text", "json", "yaml"))
    from gpufleet_cli.live import access, gang_look, name_cache
    from gpufleet_cli.live.name_cache import Names
    from gpufleet_cli.render.gangs_page import gangs_document, gangs_text
    from gpufleet_cli.render.structured import dumped

    if not access.has_a_way(settings.kubeconfig, settings.context):
        raise SourceError(
            "no cluster to look at: there is no kubeconfig (KUBECONFIG, --kubeconfig FILE)",
            hint="a folder of logs and dumps: gpufleet triage FOLDER; the commands: gpufleet --help",
        )
    api = connected(settings, deadline_s=DEADLINE_S)
    found = gang_look.look(api, settings.namespace)
    met = Names(jobs=[(one.name, one.namespace) for one in found.gangs])
    name_cache.remember(api.access, settings.kubeconfig, met)
    if output == "text":
        emit(gangs_text(found, look(settings)))
    else:
        emit(dumped(gangs_document(found), output))
    return ExitCode.OK
