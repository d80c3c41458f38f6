"""Text from evidence made visible: no character in it can move a cursor, hide or turn other text.

`str.isprintable` is the test: it refuses the categories Cc (C0, C1, ESC), Cf (bidirectional and
zero-width controls, tags), Cs (lone surrogates of undecodable file names), Zl, Zp and every blank
but the space. What it refuses becomes a `\\u` escape, so a reader sees that something was there.

>>> visible("a\\x1b[31mb\\u202ec")
'a\\\\u001b[31mb\\\\u202ec'
"""

from __future__ import annotations

import re

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,252}", re.ASCII)


def visible(text: str) -> str:
    """The text with every character that is not plainly printable as a `\\u` escape."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def is_name(text: str) -> bool:
    """Whether this can be the name of a job, pod or node, which goes into a command to paste.

    Wider than RFC 1123, for Slurm and for hosts with capitals; a name that begins with `-` would be
    an option (`ssh -oProxyCommand=...`), which no quoting takes away.

    >>> is_name("gpu-node-0417.local"), is_name("-oProxyCommand=id"), is_name("a;b"), is_name("")
    (True, False, False, False)
    """
    return _NAME.fullmatch(text) is not None
