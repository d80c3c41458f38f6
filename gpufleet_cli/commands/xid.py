"""`gpufleet xid CODE`: what an Xid or SXid means and what to do. Offline; takes a kernel line too."""

from __future__ import annotations

import re
import sys
from typing import Annotated

import typer

from gpufleet_cli.commands.options import one_of
from gpufleet_cli.commands.output import emit
from gpufleet_cli.errors import UsageError
from gpufleet_cli.render import xid_card
from gpufleet_cli.render.xid_card import Card
from gpufleet_cli.settings import Settings

FIRST_SXID = 10_000
PASTE_CHARS = 65_536
MOST_LINES = 200

_CODE = re.compile(r"(?P<kind>s?xid)?(?:\s?errors?)?[\s:=#-]{0,3}(?P<code>\d{1,6})", re.IGNORECASE)
_GAUGE = re.compile(r"DCGM_FI_DEV_XID_ERRORS?(?:\{.{0,2000}\})?\s{1,4}(?P<code>\d{1,5})(?:\.0+)?\b")
GAUGE_NOTE = (
    "The gauge holds the last code and keeps it for days: it dates nothing. "
    "Look for a change of the value, or in the kernel log."
)


def xid(
    *,
    code: Annotated[
        list[str],
        typer.Argument(
            metavar="CODE",
            help="A code (79, 'SXid 20034') or a pasted kernel line in quotes; - reads lines.",
        ),
    ],
    settings: Settings,
) -> None:
    """Say what an XID means and what to do about it, offline.

    Examples:
      gpufleet xid 79
      gpufleet xid 'SXid 20034' -o json
      journalctl -k | grep NVRM | gpufleet xid -
    """
    output = one_of(settings.output, ("text", "json"))
    emit(report(" ".join(code), as_json=output == "json") + "\n")


def report(asked: str, *, as_json: bool) -> str:
    """The answer for a code, a kernel line, several lines, or `-` for lines on standard input."""
    pasted = sys.stdin.read(PASTE_CHARS) if asked.strip() == "-" else asked
    cards = read(pasted)
    if not as_json:
        return "\n\n".join(xid_card.text(card) for card in cards)
    import json

    documents = [xid_card.document(card) for card in cards]
    shown = documents[0] if len(documents) == 1 else {"xids": documents}
    return json.dumps(shown, indent=2, ensure_ascii=True, allow_nan=False)


def read(asked: str) -> list[Card]:
    """The cards that a text asks for.

    A number that no table has is answered as unknown; a text that holds neither a code nor a line
    is an error of usage.
    """
    found = _CODE.fullmatch(asked.strip())
    if found:
        number = int(found["code"])
        named = (found["kind"] or "").lower()
        return [Card(code=number, is_sxid=named == "sxid" or (not named and number >= FIRST_SXID))]
    lines = asked.splitlines()[:MOST_LINES]
    cards = [card for line in lines if (card := _line(line)) is not None]
    if not cards:
        raise UsageError(
            "neither an XID code nor a kernel line with one",
            hint="gpufleet xid 79, gpufleet xid 'SXid 20034', or quote the whole kernel line",
        )
    return list({_what(card): card for card in reversed(cards)}.values())[::-1]


def _what(card: Card) -> tuple[object, ...]:
    """Cards that say the same but for process and channel: 45 comes in hundreds."""
    event = card.event
    if event is None:
        return (card.code, card.is_sxid, card.note, card.sxid_event)
    return (card.code, event.unit, event.severity, event.words, event.recovery, event.caused_by)


def _line(line: str) -> Card | None:
    gauge = _GAUGE.search(line)
    if gauge:
        return Card(code=int(gauge["code"]), note=GAUGE_NOTE)
    from gpufleet_cli.facts import HostEvent, HostSign, Origin, SxidEvent, XidEvent
    from gpufleet_cli.parsers import kernel_log, kernel_prefix

    parsed = kernel_prefix.read(line[: kernel_log.LINE_CHARS])
    for fact in kernel_log.read_line(parsed, parsed.host, Origin(path="pasted")):
        match fact:
            case XidEvent():
                return Card(code=fact.xid, event=fact)
            case SxidEvent():
                return Card(code=fact.sxid, is_sxid=True, sxid_event=fact)
            case HostEvent(sign=HostSign.GPU_OFF_BUS):
                return Card(code=79, note="The line has no code; it says the same as Xid 79.")
            case _:
                continue
    return None
