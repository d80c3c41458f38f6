"""A bundle's own account of itself, and a target as it follows from what was found."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from gpufleet_cli.errors import ParseError
from gpufleet_cli.evidence import Evidence, Target
from gpufleet_cli.facts import Gap, Origin
from gpufleet_cli.plain_text import visible
from gpufleet_cli.timestamps import parse_rfc3339

_MANIFEST_LIMIT = 64 << 20
_MOST_MISSING = 10_000
_MOST_ATTEMPTS = 1_000


def described(
    name: str,
    evidences: tuple[Evidence, ...],
    gaps: Iterable[Gap],
    manifest: dict[str, object] | None,
) -> Target:
    """A target by what was found: its files, what could not be had, and a bundle's own account."""
    return Target(
        kind="directory" if manifest is None else "bundle",
        name=name,
        evidences=evidences,
        gaps=tuple(
            sorted(
                [*gaps, *_missing_of(manifest)],
                key=lambda gap: (gap.what, gap.why, gap.would_settle),
            )
        ),
        captured_ns=time_of(manifest, "captured_at"),
        job=_text_of(manifest, "job"),
        namespace=_text_of(manifest, "namespace"),
        manifest=manifest,
    )


def taken_out(
    evidences: dict[str, Evidence],
) -> tuple[str | None, dict[str, object] | None]:
    """The manifest that `collect` wrote, taken out of the evidence; any other file stays in."""
    for path in sorted(evidences, key=lambda path: (path.count("/"), path)):
        if not may_be_manifest(path) or evidences[path].size_bytes > _MANIFEST_LIMIT:
            continue
        try:
            document = manifest_in(evidences[path].read())
        except ParseError:
            continue
        if document is not None:
            del evidences[path]
            return path, document
    return None, None


def may_be_manifest(path: str) -> bool:
    """By its place: at the top, or in the one folder there."""
    return path.rsplit("/", 1)[-1] == "manifest.json" and path.count("/") <= 1


def manifest_in(content: bytes) -> dict[str, object] | None:
    """The manifest of a bundle in these bytes, None in any other."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return None
    is_ours = isinstance(document, dict) and str(document.get("schema")).startswith(
        "gpufleet.bundle/"
    )
    return document if is_ours else None


def _missing_of(manifest: dict[str, object] | None) -> Iterator[Gap]:
    """What `collect` could not have, as it says itself."""
    listed = None if manifest is None else manifest.get("missing")
    for entry in listed[:_MOST_MISSING] if isinstance(listed, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("what"), str):
            what, why, settles = (
                visible(str(entry.get(key) or "")) for key in ("what", "why", "would_settle")
            )
            origin = Origin(path="manifest.json")
            yield Gap(what=what, why=why, would_settle=settles, origin=origin)


def attempts_of(manifest: Mapping[str, object] | None) -> Iterator[Mapping[str, object]]:
    """The attempts that the cluster knew when the bundle was gathered."""
    listed = None if manifest is None else manifest.get("attempts")
    for entry in listed[:_MOST_ATTEMPTS] if isinstance(listed, list) else ():
        if isinstance(entry, dict) and type(entry.get("attempt")) is int:
            yield entry


def _text_of(manifest: Mapping[str, object] | None, key: str) -> str | None:
    value = None if manifest is None else manifest.get(key)
    return visible(value) if isinstance(value, str) and value else None


def whole_of(manifest: Mapping[str, object] | None, key: str) -> int | None:
    """A count in a manifest, at least 1."""
    value = None if manifest is None else manifest.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def time_of(manifest: Mapping[str, object] | None, key: str) -> int | None:
    """A time in a manifest or in one of its entries, as Unix nanoseconds."""
    text = _text_of(manifest, key)
    stamp = None if text is None else parse_rfc3339(text)
    return None if stamp is None else stamp[0]
