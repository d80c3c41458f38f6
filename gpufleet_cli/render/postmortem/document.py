"""The record beside the page: schema `gpufleet.postmortem/v1`, for scripts and experiment trackers.

Times are RFC 3339 UTC as `triage -o json` writes them, and null where the evidence has none.
"""

from __future__ import annotations

import json

from gpufleet_cli import __version__
from gpufleet_cli.postmortem_card import SCHEMA, Instant, Moment, Postmortem, TrackingId
from gpufleet_cli.reason.placed import NS
from gpufleet_cli.render.clean import clean, cut
from gpufleet_cli.render.structured import Json, seconds, target_dict, time_text, to_dict

KINDS = ("run_id", "job_uid", "image_digest", "commit")


def render(made: Postmortem) -> str:
    """Strict JSON in ASCII."""
    return json.dumps(to_document(clean(made)), indent=2, allow_nan=False) + "\n"


def to_document(made: Postmortem) -> Json:
    """The record. Additions are allowed, renames are not."""
    triage, told = made.triage, made.times
    report = to_dict(triage)
    verdict, advice, job = report["verdict"], report["recommendation"], report["job"]
    return {
        "schema": SCHEMA,
        "target": target_dict(triage),
        "job": job,
        "first_cause_at": time_text(told.first_cause.at_ns),
        "detected_at": time_text(told.detected.at_ns),
        "diagnosed_at": time_text(told.diagnosed.at_ns),
        "recovered_at": time_text(told.recovered.at_ns),
        "ended_at": time_text(told.ended_ns),
        "time_to_detect_seconds": _since(told.first_cause, told.detected),
        "time_to_diagnose_seconds": _since(told.first_cause, told.diagnosed),
        "time_to_recover_seconds": _since(told.first_cause, told.recovered),
        "why": {
            "first_cause_at": told.first_cause.why,
            "detected_at": told.detected.why,
            "diagnosed_at": told.diagnosed.why,
            "recovered_at": told.recovered.why,
        },
        "lost_gpu_hours": advice["lost_gpu_hours"],
        "lost_waiting_gpu_hours": advice["lost_waiting_gpu_hours"],
        "lost_recompute_gpu_hours": advice["lost_recompute_gpu_hours"],
        "verdict": verdict["kind"],
        "confidence": verdict["confidence"],
        "summary": list(made.summary),
        "culprits": verdict["culprits"],
        "evidence": verdict["evidence"],
        "action": advice["action"],
        "nodes": advice["nodes"],
        "ids": {kind: [_id(one) for one in made.tracking if one.kind == kind] for kind in KINDS},
        "preflight": [] if made.specs is None else [one.id for one in made.specs.findings],
        "missing_evidence_count": report["missing_evidence_count"],
        "timeline": [_moment(one) for one in made.timeline],
        "timeline_left_out": made.timeline_left_out,
        "generated_by": {"gpufleet": __version__},
    }


def _since(first: Instant, then: Instant) -> float | None:
    if first.at_ns is None or then.at_ns is None:
        return None
    return seconds((then.at_ns - first.at_ns) / NS)


def _id(one: TrackingId) -> Json:
    return {"value": one.value, "name": one.name, "source": one.source}


def _moment(one: Moment) -> Json:
    return {
        "at": time_text(one.at_ns),
        "until": time_text(one.until_ns),
        "part": one.part,
        "what": cut(one.what),
        "count": one.count,
        "source": None if one.origin is None else str(one.origin),
        "claims": list(one.claims),
    }
