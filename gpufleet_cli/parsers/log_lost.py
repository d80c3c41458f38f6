"""The last ordinary line of speakers who fell silent outside what was read line by line.

Their lines carry the same bytes in front (`[rank5]: `, a pod's name), so the file is searched backwards
for those bytes, and each hit is read to see that it is theirs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpufleet_cli.facts import Speaker
from gpufleet_cli.parsers.log_reader import PAGE_SHIFT
from gpufleet_cli.parsers.log_writes import Account

if TYPE_CHECKING:
    from gpufleet_cli.parsers.log_stream import LogStream, Window

MAX_SPEAKERS = 512
SEARCH_BYTES = 256 << 20
SURROUNDINGS_BYTES = 2 << 10
MAX_MISSES = 64
_MASK = (1 << PAGE_SHIFT) - 1

_STAMP = re.compile(
    rb"\d{4}[-/]\d\d[-/]\d\d[T _]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:Z| ?[+-]\d\d:?\d\d)?"
)


def windows(stream: LogStream, read: Sequence[Window]) -> list[Window]:
    """Where to read line by line for the speakers whose last ordinary line is not in `read`.

    `read` are the stretches that reach up to a complaint or to the end of the stream.
    """
    if not read:
        return []
    last_index, _, last_end = read[-1]
    end = (last_index << PAGE_SHIFT) + last_end
    lost: list[tuple[int, int, Speaker]] = []
    for account in stream.accounts.values():
        if is_nobody(account.speaker):
            continue
        newest, stop = _newest_ordinary(account, end)
        if newest is not None and not _is_inside(newest, read):
            lost.append((newest, stop, account.speaker))
    found: list[Window] = []
    budget = SEARCH_BYTES
    for newest, stop, speaker in sorted(lost, key=lambda item: item[:2])[-MAX_SPEAKERS:]:
        place, spent = _last_line(stream, speaker, newest, stop, budget)
        budget -= spent
        at = place & _MASK
        found.append((place >> PAGE_SHIFT, max(0, at - SURROUNDINGS_BYTES), at + 1))
    return found


def is_nobody(speaker: Speaker) -> bool:
    """No rank, process or pod of its own."""
    ids = (speaker.rank, speaker.prefix_rank, speaker.local_rank, speaker.task, speaker.pid)
    return all(value is None for value in ids) and "#" not in speaker.stream


def _newest_ordinary(account: Account, end: int) -> tuple[int | None, int]:
    """(newest known line before the first complaint, that complaint or the end)."""
    stop = min((event.pos for event in account.events if event.is_complaint), default=end)
    before = max((line.pos for line in account.seen if line.pos < stop), default=None)
    if before is None:
        before = min((line.pos for line in account.seen), default=None)
    return before, stop


def _is_inside(pos: int, read: Sequence[Window]) -> bool:
    return any(
        index == pos >> PAGE_SHIFT and start <= pos & _MASK < end for index, start, end in read
    )


def _last_line(
    stream: LogStream, speaker: Speaker, newest: int, stop: int, budget: int
) -> tuple[int, int]:
    """(place of the last line before `stop`, bytes looked at); `newest` where none is later."""
    needle = _needle(stream, newest)
    spent = 0
    if needle is None:
        return newest, spent
    first, last = newest >> PAGE_SHIFT, stop >> PAGE_SHIFT
    for index in range(last, first - 1, -1):
        data = stream.pages[index].data
        low = newest & _MASK if index == first else 0
        high = stop & _MASK if index == last else len(data)
        for _ in range(MAX_MISSES):
            if spent > budget:
                return newest, spent
            at = data.rfind(needle, low, high)
            spent += high - max(at, low)
            if at < 0:
                break
            start = data.rfind(b"\n", 0, at + 1) + 1
            raw = stream.reader.line(index, start)
            if raw.text is not None and stream.attempts.speaker(raw.voice, raw.pos) is speaker:
                return max(raw.pos, newest), spent
            high = at
    return newest, spent


def _needle(stream: LogStream, pos: int) -> bytes | None:
    """The bytes that this speaker's lines carry in front, without the time."""
    index, start = pos >> PAGE_SHIFT, pos & _MASK
    data = stream.pages[index].data
    end = data.find(b"\n", start)
    raw = stream.reader.line(index, start)
    line = data[start : len(data) if end < 0 else end]
    text = (raw.text or "").encode("utf-8", "replace")
    at = line.find(text[:64]) if text else -1
    pieces = [piece for piece in _STAMP.split(line[:at]) if piece] if at > 0 else []
    if not pieces:
        return None
    needle = max(pieces, key=len)
    if line.startswith(needle):
        needle = b"\n" + needle
    return needle if len(needle) >= 4 else None
