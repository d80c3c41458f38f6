"""Would a drain kill a gang: a few lines for each node, and JSON for scripts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from gpufleet_cli.drain_card import DrainCard, GangAtStake, NotAtStake
from gpufleet_cli.node_card import GangSpares, Spares
from gpufleet_cli.render.clean import clean
from gpufleet_cli.render.layout import Look, counted, duration, gpu_hours, labelled
from gpufleet_cli.timestamps import NS_PER_S, format_ns

Json = dict[str, object]
_ANSWERS = {True: ("SAFE", "good"), False: ("NOT SAFE", "bad"), None: ("NOT KNOWN", "warn")}


def drain_text(cards: Iterable[DrainCard], look: Look) -> str:
    lines: list[str] = []
    for card in clean(tuple(cards), unicode=look.unicode):
        lines += _page(card, look)
    return look.finish(lines)


def _page(card: DrainCard, look: Look) -> Iterator[str]:
    answer, style = _ANSWERS[card.safe]
    first, *rest = labelled(f"{card.node}  ", f"{answer}: {card.why}", indent=0)
    yield look.paint(first, style)
    yield from rest
    for gang in card.gangs:
        yield from _gang(gang, card.read_at_ns)
    for other in card.others:
        yield from labelled("", _other(other))
    for one in card.spares or ():
        yield from labelled("spares    ", spares_words(one.spares))
    if card.gangs:
        yield from labelled(
            "instead   ", f"gpufleet cordon {card.node} --reason WHY: stops nothing"
        )
    for gap in card.missing[:3]:
        yield from labelled("not seen  ", f"{gap.what}: {gap.why}")


def _gang(gang: GangAtStake, now_ns: int) -> Iterator[str]:
    here = counted(len(gang.pods), "pod")
    of = f" of {gang.size:,}" if gang.size else ""
    age = "" if gang.since_ns is None else f" for {duration((now_ns - gang.since_ns) / NS_PER_S)}"
    text = f"{gang.name} in {gang.namespace} ({gang.kind}): {here}{of} here, {counted(gang.gpus, 'GPU')}"
    yield from labelled("gang      ", f"{text}, {gang.state}{age}")
    yield from labelled("it costs  ", price_words(gang))


def price_words(gang: GangAtStake) -> str:
    """`640 GPU-h: 512 GPU-h to recompute (...), 128 GPU-h to restart (...)`."""
    price = gang.price
    restart = (
        f"{gpu_hours(price.restart_gpu_hours)} to restart"
        f" ({duration(price.restart_s)}, {price.restart_by})"
    )
    if price.recompute_gpu_hours is None or price.since_checkpoint_s is None:
        return (
            f"at least {restart}; the work since its last checkpoint is {price.since_checkpoint_by}"
        )
    recompute = f"{gpu_hours(price.recompute_gpu_hours)} to recompute"
    since = f"{duration(price.since_checkpoint_s)}, {price.since_checkpoint_by}"
    return f"{gpu_hours(price.gpu_hours)}: {recompute} ({since}), {restart}"


def _other(one: NotAtStake) -> str:
    gpus = f", {counted(one.gpus, 'GPU')}" if one.gpus else ""
    return f"{one.name} in {one.namespace} ({one.kind}): {counted(len(one.pods), 'pod')}{gpus}: {one.why}"


def spares_words(spares: Spares) -> str:
    """One line: `a restart places: ...`."""
    head = {True: "a restart places", False: "a restart will not place", None: "not known"}
    few = f" ({', '.join(spares.nodes)})" if spares.nodes else ""
    return f"{head[spares.places]}: {spares.why}{few}"


# --- JSON -----------------------------------------------------------------------------------------


def drain_json(cards: Sequence[DrainCard]) -> str:
    document = {"nodes": [_document(card) for card in clean(tuple(cards))]}
    return json.dumps(document, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def _document(card: DrainCard) -> Json:
    return {
        "node": card.node,
        "safe": card.safe,
        "why": card.why,
        "read_at": format_ns(card.read_at_ns),
        "gangs": [_gang_document(one) for one in card.gangs],
        "others": [_other_document(one) for one in card.others],
        **({} if card.spares is None else {"spares": [spares_of(one) for one in card.spares]}),
        "missing": [{"what": one.what, "why": one.why} for one in card.missing],
    }


def _gang_document(gang: GangAtStake) -> Json:
    price = gang.price
    return {
        "job": gang.name,
        "namespace": gang.namespace,
        "kind": gang.kind,
        "size": gang.size,
        "state": gang.state,
        "since": None if gang.since_ns is None else format_ns(gang.since_ns),
        "pods": list(gang.pods),
        "gpus": gang.gpus,
        "gpus_here": gang.gpus_here,
        "would_lose_gpu_hours": _hours(price.gpu_hours),
        "recompute_gpu_hours": _hours(price.recompute_gpu_hours),
        "restart_gpu_hours": _hours(price.restart_gpu_hours),
        "since_checkpoint_seconds": None
        if price.since_checkpoint_s is None
        else round(price.since_checkpoint_s, 3),
        "since_checkpoint_by": price.since_checkpoint_by,
        "restart_seconds": round(price.restart_s, 3),
        "restart_by": price.restart_by,
    }


def _hours(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def _other_document(one: NotAtStake) -> Json:
    return {
        "job": one.name,
        "namespace": one.namespace,
        "kind": one.kind,
        "pods": list(one.pods),
        "gpus": one.gpus,
        "why": one.why,
    }


def spares_of(one: GangSpares) -> Json:
    return {
        "job": one.name,
        "namespace": one.namespace,
        "kind": one.kind,
        **spares_document(one.spares),
    }


def spares_document(spares: Spares) -> Json:
    return {
        "places": spares.places,
        "why": spares.why,
        "cause": spares.cause,
        "nodes": list(spares.nodes),
        "spare_nodes": spares.spare_nodes,
    }
