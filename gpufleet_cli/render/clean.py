"""Everything that is shown passes here once: secrets hidden, odd characters visible, lines cut.

`clean` takes a whole result apart and puts it together again, so that no field can be forgotten
when one is added. Renderers escape further for their own format (HTML, Markdown).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar

from gpufleet_cli.plain_text import visible
from gpufleet_cli.redact import redact
from gpufleet_cli.render.layout import to_ascii

QUOTE_LIMIT = 200
_READ_LIMIT = 10_000

Shown = TypeVar("Shown")


def clean_text(text: str) -> str:
    """One line of plainly printable text without secrets.

    >>> clean_text("a\\tb\\x1b[0m token=abcdefgh12345678")
    'a b\\\\u001b[0m token=[hidden]'
    """
    if len(text) > _READ_LIMIT:
        text = text[:_READ_LIMIT] + "..."
    if len(text) >= 8:
        text = redact(text)
    return text if text.isprintable() else visible(text.replace("\t", " "))


def cut(text: str, limit: int = QUOTE_LIMIT, mark: str = "...") -> str:
    """The text, cut with a mark when it is longer than the limit."""
    return text if len(text) <= limit else text[: limit - len(mark)] + mark


def clean(shown: Shown, *, unicode: bool = True) -> Shown:
    """The same result with every string in it cleaned; unchanged parts stay the same objects.

    Without `unicode` all text is ASCII afterwards, so that widths can be counted.
    """
    known: dict[str, str] = {}

    def text(value: str) -> str:
        seen = known.get(value)
        if seen is None:
            seen = clean_text(value) if unicode else to_ascii(clean_text(value))
            known[value] = seen
        return value if seen == value else seen

    cleaned: Shown = _clean(shown, text)
    return cleaned


def _clean(value: Any, text: Callable[[str], str]) -> Any:  # noqa: ANN401  any field of any result
    kind: object = type(value)
    if kind is str:
        return text(value)
    if kind is tuple:
        parts = tuple(_clean(part, text) for part in value)
        return value if all(new is old for new, old in zip(parts, value, strict=True)) else parts
    names = _field_names(kind)
    if not names:
        return value
    changed: dict[str, Any] = {}
    for name in names:
        old = getattr(value, name)
        new = _clean(old, text)
        if new is not old:
            changed[name] = new
    return replace(value, **changed) if changed else value


@lru_cache(maxsize=256)
def _field_names(kind: object) -> tuple[str, ...]:
    if isinstance(kind, type) and is_dataclass(kind):
        return tuple(item.name for item in fields(kind))
    return ()
