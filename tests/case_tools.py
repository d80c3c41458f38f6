"""Cases with known answers: finding them, copying them without the answer, judging a report.

`case.json` beside the evidence holds the truth; its keys are explained in fixtures/cases/*/README.md.
Used by score_cases.py (the installed command), test_cases.py and test_worlds.py (in process).
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpufleet_cli.verdict import Triage

ANSWER_FILES = ("case.json", "README.md")
STOPPING = frozenset({"cordon-at-checkpoint", "evict-now"})
# Cases where nothing but topology.json ties a rank to the GPU or node that the evidence names.
RANKS_ONLY_IN_TOPOLOGY = frozenset(
    {"63-pending-remap", "79-with-43-45-on-innocents", "sticky-gauge"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What is true of one case. `culprits` None: nobody may be named."""

    name: str
    folder: Path
    kinds: frozenset[str]
    culprits: frozenset[int] | None
    acceptable: tuple[frozenset[int], ...]
    nodes: frozenset[str]
    by_node: bool
    innocent: frozenset[int]
    not_a_single_rank: bool
    actions: frozenset[str] | None
    recommend: str
    must_report: frozenset[int]
    captured_at: str | None
    facts: Mapping[str, Any]
    evidence: tuple[tuple[str, str], ...]

    @property
    def captured_ns(self) -> int | None:
        if self.captured_at is None:
            return None
        whole, _, fraction = self.captured_at.rstrip("Z").partition(".")
        seconds = int(datetime.fromisoformat(whole + "+00:00").timestamp())
        return seconds * 10**9 + int(fraction.ljust(9, "0") or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a report said, of that what is judged. `named` are (rank, node) of the culprits."""

    kind: str
    named: tuple[tuple[int | None, str | None], ...]
    action: str
    missing: tuple[str, ...]

    @property
    def ranks(self) -> frozenset[int]:
        return frozenset(rank for rank, _ in self.named if rank is not None)


def cases(root: Path) -> list[Truth]:
    """Every folder with a case.json below a folder, by name."""
    found = sorted(path.parent for path in root.rglob("case.json"))
    return [read_truth(folder, folder.relative_to(root).as_posix()) for folder in found]


def read_truth(folder: Path, name: str) -> Truth:
    case = json.loads((folder / "case.json").read_text())
    expected = case["expected"]
    culprits = expected["culprit_ranks"]
    actions = expected.get("acceptable_actions")
    fault = case.get("fault") or {}
    reported = (expected.get(f"must_report_{why}") or () for why in ("unreadable", "stale"))
    return Truth(
        name=name,
        folder=folder,
        kinds=frozenset((expected["verdict"], *expected.get("acceptable_verdicts", ()))),
        culprits=None if culprits is None else frozenset(culprits),
        acceptable=tuple(frozenset(s) for s in expected.get("acceptable_culprits") or ()),
        nodes=frozenset(expected.get("culprit_nodes") or fault.get("culprit_nodes") or ()),
        by_node=expected.get("culprit_match") == "node",
        innocent=frozenset(expected.get("must_not_blame") or ()),
        not_a_single_rank=bool(expected.get("must_not_name_a_single_rank")),
        actions=None if actions is None else frozenset(actions),
        recommend=expected.get("recommend") or "",
        must_report=frozenset(rank for ranks in reported for rank in ranks),
        captured_at=case.get("captured_at"),
        facts=expected.get("facts") or {},
        evidence=_quotes(expected.get("evidence")),
    )


def _quotes(evidence: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(evidence, list):
        return ()  # some cases say it in words
    return tuple((item["file"], item["contains"]) for item in evidence)


def copy_evidence(folder: Path, to: Path, *, topology: bool = True) -> Path:
    """Copy a case without its answer (and without topology.json, when asked)."""
    left_out = {folder / name for name in ANSWER_FILES}
    if not topology:
        left_out |= set(folder.rglob("topology.json"))

    def ignore(where: str, names: list[str]) -> list[str]:
        return [name for name in names if Path(where) / name in left_out]

    shutil.copytree(folder, to, ignore=ignore)
    return to


# --- Judging --------------------------------------------------------------------------------------


def faults(truth: Truth, answer: Answer, *, topology: bool = True) -> list[str]:
    """What is wrong with an answer; empty when it is right.

    Without topology.json the culprits must still be right wherever the logs carry the ranks, and
    nobody innocent may be named; kind and action may be less sure.
    """
    wrong = _culprit_faults(truth, answer, strict=topology)
    wrong += _blame_faults(truth, answer)
    if topology:
        if answer.kind not in truth.kinds:
            wrong.append(f"kind {answer.kind}, not {' or '.join(sorted(truth.kinds))}")
        wrong += _action_faults(truth, answer)
        wrong += [
            f"dump of rank {rank} not named in missing_evidence"
            for rank in sorted(truth.must_report)
            if not any(_speaks_of_dump(text, rank) for text in answer.missing)
        ]
    return wrong


def _culprit_faults(truth: Truth, answer: Answer, *, strict: bool) -> list[str]:
    if truth.culprits is None:
        several = truth.not_a_single_rank and len(answer.ranks) > 1
        return [] if several or not answer.named else [f"named {shown(answer)}, should name nobody"]
    if answer.named and truth.by_node and _is_the_node(truth, answer):
        return []
    exact = all(rank is not None for rank, _ in answer.named)
    if exact and answer.ranks in (truth.culprits, *truth.acceptable):
        return []
    if not strict and truth.folder.name in RANKS_ONLY_IN_TOPOLOGY and _is_the_node(truth, answer):
        return []
    return [f"named {shown(answer)}, not {sorted(truth.culprits)}"]


def _is_the_node(truth: Truth, answer: Answer) -> bool:
    """Every entry is one of the true ranks, or the true node without a rank."""
    assert truth.culprits is not None
    return all(
        node in truth.nodes if rank is None else rank in truth.culprits
        for rank, node in answer.named
    )


def _blame_faults(truth: Truth, answer: Answer) -> list[str]:
    blamed = sorted(answer.ranks & truth.innocent)
    return [f"blamed innocent {blamed}"] if blamed else []


def _action_faults(truth: Truth, answer: Answer) -> list[str]:
    if truth.actions is not None:
        if answer.action in truth.actions:
            return []
        return [f"action {answer.action}, not {' or '.join(sorted(truth.actions))}"]
    words = truth.recommend.lower()
    if "no cordon" in words or words.startswith(("none", "fix", "collect")):
        right = answer.action not in STOPPING
    elif re.search(r"cordon|evict|drain|reboot", words):
        right = answer.action in STOPPING
    else:
        right = True
    return [] if right else [f"action {answer.action}, but: {truth.recommend}"]


def _speaks_of_dump(text: str, rank: int) -> bool:
    names_it = re.search(rf"(?<!\d){rank}(?!\d)", text) is not None
    return names_it and re.search(r"dump|recorder|trace", text) is not None


def shown(answer: Answer) -> str:
    if not answer.named:
        return "nobody"
    return str([f"node {node}" if rank is None else rank for rank, node in answer.named])


def answer_of_triage(triage: Triage) -> Answer:
    """From the object that the pipeline returns."""
    return Answer(
        kind=triage.verdict.kind.value,
        named=tuple((c.rank, c.node) for c in triage.verdict.culprits),
        action=triage.recommendation.action.value,
        missing=tuple(f"{gap.what} {gap.why}" for gap in triage.missing),
    )


def answer_of_report(report: Mapping[str, Any]) -> Answer:
    """From `triage -o json`."""
    verdict = report["verdict"]
    return Answer(
        kind=verdict["kind"],
        named=tuple((c["rank"], c.get("node")) for c in verdict["culprits"]),
        action=report["recommendation"]["action"],
        missing=tuple(f"{gap['what']} {gap['why']}" for gap in report["missing_evidence"]),
    )


# --- Evidence as a dict ---------------------------------------------------------------------------

Files = dict[str, bytes]


def load(folder: Path) -> Files:
    """The evidence of a case by path, without its answer."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path not in {folder / name for name in ANSWER_FILES}
    }


def store(files: Mapping[str, bytes], to: Path, *, order: Iterable[str] | None = None) -> Path:
    """Write evidence into a fresh folder, in the given order of creation."""
    for name in order if order is not None else files:
        path = to / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(files[name])
    return to
