"""The cluster as a command meets it: connected, checked, named on standard error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpufleet_cli.commands.output import say
from gpufleet_cli.settings import Settings

if TYPE_CHECKING:
    from gpufleet_cli.live.api import Api

DEADLINE_S = 30.0


def connected(settings: Settings, *, deadline_s: float = DEADLINE_S) -> Api:
    """The API server of the context; a SourceError in one line where there is no way in.

    `deadline_s` is how long the look takes at most where nobody says --deadline.
    """
    from gpufleet_cli.live import reach
    from gpufleet_cli.live.deadline import Deadline
    from gpufleet_cli.plain_text import visible
    from gpufleet_cli.redact import redact

    deadline = deadline_s if settings.deadline_s is None else settings.deadline_s
    found = reach.reached(
        kubeconfig=settings.kubeconfig, context=settings.context, deadline=Deadline(deadline)
    )
    say(visible(redact(found.told)))
    return found.api
