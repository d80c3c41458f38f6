"""What `gpufleet cost` answers, at 80 columns: figures, a curve, the inputs and the formula's name."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, assert_never

from gpufleet_cli.cost_card import CostCard, Curve, Figure, Point, Unit
from gpufleet_cli.render.layout import WIDTH, Look, duration, pad, row, wrap
from gpufleet_cli.render.words import action_words
from gpufleet_cli.verdict import Action, Input

_LABEL = 28
_BAR = 30
_SOURCE = 12


def document(card: CostCard, inputs: Sequence[Input]) -> str:
    """`{"result": {...}, "inputs": {...}}`: durations in seconds, shares from 0 to 1."""
    found: dict[str, Any] = {
        "result": {one.name: one.value for one in card.figures},
        "inputs": {
            one.name: {"value": one.value, "unit": one.unit, "source": one.source} for one in inputs
        },
    }
    return json.dumps(found, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def text(card: CostCard, inputs: Sequence[Input], options: Mapping[str, str], look: Look) -> str:
    """The page; `options` has how each input is typed."""
    lines = [card.title, ""]
    for figure in card.figures:
        lines += _figure(figure, look)
    if card.curve is not None:
        lines += ["", *_curve(card.curve, look)]
    lines += ["", *_from(inputs, options), ""]
    for note in (f"Formula: {card.formula}.", *card.notes):
        lines += (f"  {line}" for line in wrap(note, WIDTH - 2))
    return look.finish(lines)


def _figure(figure: Figure, look: Look) -> Iterator[str]:
    value = figure.value
    if value is None:
        told, style = figure.why_none, "dim"
    elif figure.unit == "action":
        told, style = action_words(Action(str(value)))
    else:
        told, style = shown(value, figure.unit), "strong"
    first, *rest = wrap(told, WIDTH - 4 - _LABEL)
    yield f"  {pad(figure.words, _LABEL)}  {look.paint(first, style)}"
    yield from (" " * (4 + _LABEL) + look.paint(line, style) for line in rest)


def shown(value: float | str | tuple[float, float | None], unit: Unit) -> str:
    """A value with its unit in words."""
    if isinstance(value, str):
        return value
    if isinstance(value, tuple):
        low, high = value
        if high is None:
            return f"{number(low)} GPU-hours or more"
        return f"{number(low)} to {number(high)} GPU-hours"
    match unit:
        case "s":
            return duration(value)
        case "GPU-h" | "GPU-h range":
            return f"{number(value)} GPU-hour{'s' if value != 1 else ''}"
        case "GPU-h/h":
            return f"{number(value)} GPU-hours per hour"
        case "share":
            return f"{number(value * 100)} %"
        case "nodes":
            return f"{number(value)} node{'s' if value != 1 else ''}"
        case "x":
            return f"{number(value)} times as long a step"
        case "per hour" | "per day":
            return f"{number(value)} {unit}"
        case "action":
            return str(value)
        case _:
            assert_never(unit)


def number(value: float) -> str:
    """Four figures that matter, and no more than a person reads.

    >>> [number(one) for one in (4642.13, 12.345678, 3.39e-5, 0.0, 7, 2.5e18)]
    ['4,642', '12.35', '3.39e-05', '0', '7', '2.5e+18']
    """
    if 1000 <= abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def _curve(curve: Curve, look: Look) -> Iterator[str]:
    yield f"  {curve.title}"
    most = max((point.value for point in curve.points), default=0.0)
    labels = [_label(point) for point in curve.points]
    width = max(len(label) for label in labels)
    for point, label in zip(curve.points, labels, strict=True):
        bar = "█" * round(_BAR * point.value / most) if most > 0 else ""
        row = f"{pad(label, width, right=True)}  {pad(bar or '▏', _BAR)}  {_amount(point, curve)}"
        mark = "> " if point.is_chosen else "  "
        yield f"  {look.paint(mark + row, 'strong') if point.is_chosen else mark + row}"


def _label(point: Point) -> str:
    return duration(point.label) if isinstance(point.label, float) else point.label


def _amount(point: Point, curve: Curve) -> str:
    return shown(point.value, curve.unit)


def _from(inputs: Sequence[Input], options: Mapping[str, str]) -> Iterator[str]:
    """Every input as it could be typed, by where it came from."""
    for source in dict.fromkeys(one.source for one in inputs):
        told = [f"{options[one.name]} {_value(one)}" for one in inputs if one.source == source]
        label = "from flags" if source == "flag" else f"by {source}"
        start = f"  {pad(label, _SOURCE)}"
        for line in row(told, indent=len(start)):
            yield start + line[len(start) :]
            start = " " * len(start)


def _value(one: Input) -> str:
    if isinstance(one.value, bool):
        return "yes" if one.value else "no"
    if not isinstance(one.value, int | float):
        return str(one.value)
    match one.unit:
        case "s":
            return duration(one.value)
        case "share":
            return f"{number(one.value * 100)}%"
        case _:
            return number(one.value)
