"""`mpirun --tag-output`, with `--timestamp-output` or without, and PRRTE's newer form.

    [1,12]<stdout>:text                 job, rank
    Tue Feb 18 04:11:47 2025[1,12]<stderr>:text
    [prterun-host-123@1,12]<stdout>: text

>>> peel("[1,12]<stderr>:hello").who
(('task', 12),)
"""

from __future__ import annotations

import re
from functools import lru_cache

from gpufleet_cli.parsers.wrappers.layer import Layer, Who, who_of
from gpufleet_cli.timestamps import match_ctime

STARTS = "[MTWFS"

_TAG = re.compile(r"\[(?:[\w.-]{1,128}@)?\d{1,9},(\d{1,6})\]<std(?:out|err|diag)>: ?")


@lru_cache(maxsize=65_536)
def _task(number: str) -> Who:
    return who_of({"task": int(number)})


def peel(text: str) -> Layer | None:
    """Take off the tag and the time before it."""
    stamp = None if text[0] == "[" else match_ctime(text)
    found = _TAG.match(text, 0 if stamp is None else stamp.end)
    if found is None:
        return None
    who = _task(found[1])
    if stamp is None:
        return Layer(text[found.end() :], who=who)
    return Layer(text[found.end() :], stamp.ns, stamp.zone_stated, who)
