"""What `gpufleet drill` shows: the incident to look at, the questions, and how it went."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gpufleet_cli.render.clean import clean, cut
from gpufleet_cli.render.details import claim_lines
from gpufleet_cli.render.layout import (
    WIDTH,
    Look,
    counted,
    date_clock,
    fit,
    gpu_hours,
    labelled,
    pad,
    rank_list,
    wrap,
)
from gpufleet_cli.render.structured import claims, time_text
from gpufleet_cli.render.terminal import SCREEN_LINES
from gpufleet_cli.render.words import action_words
from gpufleet_cli.verdict import Action, Kind, Triage

SCHEMA = "gpufleet.drill/v1"
_QUOTE = 200
_WORTH_SAYING = 0.05

KINDS: tuple[tuple[Kind, str], ...] = (
    (Kind.RANK_MISSING, "cause not told"),
    (Kind.RANK_CRASHED, "exception, exit"),
    (Kind.HARDWARE, "GPU or node"),
    (Kind.NETWORK, "adapter, link"),
    (Kind.HOST_OOM, "node's memory"),
    (Kind.CUDA_OOM, "GPU's memory"),
    (Kind.COLLECTIVE_MISMATCH, "the program"),
    (Kind.DATA_STALL, "loader, input"),
    (Kind.STORAGE_STALL, "file system"),
    (Kind.STRAGGLER, "slow, it runs"),
    (Kind.RENDEZVOUS_FAILURE, "never began"),
    (Kind.HEALTHY, "nothing is wrong"),
    (Kind.UNDECIDABLE, "cannot be told"),
)
ACTIONS: tuple[tuple[Action, str], ...] = (
    (Action.NONE, "leave it alone"),
    (Action.CORDON_AT_CHECKPOINT, "cordon now, evict at checkpoint"),
    (Action.EVICT_NOW, "evict now"),
    (Action.FIX_CODE, "fix the code"),
    (Action.RESTART_JOB, "restart the job"),
    (Action.COLLECT_MORE, "collect more"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Briefing:
    """An incident to look at, without its truth. `parts`: what lies in the folder."""

    id: str
    folder: str
    ranks: int
    nodes: int
    as_of_ns: int
    size_bytes: int
    parts: tuple[str, ...]
    triage_command: str
    score_command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TruthShown:
    """What happened. `happened`: a sentence for each fault; `told`: what the files leave."""

    cls: str
    words: str
    happened: tuple[str, ...]
    kinds: tuple[str, ...]
    ranks: tuple[int, ...]
    nodes: tuple[str, ...]
    node_is_enough: bool
    left: tuple[int, ...] | None
    decided: bool
    told: str
    side: str
    stopped: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerShown:
    """What somebody said, and how good it was: `mark` is right, lucky, close or wrong."""

    kind: str
    ranks: tuple[int, ...]
    nodes: tuple[str, ...]
    action: str | None
    mark: str
    kind_right: bool
    who_right: bool
    node_only: bool
    regret_gpu_hours: float | None
    innocent_nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceShown:
    """A line that speaks of the true fault."""

    path: str
    line: int | None
    text: str
    names_cause: bool

    @property
    def spot(self) -> str:
        return self.path if self.line is None else f"{self.path}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A drill that was answered. `own`: gpufleet's verdict; `own_right`: by the rules of the answer."""

    briefing: Briefing
    seed: int
    lost: float
    truth: TruthShown
    answer: AnswerShown
    own: Triage
    own_right: bool
    own_regret_gpu_hours: float
    places: tuple[PlaceShown, ...]
    has_dumps: bool
    replay_command: str


# --- Before the answer -----------------------------------------------------------------------------


def briefing(shown: Briefing, look: Look) -> str:
    """What job it is, where the files are, how to look at them."""
    shown = clean(shown, unicode=look.unicode)
    size = f"{counted(shown.ranks, 'rank')} on {counted(shown.nodes, 'node')}"
    lines = [
        f"drill {shown.id} · {size} · a call at {date_clock(shown.as_of_ns)} UTC",
        "",
        "  The job does not look well. Is it ill, who is it, and why?",
        *labelled("files   ", shown.folder),
        *labelled("        ", f"{_bytes(shown.size_bytes)}: {', '.join(shown.parts)}"),
        *labelled("look    ", "in another terminal, with ls, less, grep and `gpufleet xid`."),
        *labelled("        ", "This command tells you all, which spoils it:"),
        f"  {shown.triage_command}",
    ]
    return look.finish(lines)


def later(shown: Briefing, look: Look) -> str:
    """How to answer without a terminal."""
    shown = clean(shown, unicode=look.unicode)
    lines = ["  To answer later:", f"  {shown.score_command}"]
    lines += labelled("KIND    ", ", ".join(str(kind) for kind, _words in KINDS))
    lines += labelled("ACTION  ", ", ".join(str(action) for action, _words in ACTIONS))
    return look.finish(lines)


def _bytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size < 1e9 else f"{size / 1e9:,.1f} GB"


def kind_question(look: Look) -> str:
    half = -(-len(KINDS) // 2)
    cells = [
        f"{number:2} {pad(str(kind), 20)}{pad(words, 16)}"
        for number, (kind, words) in enumerate(KINDS, 1)
    ]
    rows = [" ".join(cells[i::half]) for i in range(half)]
    return look.finish(["", "What kind is it?", *(f" {row}" for row in rows)])


def action_question(look: Look) -> str:
    cells = [f"{number:2} {pad(words, 33)}" for number, (_action, words) in enumerate(ACTIONS, 1)]
    half = len(cells) // 2
    rows = [" ".join(cells[i::half]) for i in range(half)]
    return look.finish(["", "What do you do?", *(f" {row}" for row in rows)])


def class_list(words: Iterable[tuple[str, str]], look: Look) -> str:
    return look.finish(f"  {pad(name, 22)} {text}" for name, text in words)


# --- After it --------------------------------------------------------------------------------------

_STYLES = {"right": "good", "lucky": "warn", "close": "warn", "wrong": "bad"}


def render(result: Result, look: Look) -> str:
    """How it went, the truth, gpufleet's verdict, and what there was to look at; as much of it as a
    screen holds."""
    shown = clean(result, unicode=look.unicode)
    lines: list[str] = []
    for room in _ROOMS[:1] if look.verbose else _ROOMS[1:]:
        lines = list(_page(shown, look, room))
        if len(lines) <= SCREEN_LINES:
            break
    return look.finish(lines)


@dataclass(frozen=True, slots=True)
class _Room:
    """How many places and claims are shown, and how many lines of each text."""

    places: int
    claims: int
    lines: int


_ROOMS = (
    _Room(40, 40, 3),
    _Room(4, 3, 2),
    _Room(3, 2, 2),
    _Room(2, 2, 2),
    _Room(2, 1, 2),
    _Room(1, 1, 2),
    _Room(1, 1, 1),
    _Room(1, 0, 1),
)


def _page(result: Result, look: Look, room: _Room) -> Iterator[str]:
    answer, truth = result.answer, result.truth
    head, *more = _answer(result)
    word = look.paint(pad(answer.mark.upper(), 10), _STYLES[answer.mark])
    yield f"  {word}{head}"
    yield from (f"{' ' * 12}{line}" for line in more)
    yield ""
    yield from labelled("truth     ", f"{truth.cls}: {truth.words}")
    for text in (*truth.happened, truth.told):
        yield from labelled("          ", text, most=4)
    yield from _own(result, room)
    yield from _looked_at(result, look, room)
    yield ""
    again = f"  {result.replay_command}"
    yield f"{again}  # again" if len(again) + 9 <= WIDTH else again


def _answer(result: Result) -> Iterator[str]:
    answer = result.answer
    kinds = " or ".join(result.truth.kinds)
    kind = "kind right" if answer.kind_right else f"it is {kinds}"
    said = _said(answer.kind, answer.ranks, answer.nodes)
    yield from wrap(f"{said}: {kind}, {_who(result)}", WIDTH - 12)
    if answer.action is not None and answer.regret_gpu_hours is not None:
        words = action_words(Action(answer.action))[0].lower()
        yield from wrap(f"{words}: {_price(answer.regret_gpu_hours)}", WIDTH - 12)
        if answer.innocent_nodes:
            names = ", ".join(answer.innocent_nodes[:4])
            yield from wrap(f"{names} did nothing and would be taken out", WIDTH - 12)


def _who(result: Result) -> str:
    answer, truth = result.answer, result.truth
    is_open = answer.kind == Kind.UNDECIDABLE
    if answer.node_only:
        return f"the right node, of which the files name rank {rank_list(truth.ranks)}"
    if is_open and truth.decided and not answer.who_right:
        return "and the files do decide it"
    if not answer.who_right:
        return "who wrong"
    if answer.mark == "lucky":
        return "who right, and a guess: the files leave more"
    if is_open and not (answer.ranks or answer.nodes):
        return "and you named no set"
    return "who right"


def _price(regret: float) -> str:
    if regret < _WORTH_SAYING:
        return "costs no more than knowing the truth"
    return f"costs {gpu_hours(regret)} more than knowing the truth"


def _said(kind: str, ranks: Sequence[int], nodes: Sequence[str]) -> str:
    names = [f"{'rank' if len(ranks) == 1 else 'ranks'} {rank_list(ranks, 40)}"] if ranks else []
    names += [", ".join(nodes[:4])] if nodes else []
    nobody = "" if kind in (Kind.HEALTHY, Kind.UNDECIDABLE) else "nobody"
    return ", ".join(part for part in (kind, " on ".join(names) or nobody) if part)


def _own(result: Result, room: _Room) -> Iterator[str]:
    verdict, advice = result.own.verdict, result.own.recommendation
    head = f"{action_words(advice.action)[0]} {', '.join(advice.nodes[:3])}".strip()
    right = "right" if result.own_right else "not right"
    yield from labelled(
        "gpufleet  ", f"{head} · {verdict.kind}, confidence {verdict.confidence:.2f}: {right}"
    )
    yield from labelled("          ", verdict.summary, most=2)
    if result.own_regret_gpu_hours >= _WORTH_SAYING:
        yield from labelled("          ", _price(result.own_regret_gpu_hours))


def _looked_at(result: Result, look: Look, room: _Room) -> Iterator[str]:
    yield from ("", look.paint("What there was to look at", "strong"))
    if not result.places:
        yield f"  No line speaks of it{'; the dumps may:' if result.has_dumps else ''}"
        if result.has_dumps:
            yield f"  gpufleet dumps {result.briefing.folder}"
    for place in result.places[: room.places]:
        yield f"  {fit(place.spot, WIDTH - 2, keep_end=True)}"
        weak = "" if place.names_cause else "(where, not why) "
        yield from labelled("  ", weak + cut(place.text, _QUOTE), most=room.lines)
    yield from _more(len(result.places) - room.places, "line")
    apart = {claim.text: claim for claim in reversed(result.own.verdict.evidence)}
    claims = list(apart.values())[::-1][: room.claims]
    if claims:
        yield look.paint("What gpufleet stands on", "strong")
        yield from claim_lines(claims)


def _more(left: int, word: str) -> Iterator[str]:
    if left > 0:
        yield f"  and {counted(left, 'more ' + word)} (-v)"


# --- For scripts -----------------------------------------------------------------------------------


def briefing_json(shown: Briefing, *, with_truth: dict[str, Any] | None = None) -> str:
    """One line."""
    known = clean(shown)
    return json.dumps(_briefing(known) | (with_truth or {}), allow_nan=False) + "\n"


def truth_dict(truth: TruthShown, seed: int, lost: float) -> dict[str, Any]:
    """The truth, with what makes it again."""
    shown = clean(truth)
    return {
        "class": shown.cls,
        "seed": seed,
        "lost": lost,
        "truth": {
            "kinds": list(shown.kinds),
            "ranks": list(shown.ranks),
            "nodes": list(shown.nodes),
            "node_is_enough": shown.node_is_enough,
            "decided": shown.decided,
            "left": None if shown.left is None else list(shown.left),
            "side": shown.side,
            "stopped": shown.stopped,
            "summary": " ".join(shown.happened) or shown.words,
        },
    }


def render_json(result: Result, _look: Look) -> str:
    """The same as the page, whole."""
    shown = clean(result)
    answer, own = shown.answer, shown.own
    document = {
        **_briefing(shown.briefing),
        **truth_dict(result.truth, shown.seed, shown.lost),
        "answer": {
            "kind": answer.kind,
            "ranks": list(answer.ranks),
            "nodes": list(answer.nodes),
            "action": answer.action,
            "mark": answer.mark,
            "right": answer.mark in ("right", "lucky"),
            "kind_right": answer.kind_right,
            "who_right": answer.who_right,
            "innocent_nodes": list(answer.innocent_nodes),
            "regret_gpu_hours": _rounded(answer.regret_gpu_hours),
        },
        "gpufleet": {
            "kind": own.verdict.kind,
            "ranks": [c.rank for c in own.verdict.culprits if c.rank is not None],
            "nodes": sorted({c.node for c in own.verdict.culprits if c.node is not None}),
            "confidence": round(own.verdict.confidence, 3),
            "summary": own.verdict.summary,
            "action": own.recommendation.action,
            "right": shown.own_right,
            "regret_gpu_hours": _rounded(shown.own_regret_gpu_hours),
            "evidence": claims(own.verdict.evidence),
        },
        "clues": [
            {
                "source": place.spot,
                "text": cut(place.text),
                "names_cause": place.names_cause,
            }
            for place in shown.places
        ],
        "replay": shown.replay_command,
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _briefing(shown: Briefing) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "id": shown.id,
        "folder": shown.folder,
        "as_of": time_text(shown.as_of_ns),
        "world_size": shown.ranks,
        "nodes": shown.nodes,
        "triage": shown.triage_command,
        "score": shown.score_command,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
