"""The program: commands, global options, and the one place that turns errors into exit codes.

Nothing heavy is imported here: each command imports what it needs when it runs, so that `--help`
and `xid` answer at once. Help and errors are plain text, without markup, because both may quote
what somebody typed or what a file is called.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path, PurePath
from typing import Any

import typer
from typer.exceptions import TyperException

from gpufleet_cli.commands.alerts import alerts
from gpufleet_cli.commands.cache import cache
from gpufleet_cli.commands.collect import collect
from gpufleet_cli.commands.cordon import cordon
from gpufleet_cli.commands.cost import cost
from gpufleet_cli.commands.doctor import doctor
from gpufleet_cli.commands.drain_check import drain_check
from gpufleet_cli.commands.drill import drill
from gpufleet_cli.commands.dumps import dumps
from gpufleet_cli.commands.evict import evict
from gpufleet_cli.commands.examples import told
from gpufleet_cli.commands.explain import explain
from gpufleet_cli.commands.help_page import Command
from gpufleet_cli.commands.history import history
from gpufleet_cli.commands.label_gangs import label_gangs
from gpufleet_cli.commands.node import node, nodes
from gpufleet_cli.commands.options import root_options, splice
from gpufleet_cli.commands.output import silence
from gpufleet_cli.commands.overview import overview
from gpufleet_cli.commands.postmortem import postmortem
from gpufleet_cli.commands.preflight import preflight
from gpufleet_cli.commands.queue import queue
from gpufleet_cli.commands.ranks import ranks
from gpufleet_cli.commands.summarise import summarise
from gpufleet_cli.commands.triage import triage
from gpufleet_cli.commands.uncordon import uncordon
from gpufleet_cli.commands.watch import watch
from gpufleet_cli.commands.xid import xid
from gpufleet_cli.completion import WITH_VALUE
from gpufleet_cli.errors import ExitCode, GpufleetError
from gpufleet_cli.plain_text import visible

COMPLETE_VARIABLE = "_GPUFLEET_COMPLETE"  # set by the files in completions/
COMMANDS = (
    triage, collect, ranks, dumps, explain, node, nodes, cordon, uncordon, queue, evict, drain_check, label_gangs,
    xid, doctor, preflight, watch, alerts, postmortem, summarise, drill, history, cache,
)  # fmt: skip
GROUPS = (cost,)
"""Commands with commands of their own: each makes its Typer app."""

_HELP = (
    "Which rank stopped this training job, what is under it, and what to do about it."
    " Without a command: the gangs of the cluster, worst first."
)
_EPILOG = (
    "Exit status: 0 done (triage: a verdict) - 1 a fault in gpufleet - 2 usage - 3 undecidable"
    " - 4 the target cannot be read - 5 a guard refused - 130 interrupted."
)


def build(only: str | None = None) -> typer.Typer:
    """The application with every command registered, or with the one that is meant."""
    app = typer.Typer(
        name="gpufleet",
        help=_HELP,
        epilog=f"{told(overview)[1]}\n\n{_EPILOG}",
        rich_markup_mode=None,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(root_options(overview))
    for command in COMMANDS:
        if only in (None, name_of(command)):
            text, examples = told(command)
            app.command(name_of(command), cls=Command, help=text, epilog=examples)(splice(command))
    for group in GROUPS:
        if only in (None, group.__name__):
            app.add_typer(group(), name=group.__name__)
    return app


def meant(arguments: Sequence[str]) -> str | None:
    """The command, where nothing but known options with their values stands before it; else None.

    Typer takes a millisecond for each command that it is told of.

    >>> meant(["-v", "-n", "triage", "xid", "79"]), meant(["--help", "xid"]), meant(["nothing"])
    ('xid', None, None)
    """
    is_value = False
    for word in arguments:
        if is_value or word in ("-v", "--verbose", "--no-color"):
            is_value = False
        elif word in WITH_VALUE:
            is_value = True
        else:
            names = [name_of(one) for one in COMMANDS] + [group.__name__ for group in GROUPS]
            return word if word in names else None
    return None


def name_of(command: Callable[..., Any]) -> str:
    """The name that a person types: `drain-check`."""
    return command.__name__.replace("_", "-")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the answer is the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    _survive_any_text()
    if COMPLETE_VARIABLE in os.environ:
        from typer.completion import get_completion_inspect_parameters

        get_completion_inspect_parameters()  # makes the shells known, as --install-completion would
    try:
        only = None if COMPLETE_VARIABLE in os.environ else meant(given)
        answer = build(only)(
            args=given,
            prog_name=_program_name(),
            complete_var=COMPLETE_VARIABLE,
            standalone_mode=False,
        )
        if answer == ExitCode.INTERRUPTED:  # Typer turns Ctrl-C into this answer
            raise KeyboardInterrupt
        return int(answer or 0)
    except GpufleetError as exc:
        return _complain(exc.message, exc.hint, exc.exit_code)
    except TyperException as exc:
        return _complain(*_usage(exc))
    except (KeyboardInterrupt, typer.Abort):
        return _complain("interrupted", None, ExitCode.INTERRUPTED)
    except BrokenPipeError:
        silence(sys.stdout)
        return ExitCode.OK
    except Exception as exc:  # noqa: BLE001  the last stop: our own bugs end in one line as well
        from gpufleet_cli.crash import crash_line

        return _complain(crash_line(exc, given), None, ExitCode.INTERNAL)


def _program_name() -> str:
    """`kubectl gpufleet` when kubectl runs us as its plugin."""
    return "kubectl gpufleet" if PurePath(sys.argv[0]).name.startswith("kubectl-") else "gpufleet"


def _survive_any_text() -> None:
    """A stream that cannot say a character says its escape, and one that was closed says nothing."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            nothing = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115  open to the end
            setattr(sys, name, nothing)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _usage(exc: TyperException) -> tuple[str, str, ExitCode]:
    """What Typer found wrong, in one line, and where the options are listed."""
    shown: Any = exc
    message = (
        " ".join(shown.format_message().split()) if hasattr(exc, "format_message") else str(exc)
    )
    context = getattr(exc, "ctx", None)
    command = context.command_path if context is not None else "gpufleet"
    return message.rstrip("."), f"see {command} --help", ExitCode.USAGE


def _complain(message: str, hint: str | None, code: ExitCode) -> int:
    """One line on standard error, without secrets and without control characters."""
    from gpufleet_cli.redact import redact

    line = " ".join(f"gpufleet: {message}{f' ({hint})' if hint else ''}".split())
    try:
        sys.stderr.write(visible(redact(line)) + "\n")
        sys.stderr.flush()
    except OSError:  # a full disk behind it: the exit status still tells
        silence(sys.stderr)
    return int(code)
