"""What Slurm's own commands say: scontrol show job/step/node, sacct, squeue, sinfo, and their JSON.

    JobId=418822 JobName=train
       JobState=NODE_FAIL Reason=NodeFail Dependency=(null)
       StartTime=2025-02-18T01:00:05 EndTime=2025-02-18T04:22:55 Deadline=N/A
       NodeList=gpu-[001-128] BatchHost=gpu-001 NumTasks=1024        (one line with scontrol -o)

    JobID|JobName|State|ExitCode|NodeList                            (sacct -P)
    418822|train|CANCELLED by 1000|0:9|gpu-[001-128]

    REASON               USER      TIMESTAMP           NODELIST      (sinfo -R)
    Xid 79               root      2025-02-18T04:30:00 gpu-017

Slurm 20.11 to 24.11; https://slurm.schedmd.com/scontrol.html. Times are local to the cluster and
carry no zone. State words are Slurm's own; `0:9` is exit code and signal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import zip_longest

from gpufleet_cli import timestamps
from gpufleet_cli.bundle import Evidence
from gpufleet_cli.errors import ParseError
from gpufleet_cli.facts import Fact, Gap, Origin, SchedulerJob, SchedulerNode
from gpufleet_cli.parsers import slurm_json
from gpufleet_cli.parsers.host_list import expand_host_list
from gpufleet_cli.parsers.slurm_states import ENDED, SHORT, STATES

LINE_CHARS = 65_536
MOST_NODES = 100_000
MOST_NAMES = 2_000_000

_NOTHING = frozenset({"", "(null)", "N/A", "None", "Unknown", "NONE", "none", "0:00"})

_WORDS = (b"JobId=", b"StepId=", b"NodeName=")
_RECORD = re.compile(rb"^(?:JobId|StepId|NodeName)=\S", re.MULTILINE)
_HEADER = re.compile(
    r"^\s{0,30}(?:JobID(?:Raw)?[|\s]|.{0,200}\|JobID(?:Raw)?\||JOBID\s.{0,200}\bST(?:ATE)?\b"
    r"|REASON\s+USER\s+TIMESTAMP\s+NODELIST|PARTITION\s+AVAIL\s.{0,80}\bNODELIST"
    r"|NODELIST\s.{0,80}\bSTATE\b)"
)
_KEY = re.compile(r"(?:^|\s)([A-Z][A-Za-z0-9_/:]{1,40})=")
_SET_BY = re.compile(
    r"\s?\[(?P<by>[^\[\]@]{1,64})@(?P<at>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\]\s{0,4}$"
)
_REASON_ROW = re.compile(
    r"^(?P<reason>.{1,200}?)\s+(?P<user>\S{1,64})\s+(?P<at>\d{4}-\d\d-\d\dT\S{8,16}|Unknown)\s+"
    r"(?P<nodes>\S{1,60000})\s{0,8}$"
)


def matches(path: str, head: bytes) -> bool:
    """By the first words of the first lines."""
    if slurm_json.matches(head):
        return True
    start = head[:8192]
    if any(word in start for word in _WORDS) and _RECORD.search(start) is not None:
        return True
    few = b"\n".join(start.split(b"\n", 5)[:5])  # to find line ends in text is slow
    lines = few.decode("utf-8", "replace").splitlines()[:5]
    return any(_HEADER.match(line) for line in lines)


def parse(evidence: Evidence) -> Iterator[Fact]:
    """Jobs, steps and nodes; a host list that cannot be read is a Gap."""
    names = 0
    for fact in _facts(evidence.read(), evidence.path):
        names += len(fact.nodes) if isinstance(fact, SchedulerJob) else 1
        if names > MOST_NAMES:
            raise ParseError(f"the lists of one file name over {MOST_NAMES:,} hosts")
        yield fact


def _facts(data: bytes, path: str) -> Iterator[Fact]:
    if slurm_json.matches(data[:65_536]):
        yield from slurm_json.parse(data, path)
        return
    lines = data.decode("utf-8", "replace").splitlines()
    if any(_HEADER.match(line) for line in lines[:5]):
        yield from _table(lines, path)
    else:
        yield from _records(lines, path)


# --- scontrol show ------------------------------------------------------------------------------


def _records(lines: list[str], path: str) -> Iterator[Fact]:
    """A record runs from its first key to the next record."""
    record: list[str] = []
    start = 0
    for number, line in enumerate(lines, 1):
        if _RECORD.match(line.encode("utf-8", "replace")[:64]):
            yield from _record(record, Origin(path=path, line=start))
            record, start = [line], number
        elif record and line.strip():
            record.append(line)
    yield from _record(record, Origin(path=path, line=start))


def _record(lines: list[str], origin: Origin) -> Iterator[Fact]:
    if not lines:
        return
    values = _values(lines)
    if "NodeName" in values:
        yield from _node(values, origin)
    elif "JobId" in values or "StepId" in values:
        yield from _job(values, origin)


def _values(lines: list[str]) -> dict[str, str]:
    """Key=value pairs of a record; a value runs to the next key of its line, and may hold blanks.
    The first mention of a key counts."""
    values: dict[str, str] = {}
    for line in lines:
        text = line[:LINE_CHARS]
        found = list(_KEY.finditer(text))
        for key, after in zip_longest(found, found[1:]):
            value = text[key.end() : after.start() if after else len(text)].strip()
            if key[1] == "Reason" and "NodeName" in values:
                values.setdefault("Reason", text[key.end() :].strip())
                break
            values.setdefault(key[1], value)
    return values


def _job(values: Mapping[str, str], origin: Origin) -> Iterator[Fact]:
    yield from _scheduler_job(
        job_id=values.get("JobId") or values["StepId"],
        name=values.get("JobName") or values.get("Name"),
        state=values.get("JobState") or values.get("State"),
        reason=values.get("Reason"),
        exit_code=values.get("ExitCode"),
        nodes=values.get("NodeList", ""),
        started=values.get("StartTime"),
        ended=values.get("EndTime"),
        batch_host=values.get("BatchHost"),
        tasks=values.get("NumTasks") or values.get("Tasks"),
        origin=origin,
    )


def _node(values: Mapping[str, str], origin: Origin) -> Iterator[Fact]:
    yield from _scheduler_nodes(
        values["NodeName"], values.get("State", "UNKNOWN"), values.get("Reason"), origin=origin
    )


# --- Facts --------------------------------------------------------------------------------------


def said(value: str | None) -> str | None:
    """The value, None for the words that mean nothing."""
    return None if value is None or value.strip() in _NOTHING else value.strip()


def time_of(text: str | None) -> int | None:
    """A time as Slurm prints it, without a zone."""
    found = timestamps.parse_rfc3339(text.strip()) if text else None
    return found[0] if found else None


def _scheduler_job(
    *,
    job_id: str,
    name: str | None,
    state: str | None,
    reason: str | None,
    exit_code: str | None,
    nodes: str,
    started: str | None,
    ended: str | None,
    batch_host: str | None,
    tasks: str | None,
    origin: Origin,
) -> Iterator[Fact]:
    """The end of a job that still runs is its time limit, so it is left out."""
    names, gap = _expanded(nodes, origin)
    if gap:
        yield gap
    word = said(state)
    word = SHORT.get(word, word) if word else None
    has_ended = word is not None and re.split(r"[\s+]", word)[0] in ENDED
    yield SchedulerJob(
        job_id=job_id,
        name=said(name),
        state=word,
        reason=said(reason),
        exit_code=exit_code or None,
        nodes=names,
        started_ns=time_of(started),
        ended_ns=time_of(ended) if has_ended else None,
        batch_host=said(batch_host),
        tasks=int(tasks) if tasks and tasks.isdecimal() and len(tasks) <= 9 else None,
        origin=origin,
        zone_stated=False,
    )


def _scheduler_nodes(
    nodes: str, state: str, reason: str | None, *, origin: Origin, at: str | None = None
) -> Iterator[Fact]:
    names, gap = _expanded(nodes, origin)
    if gap:
        yield gap
    text = said(reason)
    set_by = _SET_BY.search(text) if text else None
    if text and set_by:
        text, at = text[: set_by.start()].strip(), set_by["at"]
    for name in names:
        yield SchedulerNode(
            name=name,
            state=state,
            reason=text or None,
            since_ns=time_of(at),
            origin=origin,
            zone_stated=False,
        )


def _expanded(nodes: str, origin: Origin) -> tuple[tuple[str, ...], Gap | None]:
    try:
        return expand_host_list(nodes, MOST_NODES), None
    except ParseError as exc:
        return (), Gap(
            what="the nodes of a Slurm job or state",
            why=exc.message,
            would_settle="which nodes it means",
            origin=origin,
        )


# --- Tables -------------------------------------------------------------------------------------

Split = Callable[[str], list[str]]


def _table(lines: list[str], path: str) -> Iterator[Fact]:
    """sacct, squeue and sinfo print a header and a row each; sacct without -P a line of dashes."""
    at = next(index for index, line in enumerate(lines) if _HEADER.match(line))
    header = lines[at]
    dashes = lines[at + 1] if at + 1 < len(lines) else ""
    if "|" in header:
        split: Split = _by_bar
    elif re.fullmatch(r"[-\s]{3,2000}", dashes):
        split = _by_dashes(dashes)
    else:
        columns = len(header.split())
        split = _by_blank(columns)
    names = [name.upper() for name in split(header)]
    for number, line in enumerate(lines[at + 1 :], at + 2):
        if not line.strip() or (line == dashes and line.startswith("-")):
            continue
        yield from _row(names, split(line[:LINE_CHARS]), line, Origin(path=path, line=number))


def _by_bar(line: str) -> list[str]:
    return [part.strip() for part in line.split("|")]


def _by_dashes(dashes: str) -> Split:
    spans = [found.span() for found in re.finditer(r"-+", dashes)]
    return lambda line: [line[start:end].strip() for start, end in spans]


def _by_blank(columns: int) -> Split:
    return lambda line: line.split(maxsplit=columns - 1)


def _row(names: list[str], parts: list[str], line: str, origin: Origin) -> Iterator[Fact]:
    if names[:2] == ["REASON", "USER"]:
        found = _REASON_ROW.match(line)
        if found:
            yield from _scheduler_nodes(
                found["nodes"], "DOWN_OR_DRAINED", found["reason"], origin=origin, at=found["at"]
            )
        return
    row = dict(zip(names, _aligned(names, parts), strict=False))
    job_id = row.get("JOBID") or row.get("JOBIDRAW")
    if job_id:
        yield from _table_job(job_id, row, origin)
    elif row.get("NODELIST") and row.get("STATE"):
        silent = "+NOT_RESPONDING" if row["STATE"].endswith("*") else ""
        state = row["STATE"].rstrip("*~#!%$@^-+").upper() + silent
        yield from _scheduler_nodes(row["NODELIST"], state, row.get("REASON"), origin=origin)


def _aligned(names: list[str], parts: list[str]) -> list[str]:
    """A job's name may hold blanks and push squeue's state to the right: join what is too much."""
    state = next((names.index(n) for n in ("ST", "STATE") if n in names), None)
    name = names.index("NAME") if "NAME" in names else None
    if state is None or name is None or state <= name or "JOBID" not in names:
        return parts
    for shift in range(max(len(parts) - state, 0)):
        if parts[state + shift] in STATES:
            words = " ".join(parts[-1:]).split() if shift else []
            joined = " ".join(parts[name : name + shift + 1])
            rest = parts[name + shift + 1 :]
            if shift:
                rest = [*rest[:-1], *words]
            return [*parts[:name], joined, *rest]
    return parts


def _table_job(job_id: str, row: Mapping[str, str], origin: Origin) -> Iterator[Fact]:
    nodes = row.get("NODELIST") or row.get("NODELIST(REASON)") or ""
    reason = row.get("REASON")
    if nodes.startswith("("):
        nodes, reason = "", nodes.strip("()")
    yield from _scheduler_job(
        job_id=job_id,
        name=row.get("JOBNAME") or row.get("NAME"),
        state=row.get("STATE") or row.get("ST"),
        reason=reason,
        exit_code=row.get("EXITCODE"),
        nodes=nodes,
        started=row.get("START") or row.get("START_TIME"),
        ended=row.get("END") or row.get("END_TIME"),
        batch_host=row.get("BATCHHOST") or row.get("EXEC_HOST"),
        tasks=row.get("NTASKS"),
        origin=origin,
    )
