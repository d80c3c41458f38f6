"""Parts that `gpufleet summarise` made, as a target: merged, then decided as their files would be."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gpufleet_cli.commands.output import say
from gpufleet_cli.errors import ParseError, TargetError, UsageError
from gpufleet_cli.plain_text import visible

if TYPE_CHECKING:
    from gpufleet_cli.evidence import Target
    from gpufleet_cli.facts import Gap, JobNumbers
    from gpufleet_cli.reason.parts import Part
    from gpufleet_cli.verdict import Triage

MAGIC = b"gpufleet part\n"
"""What a part begins with; `reason.parts` has it, and costs an import."""
SETTLES = "what the files in it say"


def expanded(targets: Sequence[str]) -> list[str]:
    """The parts in a folder that holds nothing else, in place of the folder."""
    try:
        if len(targets) != 1 or not Path(targets[0]).is_dir():
            return list(targets)
        inside = sorted(one for one in Path(targets[0]).iterdir() if not one.name.startswith("."))
    except OSError:
        return list(targets)
    if inside and all(one.suffix == ".part" for one in inside) and _is_part(str(inside[0])):
        return [str(one) for one in inside]
    return list(targets)


def are_parts(targets: Sequence[str]) -> bool:
    """Whether these files are parts. Several targets that are none are a mistake."""
    kinds = [_is_part(target) for target in targets]
    if (
        len(targets) > 1
        and not all(target.endswith(".part") for target in targets)
        and not all(kinds)
    ):
        odd = targets[kinds.index(False)]
        raise UsageError(
            f"several targets, and {odd} is no part",
            hint="give one target, or parts that `gpufleet summarise` made",
        )
    return len(targets) > 1 or any(kinds)


def _is_part(target: str) -> bool:
    """By its first bytes; a file of the kernel may have none yet, and is not waited for."""
    try:
        path = Path(target)
        if not path.is_file():
            return False
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            return os.read(file, len(MAGIC)) == MAGIC
        finally:
            os.close(file)
    except (OSError, ValueError):
        return False


def read_parts(targets: Sequence[str]) -> tuple[list[Part], list[Gap]]:
    """The parts, and a gap for each that is none. TargetError where none is."""
    from gpufleet_cli.reason.parts import LARGEST, decode

    parts: list[Part] = []
    gaps: list[Gap] = []
    for target in targets:
        try:
            path = Path(target)
            if path.stat().st_size > LARGEST:
                raise ParseError("it is larger than a part can be")
            parts.append(decode(path.read_bytes()))
        except OSError as exc:
            gaps.append(gap(target, f"cannot be read: {(exc.strerror or '').lower()}"))
        except ParseError as exc:
            gaps.append(gap(target, exc.message))
    if not parts:
        raise TargetError(
            f"{gaps[0].what}: {gaps[0].why}", hint="make it again: gpufleet summarise"
        )
    return parts, gaps


def gap(target: str, why: str) -> Gap:
    """One part that was not had."""
    from gpufleet_cli.facts import Gap

    return Gap(what=f"part {visible(Path(target).name)}", why=why, would_settle=SETTLES)


def triage_parts(
    parts: Sequence[Part], gaps: Sequence[Gap], numbers: JobNumbers, as_of_ns: int | None
) -> tuple[Triage, Target]:
    """One answer from all parts. One that breaks the reasoning by itself costs itself."""
    from gpufleet_cli.facts import Gap
    from gpufleet_cli.guard import guarded

    lost = list(gaps)
    kept = list(parts)
    found = guarded("the parts", partial(_decided, kept, lost, numbers, as_of_ns), strict=False)
    if not isinstance(found, Gap):
        return found
    for part in parts:
        alone = guarded("a part", partial(_decided, [part], [], numbers, as_of_ns), strict=False)
        if isinstance(alone, Gap):
            kept.remove(part)
            lost.append(gap(f"{part.name}, {len(part.frames):,} files", alone.why))
    found = guarded("the parts", partial(_decided, kept, lost, numbers, as_of_ns), strict=False)
    if isinstance(found, Gap) or not kept:
        why = found.why if isinstance(found, Gap) else lost[-1].why
        raise TargetError(f"the parts cannot be reasoned about together: {why}")
    return found


def _decided(
    parts: Sequence[Part], gaps: Sequence[Gap], numbers: JobNumbers, as_of_ns: int | None
) -> tuple[Triage, Target]:
    from dataclasses import replace

    from gpufleet_cli.parsers.safe_pickle import no_collection
    from gpufleet_cli.reason.parts import merge, summary_of, target_of
    from gpufleet_cli.triage import triage_summary

    whole = merge(parts)
    with no_collection():
        target = target_of(whole)
        if gaps:
            target = replace(target, gaps=(*target.gaps, *gaps))
        summary = summary_of(whole)
        return triage_summary(target, summary, numbers, as_of_ns=as_of_ns), target


def told(gaps: Sequence[Gap]) -> None:
    """What was not had, on standard error as well: a report of many parts is read in haste."""
    for one in gaps[:8]:
        say(f"{one.what}: {one.why}")
    if len(gaps) > 8:
        say(f"and {len(gaps) - 8:,} parts more")
