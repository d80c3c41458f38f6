"""A command as its help page shows it: arguments by the word a person types, without Python's types.

Typer writes `[[JOB]]` and `JOB <str>`, whatever `metavar` says.
"""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand


class Command(TyperCommand):
    """A command with one place for the look of its arguments."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ANN401  Typer's own context
        arguments = [one for one in self.get_params(ctx) if one.param_type_name == "argument"]
        return [self.options_metavar or "", *map(_usage, arguments)]

    def format_options(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401  Typer's own
        sections: dict[str, list[tuple[str, str]]] = {"argument": [], "option": []}
        for one in self.get_params(ctx):
            record = one.get_help_record(ctx)
            if record is not None:
                is_option = one.param_type_name == "option"
                name = record[0] if is_option else _word(one)
                sections[one.param_type_name].append((name, record[1]))
        for kind, title in (("argument", "Arguments"), ("option", "Options")):
            if sections[kind]:
                with formatter.section(title):
                    formatter.write_dl(sections[kind])


def _word(argument: Any) -> str:  # noqa: ANN401  Typer's own parameter
    return argument.metavar or str(argument.name).upper()


def _usage(argument: Any) -> str:  # noqa: ANN401
    word = _word(argument)
    if argument.nargs != 1 and "..." not in word:
        word += "..."
    return word if argument.required else f"[{word}]"
