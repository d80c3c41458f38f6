"""How long `gpufleet --help` and `gpufleet xid 79` take, as a ratio to an empty Typer app.

    python benchmarks/help_time.py [--runs 20] [--gpufleet PATH]

The empty app has one command that does nothing. Runs of both are interleaved, so that a machine
that is busy for a while slows both, and medians are compared: `--help` with the app's `--help`, a
command with the app's command. Then the modules that each imported are looked at. Exit 1 when a
ratio is over 1.5 or a module was imported that these two have no use for.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ALLOWED_RATIO = 1.5
NO_USE_FOR = ("kubernetes", "httpx", "yaml", "fsspec", "gpufleet_cli.parsers")
EMPTY_APP = """\
import typer

app = typer.Typer()


@app.command()
def nothing() -> None:
    pass


app()
"""
LIST_MODULES = """\
import atexit, runpy, sys
atexit.register(lambda: sys.stderr.write("\\n" + "\\n".join(sorted(sys.modules))))
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One command of ours and what it is compared with."""

    name: str
    ours: tuple[str, ...]
    empty: tuple[str, ...]


def seconds(command: tuple[str, ...]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def medians(comparison: Comparison, runs: int) -> tuple[float, float]:
    seconds(comparison.ours), seconds(comparison.empty)  # the first run of each fills caches
    pairs = [(seconds(comparison.ours), seconds(comparison.empty)) for _ in range(runs)]
    ours, empty = zip(*pairs, strict=True)
    return statistics.median(ours), statistics.median(empty)


def modules(script: str, arguments: tuple[str, ...]) -> list[str]:
    done = subprocess.run(
        (sys.executable, "-c", LIST_MODULES, script, *arguments),
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    return done.stderr.split()


def unwanted(names: list[str]) -> list[str]:
    roots = tuple(f"{root}." for root in NO_USE_FOR)
    return [name for name in names if name in NO_USE_FOR or name.startswith(roots)]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    beside = Path(sys.executable).parent / "gpufleet"
    default = str(beside) if beside.exists() else shutil.which("gpufleet")
    parser.add_argument("--gpufleet", metavar="PATH", default=default, help="the entry script")
    parser.add_argument("--runs", type=int, default=20)
    options = parser.parse_args()
    if options.gpufleet is None:
        parser.error("gpufleet is not installed here; say --gpufleet PATH")
    script, bad = str(options.gpufleet), False
    with tempfile.TemporaryDirectory() as scratch:
        empty = Path(scratch) / "empty.py"
        empty.write_text(EMPTY_APP)
        app = (sys.executable, str(empty))
        ours = (sys.executable, script)
        for comparison in (
            Comparison(name="--help", ours=(*ours, "--help"), empty=(*app, "--help")),
            Comparison(name="xid 79", ours=(*ours, "xid", "79"), empty=app),
        ):
            mine, bare = medians(comparison, options.runs)
            imported = modules(script, comparison.ours[2:])
            wrong = unwanted(imported)
            bad = bad or mine / bare > ALLOWED_RATIO or bool(wrong)
            sys.stdout.write(
                f"gpufleet {comparison.name}: {mine * 1000:.0f} ms, empty app {bare * 1000:.0f} ms, "
                f"ratio {mine / bare:.2f} (at most {ALLOWED_RATIO}); {len(imported)} modules, "
                f"of them unwanted: {', '.join(wrong) or 'none'}\n"
            )
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
