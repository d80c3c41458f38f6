"""One node in one screen, and all nodes a line each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpufleet_cli.node_card import (
    HeldGang,
    Missing,
    NodeCard,
    NodeCondition,
    NodeCordon,
    PastIncident,
    RepeatTest,
    XidSeen,
)
from gpufleet_cli.render.clean import clean
from gpufleet_cli.render.drain_page import spares_words
from gpufleet_cli.render.layout import (
    WIDTH,
    Look,
    clock,
    counted,
    date_clock,
    duration,
    fit,
    labelled,
    pad,
)

_DAY_NS = 86_400_000_000_000
MOST_PODS = 4
STATE_WIDTH = 27  # `Ready, 1 GPU lost, cordoned`
MOST_XIDS = 6
MOST_INCIDENTS = 3
FEW = 3
FEW_XIDS = 2  # of a node in the list of all: with dates they fill its line
SCREEN = 22  # of 24 lines: the prompt and what stands on standard error have theirs
MORE = "More: -v"


# --- One node -------------------------------------------------------------------------------------


def node_text(card: NodeCard, look: Look) -> str:
    """The card at 80 columns; where it is longer than a screen and no -v asks for all, the short form."""
    card = clean(card, unicode=look.unicode)
    lines = _page(card, look, is_short=False)
    if len(lines) > SCREEN and not look.verbose:
        lines = _page(card, look, is_short=True)
    return look.finish(lines)


def health_text(card: NodeCard, look: Look) -> str:
    """What a person wants to know of a node before it is given work again."""
    card = clean(card, unicode=look.unicode)
    lines = [*_head(card, look), *_cordon(card, look), *_gangs(card), *_gpus(card, look)]
    lines += [*_lease(card, look), *_conditions(card, look, is_short=True)]
    lines += [*_taints_in_a_line(card), *_xids(card, FEW)]
    return look.finish([*lines, *_not_seen(card.missing)])


def _page(card: NodeCard, look: Look, *, is_short: bool) -> list[str]:
    lines = [*_head(card, look), ""]
    lines += _gangs(card)
    for one in card.spares or ():
        lines += labelled("spares    ", spares_words(one.spares))
    lines += _gpus(card, look)
    lines += _lease(card, look)
    lines += _conditions(card, look, is_short=is_short)
    lines += _taints_in_a_line(card) if is_short else _taints(card)
    lines += _cordon(card, look)
    lines += _xids(card, FEW if is_short else MOST_XIDS)
    lines += _past(card, 1 if is_short else MOST_INCIDENTS)
    lines += _repeat(card, look)
    lines += [] if is_short else _machine(card)
    for note in card.notes[: 2 if is_short else None]:
        lines += labelled("note      ", note, most=1 if is_short else 2)
    missing = list(_not_seen(card.missing))
    return [*lines, *(missing[:1] if is_short else missing), *([MORE] if is_short else [])]


def _head(card: NodeCard, look: Look) -> list[str]:
    where = f" in {card.context}" if card.context else ""
    state = state_words(card)
    style = "bad" if card.is_ill else "warn" if card.cordon else "good"
    head = f"{card.name}{where} · "
    line = fit(head, WIDTH - len(state)) + look.paint(state, style)
    return [line]


def state_words(card: NodeCard) -> str:
    """`NotReady, cordoned`, `silent`, `Ready`."""
    words = []
    if card.ready is not None:
        words.append("Ready" if card.ready == "True" else "NotReady")
    if card.is_silent and card.ready == "True":
        words.append("silent")
    if card.gpus.lost:
        words.append(f"{counted(card.gpus.lost, 'GPU')} lost")
    others = len([one for one in card.bad if one.kind != "Ready"])
    if others and not card.gpus.lost:
        words.append("ill")
    if card.cordon is not None:
        words.append("cordoned")
    return ", ".join(words) or "not known"


def _gangs(card: NodeCard) -> Iterator[str]:
    if not card.gangs:
        told = "none" if card.other_pods is not None else "not known"
        yield from labelled("gang      ", told)
    for gang in card.gangs:
        yield from _gang(gang)
    if card.other_pods:
        yield from labelled("          ", f"and {counted(card.other_pods, 'pod')} without a GPU")


def _gang(gang: HeldGang) -> Iterator[str]:
    here = counted(len(gang.pods), "pod")
    of = f" of {gang.size:,}" if gang.size else ""
    over = " (over: holds it no more)" if gang.is_over else ""
    text = f"{gang.name} in {gang.namespace} ({gang.kind}): {here}{of}, {counted(gang.gpus, 'GPU')}"
    yield from labelled("gang      ", text + over)
    for pod in gang.pods[:MOST_PODS]:
        ranks = ""
        if pod.ranks is not None:
            first, last = pod.ranks
            ranks = f"rank {first}" if first == last else f"ranks {first}-{last}"
        tail = f"  {pod.phase}  {ranks}".rstrip()
        yield "            " + fit(pod.name, WIDTH - 12 - len(tail), keep_end=True) + tail
    if len(gang.pods) > MOST_PODS:
        yield f"            and {counted(len(gang.pods) - MOST_PODS, 'more pod')}"
    if gang.ranks_by is not None:
        yield from labelled("            ", f"ranks by {gang.ranks_by}", indent=0)
    elif not gang.is_over:
        group = "-l kueue.x-k8s.io/pod-group-name=" if gang.kind == "PodGroup" else ""
        told = f"ranks: only its logs tell: gpufleet ranks {group}{gang.name} -n {gang.namespace}"
        yield from labelled("            ", told, indent=0)


def _gpus(card: NodeCard, look: Look) -> Iterator[str]:
    gpus = card.gpus
    if gpus.capacity is None:
        yield from labelled("GPUs      ", "none that the node tells of")
        return
    text = f"{gpus.capacity} x {gpus.product}" if gpus.product else f"{gpus.capacity}"
    if gpus.allocatable is not None:
        text += f", {gpus.allocatable} allocatable"
    text += f", {gpus.held} held by pods"
    if gpus.driver:
        text += f"; driver {gpus.driver}"
    yield from labelled("GPUs      ", text)
    if gpus.lost:
        told = f"{counted(gpus.lost, 'GPU')} LOST: the device plugin does not offer it any more"
        yield from _painted("          ", told, look, "bad")


def _painted(label: str, text: str, look: Look, style: str) -> Iterator[str]:
    for line in labelled(label, text):
        yield look.paint(line, style)


def _lease(card: NodeCard, look: Look) -> Iterator[str]:
    if card.renewed_ns is None or card.lease_age_s is None:
        return
    age = duration(card.lease_age_s)
    at = _when(card.renewed_ns, card.read_at_ns)
    if card.is_silent:
        told = f"last renewed {at}, {age} ago: node or network dead since then"
        yield from _painted("lease     ", told, look, "bad")
    else:
        yield from labelled("lease     ", f"renewed {age} ago: its kubelet is alive")


def _when(ns: int | None, now_ns: int) -> str:
    """A clock time today, with the date before."""
    if ns is None:
        return "?"
    return clock(ns) if abs(now_ns - ns) < _DAY_NS / 2 else date_clock(ns)


def _conditions(card: NodeCard, look: Look, *, is_short: bool) -> Iterator[str]:
    told = [one for one in card.conditions if one.mark != "fine"]
    hidden = told[FEW:] if is_short else []
    told = told[: len(told) - len(hidden)]
    fine = [one.kind for one in card.conditions if one.mark == "fine"]
    for one in told:
        yield from _condition(one, card.read_at_ns, look, is_short=is_short)
    if hidden:
        yield from labelled("          ", f"and {counted(len(hidden), 'more condition')}")
    if fine and not is_short:
        shown = ", ".join(fine) if look.verbose or not told else counted(len(fine), "other")
        yield from labelled("fine      ", shown, most=None if look.verbose else 2)


def _condition(one: NodeCondition, now_ns: int, look: Look, *, is_short: bool) -> Iterator[str]:
    is_bad = one.mark == "bad"
    since = f" since {_when(one.since_ns, now_ns)}" if one.since_ns is not None else ""
    label = "ill       " if is_bad else "3rd party "
    reason = f" ({one.reason})" if one.reason else ""
    head = f"{one.kind}={one.status}{since}{reason}"
    yield from _painted(label, head, look, "bad" if is_bad else "warn")
    if is_bad:
        told = f"{one.words} [{one.source}]" if one.words and one.source else one.words or ""
    else:
        told = "no manual at hand says what it means: shown, not scored"
    if told:
        yield from labelled("            ", told, indent=0, most=1 if is_short else 2)
    if one.message and not is_short:
        yield from labelled("            ", f"says: {one.message}", indent=0, most=2)
    if one.repair_at_ns is not None:
        left_s = (one.repair_at_ns - now_ns) / 1e9
        when = f"in {duration(left_s)}" if left_s > 0 else "any time now"
        told = f"auto repair may reboot or replace it {when}: collect the evidence first"
        yield from _painted("          ", told, look, "warn")


def _taints(card: NodeCard) -> Iterator[str]:
    label = "taints    "
    for taint in card.taints:
        text = taint.shown if taint.words is None else f"{taint.shown} ({taint.words})"
        yield from labelled(label, text, most=2)
        label = "          "


def _taints_in_a_line(card: NodeCard) -> Iterator[str]:
    """Their names alone: what they mean stands with the conditions and the cordon."""
    told = ", ".join(one.shown.removeprefix("node.kubernetes.io/") for one in card.taints)
    if told:
        yield from labelled("taints    ", told, most=1)


def _cordon(card: NodeCard, look: Look) -> Iterator[str]:
    if card.cordon is None:
        return
    yield from _painted("cordoned  ", cordon_words(card.cordon, card.read_at_ns), look, "warn")


def cordon_words(cordon: NodeCordon, now_ns: int) -> str:
    """`by anna at 03:50:11: XID 79 (incident ..., by gpufleet's annotations)`."""
    by = f"by {cordon.by}" if cordon.by else "by whom is not told"
    at = f" at {_when(cordon.at_ns, now_ns)}" if cordon.at_ns is not None else ""
    reason = f": {cordon.reason}" if cordon.reason else ""
    details = [f"incident {cordon.incident}"] if cordon.incident else []
    details += [f"told by {cordon.told_by}"] if cordon.told_by else []
    return f"{by}{at}{reason}" + (f" ({', '.join(details)})" if details else "")


def _xids(card: NodeCard, most: int) -> Iterator[str]:
    if card.xids is None:
        return
    if not card.xids:
        yield from labelled("XIDs      ", "none in the metrics of 30 days")
        return
    newest = sorted(card.xids, key=lambda one: -one.at_ns)
    label = "XIDs      "
    for one in newest[:most]:
        pod = f", {one.namespace}/{one.pod}" if one.pod else ""
        yield from labelled(
            label, f"{date_clock(one.at_ns)} XID {one.xid}{_of_gpu(one)}{pod}", most=1
        )
        label = "          "
    if len(newest) > most:
        yield from labelled(label, f"and {len(newest) - most} more in 30 days")


def _past(card: NodeCard, most: int) -> Iterator[str]:
    """What the history has that names the node."""
    label = "past      "
    for one in (card.incidents or ())[:most]:
        yield from labelled(label, _incident(one), most=1)
        label = "          "
    more = len(card.incidents or ()) - most
    if more > 0:
        yield from labelled(label, f"and {counted(more, 'more incident')} in the history")


def _incident(one: PastIncident) -> str:
    at = f"{date_clock(one.at_ns)} " if one.at_ns is not None else ""
    codes = f" (XID {', '.join(map(str, one.xids))})" if one.xids else ""
    job = f", {one.namespace}/{one.job}" if one.namespace and one.job else f", {one.job}"
    return f"{at}{one.kind}{codes}: {one.action}{job if one.job else ''}"


def _repeat(card: NodeCard, look: Look) -> Iterator[str]:
    test = card.repeat
    if test is None:
        return
    if test.is_flagged:
        yield from _painted("offender  ", repeat_words(test), look, "bad")
    else:
        yield from labelled("offender? ", repeat_words(test))


_RATE_FROM = {
    "flag": "by --node-failures-per-day",
    "file": "by the settings file",
    "default": "a default",
}


def repeat_words(test: RepeatTest) -> str:
    """How many faults, what chance alone would give, and at which rate that was reckoned."""
    if test.innocents is None:
        told = f"chance {test.chance:.2g} for a healthy node"
    else:
        told = f"by chance {test.innocents:.2g} of {counted(test.nodes or 0, 'healthy node')}"
    head = counted(test.faults, "node fault")
    rate = f"at {test.rate.a_node_day:g} a node-day, {_RATE_FROM[test.rate.source]}"
    verdict = "" if test.is_flagged else ", no more than chance gives"
    return f"{head} in {test.days} days{verdict}; {told} ({rate})"


def _machine(card: NodeCard) -> Iterator[str]:
    parts = []
    if card.created_ns is not None:
        parts.append(f"registered {date_clock(card.created_ns)}")
    if card.boot_id is not None:
        parts.append(f"boot {card.boot_id}")
    if card.provider_id is not None:
        parts.append(card.provider_id)
    if card.place is not None:
        parts.append(card.place)
    if parts:
        yield from labelled("machine   ", ", ".join(parts), most=2)


def _not_seen(missing: Sequence[Missing]) -> Iterator[str]:
    told = "; ".join(f"{one.what} ({one.why})" for one in missing)
    if told:
        yield from labelled("Not seen: ", told, most=3)


# --- All nodes ------------------------------------------------------------------------------------


def nodes_text(cards: Sequence[NodeCard], missing: Sequence[Missing], look: Look) -> str:
    """A line for each node with GPUs or with an illness, worst first."""
    cards = clean(tuple(cards), unicode=look.unicode)
    shown = [one for one in cards if look.verbose or _is_worth_a_line(one)]
    width = min(max((len(one.name) for one in shown), default=4), 28)
    lines = [f"{pad('NODE', width)}  GPUS  {pad('STATE', STATE_WIDTH)}  GANG"]
    for one in shown:
        lines.append(_line(one, width, look))
        why = _why(one)
        if why:
            lines.append(fit(f"    {why}", WIDTH))
        if one.xids:
            lines.append(fit(f"    {_xids_in_a_line(one.xids)}", WIDTH))
    hidden = len(cards) - len(shown)
    if hidden:
        lines += ["", f"{counted(hidden, 'node')} without GPUs not shown; -v shows all"]
    lines += _not_seen(missing)
    return look.finish(lines)


def _is_worth_a_line(card: NodeCard) -> bool:
    return bool(card.gpus.capacity or card.is_ill or card.cordon or card.xids)


def _xids_in_a_line(xids: Sequence[XidSeen]) -> str:
    """`XID 79 GPU 0 2026-11-27 03:41:07, XID 48 GPU 0 ... and 2 more in 30 days`, the newest first."""
    newest = sorted(xids, key=lambda one: -one.at_ns)
    shown = [f"XID {one.xid}{_of_gpu(one)} {date_clock(one.at_ns)}" for one in newest[:FEW_XIDS]]
    more = len(newest) - len(shown)
    return ", ".join(shown) + (f" and {more:,} more in 30 days" if more else "")


def _of_gpu(one: XidSeen) -> str:
    return f" GPU {one.gpu_index}" if one.gpu_index is not None else ""


def _line(card: NodeCard, width: int, look: Look) -> str:
    gpus = card.gpus
    count = "-" if gpus.capacity is None else f"{gpus.allocatable}/{gpus.capacity}"
    style = "bad" if card.is_ill else "warn" if card.cordon else "plain"
    held = [gang for gang in card.gangs if not gang.is_over]
    gang = ", ".join(f"{one.namespace}/{one.name}" for one in held) or "-"
    state = look.paint(pad(state_words(card), STATE_WIDTH), style)
    left = WIDTH - width - 10 - STATE_WIDTH
    return f"{pad(card.name, width)}  {pad(count, 4)}  {state}  {fit(gang, left)}"


def _why(card: NodeCard) -> str:
    """The worst thing of a node in a few words."""
    if card.is_silent and card.lease_age_s is not None:
        return f"silent for {duration(card.lease_age_s)}"
    for one in card.bad:
        since = f" since {_when(one.since_ns, card.read_at_ns)}" if one.since_ns else ""
        return f"{one.kind}={one.status}{since} {one.words or one.reason}"
    if card.cordon is not None:
        return cordon_words(card.cordon, card.read_at_ns)
    return ""
