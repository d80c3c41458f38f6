"""How long TAB takes for a node's name, beside `kubectl __complete get pods`.

    python benchmarks/completion.py [--runs 50] [--nodes 10000] [--kubeconfig FILE] [--gpufleet PATH]

One run is what the shell does: its own bound function, which starts the program, waits for its end and
has the names. bash, zsh and fish, each where it is installed; a prefix that one node has, and one that
all have. Runs of all are interleaved, so that a machine that is busy for a while slows every one. kubectl
asks the server of --kubeconfig (a loopback one is fairest to it); without it, only ours is timed. Exit 1
when the median for one node's name is above kubectl's.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
FORMS = {
    "bash": (
        "source {root}/completions/gpufleet.bash; COMP_WORDS=(gpufleet node {prefix}); "
        "COMP_CWORD=2; _gpufleet_completion gpufleet; echo ${{#COMPREPLY[@]}}"
    ),
    "zsh": (
        "compdef() {{ :; }}; compadd() {{ shift; echo $#; }}; words=(gpufleet node {prefix}); "
        "CURRENT=3 PREFIX={prefix}; source {root}/completions/_gpufleet; _gpufleet_completion"
    ),
    "fish": (
        "source {root}/completions/gpufleet.fish; "
        "count (complete --do-complete 'gpufleet node {prefix}')"
    ),
}

# Without the user's own files, which would be timed too.
QUIET = {"bash": ("--norc",), "zsh": ("-f",), "fish": ("--no-config",)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One line of the table: what is run, and how many names it must give."""

    name: str
    command: tuple[str, ...]
    expected: str | None


def environment(scratch: Path, nodes: int, kubeconfig: str | None, program: str) -> dict[str, str]:
    """A shell's environment with a cache of so many nodes and our program first on PATH."""
    from gpufleet_cli import completion
    from gpufleet_cli.live import name_cache

    config = Path(kubeconfig) if kubeconfig else scratch / "config"
    if not kubeconfig:
        config.write_text("current-context: bench\n", encoding="utf-8")
    os.environ.update(XDG_CACHE_HOME=str(scratch / "cache"), KUBECONFIG=str(config))
    os.environ.pop("GPUFLEET_NO_STATE", None)
    context = completion.current_context(str(config), dict(os.environ))
    made = name_cache.Names(nodes=[f"gpu-node-{number:05}" for number in range(nodes)])
    name_cache.remember(SimpleNamespace(context=context), None, made, whole=name_cache.KINDS)  # type: ignore[arg-type]
    folder = scratch / "bin"
    folder.mkdir()
    (folder / "gpufleet").symlink_to(program)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


def seconds(timed: Timed, env: dict[str, str]) -> float:
    began = time.perf_counter()
    done = subprocess.run(timed.command, env=env, capture_output=True, text=True, check=False)
    took = time.perf_counter() - began
    if timed.expected is not None and done.stdout.strip() != timed.expected:
        raise SystemExit(f"{timed.name}: {done.stdout.strip()[:200]} {done.stderr.strip()[:200]}")
    return took


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    beside = Path(sys.executable).parent / "gpufleet"
    parser.add_argument(
        "--gpufleet", metavar="PATH", default=str(beside) if beside.exists() else None
    )
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--kubeconfig", metavar="FILE", help="where kubectl asks")
    options = parser.parse_args()
    program = options.gpufleet or shutil.which("gpufleet")
    if program is None:
        parser.error("gpufleet is not installed here; say --gpufleet PATH")
    rows = [
        Timed(
            name=f"{shell}, {count:,} of {options.nodes:,} names",
            command=(shell, *QUIET[shell], "-c", form.format(root=ROOT, prefix=prefix)),
            expected=str(count),
        )
        for shell, form in FORMS.items()
        if shutil.which(shell)
        for prefix, count in (("gpu-node-00417", 1), ("gpu-", options.nodes))
    ]
    if options.kubeconfig and shutil.which("kubectl"):
        command = ("bash", "-c", "out=$(kubectl __complete get pods ''); echo done")
        rows.append(Timed(name="kubectl __complete get pods", command=command, expected="done"))
    taken: dict[str, list[float]] = {row.name: [] for row in rows}
    with tempfile.TemporaryDirectory() as scratch:
        env = environment(Path(scratch), options.nodes, options.kubeconfig, program)
        for run in range(options.runs + 1):
            for row in rows:
                took = seconds(row, env)
                if run:  # the first fills caches
                    taken[row.name].append(took)
    medians = {}
    for name, times in taken.items():
        cuts = statistics.quantiles(times, n=10)
        medians[name] = statistics.median(times)
        sys.stdout.write(
            f"{name}: p50 {medians[name] * 1000:.0f} ms, p90 {cuts[8] * 1000:.0f} ms\n"
        )
    kubectl = medians.pop("kubectl __complete get pods", None)
    return (
        0
        if kubectl is None
        else int(any(t > kubectl for name, t in medians.items() if ", 1 of " in name))
    )


if __name__ == "__main__":
    raise SystemExit(main())
