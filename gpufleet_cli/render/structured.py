"""JSON and YAML of a Triage: schema `gpufleet.triage/v1`, field for field.

`to_dict` is the one explicit map from our names to the report's, so that a rename shows in the
diff; `schema/triage-v1.schema.json` says the same for machines. Times are RFC 3339 UTC, durations
seconds to the millisecond, costs GPU-hours. Long lists are cut and stand beside their count;
`ranks` has every rank, and its rows lose their lesser columns in very large jobs, so that a report
of 16,384 ranks stays below 5 MB (`gpufleet ranks -o json` has all of them).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from gpufleet_cli import __version__
from gpufleet_cli.facts import Gap
from gpufleet_cli.render.clean import clean, cut
from gpufleet_cli.render.layout import Look
from gpufleet_cli.timestamps import format_ns
from gpufleet_cli.verdict import (
    SCHEMA,
    Alternative,
    AttemptView,
    Claim,
    CollectiveRef,
    Culprit,
    DumpsReport,
    FileRead,
    GpuRef,
    HardwareEvent,
    Input,
    JobView,
    Question,
    RankRow,
    Recommendation,
    RestartView,
    Triage,
    Verdict,
)

Json = dict[str, Any]

LIST_LIMIT = 100
_WIDE_ROWS_LIMIT = 8_192


def render_json(triage: Triage, _look: Look) -> str:
    """Strict JSON in ASCII: indented, but for the ranks, which take a line each."""
    return dump_json(to_dict(clean(triage)), rows="ranks")


def render_yaml(triage: Triage, _look: Look) -> str:
    """The same document as YAML 1.1, in ASCII."""
    return dump_yaml(to_dict(clean(triage)))


def dump_yaml(document: Json) -> str:
    """A document of plain values."""
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(document, Dumper=dumper, sort_keys=False, allow_unicode=False, width=100)
    return text


def dumped(document: Json, output: str) -> str:
    """A document as `-o json` or `-o yaml` has it."""
    if output == "yaml":
        return dump_yaml(document)
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def dump_json(document: Json, *, rows: str) -> str:
    """The document with its long list `rows` last, one line per entry."""
    body = json.dumps(
        {key: value for key, value in document.items() if key != rows}, indent=2, allow_nan=False
    )
    lines = ",\n".join(
        "    " + json.dumps(entry, separators=(",", ":"), allow_nan=False)
        for entry in document[rows]
    )
    listed = f"[\n{lines}\n  ]" if lines else "[]"
    return f'{body[:-2]},\n  "{rows}": {listed}\n}}\n'


def to_dict(triage: Triage) -> Json:
    """The report. Additions are allowed, renames are not."""
    return {
        "schema": SCHEMA,
        "target": target_dict(triage),
        "as_of": time_text(triage.as_of_ns),
        "job": _job(triage.job),
        "verdict": _verdict(triage.verdict),
        "hardware": {
            "events": [_hardware(event) for event in triage.hardware[:LIST_LIMIT]],
            "events_count": len(triage.hardware),
        },
        "recommendation": _recommendation(triage.recommendation),
        "dumps": _dumps(triage.dumps),
        "missing_evidence": [_gap(gap) for gap in triage.missing[:LIST_LIMIT]],
        "missing_evidence_count": len(triage.missing),
        "files": _files(triage.files),
        "generated_by": {"gpufleet": __version__},
        "ranks": rank_rows(triage.ranks),
    }


def target_dict(triage: Triage) -> Json:
    return {
        "kind": triage.target_kind,
        "name": triage.target_name,
        "namespace": triage.target_namespace,
    }


def _groups(job: JobView) -> Json:
    """Of a LeaderWorkerSet alone: each group is a world of its own."""
    if not job.groups:
        return {}
    listed = [{"group": number, "state": state} for number, state in job.groups]
    return {"group": job.group, "groups": listed}


def _job(job: JobView) -> Json:
    return {
        "name": job.name,
        "namespace": job.namespace,
        "world_size": job.world_size,
        "world_size_source": job.world_size_source,
        "nodes": job.nodes,
        "attempt": job.attempt,
        **({"attempts": [_attempt(one) for one in job.attempts]} if job.attempts else {}),
        **_groups(job),
        "state": str(job.state),
        "state_why": cut(job.state_why),
        "last_step": job.last_step,
        "last_step_at": time_text(job.last_step_ns),
        "step_seconds": seconds(job.step_s),
        "last_checkpoint_step": job.last_checkpoint_step,
        "last_checkpoint_at": time_text(job.last_checkpoint_ns),
        "checkpoint_interval_seconds": seconds(job.checkpoint_interval_s),
        "watchdog_timeout_seconds": seconds(job.watchdog_timeout_s),
        "ended_at": time_text(job.ended_ns),
    }


def _attempt(one: AttemptView) -> Json:
    return {
        "attempt": one.number,
        "state": one.state,
        "started_at": time_text(one.started_ns),
        "ended_at": time_text(one.ended_ns),
    }


# --- Verdict --------------------------------------------------------------------------------------


def _verdict(verdict: Verdict) -> Json:
    return {
        "kind": str(verdict.kind),
        "culprits": [_culprit(one) for one in verdict.culprits],
        "confidence": _number(verdict.confidence, 4),
        "summary": verdict.summary,
        **_collective(verdict.collective),
        "evidence": claims(verdict.evidence),
        "evidence_count": len(verdict.evidence),
        "witnesses": {
            "count": verdict.witness_count,
            "loudest": [
                {
                    "rank": one.rank,
                    "error_lines": one.error_lines,
                    "why_innocent": cut(one.why_innocent),
                }
                for one in verdict.loudest[:LIST_LIMIT]
            ],
        },
        "alternatives": [
            _alternative(one, whole=at == 0)
            for at, one in enumerate(verdict.alternatives[:LIST_LIMIT])
        ],
        "alternatives_count": len(verdict.alternatives),
        "ruled_out": [cut(text) for text in verdict.ruled_out[:LIST_LIMIT]],
        "would_settle": verdict.would_settle or None,
        "settle_command": verdict.settle_command,
    }


def _culprit(culprit: Culprit) -> Json:
    return {
        "rank": culprit.rank,
        "pod": culprit.pod,
        "node": culprit.node,
        "local_rank": culprit.local_rank,
        "gpu": gpu_dict(culprit.gpu),
        "silent_since": time_text(culprit.silent_since_ns),
        "quieter_by_seconds": seconds(culprit.quieter_by_s),
    }


def gpu_dict(one: GpuRef) -> Json:
    return {"index": one.index, "uuid": one.uuid, "pci_bus_id": one.pci_bus_id}


def _collective(collective: CollectiveRef) -> Json:
    return {
        "process_group": {"name": collective.group, "desc": collective.desc},
        "collective": {"op": collective.op, "seq": collective.seq},
    }


def claims(all_claims: Sequence[Claim]) -> list[Json]:
    """Claims numbered e1, e2, ... in the order of the verdict."""
    return [
        {
            "id": f"e{number}",
            "claim": cut(claim.text),
            "source": None if claim.origin is None else str(claim.origin),
            "rank": claim.rank,
            "at": time_text(claim.at_ns),
            "supports": claim.supports,
            "weight": _number(claim.weight, 3),
        }
        for number, claim in enumerate(all_claims[:LIST_LIMIT], start=1)
    ]


def _alternative(other: Alternative, *, whole: bool) -> Json:
    """The first one may be the set that an undecidable verdict leaves: that is never cut."""
    return {
        "kind": str(other.kind),
        "ranks": list(other.ranks if whole else other.ranks[:LIST_LIMIT]),
        "ranks_count": len(other.ranks),
        "nodes": list(other.nodes if whole else other.nodes[:LIST_LIMIT]),
        "confidence": _number(other.confidence, 4),
        "why_less_likely": cut(other.why_less_likely),
    }


def _hardware(event: HardwareEvent) -> Json:
    return {
        "at": time_text(event.at_ns),
        "node": event.node,
        "gpu": event.gpu,
        "xid": event.xid,
        "meaning": cut(event.meaning),
        "role": event.role,
        "source": None if event.origin is None else str(event.origin),
    }


# --- Recommendation -------------------------------------------------------------------------------


def _recommendation(advice: Recommendation) -> Json:
    return {
        "action": str(advice.action),
        "nodes": list(advice.nodes),
        "questions": [_question(question) for question in advice.questions],
        "options": [
            {"option": one.option, "gpu_hours": _cost(one.gpu_hours)} for one in advice.options
        ],
        "decided_by": advice.decided_by,
        "would_flip": advice.would_flip,
        "lost_gpu_hours": _cost(advice.lost_gpu_hours),
        "lost_waiting_gpu_hours": _cost(advice.lost_waiting_gpu_hours),
        "lost_recompute_gpu_hours": _cost(advice.lost_recompute_gpu_hours),
        "commands": [
            {"run": one.run, "stops_job": one.stops_job, "note": one.note or None}
            for one in advice.commands
        ],
        "why": advice.why,
        "inputs": [_input(one) for one in advice.inputs],
        "attempt_token": advice.attempt_token,
        "spares": _spares(advice.restart),
    }


def _spares(found: RestartView | None) -> Json | None:
    if found is None:
        return None
    one = found.spares
    return {"node": found.node, "places": one.places, "why": one.why, "nodes": list(one.nodes)}


def _question(question: Question) -> Json:
    rated = question.id == "degrading-now" or question.gpu_hours_per_hour is not None
    key = "gpu_hours_per_hour" if rated else "gpu_hours"
    cost = question.gpu_hours_per_hour if rated else question.gpu_hours
    return {
        "id": question.id,
        "answer": question.answer,
        "why": cut(question.why),
        key: _cost(cost),
    }


def _input(one: Input) -> Json:
    value = _number(one.value, 6) if isinstance(one.value, float) else one.value
    return {"name": one.name, "value": value, "unit": one.unit, "source": one.source}


# --- The rest -------------------------------------------------------------------------------------


def _dumps(report: DumpsReport | None) -> Json | None:
    if report is None:
        return None
    return {
        "count": report.dumps,
        "versions": list(report.versions),
        "roots": list(report.roots),
        "finding": report.finding,
    }


def _gap(gap: Gap) -> Json:
    return {
        "what": cut(gap.what),
        "why": cut(gap.why),
        "would_settle": cut(gap.would_settle),
        "rank": gap.rank,
        "source": None if gap.origin is None else str(gap.origin),
    }


def _files(files: Sequence[FileRead]) -> Json:
    unread = [file.path for file in files if not file.formats]
    return {
        "read": len(files) - len(unread),
        "not_understood": unread[:LIST_LIMIT],
        "not_understood_count": len(unread),
    }


def rank_rows(rows: Sequence[RankRow]) -> list[Json]:
    """One short row per rank, in rank order."""
    wide = len(rows) <= _WIDE_ROWS_LIMIT
    return [_rank_row(row, wide=wide) for row in sorted(rows, key=lambda row: row.rank)]


def _rank_row(row: RankRow, *, wide: bool) -> Json:
    short: Json = {
        "rank": row.rank,
        "pod": row.pod,
        "node": row.node,
        "local_rank": row.local_rank,
        "standing": row.standing,
        "last_sign_at": time_text(row.last_sign_ns),
        "quiet_seconds": seconds(row.quiet_s) if row.silence_known else None,
        "last_step": row.last_step,
        "seq": row.collective.seq,
    }
    if wide:
        short["gpu"] = gpu_dict(row.gpu)
        short["error_lines"] = row.error_lines
    return short


def row_dict(row: RankRow) -> Json:
    """All that is known of one rank, for `ranks` and `explain`."""
    collective = row.collective
    return {
        "rank": row.rank,
        "pod": row.pod,
        "node": row.node,
        "local_rank": row.local_rank,
        "gpu": gpu_dict(row.gpu),
        "how_mapped": row.how_mapped,
        "standing": row.standing,
        "last_write_at": time_text(row.last_write_ns),
        "last_sign_at": time_text(row.last_sign_ns),
        "quiet_seconds": seconds(row.quiet_s),
        "quiet_error_seconds": seconds(row.quiet_error_s),
        "silence_known": row.silence_known,
        "last_step": row.last_step,
        "process_group": {"name": collective.group, "desc": collective.desc},
        "collective": {"op": collective.op, "seq": collective.seq},
        "error_lines": row.error_lines,
        "note": cut(row.note),
        "last_text": cut(row.last_text),
        "source": None if row.origin is None else str(row.origin),
    }


# --- Values ---------------------------------------------------------------------------------------


def time_text(ns: int | None) -> str | None:
    return None if ns is None else format_ns(ns)


def seconds(value: float | None) -> float | None:
    return _number(value, 3)


def _cost(value: float | None) -> float | None:
    return _number(value, 3)


def _number(value: float | None, digits: int) -> float | None:
    """Rounded, and null for what JSON cannot say (NaN, infinities)."""
    if value is None or not math.isfinite(value):
        return None
    return round(float(value), digits) + 0.0
