"""What somebody typed as the place of a source, looked at before anything is asked: a slip must not cost a look.

The same places out of the environment or the settings file, which are of all jobs, cost their own source alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gpufleet_cli.errors import SourceError, TargetError, UsageError
from gpufleet_cli.live import folder_files, log_store, object_dumps, shared_files
from gpufleet_cli.live.service_ref import service_ref
from gpufleet_cli.plain_text import visible

if TYPE_CHECKING:
    from gpufleet_cli.live.session import LiveOptions

_HOW = "write https://HOST[:PORT][/PATH] or svc:NAMESPACE/NAME:PORT"


def check(options: LiveOptions) -> None:
    """UsageError or TargetError in one line for what can be no place, or is not there."""
    if options.prometheus is not None:
        _address(options.prometheus, "--prometheus", options.prometheus)
    if options.log_store is not None:
        stated = log_store.store_address(options.log_store)
        _address(stated.url, "--log-store", options.log_store)
    if options.kernel_logs is not None:
        _folder(options.kernel_logs, "--kernel-logs", "kernel logs")
    if options.dumps is not None:
        _dumps(options.dumps)


def _address(url: str, option: str, typed: str) -> None:
    try:
        if service_ref(url) is not None:
            return
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname:
            return
    except (SourceError, ValueError):
        pass
    raise UsageError(
        f"{option} {visible(typed)!r} is no http or https URL and no service", hint=_HOW
    )


def _folder(place: str, option: str, what: str) -> None:
    if Path(place).expanduser().is_dir():  # what lies in it is counted later, once
        return
    try:
        root = folder_files.files_of(place)[0]
    except OSError as exc:
        raise TargetError(
            f"{option} {place}: {(exc.strerror or 'cannot be read').lower()}"
        ) from exc
    if root is None:
        raise TargetError(f"{option} {place}: no such folder of {what}, and no file begins so")


def _dumps(location: str) -> None:
    kind, colon, rest = location.partition(":")
    if kind == "exec" and colon:
        if not rest.startswith("/"):
            raise UsageError(f"--dumps {location}: the prefix is an absolute path in the container")
    elif "://" in location:
        place = shared_files.place_of(location)
        package = shared_files.lacking(location)
        if package is not None:
            raise UsageError(f"--dumps {place.shown}: {object_dumps.needs(package)}")
        shared_files.check_kind(place)
    else:
        _folder(location, "--dumps", "Flight Recorder dumps")
