"""Options that several commands share, spliced into their signatures.

A command asks for `settings: Settings` (the global options), `inputs: Inputs` (how a target is
to be read) or `live: Live` (how a job in the cluster is found) as one parameter; `splice` puts the options in its place, so that every command lists
them in its `--help` and none of them repeats the list.
"""

from __future__ import annotations

import inspect
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpufleet_cli import __version__
from gpufleet_cli.commands.live_options import Live, live_options
from gpufleet_cli.errors import UsageError
from gpufleet_cli.settings import Settings, parse_duration

if TYPE_CHECKING:
    from gpufleet_cli.facts import JobNumbers

Command = Callable[..., Any]

STATES = ("running", "stalled", "aborted", "exited", "unknown")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What the command line says about the target; the numbers win over job.json and evidence."""

    as_of: str | None
    follow_links: bool
    world_size: int | None
    gpus_per_node: int | None
    state: str | None
    checkpoint_interval: str | None
    last_checkpoint_at: str | None
    last_checkpoint_step: int | None
    step_seconds: str | None
    watchdog_timeout: str | None
    restart: str | None

    def as_of_ns(self) -> int | None:
        return time.time_ns() if self.as_of == "now" else time_ns(self.as_of, "--as-of")

    def numbers(self) -> JobNumbers:
        """The flags as facts."""
        from gpufleet_cli.facts import JobNumbers

        if self.state is not None and self.state not in STATES:
            raise UsageError(f"--state {self.state!r} is not a state", hint=_one_of(STATES))
        return JobNumbers(
            source="flag",
            world_size=self.world_size,
            gpus_per_node=self.gpus_per_node,
            state=self.state,
            checkpoint_interval_s=_duration(self.checkpoint_interval, "--checkpoint-interval"),
            last_checkpoint_ns=time_ns(self.last_checkpoint_at, "--last-checkpoint-at"),
            last_checkpoint_step=self.last_checkpoint_step,
            step_s=_duration(self.step_seconds, "--step-seconds"),
            watchdog_timeout_s=_duration(self.watchdog_timeout, "--watchdog-timeout"),
            restart_s=_duration(self.restart, "--restart"),
        )


def _duration(text: str | None, option: str) -> float | None:
    return None if text is None else parse_duration(text, option)


def time_ns(text: str | None, option: str) -> int | None:
    if text is None:
        return None
    from gpufleet_cli.timestamps import parse_any

    found = parse_any(text)
    if found is None:
        raise UsageError(
            f"{option} {text!r} is not a time", hint="write 2026-03-11T03:51:19Z or Unix seconds"
        )
    ns, zone_stated = found
    if not zone_stated:
        sys.stderr.write(f"gpufleet: {option} has no zone: taken as UTC\n")
    return ns


def one_of(value: str | None, allowed: tuple[str, ...], option: str = "--output") -> str:
    """The value, or the first one allowed when none was given."""
    if value is None:
        return allowed[0]
    if value not in allowed:
        raise UsageError(f"{option} {value!r} is not available here", hint=_one_of(allowed))
    return value


def _one_of(allowed: tuple[str, ...]) -> str:
    return f"one of {', '.join(allowed)}"


# --- The options themselves -----------------------------------------------------------------------


def _show_version(*, value: bool) -> None:
    if value:
        sys.stdout.write(f"gpufleet {__version__}\n")
        raise typer.Exit(0)


def _global_options(  # a signature to splice, never called
    *,
    output: Annotated[
        str | None,
        typer.Option(
            "-o", "--output", metavar="FORMAT", help="text, json; triage also yaml, markdown, html."
        ),
    ] = None,
    no_color: Annotated[
        bool, typer.Option("--no-color", help="No colour; NO_COLOR does the same.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="The evidence behind the answer as well.")
    ] = False,
    deadline: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="What is not there by then is reported missing: 60s, 2m."
        ),
    ] = None,
    context: Annotated[
        str | None, typer.Option(metavar="NAME", help="The context of the kubeconfig.")
    ] = None,
    kubeconfig: Annotated[
        str | None, typer.Option(metavar="FILE", help="The kubeconfig file.")
    ] = None,
    namespace: Annotated[
        str | None, typer.Option("-n", "--namespace", metavar="NAME", help="The job's namespace.")
    ] = None,
    history: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Past incidents, one file each.")
    ] = None,
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    raise NotImplementedError


def _install_completion(*, value: bool) -> None:
    """For the shell that $SHELL names; Typer knows where each keeps its completions."""
    if not value:
        return
    from typer.completion import (  # type: ignore[attr-defined]  # its own option calls `install`
        get_completion_inspect_parameters,
        install,
    )

    from gpufleet_cli.completion_scripts import SCRIPTS

    shell = PurePath(os.environ.get("SHELL", "")).name
    if shell not in ("bash", "zsh", "fish"):
        raise UsageError(
            f"$SHELL is {shell or 'not set'}: completion is for bash, zsh and fish",
            hint="SHELL=bash gpufleet --install-completion",
        )
    get_completion_inspect_parameters()
    _, place = install(shell=shell, prog_name="gpufleet", complete_var="_GPUFLEET_COMPLETE")
    place.write_text(SCRIPTS[shell], encoding="utf-8")
    sys.stdout.write(f"{place}: completion for {shell}; a new shell has it\n")
    raise typer.Exit(0)


def _root_only(  # a signature to splice, never called
    *,
    install_completion: Annotated[
        bool,
        typer.Option(
            "--install-completion",
            help="Set up TAB for the shell of $SHELL.",
            callback=_install_completion,
            is_eager=True,
        ),
    ] = False,
) -> None:
    raise NotImplementedError


def _input_options(  # a signature to splice, never called
    *,
    as_of: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="The 'now' of the analysis; 'now' for the clock's."),
    ] = None,
    follow_links: Annotated[
        bool, typer.Option("--follow-links", help="Follow links that lead out of the folder.")
    ] = False,
    world_size: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=131_072, help="Ranks.")
    ] = None,
    gpus_per_node: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="GPUs of a node.")
    ] = None,
    state: Annotated[
        str | None, typer.Option(metavar="STATE", help=f"{', '.join(STATES)}.")
    ] = None,
    checkpoint_interval: Annotated[
        str | None, typer.Option(metavar="TIME", help="Between two checkpoints: 30m, 1800.")
    ] = None,
    last_checkpoint_at: Annotated[
        str | None, typer.Option(metavar="TIME", help="When the last durable one was complete.")
    ] = None,
    last_checkpoint_step: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Its step.")
    ] = None,
    step_seconds: Annotated[
        str | None, typer.Option(metavar="TIME", help="One optimizer step: 0.418, 2s.")
    ] = None,
    watchdog_timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="Timeout of a collective: 10m.")
    ] = None,
    restart: Annotated[
        str | None, typer.Option(metavar="TIME", help="From failure to the first useful step.")
    ] = None,
) -> None:
    raise NotImplementedError


# --- Splicing -------------------------------------------------------------------------------------


def splice(command: Command) -> Command:
    """The command with `settings`, `inputs` and `live` replaced by the options that they stand for.

    Global options may stand before the command too: what was given there is in `ctx.obj`, and
    what stands behind the command wins.
    """
    own = inspect.signature(command, eval_str=True).parameters
    extra: list[inspect.Parameter] = []
    if "live" in own:
        extra += _parameters(live_options)
    if "inputs" in own:
        extra += _parameters(_input_options)
    extra += _parameters(_global_options)
    context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    kept = [
        one.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, one in own.items()
        if name not in ("inputs", "live", "settings")
    ]

    @wraps(command)
    def run(*, ctx: typer.Context, **given: Any) -> Any:  # noqa: ANN401  what the command says
        settings = merged(ctx.obj, settings_of(given))
        arguments = {one.name: given[one.name] for one in kept}
        if "settings" in own:
            arguments["settings"] = settings
        if "live" in own:
            arguments["live"] = Live(**{one.name: given[one.name] for one in fields(Live)})
        if "inputs" in own:
            names = (item.name for item in fields(Inputs))
            arguments["inputs"] = Inputs(**{name: given[name] for name in names})
        return command(**arguments)

    _sign(run, [context, *kept, *extra])
    return run


def root_options(alone: Callable[[Settings], int]) -> Command:
    """The callback that takes the global options before the command; `alone` runs where none is given."""

    def root(*, ctx: typer.Context, **given: Any) -> int:  # noqa: ANN401  any option
        ctx.obj = settings_of(given)
        return alone(ctx.obj) if ctx.invoked_subcommand is None else 0

    context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    _sign(root, [context, *_parameters(_global_options), *_parameters(_root_only)])
    return root


def group_options(alone: Callable[[], None]) -> Command:
    """The callback of a command with commands of its own; the global options may stand behind it too."""

    def group(*, ctx: typer.Context, **given: Any) -> None:  # noqa: ANN401  any option
        ctx.obj = merged(ctx.obj, settings_of(given))
        if ctx.invoked_subcommand is None:
            alone()

    context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    _sign(group, [context, *_parameters(_global_options)])
    return group


def _parameters(declared: Command) -> list[inspect.Parameter]:
    return list(inspect.signature(declared, eval_str=True).parameters.values())


def _sign(function: Any, parameters: list[inspect.Parameter]) -> None:  # noqa: ANN401
    """Give a function the signature that Typer is to see."""
    function.__signature__ = inspect.Signature(parameters)
    function.__annotations__ = {one.name: one.annotation for one in parameters}


def settings_of(given: Mapping[str, Any]) -> Settings:
    """The global options among the arguments of one command."""
    return Settings(
        output=given["output"],
        no_color=given["no_color"],
        verbose=given["verbose"],
        deadline_s=_duration(given["deadline"], "--deadline"),
        context=given["context"],
        kubeconfig=given["kubeconfig"],
        namespace=given["namespace"],
        history=given["history"],
    )


def merged(before: Settings | None, after: Settings) -> Settings:
    """What stands behind the command wins over what stands before it."""
    if before is None:
        return after
    chosen = {}
    for item in fields(Settings):
        late = getattr(after, item.name)
        chosen[item.name] = getattr(before, item.name) if late is None or late is False else late
    return Settings(**chosen)
