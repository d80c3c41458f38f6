"""When a checkpoint is new, when a job is taken for stalled, and what a log says of both."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpufleet_cli.errors import UsageError
from gpufleet_cli.live.metric_server import OneSeries
from gpufleet_cli.operate.boundary import (
    NS,
    Rhythm,
    Saves,
    Watch,
    _by_file,
    _by_metric,
    read_marker,
)
from gpufleet_cli.operate.checkpoint_metric import times_of
from gpufleet_cli.operate.progress_look import Heard, Save, heard_in


def heard(*saves: tuple[str, int], of: str = "p-0") -> Heard:
    told = tuple(Save(pod=pod, at_ns=at * NS, step=None) for pod, at in saves)
    return Heard(saves=told, answered=frozenset({of, *(pod for pod, _ in saves)}))


def test_only_a_save_that_its_own_log_had_not_told_before_is_new() -> None:
    """The first read is the past; clocks of two nodes are never compared."""
    saves = Saves()
    assert [] == saves.new(heard(("p-0", 100)))
    assert [] == saves.new(heard(("p-0", 100)))
    assert 1 == len(saves.new(heard(("p-0", 100), ("p-0", 160))))
    assert [] == saves.new(heard(("p-0", 160)))
    assert [] == saves.new(heard(("p-0", 300)), 200.0), "it could not be read for three minutes"
    assert 1 == len(saves.new(heard(("p-0", 310)), 202.0))
    assert [] == saves.new(heard(("p-9", 900), of="p-9")), "its kubelet was silent until now"
    assert 1 == len(saves.new(heard(("p-9", 901), of="p-9")))


def test_a_log_that_told_of_no_save_tells_of_its_first() -> None:
    """It was read before, and said nothing."""
    saves = Saves()
    assert [] == saves.new(heard())
    assert 1 == len(saves.new(heard(("p-0", 5))))


def test_a_staged_or_scheduled_save_is_no_boundary() -> None:
    """Only what is durable counts; steps and phases are read beside it."""
    head = "2026-03-11T03:51:"
    lines = [
        f"{head}19.5Z [rank0]: step 4050 loss 2.31 lr 1.0e-04",
        f"{head}20.5Z  scheduled an async checkpoint save at iteration    4050 to /ckpt",
    ]
    found = heard_in("p-0", "\n".join([*lines, ""]).encode())
    assert () == found.saves
    assert 4050 == found.last_step
    assert found.opened_ns is not None
    lines.append(f"{head}29.5Z  successfully saved checkpoint from iteration    4050 to /ckpt")
    (save,) = heard_in("p-0", "\n".join([*lines, ""]).encode()).saves
    assert 4050 == save.step


def test_a_gang_is_stalled_after_ten_steps_and_a_minute_without_one() -> None:
    """By our own clock; a job whose pace is not known is never taken for stalled."""
    watch = Watch(rhythm=Rhythm(step_s=2.0, watchdog_s=600.0))
    assert watch.stalled(Heard(last_step=7, last_step_ns=NS), 0.0) is None
    assert watch.stalled(Heard(last_step=7, last_step_ns=NS), 59.0) is None
    assert watch.stalled(Heard(last_step=7, last_step_ns=NS), 61.0) is not None
    assert watch.stalled(Heard(last_step=8, last_step_ns=2 * NS), 62.0) is None
    saving = Heard(last_step=8, last_step_ns=2 * NS, opened_ns=3 * NS)
    assert watch.stalled(saving, 63.0) is None
    assert watch.stalled(saving, 600.0) is None, "a save is open"
    assert watch.stalled(saving, 670.0) is not None
    unknown = Watch(rhythm=Rhythm())
    assert unknown.stalled(Heard(last_step=7), 0.0) is None
    assert unknown.stalled(Heard(last_step=7), 9e9) is None


def test_a_marker_counts_when_it_is_written_not_when_it_is_there(tmp_path: Path) -> None:
    """Also by a link that names another folder now."""
    marker = tmp_path / "latest"
    assert read_marker(marker) is None
    marker.write_text("step-100")
    before = read_marker(marker)
    assert (before, None) == _by_file(marker, before)
    marker.write_text("step-200")
    assert _by_file(marker, before)[1] is not None
    with pytest.raises(UsageError, match="folder"):
        read_marker(tmp_path)
    marker.unlink()
    for step in (1, 2):
        (tmp_path / f"step-{step}").mkdir()
    marker.symlink_to(tmp_path / "step-1")
    before = read_marker(marker)
    marker.unlink()
    assert (before, None) == _by_file(marker, before), "gone for a moment"
    (tmp_path / "step-1" / "shard").write_text("a save that has only begun")
    marker.symlink_to(tmp_path / "step-1")
    assert (before, None) == _by_file(marker, before)
    marker.unlink()
    marker.symlink_to(tmp_path / "step-2")
    assert _by_file(marker, before)[1] is not None


def test_a_metric_of_other_pods_or_in_another_unit_tells_nothing() -> None:
    """`exported_pod` wins over `pod`, which may be the exporter's."""

    def series(value: str, **labels: str) -> OneSeries:
        from msgspec import Raw, json

        return OneSeries(metric=labels, value=Raw(json.encode([1.0, value])))

    own = frozenset({"run-0"})
    found = [
        series("1773200467", exported_pod="run-0", pod="exporter"),
        series("1773209999", exported_pod="other", pod="run-0"),
        series("1773200467118", pod="run-0"),
        series("NaN", pod="run-0"),
        series("1773200400", pod="run-0"),
        series("1773209999", pod="run-0", namespace="other"),
        series("1773209999", exported_pod="run-0", exported_namespace="other", namespace="train"),
        series(
            "1773200468", exported_pod="run-0", exported_namespace="train", namespace="exporters"
        ),
    ]
    assert {1773200467.0, 1773200400.0, 1773200468.0} == times_of(found, own, "train")
    assert not times_of(found, frozenset({"x"}), "train")
    two = [series("1773200467", pod="run-0", cluster=name) for name in ("prod-a", "prod-b")]
    assert not times_of(two, own, "train"), "two clusters have a pod of that name"
    assert {1773200467.0} == times_of(two[:1], own, "train")


def test_a_time_in_the_metrics_is_a_boundary_when_it_is_new_and_of_now() -> None:
    """What was scraped again after an outage is none; nor is the first that is seen."""
    told: list[str] = []

    def by(value: float | None, before: float | None) -> tuple[float | None, bool]:
        known, reached = _by_metric(lambda: value, before, 10_000.0, told.append)
        return known, reached is not None

    assert (9_990.0, False) == by(9_990.0, None)
    assert (9_990.0, True) == by(9_990.0, 9_000.0)
    assert (9_990.0, False) == by(9_990.0, 9_990.0)
    assert (9_990.0, False) == by(9_000.0, 9_990.0), "another pod's"
    assert (None, False) == by(None, None)
    assert [] == told
    assert (9_500.0, False) == by(9_500.0, 9_000.0)
    assert "500 s ago" in told[0]


@pytest.mark.parametrize(
    ("text", "is_boundary"),
    [
        ("Saved checkpoint at step 2000", True),
        ("successfully saved checkpoint from iteration    2000 to /ckpt", True),
        ("saved checkpoint shard 3 of 64 to /ckpt/step-2000", False),
        ("Saved checkpoint to /dev/shm/ckpt/step-2000", False),
        ("Saved in-memory checkpoint of step 2000", False),
        ("checkpoint saved in 3.2s, flushing in background", False),
        ("Loaded checkpoint saved at step 1000", False),
        ("Resuming: the previous run saved checkpoint-1000", False),
        ("last checkpoint saved 1200 s ago", False),
        ("saved checkpoint callbacks registered", False),
    ],
)
def test_words_about_a_checkpoint_that_are_no_boundary(text: str, is_boundary: bool) -> None:
    """A rank's piece, a copy that dies with the node, and talk of an earlier one."""
    found = heard_in("p-0", f"2026-03-11T03:51:20.5Z [rank0]: {text}\n".encode())
    assert is_boundary is bool(found.saves)
