"""Score the installed command over cases with known answers.

    python tests/score_cases.py DIR [--no-topology] [--only NAME] [--gpufleet CMD]

Every folder below DIR with a case.json is copied, without its answer, into a folder of a neutral
name; `gpufleet triage COPY -o json` (with `--as-of` where the case says when it was captured) runs
on the copy, and the truth is read from the original. Exit 1 when any case is answered wrongly.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from case_tools import Truth, answer_of_report, cases, copy_evidence, faults, shown

REACHED, UNDECIDABLE = 0, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One case, judged. `notes` are shown and not scored."""

    truth: Truth
    said: str
    wrong: tuple[str, ...]
    notes: tuple[str, ...]
    seconds: float


def command_line(given: str | None) -> list[str]:
    if given is not None:
        return shlex.split(given)
    beside = Path(sys.executable).parent / "gpufleet"
    found = str(beside) if beside.exists() else shutil.which("gpufleet")
    if found is None:
        raise SystemExit("gpufleet is not installed here; say --gpufleet CMD")
    return [found]


def score(truth: Truth, command: list[str], *, topology: bool) -> Score:
    with tempfile.TemporaryDirectory() as scratch:
        copy = copy_evidence(truth.folder, Path(scratch) / "incident-1", topology=topology)
        arguments = [*command, "triage", str(copy), "-o", "json"]
        if truth.captured_at is not None:
            arguments += ["--as-of", truth.captured_at]
        began = time.perf_counter()
        done = subprocess.run(
            arguments,
            capture_output=True,
            check=False,
            env={**os.environ, "GPUFLEET_NO_STATE": "1"},
        )
        seconds = time.perf_counter() - began
        wrong, said, notes = judge(truth, done, copy, topology=topology)
    return Score(truth=truth, said=said, wrong=wrong, notes=notes, seconds=seconds)


def judge(
    truth: Truth, done: subprocess.CompletedProcess[bytes], copy: Path, *, topology: bool
) -> tuple[tuple[str, ...], str, tuple[str, ...]]:
    if done.returncode not in (REACHED, UNDECIDABLE):
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        return (f"exit {done.returncode}: {''.join(last)[:150]}",), "-", ()
    try:
        report = json.loads(done.stdout)
        answer = answer_of_report(report)
    except (ValueError, KeyError, TypeError) as exc:
        return (f"no report on stdout: {type(exc).__name__}: {exc}",), "-", ()
    wrong = faults(truth, answer, topology=topology)
    if (answer.kind == "undecidable") != (done.returncode == UNDECIDABLE):
        wrong.append(f"exit {done.returncode} with verdict {answer.kind}")
    confidence = report["verdict"]["confidence"]
    said = f"{answer.kind} {shown(answer)} {answer.action} {confidence:.2f}"
    return tuple(wrong), said, (*fact_notes(truth, report), *quote_notes(truth, report, copy))


# --- Shown, not scored ----------------------------------------------------------------------------

FACT_KEYS = {
    "step_time_s": "step_seconds",
    "step_time_s_after": "step_seconds",
    "last_step": "last_step",
    "last_checkpoint_step": "last_checkpoint_step",
    "last_checkpoint_finished": "last_checkpoint_at",
}


def fact_notes(truth: Truth, report: Mapping[str, Any]) -> Iterator[str]:
    for key, wanted in truth.facts.items():
        if key in FACT_KEYS:
            had = report["job"].get(FACT_KEYS[key])
            if not _is_close(wanted, had):
                yield f"{key}: {had}, expected {wanted}"


def _is_close(wanted: object, had: object) -> bool:
    if isinstance(wanted, str) and isinstance(had, str):
        apart = datetime.fromisoformat(wanted) - datetime.fromisoformat(had)
        return abs(apart.total_seconds()) <= 1
    if isinstance(wanted, float) and isinstance(had, int | float):
        return abs(wanted - had) <= 0.05 * wanted
    return wanted == had


def quote_notes(truth: Truth, report: Mapping[str, Any], copy: Path) -> Iterator[str]:
    cited = [(item["claim"], item["source"] or "") for item in report["verdict"]["evidence"]]
    for file, contains in truth.evidence:
        if not any(_is_quote(file, contains, claim, source, copy) for claim, source in cited):
            yield f"not cited: {file}: {contains[:60]}"


def _is_quote(file: str, contains: str, claim: str, source: str, copy: Path) -> bool:
    path, _, line = source.rpartition(":")
    if not path.endswith(file):
        return False
    place = copy / path
    if contains in claim or not line.isdigit() or not place.is_file():
        return contains in claim
    lines = place.read_text(errors="replace").split("\n")
    return contains in "\n".join(lines[int(line) - 1 : int(line)])


# --- Output ---------------------------------------------------------------------------------------


def table(scores: list[Score], *, quiet: bool) -> Iterator[str]:
    width = max(len(score.truth.name) for score in scores)
    for one in scores:
        mark = "FAIL" if one.wrong else "pass"
        yield f"{mark}  {one.truth.name:<{width}}  {one.seconds:5.2f} s  {one.said}"
        yield from (f"        {fault}" for fault in one.wrong)
        if not quiet:
            yield from (f"        ({note})" for note in one.notes)
    right = sum(not score.wrong for score in scores)
    times = sorted(score.seconds for score in scores)
    yield (
        f"{right} of {len(scores)} right · median {times[len(times) // 2]:.2f} s, "
        f"slowest {times[-1]:.2f} s"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--no-topology", action="store_true", help="take topology.json away")
    parser.add_argument("--only", metavar="NAME", help="cases whose name holds or matches this")
    parser.add_argument("--gpufleet", metavar="CMD", help="the command to score")
    parser.add_argument("--quiet", action="store_true", help="leave out what is not scored")
    options = parser.parse_args()
    chosen = cases(options.folder)
    if options.only is not None:
        wanted = options.only
        chosen = [t for t in chosen if wanted in t.name or fnmatch(t.name, wanted)]
    if not chosen:
        parser.error(f"no case.json below {options.folder}")
    command = command_line(options.gpufleet)
    scores = [score(truth, command, topology=not options.no_topology) for truth in chosen]
    sys.stdout.write("\n".join(table(scores, quiet=options.quiet)) + "\n")
    return 1 if any(one.wrong for one in scores) else 0


if __name__ == "__main__":
    raise SystemExit(main())
