"""Where dumps would be read from tonight, tried by daylight: exec, a folder, or a shared place listed once."""

from __future__ import annotations

from collections.abc import Mapping

from gpufleet_cli.errors import GpufleetError
from gpufleet_cli.live import doctor_job, folder_files, gather, object_dumps, shared_files
from gpufleet_cli.live.doctor_job import DUMPS
from gpufleet_cli.live.doctor_stores import Way
from gpufleet_cli.live.find_job import Job
from gpufleet_cli.live.pods import Attempt
from gpufleet_cli.live.shared_files import Entry
from gpufleet_cli.settings_file import choose
from gpufleet_cli.source_check import SourceCheck

NONE_NOW = "nothing there begins so now (no dump is written before a timeout)"


def dumps(way: Way, job: Job | None, may_exec: bool | None) -> SourceCheck:
    """Flag over environment over settings file; by exec where none says a place."""
    chosen = choose("dumps", flag=way.options.dumps, file=way.file, context=way.context)
    stated = None if chosen is None else chosen.value
    if chosen is not None and not chosen.value.startswith("exec:"):
        if "://" in chosen.value:
            return _shared(way, chosen.value, chosen.source, job)
        return folder("dumps", chosen.value, chosen.source, DUMPS)
    prefix = None if stated is None else stated.removeprefix("exec:")
    if prefix is not None and not prefix.startswith("/"):
        return SourceCheck(
            source="dumps", ok=False, what=f"{stated}: no absolute path", would_lack=DUMPS,
            action="write exec:/path/prefix_",
        )  # fmt: skip
    if way.api is None:
        what = "by exec, through the API server, which is not reached"
        return SourceCheck(source="dumps", ok=False, what=what, would_lack=DUMPS)
    if job is not None:
        pods = doctor_job.with_gpus(job.attempts[-1].pods if job.attempts else job.pods)
        return doctor_job.dumps_by_exec(way.api, pods, stated=prefix, may_exec=may_exec)
    if may_exec is False:
        return SourceCheck(
            source="dumps", ok=False, what="by exec, which is not allowed",
            would_lack=DUMPS,
            action="bind gpufleet-capture (deploy/rbac/capture.yaml), or --dumps with a folder",
        )  # fmt: skip
    place = f" from {prefix}" if prefix else ""
    what = f"by exec{place}; gpufleet doctor JOB tries it"
    return SourceCheck(source="dumps", ok=True, what=what)


def folder(source: str, place: str, said_by: str, would_lack: str) -> SourceCheck:
    """A folder of this machine, or a prefix in one, and how many files it holds."""
    where = f"{place} ({said_by})"
    try:
        root, files = folder_files.files_of(place)
    except OSError as exc:
        why = (exc.strerror or "cannot be read").lower()
        return SourceCheck(source=source, ok=False, what=f"{where}: {why}", would_lack=would_lack)
    if root is None:
        why = "no such file or directory"
        return SourceCheck(source=source, ok=False, what=f"{where}: {why}", would_lack=would_lack)
    return SourceCheck(source=source, ok=True, what=f"{where}: {len(files):,} files now")


# --- A shared place -------------------------------------------------------------------------------


def _shared(way: Way, location: str, said_by: str, job: Job | None) -> SourceCheck:
    """Listed once, as tonight: whether it answers us, and which of its files are the job's."""
    attempt = job.attempts[-1] if job is not None and job.attempts else None
    ranks = gather.world_size(job, attempt) if job is not None and attempt is not None else None
    try:
        place = shared_files.place_of(location)
        package = shared_files.lacking(location)
        if package is not None:
            return _lacking(place.shown, said_by, object_dumps.needs(package))
        shelf = shared_files.opened(place)
    except GpufleetError as exc:
        return SourceCheck(
            source="dumps", ok=False, what=exc.message, would_lack=DUMPS, action=exc.hint or ""
        )
    try:
        found = object_dumps.listed(shelf, place, ranks, way.deadline)
    except shared_files.NotListed as exc:
        return _not_listed(place, said_by, exc.message)
    except GpufleetError as exc:
        return _lacking(place.shown, said_by, exc.message)
    what = f"{place.shown} ({said_by}): reachable; {_told(found, attempt, ranks)}"
    return SourceCheck(source="dumps", ok=True, what=what)


def _lacking(shown: str, said_by: str, why: str) -> SourceCheck:
    """Not reached. What the store's words give to do is the part behind the colon."""
    head, _, action = why.partition(": ")
    if not action.startswith(("set ", "pip ")):
        head, action = why, ""
    what = f"{shown} ({said_by}): {head}"
    return SourceCheck(source="dumps", ok=False, what=what, would_lack=DUMPS, action=action)


def _not_listed(place: shared_files.Place, said_by: str, why: str) -> SourceCheck:
    """Behind a prefix each rank's file has a name that is certain, and may be had all the same."""
    what = f"{place.shown} ({said_by}): it cannot be listed: {why}"
    if not place.stem:
        return SourceCheck(
            source="dumps", ok=False, what=what, would_lack=DUMPS,
            action="the right to list it, or --dumps with the prefix before the rank's number",
        )  # fmt: skip
    return SourceCheck(
        source="dumps", ok=True, what=f"{what}; tonight each rank's file is asked for by its name",
        would_lack=f"perhaps {DUMPS}", action="the right to list it",
    )  # fmt: skip


def _told(found: Mapping[int, Entry], attempt: Attempt | None, ranks: int | None) -> str:
    """How many of the files are the job's, as far as names and times tell."""
    if not found:
        return NONE_NOW
    if attempt is None:
        newest = max((o.modified for o in found.values() if o.modified is not None), default=None)
        when = "" if newest is None else f", the newest of {newest:%Y-%m-%d %H:%M} UTC"
        return f"dumps of {len(found):,} ranks by their names{when}"
    old = sum(object_dumps.is_stale(one, attempt) for one in found.values())
    size = "" if ranks is None else f" of {ranks:,}"
    fresh = f"{len(found) - old:,}{size} ranks have a dump of this attempt"
    return fresh + (f", {old:,} only an older one" if old else "")
