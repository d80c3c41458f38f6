"""topology.json, job.json and the tracker of checkpoints: what is known of the job and no log says.

    {"world_size": 16, "ranks": [{"rank": 0, "pod": "p-0", "node": "gpu-1", "local_rank": 0,
      "pci_bus_id": "0000:1b:00.0", "gpu_uuid": null}], "dmesg_boot_epoch": "2025-11-10T04:59:30Z"}
    {"name": "train", "world_size": 512, "state": "running", "last_checkpoint_at": "...Z"}

The tracker names the last checkpoint that is whole: `latest_checkpointed_iteration.txt` of Megatron
(`4050`), `latest` of DeepSpeed (`global_step1200`). It carries no time.

Any value may be null or absent, unknown keys are ignored; a value of the wrong type is a Gap.

>>> list(matches(name, b"{}") for name in ("a/topology.json", "job.json", "notes.json"))
[True, True, False]
>>> matches("ckpt/latest", b"global_step1200\\n"), matches("ckpt/latest", b"some log line")
(True, False)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from gpufleet_cli import timestamps
from gpufleet_cli.bundle import Evidence
from gpufleet_cli.errors import ParseError
from gpufleet_cli.facts import (
    MOST_RANKS,
    Fact,
    Gap,
    IdentityLink,
    JobNumbers,
    Link,
    NodeBoot,
    Origin,
)
from gpufleet_cli.parsers import json_documents as js

STATES = ("running", "stalled", "aborted", "exited", "unknown")
MOST_GAPS = 20

_NAMES = ("topology.json", "job.json")
_TRACKERS = ("latest_checkpointed_iteration.txt", "latest")
_TRACKED = re.compile(rb"\s{0,80}(?:global_step)?(\d{1,12})\s{0,80}")
_TOPOLOGY_HEAD = re.compile(rb'"ranks"\s{0,8}:\s{0,8}\[\s{0,200}\{[^{}]{0,2000}"rank"\s{0,8}:')
_KUBERNETES_HEAD = re.compile(rb'"(?:apiVersion|kind)"\s{0,8}:\s{0,8}"')


def matches(path: str, head: bytes) -> bool:
    """By the name, or a list of ranks in it; never a Kubernetes object that is called job.json."""
    name = path.rsplit("/", 1)[-1].lower()
    if name in _TRACKERS:
        return _TRACKED.fullmatch(head) is not None
    if name in _NAMES:
        return not _KUBERNETES_HEAD.search(head[:4096])
    return name.endswith(".json") and _TOPOLOGY_HEAD.search(head[:8192]) is not None


def parse(evidence: Evidence) -> Iterator[Fact]:
    """Identity links of a topology, numbers of a job, and a Gap per value of the wrong type."""
    data = evidence.read()
    origin = Origin(path=evidence.path)
    name = evidence.path.rsplit("/", 1)[-1].lower()
    if name in _TRACKERS and (tracked := _TRACKED.fullmatch(data)):
        step = int(tracked[1])
        yield JobNumbers(source="file", last_checkpoint_step=step, origin=origin)
        return
    ranks: list[object] | None = None
    try:
        document = next(js.documents(data), None)
    except ParseError:
        ranks = js.salvage(data, "ranks")
        if not ranks:
            raise
        document = {"ranks": ranks}
        yield Gap(
            what=f"the end of {evidence.path}",
            why="the file is cut off",
            would_settle="the ranks that are missing in it",
            origin=origin,
        )
    if not isinstance(document, dict):
        raise ParseError(f"{evidence.path}: the top is no JSON object")
    gaps: list[Gap] = []
    if ranks is not None or isinstance(document.get("ranks"), list):
        yield from _ranks(js.items(document.get("ranks")), origin, gaps)
    yield from _boots(document, origin, gaps)
    numbers = _numbers(document, origin, gaps)
    if numbers is not None:
        yield numbers
    yield from gaps[:MOST_GAPS]


# --- topology.json ------------------------------------------------------------------------------


def _ranks(ranks: list[object], origin: Origin, gaps: list[Gap]) -> Iterator[IdentityLink]:
    for index, entry in enumerate(ranks[:MOST_RANKS]):
        if not isinstance(entry, dict):
            gaps.append(_wrong(origin, f"ranks[{index}]", entry))
            continue
        where = Origin(path=origin.path, entry=index)
        link = IdentityLink(
            how=Link.TOPOLOGY_FILE,
            origin=where,
            rank=_whole(entry, "rank", where, gaps),
            node_rank=_whole(entry, "node_rank", where, gaps),
            local_rank=_whole(entry, "local_rank", where, gaps),
            pod=_text(entry, "pod", where, gaps),
            pod_uid=_text(entry, "pod_uid", where, gaps),
            container=_text(entry, "container", where, gaps),
            namespace=_text(entry, "namespace", where, gaps),
            node=_text(entry, "node", where, gaps),
            host=_text(entry, "host", where, gaps),
            pod_ip=_text(entry, "pod_ip", where, gaps),
            gpu_index=_whole(entry, "gpu_index", where, gaps),
            pci_bus_id=_text(entry, "pci_bus_id", where, gaps),
            gpu_uuid=_text(entry, "gpu_uuid", where, gaps),
        )
        yield link


def _boots(document: Mapping[str, object], origin: Origin, gaps: list[Gap]) -> Iterator[NodeBoot]:
    """`dmesg_boot_epoch` as an object: one time per node. A single time is a number of the job."""
    stated = document.get("dmesg_boot_epoch")
    if not isinstance(stated, dict):
        return
    for node, value in stated.items():
        boot_ns = _time_of(value)
        if boot_ns is None:
            gaps.append(_wrong(origin, f"dmesg_boot_epoch.{node}", value))
        else:
            yield NodeBoot(
                node=str(node), boot_ns=boot_ns, error_s=1.0, how="topology.json", origin=origin
            )


# --- job.json, and the same keys in a topology --------------------------------------------------


def _numbers(document: Mapping[str, object], origin: Origin, gaps: list[Gap]) -> JobNumbers | None:
    boot = None
    if not isinstance(document.get("dmesg_boot_epoch"), dict):
        boot = _time(document, "dmesg_boot_epoch", origin, gaps)
    name = _text(document, "name", origin, gaps)
    numbers = JobNumbers(
        source="file",
        name=name if name is not None else _text(document, "job", origin, gaps),
        namespace=_text(document, "namespace", origin, gaps),
        world_size=_positive(document, "world_size", origin, gaps),
        gpus_per_node=_positive(document, "gpus_per_node", origin, gaps),
        state=_state(document, origin, gaps),
        checkpoint_interval_s=_seconds(document, "checkpoint_interval_seconds", origin, gaps),
        last_checkpoint_ns=_time(document, "last_checkpoint_at", origin, gaps),
        last_checkpoint_step=_whole(document, "last_checkpoint_step", origin, gaps),
        step_s=_seconds(document, "step_seconds", origin, gaps),
        watchdog_timeout_s=_seconds(document, "watchdog_timeout_seconds", origin, gaps),
        restart_s=_seconds(document, "restart_seconds", origin, gaps),
        boot_ns=boot,
        captured_ns=_time(document, "captured_at", origin, gaps),
        origin=origin,
    )
    return None if numbers == JobNumbers(source="file", origin=origin) else numbers


def _read(
    document: Mapping[str, object],
    key: str,
    origin: Origin,
    gaps: list[Gap],
    read: Callable[[object], object],
) -> object:
    """The value of a key as `read` understands it; null and absent are no gap."""
    value = document.get(key)
    if value is None:
        return None
    found = read(value)
    if found is None:
        gaps.append(_wrong(origin, key, value))
    return found


def _wrong(origin: Origin, key: str, value: object) -> Gap:
    return Gap(
        what=f"{key} in {origin.path}",
        why=f"not what the key holds: {repr(value)[:60]}",
        origin=origin,
    )


def _text(document: Mapping[str, object], key: str, origin: Origin, gaps: list[Gap]) -> str | None:
    found = _read(document, key, origin, gaps, lambda v: v if isinstance(v, str) else None)
    return found if isinstance(found, str) and found else None


def _whole(document: Mapping[str, object], key: str, origin: Origin, gaps: list[Gap]) -> int | None:
    def read(value: object) -> int | None:
        found = js.integer(value)
        return found if found is not None and 0 <= found < 2**53 else None

    found = _read(document, key, origin, gaps, read)
    return found if isinstance(found, int) else None


def _positive(
    document: Mapping[str, object], key: str, origin: Origin, gaps: list[Gap]
) -> int | None:
    def read(value: object) -> int | None:
        found = js.integer(value)
        return found if found is not None and 0 < found <= MOST_RANKS else None

    found = _read(document, key, origin, gaps, read)
    return found if isinstance(found, int) else None


def _seconds(
    document: Mapping[str, object], key: str, origin: Origin, gaps: list[Gap]
) -> float | None:
    def read(value: object) -> float | None:
        found = js.number(value)
        return found if found is not None and 0 <= found <= 1e9 else None

    found = _read(document, key, origin, gaps, read)
    return found if isinstance(found, float) else None


def _time(document: Mapping[str, object], key: str, origin: Origin, gaps: list[Gap]) -> int | None:
    found = _read(document, key, origin, gaps, _time_of)
    return found if isinstance(found, int) else None


def _time_of(value: object) -> int | None:
    """A Unix time in seconds or smaller units, or a text with a date."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return timestamps.from_epoch(value)
    found = timestamps.parse_any(value) if isinstance(value, str) else None
    return found[0] if found else None


def _state(document: Mapping[str, object], origin: Origin, gaps: list[Gap]) -> str | None:
    def read(value: object) -> str | None:
        word = value.strip().lower() if isinstance(value, str) else None
        return word if word in STATES else None

    found = _read(document, "state", origin, gaps, read)
    return found if isinstance(found, str) else None
