"""`gpufleet cache` and `gpufleet cache refresh`: the names that completion offers."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from gpufleet_cli.commands.cluster_api import connected
from gpufleet_cli.commands.options import one_of
from gpufleet_cli.commands.output import emit, say
from gpufleet_cli.errors import UsageError
from gpufleet_cli.settings import Settings, keeps_state


def cache(
    *,
    what: Annotated[
        str | None,
        typer.Argument(metavar="refresh", help="Fetch the names anew.", show_default=False),
    ] = None,
    settings: Settings,
) -> None:
    """Show how old the names for completion are, or fetch them.

    Exit status: 0, 4 when nothing could be read, 2 usage.

    Examples:
      gpufleet cache
      gpufleet cache refresh --context prod
    """
    output = one_of(settings.output, ("text", "json"))
    if what not in (None, "refresh"):
        raise UsageError(
            f"cache {what!r}: not known", hint="gpufleet cache, or gpufleet cache refresh"
        )
    if what == "refresh":
        _refresh(settings)
    emit(_shown(as_json=output == "json"))


def _refresh(settings: Settings) -> None:
    if not keeps_state():
        raise UsageError("GPUFLEET_NO_STATE=1: there is no cache", hint="unset it to keep names")
    from gpufleet_cli.live import access, name_cache, names_met

    api = connected(settings)
    names, whole, gaps = names_met.everywhere(api)
    name_cache.remember(api.access, settings.kubeconfig, names, whole=whole)
    name_cache.remember_contexts(access.context_names(settings.kubeconfig), whole=True)
    for gap in gaps:
        say(f"not fetched: {gap.what}: {gap.why}")


def _shown(*, as_json: bool) -> str:
    import time

    from gpufleet_cli.live import name_cache
    from gpufleet_cli.render.layout import counted, duration

    now = time.time()
    found = name_cache.kept()
    if as_json:
        rows = [
            {
                "context": one.context or None,
                "age_seconds": round(now - one.written_s),
                "refreshed_seconds_ago": None
                if one.refreshed_s is None
                else round(now - one.refreshed_s),
                **{f"{kind}s": number for kind, number in one.counts},
            }
            for one in found
        ]
        return json.dumps({"cache": rows}, indent=2) + "\n"
    if not found:
        return "no names are kept; gpufleet cache refresh fetches them\n"
    lines = []
    for one in found:
        counts = ", ".join(counted(number, kind) for kind, number in one.counts)
        whole = (
            "never fetched whole"
            if one.refreshed_s is None
            else f"fetched {duration(max(0.0, now - one.refreshed_s))} ago"
        )
        age = duration(max(0.0, now - one.written_s))
        lines.append(f"{one.context or 'in-cluster'}: {counts}; {whole}, last added to {age} ago")
    return "\n".join(lines) + "\n"
