"""Dumps that could not be had, told rank by rank where they are few and together where they are many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpufleet_cli.live.bundle_writer import BundleWriter

MOST_GAPS = 16
SETTLES = "which collective it entered last"

Refused = Mapping[str, Sequence[tuple[int | None, str]]]
"""Why -> whom: a rank, or None for what no rank is known of; and a pod's name, or a command that copies it."""


def tell(refused: Refused, sink: BundleWriter) -> None:
    """A gap for each of them, or one for those that are many."""
    for why, whom in refused.items():
        _tell(why, whom, sink)


def _tell(why: str, whom: Sequence[tuple[int | None, str]], sink: BundleWriter) -> None:
    ranks = sorted(rank for rank, _ in whom if rank is not None)
    commands = {rank: told for rank, told in whom if told.startswith("kubectl")}
    if not ranks:
        pods = sorted({name for _, name in whom if name})
        shown = f" of {', '.join(pods[:4])}{' and others' if len(pods) > 4 else ''}" if pods else ""
        sink.gap(f"Flight Recorder dumps{shown}", why, SETTLES)
    elif len(ranks) <= MOST_GAPS:
        for rank in ranks:
            sink.gap(f"Flight Recorder dump of rank {rank}", why, _settles(commands.get(rank)))
    else:
        shown = ", ".join(map(str, ranks[:8]))
        first = commands[min(commands, key=lambda rank: rank or 0)] if commands else None
        sink.gap(
            f"Flight Recorder dumps of {len(ranks)} ranks ({shown}, ...)", why, _settles(first)
        )


def _settles(command: str | None) -> str:
    return SETTLES if command is None else f"{SETTLES}; from the node: {command}"
