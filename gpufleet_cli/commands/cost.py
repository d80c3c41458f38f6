"""`gpufleet cost TOPIC`: what interruptions cost, and how to live with them. Arithmetic alone: no cluster."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

import typer
from typer.core import TyperGroup

from gpufleet_cli.commands.examples import block
from gpufleet_cli.commands.help_page import Command
from gpufleet_cli.commands.options import group_options, one_of, splice
from gpufleet_cli.commands.output import emit, look
from gpufleet_cli.commands.past import stops
from gpufleet_cli.completion import COST_TOPICS
from gpufleet_cli.errors import UsageError
from gpufleet_cli.settings import Settings

if TYPE_CHECKING:
    from gpufleet_cli.commands.cost_options import Value
    from gpufleet_cli.commands.cost_questions import Topic
    from gpufleet_cli.commands.past import Stops
    from gpufleet_cli.verdict import Input


_EXAMPLES = [
    "gpufleet cost checkpoint-interval --save 30s --mtti 5h",
    "gpufleet cost idle --gpus 8192 --watchdog-timeout 10m -o json",
]


class _Topics(TyperGroup):
    """Builds the command of a topic when it is asked for: at the start of every other run it is not."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401  Typer's own context
        return list(COST_TOPICS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401  Typer's own command
        if cmd_name in COST_TOPICS:
            from gpufleet_cli.commands.cost_questions import BY_NAME

            return _built(BY_NAME[cmd_name])
        if ctx.resilient_parsing or cmd_name.startswith("-"):
            return None
        _no_topic(f"cost {cmd_name!r} is no topic")


def cost() -> typer.Typer:
    """The group, with the global options of every command."""
    group = typer.Typer(cls=_Topics, subcommand_metavar="TOPIC", rich_markup_mode=None)
    told = "What interruptions cost, by your numbers.\n\nNo cluster is asked."
    group.callback(invoke_without_command=True, help=told, epilog=block(_EXAMPLES))(
        group_options(_alone)
    )
    return group


def _alone() -> None:
    _no_topic("cost of what?")


def _no_topic(message: str) -> NoReturn:
    raise UsageError(message, hint=f"one of {', '.join(COST_TOPICS)}")


def _built(topic: Topic) -> Any:  # noqa: ANN401  Typer's own command
    app = typer.Typer(
        rich_markup_mode=None,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    examples = block([_folded(f"gpufleet cost {topic.name} {one}") for one in topic.examples])
    app.command(topic.name, cls=Command, help=topic.help, epilog=examples)(splice(_command(topic)))
    return typer.main.get_command(app)


def _folded(example: str) -> str:
    """Over several lines, as a shell takes it, where one is too narrow."""
    lines, line = [], ""
    for pair in example.replace(" --", "\n--").split("\n"):
        if line and len(line) + len(pair) > 66:
            lines.append(line)
            line = pair
        else:
            line = f"{line} {pair}" if line else pair
    return " \\\n    ".join([*lines, line])


def _command(topic: Topic) -> Callable[..., None]:
    """One function with the options of the topic."""

    def run(*, settings: Settings, **given: Any) -> None:  # noqa: ANN401  as declared
        _answer(topic, given, settings)

    from gpufleet_cli.commands.cost_questions import parameters

    keyword = inspect.Parameter.KEYWORD_ONLY
    own = inspect.Parameter("settings", keyword, annotation=Settings)
    vars(run)["__signature__"] = inspect.Signature([*parameters(topic), own])
    return run


def _answer(topic: Topic, given: dict[str, Any], settings: Settings) -> None:
    output = one_of(settings.output, ("text", "json"))
    from gpufleet_cli.commands.cost_options import option
    from gpufleet_cli.commands.cost_questions import values
    from gpufleet_cli.render import cost_page

    numbers = values(topic, {name: given[name] for name in topic.options})
    asked, past = dict(numbers), None
    if "fleet_gpus" in numbers:
        past = stops(settings)
        observed = asked.pop("fleet_gpus") * past.hours
        asked |= {"interruptions": past.seen, "observed_gpu_hours": observed}
    defaults = {name: one for name, one in topic.optional if one is not None}
    raised = {name: bool(given[name]) for name, _ in topic.flags}
    answer = getattr(import_module(f"gpufleet_cli.cost_topics.{topic.module}"), topic.function)
    card = answer(**{**defaults, **asked, **raised})
    if past is not None:
        card = replace(card, notes=(past.told, *card.notes))
    inputs = _inputs(topic, numbers, defaults, raised)
    if past is not None:
        inputs += _of_history(past, {name: asked[name] for name in asked if name not in numbers})
    if output == "json":
        emit(cost_page.document(card, inputs))
        return
    options = {one.name: option(one.name) for one in inputs}
    emit(cost_page.text(card, inputs, options, look(settings)))


def _inputs(
    topic: Topic,
    numbers: Mapping[str, Value],
    defaults: Mapping[str, Value],
    raised: Mapping[str, bool],
) -> list[Input]:
    """What was given, and what stands where nothing was."""
    from gpufleet_cli.commands.cost_options import OPTIONS
    from gpufleet_cli.verdict import Input

    found = [
        Input(
            name=name,
            value=numbers.get(name, defaults.get(name)),
            unit=OPTIONS[name].unit,
            source="flag" if name in numbers else "default",
        )
        for name in topic.options
        if name in numbers or name in defaults
    ]
    found += [
        Input(name=name, value=is_on, unit="", source="flag" if is_on else "default")
        for name, is_on in raised.items()
    ]
    return found


def _of_history(past: Stops, counted: Mapping[str, Value]) -> list[Input]:
    from gpufleet_cli.commands.cost_options import OPTIONS
    from gpufleet_cli.verdict import Input

    found = [
        Input(name=name, value=number, unit=OPTIONS[name].unit, source="history")
        for name, number in counted.items()
    ]
    return [*found, Input(name="history", value=past.folder, unit="", source="history")]
