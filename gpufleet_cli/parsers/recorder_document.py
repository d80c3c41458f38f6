"""A Flight Recorder file brought to one schema: torch's "2.10", whatever version wrote it.

Versions by torch release (facts: flight-recorder 1.1): 2.2 writes a bare list; "1.4" (2.3) has one
`seq_id` and `pg_config` of bare rank lists; "2.1" (2.4) splits the number in two and names groups;
"2.4" adds `pg_status` and `timeout_ms`; "2.9" and "2.10" the library's version. Nightlies and forks
write other minors, so keys are looked up and versions never compared. JSON has 0 for a time that is
not known, strings in `pg_status`, lists for tuples, and no `entries` when there are none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gpufleet_cli.errors import ParseError
from gpufleet_cli.facts import MOST_RANKS
from gpufleet_cli.parsers.recorder_values import integer, text

Entry = dict[str, Any]

NS_PER_US = 1000
MAX_GROUPS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A process group as `pg_config` names it. `members` are global ranks, None where unknown."""

    name: str
    desc: str
    members: tuple[int, ...] | None
    member_set: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Counters of one group, by this process's own number of it; -1 means none."""

    local_id: int
    enqueued: int
    completed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One file. `entries` are oldest first and may still be wrong inside: check what you use."""

    version: str
    entries: list[Entry]
    configs: tuple[Config, ...]
    statuses: tuple[Status, ...]
    is_json: bool


def document(raw: object, *, is_json: bool) -> Document:
    """The document in what a reader returned; raises ParseError when it is not a recorder's."""
    if isinstance(raw, list):
        return _bare_list(raw, is_json=is_json)
    if not isinstance(raw, dict):
        raise ParseError(f"holds a {type(raw).__name__}, not a Flight Recorder dump")
    known = {"entries", "version", "pg_config", "pg_status", "nccl_comm_state"} & set(
        filter(_is_text, raw)
    )
    if not known:
        raise ParseError("holds none of the keys of a Flight Recorder dump")
    configs, names = _configs(raw.get("pg_config"))
    return Document(
        version=text(raw.get("version"), "unknown"),
        entries=_entries(raw.get("entries"), names),
        configs=configs,
        statuses=_statuses(raw.get("pg_status")),
        is_json=is_json,
    )


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _bare_list(raw: list[object], *, is_json: bool) -> Document:
    """torch 2.2: only the entries."""
    if raw and not (isinstance(raw[0], dict) and "profiling_name" in raw[0]):
        raise ParseError("holds a list, but not of Flight Recorder entries")
    return Document(
        version="none (torch 2.2)",
        entries=_entries(raw, {}),
        configs=(),
        statuses=(),
        is_json=is_json,
    )


# --- Groups ---------------------------------------------------------------------------------------


def _configs(raw: object) -> tuple[tuple[Config, ...], dict[str, tuple[str, str]]]:
    """The groups, and (name, desc) by the key that an entry may use for its group."""
    if not isinstance(raw, dict):
        return (), {}
    if len(raw) > MAX_GROUPS:
        raise ParseError("more process groups than a job can have")
    found: list[Config] = []
    names: dict[str, tuple[str, str]] = {}
    alike: dict[frozenset[int], int] = {}
    for key, value in raw.items():
        if isinstance(value, dict):
            members = _members(value.get("ranks"))
            name, desc = text(value.get("name"), text(key)), text(value.get("desc"))
        else:
            # "1.4": {int: [ranks]}. The int is this process's own, so ranks have to identify it.
            members = _members(value)
            alike[members[1]] = alike.get(members[1], -1) + 1
            name, desc = f"#{alike[members[1]]}", ""
        names[text(key)] = (name, desc)
        if name or members[0]:
            found.append(Config(name=name, desc=desc, members=members[0], member_set=members[1]))
    return tuple(found), names


_Members = tuple[tuple[int, ...] | None, frozenset[int]]
_NOBODY: _Members = (None, frozenset())


def _members(raw: object) -> _Members:
    if isinstance(raw, str):
        return _written_members(raw)
    if isinstance(raw, list | tuple) and len(raw) <= MOST_RANKS:
        return _checked(tuple(integer(rank, "list of ranks") for rank in raw))
    return _NOBODY


def _checked(ranks: tuple[int, ...]) -> _Members:
    if not ranks:
        return _NOBODY
    if min(ranks) < 0 or max(ranks) >= MOST_RANKS:
        raise ParseError("a process group with ranks that no job can have")
    return ranks, frozenset(ranks)


@lru_cache(maxsize=4096)
def _written_members(written: str) -> _Members:
    """ "[0, 1, 2]" as a tuple and a set; one object for all dumps that write the same."""
    inner = written.strip().removeprefix("[").removesuffix("]").strip()
    if not inner:
        return _NOBODY
    if len(inner) > MOST_RANKS * 8:
        raise ParseError("a process group with more ranks than a job can have")
    try:
        return _checked(tuple(map(int, inner.split(","))))
    except ValueError:
        raise ParseError("a process group whose list of ranks cannot be read") from None


def _statuses(raw: object) -> tuple[Status, ...]:
    if not isinstance(raw, dict) or len(raw) > MAX_GROUPS:
        return ()
    found = []
    for key, value in raw.items():
        if not isinstance(value, Mapping):
            continue
        found.append(
            Status(
                local_id=integer(key, "pg_status"),
                enqueued=integer(value.get("last_enqueued_collective", -1), "pg_status"),
                completed=integer(value.get("last_completed_collective", -1), "pg_status"),
            )
        )
    return tuple(sorted(found, key=lambda status: status.local_id))


# --- Entries --------------------------------------------------------------------------------------


def _entries(raw: object, names: Mapping[str, tuple[str, str]]) -> list[Entry]:
    if raw is None:
        return []
    if not isinstance(raw, list) or (raw and set(map(type, raw)) != {dict}):
        raise ParseError("its entries are no list of entries")
    if not raw or _is_modern(raw[0]):
        return raw
    return [_modern(entry, names) for entry in raw]


def _is_modern(entry: Entry) -> bool:
    return entry.keys() >= MODERN_KEYS


MODERN_KEYS = {
    "pg_id",
    "process_group",
    "collective_seq_id",
    "p2p_seq_id",
    "is_p2p",
    "profiling_name",
    "time_created_ns",
    "time_discovered_started_ns",
    "time_discovered_completed_ns",
    "state",
    "retired",
    "input_sizes",
}
"""Keys that every entry of "2.1" and later has, read without looking twice."""


def _modern(entry: Entry, names: Mapping[str, tuple[str, str]]) -> Entry:
    """An entry of an older, or an unknown, version with the keys of "2.10"."""
    name = text(entry.get("profiling_name"))
    if not name:
        raise ParseError("an entry that names no operation")
    operation = name.rpartition(":")[2].split(" ", 1)[0]
    is_p2p = bool(entry.get("is_p2p", operation in ("send", "recv")))
    pg_id = entry.get("pg_id", 0)
    group = entry.get("process_group")
    if not isinstance(group, list | tuple) or len(group) != 2:
        group = names.get(text(pg_id), (text(pg_id), ""))
    seq = entry.get("collective_seq_id", entry.get("seq_id", 0))
    created = entry.get("time_created_ns")
    if created is None:
        created = integer(entry.get("time_created_us", 0), "time") * NS_PER_US
    return {
        **entry,
        "pg_id": pg_id,
        "process_group": tuple(group),
        "profiling_name": name,
        "collective_seq_id": seq,
        "p2p_seq_id": entry.get("p2p_seq_id", seq if is_p2p else 0),
        "is_p2p": is_p2p,
        "time_created_ns": created,
        "time_discovered_started_ns": entry.get("time_discovered_started_ns"),
        "time_discovered_completed_ns": entry.get("time_discovered_completed_ns"),
        "state": entry.get("state", "scheduled"),
        "retired": entry.get("retired", False),
        "input_sizes": entry.get("input_sizes") or (),
    }
