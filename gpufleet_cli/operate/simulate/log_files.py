"""The logs of a story, as its job and the collectors on the way would have written them.

Lines are made first, each with its writer and its time (`log_frameworks`, `log_watchdog`,
`log_endings`, `log_agents`, `log_faults`), then cut where their writer ended or the evidence was
taken, then wrapped (`log_wrappers`). Wording: per release of torch and NCCL, and per framework.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from random import Random

from gpufleet_cli.operate.simulate import (
    gathered,
    log_agents,
    log_endings,
    log_faults,
    log_frameworks,
    log_pauses,
    log_watchdog,
    log_wrappers,
)
from gpufleet_cli.operate.simulate import log_lines as ll
from gpufleet_cli.operate.simulate.log_lines import Line, Says, TimedOut, rank_ns
from gpufleet_cli.operate.simulate.log_watchdog import Counted
from gpufleet_cli.operate.simulate.log_wrappers import Wrapped
from gpufleet_cli.operate.simulate.story import Clue, Firing, Story, Written


def write(story: Story, rng: Random) -> Written:
    """All log files, what they say of the true fault, and whose log is there to its end."""
    lines = _kept(story, _made(story, rng))
    wrapped = log_wrappers.wrap(story, lines, rng)
    tells = log_wrappers.tells_ranks(story)
    there = _present(story)
    return Written(
        files=wrapped.files,
        clues=_clues(story, wrapped, lines),
        timed_out=_timed_out(lines) if tells else {},
        complete=frozenset(there) if tells else frozenset(),
    )


def _made(story: Story, rng: Random) -> Iterator[Line]:
    """Every line that any process of the job wrote."""
    began_s = log_frameworks.began_s(story)
    yield from log_agents.start_lines(story, began_s, rng)
    yield from log_frameworks.start_lines(story, rng)
    if log_frameworks.has_started(story):
        steps = log_frameworks.logged_steps(story, rng)
        yield from log_frameworks.step_lines(story, steps, rng)
        yield from log_frameworks.save_lines(story, log_frameworks.all_saves(story, steps))
        yield from log_pauses.phase_lines(story, rng)
        yield from log_faults.fault_lines(story, steps, rng)
        yield from _watchdogs(story, rng)
    else:
        yield from log_endings.rendezvous_lines(story, began_s)
    for ending in story.endings:
        if log_frameworks.has_started(story):
            yield from log_endings.last_words(story, ending, rng)
    yield from log_agents.end_lines(story, rng)


def _watchdogs(story: Story, rng: Random) -> Iterator[Line]:
    """Timeouts, signals, and how watchdogs and monitors end their processes."""
    wants_desync = log_watchdog.wants_desync(story, rng)
    fired: dict[int, Firing] = {}
    for firing in story.firings:
        fired.setdefault(firing.rank, firing)
    aborted = {e.rank: e for e in story.endings if e.how == "watchdog-abort" and e.at_s is not None}
    numbers: dict[int, Counted] = {}

    def of(rank: int) -> Counted:
        if rank not in numbers:
            numbers[rank] = log_watchdog.counted(story, rank)
        return numbers[rank]

    for firing in story.firings:
        yield from log_watchdog.firing_lines(story, firing, of(firing.rank))
    for rank in sorted(story.signalled):
        yield from log_watchdog.signal_lines(story, of(rank), story.signalled[rank])
    reported: set[int] = set()
    for rank in sorted(aborted, key=lambda r: (aborted[r].at_s or 0.0, r)):
        report: list[str] = []
        own = fired.get(rank)
        group = None if own is None else story.programs[rank][own.call].group
        if wants_desync and own is not None and group is not None and group.number not in reported:
            reported.add(group.number)
            counted = {member: of(member) for member in group.members}
            report = log_watchdog.desync_report(story, own, counted)
        yield from log_watchdog.abort_lines(story, aborted[rank], own, of(rank), report)
    for ending in story.endings:
        fault = log_endings.fault_of(story, ending.rank)
        if ending.how == "frozen" and fault is not None:
            until = story.captured_s if ending.at_s is None else ending.at_s
            yield from log_watchdog.stuck_lines(story, ending.rank, fault.at_s, until, rng)


# --- What of it is left ---------------------------------------------------------------------------------------


def _present(story: Story) -> set[int]:
    """Ranks whose lines the collection has."""
    absent = set(story.lost_logs)
    if not log_frameworks.has_started(story):
        absent |= {r for f in story.faults for r in f.ranks}
    ranks = {0} if story.style.rank0_only else set(range(story.layout.size))
    return ranks - absent


def _kept(story: Story, made: Iterator[Line]) -> list[Line]:
    """Lines of present writers, until the writer's end or the capture."""
    there = _present(story)
    layout = story.layout
    last = [story.wall_ns(story.captured_s, n) for n in range(len(layout.nodes))]
    until = [last[layout.node_index(r)] for r in range(layout.size)]
    for ending in story.endings:
        if ending.at_s is not None:
            until[ending.rank] = min(until[ending.rank], rank_ns(story, ending.rank, ending.at_s))
    found = []
    agents = {-1 - n for n in range(len(layout.nodes)) if there.intersection(layout.ranks_of(n))}
    others = set() if story.style.rank0_only else agents | {ll.SRUN}
    for line in made:
        writer = line.writer
        if writer >= 0:
            if writer in there and line.ns <= until[writer]:
                found.append(line)
        elif writer in others and line.ns <= last[0 if writer == ll.SRUN else -1 - writer]:
            found.append(line)
    return found


def _timed_out(lines: list[Line]) -> dict[int, int]:
    found: dict[int, int] = {}
    for line in lines:
        if isinstance(line.says, TimedOut):
            found.setdefault(line.writer, line.says.call)
    return dict(sorted(found.items()))


def _is_dated(wrapped: Wrapped, path: str, text: str) -> bool:
    """Whether the line has a time, without which nobody can tell how old it is."""
    if path.endswith(".json") or "-json.log" in path:
        return True
    content = wrapped.files[path].decode()
    at = content.find(text)
    begin, end = content.rfind("\n", 0, at) + 1, content.find("\n", at)
    return _CLOCK.search(content[begin:end]) is not None


_CLOCK = re.compile(r"\d{4}-\d\d-\d\d|\d\d/\d\d/\d{4} |\d{4} \d\d:\d\d:\d\d\.")


def _clues(story: Story, wrapped: Wrapped, lines: list[Line]) -> tuple[Clue, ...]:
    """Each telling line once, with its text as the file has it."""
    found: dict[tuple[str, str], Clue] = {}
    for line in lines:
        if not isinstance(line.says, Says):
            continue
        path = wrapped.path_of(line)
        text = line.says.text or line.text.strip()
        if path.endswith((".json", "-json.log")):
            text = json.dumps(text, ensure_ascii=path.endswith(".json"))[1:-1]
        says = line.says
        if not says.ranks and not _is_dated(wrapped, path, text):
            continue
        ranks = _left(story, wrapped, line, says)
        nodes = {story.layout.node_index(rank) for rank in ranks}
        clue = Clue(
            ranks=ranks,
            path=path,
            text=text,
            kinds=says.kinds,
            loud=says.loud,
            nodes=tuple(nodes) if len(nodes) == 1 and gathered.names_nodes(story) else (),
        )
        found.setdefault((path, text), clue)
    return tuple(found.values())


def _left(story: Story, wrapped: Wrapped, line: Line, says: Says) -> tuple[int, ...]:
    """The ranks that a line leaves: its writer alone only where something tells who wrote it, else all of
    its stream."""
    writer, layout = line.writer, story.layout
    if writer < 0 or says.ranks != (writer,) or wrapped.marks(line):
        return says.ranks
    if any(word in line.text for word in ("[rank", "rank_", "Rank")):
        return says.ranks
    is_nccl = " NCCL " in line.text
    if is_nccl and story.style.identity == "pods":
        return says.ranks  # its process stands in NCCL's init lines
    if not is_nccl and story.style.wrapper == "srun-label":
        return tuple(range(layout.size))
    return tuple(layout.ranks_of(layout.node_index(writer)))
