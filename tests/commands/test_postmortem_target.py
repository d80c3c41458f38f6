"""What `gpufleet postmortem` says of a target that is not there."""

from __future__ import annotations

import pytest

from gpufleet_cli.cli import main


@pytest.mark.parametrize(
    ("typed", "is_file"),
    [("b.tar.zst", True), ("night/b", True), ("train", False), ("jobset/train", False)],
)
def test_a_file_that_is_not_there_is_no_job(
    typed: str, is_file: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its name; what may be a job is told how a bundle of it is made."""
    assert 4 == main(["postmortem", typed])
    err = capsys.readouterr().err
    assert f"{typed}: no such file or folder" in err
    assert is_file == ("collect" not in err)
