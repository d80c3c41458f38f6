"""The first screen of `triage`: who, what to do, and the arithmetic, in 80 columns and 23 lines.

A person who reads only this much must do the right thing, so the verdict stands on top, colour
goes to what must be acted on, and commands are never wrapped: they are there to be pasted.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpufleet_cli.facts import Gap
from gpufleet_cli.render.clean import clean
from gpufleet_cli.render.details import details
from gpufleet_cli.render.drain_page import spares_words
from gpufleet_cli.render.layout import (
    WIDTH,
    Look,
    cell_width,
    clock,
    count,
    counted,
    date_clock,
    duration,
    figure,
    fit,
    gpu_hours,
    labelled,
    pad,
    rank_list,
    row,
    wrap,
)
from gpufleet_cli.render.silence import silence_groups
from gpufleet_cli.render.words import action_words, gpu_words, not_seen, question_words, state_words
from gpufleet_cli.verdict import Command, Culprit, Kind, Question, Triage

SCREEN_LINES = 23  # of 24: the prompt needs the last one
_INDENT = 2
_BAR = 28
_WORTH_SAYING = 0.1


def render(triage: Triage, look: Look) -> str:
    """The first screen; with `look.verbose` the evidence behind it as well."""
    shown = clean(triage, unicode=look.unicode)
    lines = _screen(shown, look)
    if look.verbose:
        lines += details(shown, look)
    return look.finish(lines)


def _screen(triage: Triage, look: Look) -> list[str]:
    """All sections; when they do not fit a screen, the explanations are shortened."""
    for generous, told in ((3, True), (2, True), (1, True), (1, False)):
        lines = list(_sections(triage, look, most=generous, told=told))
        if len(lines) <= SCREEN_LINES:
            break
    return lines


def _sections(triage: Triage, look: Look, *, most: int, told: bool) -> Iterator[str]:
    yield headline(triage)
    if len(triage.job.attempts) > 1:
        yield fit(attempts_line(triage), WIDTH)
    if triage.job.groups:
        yield fit(groups_line(triage), WIDTH)
    yield ""
    yield _action_line(triage, look)
    yield from (
        f"  {line}" for line in wrap(triage.verdict.summary, WIDTH - _INDENT, most=most + 1)
    )
    yield from _spaced(list(_who(triage, look, most=most)))
    restart = _restart(triage) if told else []
    yield from _spaced([*_questions(triage, most=most), *_lost(triage), *restart])
    yield from _spaced([*_commands(triage), *_footer(triage)])


def _spaced(lines: list[str]) -> list[str]:
    return ["", *lines] if lines else []


def headline(triage: Triage) -> str:
    """What was looked at: job, size, state and time, shortened until it fits."""
    job = triage.job
    name = job.name or triage.target_name or "this job"
    space = job.namespace or triage.target_namespace
    size = "" if job.world_size is None else counted(job.world_size, "rank")
    if size and job.nodes is not None:
        size += f" on {counted(job.nodes, 'node')}"
    state = state_words(job.state)
    when, word = (job.ended_ns, " ") if job.ended_ns is not None else (triage.as_of_ns, ", as of ")
    times = [] if when is None else [f"{word}{date_clock(when)} UTC", f"{word}{clock(when)} UTC"]
    for tail in [*times, ""]:
        rest = [part for part in (size, state + tail) if part]
        text = " · ".join([f"{name} in {space}" if space else name, *rest])
        if cell_width(text) <= WIDTH:
            return text
    return fit(" · ".join([fit(name, 30, keep_end=True), *rest]), WIDTH)


def attempts_line(triage: Triage) -> str:
    """`attempt 3 failed 03:51:19; attempt 4 has run 4m`: which one this is, and what came after."""
    job = triage.job
    own = next((one for one in job.attempts if one.number == job.attempt), job.attempts[-1])
    newest = job.attempts[-1]
    text = f"attempt {own.number} {own.state}"
    if own.ended_ns is not None:
        text += f" {clock(own.ended_ns)}"
    if newest.number == own.number:
        return f"{text}, the newest of {len(job.attempts)}"
    text += f"; attempt {newest.number} "
    if newest.state == "running" and newest.started_ns is not None and triage.as_of_ns is not None:
        return f"{text}has run {max(0, triage.as_of_ns - newest.started_ns) // 60_000_000_000}m"
    return text + newest.state


def groups_line(triage: Triage) -> str:
    """`group 1 of 4; ill too: 2 (failed), 3 (stalled): --group N`: nothing of the others is told here."""
    job = triage.job
    others = [(number, state) for number, state in job.groups if number != job.group]
    ill = [
        f"{number} ({state})"
        for number, state in others
        if state in ("failed", "pending", "stalled")
    ]
    head = f"group {job.group} of {len(job.groups)}"
    if not ill:
        seen = sum(state != "not looked at" for _, state in others)
        if seen == len(others):
            return f"{head}; no sign that another is ill"
        return f"{head}; {seen:,} of the {len(others):,} others were looked at: none is ill"
    more = f" and {len(ill) - 2:,} more" if len(ill) > 2 else ""
    return f"{head}; {len(ill):,} ill too: {', '.join(ill[:2])}{more}: --group N"


def _action_line(triage: Triage, look: Look) -> str:
    action = triage.recommendation.action
    words, style = action_words(action)
    nodes = triage.recommendation.nodes
    right = f"{triage.verdict.kind} · confidence {triage.verdict.confidence:.2f}"
    room = WIDTH - _INDENT - len(words) - cell_width(right) - 4
    named = fit(_named_nodes(nodes, room), room, keep_end=len(nodes) == 1)
    blanks = " " * (WIDTH - _INDENT - len(words) - 2 - cell_width(named) - cell_width(right))
    return f"  {look.paint(words, style)}  {look.paint(named, 'strong')}{blanks}{right}"


def _named_nodes(nodes: tuple[str, ...], room: int) -> str:
    for shown in range(len(nodes), 0, -1):
        more = len(nodes) - shown
        text = ", ".join(nodes[:shown]) + (f" and {more} more" if more else "")
        if cell_width(text) <= room:
            return text
    return nodes[0] if len(nodes) == 1 else counted(len(nodes), "node") if nodes else ""


# --- Who ------------------------------------------------------------------------------------------


def _who(triage: Triage, look: Look, *, most: int) -> Iterator[str]:
    culprits = triage.verdict.culprits
    ranks = [one.rank for one in culprits if one.rank is not None]
    if len(ranks) == len(culprits) > 1 and not any(one.pod or one.node for one in culprits):
        yield f"  ranks {rank_list(ranks, WIDTH - 8)}"
        culprits = ()
    for culprit in culprits[:most]:
        yield from _culprit_lines(culprit)
    left = len(culprits) - most
    if left > 0:
        ranks = [one.rank for one in culprits[most:] if one.rank is not None]
        named = f": ranks {rank_list(ranks, 44)}" if ranks else ""
        yield f"  and {counted(left, 'more culprit')}{named}"
    if triage.verdict.kind is Kind.UNDECIDABLE:
        yield from _left_open(triage, most=most)
    else:
        yield from _runner_up(triage, most=most)
    yield from _silence(triage, look, most=most)


def _culprit_lines(culprit: Culprit) -> list[str]:
    rank = "rank not known" if culprit.rank is None else f"rank {culprit.rank}"
    return row([rank, culprit.pod or "", culprit.node or "", gpu_words(culprit)])


def _runner_up(triage: Triage, *, most: int) -> Iterator[str]:
    """The next explanation, when it is too likely to be left to `-v`."""
    for other in triage.verdict.alternatives[:1]:
        if other.confidence >= _WORTH_SAYING:
            who = f", rank{'s' * (len(other.ranks) > 1)} {rank_list(other.ranks, 30)}"
            text = f"{other.kind}{who if other.ranks else ''} (confidence {other.confidence:.2f})"
            yield from labelled("or else   ", text, most=most)


def _left_open(triage: Triage, *, most: int) -> Iterator[str]:
    verdict = triage.verdict
    if verdict.alternatives:
        left = verdict.alternatives[0]
        names = [f"rank{'' if len(left.ranks) == 1 else 's'} {rank_list(left.ranks, 40)}"]
        names += [f"on {_named_nodes(left.nodes, 40)}"] if left.nodes else []
        text = " ".join(names) if left.ranks else _named_nodes(left.nodes, 60)
        if text:
            yield from labelled("could be  ", text, most=most)
    if verdict.ruled_out:
        yield from labelled("ruled out ", "; ".join(verdict.ruled_out), most=most)
    if verdict.would_settle:
        yield from labelled("to settle ", verdict.would_settle, most=most)


def _silence(triage: Triage, look: Look, *, most: int) -> Iterator[str]:
    groups = silence_groups(triage.ranks, most=most + 1)
    if not any(group.quiet_s is not None for group in groups):
        return
    width = max(cell_width(group.label) for group in groups)
    said = ""
    for at, group in enumerate(groups):
        label = "silence   " if at == 0 else "          "
        start = f"  {label}{pad(group.label, width)} "
        if group.quiet_s is None:
            yield start + "not known: no dated line of them"
            continue
        bar = "█" * round(_BAR * group.share) or "▏"
        loud = "" if group.accused else _loudest(triage, group.ranks)
        tail = f" {duration(group.quiet_s)}"
        beside = f" ({loud})" if loud else ""
        if cell_width(f"{start}{bar}{tail}{beside}") > WIDTH:
            beside, said = "", loud
        yield f"{start}{look.paint(bar, 'bad' if group.accused else 'plain')}{tail}{beside}"
    if said:
        yield from labelled(" " * 10, said, most=most)


def _loudest(triage: Triage, ranks: tuple[int, ...]) -> str:
    for witness in triage.verdict.loudest[:1]:
        if witness.rank in ranks:
            lines = counted(witness.error_lines, "error line")
            return f"loudest: rank {witness.rank}, {lines}, {witness.why_innocent}"
    return ""


# --- What it costs --------------------------------------------------------------------------------


def _questions(triage: Triage, *, most: int) -> Iterator[str]:
    questions = triage.recommendation.questions
    costs = [_cost(question) for question in questions]
    wide = max((cell_width(cost) for cost in costs), default=0)
    answers = max((len(question.answer) for question in questions), default=0)
    for number, (question, cost) in enumerate(zip(questions, costs, strict=True), start=1):
        start = (
            f"  {number} {pad(question_words(question.id), 22)}  {pad(question.answer, answers)}  "
        )
        room = WIDTH - cell_width(start) - wide - 2
        lines = wrap(question.why, room, most=most) or [""]
        yield f"{start}{pad(lines[0], room)}  {pad(cost, wide, right=True)}"
        yield from (" " * cell_width(start) + line for line in lines[1:])


def _cost(question: Question) -> str:
    if question.gpu_hours_per_hour is not None:
        return gpu_hours(question.gpu_hours_per_hour, per_hour=True)
    return gpu_hours(question.gpu_hours)


def _lost(triage: Triage) -> list[str]:
    advice = triage.recommendation
    if advice.lost_gpu_hours is None:
        return []
    parts = []
    if advice.lost_waiting_gpu_hours is not None:
        parts.append(f"{figure(advice.lost_waiting_gpu_hours)} waiting")
    if advice.lost_recompute_gpu_hours is not None:
        parts.append(f"{figure(advice.lost_recompute_gpu_hours)} to recompute")
    why = f": {', '.join(parts)}" if parts else ""
    return [f"  lost so far             {gpu_hours(advice.lost_gpu_hours)}{why}"]


def _restart(triage: Triage) -> list[str]:
    """Whether a restart places once the node is out; nothing where that could not be told."""
    found = triage.recommendation.restart
    if found is None or found.spares.places is None:
        return []
    return [fit(f"  {spares_words(found.spares)}", WIDTH)]


# --- What to do, and what was not seen ------------------------------------------------------------


def _commands(triage: Triage) -> list[str]:
    commands = list(triage.recommendation.commands)
    settle = triage.verdict.settle_command
    if settle and all(command.run != settle for command in commands):
        commands.insert(0, Command(run=settle, stops_job=False, note="would settle it"))
    width = max((cell_width(command.run) for command in commands), default=0)
    return [line for command in commands for line in _command_lines(command, width)]


def _command_lines(command: Command, width: int) -> list[str]:
    """The command, and behind a `#` what it does; above it when both do not fit one line."""
    note = command.note or ("stops the job" if command.stops_job else "stops nothing")
    for column in (width, cell_width(command.run)):
        blanks = " " * (column - cell_width(command.run))
        line = f"  {command.run}{blanks}  # {note}"
        if cell_width(line) <= WIDTH:
            return [line]
    return [f"  # {fit(note, WIDTH - 4)}", f"  {command.run}"]


def _footer(triage: Triage) -> list[str]:
    """What was not seen, and where more stands: one line when both fit it, else two."""
    parts = []
    if triage.missing:
        left = len(not_seen(triage.missing)) - 1
        more = f" and {count(left)} more" if left else ""
        parts.append(f"Not seen: {fit(_weightiest(triage).what, 50)}{more}.")
    ways = ["-v"]
    if triage.ranks:
        ways += [f"explain --rank {_rank_to_explain(triage)}", "ranks", "postmortem"]
    parts.append(f"More: {', '.join(ways)}")
    return row(parts, gap=" ")


def _weightiest(triage: Triage) -> Gap:
    """The gap that speaks of a culprit or suspect, else one that would settle something."""
    named = _named_ranks(triage)
    return min(
        triage.missing,
        key=lambda gap: (gap.rank is None or gap.rank not in named, not gap.would_settle),
    )


def _rank_to_explain(triage: Triage) -> int:
    named = _named_ranks(triage) + [witness.rank for witness in triage.verdict.loudest]
    return named[0] if named else triage.ranks[0].rank


def _named_ranks(triage: Triage) -> list[int]:
    named = [culprit.rank for culprit in triage.verdict.culprits if culprit.rank is not None]
    return named + [rank for other in triage.verdict.alternatives[:1] for rank in other.ranks]
