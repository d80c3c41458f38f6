"""Attempts and in-process cycles inside one stream, from the lines that begin them.

torchrun's agent restarts its workers and goes on in the same log; NVRx restarts inside the process.
Lines of different attempts never share a Speaker. A stream without any such line keeps what its path
says. Sources: the agent's lines (facts: log-formats 1.4), NVRx's (Additions).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from gpufleet_cli.facts import Speaker
from gpufleet_cli.parsers.log_reader import Raw, Voice

PATTERNS = (
    r"restart_count=\d",
    re.escape("restart worker group"),
    re.escape("restarting worker group"),
    r"attempt_\d{1,6}/\d{1,6}/error\.json",
    re.escape("starting iteration="),
)

_COUNT = re.compile(r"restart_count=(\d{1,6})\b|attempt_(\d{1,6})/\d{1,6}/error\.json")
_CYCLE = re.compile(r"starting iteration=(\d{1,6})(?: rank=(\d{1,7}))?")


class Cycle(NamedTuple):
    """One in-process iteration of a process, and its rank in it where the line says."""

    pos: int
    number: int
    rank: int | None


class Attempts:
    """The attempt of every place in every stream, and the Speakers that follow from it."""

    def __init__(self, markers: Iterable[Raw]) -> None:
        self._begins: dict[str, list[tuple[int, int]]] = {}
        self._cycles: dict[object, list[Cycle]] = {}
        self._speakers: dict[object, Speaker] = {}
        self._anywhere: dict[Voice, Speaker] = {}
        pending: set[str] = set()
        for raw in sorted(markers, key=lambda raw: raw.pos):
            if raw.text is not None:
                self._note(raw, raw.text, pending)
        # whether the lines of a voice have one speaker, wherever they stand: an agent that says it
        # never restarted changes nothing
        self.is_one = not self._cycles and all(
            len(begins) == 1 and begins[0][0] < 0 for begins in self._begins.values()
        )

    def _note(self, raw: Raw, text: str, pending: set[str]) -> None:
        """One marker. Several agents may announce the same restart in one stream (`pending`)."""
        cycle = _CYCLE.search(text)
        if cycle is not None:
            rank = None if cycle[2] is None else int(cycle[2])
            entry = Cycle(raw.pos, int(cycle[1]), rank)
            self._cycles.setdefault(raw.voice.process, []).append(entry)
            return
        stream = raw.voice.stream
        begins = self._begins.setdefault(stream, [])
        current = begins[-1][1] if begins else None
        count = _COUNT.search(text)
        if count is not None:
            number = int(count[1] or count[2])
            if current is None:
                begins.append((-1, max(number - 1, 0)))
                current = begins[-1][1]
            if number > current:
                begins.append((raw.pos, number))
            pending.discard(stream)
        elif stream not in pending:
            begins += [(-1, 0)] if current is None else []
            begins.append((raw.pos + 1, (current or 0) + 1))
            pending.add(stream)

    def speaker(self, voice: Voice, pos: int) -> Speaker:
        """Who wrote a line at a place; the same object for the same speaker."""
        if self.is_one:
            speaker = self._anywhere.get(voice)
            if speaker is None:
                speaker = self._anywhere[voice] = self._at(voice, pos)
            return speaker
        return self._at(voice, pos)

    def _at(self, voice: Voice, pos: int) -> Speaker:
        attempt = self._attempt(voice, pos)
        cycle = self._cycle(voice, pos)
        key = (voice, attempt, None if cycle is None else (cycle.number, cycle.rank))
        known = self._speakers.get(key)
        if known is not None:
            return known
        fields: dict[str, object] = {"stream": voice.stream, **voice.fields, "attempt": attempt}
        if cycle is not None:
            fields["cycle"] = cycle.number
            if cycle.rank is not None and "rank" in fields:
                fields["rank"] = cycle.rank
        speaker = Speaker(**fields)  # type: ignore[arg-type]
        speaker = self._speakers.setdefault(speaker, speaker)
        self._speakers[key] = speaker
        return speaker

    def _attempt(self, voice: Voice, pos: int) -> int | None:
        own = voice.fields.get("attempt")
        base = own if isinstance(own, int) else None
        begins = self._begins.get(voice.stream)
        if not begins:
            return base
        at = bisect_right(begins, pos, key=lambda entry: entry[0])
        return (base or 0) + begins[max(at - 1, 0)][1]

    def _cycle(self, voice: Voice, pos: int) -> Cycle | None:
        cycles = self._cycles.get(voice.process)
        if not cycles:
            return None
        at = bisect_right(cycles, pos, key=lambda entry: entry.pos)
        return cycles[max(at - 1, 0)]
