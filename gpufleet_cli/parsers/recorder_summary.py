"""What one rank's recorder says, reduced to a `RankDump`.

A ring holds 2,000 entries and a job a thousand rings, so nothing here makes an object per entry:
columns are taken with `map` and `itemgetter`, and Python code walks only what is open and a window
at the end of the ring (kinds of operation are told apart by their marshalled bytes).

Three ways to be done (facts: flight-recorder 0.4): `state`, a completion time, or `retired` where a
backend sets nothing else. A completion later than the timeout is an abort. Sends and receives inside a batch
never complete by themselves: the `coalesced` entry that ends the batch speaks for them (0.5).
"""

from __future__ import annotations

import marshal
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from operator import itemgetter
from types import NoneType
from typing import Any

from gpufleet_cli.errors import ParseError
from gpufleet_cli.facts import DumpGroup, LastOp, OpenOp, Origin, RankDump
from gpufleet_cli.parsers.recorder_document import Document, Entry
from gpufleet_cli.parsers.recorder_groups import group_table
from gpufleet_cli.parsers.recorder_program import OpKind, is_full_sync, pack
from gpufleet_cli.parsers.recorder_values import (
    check_shapes,
    dtypes,
    frames,
    integer,
    only,
    operation,
    shapes,
)
from gpufleet_cli.parsers.recorder_values import peers as peers_of

BENT = (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError, RecursionError)
"""What working on entries of the wrong shape raises."""

NS_PER_MS = 1_000_000
DEFAULT_TIMEOUT_MS = 600_000
WINDOW, LEAST_TAIL, LONGEST_TAIL = 192, 64, 1500
MAX_OPEN, MAX_DONE = 32, 16
MAX_KINDS = 4096

_pg_id = itemgetter("pg_id")
_name = itemgetter("profiling_name")
_created = itemgetter("time_created_ns")
_started = itemgetter("time_discovered_started_ns")
_completed = itemgetter("time_discovered_completed_ns")
_state = itemgetter("state")
_retired = itemgetter("retired")
_sizes = itemgetter("input_sizes")
_kind_key = itemgetter("pg_id", "profiling_name", "is_p2p", "input_sizes")
_typed_kind_key = itemgetter("pg_id", "profiling_name", "is_p2p", "input_sizes", "input_dtypes")


@dataclass(frozen=True, slots=True)
class _Ring:
    """The entries and the columns of them that are used more than once."""

    entries: list[Entry]
    pg_ids: list[Any]
    names: list[str]
    created: list[int]
    completed: list[Any]
    retired: list[Any]
    retired_only: bool
    timeout_ms: int | None
    newest_ns: int | None
    done: list[bool]
    last: dict[Any, Entry]


def summarise(document: Document, *, rank: int, path: str) -> RankDump:
    """The dump of one rank; raises ParseError when the entries are not what a recorder writes."""
    try:
        return _summarise(document, rank, path)
    except BENT as exc:
        raise ParseError(
            f"its entries are not what a recorder writes ({type(exc).__name__})"
        ) from None


def _summarise(document: Document, rank: int, path: str) -> RankDump:
    ring = _ring(document)
    entries = ring.entries
    table, index_of = group_table(document, ring.last)
    opens, parts = _open(ring)
    only_active = _is_only_active(document, ring)
    if only_active:
        opens = _without_orphans(document, ring, opens)
    ops = {i: _open_op(ring, i, parts.get(i, ())) for i in _shown(ring, opens)}
    window = _window(ring, opens, index_of)
    groups = _fill(table, index_of, ring, opens, ops, window)
    timed_out = next((i for i in opens if _is_late(ring, i)), None)
    return RankDump(
        rank=rank,
        path=path,
        version=document.version,
        backend=ring.names[0].partition(":")[0] if ring.names else "",
        entries=len(entries),
        wrapped=bool(entries) and integer(entries[0].get("record_id", 0), "record_id") > 0,
        oldest_ns=min(ring.created, default=None),
        newest_ns=ring.newest_ns,
        groups=groups,
        timed_out=timed_out,
        has_start_stamps=any(map(_started, entries[-WINDOW:])),
        has_frames=bool(entries) and bool(entries[-1].get("frames")),
        only_active=only_active,
        origin=Origin(path=path),
        dumped_ns=_dumped_ns(ring),
        timeout_ms=ring.timeout_ms,
        retired_only=ring.retired_only,
        last_op=_last_op(ring, index_of),
        program=window.packed,
    )


# --- What is done ---------------------------------------------------------------------------------


def _ring(document: Document) -> _Ring:
    entries = document.entries
    created = list(map(_created, entries))
    if set(map(type, created)) - {int}:
        created = [integer(value, "time") for value in created]
    completed = only(list(map(_completed, entries)), {int, NoneType, float})
    retired = list(map(_retired, entries))
    names = only(list(map(_name, entries)), {str})
    states = list(map(_state, entries))
    some_completed = "completed" in states or any(completed)
    retired_only = not some_completed and _retires_only(document, names, retired)
    if retired_only:
        done = list(map(bool, retired))
    else:
        done = [
            bool(at) or state == "completed" for at, state in zip(completed, states, strict=True)
        ]
    newest = max(max(created, default=0), max(filter(None, completed), default=0))
    pg_ids = only(list(map(_pg_id, entries)), {int, str})
    ring = _Ring(
        entries=entries,
        pg_ids=pg_ids,
        names=names,
        created=created,
        completed=completed,
        retired=retired,
        retired_only=retired_only,
        timeout_ms=_timeout_ms(entries),
        newest_ns=integer(newest, "time") or None,
        done=done,
        last=dict(zip(pg_ids, entries, strict=True)),
    )
    for i in _aborted(ring):
        done[i] = False
    return ring


def _retires_only(document: Document, names: list[str], retired: list[Any]) -> bool:
    """Gloo, and backends recorded through c10d's hook, set `retired` and nothing else. On NCCL
    retired entries that are not completed are timeouts: a few, or many in a dump of what is active,
    whose counters then say that they are not over."""
    count = sum(map(bool, retired))
    if names[:1] and names[0].startswith("gloo:"):
        return count > 0
    completed = {status.local_id: status.completed for status in document.statuses}
    if any(
        is_retired and 0 <= completed.get(entry["pg_id"], -1) < entry["collective_seq_id"]
        for entry, is_retired in zip(document.entries, retired, strict=True)
    ):
        return False
    return count >= 3


def _timeout_ms(entries: list[Entry]) -> int | None:
    """The shortest timeout of the groups at the end of the ring."""
    seen = [entry.get("timeout_ms") for entry in entries[-LEAST_TAIL:]]
    return min((value for value in seen if type(value) is int and value > 0), default=None)


def _aborted(ring: _Ring) -> list[int]:
    """Entries that an abort completed: later than their timeout, or in one burst at the very end
    after nothing had happened for as long as the shortest timeout."""
    if ring.retired_only or not ring.created:
        return []
    shortest = (ring.timeout_ms or DEFAULT_TIMEOUT_MS) * NS_PER_MS
    if (ring.newest_ns or 0) - min(ring.created) <= shortest:
        return []
    enqueued_last = max(ring.created)
    return [
        i
        for i, (at, created) in enumerate(zip(ring.completed, ring.created, strict=True))
        if at
        and (
            at - created > _limit_ns(ring.entries[i])
            or (at - created > shortest and at > enqueued_last + shortest)
        )
    ]


def _limit_ns(entry: Entry) -> int:
    value = entry.get("timeout_ms")
    return (value if type(value) is int and value > 0 else DEFAULT_TIMEOUT_MS) * NS_PER_MS


def _dumped_ns(ring: _Ring) -> int | None:
    """Entries completed but not retired were completed within the watchdog's last poll, and are
    stamped by the dump itself: the newest time is then the time of the dump."""
    if ring.retired_only:
        return None
    if ring.done.count(True) == ring.retired.count(True):
        return None
    fresh = any(done and not retired for done, retired in zip(ring.done, ring.retired, strict=True))
    return ring.newest_ns if fresh else None


def _is_only_active(document: Document, ring: _Ring) -> bool:
    """Whether done entries were left out: none is there although counters say that there were."""
    if ring.retired_only or any(ring.done):
        return False
    return any(status.completed >= 0 for status in document.statuses)


# --- What is open ---------------------------------------------------------------------------------


def _open(ring: _Ring) -> tuple[list[int], dict[int, list[int]]]:
    """Open operations in program order, and the entries inside each open batch."""
    if False not in ring.done:
        return [], {}
    first = ring.done.index(False)
    undone = [i for i, done in enumerate(ring.done[first:], first) if not done]
    enders = {name for name in set(ring.names) if name.endswith("coalesced")}
    if not enders:
        return undone, {}
    ends = {_batch_key(ring.entries[i]): i for i, name in enumerate(ring.names) if name in enders}
    opens: list[int] = []
    parts: dict[int, list[int]] = {}
    for i in undone:
        end = ends.get(_batch_key(ring.entries[i]), i)
        if end == i:
            opens.append(i)
        elif not ring.done[end]:
            parts.setdefault(end, []).append(i)
    return opens, parts


def _without_orphans(document: Document, ring: _Ring, opens: Sequence[int]) -> list[int]:
    """Less the parts of batches whose end was done and is left out. Parts share a number, and a batch
    counts as a collective of its group, so they carry one that the group has completed. Of the oldest
    batch the ring may keep the last part alone."""
    completed = {status.local_id: status.completed for status in document.statuses}
    shared = Counter(_batch_key(ring.entries[i]) for i in opens)

    def is_done(i: int) -> bool:
        entry = ring.entries[i]
        number = entry["collective_seq_id"]
        return bool(entry["is_p2p"]) and 0 < number <= completed.get(entry["pg_id"], -1)

    def is_shared(i: int) -> bool:
        return shared[_batch_key(ring.entries[i])] > 1

    orphans = {i for i in opens if is_done(i) and is_shared(i)}
    if (
        opens
        and opens[0] == 0
        and is_done(0)
        and ring.pg_ids[0] in {ring.pg_ids[i] for i in orphans}
    ):
        orphans.add(0)
    return [i for i in opens if i not in orphans]


def _batch_key(entry: Entry) -> tuple[Any, bool, int]:
    is_p2p = bool(entry["is_p2p"])
    number = entry["p2p_seq_id" if is_p2p else "collective_seq_id"]
    return entry["pg_id"], is_p2p, number if type(number) is int else -1


def _shown(ring: _Ring, opens: Sequence[int]) -> list[int]:
    """The oldest open operations of each group: what lies behind them waits for them."""
    counts: dict[Any, int] = {}
    shown = []
    for i in opens:
        count = counts.get(ring.pg_ids[i], 0)
        if count < MAX_OPEN:
            counts[ring.pg_ids[i]] = count + 1
            shown.append(i)
    return shown


def _open_op(ring: _Ring, i: int, parts: Sequence[int]) -> OpenOp:
    entry = ring.entries[i]
    is_p2p = bool(entry["is_p2p"])
    timeout = entry.get("timeout_ms")
    peers = [peer for j in (*parts, i) for peer in peers_of(ring.names[j])]
    return OpenOp(
        entry=i,
        seq=integer(entry["p2p_seq_id" if is_p2p else "collective_seq_id"], "sequence number"),
        op=operation(ring.names[i]),
        is_p2p=is_p2p or bool(peers),
        sizes=shapes(entry["input_sizes"]),
        dtypes=dtypes(entry.get("input_dtypes")),
        created_ns=ring.created[i] or None,
        started=_has_started(ring, entry),
        timeout_ms=timeout if type(timeout) is int and timeout > 0 else None,
        peers=tuple(dict.fromkeys(peers)),
        gave_up=not ring.retired_only and bool(entry["retired"] or ring.completed[i]),
        frames=frames(entry.get("frames")),
    )


def _has_started(ring: _Ring, entry: Entry) -> bool | None:
    if entry["time_discovered_started_ns"] or entry["state"] == "started":
        return True
    return None if ring.retired_only else False


def _is_late(ring: _Ring, i: int) -> bool:
    """Older than its timeout when the dump was made, as far as times in the file can tell."""
    if not ring.retired_only and (ring.retired[i] or ring.completed[i]):
        return True
    age_ns = (ring.newest_ns or 0) - ring.created[i]
    return "timeout_ms" in ring.entries[i] and age_ns > _limit_ns(ring.entries[i])


# --- The end of the ring --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Window:
    """The last entries by kind: `start` is the first entry in it."""

    start: int
    kinds: list[OpKind]
    order: list[int]
    seqs: list[int]
    packed: bytes


def _window(ring: _Ring, opens: Sequence[int], index_of: dict[Any, int]) -> _Window:
    count = len(ring.entries)
    first = min(opens[0] if opens else count, count - LEAST_TAIL)
    start = max(0, first - WINDOW, count - LONGEST_TAIL)
    tail = ring.entries[start:]
    check_shapes(list(map(_sizes, tail)))
    rows: dict[bytes, int] = {}
    kinds: list[OpKind] = []
    order = []
    is_typed = all("input_dtypes" in entry for entry in tail)
    kind_key = _typed_kind_key if is_typed else _kind_key
    for i, key in enumerate(map(marshal.dumps, map(kind_key, tail), repeat(2))):
        row = rows.get(key)
        if row is None:
            row = rows[key] = min(len(kinds), MAX_KINDS)
            if len(kinds) <= MAX_KINDS:
                kinds.append(_kind(ring, start + i, index_of))
        order.append(row)
    seqs = only([e["p2p_seq_id"] if e["is_p2p"] else e["collective_seq_id"] for e in tail], {int})
    return _Window(start, kinds, order, seqs, pack(kinds, order, seqs))


def _kind(ring: _Ring, i: int, index_of: dict[Any, int]) -> OpKind:
    entry = ring.entries[i]
    return OpKind(
        group=index_of[ring.pg_ids[i]],
        op=operation(ring.names[i]),
        is_p2p=bool(entry["is_p2p"]),
        sizes=shapes(entry["input_sizes"]),
        dtypes=dtypes(entry.get("input_dtypes")),
        peers=tuple(peers_of(ring.names[i])),
    )


def _last_op(ring: _Ring, index_of: dict[Any, int]) -> LastOp | None:
    for i in range(len(ring.entries) - 1, max(-1, len(ring.entries) - WINDOW), -1):
        entry = ring.entries[i]
        if not entry["is_p2p"]:
            return LastOp(
                group=index_of[ring.pg_ids[i]],
                seq=integer(entry["collective_seq_id"], "sequence number"),
                op=operation(ring.names[i]),
                created_ns=ring.created[i] or None,
            )
    return None


# --- Groups ---------------------------------------------------------------------------------------


def _fill(
    table: Sequence[DumpGroup],
    index_of: dict[Any, int],
    ring: _Ring,
    opens: Sequence[int],
    ops: dict[int, OpenOp],
    window: _Window,
) -> tuple[DumpGroup, ...]:
    """The groups of the table with what the entries say of each."""
    counts: dict[int, int] = {}
    for i in opens:
        at = index_of[ring.pg_ids[i]]
        counts[at] = counts.get(at, 0) + 1
    by_group: dict[int, list[OpenOp]] = {}
    for i, op in ops.items():
        by_group.setdefault(index_of[ring.pg_ids[i]], []).append(op)
    done = _done_pairs(ring, window)
    groups = list(table)
    for pg_id, entry in ring.last.items():
        at = index_of[pg_id]
        open_ops = tuple(by_group.get(at, ()))
        enqueued = integer(entry["collective_seq_id"], "sequence number")
        p2p = integer(entry["p2p_seq_id"], "sequence number")
        lowest = min((op.seq for op in open_ops if not op.is_p2p), default=enqueued + 1)
        pairs = done.get(at, [])
        groups[at] = replace(
            groups[at],
            last_enqueued=enqueued,
            last_completed=min(lowest - 1, enqueued),
            last_p2p=p2p or None,
            last_done_ns=max(pairs[1::2], default=None),
            from_status=False,
            open_count=counts.get(at, 0),
            open_ops=open_ops,
            done=array("q", pairs[-2 * MAX_DONE :]).tobytes(),
        )
    return tuple(groups)


def _done_pairs(ring: _Ring, window: _Window) -> dict[int, list[int]]:
    """(seq, completion time) of the full-sync collectives in the window, by group."""
    found: dict[int, list[int]] = {}
    syncs = [is_full_sync(kind.op) for kind in window.kinds]
    for i, row in enumerate(window.order):
        at = ring.completed[window.start + i]
        if at and syncs[row] and ring.done[window.start + i]:
            found.setdefault(window.kinds[row].group, []).extend((window.seqs[i], at))
    return found
