"""An old bundle with today's eyes: secrets that the patterns of its time let pass are hidden in a copy."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec

from gpufleet_cli.bundle import read_target
from gpufleet_cli.errors import TargetError
from gpufleet_cli.evidence import Evidence
from gpufleet_cli.live import bundle_writer, pack
from gpufleet_cli.live.bundle_writer import BundleWriter
from gpufleet_cli.live.session import Collected, finished
from gpufleet_cli.parsers import flight_recorder, kubernetes_objects

_KEPT = ("schema", "complete", "files", "missing", "hidden", "hidden_count", "tools")


def redact_again(bundle: Path, place: Path) -> Collected:
    """The bundle copied to `place`, each file redacted again; the old one stays as it is."""
    began = time.monotonic()
    read = read_target(bundle)
    if read.kind != "bundle":
        raise TargetError(f"{bundle} is not a bundle: it has no manifest of ours")
    if pack.is_packed(place.name) and os.path.lexists(place):
        raise TargetError(f"{place} is there already", hint="give a new place to --to")
    folder = pack.working_folder(place) if pack.is_packed(place.name) else place
    sink = bundle_writer.open_folder(folder)
    if sink.before:
        raise TargetError(f"{place} holds a bundle already", hint="give a new place to --to")
    before = read.manifest or {}
    sink.about = {key: value for key, value in before.items() if key not in _KEPT}
    listed = before.get("hidden")
    for entry in listed if isinstance(listed, list) else ():
        if isinstance(entry, dict):
            sink.hidden_before.append({str(key): str(value) for key, value in entry.items()})
    for gap in read.gaps:
        sink.gap(gap.what, gap.why, gap.would_settle)
    for evidence in read.evidences:
        _copy(evidence, sink)
    sink.write_manifest()
    return finished(sink, folder, place, seconds=time.monotonic() - began)


def _copy(evidence: Evidence, sink: BundleWriter) -> None:
    data = evidence.read()
    head = data[:65_536]
    if flight_recorder.matches(evidence.path, head) or b"\0" in head[:1024]:
        sink.add_bytes(evidence.path, data)
        return
    if kubernetes_objects.matches(evidence.path, head):
        try:
            document = msgspec.json.decode(data)
        except (msgspec.DecodeError, ValueError, RecursionError):
            document = None
        if isinstance(document, dict):
            sink.add_document(evidence.path, document)
            return
    sink.add_log(evidence.path, data)
