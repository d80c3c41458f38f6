"""What all commands that change a cluster have in common: whom they ask, and how they end."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from gpufleet_cli.commands.output import say
from gpufleet_cli.errors import Refused, UsageError
from gpufleet_cli.plain_text import visible

if TYPE_CHECKING:
    from gpufleet_cli.live.api import Api

DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Let the server say what would happen; nothing changes.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Answer the question that a person is asked.")]


def confirm(api: Api, what: str, name: str, *, yes: bool, dry_run: bool) -> None:
    """Have a person type the name of what is acted on; a script says --yes.

    The context and the server stand in the question: a wrong one is the usual accident. The deadline
    begins anew with the answer: it is not for a person's thinking.
    """
    from gpufleet_cli.live.deadline import Deadline

    if yes or dry_run:
        return
    access = api.access
    where = f"context {access.context}, " if access.context else ""
    if not sys.stdin.isatty():
        raise UsageError(f"{what}: nobody is there to confirm it", hint="a script says --yes")
    as_whom = f" as {access.user}" if access.user else ""
    for line in (what, f"  {where}server {access.server}{as_whom}"):
        sys.stderr.write(visible(line) + "\n")
    sys.stderr.write(visible(f"Type {name} to go on: "))
    sys.stderr.flush()
    if sys.stdin.readline().strip() != name:
        raise Refused(f"{what}: not confirmed: nothing was changed")
    api.deadline = Deadline(api.deadline.seconds)


def told(dry_run: bool, text: str) -> None:
    """A note on standard error; of a dry run it says so."""
    say(visible(f"dry run: {text}" if dry_run else text))
