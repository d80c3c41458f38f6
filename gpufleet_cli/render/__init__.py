"""How a Triage looks: one function per format, `render(triage, look) -> str`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpufleet_cli.render.layout import Look
    from gpufleet_cli.verdict import Triage

FORMATS: Mapping[str, str] = MappingProxyType(
    {
        "text": "terminal:render",
        "json": "structured:render_json",
        "yaml": "structured:render_yaml",
        "markdown": "markdown:render",
        "html": "html:render",
    }
)
"""Module and function of each value of `-o`; imported when asked for: a run needs one of them."""


def render(triage: Triage, output: str, look: Look) -> str:
    """The whole report in one of FORMATS."""
    module, function = FORMATS[output].split(":")
    text: str = getattr(import_module(f"gpufleet_cli.render.{module}"), function)(triage, look)
    return text
