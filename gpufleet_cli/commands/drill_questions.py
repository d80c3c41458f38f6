"""The questions of a drill, on a terminal or as options: what kind, who, what to do.

What is asked goes to standard error, where it does not stand in the report.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from gpufleet_cli.errors import UsageError
from gpufleet_cli.plain_text import visible
from gpufleet_cli.render.drill_page import ACTIONS, KINDS, action_question, kind_question
from gpufleet_cli.render.layout import WIDTH, Look, wrap
from gpufleet_cli.verdict import Action, Kind

if TYPE_CHECKING:
    from gpufleet_cli.operate.simulate.answers import Answer

_RANKS = re.compile(r"\d{1,6}(?:-\d{1,6})?", re.ASCII)
_KINDS = {str(kind): kind for kind, _words in KINDS}
_ACTIONS = {
    **{str(action): action for action in Action},
    "leave": Action.NONE,
    "cordon": Action.CORDON_AT_CHECKPOINT,
    "evict": Action.EVICT_NOW,
    "fix": Action.FIX_CODE,
    "restart": Action.RESTART_JOB,
    "collect": Action.COLLECT_MORE,
}
Said = TypeVar("Said")
Who = tuple[tuple[int, ...], tuple[str, ...]]


class NoAnswerError(Exception):
    """Whoever was asked closed the terminal's input."""


# --- Reading what was said -------------------------------------------------------------------------


def read_kind(text: str) -> Kind:
    """A kind by its name or its number."""
    kinds = [kind for kind, _words in KINDS]
    found = _by_number(text, kinds) or _KINDS.get(_word(text))
    if found is None:
        raise UsageError(
            f"{text!r} is not a kind",
            hint=f"a number from 1 to {len(KINDS)}, or one of {', '.join(_KINDS)}",
        )
    return found


def read_action(text: str) -> Action:
    """An action by its name, the begin of it, or its number."""
    actions = [action for action, _words in ACTIONS]
    word = _word(text)
    found = _by_number(text, actions) or _ACTIONS.get(word) or _ACTIONS.get(word.partition("-")[0])
    if found is None:
        raise UsageError(
            f"{text!r} is not an action", hint=f"one of {', '.join(str(a) for a in Action)}"
        )
    return found


def _by_number(text: str, among: Sequence[Said]) -> Said | None:
    trimmed = text.strip()
    is_number = trimmed.isascii() and trimmed.isdigit() and len(trimmed) < 3
    return among[int(trimmed) - 1] if is_number and 0 < int(trimmed) <= len(among) else None


def _word(text: str) -> str:
    return "-".join(text.lower().replace("_", " ").replace("-", " ").split())


def read_ranks(text: str, size: int) -> tuple[int, ...]:
    """`3,5-7` as ranks of a job of that size.

    >>> read_ranks("3, 5-7", 64)
    (3, 5, 6, 7)
    """
    found: set[int] = set()
    for part in text.replace(" - ", "-").replace(",", " ").split():
        if not _RANKS.fullmatch(part):
            raise UsageError(f"{part!r} is not a rank", hint="write 3 or 3,5-7")
        first, _, last = part.partition("-")
        low, high = int(first), int(last or first)
        if low > high or high >= size:
            raise UsageError(f"{part}: the ranks of this job are 0 to {size - 1}")
        found.update(range(low, high + 1))
    if not found:
        raise UsageError("no rank is named", hint="write 3 or 3,5-7")
    return tuple(sorted(found))


def read_node(text: str, nodes: Sequence[str]) -> str:
    """A node of the job; its name may stop at the first dot."""
    asked = text.strip().removeprefix("node/")
    known = sorted(set(nodes))
    for node in known:
        if asked in (node, node.partition(".")[0]):
            return node
    raise UsageError(f"{asked!r} is not a node of this job", hint=f"such as {known[0]}")


def read_who(text: str, nodes: Sequence[str]) -> Who:
    """Ranks, a node, or both, in any order; `nobody` is neither."""
    words = text.lower().replace(",", " ").split()
    if words in (["nobody"], ["none"], ["no", "one"]):
        return (), ()
    parts = [w for w in text.replace(",", " ").split() if w.lower() not in ("rank", "ranks", "on")]
    ranks = [part for part in parts if _RANKS.fullmatch(part)]
    names = [part for part in parts if part not in ranks and part.lower() not in ("node", "nodes")]
    if not parts:
        raise UsageError("nobody is named", hint="ranks as 3,5-7, a node, nobody, undecidable")
    found = read_ranks(" ".join(ranks), len(nodes)) if ranks else ()
    return found, tuple(sorted({read_node(name, nodes) for name in names}))


def from_options(
    *,
    kind: str | None,
    ranks: Sequence[str],
    nodes: Sequence[str],
    action: str | None,
    node_of: Sequence[str],
) -> Answer:
    """The answer that the command line gives."""
    from gpufleet_cli.operate.simulate.answers import Answer

    if kind is None:
        raise UsageError("an answer needs its --kind", hint=f"one of {', '.join(_KINDS)}")
    said = read_kind(kind)
    named = read_ranks(",".join(ranks), len(node_of)) if ranks else ()
    if said is Kind.HEALTHY and (named or nodes):
        raise UsageError("a healthy job has nobody to blame", hint="leave out --rank and --node")
    return Answer(
        kind=said,
        ranks=named,
        nodes=tuple(sorted({read_node(node, node_of) for node in nodes})),
        action=None if action is None else read_action(action),
    )


# --- Asking ----------------------------------------------------------------------------------------


def ask(node_of: Sequence[str], look: Look) -> Answer:
    """All three questions, each again until it is answered."""
    from gpufleet_cli.operate.simulate.answers import Answer

    sys.stderr.write(kind_question(look))
    kind = _asked("kind", read_kind)
    ranks: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()
    if kind not in (Kind.HEALTHY, Kind.UNDECIDABLE):
        sys.stderr.write(
            "\nWho is to blame? Rank(s) as 3,5-7, a node, `nobody`, or `undecidable`\n"
        )
        who = _asked("who", lambda text: _who_or_open(text, node_of))
        if who is None:
            kind = Kind.UNDECIDABLE
        else:
            ranks, nodes = who
    if kind is Kind.UNDECIDABLE:
        sys.stderr.write("\nWho could it be? Ranks as 3,5-7, a node, or nothing\n")
        ranks, nodes = _asked("set", lambda text: read_who(text or "nobody", node_of))
    sys.stderr.write(action_question(look))
    return Answer(kind=kind, ranks=ranks, nodes=nodes, action=_asked("action", read_action))


def _who_or_open(text: str, node_of: Sequence[str]) -> Who | None:
    return None if text.lower() in ("undecidable", "?") else read_who(text, node_of)


def _asked(label: str, read: Callable[[str], Said]) -> Said:
    while True:
        sys.stderr.write(f"{label}> ")
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            sys.stderr.write("\n")
            raise NoAnswerError
        try:
            return read(line.strip())
        except UsageError as exc:
            hint = f" ({exc.hint})" if exc.hint else ""
            for told in wrap(visible(exc.message + hint), WIDTH - 2):
                sys.stderr.write(f"  {told}\n")
