"""Wheel and sdist hold what they must; what is installed from them is checked by `make dist`."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from shutil import copytree, ignore_patterns

import pytest
from packaging_tools import ROOT, load

check_dist = load("check_dist.py")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist of this tree and the wheel that was made from the sdist."""
    for name in ("build", "setuptools"):
        pytest.importorskip(name, minversion=None if name == "build" else "77")
    place = tmp_path_factory.mktemp("dist")
    out = ignore_patterns(
        ".*", "tests", "build", "dist", "*.egg-info", "__pycache__", "built", "cases"
    )
    copytree(ROOT, place / "tree", ignore=out)
    command = (
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        "-o",
        str(place),
        str(place / "tree"),
    )
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return place


def test_wheel_holds_what_it_must(built: Path) -> None:
    """Code, data, schema, completions, man pages, three programs, the licence; no more."""
    (wheel,) = built.glob("*.whl")
    assert list(check_dist.wheel(wheel)) == []


def test_sdist_holds_what_it_must(built: Path) -> None:
    """What makes the wheel and what a reader needs, with the bundled incident; not the tests."""
    (sdist,) = built.glob("*.tar.gz")
    assert list(check_dist.sdist(sdist)) == []


@pytest.mark.parametrize(
    "lost", ["xid.csv", "triage-v1.schema.json", "gpufleet.fish", "gpufleet-triage.1"]
)
def test_a_wheel_that_lacks_a_file_is_told(built: Path, tmp_path: Path, lost: str) -> None:
    """By its name."""
    (wheel,) = built.glob("*.whl")
    poor = tmp_path / wheel.name
    with zipfile.ZipFile(wheel) as whole, zipfile.ZipFile(poor, "w") as less:
        for name in whole.namelist():
            if not name.endswith(f"/{lost}"):
                less.writestr(name, whole.read(name))
    (line,) = check_dist.wheel(poor)
    assert lost in line
