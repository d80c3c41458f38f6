"""Fail forward: one broken source, parser or rule costs its own part."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from gpufleet_cli.errors import GpufleetError
from gpufleet_cli.facts import Gap

T = TypeVar("T")


def guarded(what: str, call: Callable[[], T], *, strict: bool) -> T | Gap:
    """The result of a call, or a Gap when it breaks; expected errors pass, none is swallowed when
    strict."""
    try:
        return call()
    except GpufleetError:
        raise
    except Exception as exc:
        if strict:
            raise
        return Gap(what=what, why=f"a fault in gpufleet ({type(exc).__name__}: {exc})"[:240])
