"""The step lines of one speaker as columns of bytes.

A job of 16,384 ranks has millions of them: as objects they take a kilobyte for every five and cost
more to send from a worker than to read; as columns, 24 bytes each. A point is made when asked for.

>>> points = packed([StepPoint(at_ns=5, step=n, step_s=None, line=n) for n in range(9)])
>>> len(points), points[-1].step, points[-1].step_s, points == tuple(points)
(9, 8, None, True)
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from struct import Struct
from typing import overload

from gpufleet_cli.facts import StepPoint

FEW = 8
_NONE = -(2**63)
_WHOLE, _FLOAT = Struct("q"), Struct("d")


class StepPoints(Sequence[StepPoint]):
    """Points that are not to be changed; equal to any sequence of the same points."""

    __slots__ = ("_at", "_data", "_line", "_seconds", "_step")

    def __init__(self, at: bytes, step: bytes, line: bytes, seconds: bytes, data: bytes) -> None:
        self._at = at
        self._step = step
        self._line = line
        self._seconds = seconds
        self._data = data

    def __reduce__(self) -> tuple[type[StepPoints], tuple[bytes, bytes, bytes, bytes, bytes]]:
        return StepPoints, (self._at, self._step, self._line, self._seconds, self._data)

    def __len__(self) -> int:
        return len(self._step) // 8

    def __iter__(self) -> Iterator[StepPoint]:
        return self._points(slice(None))

    @overload
    def __getitem__(self, index: int) -> StepPoint: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[StepPoint]: ...
    def __getitem__(self, index: int | slice) -> StepPoint | Sequence[StepPoint]:
        if isinstance(index, slice):
            return tuple(self._points(index))
        place = 8 * range(len(self))[index]
        (at,), (step,), (line,) = (
            _WHOLE.unpack_from(column, place) for column in (self._at, self._step, self._line)
        )
        return StepPoint(
            at_ns=None if at == _NONE else at,
            step=step,
            step_s=_float(self._seconds, place),
            line=None if line == _NONE else line,
            data_s=_float(self._data, place),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))

    def stamps(self, newest: int) -> Iterator[tuple[int, int]]:
        """(step, time) of the newest points that have a time, without a point for each."""
        for step, at in zip(_ints(self._step)[-newest:], _ints(self._at)[-newest:], strict=True):
            if at != _NONE:
                yield step, at

    def _points(self, some: slice) -> Iterator[StepPoint]:
        for at, step, line, seconds, data in zip(
            _ints(self._at)[some],
            _ints(self._step)[some],
            _ints(self._line)[some],
            _floats(self._seconds, some),
            _floats(self._data, some),
            strict=False,
        ):
            yield StepPoint(
                at_ns=None if at == _NONE else at,
                step=step,
                step_s=None if seconds != seconds else seconds,  # not a number: none
                line=None if line == _NONE else line,
                data_s=None if data != data else data,
            )


Row = tuple[int | None, int, float | None, int | None, float | None]
"""A point as the plain values of its fields, in their order."""


def row_of(point: StepPoint) -> Row:
    return point.at_ns, point.step, point.step_s, point.line, point.data_s


def packed(points: Iterable[StepPoint]) -> Sequence[StepPoint]:
    """The same points in columns; few points, and times beyond 64 bits, stay as they are."""
    return packed_rows([row_of(point) for point in points])


def packed_rows(rows: Sequence[Row]) -> Sequence[StepPoint]:
    """The points of these rows, packed."""
    if len(rows) < FEW:
        return _points_of(rows)
    at, step, seconds, line, data = zip(*rows, strict=True)
    try:
        return StepPoints(
            _whole_column(at),
            _whole_column(step),
            _whole_column(line),
            _column(seconds),
            _column(data),
        )
    except OverflowError:
        return _points_of(rows)


def _points_of(rows: Sequence[Row]) -> Sequence[StepPoint]:
    return tuple(
        StepPoint(at_ns=at, step=step, step_s=seconds, line=line, data_s=data)
        for at, step, seconds, line, data in rows
    )


def stamps(points: Sequence[StepPoint], newest: int) -> Iterator[tuple[int, int]]:
    """(step, time) of the newest points that have a time."""
    if isinstance(points, StepPoints):
        return points.stamps(newest)
    return ((p.step, p.at_ns) for p in points[-newest:] if p.at_ns is not None)


def _ints(column: bytes) -> memoryview:
    return memoryview(column).cast("q")


def _float(column: bytes, place: int) -> float | None:
    value: float = _FLOAT.unpack_from(column, place)[0] if column else float("nan")
    return None if value != value else value  # not a number: none


def _floats(column: bytes, some: slice) -> Iterable[float]:
    return memoryview(column).cast("d")[some] if column else repeat(float("nan"))


def _whole_column(values: Sequence[int | None]) -> bytes:
    return array("q", [_NONE if value is None else value for value in values]).tobytes()


def _column(values: Sequence[float | None]) -> bytes:
    """Nothing at all where no line prints the number."""
    if all(value is None for value in values):
        return b""
    return array("d", [float("nan") if value is None else value for value in values]).tobytes()
