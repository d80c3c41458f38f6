"""Environment variables in YAML text inside an object: a RayJob's `runtimeEnvYAML`. Read by its indents, parsed by nobody.

>>> without_values("env_vars:\\n  RANK: 3\\n  MINE: abc\\npip: [x]\\n", lambda name: name == "RANK")
('env_vars:\\n  RANK: 3\\n  MINE: [hidden]\\npip: [x]\\n', ['MINE'])
"""

from __future__ import annotations

import re
from collections.abc import Callable

from gpufleet_cli.redact import HIDDEN

_HEAD = re.compile(r"(?P<indent>[ \t]*)(?:- )?[\"']?env_vars[\"']?[ \t]*:[ \t]*(?P<rest>.*)")
_ENTRY = re.compile(
    r"(?P<head>[ \t]*[\"']?(?P<name>[\w.-]{1,200})[\"']?[ \t]*:[ \t]+)(?P<value>\S.*)"
)
_SEVERAL = "|>"
_NOTHING = ("", "{}", "null", "~")


def without_values(text: str, stays: Callable[[str], bool]) -> tuple[str, list[str]]:
    """The text without the values of `env_vars`, but of names that may stay; and whose were hidden."""
    lines = text.split("\n")
    hidden: list[str] = []
    inside: int | None = None
    keeps = False
    for at, line in enumerate(lines):
        head = _HEAD.fullmatch(line)
        if head is not None:
            inside, keeps = len(head["indent"]), False
            if head["rest"].partition("#")[0].strip() not in _NOTHING:  # {A: b} on the line itself
                lines[at] = line[: head.start("rest")] + HIDDEN
                hidden.append("env_vars")
            continue
        if inside is None or not line.strip():
            continue
        if len(line) - len(line.lstrip()) <= inside:
            inside = None
            continue
        entry = _ENTRY.fullmatch(line)
        if entry is None:  # of a value of several lines, or an entry without a value
            if not keeps and not line.rstrip().endswith(":"):
                lines[at] = line[: len(line) - len(line.lstrip())] + HIDDEN
            continue
        keeps = stays(entry["name"])
        if not keeps and entry["value"][0] not in _SEVERAL:
            lines[at] = entry["head"] + HIDDEN
        if not keeps:
            hidden.append(entry["name"])
    return "\n".join(lines), hidden
