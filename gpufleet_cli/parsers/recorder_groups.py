"""Which process groups a dump knows, and which of them an entry's `pg_id` means.

`pg_config` is keyed by name and `pg_status` by this process's own number of the group; only entries
carry both. Where no entry tells, the two lists, sorted by number, pair up one to one if they are of
equal length (facts: localisation 6).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpufleet_cli.facts import DumpGroup
from gpufleet_cli.parsers.recorder_document import Config, Document, Entry, Status
from gpufleet_cli.parsers.recorder_values import text


def group_table(
    document: Document, last: Mapping[Any, Entry]
) -> tuple[list[DumpGroup], dict[Any, int]]:
    """The groups, counters from `pg_status` alone, and the place of each `pg_id` among them.

    `last` is some entry of each `pg_id`.
    """
    configs = list(document.configs)
    place = {config.name: i for i, config in enumerate(configs)}
    index_of: dict[Any, int] = {}
    for pg_id, entry in last.items():
        name, desc = _named(entry["process_group"])
        if name not in place:
            place[name] = len(configs)
            configs.append(Config(name=name, desc=desc, members=None))
        index_of[pg_id] = place[name]
    statuses = _statuses_by_place(document.statuses, configs, index_of)
    return [_group(config, statuses.get(i)) for i, config in enumerate(configs)], index_of


def _named(group: object) -> tuple[str, str]:
    if isinstance(group, list | tuple) and len(group) == 2:
        return text(group[0]), text(group[1])
    return text(group, "unknown"), ""


def _group(config: Config, status: Status | None) -> DumpGroup:
    return DumpGroup(
        name=config.name,
        desc=config.desc,
        members=config.members,
        last_enqueued=None if status is None else max(0, status.enqueued),
        last_completed=None if status is None else max(0, status.completed),
        from_status=status is not None,
    )


def _statuses_by_place(
    statuses: Sequence[Status], configs: Sequence[Config], index_of: dict[Any, int]
) -> dict[int, Status]:
    """Each group's counters, where entries or equal lengths tell whose they are."""
    by_id = {status.local_id: status for status in statuses}
    known = {index_of[i]: by_id[i] for i in index_of if isinstance(i, int) and i in by_id}
    rest = [i for i in range(len(configs)) if i not in known]
    free = sorted(set(by_id) - {status.local_id for status in known.values()})
    if len(rest) != len(free) or not all(configs[i].name.isdecimal() for i in rest):
        return known
    ordered = sorted(rest, key=lambda i: int(configs[i].name))
    pairs = [*known.items(), *((i, by_id[n]) for i, n in zip(ordered, free, strict=True))]
    in_order = sorted(pairs, key=lambda pair: pair[1].local_id)
    names = [int(configs[i].name) for i, _ in in_order if configs[i].name.isdecimal()]
    return dict(pairs) if names == sorted(names) else known
