"""The programs that the tests start: which there are, where they lie, how they are built.

Those of Go modules are built once into a cache outside the repository, keyed by the hash of their `go.mod` and `go.sum`;
one is of Python, in a virtual environment in that cache; the others are packages of Debian. Standard library only: `tests/servers/build` runs before anything is installed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

# Without these the servers of Kubernetes do not know their version, and kubectl stumbles.
_KUBERNETES_VERSION = " ".join(
    f"-X k8s.io/component-base/version.{name}={value}"
    for name, value in (("gitVersion", "v1.34.4"), ("gitMajor", "1"), ("gitMinor", "34"))
)


def _cache_folder() -> Path:
    """Where built programs are kept."""
    if own := os.environ.get("GPUFLEET_SERVER_CACHE"):
        return Path(own).absolute()
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "gpufleet-servers"


# Read once at import: each test gets an environment of its own.
CACHE = _cache_folder()
REQUIRED = os.environ.get("GPUFLEET_REQUIRE_SERVERS") == "1"


class MissingProgram(Exception):
    """A program is not on this machine; the message is one line that says how to get it."""


class BuildFailed(Exception):
    """The Go compiler refused; its words have been shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoProgram:
    """A program that the Go compiler makes of a module pinned under this folder."""

    name: str
    module: str
    package: str
    ldflags: str = ""

    @property
    def path(self) -> Path:
        """Where the built program lies, or will."""
        return _folder(self.module, "go.mod", "go.sum") / self.name

    @property
    def needs(self) -> str:
        """What building it takes."""
        return "Go 1.26"

    def make(self) -> None:
        """Build it."""
        go = shutil.which("go")
        if go is None:
            raise MissingProgram(f"{self.name} cannot be built: install {self.needs}")
        fresh = self.path.with_name(f"{self.name}.new")
        flags = ["-mod=readonly", "-ldflags", f"-s -w {self.ldflags}".strip()]
        _run(
            self.name,
            [go, "build", "-o", str(fresh), *flags, self.package],
            cwd=HERE / self.module,
            env={**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"},
        )
        fresh.replace(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonProgram:
    """A program of Python, in a virtual environment of its own since its requirements clash with ours."""

    name: str
    folder: str  # holds its requirements.txt

    @property
    def path(self) -> Path:
        """Where the program lies, or will."""
        return _folder(self.folder, "requirements.txt") / "venv" / "bin" / self.name

    @property
    def needs(self) -> str:
        """What building it takes."""
        return "Python 3.11 with venv"

    def make(self) -> None:
        """Make the environment where it will stay, since it knows its own path, and its program last."""
        home = self.path.parents[1]
        _run(self.name, [sys.executable, "-m", "venv", "--clear", str(home)])
        pip = [str(home / "bin" / "python"), "-m", "pip", "install", "-q", "--no-deps"]
        _run(self.name, [*pip, "-r", str(HERE / self.folder / "requirements.txt")])


def _folder(name: str, *pinned: str) -> Path:
    """The place in the cache for what these pins of `name` give."""
    pins = hashlib.sha256()
    for file in pinned:
        pins.update((HERE / name / file).read_bytes())
    return CACHE / f"{name}-{pins.hexdigest()[:16]}"


def _run(name: str, command: list[str], **how: Any) -> None:
    """Run a step of a build, whose words are shown."""
    if subprocess.run(command, **how).returncode != 0:
        raise BuildFailed(f"{name} cannot be built: `{' '.join(command[:3])} ...` failed")


# The one that takes longest first: what the others need of it is then compiled.
GO_PROGRAMS = (
    GoProgram(
        name="kube-apiserver",
        module="kubernetes",
        package="k8s.io/kubernetes/cmd/kube-apiserver",
        ldflags=_KUBERNETES_VERSION,
    ),
    GoProgram(
        name="kube-controller-manager",
        module="kubernetes",
        package="k8s.io/kubernetes/cmd/kube-controller-manager",
        ldflags=_KUBERNETES_VERSION,
    ),
    GoProgram(
        name="kube-scheduler",
        module="kubernetes",
        package="k8s.io/kubernetes/cmd/kube-scheduler",
        ldflags=_KUBERNETES_VERSION,
    ),
    GoProgram(name="kwok", module="kwok", package="sigs.k8s.io/kwok/cmd/kwok"),
    GoProgram(name="etcd", module="etcd", package="go.etcd.io/etcd/server/v3"),
    GoProgram(
        name="victoria-logs",
        module="victoria-logs",
        package="github.com/VictoriaMetrics/VictoriaLogs/app/victoria-logs",
    ),
)

PYTHON_PROGRAMS = (PythonProgram(name="moto_server", folder="moto"),)
BUILT_PROGRAMS: tuple[GoProgram | PythonProgram, ...] = (*GO_PROGRAMS, *PYTHON_PROGRAMS)

# Program -> the Debian package that holds it.
DEBIAN_PROGRAMS = {
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "prometheus-alertmanager": "prometheus-alertmanager",
    "victoria-metrics": "victoria-metrics",
    "zsh": "zsh",
    "fish": "fish",
    "kubectl": "kubectl (the client of Kubernetes, from its release page)",
}


def find(name: str) -> Path:
    """The program of that name, or `MissingProgram` with what to do."""
    for program in BUILT_PROGRAMS:
        if program.name == name:
            if program.path.exists():
                return program.path
            raise MissingProgram(
                f"{name} is not built: install {program.needs} and run `make servers`"
            )
    if found := shutil.which(name):
        return Path(found)
    raise MissingProgram(f"{name} is not installed: apt-get install {DEBIAN_PROGRAMS[name]}")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file at `path`: one process at a time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build(program: GoProgram | PythonProgram) -> str:
    """Build one program unless it is there; one line that says what was done."""
    if program.path.exists():
        return f"{program.name}: there"
    began = time.monotonic()
    with locked(CACHE / "build.lock"):
        if program.path.exists():  # another process built it while this one waited
            return f"{program.name}: there"
        program.path.parent.mkdir(parents=True, exist_ok=True)
        program.make()
    return f"{program.name}: built in {time.monotonic() - began:.0f} s"
