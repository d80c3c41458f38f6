"""`gpufleet explain --rank N`: why this rank is, or is not, the culprit."""

from __future__ import annotations

import json
from collections.abc import Iterator

from gpufleet_cli.render.clean import clean, cut
from gpufleet_cli.render.details import claim_lines
from gpufleet_cli.render.layout import WIDTH, Look, date_clock, duration, labelled, row, wrap
from gpufleet_cli.render.structured import claims, row_dict
from gpufleet_cli.render.words import gpu_name
from gpufleet_cli.verdict import Explanation, RankRow

SCHEMA = "gpufleet.explain/v1"
_STYLES = {"culprit": "bad", "suspect": "warn", "silent": "warn"}


def render(explanation: Explanation, look: Look) -> str:
    """The answer in a sentence, what is known of the rank, then the claims for and against."""
    shown = clean(explanation, unicode=look.unicode)
    standing = look.paint(shown.standing.upper(), _STYLES.get(shown.standing, "strong"))
    lines = [f"  rank {shown.rank}  {standing}"]
    lines += [f"  {line}" for line in wrap(shown.headline, WIDTH - 2)]
    if shown.row is not None:
        lines += ["", *_known(shown.row)]
    if shown.reasons:
        lines += ["", *claim_lines(shown.reasons)]
    if shown.would_change:
        lines += ["", *labelled("would change it: ", shown.would_change)]
    return look.finish(lines)


def _known(known: RankRow) -> Iterator[str]:
    yield from row([known.pod or "", known.node or "", gpu_name(known.gpu)])
    if known.how_mapped:
        yield from labelled("mapped by    ", known.how_mapped)
    if known.last_write_ns is not None:
        yield f"  last write   {date_clock(known.last_write_ns)} UTC"
    if known.quiet_s is not None and known.silence_known:
        error = f" give or take {duration(known.quiet_error_s)}" if known.quiet_error_s else ""
        yield f"  quiet for    {duration(known.quiet_s)}{error}"
    else:
        yield "  quiet for    not known"
    if known.last_sign_ns not in (None, known.last_write_ns):
        yield f"  last sign    {date_clock(known.last_sign_ns or 0)} UTC: its last line that is no complaint"
    if known.last_step is not None:
        yield f"  last step    {known.last_step:,}"
    called = " ".join(
        str(part) for part in (known.collective.op, known.collective.seq) if part is not None
    )
    if called:
        yield from labelled("collective   ", called)
    if known.last_text:
        yield from labelled("last said    ", cut(known.last_text), most=3)
    if known.note:
        yield from labelled("note         ", known.note)


def render_json(explanation: Explanation, _look: Look) -> str:
    """The same as one document."""
    shown = clean(explanation)
    document = {
        "schema": SCHEMA,
        "rank": shown.rank,
        "standing": shown.standing,
        "headline": shown.headline,
        "known": None if shown.row is None else row_dict(shown.row),
        "reasons": claims(shown.reasons),
        "would_change": shown.would_change or None,
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"
