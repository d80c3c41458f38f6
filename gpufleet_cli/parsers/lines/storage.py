"""Storage and data sources: file system errors, and reads that are tried again.

Errno 28 no space, 5 input/output, 116 stale handle, 122 quota, 107 a FUSE mount that went away, 30 read
only, 121 remote I/O. `device` is /dev/shm where the line speaks of shared memory, else the path it names.

>>> from gpufleet_cli.parsers.lines.pasted import read
>>> fact, = read(recognise, "OSError: [Errno 116] Stale file handle: '/mnt/nfs/run3/shard-7.bin'")
>>> fact.sign.value, fact.device, fact.detail
('fs-error', '/mnt/nfs/run3/shard-7.bin', 'Errno 116: Stale file handle')
>>> fact, = read(recognise, "Retrying in 2s [Retry 2/5].")
>>> fact.sign.value, fact.detail
('data-retry', 'retry 2 of 5')
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpufleet_cli.facts import Fact, Sign
from gpufleet_cli.parsers.lines.signs import Rule, by_literal, cut, make_sign, patterns_of
from gpufleet_cli.parsers.log_line import Following, LogLine

_WORDS = {
    "No space left on device": 28,
    "Input/output error": 5,
    "Stale file handle": 116,
    "Stale NFS file handle": 116,
    "Disk quota exceeded": 122,
    "Transport endpoint is not connected": 107,
    "Read-only file system": 30,
    "Remote I/O error": 121,
}
_PATH = re.compile(r"['\"<](?P<path>/[^'\"<>\n]{1,400})['\"><]|(?P<shm>/dev/shm/[\w.-]{1,200})")
_RETRY = re.compile(
    r"Retrying in (?P<seconds>[\d.]{1,8}) ?s(?:econds)? \[Retry (?P<k>\d{1,4})/(?P<of>\d{1,4})\]"
)
_URL = re.compile(r"thrown while requesting [A-Z]{3,7} (?P<url>\S{1,400})")
_POOL = re.compile(r"host='(?P<host>[^'\n]{1,253})'")
_URLLIB = re.compile(
    r"Retrying \(Retry\([^\n]{0,300}?\)\) after connection broken by (?P<why>[^\n]{1,300})"
)
_LOADER = re.compile(r"DataLoader timed out after (?P<seconds>[\d.]{1,9}) seconds")
_ENDPOINT = re.compile(r"timeout on endpoint URL: \"?(?P<url>[^\s\"]{1,400})")


def _fs_error(line: LogLine, following: Following) -> Iterator[Fact]:
    for words, errno in _WORDS.items():
        if words in line.text:
            found = _PATH.search(line.text)
            path = (found["path"] or found["shm"]) if found is not None else None
            is_shared = "shared memory" in line.text or "/torch_" in (path or "")
            yield make_sign(
                Sign.FS_ERROR,
                line,
                device="/dev/shm" if is_shared or (path or "").startswith("/dev/shm") else path,
                detail=f"Errno {errno}: {words}",
            )
            return


def _shared_memory(line: LogLine, following: Following) -> Iterator[Fact]:
    if not any(words in line.text for words in _WORDS):
        yield make_sign(Sign.FS_ERROR, line, device="/dev/shm", detail=cut(line.text, 120))


def _retry(line: LogLine, following: Following) -> Iterator[Fact]:
    """One more try of a read; the URL or host where the line has it."""
    loader = _LOADER.search(line.text)
    retry, url, pool = _RETRY.search(line.text), _URL.search(line.text), _POOL.search(line.text)
    urllib, endpoint = _URLLIB.search(line.text), _ENDPOINT.search(line.text)
    detail = "read failed"
    if retry is not None:
        detail = f"retry {retry['k']} of {retry['of']}"
    elif url is not None:
        detail = f"requesting {url['url']}"
    elif urllib is not None:
        detail = f"connection broken: {urllib['why']}"
    elif endpoint is not None:
        detail = f"endpoint {endpoint['url']}"
    elif loader is not None:
        detail = f"data loader timed out after {loader['seconds']} s"
    yield make_sign(
        Sign.DATA_RETRY,
        line,
        peer=pool["host"] if pool is not None else None,
        value=float(retry["seconds"])
        if retry is not None and _is_number(retry["seconds"])
        else None,
        detail=detail,
    )


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()


_RULES: tuple[Rule, ...] = (
    (tuple(_WORDS), _fs_error),
    (
        (
            "Error while creating shared memory segment",
            "unable to open shared memory object",
            "unable to write to file /torch_",
        ),
        _shared_memory,
    ),
    (
        (
            "thrown while requesting ",
            "[Retry ",
            "after connection broken by ",
            "timeout on endpoint URL",
            "Max retries exceeded with url",
            "Too Many Requests for url",
            "Got disconnected from remote data host",
            "DataLoader timed out after",
        ),
        _retry,
    ),
)
PATTERNS: tuple[str, ...] = patterns_of(_RULES)


def recognise(line: LogLine, following: Following) -> Iterator[Fact]:
    """Errors of file systems, and retries of downloads."""
    return by_literal(_RULES, line, following)
