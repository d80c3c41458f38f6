"""Build `dist/gpufleet-linux-amd64`: gpufleet, its dependencies and an interpreter in one file.

    python packaging/onefile/build.py --interpreter FOLDER [--wheel dist/gpufleet-...whl] [--to FILE]

FOLDER is a relocatable CPython 3.11 (`packaging/onefile/interpreter` builds one). Every ELF file that goes
in is checked: nothing may ask for a glibc newer than 2.28 or for a library that not every machine has.
The same interpreter and wheels give the same bytes. Needs pip and binutils' strip.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import elf

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
EXTRAS = "fast,object-store"
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
LIBRARY = "lib/python3.11"
NOT_NEEDED = (
    "idlelib", "tkinter", "turtledemo", "lib2to3", "ensurepip", "test", "pydoc_data", "distutils",
    "config-3.11-x86_64-linux-gnu", "unittest", "curses", "sqlite3", "dbm", "venv", "lib-dynload",
)  # fmt: skip
UNUSED = ("bin", "share", "kubernetes/aio")
"""Of the packages: scripts, and the asynchronous half of the Kubernetes client, which nothing imports."""
KEY_CHARS = 32
EVERY_MODULE = """\
import importlib, pkgutil, gpufleet_cli
for one in pkgutil.walk_packages(gpufleet_cli.__path__, "gpufleet_cli."):
    one.name.endswith("__main__") or importlib.import_module(one.name)
import fsspec, kubernetes.client, kubernetes.config, obstore.fsspec, httpx, websocket, yaml, zstandard
"""


def interpreter(source: Path, place: Path) -> None:
    """The program and its library without what no command imports."""
    (place / "bin").mkdir()
    shutil.copy2(source / "bin" / "python3.11", place / "bin" / "python3")
    ignored = shutil.ignore_patterns("__pycache__", *NOT_NEEDED, "site-packages")
    shutil.copytree(source / LIBRARY, place / LIBRARY, ignore=ignored)
    (place / LIBRARY / "lib-dynload").mkdir()  # Python looks for it to know its own place
    (place / LIBRARY / "lib-dynload" / ".keep").touch()


def packages(wheel: Path, place: Path, wheelhouse: Path | None) -> None:
    """gpufleet and the pinned versions of what it needs, as wheels of the oldest platform."""
    platforms = [part for one in PLATFORMS for part in ("--platform", one)]
    offline = [] if wheelhouse is None else ["--no-index", "--find-links", str(wheelhouse)]
    subprocess.run(
        (
            sys.executable, "-m", "pip", "install", "-q", "--no-compile", "--only-binary=:all:",
            "--implementation", "cp", "--python-version", "3.11", *platforms, *offline,
            "-c", str(ROOT / "constraints.txt"),
            "--target", str(place / LIBRARY / "site-packages"),
            f"gpufleet[{EXTRAS}] @ {wheel.resolve().as_uri()}",
        ),
        check=True,
    )  # fmt: skip
    site = place / LIBRARY / "site-packages"
    for unused in UNUSED:
        shutil.rmtree(site / unused, ignore_errors=True)
    for record in site.glob("*.dist-info/direct_url.json"):  # where this machine had the wheel
        record.unlink()


def stripped(place: Path) -> None:
    """Without what only a debugger reads: some wheels are mostly that."""
    for needs in elf.under(place):
        subprocess.run(("strip", "--strip-unneeded", str(needs.path)), check=True)


def compiled(place: Path) -> None:
    """Bytecode that is never compared with its source: a start touches half as many files."""
    command = (place / "bin" / "python3", "-s", "-m", "compileall", "-q")
    options = ("--invalidation-mode", "unchecked-hash", "-s", str(place), "-p", "gpufleet")
    same = {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}  # sets among the constants
    done = subprocess.run((*command, *options, str(place / "lib")), check=False, env=same)
    if done.returncode:
        sys.stderr.write("onefile: some file was not compiled, see above\n")


def complete(place: Path) -> bool:
    """Whether every module of ours, and what they import when they run, can be imported in there."""
    command = (place / "bin" / "python3", "-I", "-c", EVERY_MODULE)
    return subprocess.run(command, check=False, env={}).returncode == 0


def payload(place: Path) -> bytes:
    """The folder as a tar whose bytes depend on its content alone."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for path in sorted(place.rglob("*")):
            entry = tar.gettarinfo(path, str(path.relative_to(place)))
            entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = 0, 0, 0, "", ""
            entry.mode = 0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644
            if path.is_file():
                with path.open("rb") as content:
                    tar.addfile(entry, content)
            else:
                tar.addfile(entry)
    return gzip.compress(packed.getvalue(), compresslevel=9, mtime=0)


def whole(body: bytes) -> bytes:
    """The script that unpacks and starts, and the payload behind it."""
    key = hashlib.sha256(body).hexdigest()[:KEY_CHARS]
    head = (HERE / "head.sh").read_text(encoding="utf-8")
    lines = str(head.count("\n") + 1)
    return head.replace("@KEY@", key).replace("@LINES@", lines).encode() + body


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--interpreter", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--wheel", type=Path, help="else the one in dist/")
    parser.add_argument("--wheelhouse", type=Path, help="take the dependencies from here, no index")
    parser.add_argument("--to", type=Path, default=ROOT / "dist" / "gpufleet-linux-amd64")
    return parser.parse_args()


def main() -> int:
    given = options()
    wheels = sorted((ROOT / "dist").glob("gpufleet-*.whl"))
    if given.wheel is None and not wheels:
        sys.stderr.write("onefile: no wheel in dist/: run `make dist` first, or say --wheel\n")
        return 2
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch) / "gpufleet"
        place.mkdir()
        interpreter(given.interpreter, place)
        packages(given.wheel or wheels[-1], place, given.wheelhouse)
        shutil.copy2(HERE / "run.py", place / "run.py")
        stripped(place)
        compiled(place)
        if not complete(place):
            return 1
        found = elf.under(place)
        lacking = elf.wrong(found)
        if lacking or not found:
            sys.stderr.write("".join(f"onefile: {line}\n" for line in lacking))
            return 1
        data = whole(payload(place))
    given.to.parent.mkdir(exist_ok=True)
    given.to.write_bytes(data)
    given.to.chmod(0o755)
    newest = ".".join(map(str, max(one.glibc for one in found)))
    sys.stdout.write(f"{given.to}: {len(data):,} bytes, {len(found)} ELF files, glibc {newest}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
