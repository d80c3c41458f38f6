"""What `doctor` found, on one screen: a mark, the source, what it is, and what to do where it lacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gpufleet_cli.render.clean import clean
from gpufleet_cli.render.layout import WIDTH, Look, counted, fit, pad, wrap
from gpufleet_cli.source_check import CheckUp, SourceCheck

Json = dict[str, Any]
RIGHT = "right to "
MOST_RIGHTS = 4
_LABEL = 14
_START = 2 + 4 + 2 + _LABEL + 1
_MARKS = {"ok": "good", "part": "warn", "no": "bad"}


def doctor_text(found: CheckUp, look: Look) -> str:
    """The page at 80 columns."""
    found = clean(found, unicode=look.unicode)
    lines = [fit(_head(found), WIDTH), ""]
    is_told = False
    for one in found.checks:
        if not one.source.startswith(RIGHT):
            lines += _check(one, look)
        elif not is_told:
            is_told = True
            lines += _rights([c for c in found.checks if c.source.startswith(RIGHT)], look)
    lines += ["", _sum(found)]
    return look.finish(lines)


def _head(found: CheckUp) -> str:
    where = found.context or found.server or "no cluster"
    job = f"{found.job} in {found.namespace} · " if found.job else ""
    return f"doctor · {job}{where}"


def _sum(found: CheckUp) -> str:
    if not found.was_reached:
        return "Nothing could be reached: tonight's triage would have nothing."
    if not found.lacks:
        return "Tonight's triage has what it needs."
    count = counted(len(found.lacks), "thing")
    return f"Tonight's triage would lack {count} of {len(found.checks)} (no, part)."


def _mark(one: SourceCheck) -> str:
    return "no" if not one.ok else "part" if one.would_lack else "ok"


def _row(mark: str, label: str, text: str, look: Look, *, most: int | None) -> Iterator[str]:
    shown = look.paint(pad(mark, 4), _MARKS[mark])
    first, *rest = wrap(text, WIDTH - _START, most=None if look.verbose else most) or [""]
    yield f"  {shown}  {pad(label, _LABEL)} {first}"
    for line in rest:
        yield " " * _START + line


def _beside(word: str, text: str, look: Look, most: int) -> Iterator[str]:
    lines = wrap(f"{word}: {text}", WIDTH - _START, most=None if look.verbose else most)
    yield from (" " * _START + line for line in lines)


def _check(one: SourceCheck, look: Look) -> Iterator[str]:
    yield from _row(_mark(one), one.source, one.what, look, most=1 if _mark(one) == "ok" else 2)
    if one.would_lack:
        yield from _beside("lacks", one.would_lack, look, 2)
    if one.action:
        yield from _beside("do", one.action, look, 2)


def _rights(checks: Sequence[SourceCheck], look: Look) -> Iterator[str]:
    """One row for all; the missing ones below it, and once what grants them."""
    lacking = [one for one in checks if one.would_lack]
    mark = "no" if any(not one.ok for one in checks) else "part" if lacking else "ok"
    text = f"{len(checks) - len(lacking)} of {len(checks)} that a triage uses"
    yield from _row(mark, "rights", text, look, most=1)
    shown = lacking if look.verbose else lacking[:MOST_RIGHTS]
    for one in shown:
        told = f"{one.source.removeprefix(RIGHT)}: {one.would_lack}"
        yield from _beside("lacks" if not one.ok else "unsure", told, look, 1)
    if len(lacking) > len(shown):
        yield from _beside("and", f"{len(lacking) - len(shown)} more (-v)", look, 1)
    for action in dict.fromkeys(one.action for one in lacking if one.action):
        lines = wrap(f"do: {action}", WIDTH - _START)  # a command is never cut
        yield from (" " * _START + line for line in lines)


def doctor_document(found: CheckUp) -> Json:
    """`{"sources": [...]}` with what stands around it."""
    found = clean(found)
    return {
        "sources": [
            {
                "source": one.source,
                "ok": one.ok,
                "what": one.what,
                "would_lack": one.would_lack,
                "action": one.action,
            }
            for one in found.checks
        ],
        "context": found.context,
        "server": found.server,
        "job": found.job,
        "namespace": found.namespace,
        "reached": found.was_reached,
    }
