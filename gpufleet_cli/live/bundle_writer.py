"""A bundle as it is written: redacted before a byte lands, hashed, with a manifest of what is not there.

A folder can be taken up again: what is there with its hash is not fetched twice. The manifest is
rewritten as the work goes on, so that a run that was killed leaves a bundle too.
"""

from __future__ import annotations

import hashlib
import platform
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from gpufleet_cli import __version__, whole_file
from gpufleet_cli.errors import TargetError
from gpufleet_cli.facts import Gap
from gpufleet_cli.live.hide import Hidden, Hider, hide_in_log
from gpufleet_cli.live.hide_labels import hide_in_labels
from gpufleet_cli.live.known_secrets import KnownSecrets
from gpufleet_cli.timestamps import format_ns

SCHEMA = "gpufleet.bundle/v1"
MANIFEST = "manifest.json"
MOST_HIDDEN = 200_000
_EVERY_S = 5.0


class BundleWriter:
    """One folder that fills up. Safe to call from several threads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: dict[str, dict[str, object]] = {}
        self.gaps: list[Gap] = []
        self.hidden_before: list[
            dict[str, str]
        ] = []  # what an older bundle hid, copied with its files
        self._hidden: dict[str, list[dict[str, str]]] = {}
        self.about: dict[str, object] = {}
        self.kept_files = 0
        self._known = KnownSecrets()
        self._own: list[dict[str, str]] = []
        self._before = _manifest_in(folder)
        self._lock = threading.Lock()
        self._written_at = time.monotonic()
        self._folders = {folder}

    # --- Taking up again --------------------------------------------------------------------------

    @property
    def before(self) -> Mapping[str, object]:
        """The manifest of the run that began here, empty for a new bundle."""
        return self._before

    def has(self, path: str) -> bool:
        """Whether an earlier run wrote this file and it is there unchanged; it then stays."""
        known = self._before.get("files")
        entry = known.get(path) if isinstance(known, dict) else None
        if not isinstance(entry, dict) or entry.get("partial"):
            return False
        try:
            data = (self.folder / path).read_bytes()
        except OSError:
            return False
        if hashlib.sha256(data).hexdigest() != entry.get("sha256"):
            return False
        hidden = self._before.get("hidden")
        with self._lock:
            self.files[path] = entry
            self.kept_files += 1
            self._hidden[path] = [
                one
                for one in (hidden if isinstance(hidden, list) else ())
                if isinstance(one, dict) and one.get("file") == path
            ]
        return True

    def read(self, path: str) -> bytes:
        """A file of this bundle."""
        return (self.folder / path).read_bytes()

    # --- Adding -----------------------------------------------------------------------------------

    def add_log(self, path: str, data: bytes, *, partial: bool = False, **about: object) -> None:
        """Text, line by line without its secrets."""
        cleaned, hidden = hide_in_log(data, self._known)
        self._write(path, cleaned, hidden, partial=partial, about=about)

    def add_objects(self, path: str, objects: Sequence[object]) -> None:
        """Kubernetes objects as one List."""
        hider = Hider(self._known)
        cleaned = [hider.cleaned(one, f"items[{index}]") for index, one in enumerate(objects)]
        document = {"apiVersion": "v1", "kind": "List", "items": cleaned}
        self._write(path, msgspec.json.encode(document), hider.hidden)

    def add_document(self, path: str, document: object) -> None:
        """Any JSON document."""
        hider = Hider(self._known)
        self._write(path, msgspec.json.encode(hider.cleaned(document, "$")), hider.hidden)

    def learn(self, objects: Sequence[object]) -> None:
        """Secrets of objects that an earlier run wrote: they are looked for in what comes now."""
        hider = Hider(self._known)
        for one in objects:
            hider.cleaned(one, "")

    def know(self, secrets: Iterable[str]) -> None:
        """Credentials of ours, never to be written."""
        for one in secrets:
            self._known.learn(one, is_named=True)

    def add_answer(self, path: str, data: bytes) -> None:
        """What a metrics server answered, without the secrets in its labels."""
        cleaned, hidden = hide_in_labels(data, self._known)
        self._write(path, cleaned, hidden)

    def add_bytes(self, path: str, data: bytes, **about: object) -> None:
        """Bytes that cannot be changed without breaking them: a pickle has stacks and sizes, no settings."""
        self._write(path, data, (), about=about)

    def gap(self, what: str, why: str, would_settle: str = "") -> None:
        """Something that could not be had."""
        with self._lock:
            self.gaps.append(Gap(what=what, why=why, would_settle=would_settle))

    def _write(
        self,
        path: str,
        data: bytes,
        hidden: Iterable[Hidden],
        *,
        partial: bool = False,
        about: Mapping[str, object] | None = None,
    ) -> None:
        place = self.folder / path
        try:
            self._make_folder(place.parent)
            whole_file.put(place, data)
        except OSError as exc:
            raise TargetError(
                f"the bundle cannot be written: {place}: {(exc.strerror or '').lower()}"
            ) from exc
        entry: dict[str, object] = {
            "sha256": hashlib.sha256(data).hexdigest(),
            "bytes": len(data),
            **(about or {}),
        }
        if partial:
            entry["partial"] = True
        with self._lock:
            self.files[path] = entry
            self._hidden[path] = one_a_place(
                path, hidden
            )  # of a log read again, deeper: its lines now
            is_due = time.monotonic() - self._written_at > _EVERY_S
        if is_due:
            self.write_manifest(complete=False)

    def _make_folder(self, folder: Path) -> None:
        """With its parents, top down and each once: a pod's log lies five folders deep."""
        missing = []
        while folder not in self._folders:
            missing.append(folder)
            folder = folder.parent
        for one in reversed(missing):
            one.mkdir(exist_ok=True)
            self._folders.add(one)

    # --- The manifest -----------------------------------------------------------------------------

    def write_manifest(self, *, complete: bool = True) -> None:
        """What is there, what is not and why, what was hidden, and by what it was gathered."""
        with self._lock:
            self._written_at = time.monotonic()
            gaps = sorted(set(self.gaps), key=lambda gap: (gap.what, gap.why))
            told = [{"what": g.what, "why": g.why, "would_settle": g.would_settle} for g in gaps]
            hider = Hider(self._known)
            own = {**self.about, "missing": told}
            own = {key: hider.cleaned(value, key) for key, value in own.items()}
            self._own = one_a_place(MANIFEST, hider.hidden)
            hidden = _sorted([*self._all_hidden(), *self._own])
            document = {
                "schema": SCHEMA,
                **own,
                "complete": complete,
                "files": dict(sorted(self.files.items())),
                "hidden": hidden[:MOST_HIDDEN],
                "hidden_count": len(hidden),
                "tools": tool_versions(),
            }
            whole_file.put(
                self.folder / MANIFEST, msgspec.json.format(msgspec.json.encode(document), indent=1)
            )

    @property
    def hidden_count(self) -> int:
        """Places whose text is not in the bundle, as the manifest lists them."""
        return sum(1 for _ in self._all_hidden()) + len(self._own)

    def _all_hidden(self) -> Iterator[dict[str, str]]:
        yield from self.hidden_before
        for entries in self._hidden.values():
            yield from entries

    @property
    def size_bytes(self) -> int:
        return sum(int(str(entry["bytes"])) for entry in self.files.values())


def one_a_place(path: str, hidden: Iterable[Hidden]) -> list[dict[str, str]]:
    """One entry for each place of a file; all that was hidden there, in its words."""
    places: dict[str, dict[str, None]] = {}
    for one in hidden:
        places.setdefault(one.where, {})[one.what] = None
    return [{"file": path, "where": at, "what": ", ".join(what)} for at, what in places.items()]


def _sorted(hidden: list[dict[str, str]]) -> list[dict[str, str]]:
    return sorted(
        hidden, key=lambda one: (one["file"], len(one["where"]), one["where"], one["what"])
    )


def tool_versions() -> dict[str, str]:
    """What gathered this."""
    return {"gpufleet": __version__, "python": platform.python_version()}


def open_folder(folder: Path) -> BundleWriter:
    """A new bundle, or one that was begun here; a folder that holds something else is refused."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        there = any(folder.iterdir())
    except OSError as exc:
        raise TargetError(f"{folder}: {(exc.strerror or 'not a folder').lower()}") from exc
    writer = BundleWriter(folder)
    if there and not writer.before:
        raise TargetError(
            f"{folder} is not empty and holds no bundle", hint="give a new folder to --to or --save"
        )
    return writer


def _manifest_in(folder: Path) -> Mapping[str, object]:
    try:
        document = msgspec.json.decode((folder / MANIFEST).read_bytes())
    except (OSError, msgspec.DecodeError, ValueError):
        return {}
    if isinstance(document, dict) and str(document.get("schema", "")).startswith(
        "gpufleet.bundle/"
    ):
        return document
    return {}


def stamp(ns: int | None) -> str | None:
    """A time as the manifest writes it."""
    return None if ns is None else format_ns(ns)
