"""Whether a file is a Flight Recorder dump, and of which rank, by its name and first bytes.

torch writes prefix + global rank without a suffix (`nccl_trace_rank_3`, `comm_lib_trace_rank_3`;
torchtitan `comm_traces/rank_3`), and people choose prefixes, put host names in, and add suffixes
(facts: flight-recorder 2). No dump of any version to 2.10 says its rank.

>>> rank_in_name("dumps/nccl_trace_rank_12"), rank_in_name("x/_dump_9"), rank_in_name("rank_4.json.gz")
(12, 9, 4)
>>> rank_in_name("nccl_trace_rank_5_gpu-node-0330"), rank_in_name("gpu-node-0330_trace_7")
(5, 7)
"""

from __future__ import annotations

import re

from gpufleet_cli.facts import MOST_RANKS

_DATA_SUFFIX = re.compile(
    r"\.(?:json|pkl|pickle|p|bin|dat|dump|trace|fr|gz|gzip|zst|zstd|bz2|xz)$", re.I
)
_OTHER_SUFFIX = re.compile(r"\.(?!rank)[a-z]{1,8}\d?$", re.I)
_LEFTOVER = re.compile(r"(?:\.(?:tmp|temp|part|partial|swp|lock)|~)$", re.I)
_RANK = re.compile(r"rank[_\-.=]?(\d{1,7})(?!\d)", re.I)
_TRAILING = re.compile(r"(?<!\d)(\d{1,7})$")
_SAYS_DUMP = re.compile(
    r"(?<![a-z])(?:traces?|dumps?|recorders?|fr|nccl_?trace|comm_?lib|flight_?recorder)(?![a-z])",
    re.I,
)
_OTHER_DUMP = re.compile(
    r"(?<![a-z])(?:core|heap|stack|stacks|mem|memory|thread|vm|pcap)(?![a-z])", re.I
)

_PICKLE_KEYS = (b"pg_config", b"profiling_name", b"pg_status", b"comm_state")
_JSON_KEYS = (b'"pg_config"', b'"profiling_name"', b'"pg_status"', b'_comm_state"')


def rank_in_name(path: str) -> int | None:
    """The global rank that the file's name gives: after "rank", else the number at its end."""
    base = _bare(path)
    found = _RANK.findall(base)
    if not found and (trailing := _TRAILING.search(base)):
        found = [trailing[1]]
    if not found:
        found = _RANK.findall(path.rpartition("/")[0].rpartition("/")[2])
    return int(found[-1]) if found and int(found[-1]) < MOST_RANKS else None


def is_dump(path: str, head: bytes) -> bool:
    """Whether a file is a dump, or stands where a dump should be and cannot be read."""
    if _LEFTOVER.search(path):
        return False
    if _has_keys(head):
        return True
    base = _bare(path)
    if _OTHER_SUFFIX.search(base) or rank_in_name(path) is None or _OTHER_DUMP.search(base):
        return False
    if not (_RANK.search(base) or _TRAILING.search(base)):
        return False
    if _SAYS_DUMP.search(base):
        return True
    says_rank = _RANK.search(base) is not None
    in_dumps = _SAYS_DUMP.search(path.rpartition("/")[0]) is not None
    return says_rank and (_looks_like_pickle(head) or (in_dumps and not _looks_like_log(head)))


def is_pickled(head: bytes) -> bool:
    """Whether the content is a pickle with keys that only dumps have."""
    return _looks_like_pickle(head) and any(key in head for key in _PICKLE_KEYS)


def is_json(head: bytes) -> bool:
    """Whether the content is JSON rather than a pickle."""
    return head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")


def _bare(path: str) -> str:
    base = path.rpartition("/")[2]
    while (shorter := _DATA_SUFFIX.sub("", base)) != base and shorter:
        base = shorter
    return base


def _has_keys(head: bytes) -> bool:
    if _looks_like_pickle(head):
        return is_pickled(head)
    return is_json(head) and any(key in head for key in _JSON_KEYS)


def _looks_like_pickle(head: bytes) -> bool:
    return head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")


def _looks_like_log(head: bytes) -> bool:
    """Text of several lines that is neither JSON nor a web page."""
    if not head or is_json(head) or head.lstrip()[:1] == b"<":
        return False
    return b"\0" not in head and head.count(b"\n") > 1
