"""topology.json and job.json: what they say, and a gap for what they say wrongly."""

from __future__ import annotations

import json

import pytest
from builders import evidence

from gpufleet_cli.errors import ParseError
from gpufleet_cli.facts import Fact, Gap, IdentityLink, JobNumbers, Link, NodeBoot
from gpufleet_cli.parsers import job_files

TOPOLOGY = {
    "world_size": 16,
    "launcher": "torchrun",
    "namespace": "train",
    "job": "run-7",
    "dmesg_boot_epoch": "2025-11-10T04:59:30Z",
    "ranks": [
        {"rank": 0, "pod": "p-0", "node": "gpu-1", "local_rank": 0, "pci_bus_id": "0000:1b:00.0",
         "gpu_index": 0, "gpu_uuid": None, "pod_ip": None, "container": "pytorch"},
        {"rank": 1, "pod": None, "node": "gpu-1"},
    ],
}  # fmt: skip


def parse(value: object, path: str = "topology.json") -> list[Fact]:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return list(job_files.parse(evidence(data, path)))


def numbers(value: object, path: str = "job.json") -> JobNumbers:
    return next(f for f in parse(value, path) if isinstance(f, JobNumbers))


def links(facts: list[Fact]) -> list[IdentityLink]:
    return [f for f in facts if isinstance(f, IdentityLink)]


def test_a_topology() -> None:
    """Ranks with whatever is known of them, rank 0 and GPU 0 included; null and absent are equal."""
    found = parse(TOPOLOGY)
    first, second = links(found)
    assert (Link.TOPOLOGY_FILE, 0, 0, 0) == (
        first.how,
        first.rank,
        first.local_rank,
        first.gpu_index,
    )
    assert ("p-0", "gpu-1", "pytorch", "0000:1b:00.0", None) == (
        first.pod, first.node, first.container, first.pci_bus_id, first.gpu_uuid,
    )  # fmt: skip
    assert (1, None, None) == (second.rank, second.pod, second.local_rank)
    assert [] == [f for f in found if isinstance(f, Gap)]


def test_a_topology_also_has_numbers_of_the_job() -> None:
    """World size, name, namespace and boot stand beside the ranks."""
    found = numbers(TOPOLOGY, "topology.json")
    assert ("run-7", "train", 16, 1_762_750_770_000_000_000) == (
        found.name,
        found.namespace,
        found.world_size,
        found.boot_ns,
    )


def test_job_json() -> None:
    """Every number with its unit."""
    found = numbers(
        {
            "name": "train",
            "namespace": None,
            "world_size": 512,
            "gpus_per_node": 8,
            "state": "running",
            "checkpoint_interval_seconds": 3600,
            "last_checkpoint_at": "2026-03-02T09:20:44.301000000Z",
            "last_checkpoint_step": 0,
            "step_seconds": 0.418,
            "watchdog_timeout_seconds": 600,
            "restart_seconds": 300,
        }
    )
    assert (512, 8, "running", 3600.0, 0, 0.418, 600.0, 300.0) == (
        found.world_size,
        found.gpus_per_node,
        found.state,
        found.checkpoint_interval_s,
        found.last_checkpoint_step,
        found.step_s,
        found.watchdog_timeout_s,
        found.restart_s,
    )
    assert (1_772_443_244_301_000_000, "file") == (found.last_checkpoint_ns, found.source)


@pytest.mark.parametrize(
    "boot", [1_762_750_770, 1_762_750_770.0, "1762750770", "2025-11-10T04:59:30Z"]
)
def test_the_boot_time_as_number_or_text(boot: object) -> None:
    """Unix time or RFC 3339."""
    found = numbers({"dmesg_boot_epoch": boot}, "topology.json")
    assert 1_762_750_770_000_000_000 == found.boot_ns


def test_boot_times_per_node() -> None:
    """Nodes boot when they like."""
    found = parse({"dmesg_boot_epoch": {"gpu-1": 1_762_750_770, "gpu-2": "never"}})
    assert [("gpu-1", 1_762_750_770_000_000_000)] == [
        (f.node, f.boot_ns) for f in found if isinstance(f, NodeBoot)
    ]
    assert 1 == sum(isinstance(f, Gap) for f in found)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("world_size", "many"),
        ("world_size", -1),
        ("world_size", True),
        ("world_size", 10**30),
        ("state", "broken"),
        ("step_seconds", "fast"),
        ("step_seconds", -1),
        ("last_checkpoint_at", "yesterday"),
        ("last_checkpoint_at", 5),
        ("name", {"a": 1}),
        ("gpus_per_node", [8]),
    ],
)
def test_a_value_of_the_wrong_type_is_a_gap(key: str, value: object) -> None:
    """It costs itself, not the file, and it is shown."""
    found = parse({key: value, "namespace": "ok"}, "job.json")
    assert "ok" == next(f for f in found if isinstance(f, JobNumbers)).namespace
    assert [f"{key} in job.json"] == [f.what for f in found if isinstance(f, Gap)]


def test_entries_that_are_no_ranks() -> None:
    """The others still count."""
    found = parse({"ranks": [5, None, "x", {"rank": "zero", "pod": "p-0"}, {"rank": 1}]})
    assert [None, 1] == [link.rank for link in links(found)]
    assert 4 == sum(isinstance(f, Gap) for f in found)


def test_gaps_of_one_file_are_bounded() -> None:
    """Ten thousand wrong ranks are not ten thousand gaps."""
    found = parse({"ranks": [{"rank": "x"}] * 10_000})
    assert job_files.MOST_GAPS == sum(isinstance(f, Gap) for f in found)


def test_a_cut_topology_gives_its_whole_ranks() -> None:
    """The rest is a gap."""
    data = json.dumps(TOPOLOGY).encode()
    found = parse(data[: data.index(b'"rank": 1') + 5])
    assert [0] == [link.rank for link in links(found)]
    assert 1 == sum(isinstance(f, Gap) for f in found)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"5", b'"x"', b"\xff", b"[" * 100_000])
def test_what_is_no_object_is_refused(data: bytes) -> None:
    """One line says so."""
    with pytest.raises(ParseError):
        parse(data)


def test_a_kubernetes_job_is_not_ours() -> None:
    """`kubectl get job -o json > job.json` is another thing."""
    assert not job_files.matches("job.json", b'{"apiVersion": "batch/v1", "kind": "Job"}')
    assert job_files.matches("any/ranks.json", json.dumps(TOPOLOGY).encode())
    assert not job_files.matches("case.json", b'{"expected": {"culprit_ranks": [36]}}')


@pytest.mark.parametrize(
    ("path", "data", "step"),
    [
        ("c/latest_checkpointed_iteration.txt", b"4050", 4050),
        ("c/latest", b"global_step1200\n", 1200),
    ],
)
def test_the_tracker_of_checkpoints(path: str, data: bytes, step: int) -> None:
    """It is written when the checkpoint is whole, so its step counts."""
    assert job_files.matches(path, data)
    assert numbers(data, path).last_checkpoint_step == step


def test_a_file_that_is_only_called_latest_is_no_tracker() -> None:
    """Megatron writes `release` for converted weights; a log may be called `latest`."""
    assert not job_files.matches("logs/latest", b"2026-03-11 step: 5\n")
    assert not job_files.matches("latest_checkpointed_iteration.txt", b"release")
