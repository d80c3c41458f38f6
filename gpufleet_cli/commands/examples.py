"""The examples at the end of `--help`: they stand at the end of a command's docstring, beside the command.

>>> def wake() -> None:
...     '''Wake a node.
...
...     Examples:
...       gpufleet wake gpu-node-0417
...     '''
>>> told(wake)
('Wake a node.', '\\x08\\nExamples:\\n  gpufleet wake gpu-node-0417')
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

_FOLD = re.compile(r"\s*\\\n\s*")
_HEAD = "\n\nExamples:\n"
_AS_IT_STANDS = "\b\n"  # Typer then keeps the lines of a paragraph as they are


def told(command: Callable[..., Any]) -> tuple[str, str | None]:
    """What the docstring says, and its examples as the last part of the help page."""
    text, head, examples = inspect.cleandoc(command.__doc__ or "").partition(_HEAD)
    return text, block(examples.splitlines()) if head else None


def block(lines: list[str]) -> str:
    """Lines of examples as a help page shows them."""
    return f"{_AS_IT_STANDS}Examples:\n" + "\n".join(f"  {line.strip()}" for line in lines)


def shown(epilog: str | None) -> list[str]:
    """The lines of examples at the end of a help page; one that a backslash folds is one line."""
    _, head, text = (epilog or "").partition(f"{_AS_IT_STANDS}Examples:\n")
    return (
        [line.strip() for line in _FOLD.sub(" ", text.partition("\n\n")[0]).splitlines()]
        if head
        else []
    )
