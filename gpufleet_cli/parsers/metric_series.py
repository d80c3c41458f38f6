"""Metric samples in the forms they are handed over in, one series at a time.

    {"status":"success","data":{"resultType":"matrix","result":[{"metric":{...},"values":[[t,"v"]]}]}}
    {"status":"success","data":{"resultType":"vector","result":[{"metric":{...},"value":[t,"v"]}]}}
    [{"metric":{...},"values":[...]}]                       promtool query -o json, or data.result alone
    {"metric":{...},"values":[...],"timestamps":[ms]}       VictoriaMetrics /api/v1/export, one a line
    NAME{label="v"} 79 1772939550000                        what an exporter serves; time optional

Prometheus HTTP API: https://prometheus.io/docs/prometheus/latest/querying/api/ . NaN, infinities and
DCGM's blanks (values near 2^63, 2^47 and 2^31) are no samples. A `status: error` is a ParseError.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from gpufleet_cli import timestamps
from gpufleet_cli.errors import ParseError
from gpufleet_cli.parsers import json_documents as js

MOST_SAMPLES = 20_000_000
BLANKS_FROM = 9.2e18
_BLANKS = ((2_147_483_632.0, 2_147_483_647.0), (140_737_488_355_312.0, 140_737_488_355_343.0))

_MOST_KNOWN = 4096  # texts of a series that are kept with their number: a gauge has few

_TEXT_LINE = re.compile(
    rb"^([a-zA-Z_:][a-zA-Z0-9_:]{0,200})(?:\{(.{0,8000}?)\})? {1,4}(\S{1,40})(?: {1,4}(-?\d{1,16}(?:\.\d{1,9})?))?[ \t\r]*$",
    re.MULTILINE,
)
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]{0,100})="((?:[^"\\]|\\.){0,2000})"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One series. `times` are nanoseconds; None in it means that the sample has no time.

    `is_range` tells a series with history from a single value.
    """

    name: str
    labels: Mapping[str, str]
    times: tuple[int | None, ...]
    values: tuple[float, ...]
    is_range: bool
    entry: int


def read(data: bytes) -> Iterator[Series]:
    """Every series of a file."""
    start = data[:256].lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if start in (b"{", b"["):
        yield from _read_json(data)
    else:
        yield from _read_text(data)


# --- JSON ---------------------------------------------------------------------------------------


def _read_json(data: bytes) -> Iterator[Series]:
    taken = 0
    for index, raw in enumerate(_raw_series(data)):
        series = _one(raw, index)
        if series is None or not series.values:
            continue
        taken += len(series.values)
        if taken > MOST_SAMPLES:
            raise ParseError(f"over {MOST_SAMPLES:,} samples in one answer")
        yield series


def _raw_series(data: bytes) -> Iterator[object]:
    """The elements of the result, decoded one by one so that a big answer stays small."""
    try:
        top = msgspec.json.decode(data, type=dict[str, msgspec.Raw] | list[msgspec.Raw])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        yield from _documents(data)
        return
    if isinstance(top, list):
        yield from map(_decoded, top)
        return
    _refuse_error(
        {key: _decoded(top[key]) for key in ("status", "errorType", "error") if key in top}
    )
    if "metric" in top:
        yield _decoded(msgspec.Raw(data))
        return
    body = top
    for key in ("data", "result"):
        if key not in body:
            continue
        try:
            inner = msgspec.json.decode(body[key], type=dict[str, msgspec.Raw] | list[msgspec.Raw])
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return
        if isinstance(inner, list):
            yield from map(_decoded, inner)
            return
        body = inner


def _refuse_error(top: Mapping[str, object]) -> None:
    if top.get("status") == "error":
        kind, message = js.text(top.get("errorType")), js.text(top.get("error"))
        why = ": ".join(part[:300] for part in (kind, message) if part)
        raise ParseError(f"the metrics server answered with an error: {why or 'no reason given'}")


def _decoded(raw: msgspec.Raw) -> object:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


def _documents(data: bytes) -> Iterator[object]:
    """Several documents, or one that is cut off: whatever series are whole."""
    try:
        found = list(js.documents(data))
    except ParseError:
        salvaged = js.salvage(data, "result")
        if not salvaged:
            raise
        yield from salvaged
        return
    for document in found:
        _refuse_error(js.mapping(document))
        result = js.at(document, "data", "result")
        if isinstance(result, list):
            yield from result
        elif js.at(document, "metric") is not None:
            yield document
        elif isinstance(document, list):
            yield from document


def _one(raw: object, index: int) -> Series | None:
    metric = js.at(raw, "metric")
    if not isinstance(metric, dict):
        return None
    labels = {k: v for k, v in metric.items() if isinstance(k, str) and isinstance(v, str)}
    times: list[int | None] = []
    values: list[float] = []
    known: dict[str, float | None] = {}
    for at, value in _samples(raw):
        if type(value) is not str:
            number = sample(value)
        elif value in known:
            number = known[value]
        else:
            number = sample(value)
            if len(known) < _MOST_KNOWN:
                known[value] = number
        if number is not None:
            times.append(at)
            values.append(number)
    return Series(
        name=labels.get("__name__", ""),
        labels=labels,
        times=tuple(times),
        values=tuple(values),
        is_range=js.at(raw, "value") is None,
        entry=index,
    )


def _samples(raw: object) -> Iterator[tuple[int | None, object]]:
    single = js.at(raw, "value")
    if single is not None:
        pair = js.items(single)
        if len(pair) == 2:
            yield _time(pair[0]), pair[1]
        return
    values, stamps = js.items(js.at(raw, "values")), js.at(raw, "timestamps")
    if isinstance(stamps, list):
        for at, value in zip(stamps, values, strict=False):
            yield _milliseconds(at), value
        return
    for sample_pair in values:
        pair = js.items(sample_pair)
        if len(pair) == 2:
            yield _time(pair[0]), pair[1]


def _time(value: object) -> int | None:
    seconds = js.number(value)
    if seconds is None or not 0 < seconds < 1e11:
        return None
    return timestamps.from_seconds(seconds)


def _milliseconds(value: object) -> int | None:
    number = js.integer(value)
    return None if number is None or not 0 < number < 10**14 else number * 1_000_000


def sample(value: object) -> float | None:
    """A finite value that is no DCGM blank."""
    number = js.number(value)
    if number is None or abs(number) >= BLANKS_FROM:
        return None
    return None if any(low <= number <= high for low, high in _BLANKS) else number


# --- Exposition text ----------------------------------------------------------------------------


def _read_text(data: bytes) -> Iterator[Series]:
    for index, found in enumerate(_TEXT_LINE.finditer(data)):
        value = sample(found[3].decode("ascii", "replace"))
        if value is None:
            continue
        name = found[1].decode("ascii")
        labels = {
            key: re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], text)
            for key, text in _LABEL.findall((found[2] or b"").decode("utf-8", "replace"))
        }
        at = _milliseconds(float(found[4])) if found[4] else None
        yield Series(
            name=name,
            labels={**labels, "__name__": name},
            times=(at,),
            values=(value,),
            is_range=False,
            entry=index,
        )


def median_step_s(times: tuple[int | None, ...]) -> float | None:
    """The usual distance of samples, None with fewer than two."""
    known = [at for at in times if at is not None]
    gaps = sorted((b - a) / 1e9 for a, b in pairwise(known) if b > a)
    return gaps[len(gaps) // 2] if gaps else None
