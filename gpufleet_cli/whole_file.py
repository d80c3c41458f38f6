"""A file that is there whole or not at all, whoever reads it meanwhile."""

from __future__ import annotations

import os
import threading
from pathlib import Path


def put(place: Path, data: bytes, *, is_private: bool = False) -> None:
    """Write beside the place and rename. OSError where that cannot be; then nothing is left of it, and what was
    there before stays. A private file is its owner's alone to read."""
    draft = place.with_name(f".{place.name}.{os.getpid()}.{threading.get_ident()}.part")
    try:
        if is_private:
            draft.touch(mode=0o600)
        draft.write_bytes(data)
        draft.replace(place)
    finally:
        draft.unlink(missing_ok=True)
