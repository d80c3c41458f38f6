"""TAB in real shells: typed into bash and zsh as a person types, asked of fish's own engine."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from completion_names import ROOT, keep, script
from servers.fixtures import require

SHELLS = ("bash", "zsh", "fish")
CASES = {
    "gpufleet node cpu": ["cpu-1"],
    "gpufleet node gpu-": ["gpu-node-2", "gpu-node-10"],
    "gpufleet triage train-run-": ["train-run-7", "train-run-8"],
    "gpufleet triage --namespace=kube": ["kube-system"],
    "gpufleet collect -n kube": ["kube-system"],
    "gpufleet --context arn": ["arn:aws:eks:us-east-1:1:cluster/a"],
    "gpufleet explain x --rank 1": ["10", "11"],
    "gpufleet xid 14": ["140", "149"],
    "gpufleet triage -o mark": ["markdown"],
    "gpufleet triage x --state stal": ["stalled"],
    "gpufleet tri": ["triage"],
    "gpufleet triage --sav": ["--save"],
    "gpufleet cache ref": ["refresh"],
}
SETUP = {
    "bash": "PS1='ready> '; bind 'set enable-bracketed-paste off'; bind 'set page-completions off'; "
    "bind 'set show-all-if-ambiguous on'; "
    "source {root}/completions/gpufleet.bash",
    "zsh": "PS1='ready> '; unsetopt menu_complete auto_menu; fpath=({root}/completions $fpath); "
    "autoload -Uz compinit; compinit -u -d {scratch}/dump",
}


class Terminal:
    """A shell in a terminal: what is typed goes in, what stands on the screen comes out."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def shows(self, *expected: str, within_s: float = 60.0) -> str:
        """All that came until each of these was there, or the time was over."""
        seen, end = "", time.monotonic() + within_s
        while time.monotonic() < end and not all(one in seen for one in expected):
            if select.select([self._descriptor], [], [], 0.2)[0]:
                seen += os.read(self._descriptor, 65_536).decode("utf-8", "replace")
        return seen


@contextmanager
def terminal(name: str, environment: dict[str, str], scratch: Path) -> Iterator[Terminal]:
    """An interactive shell with our completion set up, ended with the test."""
    program = shutil.which(name)
    assert program is not None
    command = {"bash": [program, "--norc", "-i"], "zsh": [program, "-f", "-i"]}[name]
    child, descriptor = pty.fork()
    if child == 0:
        os.execve(program, command, {**environment, "TERM": "dumb"})
    try:
        made = Terminal(descriptor)
        made.type(SETUP[name].format(root=ROOT, scratch=scratch) + "; echo set up\\!\n")
        assert "set up!" in made.shows("set up!")
        yield made
    finally:
        os.close(descriptor)  # the shell hangs up
        os.waitpid(child, 0)


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """Kept names, and our programs first on PATH."""
    kept = keep(monkeypatch, tmp_path)
    for name, function in (
        ("gpufleet", "main"),
        ("kubectl-gpufleet", "main"),
        ("kubectl_complete-gpufleet", "complete_for_kubectl"),
    ):
        script(tmp_path / "bin" / name, function)
    return {**kept, "PATH": f"{tmp_path / 'bin'}:{kept['PATH']}"}


def fish(environment: dict[str, str], setup: str, line: str) -> list[str]:
    """What fish offers at the end of a line."""
    asked = f"{setup}; complete --do-complete '{line}'"
    done = subprocess.run(
        ["fish", "--no-config", "-c", asked],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return [one.partition("\t")[0] for one in done.stdout.splitlines()]


@pytest.mark.parametrize("name", ["bash", "zsh"])
def test_what_is_typed_is_completed(name: str, environment: dict[str, str], tmp_path: Path) -> None:
    """From the first TAB on, in each place where a name, a value, a command or an option can stand."""
    require(*((name,) if name != "bash" else ()))
    with terminal(name, environment, tmp_path) as typed:
        for line, expected in CASES.items():
            typed.type(f"{line}\t\t")
            shown = typed.shows(*expected)
            assert [one for one in expected if one in shown] == expected, (line, shown)
            typed.type("\x15")  # the line is taken away
            typed.type("echo 'next'$((1 + 1))\n")
            assert "next2" in typed.shows("next2")


def test_fish_offers_them(environment: dict[str, str]) -> None:
    """By its own engine, which runs our function."""
    require("fish")
    setup = f"source {ROOT}/completions/gpufleet.fish"
    for line, expected in CASES.items():
        found = fish(environment, setup, line)
        assert set(expected) <= {one.rpartition("=")[2] for one in found}, (line, found)


def test_fish_offers_files_where_they_can_stand(
    environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A target may be either; a node is no file."""
    require("fish")
    (tmp_path / "train-logs").mkdir()
    monkeypatch.chdir(tmp_path)
    setup = f"source {ROOT}/completions/gpufleet.fish"
    assert {"train-run-7", "train-run-8", "train-logs/"} == set(
        fish(environment, setup, "gpufleet triage train-")
    )
    assert ["cpu-1"] == fish(environment, setup, "gpufleet node cpu")


@pytest.mark.parametrize("name", ["zsh", "fish"])
def test_kubectl_completes_it_too(name: str, environment: dict[str, str], tmp_path: Path) -> None:
    """`kubectl gpufleet node <TAB>` by kubectl's own script for the shell."""
    require(name, "kubectl")
    made = subprocess.run(
        ["kubectl", "completion", name], capture_output=True, text=True, check=True
    )
    place = tmp_path / "kubectl-completion"
    place.write_text(made.stdout, encoding="utf-8")
    if name == "fish":
        found = fish(environment, f"source {place}", "kubectl gpufleet node gpu-")
        assert {"gpu-node-2", "gpu-node-10"} <= set(found)
        return
    with terminal(name, environment, tmp_path) as typed:
        typed.type(f"source {place}; echo 'next'$((1 + 1))\n")
        assert "next2" in typed.shows("next2")
        typed.type("kubectl gpufleet node gpu-\t\t")
        assert "gpu-node-10" in typed.shows("gpu-node-2", "gpu-node-10")


def test_a_shell_reads_its_script_without_a_complaint(environment: dict[str, str]) -> None:
    """As it is installed."""
    for name, file in (("zsh", "_gpufleet"), ("fish", "gpufleet.fish")):
        if shutil.which(name) is not None:
            command = [name, "-n", str(ROOT / "completions" / file)]
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=False
            )
            assert (0, "") == (done.returncode, done.stderr)
