"""Without its programs a test is skipped with one line that says what to do, or fails with it where nothing may be skipped."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from servers import programs

TEST = "tests/servers_self/test_cluster.py::test_logs_are_files"


@pytest.mark.parametrize(("required", "code"), [("0", 0), ("1", 1)])
def test_a_missing_program_is_told(root: Path, tmp_path: Path, required: str, code: int) -> None:
    """On a machine with an empty cache."""
    empty = {"GPUFLEET_SERVER_CACHE": str(tmp_path), "GPUFLEET_REQUIRE_SERVERS": required}
    # Only what a plain environment has: a worker of pytest-xdist hands its own on.
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", TEST]
    run = subprocess.run(command, cwd=root, env=kept | empty, capture_output=True, text=True)
    assert "etcd is not built: install Go 1.26 and run `make servers`" in run.stdout
    assert code == run.returncode


def test_every_go_program_is_pinned() -> None:
    """Module folders and table agree, and versions of the server and its ldflags do."""
    folders = {file.parent.name for file in programs.HERE.glob("*/go.mod")}
    assert folders == {program.module for program in programs.GO_PROGRAMS}
    for program in programs.GO_PROGRAMS:
        pins = (programs.HERE / program.module / "go.mod").read_text()
        assert re.search(rf"^(tool )?\s*{re.escape(program.package)}$", pins, re.M), program.name
        if found := re.search(r"gitVersion=(\S+)", program.ldflags):
            assert f"k8s.io/kubernetes {found[1]} " in pins
