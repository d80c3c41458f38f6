"""The sections that show evidence: silence, waiting, what the culprit did, its hardware, and the appendix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from gpufleet_cli.postmortem_card import (
    AlikeEvents,
    Doing,
    Postmortem,
    SilenceMap,
    SilenceRow,
    Tone,
)
from gpufleet_cli.render.clean import cut
from gpufleet_cli.render.layout import counted, duration, rank_list
from gpufleet_cli.render.postmortem.blocks import (
    At,
    Block,
    Cell,
    Code,
    Entries,
    Entry,
    Facts,
    Heading,
    Inline,
    Items,
    Lines,
    Para,
    RankTiles,
    SilenceBars,
    Table,
    Waits,
    doing_title,
)
from gpufleet_cli.render.postmortem.cited import Cited
from gpufleet_cli.verdict import CollectiveRef, HardwareEvent

TONE_WORDS: dict[Tone, str] = {
    "culprit": "culprit",
    "suspect": "may be the culprit",
    "waited": "waited",
    "silent": "silent, not blamed",
    "well": "well",
    "unknown": "not known",
}


# --- Silence --------------------------------------------------------------------------------------


def silence_blocks(made: Postmortem) -> Iterator[Block]:
    found = made.silence
    if not found.rows:
        yield Para(("No rank of this job is known.",))
        return
    if found.start_ns is not None and found.end_ns is not None:
        cause, seen = made.times.first_cause.at_ns, made.times.detected.at_ns
        yield SilenceBars(found, cause, seen, _bars_words(found))
    else:
        yield Para(("No line of a rank has a time: when each fell silent cannot be drawn.",))
    yield Table(
        caption="The same in words: ranks that fell silent alike",
        head=("Ranks", "Standing", "Last line at (UTC)", "Quiet for", "Which"),
        rows=tuple(_silence_row(row) for row in found.rows),
        marks=tuple("bad" if row.tone == "culprit" else "" for row in found.rows),
    )
    yield RankTiles(found, _tiles_words(found))


def _bars_words(found: SilenceMap) -> str:
    quiet = [row for row in found.rows if row.quiet_s is not None]
    told = [f"{row.label}: quiet for {duration(row.quiet_s or 0.0)}" for row in quiet[:6]]
    return "Until when ranks wrote. " + "; ".join(told) + "."


def _silence_row(row: SilenceRow) -> tuple[Cell, ...]:
    at: Cell = ("not known",)
    if row.first_ns is not None and row.last_ns is not None:
        at = (At(row.first_ns, "clock"),)
        if row.last_ns - row.first_ns > 10**9:
            at = (At(row.first_ns, "clock"), " to ", At(row.last_ns, "clock"))
    if row.sign_ns is not None and row.sign_ns != row.last_ns:
        at = (*at, "; the last ordinary one ", At(row.sign_ns, "clock"))
    places = [counted(row.pods, "pod")] if row.pods else []
    places += [", ".join(row.nodes[:3]) + (f" and {len(row.nodes) - 3:,} more" if len(row.nodes) > 3 else "")] if row.nodes else []  # fmt: skip
    return (
        (row.label,),
        (TONE_WORDS[row.tone],),
        at,
        ("not known" if row.quiet_s is None else duration(row.quiet_s),),
        (
            f"{'rank' if len(row.ranks) == 1 else 'ranks'} {rank_list(row.ranks, 60)}"
            + (f"; {'; '.join(places)}" if places else ""),
        ),
    )


def _tiles_words(found: SilenceMap) -> str:
    thing = {"node": "node", "pod": "pod", "rank": "run of eight ranks"}[found.by]
    counts = Counter(tone for tile in found.tiles for tone in tile.tones)
    told = [f"{counts[tone]:,} {TONE_WORDS[tone]}" for tone in TONE_WORDS if counts[tone]]
    text = f"One tile for each {thing}, in the order of ranks ({len(found.tiles):,}); ranks: {', '.join(told)}."  # fmt: skip
    guilty = [tile.name for tile in found.tiles if "culprit" in tile.tones]
    if guilty:
        text += f" Culprits on {', '.join(guilty[:8])}."
    if found.tiles_left_out:
        text += f" {found.tiles_left_out:,} further tiles are not drawn."
    return text


# --- Waiting --------------------------------------------------------------------------------------


def wait_blocks(made: Postmortem) -> Iterator[Block]:
    if made.waits is None:
        yield Para(("Nobody is known to wait in a collective: no dump and no watchdog says so.",))
        return
    picture = made.waits
    items: list[Cell] = []
    for index, box in enumerate(picture.boxes):
        ranks = f" (ranks {rank_list(box.ranks, 60)})" if len(box.ranks) > 1 else ""
        to = [str(there + 1) for here, there in picture.arrows if here == index]
        tail = f" Waits for {' and '.join(to)} of this list." if to else ""
        items.append((f"{box.title}{ranks}: {cut(box.detail, 160)}.{tail}",))
    titles = "; ".join(box.title for box in picture.boxes)
    yield Waits(picture, f"From who waits, at the top, to whom it waits for: {titles}.")
    yield Para((f"The same in words, by {picture.told_by}:",))
    yield Items(tuple(items), is_ordered=True)
    if picture.left_out:
        yield Para((f"{counted(picture.left_out, 'lesser operation')} left out.",), "soft")
    if made.triage.dumps is not None and made.triage.dumps.finding:
        yield Para((f"What the dumps show together: {made.triage.dumps.finding}",))


# --- What the culprit was doing -------------------------------------------------------------------


def doing_blocks(made: Postmortem, cited: Cited) -> Iterator[Block]:
    if not made.doing:
        yield Para(("Nobody is named, so there is nobody to look at.",))
    for one in made.doing:
        yield Heading(doing_title(one))
        yield _facts(made, one, cited)
        if one.lines:
            yield Lines(title=f"{one.whose.value}, {one.lines_of}", lines=one.lines)
        elif one.last_text:
            yield Para(("Its last ordinary line: ", Code(cut(one.last_text))))
        else:
            yield Para(("No line of it is in the evidence.",))
        if one.alike:
            yield Para((f"And {counted(len(one.alike), 'more rank')}: {rank_list(one.alike)}.",))


def _facts(made: Postmortem, one: Doing, cited: Cited) -> Facts:
    own = _collective(one.collective)
    if not own:
        peers = _collective(made.triage.verdict.collective)
        own = "not recorded" + (f"; its peers waited in {peers}" if peers else "")
    pairs: list[tuple[str, Cell]] = [
        ("Last collective", (own,)),
        ("Last step", ("not known" if one.last_step is None else f"{one.last_step:,}",)),
    ]
    sign: Cell = ("not known",)
    if one.last_sign_ns is not None:
        sign = (At(one.last_sign_ns), *_spaced(cited(one.origin)))
    pairs.append(("Last ordinary line", sign))
    if one.stack:
        frames: list[Inline] = [f"{one.stack_from}: "]
        for at, frame in enumerate(one.stack[:8]):
            frames += [" < " if at else "", Code(cut(frame, 160))]
        pairs.append(("Stack, innermost first", (*frames, *_spaced(cited(one.stack_origin)))))
    else:
        pairs.append(("Stack", ("none in the evidence",)))
    return Facts(tuple(pairs))


def _spaced(cell: Cell) -> Cell:
    return (" ", *cell) if cell else ()


def _collective(one: CollectiveRef) -> str:
    called = " ".join(str(part) for part in (one.op, one.seq) if part is not None)
    group = one.desc or one.group
    return f"{called} of {group}" if called and group else called


# --- Hardware -------------------------------------------------------------------------------------


def hardware_blocks(made: Postmortem, cited: Cited) -> Iterator[Block]:
    history = made.hardware
    named = ", ".join(history.nodes[:4])
    if history.events:
        more = f" ({history.left_out} more not shown)" if history.left_out else ""
        yield _events(f"XIDs and SXids of {named}{more}", history.events, cited)
    elif named:
        yield Para((f"No XID of {named} is in the evidence.",))
    if history.states:
        yield Table(
            caption=f"What else is known of {named}",
            head=("Node", "What", "Evidence"),
            rows=tuple(
                ((Code(node),), (cut(text, 320),), cited(o)) for node, text, o in history.states
            ),
        )
    for node, first, last, _origin in history.reach:
        span: Cell = (
            ("a time without a year",)
            if first is None or last is None
            else (At(first), " to ", At(last))
        )
        yield Para((f"The kernel log of {node} tells of ", *span, ", and of no time before."))
    if history.elsewhere:
        yield _elsewhere(history.elsewhere, cited)
    if not (history.events or history.states or history.elsewhere):
        yield Para(("No hardware event is in the evidence.",))


def _events(caption: str, events: tuple[HardwareEvent, ...], cited: Cited) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (
            ("not known",) if one.at_ns is None else (At(one.at_ns),),
            (Code(one.node or "not known"),),
            (Code(one.gpu or "not known"),),
            ("" if one.xid is None else f"XID {one.xid}",),
            (cut(one.meaning),),
            (one.role,),
            cited(one.origin),
        )
        for one in events
    ]
    return Table(
        caption=caption,
        head=("At (UTC)", "Node", "GPU", "Code", "Meaning", "Role", "Evidence"),
        rows=tuple(rows),
        marks=tuple("bad" if one.role == "cause" else "" for one in events),
    )


def _elsewhere(groups: tuple[AlikeEvents, ...], cited: Cited) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for one in groups:
        at = one.first.at_ns
        nodes = ", ".join(one.nodes[:2])
        if len(one.nodes) > 2:
            nodes += f" and {counted(len(one.nodes) - 2, 'more node')}"
        rows.append(
            (
                ("not known",) if at is None else (At(at),),
                ("SXid" if one.first.xid is None else f"XID {one.first.xid}",),
                (cut(one.first.meaning),),
                (one.first.role,),
                (f"{one.count:,}",),
                (Code(nodes or "not known"),),
                cited(one.first.origin),
            )
        )
    return Table(
        caption="On other nodes, alike ones together",
        head=("First at (UTC)", "Code", "Meaning", "Role", "How many", "Nodes", "Evidence"),
        rows=tuple(rows),
    )


# --- Appendix -------------------------------------------------------------------------------------


def appendix(made: Postmortem) -> Iterator[Block]:
    claims = made.triage.verdict.evidence[:100]
    quotes = {quote.id: quote for quote in made.quotes}
    entries = []
    for number, claim in enumerate(claims, start=1):
        quote = quotes.get(f"e{number}")
        about: list[Inline] = [f"{'for' if claim.supports else 'against'}, weight {claim.weight:+.1f}"]  # fmt: skip
        if claim.rank is not None:
            about.append(f", rank {claim.rank}")
        if claim.at_ns is not None:
            about += [", ", At(claim.at_ns)]
        entries.append(
            Entry(
                id=f"e{number}", text=cut(claim.text, 400), about=tuple(about),
                source="no single line" if claim.origin is None else str(claim.origin),
                quote=None if quote is None or quote.text is None else cut(quote.text, 300),
            )
        )  # fmt: skip
    yield Heading("Claims of the verdict, each with its line")
    yield Entries(tuple(entries)) if entries else Para(("The verdict has no claim.",))
    left = len(made.triage.verdict.evidence) - len(claims)
    if left > 0:
        yield Para((f"{counted(left, 'further claim')}: gpufleet triage -o json.",))
    rest = [quote for quote in made.quotes if quote.id not in {entry.id for entry in entries}]
    if rest:
        yield Heading("Other places that are cited")
        yield Entries(
            tuple(
                Entry(
                    id=q.id, text="", about=(), source=str(q.origin),
                    quote=None if q.text is None else cut(q.text, 300),
                )
                for q in rest
            )
        )  # fmt: skip
    yield Heading("What was read")
    read = [file for file in made.triage.files if file.formats]
    unread = [file for file in made.triage.files if not file.formats]
    yield Para((f"{counted(len(read), 'file')} read, {len(unread):,} not understood.",))
    if unread:
        shown = ", ".join(file.path for file in unread[:12])
        yield Para((f"Not understood: {shown}{' and more' if len(unread) > 12 else ''}.",))
