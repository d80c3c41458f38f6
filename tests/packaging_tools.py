"""Scripts of the folder `packaging`, loaded by their place: the name is that of a library too."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def load(path: str) -> Any:
    place = ROOT / "packaging" / path
    spec = importlib.util.spec_from_file_location(f"packaging_{place.stem}", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
