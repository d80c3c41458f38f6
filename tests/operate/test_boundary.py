"""When a checkpoint is new, when a job is taken for stalled, and what a log says of both."""

from __future__ import annotations

from pathlib import Path

from gpufleet_cli.live.metric_server import OneSeries
from gpufleet_cli.operate.boundary import NS, Rhythm, Saves, Watch, _by_file, _file
from gpufleet_cli.operate.checkpoint_metric import newest_of
from gpufleet_cli.operate.progress_look import Heard, Save, heard_in, joined, moves


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


def test_a_step_that_the_first_look_did_not_see_means_that_it_runs() -> None:
    """A higher number, or a later time where the run began anew at an older checkpoint."""
    assert moves(Heard(last_step=12, last_step_ns=NS), last_step=11, seen_ns=5 * NS)
    assert not moves(Heard(last_step=11, last_step_ns=NS), last_step=11, seen_ns=5 * NS)
    assert moves(Heard(last_step=3, last_step_ns=9 * NS), last_step=11, seen_ns=5 * NS)
    assert not moves(Heard(), last_step=11, seen_ns=5 * NS)
    assert 12 == joined([Heard(last_step=3), Heard(last_step=12), Heard()]).last_step


def test_a_marker_counts_when_it_is_written_not_when_it_is_there(tmp_path: Path) -> None:
    """Also by a link that names another folder now."""
    marker = tmp_path / "latest"
    assert _file(marker) is None
    marker.write_text("step-100")
    before = _file(marker)
    assert (before, None) == _by_file(marker, before)
    marker.write_text("step-200")
    assert _by_file(marker, before)[1] is not None
    marker.unlink()
    for step in (1, 2):
        (tmp_path / f"step-{step}").mkdir()
    marker.symlink_to(tmp_path / "step-1")
    before = _file(marker)
    marker.unlink()
    assert (before, None) == _by_file(marker, before), "gone for a moment"
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
    ]
    assert 1773200467.0 == newest_of(found, own)
    assert newest_of(found, frozenset({"x"})) is None
