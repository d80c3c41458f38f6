"""The bundles that lie in a folder, for who adds many at once."""

from __future__ import annotations

from pathlib import Path

from gpufleet_cli.bundle import read_target
from gpufleet_cli.errors import TargetError

MANIFEST = "manifest.json"
ARCHIVES = (".tar", ".tgz", ".tar.gz", ".tar.zst", ".zip")


def bundles_in(folder: Path) -> tuple[Path, ...]:
    """Each bundle of a folder, as folder or archive; none where the folder is one itself, or is no folder."""
    try:
        if (folder / MANIFEST).exists():
            return ()
        entries = sorted(folder.iterdir())
    except (OSError, ValueError):  # whoever reads it as a target says why
        return ()
    return tuple(one for one in entries if _is_bundle(one))


def _is_bundle(place: Path) -> bool:
    """By a manifest of ours at its top; in an archive that is known only by reading it."""
    try:
        if place.is_dir():
            may_be = (place / MANIFEST).is_file()
        else:
            may_be = place.is_file() and place.name.lower().endswith(ARCHIVES)
        return may_be and read_target(place).manifest is not None
    except (OSError, TargetError):
        return False
