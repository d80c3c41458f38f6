"""Secrets that a pod's own spec names, hidden wherever else they stand: a log that prints its arguments, an event.

A value is learned where its name or place says that it is a secret, and where it is too long and too odd to
be a word of a log. Also found: URL-encoded, with JSON's escapes, and inside base64 at each of its three
alignments.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

from gpufleet_cli.redact import HIDDEN

WHAT = "secret of a pod's spec"
MOST = 400
_LEAST = 8
_LEAST_ENCODED = 12
_TELLING = re.compile(r"[A-Za-z0-9+=]{20,512}")
_MARK = HIDDEN.encode()


class KnownSecrets:
    """Grows while objects are read, and is then asked for each log."""

    def __init__(self) -> None:
        self._plain: dict[bytes, None] = {}
        self._encoded: dict[bytes, None] = {}

    def __bool__(self) -> bool:
        return bool(self._plain)

    def learn(self, value: str, *, is_named: bool) -> None:
        """A value that was hidden; `is_named`: its name or place says that it is a secret."""
        value = value.strip()
        if len(self._plain) >= MOST or HIDDEN in value or not _is_odd(value, is_named=is_named):
            return
        self._plain.update(dict.fromkeys(_plain_forms(value)))
        if len(value) >= _LEAST_ENCODED:
            self._encoded.update(dict.fromkeys(_base64_forms(value)))

    def in_bytes(self, data: bytes) -> tuple[bytes, list[int]]:
        """The text without them as they are, and the numbers of the lines that had one."""
        lines: set[int] = set()
        for form in self._plain:
            at = data.find(form)
            while at >= 0:
                lines.add(data.count(b"\n", 0, at) + 1)
                data = data[:at] + _MARK + data[at + len(form) :]
                at = data.find(form, at + len(_MARK))
        return data, sorted(lines)

    def in_line(self, line: bytes) -> bytes:
        """One line without what base64 holds of them; the same object where there is none."""
        for form in self._encoded:
            if form in line:
                line = line.replace(form, _MARK)
        return line

    def in_text(self, text: str) -> str:
        """A text without any form of them."""
        raw = text.encode("utf-8", "surrogateescape")
        cleaned = self.in_line(self.in_bytes(raw)[0])
        return text if cleaned == raw else cleaned.decode("utf-8", "surrogateescape")


def _is_odd(value: str, *, is_named: bool) -> bool:
    """Whether a log would hardly hold it by chance. Of unknown names only what a machine made."""
    if not _LEAST <= len(value) <= 4096 or "\n" in value:
        return False
    kinds = (str.isdigit, str.isupper, str.islower)
    mixed = sum(any(is_kind(char) for char in value) for is_kind in kinds)
    if is_named:
        return not value.startswith("/") and (mixed > 1 or not value.isalnum())
    return mixed == 3 and _TELLING.fullmatch(value) is not None


def _plain_forms(value: str) -> Iterator[bytes]:
    for form in (value, quote(value, safe=""), quote_plus(value), json.dumps(value)[1:-1]):
        yield form.encode("utf-8", "surrogateescape")


def _base64_forms(value: str) -> Iterator[bytes]:
    """What base64 of any text around it must hold: the characters that depend on the value alone."""
    raw = value.encode("utf-8", "surrogateescape")
    for before in range(3):
        cut = (3 - before) % 3
        whole = raw[cut : cut + (len(raw) - cut) // 3 * 3]
        for encode in (base64.standard_b64encode, base64.urlsafe_b64encode):
            yield encode(whole)
