"""Text exports of log pages: the page's own time before a line that has a time or prefix itself.

    2025-11-09 15:39:31.043 +08:00 [2025-11-09 07:39:30] h100-28:...      nccl issue 1905
    2025-02-18 12:54 [rank14]:[E218 04:54:23.123456789 ...                nccl issue 1610: minutes only

The outer time is when the line was collected, in the viewer's zone; the inner one is the event's, in
the process's zone. An outer time without a zone is therefore shifted by the whole quarter hours
that lie between the two (`shift_ns`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from gpufleet_cli.parsers.wrappers.layer import Layer
from gpufleet_cli.timestamps import NS_PER_S, match_iso

STARTS = "0123456789["

_INNER = re.compile(
    r"[ \t]{0,4}(?=\[[A-Za-z_.-]{1,40}\d{1,6}\[?\]:|\[?[IWEF]\d{3,4} \d\d:|\[?\d{4}[-/]\d\d[-/]\d\d[T _]\d\d:\d\d|\[pod/)"
)
_QUARTER = 15 * 60 * NS_PER_S
_SLACK = 6 * 60 * NS_PER_S


def peel(text: str) -> Layer | None:
    """Take off an outer time that is followed by an inner one or by a rank prefix."""
    start = 1 if text[0] == "[" else 0
    stamp = match_iso(text, start)
    if stamp is None:
        return None
    end = stamp.end
    if start:
        if text[end : end + 1] != "]":
            return None
        end += 1
    found = _INNER.match(text, end)
    if found is None:
        return None
    coarse = ":" not in text[start + 16 : stamp.end]
    return Layer(text[found.end() :], stamp.ns, stamp.zone_stated, coarse=coarse)


def shift_ns(pairs: Sequence[tuple[int, int]]) -> int:
    """What to subtract from outer times without a zone, from (outer, inner) pairs of the same lines."""
    shifts = Counter(
        round((outer - inner) / _QUARTER) * _QUARTER
        for outer, inner in pairs
        if abs((outer - inner) - round((outer - inner) / _QUARTER) * _QUARTER) <= _SLACK
    )
    if not shifts:
        return 0
    shift, votes = max(shifts.items(), key=lambda item: (item[1], -abs(item[0])))
    return shift if votes * 2 > len(pairs) else 0
