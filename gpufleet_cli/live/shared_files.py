"""Files in an object store or any other place that fsspec reaches: what there is, and one file's bytes.

S3, Google's and Azure's stores and plain HTTP are read by obstore, the rest by fsspec's own file systems.
Both belong to the extra `object-store` and are imported when a location asks for them. botocore (s3fs) is
not used: it holds python-dateutil below 3, and kubernetes 37 needs 3. Endpoint, region and credentials are
those of the usual variables (AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, GOOGLE_APPLICATION_CREDENTIALS, ...).
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, BinaryIO, Protocol
from urllib.parse import urlsplit

from gpufleet_cli.errors import SourceError, UsageError
from gpufleet_cli.live.service_words import one_line, shown_url
from gpufleet_cli.plain_text import visible

EXTRA = "object-store"
PAGE = 1000
_PIECE = 1 << 20
ANSWER_S = 20.0
CONNECT_S = 5.0
RETRIES = 2
_OBJECT_STORES = frozenset(
    {"s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss", "http", "https"}
)
_CODE = re.compile(r"<Code>\s{0,8}(\w{1,80})\s{0,8}</Code>")
_STATUS = re.compile(r"status code: (\d{3} [\w ]{1,40})")
_QUERY = re.compile(r"\?[^\s\"'>)]{1,4096}")
_METADATA = re.compile(r"/latest/(?:api/token|meta-data)|/computeMetadata/|/metadata/identity")
"""Where a store's library asks for credentials when no variable has any: only a machine of its cloud answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One file of a folder. Size and time where the place tells them before it is read."""

    name: str
    size: int | None
    modified: datetime | None


class NotListed(SourceError):
    """The place cannot be listed, or holds too much; single files may be there all the same."""


class Shelf(Protocol):
    """One folder of a shared place."""

    def entries(self, stem: str, most: int) -> Iterator[Entry]:
        """Files whose names begin so, not those of folders below. SourceError in one line, NotListed
        where more than `most` names would have to be gone through."""

    def below(self, most: int) -> Iterator[Entry]:
        """All files, those of folders below by their path, in any order; else as `entries`."""

    def save(self, name: str, into: BinaryIO, most_bytes: int) -> bool:
        """Write one file's bytes, piece by piece; False where it is not there. Else as `read`."""

    def read(self, name: str, most_bytes: int) -> tuple[Entry, bytes] | None:
        """One file, None where it is not there. SourceError in one line, also for one too large."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A location split where a rank's number goes: `s3://traces/run7/nccl_trace_rank_`."""

    folder: str
    stem: str
    option: str = "--dumps"
    """What the location stands behind, for messages."""

    @property
    def shown(self) -> str:
        """Safe to print: no user, no control characters."""
        scheme, _, rest = self.folder.partition("://")
        host, slash, path = rest.partition("/")
        return visible(f"{scheme}://{host.rpartition('@')[2]}{slash}{path}/{self.stem}")


def place_of(location: str) -> Place:
    """The folder and how its dumps begin. UsageError for what holds a secret or can be no prefix."""
    refuse_secrets(location, "--dumps", "dumps are one a rank")
    folder, _, stem = location.rpartition("/")
    if folder.endswith(":/"):  # s3://bucket: all that lies in it
        folder, stem = location, ""
    return Place(folder=folder, stem=stem)


def folder_of(location: str, option: str) -> Place:
    """A location as a folder, with or without a slash at its end."""
    refuse_secrets(location, option, "an incident is many")
    return Place(folder=location.rstrip("/"), stem="", option=option)


def refuse_secrets(location: str, option: str, many: str) -> None:
    """UsageError for a location that holds a signature or a password."""
    parts = urlsplit(location)
    where = f"{option} {shown_url(location)}".lstrip()
    if parts.query or parts.fragment:
        raise UsageError(
            f"{where}?...: a signed URL opens one file, and {many}",
            hint="give the place without ?... and its credentials by the usual variables",
        )
    if parts.password is not None:
        raise UsageError(
            f"{where}: credentials do not belong into the location",
            hint="set the usual variables, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        )


def lacking(location: str) -> str | None:
    """The package that is not installed and that this location needs, None where all is there."""
    wanted = "obstore" if _is_object_store(location) else "fsspec"
    return None if importlib.util.find_spec(wanted) is not None else wanted


def opened(place: Place) -> Shelf:
    """The folder, ready to be read. UsageError for a kind of place that nobody here knows."""
    return _Objects(place) if _is_object_store(place.folder) else _Files(place)


def check_kind(place: Place) -> None:
    """UsageError for a kind of place that nobody here knows, or whose package is not there; nothing is connected."""
    if _is_object_store(place.folder):
        opened(place)
        return
    import fsspec

    scheme = place.folder.partition("://")[0]
    try:
        fsspec.get_filesystem_class(scheme)
    except (ImportError, ValueError) as exc:
        raise UsageError(f"{place.option} {scheme}://...: {one_line(str(exc))}") from exc


def _is_object_store(location: str) -> bool:
    return location.partition("://")[0].lower() in _OBJECT_STORES


# --- Object stores --------------------------------------------------------------------------------


class _Objects:
    """A folder of an object store, read by obstore: its listing begins at the stem and comes in pages."""

    def __init__(self, place: Place) -> None:
        from obstore import store

        made: Any = store.from_url
        try:
            self._store = made(
                place.folder,
                client_options={
                    "allow_http": _is_plain(place.folder),
                    "timeout": timedelta(seconds=ANSWER_S),
                    "connect_timeout": timedelta(seconds=CONNECT_S),
                },
                retry_config={
                    "max_retries": RETRIES,
                    "retry_timeout": timedelta(seconds=ANSWER_S),
                },
            )
        except _failures(ValueError) as exc:
            raise UsageError(f"{place.option} {place.shown}: {_told(exc)}".lstrip()) from exc

    def entries(self, stem: str, most: int) -> Iterator[Entry]:
        seen = 0
        try:
            # sorted by name, from behind the stem itself, which is no rank's
            for page in self._store.list(offset=stem or None, chunk_size=PAGE):
                for one in page:
                    name = str(one["path"])
                    if not name.startswith(stem):
                        return
                    if "/" not in name:
                        yield Entry(name=name, size=one["size"], modified=one["last_modified"])
                seen += len(page)
                if seen > most:
                    raise NotListed(f"over {most:,} files begin so")
        except _failures() as exc:
            raise _error(exc) from exc

    def below(self, most: int) -> Iterator[Entry]:
        seen = 0
        try:
            for page in self._store.list(chunk_size=PAGE):
                for one in page:
                    name = str(one["path"])
                    if name and not name.endswith("/"):  # consoles make objects of folders
                        yield Entry(name=name, size=one["size"], modified=one["last_modified"])
                seen += len(page)
                if seen > most:
                    raise NotListed(f"over {most:,} files")
        except _failures() as exc:
            raise _error(exc) from exc

    def save(self, name: str, into: BinaryIO, most_bytes: int) -> bool:
        try:
            found = self._store.get(name)
            if found.meta["size"] > most_bytes:
                raise SourceError(f"over {most_bytes >> 20:,} MB: not read")
            for piece in found.stream(min_chunk_size=_PIECE):
                into.write(piece)
        except FileNotFoundError as exc:
            if "NoSuchBucket" in str(exc):
                raise _error(exc) from exc
            return False
        except _failures() as exc:
            raise _error(exc) from exc
        return True

    def read(self, name: str, most_bytes: int) -> tuple[Entry, bytes] | None:
        try:
            found = self._store.get(name)
            meta = found.meta
            if meta["size"] > most_bytes:
                raise SourceError(f"over {most_bytes >> 20} MB: not read")
            entry = Entry(name=name, size=meta["size"], modified=meta["last_modified"])
            return entry, bytes(found.bytes())
        except FileNotFoundError as exc:
            if "NoSuchBucket" in str(exc):
                raise _error(exc) from exc
            return None
        except _failures() as exc:
            raise _error(exc) from exc


def _is_plain(folder: str) -> bool:
    """Whether the endpoint is one without TLS, as stores within a cluster are."""
    stated = (folder, os.environ.get("AWS_ENDPOINT_URL_S3"), os.environ.get("AWS_ENDPOINT_URL"))
    return any(one is not None and one.startswith("http://") for one in stated)


def _failures(*more: type[Exception]) -> tuple[type[Exception], ...]:
    from obstore.exceptions import BaseError

    return (BaseError, OSError, *more)


def _error(exc: BaseException) -> SourceError:
    text = str(exc)
    refused = type(exc).__name__ in (
        "PermissionDeniedError",
        "UnauthenticatedError",
        "PermissionError",
    )
    told = _told(exc)
    if _METADATA.search(text):
        return SourceError(
            "no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or those of its kind"
            " (aws configure export-credentials --format env has a profile's)"
        )
    return (NotListed if refused or told.startswith("403") else SourceError)(told)


def _told(exc: BaseException) -> str:
    """The store's own code where it gave one, else the first words; never a query."""
    text = str(exc).partition("Debug source:")[0]
    code, status = _CODE.search(text), _STATUS.search(text)
    if code or status:
        return one_line(": ".join(found[1].strip() for found in (status, code) if found))
    return one_line(_QUERY.sub("?...", text)) or type(exc).__name__


# --- All other places -----------------------------------------------------------------------------


class _Files:
    """A folder of any file system that fsspec knows: memory, file, sftp, hdfs, ..."""

    def __init__(self, place: Place) -> None:
        import fsspec

        scheme = place.folder.partition("://")[0]
        try:
            self._system, folder = fsspec.core.url_to_fs(
                f"{place.folder}/", use_listings_cache=False
            )
        except ImportError as exc:
            raise UsageError(
                f"{place.option} {scheme}://...: {one_line(str(exc))}".lstrip()
            ) from exc
        except (ValueError, OSError) as exc:
            raise UsageError(
                f"{place.option} {place.shown}: {one_line(str(exc))}".lstrip()
            ) from exc
        self._folder = folder.rstrip("/")

    def entries(self, stem: str, most: int) -> Iterator[Entry]:
        try:
            with _in_words():
                found = self._system.ls(self._folder or "/", detail=True)
        except FileNotFoundError:
            return
        if len(found) > most:
            raise NotListed(f"over {most:,} files in the folder")
        for one in found:
            name = str(one["name"]).rstrip("/").rpartition("/")[2]
            if one.get("type") == "file" and name.startswith(stem):
                yield Entry(name=name, size=one.get("size"), modified=_time_of(one))

    def below(self, most: int) -> Iterator[Entry]:
        try:
            with _in_words():
                found = self._system.find(self._folder or "/", detail=True)
        except FileNotFoundError:
            return
        if len(found) > most:
            raise NotListed(f"over {most:,} files")
        for path, one in found.items():
            name = str(path).removeprefix(self._folder).lstrip("/")
            if one.get("type") == "file" and name:
                yield Entry(name=name, size=one.get("size"), modified=_time_of(one))

    def save(self, name: str, into: BinaryIO, most_bytes: int) -> bool:
        try:
            with _in_words(), self._system.open(f"{self._folder}/{name}", "rb") as source:
                size = 0
                while piece := source.read(_PIECE):
                    size += len(piece)
                    if size > most_bytes:
                        raise SourceError(f"over {most_bytes >> 20:,} MB: not read")
                    into.write(piece)
        except FileNotFoundError:
            return False
        return True

    def read(self, name: str, most_bytes: int) -> tuple[Entry, bytes] | None:
        path = f"{self._folder}/{name}"
        try:
            with _in_words():
                about = self._system.info(path)
                size = about.get("size")
                if size is not None and size > most_bytes:
                    raise SourceError(f"over {most_bytes >> 20} MB: not read")
                entry = Entry(name=name, size=size, modified=_time_of(about))
                return entry, bytes(self._system.cat_file(path))
        except FileNotFoundError:
            return None


@contextmanager
def _in_words() -> Iterator[None]:
    """What a file system raises as an error of a source; that nothing is there is for the caller."""
    try:
        yield
    except FileNotFoundError:
        raise
    except PermissionError as exc:
        raise NotListed(_os_words(exc)) from exc
    except OSError as exc:
        raise SourceError(_os_words(exc)) from exc


def _os_words(exc: OSError) -> str:
    return one_line((exc.strerror or "").lower() or _QUERY.sub("?...", str(exc)))


def _time_of(about: dict[str, Any]) -> datetime | None:
    """When it was written; each file system has its own word for it."""
    for key in ("mtime", "LastModified", "last_modified", "modified", "created"):
        found = about.get(key)
        if isinstance(found, datetime):
            return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
        if isinstance(found, int | float) and found > 0:
            return datetime.fromtimestamp(found, UTC)
    return None
