"""The events of a watch: a plain line each for people and pipes, a JSON document each for programs."""

from __future__ import annotations

import json
import math

from gpufleet_cli.plain_text import visible
from gpufleet_cli.redact import redact
from gpufleet_cli.render.layout import duration, fit, wrap
from gpufleet_cli.timestamps import format_clock, format_ns
from gpufleet_cli.watch_card import SCHEMA, Event, Glance

LEAST_WIDTH = 20


def line(event: Event, width: int | None = None) -> str:
    """`03:46:07 stalled    no step after step 4,121 for 5m`: one line, and of a terminal, whose width is known, as many
    as it takes."""
    head = f"{format_clock(event.at_ns)} {event.kind:<10} "
    text = visible(redact(event.text))
    lines = [text] if width is None else wrap(text, max(LEAST_WIDTH, width - len(head)))
    return f"\n{' ' * len(head)}".join([f"{head}{lines[0]}", *lines[1:]]) + "\n"


def document(event: Event, *, job: str, namespace: str) -> str:
    """One JSON line. Durations are seconds; what is not known is null."""
    told: dict[str, object] = {
        "schema": SCHEMA,
        "event": event.kind.value,
        "at": format_ns(event.at_ns),
        "job": job,
        "namespace": namespace,
        "text": visible(redact(event.text)),
        "step": event.step,
        "quiet_seconds": _number(event.quiet_s),
        "paged_after_seconds": _number(event.paged_s),
        "step_seconds": _number(event.step_s),
        "usual_step_seconds": _number(event.usual_step_s),
        "checkpoint_age_seconds": _number(event.checkpoint_age_s),
        "bundle": event.bundle,
        "triage": None if event.report is None else json.loads(event.report),
    }
    return json.dumps(told, ensure_ascii=False, allow_nan=False) + "\n"


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, 3)


def status(glance: Glance, name: str, width: int) -> str:
    """The line that is rewritten."""
    parts = [f"{visible(name)}: {glance.mode}"]
    if glance.step is not None:
        parts.append(f"step {glance.step:,}")
    parts.append(
        "no step seen yet" if glance.quiet_s is None else f"{duration(glance.quiet_s)} ago"
    )
    if glance.step_s is not None:
        parts.append(f"{duration(glance.step_s)} a step")
    if glance.checkpoint_age_s is not None:
        parts.append(f"checkpoint {duration(glance.checkpoint_age_s)} ago")
    return fit(", ".join(parts), width)
