"""The pipeline as one function: target -> facts -> case -> hypotheses -> verdict -> recommendation.

Each parser and rule is guarded: one that breaks costs its own part and leaves a Gap. With
`strict=True` (tests) nothing is swallowed. Nothing here touches the network, the clock or a terminal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from gpufleet_cli.bundle import Target, attempts_of, time_of, whole_of
from gpufleet_cli.facts import Fact, Gap, JobNumbers, Origin, ProcessStack, RankDump, Writes
from gpufleet_cli.guard import guarded
from gpufleet_cli.parsers.safe_pickle import no_collection
from gpufleet_cli.plain_text import is_name, visible
from gpufleet_cli.reason import Case
from gpufleet_cli.reason.build import build_case
from gpufleet_cli.reason.subject import job_view, rank_rows
from gpufleet_cli.reason.summary import Summary, Told, facts_of, merge, summarise
from gpufleet_cli.recommend import recommend
from gpufleet_cli.rules import RULES, Rule
from gpufleet_cli.verdict import (
    AttemptView,
    Claim,
    Culprit,
    Explanation,
    FileRead,
    HardwareEvent,
    Hypothesis,
    JobView,
    Kind,
    RankRow,
    Triage,
    Verdict,
)
from gpufleet_cli.weigh import error_lines, weigh

MOST_GROUPS = 4096
MOST_HARDWARE_EVENTS = 200
SHOWN_FRAMES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Inquiry:
    """An answer with what it was made of, for a report that shows more of it. `facts` are of all attempts.
    Places are spelled as they were read (`x.log` of `x.log.gz`); `with_file_names` puts that right."""

    triage: Triage
    case: Case
    chosen: Hypothesis | None
    facts: tuple[Fact, ...]


def triage_target(
    target: Target,
    numbers: JobNumbers,
    *,
    as_of_ns: int | None = None,
    strict: bool = False,
    told: Told | None = None,
) -> Triage:
    """Read a target and answer: who, what, what to do, at what price, and what was not seen.

    `told` is told of files as they are read.
    """
    found = inquire(target, numbers, as_of_ns=as_of_ns, strict=strict, told=told)
    return with_file_names(found.triage, file_names(target))


def inquire(
    target: Target,
    numbers: JobNumbers,
    *,
    as_of_ns: int | None = None,
    strict: bool = False,
    told: Told | None = None,
) -> Inquiry:
    """`triage_target`, with what the answer was made of."""
    with no_collection():  # no fact is in a cycle, and millions of them are looked through again
        facts, files = read_facts(target, strict=strict, told=told)
        return judge(target, [numbers, *facts], files, as_of_ns=as_of_ns, strict=strict)


def triage_summary(
    target: Target,
    summary: Summary,
    numbers: JobNumbers,
    *,
    as_of_ns: int | None = None,
    strict: bool = False,
) -> Triage:
    """The same answer from what the files said, wherever they were read."""
    with no_collection():
        facts, files = facts_of(summary, target.gaps)
        triage = decide(target, [numbers, *facts], files, as_of_ns=as_of_ns, strict=strict)
    return with_file_names(triage, {f.path: f.name for f in summary.files if f.name != f.path})


def read_facts(
    target: Target, *, strict: bool = False, told: Told | None = None
) -> tuple[list[Fact], tuple[FileRead, ...]]:
    """Every fact of every file, in the order of paths and parsers, and what each file gave."""
    summary = merge([summarise(target.evidences, strict=strict, told=told)])
    return facts_of(summary, target.gaps)


def decide(
    target: Target,
    facts: Sequence[Fact],
    files: tuple[FileRead, ...],
    *,
    as_of_ns: int | None,
    strict: bool,
) -> Triage:
    """From facts to the whole answer."""
    return judge(target, facts, files, as_of_ns=as_of_ns, strict=strict).triage


def judge(
    target: Target,
    facts: Sequence[Fact],
    files: tuple[FileRead, ...],
    *,
    as_of_ns: int | None,
    strict: bool,
) -> Inquiry:
    """From facts to the whole answer, with what it was made of."""
    case = build_case(
        facts,
        as_of_ns=as_of_ns,
        captured_ns=target.captured_ns,
        gathered_world_size=whole_of(target.manifest, "world_size"),
    )
    hypotheses: list[Hypothesis] = []
    broken: list[Gap] = []
    for rule in RULES:
        found = guarded(f"rule {rule.NAME}", partial(_propose, rule, case), strict=strict)
        if isinstance(found, Gap):
            broken.append(found)
        else:
            hypotheses.extend(found)
    verdict, chosen = weigh(case, hypotheses)
    advice = recommend(case, verdict, chosen, gathered_as=_gathered_as(target))
    if chosen is None and verdict.settle_command is None and advice.commands:
        verdict = replace(verdict, settle_command=advice.commands[0].run)
    errors = error_lines(case)
    view = job_view(case)
    if view.name is None and target.job is not None:
        view = replace(view, name=target.job, namespace=view.namespace or target.namespace)
    view = _with_group(_with_attempts(view, target), target)
    triage = Triage(
        target_kind=target.kind,
        target_name=target.name,
        target_namespace=target.namespace or view.namespace,
        as_of_ns=case.as_of_ns,
        job=view,
        verdict=verdict,
        hardware=_hardware(case, chosen),
        recommendation=advice,
        ranks=_with_stacks(rank_rows(case, verdict, errors), facts),
        dumps=None if case.graph is None else case.graph.report,
        missing=_missing(case, facts, broken, verdict.culprits),
        files=files,
    )
    return Inquiry(triage=triage, case=case, chosen=chosen, facts=tuple(facts))


_LABELS = re.compile(r"[A-Za-z0-9][A-Za-z0-9./_=,-]{0,400}", re.ASCII)


def _gathered_as(target: Target) -> str | None:
    """The job of a bundle as a command finds it again: by name, or plain pods by their labels."""
    told = target.manifest or {}
    name, space, labels = (told.get(key) for key in ("job", "namespace", "selector"))
    if not isinstance(space, str) or not is_name(space):
        return None
    if isinstance(told.get("kind"), str):
        return f"{name} -n {space}" if isinstance(name, str) and is_name(name) else None
    if isinstance(labels, str) and _LABELS.fullmatch(labels):
        return f"-l {labels} -n {space}"
    return None


def _with_attempts(view: JobView, target: Target) -> JobView:
    """The attempts that a bundle's manifest lists, and which of them this is."""
    listed = tuple(
        AttemptView(
            number=int(str(entry["attempt"])),
            state=visible(str(entry.get("state"))),
            started_ns=time_of(entry, "started_at"),
            ended_ns=time_of(entry, "ended_at"),
        )
        for entry in attempts_of(target.manifest)
    )
    own = None if target.manifest is None else target.manifest.get("attempt")
    number = own if type(own) is int and own >= 0 else view.attempt
    return replace(view, attempts=listed, attempt=number) if listed else view


def _with_group(view: JobView, target: Target) -> JobView:
    """Which group of several this is, and how the others were, by a bundle's manifest."""
    manifest = target.manifest or {}
    own, listed = manifest.get("group"), manifest.get("groups")
    if type(own) is not int or not isinstance(listed, list):
        return view
    groups = tuple(
        (one["group"], visible(str(one.get("state"))))
        for one in listed[:MOST_GROUPS]
        if isinstance(one, dict) and type(one.get("group")) is int
    )
    return replace(view, group=own, groups=groups)


def _with_stacks(rows: tuple[RankRow, ...], facts: Sequence[Fact]) -> tuple[RankRow, ...]:
    """Beside each rank whose process somebody looked into, where it was."""
    stacks = {fact.rank: fact for fact in facts if isinstance(fact, ProcessStack)}
    if not stacks:
        return rows
    return tuple(
        replace(one, note="; ".join(part for part in (one.note, _place(stacks[one.rank])) if part))
        if one.rank in stacks
        else one
        for one in rows
    )


def _place(stack: ProcessStack) -> str:
    inner = " < ".join(visible(frame)[:80] for frame in stack.frames[:SHOWN_FRAMES])
    return f"its main thread ({stack.state}) was in {inner}"


def _propose(rule: Rule, case: Case) -> list[Hypothesis]:
    return list(rule.propose(case))


def _cited(chosen: Hypothesis | None) -> Callable[[Origin, int | None], bool]:
    """Whether the chosen hypothesis speaks of the event of this origin and time.

    All codes of one gauge have one origin, its series: only the code of the claim's own time is meant, and
    a value that was there when the samples began has none, and is the cause of nothing (kubernetes 0.8).
    """
    cited: dict[Origin, set[int | None]] = {}
    for one in () if chosen is None else chosen.claims:
        if one.origin is not None:
            cited.setdefault(one.origin, set()).add(one.at_ns)

    def is_cited(origin: Origin, at_ns: int | None) -> bool:
        times = cited.get(origin, set())
        return at_ns is not None and (at_ns in times or times == {None})

    return is_cited


def _hardware(case: Case, chosen: Hypothesis | None) -> tuple[HardwareEvent, ...]:
    """Every XID and SXID with its role: the chosen cause, a consequence, or unrelated."""
    is_cited = _cited(chosen)
    causes = [
        p for p in case.xids if is_cited(p.event.origin, p.at_ns) and p.reading.role != "effect"
    ]
    since = min((p.at_ns for p in causes if p.at_ns is not None), default=case.onset_ns)
    nodes = {p.node for p in causes}
    found = []
    for placed in case.xids:
        follows = (
            placed.relevant
            and since is not None
            and placed.at_ns is not None
            and placed.at_ns >= since
            and (placed.node in nodes or placed.reading.role == "effect")
        )
        role = "cause" if placed in causes else "consequence" if follows else "unrelated"
        found.append(
            HardwareEvent(
                at_ns=placed.at_ns,
                node=placed.node,
                gpu=placed.event.pci_bus_id or placed.event.gpu_uuid,
                xid=placed.event.xid,
                meaning=placed.reading.summary,
                role=role,  # type: ignore[arg-type]
                origin=placed.event.origin,
            )
        )
    found.extend(
        HardwareEvent(
            at_ns=switch.at_ns,
            node=switch.node,
            gpu=switch.event.pci_bus_id,
            xid=None,
            meaning=f"SXid {switch.event.sxid}, {'Fatal' if switch.event.fatal else 'Non-fatal'}",
            role="cause"
            if is_cited(switch.event.origin, switch.at_ns)
            else "consequence"
            if switch.relevant and switch.node in nodes
            else "unrelated",
            origin=switch.event.origin,
        )
        for switch in case.sxids
    )
    return tuple(found[:MOST_HARDWARE_EVENTS])


def _missing(
    case: Case, facts: Sequence[Fact], broken: Sequence[Gap], culprits: Sequence[Culprit]
) -> tuple[Gap, ...]:
    """All gaps: what the parsers could not read, and what nobody collected."""
    found = [*case.gaps, *broken, *(() if case.graph is None else case.graph.gaps)]
    dumps = {fact.rank for fact in facts if isinstance(fact, RankDump)}
    unread = {gap.rank for gap in found if gap.rank is not None}
    if dumps:
        lacking = [r for r in case.world if r not in dumps and r not in unread]
        found.extend(_per_rank(lacking, "Flight Recorder dump", "no file", "what it last entered"))
    elif case.world:
        found.append(
            Gap(
                what="Flight Recorder dumps",
                why="none in the target",
                would_settle="which rank is behind in which collective",
            )
        )
    if any(isinstance(fact, Writes) for fact in facts):
        silent = [r for r in case.world if r not in case.silence]
        found.extend(
            _per_rank(silent, "log", "no line of it in the target", "its last sign of life")
        )
    found.extend(Gap(what="identity map", why=text) for text in case.topology.contradictions)
    homeless = [c.rank for c in culprits if c.rank is not None and c.node is None]
    if homeless:
        found.append(
            Gap(
                what=f"the node of rank {', '.join(map(str, homeless[:8]))}",
                why="no map, pod list or log names it",
                would_settle="which node to look at, and to cordon if it is to blame",
            )
        )
    unique = {(g.what, g.why, g.rank): g for g in found}
    return tuple(unique.values())


def _per_rank(ranks: Sequence[int], what: str, why: str, settles: str) -> Iterator[Gap]:
    """One gap a rank, or one for all when they are many."""
    if len(ranks) <= 16:
        for rank in ranks:
            yield Gap(what=f"{what} of rank {rank}", why=why, would_settle=settles, rank=rank)
        return
    shown = ", ".join(map(str, ranks[:8]))
    yield Gap(what=f"{what} of {len(ranks)} ranks ({shown}, ...)", why=why, would_settle=settles)


# --- Names of files ------------------------------------------------------------------------------


def file_names(target: Target) -> dict[str, str]:
    """How files are spelled on disk that were read under another name."""
    return {e.path: e.name for e in target.evidences if e.name != e.path}


def with_file_names(triage: Triage, names: Mapping[str, str]) -> Triage:
    """Every place spelled as it stands on disk: `x.log.gz` where `x.log` was read from it."""
    if not names:
        return triage

    def named(origin: Origin | None) -> Origin | None:
        if origin is None or origin.path not in names:
            return origin
        return replace(origin, path=names[origin.path])

    evidence = tuple(replace(c, origin=named(c.origin)) for c in triage.verdict.evidence)
    return replace(
        triage,
        verdict=replace(triage.verdict, evidence=evidence),
        hardware=tuple(replace(h, origin=named(h.origin)) for h in triage.hardware),
        ranks=tuple(replace(row, origin=named(row.origin)) for row in triage.ranks),
        files=tuple(replace(f, path=names.get(f.path, f.path)) for f in triage.files),
    )


# --- One rank ------------------------------------------------------------------------------------


def explain(triage: Triage, rank: int) -> Explanation:
    """Why this rank is, or is not, the culprit."""
    row = next((r for r in triage.ranks if r.rank == rank), None)
    standing = "unknown" if row is None else row.standing
    about = [c for c in triage.verdict.evidence if c.rank == rank]
    reasons = about or _reasons(triage.verdict, row)
    return Explanation(
        rank=rank,
        row=row,
        standing=standing,
        headline=_headline(triage.verdict, row, rank),
        reasons=tuple(reasons),
        would_change=_would_change(triage.verdict, standing),
    )


def _reasons(verdict: Verdict, row: RankRow | None) -> list[Claim]:
    if row is None:
        return []
    found = []
    if row.last_sign_ns is not None:
        found.append(
            Claim(
                text=f"its last ordinary line: {row.last_text[:120]}",
                origin=row.origin,
                weight=0.0,
                rank=row.rank,
                at_ns=row.last_sign_ns,
            )
        )
    witness = next((w for w in verdict.loudest if w.rank == row.rank), None)
    if witness is not None:
        found.append(
            Claim(text=witness.why_innocent, origin=row.origin, weight=-1.0, rank=row.rank)
        )
    return found


def _headline(verdict: Verdict, row: RankRow | None, rank: int) -> str:
    if row is None:
        return f"Rank {rank} is not a rank of this job, as far as the evidence tells."
    match row.standing:
        case "culprit":
            return f"Rank {rank} is a culprit: {verdict.summary}"
        case "suspect":
            return f"Rank {rank} is among those that the evidence leaves."
        case "witness":
            return f"Rank {rank} is innocent: it waited and its watchdog complained."
        case "stuck":
            return f"Rank {rank} is innocent: it was alive and waited."
        case "silent":
            return f"Rank {rank} fell silent, {_but(verdict)}"
        case "finished" | "running":
            return f"Nothing is wrong with rank {rank}."
        case "unknown":
            return f"Nothing is known of rank {rank}: no log of it is in the target."


def _but(verdict: Verdict) -> str:
    """Why silence alone makes this rank no culprit."""
    if verdict.kind is Kind.UNDECIDABLE:
        return "and so may others have: the evidence singles nobody out."
    if not verdict.culprits:
        return f"but no rank is to blame: {verdict.summary}"
    return "but others explain it better."


def _would_change(verdict: Verdict, standing: str) -> str:
    if verdict.kind is Kind.UNDECIDABLE and standing not in ("finished", "running"):
        settle = verdict.would_settle or "a log or dump that shows who waited for whom"
        return f"{settle} ({verdict.settle_command})" if verdict.settle_command else settle
    if standing in ("culprit", "suspect"):
        return verdict.would_settle or "a log or dump that shows it waiting on another rank"
    if verdict.kind is Kind.HEALTHY:
        return "a later error, or no further step"
    return "an own error, an XID on its GPU, or a counter behind its peers, before the others complained"
