"""The single file: how it unpacks and starts (with a stand-in for the interpreter), and the check of its ELF files."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import msgspec
import pytest
from packaging_tools import ROOT, load

from gpufleet_cli import __version__

sys.path.insert(0, str(ROOT / "packaging" / "onefile"))  # build.py imports elf from beside it
elf = load("onefile/elf.py")
build = load("onefile/build.py")
STAND_IN = b"""#!/bin/sh
[ "$2" = -c ] && exit
printf '%s\\n' "$@"
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A file as build.py makes it, whose interpreter prints its arguments."""
    place = tmp_path / "content"
    (place / "bin").mkdir(parents=True)
    (place / "bin" / "python3").write_bytes(STAND_IN)
    (place / "bin" / "python3").chmod(0o755)
    (place / "run.py").touch()
    path = tmp_path / "bastion" / "gpufleet"
    path.parent.mkdir()
    path.write_bytes(build.whole(build.payload(place)))
    path.chmod(0o755)
    return path


def start(program: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = (str(program), *arguments)
    plain = {"PATH": "/usr/bin:/bin", "TMPDIR": str(program.parent / "tmp"), **environment}
    (program.parent / "tmp").mkdir(exist_ok=True)
    return subprocess.run(
        command, env=plain, capture_output=True, text=True, check=False, timeout=60
    )


def unpacked(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.glob("**/ready"))


def test_it_unpacks_once_and_passes_everything_on(program: Path, tmp_path: Path) -> None:
    """Isolated from the machine's Python; its own name first, then the words as they were typed."""
    words = ("triage", "a b", "", "*", "-o", "json")
    first = start(program, *words, HOME=str(tmp_path))
    (place,) = unpacked(tmp_path)
    assert place.parent == tmp_path / ".cache" / "gpufleet" / "onefile"
    assert first.stdout.split("\n") == ["-I", str(place / "run.py"), str(program), *words, ""]
    made = (place / "bin" / "python3").stat()
    assert start(program, *words, HOME=str(tmp_path)).stdout == first.stdout
    assert (place / "bin" / "python3").stat() == made
    assert first.stderr == ""
    assert [path.name for path in place.parent.iterdir()] == [place.name]


@pytest.mark.parametrize("home", ["/dev/null/home", ""], ids=["cannot be written", "none"])
def test_a_home_that_cannot_be_written_to(program: Path, home: str) -> None:
    """The folder for temporary files, known again the second time, for nobody else."""
    environment = {"HOME": home} if home else {}
    for _ in range(2):
        done = start(program, "xid", **environment)
        assert (done.returncode, done.stdout.split()[-1]) == (0, "xid"), done.stderr
    (place,) = unpacked(program.parent)
    assert place.parent.stat().st_mode & 0o077 == 0


def test_a_stated_place_wins(program: Path, tmp_path: Path) -> None:
    """Over the cache folder."""
    start(program, HOME=str(tmp_path / "home"), GPUFLEET_UNPACK=str(tmp_path / "mine"))
    (place,) = unpacked(tmp_path)
    assert place.parent == tmp_path / "mine"


def test_a_folder_that_a_link_leads_to_is_not_used(program: Path, tmp_path: Path) -> None:
    """Anybody can put a link into /tmp."""
    trap = tmp_path / "trap"
    trap.mkdir()
    user = subprocess.run(("id", "-u"), capture_output=True, text=True, check=True).stdout.strip()
    (program.parent / "tmp").mkdir()
    (program.parent / "tmp" / f"gpufleet-{user}").symlink_to(trap)
    done = start(program, "xid", HOME="/dev/null/home")
    assert (done.returncode, done.stdout) == (1, "")
    assert "GPUFLEET_UNPACK" in done.stderr
    assert list(trap.iterdir()) == []


def test_a_file_that_was_cut_says_so(program: Path, tmp_path: Path) -> None:
    """And leaves nothing behind."""
    program.write_bytes(program.read_bytes()[:-9])
    done = start(program, "xid", HOME=str(tmp_path / "home"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"gpufleet: {program} is damaged: copy it again\n"
    assert unpacked(tmp_path) == []


def test_several_first_starts_at_once(program: Path, tmp_path: Path) -> None:
    """Each works, and one copy is left."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    starts = [
        subprocess.Popen((program, "x"), env=environment, stdout=subprocess.PIPE) for _ in range(6)
    ]
    said = [(one.communicate(timeout=60)[0].split()[-1], one.returncode) for one in starts]
    assert said == [(b"x", 0)] * 6
    (place,) = unpacked(tmp_path)
    assert list(place.parent.iterdir()) == [place]


def test_same_content_same_bytes(tmp_path: Path) -> None:
    """Whenever and by whomever it is packed; owners and times are left out."""
    (tmp_path / "a").write_bytes(b"1")
    first = build.payload(tmp_path)
    (tmp_path / "a").touch()
    assert build.payload(tmp_path) == first
    with tarfile.open(fileobj=io.BytesIO(first)) as packed:
        assert [(one.name, one.mtime, one.uid, one.uname) for one in packed] == [("a", 0, 0, "")]


def test_what_an_elf_file_needs() -> None:
    """A wheel's library asks for an old libc; of a still older baseline it is told."""
    assert elf.read(Path(__file__)) is None
    needs = elf.read(Path(msgspec._core.__file__))
    assert needs is not None
    assert (2, 2, 5) <= needs.glibc <= elf.BASELINE
    assert "libc.so.6" in needs.libraries
    assert elf.wrong([needs]) == []
    (line,) = elf.wrong([needs], baseline=(2, 2))
    assert "needs glibc 2." in line


def test_versions_are_numbers() -> None:
    """2.28 is newer than 2.5, and what is private to a glibc fits no other."""
    assert elf._number("GLIBC_2.28") > elf._number("GLIBC_2.5")
    assert elf._number("GLIBC_PRIVATE") > elf.BASELINE


@pytest.mark.parametrize(
    ("name", "words", "expected"),
    [
        ("gpufleet", ["--version"], f"gpufleet {__version__}\n"),
        ("kubectl-gpufleet", ["--help"], "Usage: kubectl gpufleet "),
        ("kubectl_complete-gpufleet", ["xid", "15"], "154\n"),
    ],
)
def test_what_it_starts_goes_by_its_name(name: str, words: list[str], expected: str) -> None:
    """One file, three programs, as links to it."""
    script = ROOT / "packaging" / "onefile" / "run.py"
    command = (sys.executable, str(script), f"/somewhere/{name}", *words)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert expected in done.stdout


def test_certificates_of_red_hat(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Taken where they lie and nothing else is stated; what a person stated stays."""
    run = load("onefile/run.py")
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(run, "RED_HAT", str(tmp_path / "ca-bundle.crt"))
    run.trust()
    assert "SSL_CERT_FILE" not in os.environ
    (tmp_path / "ca-bundle.crt").touch()
    if not Path("/etc/ssl/cert.pem").exists():
        monkeypatch.setenv("SSL_CERT_DIR", "/mine")
        run.trust()
        assert "SSL_CERT_FILE" not in os.environ
        monkeypatch.delenv("SSL_CERT_DIR")
        run.trust()
        assert os.environ.pop("SSL_CERT_FILE") == run.RED_HAT
