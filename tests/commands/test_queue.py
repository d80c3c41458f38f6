"""What `gpufleet queue done` says where the gate stays shut."""

from __future__ import annotations

import pytest

from gpufleet_cli.commands.cordon_answers import ended
from gpufleet_cli.cordon_card import CordonAnswer, GateItem
from gpufleet_cli.settings import Settings


def test_the_gate_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    """With its reasons in the report; the line on standard error has the names of what is open."""
    gate = (
        GateItem(name="reset", state="unknown", why="no sign of one"),
        GateItem(name="healthy", state="pass", why="Ready"),
        GateItem(name="gpus", state="fail", why="7 of 8 GPUs allocatable"),
        GateItem(name="diagnostics", state="unknown", why="no result given", stated="seen it pass"),
    )
    why = "reset: unknown: no sign of one; gpus: fail: 7 of 8 GPUs allocatable"
    shut = CordonAnswer(
        node="gpu-1", answer="refused", why=why, code=5, instead="state it", gate=gate
    )
    assert 5 == ended([shut], [], "text", Settings())
    told = capsys.readouterr()
    assert told.err == "gpufleet: gpu-1: refused: the gate is not passed: reset, gpus (state it)\n"
    for item in gate:
        assert 1 == told.out.count(item.why)
    by_another = CordonAnswer(node="gpu-1", answer="refused", why="the cordon is not ours", code=5)
    ended([by_another], [], "text", Settings())
    assert "refused: the cordon is not ours" in capsys.readouterr().err
