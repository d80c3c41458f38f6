"""What conditions and taints of a node mean, in plain words: data/node_words.csv, a source per row."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_TABLE = Path(__file__).parents[1] / "data" / "node_words.csv"
_WATCH = re.compile(r"Gpu(\w{1,40})Watch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """`repair_s`: so long after it turned bad the provider reboots or replaces the node by itself."""

    source: str
    words: str
    repair_s: float | None = None


def of_condition(kind: str) -> Words | None:
    """Who writes this type and what its bad value means; None for a third party's."""
    found = _WATCH.fullmatch(kind)
    if found:
        return Words(source="NVSentinel", words=f"its check of the GPU's {found[1]} failed")
    return _table().get(("condition", kind))


def of_taint(key: str) -> Words | None:
    """What a taint with this key means."""
    return _table().get(("taint", key))


@lru_cache(maxsize=1)
def _table() -> dict[tuple[str, str], Words]:
    with _TABLE.open(encoding="utf-8", newline="") as rows:
        return {
            (row["what"], row["name"]): Words(
                source=row["source"],
                words=row["words"],
                repair_s=60.0 * float(row["repair_minutes"]) if row["repair_minutes"] else None,
            )
            for row in csv.DictReader(rows)
        }
