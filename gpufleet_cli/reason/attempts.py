"""Which attempt is the subject: lines, dumps and maps of different attempts are never joined.

A unit is what restarts together: a pod, a node, or a stream. Within a unit the newest attempt (and
in-process cycle) is the subject; older ones are kept apart, since a change of pace shows against them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from gpufleet_cli.facts import (
    Fact,
    GroupStatus,
    IdentityLink,
    Link,
    LogSign,
    Progress,
    Speaker,
    WatchdogTimeout,
    Writes,
)

Key = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """Facts of the subject, facts of earlier attempts, and the subject's number where known."""

    current: tuple[Fact, ...]
    earlier: tuple[Fact, ...]
    attempt: int | None
    cycle: int | None


def speaker_of(fact: Fact) -> Speaker | None:
    """The speaker of a log fact."""
    if isinstance(fact, WatchdogTimeout | GroupStatus | LogSign | Progress | Writes):
        return fact.speaker
    return None


def _unit(speaker: Speaker) -> str:
    return speaker.pod or speaker.node or speaker.stream


def _key(speaker: Speaker) -> Key:
    return (
        0 if speaker.previous else 1,
        -1 if speaker.attempt is None else speaker.attempt,
        -1 if speaker.cycle is None else speaker.cycle,
    )


def split(facts: Iterable[Fact], *, without_newest: bool = False) -> Attempts:
    """Split facts into the newest attempt of every unit and what came before.

    With `without_newest` the newest attempt of every unit that has an earlier one is left out
    first: the subject is then the attempt before.
    """
    listed = tuple(facts)
    if without_newest:
        listed = _without_newest(listed)
    newest: dict[str, Key] = {}
    for fact in listed:
        speaker = speaker_of(fact)
        if speaker is None:
            continue
        unit, key = _unit(speaker), _key(speaker)
        newest[unit] = max(newest.get(unit, key), key)
    agent = _agent_attempt(listed)
    link_attempts = _newest_link_attempt(listed)
    current: list[Fact] = []
    earlier: list[Fact] = []
    for fact in listed:
        speaker = speaker_of(fact)
        if speaker is not None:
            old = _is_older(_key(speaker), newest[_unit(speaker)], speaker, agent)
        elif isinstance(fact, IdentityLink):
            old = _link_is_older(fact, link_attempts)
        else:
            old = False
        (earlier if old else current).append(fact)
    keys = [key for key in newest.values() if key[0] == 1]
    attempt = max((key[1] for key in keys), default=-1)
    cycle = max((key[2] for key in keys), default=-1)
    return Attempts(
        current=tuple(current),
        earlier=tuple(earlier),
        attempt=None if attempt < 0 else attempt,
        cycle=None if cycle < 0 else cycle,
    )


def _without_newest(facts: tuple[Fact, ...]) -> tuple[Fact, ...]:
    keys: dict[str, set[Key]] = defaultdict(set)
    for fact in facts:
        speaker = speaker_of(fact)
        if speaker is not None:
            keys[_unit(speaker)].add(_key(speaker))
    newest = {unit: max(found) for unit, found in keys.items() if len(found) > 1}
    kept = []
    for fact in facts:
        speaker = speaker_of(fact)
        if speaker is None or newest.get(_unit(speaker)) != _key(speaker):
            kept.append(fact)
    return tuple(kept)


def _is_older(key: Key, newest: Key, speaker: Speaker, agent: int | None) -> bool:
    """Older than its own unit's newest, or than the attempt that the agents all agree on.

    A line without an attempt in a stream that has attempts was written before the first one began.
    """
    if key[0] < newest[0]:
        return True
    if key[1] >= 0 and key[1] < newest[1]:
        return True
    if key[1] == newest[1] and key[2] >= 0 and key[2] < newest[2]:
        return True
    from_agent = speaker.pod_uid is None and speaker.attempt is not None
    return agent is not None and from_agent and key[1] < agent


def _agent_attempt(facts: Iterable[Fact]) -> int | None:
    """The highest attempt that torchrun agents of at least two units reached, if they reached one."""
    units: dict[int, set[str]] = defaultdict(set)
    for fact in facts:
        speaker = speaker_of(fact)
        if speaker is None or speaker.pod_uid is not None or speaker.previous:
            continue
        if speaker.attempt is not None:
            units[speaker.attempt].add(_unit(speaker))
    shared = [attempt for attempt, found in units.items() if len(found) > 1]
    return max(shared, default=None)


def _newest_link_attempt(facts: Iterable[Fact]) -> dict[str, int]:
    newest: dict[str, int] = {}
    for fact in facts:
        if isinstance(fact, IdentityLink) and fact.attempt is not None and fact.how is Link.AGENT:
            unit = fact.pod or fact.node or fact.stream or fact.origin.path
            newest[unit] = max(newest.get(unit, fact.attempt), fact.attempt)
    return newest


def _link_is_older(link: IdentityLink, newest: dict[str, int]) -> bool:
    if link.attempt is None or link.how is not Link.AGENT:
        return False
    unit = link.pod or link.node or link.stream or link.origin.path
    return link.attempt < newest.get(unit, link.attempt)
