"""Secrets for tests, all made up by rule, and every form in which one might come to light again."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from hashlib import sha256
from urllib.parse import quote, quote_plus

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


def word(seed: str, size: int = 20, letters: str = _LETTERS) -> str:
    """A word that no log holds by chance; the same for the same seed. It has a digit and both cases."""
    drawn = b"".join(sha256(f"{seed}{part}".encode()).digest() for part in range(size // 32 + 1))
    made = "".join(letters[byte % len(letters)] for byte in drawn[:size])
    return made if letters is not _LETTERS else f"{made[:-3]}x7Q"


def key_lines(seed: str, kind: str = "RSA PRIVATE KEY") -> list[str]:
    """A private key as it is written: full lines and a short last one."""
    body = [word(f"{seed}{line}", 64) for line in range(4)]
    return [f"-----BEGIN {kind}-----", *body, f"{word(seed, 18)}==", f"-----END {kind}-----"]


def bodies(lines: list[str]) -> list[str]:
    """What of a key is secret."""
    return lines[1:-1]


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def forms(secret: str) -> Iterator[bytes]:
    """As it is, cut in halves, backwards; for URLs and JSON; in base64 whatever stands before it."""
    half = len(secret) // 2
    plain = [secret, secret[::-1], quote(secret, safe=""), quote_plus(secret)]
    plain += [quote(quote(secret, safe="")), json.dumps(secret)[1:-1]]
    plain += [part for part in (secret[:half], secret[half:]) if len(part) >= 8]
    for text in plain:
        yield text.encode()
    raw = secret.encode()
    for cut in range(3):
        whole = raw[cut : cut + (len(raw) - cut) // 3 * 3]
        if len(whole) >= 6:
            yield base64.standard_b64encode(whole)
            yield base64.urlsafe_b64encode(whole)


def found_in(data: bytes, planted: dict[str, str]) -> set[str]:
    """The names of those that stand in these bytes in any form."""
    return {name for name, secret in planted.items() if any(one in data for one in forms(secret))}
