"""The manual: a page for each command in docs/commands/ and man/, made of what the program says of itself.

`tests/accept.py` writes it (`make accept`) and a test compares it with the program. Nothing is told here
that a command can tell: text, options and examples come from its docstring and its signature.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import typer

from gpufleet_cli import cli
from gpufleet_cli.commands.examples import shown
from gpufleet_cli.commands.live_options import Live
from gpufleet_cli.commands.options import Inputs
from gpufleet_cli.errors import ExitCode
from gpufleet_cli.settings import Settings

Made = Any
"""What Typer makes of the program: commands and contexts, whose types are its own affair."""

ENVIRONMENT = {
    "GPUFLEET_PROMETHEUS": "Metrics, as --prometheus.",
    "GPUFLEET_LOG_STORE": "Logs of pods that are gone, as --log-store.",
    "GPUFLEET_DUMPS": "Flight Recorder dumps, as --dumps.",
    "GPUFLEET_HISTORY": "The folder of past incidents, in place of the user's own.",
    "GPUFLEET_NO_STATE": "1: neither cache nor history is written.",
    "KUBECONFIG": "Kubeconfig files, as for kubectl.",
    "NO_COLOR": "No colour, as --no-color.",
    "XDG_CACHE_HOME, XDG_CONFIG_HOME, XDG_STATE_HOME": "Where the folders below lie.",
}
FILES = {
    "~/.config/gpufleet/config.toml": "Settings, a table per context.",
    "~/.cache/gpufleet/names/": "The names that completion offers.",
    "~/.local/state/gpufleet/": "Past incidents.",
}
EXIT = {
    ExitCode.OK: "Done; triage: a verdict.",
    ExitCode.INTERNAL: "A fault in gpufleet itself.",
    ExitCode.USAGE: "The question cannot be asked this way.",
    ExitCode.UNDECIDABLE: "The evidence singles nobody out, or parts are missing.",
    ExitCode.UNREADABLE: "The target cannot be read.",
    ExitCode.REFUSED: "A guard refused.",
    ExitCode.FIX_OR_WATCH: "preflight: a finding. triage --detailed-exitcode: fix-code or watch.",
    ExitCode.RESTART_JOB: "triage --detailed-exitcode: restart-job.",
    ExitCode.CORDON_AT_CHECKPOINT: "triage --detailed-exitcode: cordon-at-checkpoint.",
    ExitCode.EVICT_NOW: "triage --detailed-exitcode: evict-now.",
    ExitCode.INTERRUPTED: "Interrupted.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One command. `inner` are the commands of a group, `options` its options below their headings."""

    name: str
    usage: str
    text: tuple[str, ...]
    arguments: tuple[tuple[str, str], ...]
    options: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
    examples: tuple[str, ...]
    inner: tuple[Page, ...]

    @property
    def first(self) -> str:
        """What it does, in its first sentence."""
        return self.text[0] if self.text else ""


def root() -> Page:
    """The program, with a page below it for each command that it has."""
    command: Made = typer.main.get_command(cli.build())
    return _page("gpufleet", command, None)


def _page(name: str, command: Made, parent: Made) -> Page:
    context = command.make_context(name, [], parent=parent, resilient_parsing=True)
    names = command.list_commands(context) if hasattr(command, "list_commands") else []
    text = [" ".join(part.split()) for part in (command.help or "").split("\n\n")]
    epilog = [part for part in (command.epilog or "").split("\n\n") if not part.startswith("\b")]
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    return Page(
        name=name,
        usage=usage,
        text=(*text, *(" ".join(part.split()) for part in epilog)),
        arguments=tuple(_records(command, context, "argument")),
        options=tuple(_grouped(command, context, is_root=parent is None)),
        examples=tuple(shown(command.epilog)),
        inner=tuple(
            _page(f"{name} {one}", command.get_command(context, one), context) for one in names
        ),
    )


_TYPE = re.compile(r" <[^>]*>$")  # Typer's word for what Python makes of it


def _records(command: Made, context: Made, kind: str) -> Iterator[tuple[str, str]]:
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if parameter.param_type_name == kind and record is not None:
            yield _TYPE.sub("", record[0]), " ".join(record[1].split())


def _grouped(
    command: Made,
    context: Made,
    *,
    is_root: bool,
) -> Iterator[tuple[str, tuple[tuple[str, str], ...]]]:
    """Its own options first, then those that it shares with other commands; a heading each.

    Those of every command stand on the page of the program alone, so that a new one changes one page.
    """
    names = {one.name for one in command.get_params(context)}
    shared = {"A job in the cluster": {one.name for one in fields(Live)}}
    shared["How the evidence is read"] = {one.name for one in fields(Inputs)}
    common = {one.name for one in fields(Settings)} | {"version", "help", "deadline"}
    shared = {head: group for head, group in shared.items() if group <= names}
    skipped = set() if is_root else common
    found: dict[str, list[tuple[str, str]]] = {"Options": [], **{head: [] for head in shared}}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if parameter.param_type_name != "option" or record is None or parameter.name in skipped:
            continue
        head = next((one for one, group in shared.items() if parameter.name in group), "Options")
        found[head].append((record[0], " ".join(record[1].split())))
    yield from ((head, tuple(rows)) for head, rows in found.items() if rows)


def files() -> dict[str, str]:
    """Every page by its path in the repository."""
    top = root()
    found = {"docs/commands/README.md": _index(top), "man/gpufleet.1": roff(top)}
    for page in top.inner:
        dashed = page.name.replace(" ", "-")
        found[f"docs/commands/{page.name.split()[1]}.md"] = markdown(page)
        found[f"man/{dashed}.1"] = roff(page)
    return found


# --- Markdown -------------------------------------------------------------------------------------

_MADE = "<!-- Made from the program by `make accept`; to change it, change the command. -->"


def markdown(page: Page, depth: int = 1) -> str:
    """A page of docs/commands; commands of a group follow on the same page."""
    head = "#" * depth
    parts = [f"{head} {page.name}", *([_MADE] if depth == 1 else [])]
    parts += [_prose(page.first), f"```text\n{page.usage}\n```", *map(_prose, page.text[1:])]
    if page.examples:
        block = "```sh\n" + "\n".join(page.examples) + "\n```"
        parts += [f"{head}# Examples", block] if depth == 1 else [block]
    if page.arguments:
        parts += [f"{head}# Arguments", _table(("argument", "meaning"), page.arguments)]
    for title, rows in page.options:
        parts += [f"{head}# {title}", _table(("option", "meaning"), rows)]
    if depth == 1 and " " in page.name:
        parts.append(
            "`-o`, `-v`, `-n` and the like: [options of every command](README.md#options)."
        )
    parts += [markdown(one, depth + 1).rstrip() for one in page.inner]
    return "\n\n".join(parts) + "\n"


def _index(top: Page) -> str:
    rows = [(f"[{one.name}]({one.name.split()[1]}.md)", _prose(one.first)) for one in top.inner]
    lines = ["| command | does |", "|---|---|", *(f"| {name} | {text} |" for name, text in rows)]
    alone = Page(**{one.name: getattr(top, one.name) for one in fields(Page)} | {"inner": ()})
    return markdown(alone) + "\n## Commands\n\n" + "\n".join(lines) + "\n"


def _prose(text: str) -> str:
    """Text in which nothing is taken for a tag or a table's edge."""
    return text.replace("<", "&lt;").replace("|", "\\|").replace("*", "\\*")


def _table(heads: tuple[str, str], rows: tuple[tuple[str, str], ...]) -> str:
    lines = [f"| {heads[0]} | {heads[1]} |", "|---|---|"]
    lines += [f"| `{name.replace('|', chr(92) + '|')}` | {_prose(text)} |" for name, text in rows]
    return "\n".join(lines)


# --- man ------------------------------------------------------------------------------------------


def roff(page: Page) -> str:
    """A man page in the macros of man(7)."""
    dashed = page.name.replace(" ", "-")
    lines = ['.\\" Made from the program by `make accept`; to change it, change the command.']
    lines += [f'.TH {_plain(dashed.upper())} 1 "" gpufleet "gpufleet manual"', ".SH NAME"]
    lines += [f"{_plain(dashed)} \\- {_plain(page.first.rstrip('.'))}", ".SH SYNOPSIS"]
    lines += [f".B {_plain(page.usage)}", ".SH DESCRIPTION"]
    for number, text in enumerate(page.text):
        lines += [".PP", _plain(text)] if number else [_plain(text)]
    lines += _section("ARGUMENTS", page.arguments)
    for title, rows in page.options:
        lines += _section(title.upper(), rows)
    if " " in page.name:
        lines += [part for one in page.inner for part in _inner(one)]
        near = ["gpufleet"]
        lines += [".SH OPTIONS OF EVERY COMMAND", "\\-o, \\-v, \\-n and the like: see"]
        lines += [".BR gpufleet (1)."]
    else:
        near = [one.name for one in page.inner]
        lines += _section("COMMANDS", tuple((one.name, one.first) for one in page.inner))
        lines += _section(
            "EXIT STATUS", tuple((str(int(code)), told) for code, told in EXIT.items())
        )
        lines += _section("ENVIRONMENT", tuple(ENVIRONMENT.items()))
        lines += _section("FILES", tuple(FILES.items()))
    lines += [".SH EXAMPLES", *_verbatim(page.examples), ".SH SEE ALSO"]
    lines.append(", ".join(f"\\fB{_plain(name.replace(' ', '-'))}\\fR(1)" for name in near))
    return "\n".join(lines) + "\n"


def _inner(page: Page) -> list[str]:
    """A command of a group: a section of the group's page."""
    lines = [f".SH {_plain(page.name.upper())}", _plain(page.first)]
    for _, rows in page.options:
        lines += _rows(rows)
    return [*lines, ".PP", *_verbatim(page.examples)]


def _section(title: str, rows: tuple[tuple[str, str], ...]) -> list[str]:
    return [f".SH {_plain(title)}", *_rows(rows)] if rows else []


def _rows(rows: tuple[tuple[str, str], ...]) -> list[str]:
    return [part for name, text in rows for part in (".TP", f".B {_plain(name)}", _plain(text))]


def _verbatim(lines: tuple[str, ...]) -> list[str]:
    return [".nf", *map(_plain, lines), ".fi"]


def _plain(text: str) -> str:
    """Text that no request of roff is read out of: each line of ours is one, and hyphens can be copied."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^(?=[.'])", r"\\&", escaped)


def words() -> Iterator[tuple[str, str, str]]:
    """(the command behind which it stands, a command or an option, its help in one line), as the shell's TAB offers them."""
    command: Made = typer.main.get_command(cli.build())
    yield from _words_of(command, "", command.make_context("gpufleet", [], resilient_parsing=True))


def _words_of(command: Made, path: str, context: Made) -> Iterator[tuple[str, str, str]]:
    names = command.list_commands(context) if hasattr(command, "list_commands") else []
    for name in names:
        inner = command.get_command(context, name)
        yield path, name, " ".join(inner.get_short_help_str(100).split())
    for parameter in command.get_params(context):
        if parameter.param_type_name == "option" and not parameter.hidden:
            told = " ".join((getattr(parameter, "help", None) or "").split())
            for option in sorted((*parameter.opts, *parameter.secondary_opts), reverse=True):
                yield path, option, told
    for name in names:
        inner = command.get_command(context, name)
        below = inner.make_context(name, [], parent=context, resilient_parsing=True)
        yield from _words_of(inner, f"{path} {name}".strip(), below)
