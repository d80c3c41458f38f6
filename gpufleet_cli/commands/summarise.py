"""`gpufleet summarise SHARD --to PART`: what one shard of an incident says, as a file that triage merges."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpufleet_cli import whole_file
from gpufleet_cli.commands.fleet_target import is_url
from gpufleet_cli.commands.options import one_of
from gpufleet_cli.commands.output import emit
from gpufleet_cli.errors import ExitCode, TargetError, UsageError
from gpufleet_cli.settings import Settings

if TYPE_CHECKING:
    from gpufleet_cli.evidence import Target
    from gpufleet_cli.reason.parts import Part

_SHARD = re.compile(r"(\d{1,6})/(\d{1,6})")
_UNDER = re.compile(r"[^/\0]+(?:/[^/\0]+)*")


def summarise(
    *,
    place: Annotated[
        str,
        typer.Argument(
            metavar="SHARD",
            help="A folder, file, archive, or s3://... and its like.",
            show_default=False,
        ),
    ],
    to: Annotated[
        str, typer.Option("--to", metavar="PART", help="The file to write.", show_default=False)
    ],
    shard: Annotated[
        str | None,
        typer.Option(
            "--shard", metavar="I/N", help="Of all that SHARD holds the I-th of N shares, from 0."
        ),
    ] = None,
    under: Annotated[
        str | None,
        typer.Option(
            "--under",
            metavar="FOLDER",
            help="Where SHARD stands in the whole incident: a node's name, say.",
        ),
    ] = None,
    follow_links: Annotated[
        bool, typer.Option("--follow-links", help="Follow links that lead out of the folder.")
    ] = False,
    settings: Settings,
) -> int:
    """Read one shard of an incident, anywhere, into a part.

    `gpufleet triage *.part` merges them. Of N tasks over one place each gives its own number: --shard $SLURM_ARRAY_TASK_ID/64.
    Exit status: 0 the part was written, 4 the shard cannot be read, 2 usage.

    Examples:
      gpufleet summarise /shared/incident --shard 17/64 --to parts/17.part
      gpufleet summarise s3://incident/ --shard 0/8 --to 0.part
      gpufleet summarise /var/log/pods --under gpu-node-0417 --to 0417.part
    """
    one_of(settings.output, ("json",))
    chosen = _chosen(shard)
    if under is not None and (
        not _UNDER.fullmatch(under)
        or {".", ".."} & set(under.split("/"))
        or not under.isprintable()
    ):
        raise UsageError(f"--under {under!r} is no folder within a target", hint="gpu-node-17")
    from gpufleet_cli.reason import parts

    found = _part(place, chosen, under, follow_links=follow_links)
    data = parts.encode(found)
    _write(Path(to), data)
    told = {
        "part": to,
        "files": len(found.frames),
        "bytes": len(data),
        "missing": len(parts.target_of(found).gaps),
    }
    emit(json.dumps(told) + "\n")
    return ExitCode.OK


def _chosen(shard: str | None) -> tuple[int, int]:
    """(0, 1) is all of it."""
    if shard is None:
        return 0, 1
    found = _SHARD.fullmatch(shard)
    if found is None or not int(found[1]) < int(found[2]):
        raise UsageError(f"--shard {shard!r} is no share", hint="I/N, from 0/N on: 0/64 ... 63/64")
    return int(found[1]), int(found[2])


def _part(place: str, chosen: tuple[int, int], under: str | None, *, follow_links: bool) -> Part:
    if is_url(place):
        return _part_of_place(place, chosen, under)
    from gpufleet_cli.bundle import read_target
    from gpufleet_cli.operate.fleet.shards import File, share
    from gpufleet_cli.reason import parts

    target = read_target(place, follow_links=follow_links)
    files = [File(name=one.path, size_bytes=one.size_bytes) for one in target.evidences]
    own = {file.name for file in share(files, *chosen)}
    if under is not None:
        target = _moved(target, under)
        own = {f"{under}/{name}" for name in own}
    return parts.part_of(target, [one for one in target.evidences if one.path in own])


def _part_of_place(place: str, chosen: tuple[int, int], under: str | None) -> Part:
    from gpufleet_cli.operate.fleet.places import Order, listing, read_shard
    from gpufleet_cli.operate.fleet.shards import share

    if under is not None:
        raise UsageError(
            "--under is for a folder of this machine", hint="give the place that holds all of it"
        )
    found = listing(place)
    files = share(found.files, *chosen)
    return read_shard(Order(location=place, files=files, keep_content=True), found.gaps)


def _moved(target: Target, under: str) -> Target:
    """The same files by the names that they have in the whole incident."""
    from dataclasses import replace

    from gpufleet_cli.facts import Origin

    for one in target.evidences:
        one.path, one.name = f"{under}/{one.path}", f"{under}/{one.name}"
    gaps = tuple(
        replace(
            gap,
            what=f"{under}/{gap.what}" if gap.what == gap.origin.path else gap.what,
            origin=Origin(path=f"{under}/{gap.origin.path}"),
        )
        if gap.origin is not None
        else gap
        for gap in target.gaps
    )
    path = None if target.manifest_path is None else f"{under}/{target.manifest_path}"
    return replace(target, gaps=gaps, manifest_path=path)


def _write(place: Path, data: bytes) -> None:
    """Whole or not at all: a part of an ended task must not look like one."""
    try:
        whole_file.put(place, data)
    except OSError as exc:
        raise TargetError(f"{place} cannot be written: {(exc.strerror or '').lower()}") from exc
