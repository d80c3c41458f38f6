"""The names that completion offers: written by live runs, read by `completion` without a parser.

One file per context, replaced whole so that a reader never sees half of it. What a run met is added to
what was there; `gpufleet cache refresh` begins anew.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpufleet_cli import completion, whole_file
from gpufleet_cli.plain_text import is_name
from gpufleet_cli.settings import keeps_state

if TYPE_CHECKING:
    from gpufleet_cli.live.access import Access

KINDS = ("node", "job", "namespace")
MOST_NAMES = 200_000
_CONTEXT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,252}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What a run met; a job with its namespace."""

    nodes: Sequence[str] = ()
    jobs: Sequence[tuple[str, str]] = ()
    namespaces: Sequence[str] = ()

    def lines(self) -> Iterable[str]:
        yield from (f"node\t{name}" for name in self.nodes if is_name(name))
        yield from (f"job\t{n}\t{space}" for n, space in self.jobs if is_name(n) and is_name(space))
        spaces = [*self.namespaces, *(space for _, space in self.jobs)]
        yield from (f"namespace\t{name}" for name in spaces if is_name(name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One context's file: how many names of each kind, and when it was last fetched whole."""

    context: str
    counts: tuple[tuple[str, int], ...]
    written_s: float
    refreshed_s: float | None


def place(access: Access, kubeconfig: str | None) -> Path:
    """The file of this context."""
    folder = completion.names_folder(dict(os.environ))
    chosen = kubeconfig or os.environ.get("KUBECONFIG") or ""
    return Path(completion.file_of(folder, access.context or "", chosen))


def remember(
    access: Access, kubeconfig: str | None, names: Names, *, whole: Collection[str] = ()
) -> None:
    """Keep the names; never at the cost of the run: a folder that cannot be written is passed over. Of the kinds
    in `whole` these are all there are, and what was kept of them before goes."""
    if not keeps_state():
        return
    path = place(access, kubeconfig)
    new = set(names.lines())
    stays = set(KINDS) - set(whole)
    old = [one for one in _lines(path) if one.partition("\t")[0] in stays]
    stamp = _refreshed(path) if stays else f"refreshed\t{time.time():.0f}"
    head = [f"context\t{access.context or ''}", *([stamp] if stamp else [])]
    _write(path, [*head, *sorted({*old, *new}, key=_natural)[:MOST_NAMES]])
    remember_contexts([access.context] if access.context else [])


def remember_contexts(names: Iterable[str], *, whole: bool = False) -> None:
    """The contexts of the kubeconfig; of a run without a look at all of them only its own is new."""
    if not keeps_state():
        return
    path = Path(completion.names_folder(dict(os.environ))) / "contexts"
    new = {f"context\t{name}" for name in names if _CONTEXT.fullmatch(name)}
    old = set() if whole else {one for one in _lines(path) if one.startswith("context\t")}
    if new - old or whole:
        _write(path, sorted(old | new))


def remember_ranks(ranks: Iterable[int]) -> None:
    """Ranks of the last triage, as runs."""
    if not keeps_state():
        return
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    folder = Path(completion.names_folder(dict(os.environ)))
    _write(folder / "ranks", [f"{first}-{last}" for first, last in runs])


def kept() -> list[Kept]:
    """What there is, a context each."""
    folder = Path(completion.names_folder(dict(os.environ)))
    found = []
    for path in sorted(folder.glob("*-????????")) if keeps_state() else ():
        lines = _lines(path)
        stamp = next((one for one in lines if one.startswith("refreshed\t")), "\t").split("\t")[1]
        context = next((one for one in lines if one.startswith("context\t")), "\t").split("\t")[1]
        counts = tuple((kind, sum(o.startswith(f"{kind}\t") for o in lines)) for kind in KINDS)
        found.append(
            Kept(
                context=context,
                counts=counts,
                written_s=path.stat().st_mtime,
                refreshed_s=float(stamp) if stamp.isdecimal() else None,
            )
        )
    return found


def _lines(path: Path) -> list[str]:
    try:
        return [
            one for one in path.read_text(encoding="utf-8", errors="replace").split("\n") if one
        ]
    except OSError:
        return []


def _refreshed(path: Path) -> str:
    return next((one for one in _lines(path) if one.startswith("refreshed\t")), "")


def _natural(line: str) -> tuple[object, ...]:
    """`node-2` before `node-10`, in each kind."""
    parts = re.split(r"(\d{1,18})", line)
    return tuple((1, int(p), "") if p.isdecimal() else (0, 0, p) for p in parts)


def _write(path: Path, lines: Iterable[str]) -> None:
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        whole_file.put(path, "".join(f"{one}\n" for one in lines).encode())
