"""From a place in the evidence to the entry of the appendix that quotes it."""

from __future__ import annotations

from gpufleet_cli.facts import Origin
from gpufleet_cli.postmortem_card import Postmortem
from gpufleet_cli.render.postmortem.blocks import Cell, refs


class Cited:
    """From a place in the evidence to the entry of the appendix that quotes it."""

    def __init__(self, made: Postmortem) -> None:
        self._ids: dict[Origin, str] = {}
        for quote in made.quotes:
            self._ids.setdefault(quote.origin, quote.id)

    def __call__(self, origin: Origin | None, claims: tuple[str, ...] = ()) -> Cell:
        """Links to the claims that stand on a place, and to the place."""
        ids = list(claims)
        own = None if origin is None else self._ids.get(origin)
        if own is not None and own not in ids:
            ids.append(own)
        return refs(ids)
