"""Names that completion offers in tests, and a shell's environment that has our program on PATH."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from gpufleet_cli.live import name_cache
from gpufleet_cli.live.name_cache import Names

ROOT = Path(__file__).parents[1]
NAMES = Names(
    nodes=["gpu-node-10", "gpu-node-2", "cpu-1"],
    jobs=[("train-run-7", "train"), ("train-run-8", "other")],
    namespaces=["kube-system"],
)


class Way:
    """As much of an Access as the cache asks for."""

    context = "prod"


def keep(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """Names of the context that the kubeconfig chooses; the environment of a shell."""
    monkeypatch.delenv("GPUFLEET_NO_STATE")
    config = tmp_path / "config"
    config.write_text("apiVersion: v1\ncurrent-context: prod\nkind: Config\n", encoding="utf-8")
    monkeypatch.setenv("KUBECONFIG", str(config))
    name_cache.remember(Way(), None, NAMES)  # type: ignore[arg-type]
    name_cache.remember_contexts(["prod", "arn:aws:eks:us-east-1:1:cluster/a"])
    name_cache.remember_ranks([0, 1, 2, 3, 10, 11])
    return dict(os.environ)


def shell(kept: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """An environment whose PATH has our program first; it tells which modules it loaded."""
    told = (
        "loaded = sorted({name.split('.')[0] for name in sys.modules})\n"
        "sys.stderr.write(' '.join(loaded))\n"
    )
    folder = tmp_path / "bin"
    script(folder / "gpufleet", "main", options=" -S", after=told)
    return {**kept, "PATH": f"{folder}:{kept['PATH']}"}


def script(place: Path, function: str, *, options: str = "", after: str = "") -> None:
    """A program as an installed entry point is."""
    place.parent.mkdir(exist_ok=True)
    place.write_text(
        f"#!{sys.executable}{options}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        f"from gpufleet_cli.entry import {function} as run\nstatus = run()\n{after}"
        "raise SystemExit(status)\n",
        encoding="utf-8",
    )
    place.chmod(0o755)
