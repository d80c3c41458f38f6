"""How often the right one is named: many made incidents with a known truth, judged.

    python benchmarks/accuracy.py [--ranks 64] [--worlds 200] [--classes a,b] [--lost 0,0.05,0.2]
        [--seeds-from 0] [--processes 2] [--baselines] [--json FILE] [--markdown docs/accuracy.md]
    python benchmarks/accuracy.py --worlds 20 --dump-wrong FOLDER     wrong worlds, to look at
    python benchmarks/accuracy.py --show gpu-stall:17[:0.05]          one world: report and truth

The world of a seed (they count from `--seeds-from`; `world.make` hashes them with the class) loses the
share `lost[seed % len(lost)]` of its dumps. Seeds from 0 are for reporting; whoever changes rules or
weights by what goes wrong here looks at 1,000,000 and up.

Each world is written to a folder and triaged as `gpufleet triage FOLDER --as-of ...` does it, in
this process: dumps, which the program reads in a process of its own because a stranger's pickle may
be hostile, are read in place, since these are ours. Prints tables with the worst classes first.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import shlex
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

import accuracy_baselines as baselines  # noqa: E402 - beside this file
import accuracy_tables as tables  # noqa: E402

from gpufleet_cli import bundle, triage  # noqa: E402
from gpufleet_cli.facts import JobNumbers  # noqa: E402
from gpufleet_cli.operate.simulate.judge import (  # noqa: E402
    Judged,
    has_culprits,
    judge,
    suspects,
)
from gpufleet_cli.operate.simulate.story import Class  # noqa: E402
from gpufleet_cli.operate.simulate.truth import Truth  # noqa: E402
from gpufleet_cli.parsers import flight_recorder  # noqa: E402
from gpufleet_cli.parsers.registry import PARSERS, Parser  # noqa: E402
from gpufleet_cli.reason import summary  # noqa: E402
from gpufleet_cli.verdict import Kind, Triage  # noqa: E402

WORLDS_PER_PROCESS = 250
MOST_SHOWN = 12
Files = Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One world to make."""

    cls: Class
    seed: int
    lost: float
    size: int

    @property
    def name(self) -> str:
        return f"{self.cls}:{self.seed}:{self.lost:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is done with each world."""

    baselines: bool = False
    analyser: str | None = None
    wrong_to: Path | None = None
    strict: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one world. `judged` is None where making or judging it broke (`broken`).

    `rules`: for each baseline whether it was right, of those that were run.
    """

    plan: Plan
    decided: bool = False
    guilty: bool = False
    judged: Judged | None = None
    said: str = ""
    truth: str = ""
    rules: Mapping[str, bool] = field(default_factory=dict)
    broken: str = ""


# --- One world -----------------------------------------------------------------------------------


def make(plan: Plan) -> tuple[Files, Truth]:
    from gpufleet_cli.operate.simulate import world

    made = world.make(plan.cls, seed=plan.seed, size=plan.size, lost=plan.lost)
    return made.files, made.truth


def read_dumps_here() -> None:
    """Without `parse_many` the pipeline reads one dump after the other in this process."""
    in_place = SimpleNamespace(
        __name__=flight_recorder.__name__,
        matches=flight_recorder.matches,
        parse=flight_recorder.parse,
    )
    summary.PARSERS = tuple(
        cast(Parser, in_place) if parser is flight_recorder else parser for parser in PARSERS
    )


def store(files: Files, to: Path) -> Path:
    for name, content in files.items():
        path = to / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return to


def scratch() -> str | None:
    """Memory where there is some, else the usual place for temporary files."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def answer(folder: Path, truth: Truth, *, strict: bool) -> Triage:
    target = bundle.read_target(folder)
    numbers = JobNumbers(source="flag")
    return triage.triage_target(target, numbers, as_of_ns=truth.as_of_ns, strict=strict)


def run_one(plan: Plan, options: Options) -> Outcome:
    """Make, triage and judge; whatever breaks costs this world alone."""
    try:
        return _run_one(plan, options)
    except Exception:
        if options.strict:
            raise
        return Outcome(plan=plan, broken=traceback.format_exc(limit=-4))


def _run_one(plan: Plan, options: Options) -> Outcome:
    files, truth = make(plan)
    with tempfile.TemporaryDirectory(prefix="accuracy-", dir=scratch()) as place:
        folder = store(files, Path(place) / "world")
        found = answer(folder, truth, strict=options.strict)
        named = (
            baselines.named(files, folder, size=plan.size, analyser=options.analyser)
            if options.baselines
            else {}
        )
    judged = judge(truth, found)
    outcome = Outcome(
        plan=plan,
        decided=truth.decided,
        guilty=has_culprits(truth),
        judged=judged,
        said=said_words(found),
        truth=truth_words(truth),
        rules={rule: baseline_right(truth, rank) for rule, rank in named.items()},
    )
    if options.wrong_to is not None and not judged.right:
        keep_wrong(options.wrong_to, files, truth, outcome)
    return outcome


def baseline_right(truth: Truth, rank: int | None) -> bool:
    """A guilty rank, whatever the kind; nobody, where nobody is to blame."""
    if has_culprits(truth):
        return rank in truth.culprits
    return rank is None or rank in truth.may_name


def keep_wrong(to: Path, files: Files, truth: Truth, outcome: Outcome) -> None:
    """The evidence in a folder of its own, and the truth beside it."""
    folder = to / outcome.plan.name.replace(":", "-")
    shutil.rmtree(folder, ignore_errors=True)
    store(files, folder / "evidence")
    known = {**truth_fields(truth), "world": outcome.plan.name, "said": outcome.said}
    (folder / "truth.json").write_text(json.dumps(known, indent=2) + "\n")


# --- In words ------------------------------------------------------------------------------------


def ranks_words(ranks: Sequence[int]) -> str:
    """Sorted, runs joined, cut."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    shown = [f"{a}" if a == b else f"{a}-{b}" for a, b in runs[:MOST_SHOWN]]
    return "{" + ",".join(shown + (["..."] if len(runs) > MOST_SHOWN else [])) + "}"


def said_words(found: Triage) -> str:
    verdict = found.verdict
    action = found.recommendation.action
    if verdict.kind is Kind.UNDECIDABLE:
        left = suspects(verdict)
        kind = f"({verdict.alternatives[0].kind})" if verdict.alternatives else ""
        who = f"one of {len(left)} {ranks_words(sorted(left))}{kind}"
    else:
        ranks = [c.rank for c in verdict.culprits if c.rank is not None]
        nodes = sorted({c.node for c in verdict.culprits if c.rank is None and c.node})
        who = ranks_words(ranks) + ("@" + ",".join(nodes) if nodes else "")
    return f"{verdict.kind} {who} {verdict.confidence:.2f} {action}"


def truth_words(truth: Truth) -> str:
    kinds = "|".join(sorted(truth.kinds))
    node = "@" + ",".join(sorted(truth.nodes)) if truth.nodes else ""
    told = "" if truth.told is None else f" told {ranks_words(sorted(truth.told))}"
    decided = "decided" if truth.decided else "undecided"
    by_node = " by-node" if truth.by_node else ""
    return f"{kinds} {ranks_words(sorted(truth.culprits))}{node} {decided}{by_node}{told}"


def truth_fields(truth: Truth) -> dict[str, Any]:
    return {
        "class": str(truth.cls),
        "seed": truth.seed,
        "size": truth.size,
        "lost": truth.lost,
        "kinds": sorted(truth.kinds),
        "culprits": sorted(truth.culprits),
        "nodes": sorted(truth.nodes),
        "by_node": truth.by_node,
        "may_name": sorted(truth.may_name),
        "told": None if truth.told is None else sorted(truth.told),
        "decided": truth.decided,
        "settle": truth.settle,
        "side": truth.side,
        "stopped": truth.stopped,
        "as_of_ns": truth.as_of_ns,
        "summary": truth.summary,
    }


# --- Many worlds ---------------------------------------------------------------------------------


def plans(arguments: argparse.Namespace) -> list[Plan]:
    """All classes in turn, so that a run that is stopped has seen something of each."""
    return [
        Plan(cls=cls, seed=seed, lost=lost_of(seed, arguments.lost), size=arguments.ranks)
        for seed in range(arguments.seeds_from, arguments.seeds_from + arguments.worlds)
        for cls in arguments.classes
    ]


def lost_of(seed: int, lost: Sequence[float]) -> float:
    return lost[seed % len(lost)]


def run_all(todo: Sequence[Plan], options: Options, *, processes: int) -> Iterator[Outcome]:
    """In the order of the plans; a process is replaced now and then, so that memory stays bounded."""
    work = partial(run_one, options=options)
    if processes == 1:
        read_dumps_here()
        yield from map(work, todo)
        return
    context = multiprocessing.get_context("forkserver")
    with context.Pool(processes, read_dumps_here, maxtasksperchild=WORLDS_PER_PROCESS) as pool:
        yield from pool.imap(work, todo)


def progress(done: int, total: int) -> None:
    if sys.stderr.isatty() and (done % 10 == 0 or done == total):
        print(f"\r{done} of {total} worlds", end="\n" if done == total else "", file=sys.stderr)


def wrong_line(outcome: Outcome) -> str:
    plan = outcome.plan
    head = f"{plan.cls} {plan.seed} {plan.lost:g}"
    if outcome.judged is None:
        return f"{head}  BROKEN: {outcome.broken.strip().splitlines()[-1]}"
    return f"{head}  said {outcome.said}  truth {outcome.truth}"


def show(text: str, arguments: argparse.Namespace) -> None:
    """One world as a person would see it, and the truth."""
    from gpufleet_cli.render import render
    from gpufleet_cli.render.layout import Look

    name, seed, *rest = text.split(":")
    lost = float(rest[0]) if rest else lost_of(int(seed), arguments.lost)
    plan = Plan(cls=Class(name), seed=int(seed), lost=lost, size=arguments.ranks)
    files, truth = make(plan)
    read_dumps_here()
    with tempfile.TemporaryDirectory(prefix="accuracy-", dir=scratch()) as place:
        found = answer(store(files, Path(place) / "world"), truth, strict=True)
    print(render(found, "text", Look(verbose=arguments.verbose)))
    for path in sorted(files):
        print(f"{len(files[path]):>10,}  {path}")
    judged = judge(truth, found)
    print(f"\n{json.dumps(truth_fields(truth), indent=2)}\n")
    print(f"world  {plan.name}\nsaid   {said_words(found)}\ntruth  {truth_words(truth)}")
    print(f"right  {judged.right}\n{judged}")


# --- The command ---------------------------------------------------------------------------------


def parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, default=64, help="a power of two from 8")
    parser.add_argument("--worlds", type=int, default=200, help="of each class")
    parser.add_argument("--classes", default=",".join(Class), help="default: all")
    parser.add_argument("--lost", default="0,0.05,0.2", help="shares of dumps that are lost")
    parser.add_argument("--seeds-from", type=int, default=0, help="seed of the first world")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--baselines", action="store_true", help="short rules on the same worlds")
    parser.add_argument(
        "--torch-python", default=sys.executable, help="a Python that has torch, for its analyser"
    )
    parser.add_argument("--json", type=Path, help="all results, and a row for each world")
    parser.add_argument("--markdown", type=Path, help="the page; what stands by hand in it is kept")
    parser.add_argument("--list-wrong", action="store_true", help="a line for each wrong world")
    parser.add_argument("--dump-wrong", type=Path, help="the same, and their files into a folder")
    parser.add_argument("--strict", action="store_true", help="stop at the first fault of ours")
    parser.add_argument("--show", metavar="CLASS:SEED[:LOST]", help="one world, nothing else")
    parser.add_argument("-v", "--verbose", action="store_true", help="with --show: all evidence")
    arguments = parser.parse_args(argv)
    try:
        arguments.classes = [Class(name) for name in arguments.classes.split(",") if name]
        arguments.lost = [float(share) for share in arguments.lost.split(",")]
    except ValueError as exc:
        parser.error(str(exc))
    return arguments


def command(arguments: argparse.Namespace) -> str:
    """What reproduces this run."""
    parts = ["python", "benchmarks/accuracy.py", "--ranks", arguments.ranks]
    parts += ["--worlds", arguments.worlds, "--lost", ",".join(f"{x:g}" for x in arguments.lost)]
    parts += ["--seeds-from", arguments.seeds_from]
    if len(arguments.classes) < len(Class):
        parts += ["--classes", ",".join(arguments.classes)]
    if arguments.baselines:
        parts.append("--baselines")
    return shlex.join(map(str, parts))


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parsed(argv)
    if arguments.show:
        show(arguments.show, arguments)
        return 0
    analyser = baselines.analyser_of(arguments.torch_python) if arguments.baselines else None
    if arguments.baselines and analyser is None:
        print("PyTorch's analyser: skipped, torch is not installed (--torch-python)\n")
    options = Options(
        baselines=arguments.baselines,
        analyser=analyser,
        wrong_to=arguments.dump_wrong,
        strict=arguments.strict,
    )
    todo = plans(arguments)
    outcomes = []
    for outcome in run_all(todo, options, processes=arguments.processes):
        outcomes.append(outcome)
        progress(len(outcomes), len(todo))
        is_wrong = outcome.judged is None or not outcome.judged.right
        if is_wrong and (arguments.list_wrong or arguments.dump_wrong):
            print(wrong_line(outcome), flush=True)
    results = tables.results(outcomes, lost=arguments.lost, command=command(arguments))
    print(tables.text(results))
    if arguments.json:
        arguments.json.write_text(json.dumps(tables.document(results, outcomes), indent=1) + "\n")
    if arguments.markdown:
        tables.write_page(arguments.markdown, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
