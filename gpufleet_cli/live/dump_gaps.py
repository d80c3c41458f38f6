"""Dumps that could not be had, told rank by rank where they are few and together where they are many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpufleet_cli.live.bundle_writer import BundleWriter

MOST_GAPS = 16
SETTLES = "which collective it entered last"

Refused = Mapping[str, Sequence[tuple[int | None, str]]]
"""Why -> whom: a rank and where its file still lies, or None for what no rank is known of and a pod's name."""


def tell(refused: Refused, sink: BundleWriter) -> None:
    """A gap for each of them, or one for those that are many."""
    for why, whom in refused.items():
        _tell(why, whom, sink)


def _tell(why: str, whom: Sequence[tuple[int | None, str]], sink: BundleWriter) -> None:
    places = {rank: place for rank, place in whom if rank is not None}
    if not places:
        pods = sorted({name for _, name in whom if name})
        shown = f" of {', '.join(pods[:4])}{' and others' if len(pods) > 4 else ''}" if pods else ""
        sink.gap(f"Flight Recorder dumps{shown}", why, SETTLES)
    elif len(places) <= MOST_GAPS:
        for rank, place in sorted(places.items()):
            settles = f"{SETTLES}; {place}" if place else SETTLES
            sink.gap(f"Flight Recorder dump of rank {rank}", why, settles)
    else:
        shown = ", ".join(map(str, sorted(places)[:8]))
        sink.gap(f"Flight Recorder dumps of {len(places)} ranks ({shown}, ...)", why, SETTLES)
