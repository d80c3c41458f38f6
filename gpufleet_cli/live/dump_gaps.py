"""What could not be had of ranks, told rank by rank where they are few and together where they are many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpufleet_cli.live.bundle_writer import BundleWriter

MOST_GAPS = 16
DUMP = "Flight Recorder dump"
SETTLES = "which collective it entered last"

Refused = Mapping[str, Sequence[tuple[int | None, str]]]
"""Why -> whom: a rank and where its file still lies, or None for what no rank is known of and a pod's name."""


def tell(refused: Refused, sink: BundleWriter, *, what: str = DUMP, settles: str = SETTLES) -> None:
    """A gap for each of them, or one for those that are many."""
    for why, whom in refused.items():
        places = {rank: place for rank, place in whom if rank is not None}
        if not places:
            pods = sorted({name for _, name in whom if name})
            shown = f" of {listed(pods, 4)}" if pods else ""
            sink.gap(f"{what}s{shown}", why, settles)
        elif len(places) <= MOST_GAPS:
            for rank, place in sorted(places.items()):
                sink.gap(f"{what} of rank {rank}", why, f"{settles}; {place}" if place else settles)
        else:
            shown = ", ".join(map(str, sorted(places)[:8]))
            sink.gap(f"{what}s of {len(places)} ranks ({shown}, ...)", why, settles)


def listed(names: Sequence[str], most: int) -> str:
    """The first of them."""
    return ", ".join(names[:most]) + (" and others" if len(names) > most else "")
