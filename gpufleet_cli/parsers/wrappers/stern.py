"""`stern`: pod and container before each line, coloured on a terminal, with `-t` a time behind them.

    ddp-worker-0 pytorch 2024-03-20T10:00:20.00000034Z text
    ddp-worker-0 pytorch text
    train ddp-worker-0 pytorch text            with --all-namespaces

Two words before a text are no certain sign, so the form counts only where nearly every line has
it and the words come back. Times of `-t` are RFC 3339 in the reader's zone (a further layer).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from gpufleet_cli.parsers.wrappers.layer import Layer, Who, majority, who_of
from gpufleet_cli.timestamps import match_iso

STARTS = "abcdefghijklmnopqrstuvwxyz0123456789"

_NAME = r"[a-z0-9](?:[-a-z0-9.]{0,250}[a-z0-9])?"
_TWO = re.compile(rf"({_NAME}) ({_NAME})(?: |$)")
_THREE = re.compile(rf"({_NAME}) ({_NAME}) ({_NAME})(?: |$)")


def _is_pod(name: str) -> bool:
    """Pods of a controller end in an ordinal or a hash behind a hyphen."""
    return "-" in name and any(c.isdigit() for c in name.rsplit("-", 1)[1])


def _pair(line: str) -> tuple[str, str] | None:
    found = _TWO.match(line)
    if found is None or not (_is_pod(found[1]) or _is_pod(found[2])):
        return None
    return found[1], found[2]


def fits(sample: Sequence[str]) -> bool:
    """Nearly all lines begin with a pod and a container, and each pair stands on several lines; of a
    job with more pods than a sample has lines, the time of `-t` behind the names is sign enough."""
    if not majority(_pair, sample):
        return False
    pairs = Counter(pair for pair in map(_pair, sample) if pair is not None)
    return len(pairs) <= max(1, sum(pairs.values()) // 2) or majority(_stamped, sample)


def _stamped(line: str) -> bool | None:
    """Whether a time stands behind the names; None where it does not."""
    layer = peel(line)
    return True if layer is not None and layer.rest and match_iso(layer.rest) else None


@lru_cache(maxsize=65_536)
def _who(namespace: str | None, pod: str, container: str) -> Who:
    return who_of({"namespace": namespace, "pod": pod, "container": container})


def peel(text: str) -> Layer | None:
    """Take off the names."""
    found = _TWO.match(text)
    if found is None:
        return None
    if _is_pod(found[1]):
        return Layer(text[found.end() :], who=_who(None, found[1], found[2]))
    found = _THREE.match(text)
    if found is None or not _is_pod(found[2]):
        return None
    return Layer(text[found.end() :], who=_who(found[1], found[2], found[3]))
