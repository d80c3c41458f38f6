"""`gpufleet ranks`: every rank on a line, the most silent first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gpufleet_cli.render.clean import clean, cut
from gpufleet_cli.render.layout import WIDTH, Look, cell_width, clock, duration, fit, pad, wrap
from gpufleet_cli.render.structured import (
    Json,
    dump_json,
    row_dict,
    target_dict,
    time_text,
)
from gpufleet_cli.render.terminal import headline
from gpufleet_cli.render.words import gpu_name
from gpufleet_cli.verdict import RankRow, RankStanding, Triage

SCHEMA = "gpufleet.ranks/v1"

_STYLES: dict[RankStanding, str] = {"culprit": "bad", "suspect": "warn", "silent": "warn"}
_MARKS: dict[RankStanding, str] = {"culprit": "!", "suspect": "?"}
_HEAD = ("", "rank", "quiet", "last", "step", "last collective", "GPU", "pod", "node")
_RIGHT = (1, 2, 4)
_COLLECTIVE, _POD, _NODE = 5, 7, 8
_NAME_WIDTH = 12


def by_silence(rows: Sequence[RankRow]) -> list[RankRow]:
    """The quietest first; those whose silence nobody knows come last."""
    return sorted(rows, key=lambda row: (row.quiet_s is None, -(row.quiet_s or 0.0), row.rank))


def render(triage: Triage, look: Look) -> str:
    """One line per rank; `look.verbose` adds what it last said and where that stands."""
    shown = clean(triage, unicode=look.unicode)
    rows = by_silence(shown.ranks)
    if not rows:
        return look.finish([headline(shown), "", "  no rank is known from this evidence"])
    table = [_cells(row) for row in rows]
    widths = _widths([_HEAD, *table])
    lines = [
        headline(shown),
        look.paint(fit(_placed_by(rows), WIDTH), "dim"),
        look.paint(_line(_HEAD, widths), "dim"),
    ]
    for row, cells in zip(rows, table, strict=True):
        lines.append(look.paint(_line(cells, widths), _STYLES.get(row.standing, "plain")))
        if look.verbose:
            lines += _more(row)
    return look.finish(lines)


def _placed_by(rows: Sequence[RankRow]) -> str:
    """`placed by: log (4), derived (20)`: how each rank's pod and node are known, the most frequent way first."""
    ways = Counter(row.how_mapped for row in rows)
    return "placed by: " + ", ".join(f"{way} ({count:,})" for way, count in ways.most_common())


def _cells(row: RankRow) -> tuple[str, ...]:
    quiet = "" if row.quiet_s is None or not row.silence_known else duration(row.quiet_s)
    collective = row.collective
    called = " ".join(str(part) for part in (collective.op, collective.seq) if part is not None)
    index = row.local_rank if row.gpu.index is None else row.gpu.index
    return (
        _MARKS.get(row.standing, ""),
        str(row.rank),
        quiet or "?",
        "" if row.last_write_ns is None else clock(row.last_write_ns),
        "" if row.last_step is None else str(row.last_step),
        called,
        "" if index is None else str(index),
        row.pod or "",
        row.node or "",
    )


def _widths(table: Sequence[Sequence[str]]) -> list[int]:
    """Each column as wide as its widest cell; what is over 80 is taken from the names."""
    widths = [max(cell_width(line[at]) for line in table) for at in range(len(_HEAD))]
    over = sum(widths) + len(widths) - 1 - WIDTH
    for least in (_NAME_WIDTH, 6):
        for at in (_COLLECTIVE, _POD, _NODE):
            floor = 15 if at == _COLLECTIVE and least == _NAME_WIDTH else least
            taken = max(0, min(over, widths[at] - floor))
            if at == _POD:  # both names give way alike
                taken = min(taken, max(0, (over + widths[_POD] - widths[_NODE] + 1) // 2))
            widths[at] -= taken
            over -= taken
    return widths


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Names are cut at their start, since it is their end that tells them apart."""
    shown = [
        pad(fit(cell, width, keep_end=at >= _POD), width, right=at in _RIGHT)
        for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return fit(" ".join(shown).rstrip(), WIDTH)


def _more(row: RankRow) -> list[str]:
    names = [row.pod or "", row.node or "", gpu_name(row.gpu), row.note]
    lines = [line for name in names if name for line in wrap(name, WIDTH - 8)]
    if row.last_text:
        lines += wrap(f"last said: {cut(row.last_text)}", WIDTH - 8, most=3)
    if row.origin is not None:
        lines.append(fit(str(row.origin), WIDTH - 8, keep_end=True))
    return [" " * 8 + line for line in lines]


def render_json(triage: Triage, _look: Look) -> str:
    """All that is known of every rank."""
    shown = clean(triage)
    document: Json = {
        "schema": SCHEMA,
        "target": target_dict(shown),
        "as_of": time_text(shown.as_of_ns),
        "ranks": [row_dict(row) for row in by_silence(shown.ranks)],
    }
    return dump_json(document, rows="ranks")
