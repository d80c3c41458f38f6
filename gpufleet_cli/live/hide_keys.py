"""Private keys over many lines of a log: each line with a stamp and a rank before it, other ranks' lines between.

Only what looks like a line of a key is hidden in it, so that what other ranks wrote meanwhile stays.

>>> text = b"r0: -----BEGIN EC PRIVATE KEY-----\\nr1: step 3 loss 2.1\\nr0: MHcCAQ==\\nr0: -----END EC PRIVATE KEY-----"
>>> without_keys(text)[0].split(b"\\n")[1:3]
[b'r1: step 3 loss 2.1', b'r0: [hidden]']
"""

from __future__ import annotations

import re

from gpufleet_cli.redact import HIDDEN

WHAT = "private key"
_MARK = b"PRIVATE KEY"
_BEGIN = re.compile(rb"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_END = re.compile(rb"-----END [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
# What ends a line and may be of a key: also in the quotes of a JSON log, with an escaped end of line.
_TAIL = re.compile(
    rb"(?:^|(?<=[\s:|>\]\"'(,]))[A-Za-z0-9+/]{1,80}={0,2}(?=(?:\\+[nr])*[\"',\s})]*$)"
)
_FIELD = re.compile(
    rb"(?<=\")(?:log|message|msg|text)\"\s?:\s?\"(?P<tail>[A-Za-z0-9+/]{1,80}={0,2})(?=(?:\\+[nr])*\")"
)
_MOST_APART = 200
"""So many lines without one of a key end it: its END was lost."""
_LONG = 40
_NEAR = 16
_ODD = re.compile(rb"=$|^(?=.*[a-z])(?=.*[A-Z])(?=.*[0-9]).{8,}$")
_MOST_ORPHANS = 64


def without_keys(data: bytes) -> tuple[bytes, list[int]]:
    """The log without the bodies of keys; the line on which each begins (or, without a beginning, ends)."""
    if _MARK not in data:
        return data, []
    lines = data.split(b"\n")
    found: list[int] = []
    opened = since = orphans = 0
    for index, line in enumerate(lines):
        if _MARK in line:
            begin, end = _BEGIN.search(line), _END.search(line)
            if begin and end:
                continue  # all of it on one line: the patterns see it
            if begin:
                opened, since = opened + 1, 0
                found.append(index + 1)
                lines[index] = _without_rest(line, begin.end())
                continue
            if end:
                orphans += opened == 0
                if opened == 0 and orphans <= _MOST_ORPHANS and _upwards(lines, index):
                    found.append(index + 1)
                opened = max(0, opened - 1)
                continue
        if opened:
            cleaned = _cleaned(line)
            since = since + 1 if cleaned is line else 0
            lines[index] = cleaned
            opened = 0 if since > _MOST_APART else opened
    return (b"\n".join(lines), found) if found else (data, [])


def _without_rest(line: bytes, at: int) -> bytes:
    """What stands behind BEGIN on its own line, but for quotes and escapes."""
    rest = line[at:]
    return line if len(rest.strip()) < 4 else line[:at] + HIDDEN.encode()


def _cleaned(line: bytes) -> bytes:
    field = _FIELD.search(line)
    if field is not None:
        start, end = field.span("tail")
        return line[:start] + HIDDEN.encode() + line[end:]
    tail = _TAIL.search(line[-600:])
    if tail is None:
        return line
    shift = max(0, len(line) - 600)
    return line[: shift + tail.start()] + HIDDEN.encode() + line[shift + tail.end() :]


def _upwards(lines: list[bytes], end: int) -> bool:
    """The lines above an END whose BEGIN was cut off: full ones, and near it also what looks like a last one."""
    changed = False
    for index in range(end - 1, max(-1, end - _MOST_APART), -1):
        if _MARK in lines[index]:
            continue
        tail = _TAIL.search(lines[index][-600:])
        is_near = end - index <= _NEAR
        if tail is None or not (
            index == end - 1
            or len(tail.group()) >= _LONG
            or (is_near and _ODD.search(tail.group()) is not None)
        ):
            continue
        lines[index] = _cleaned(lines[index])
        changed = True
    return changed
