"""Facts as MessagePack and back: what a summary is when it leaves its process.

Each dataclass of `facts` becomes an array of its fields, in their order, behind the number of its kind;
a union of them is what one fact can be. Wire types are made of the classes that are listed here and of
no other, so that bytes can name nothing that is not a fact, nest no deeper than facts do, and give each
field the type that it has. Step lines travel as columns, the members of a group as a range where they
are one, whole numbers beyond 64 bits as bytes.

msgspec reads MessagePack in C, and refuses a length that the bytes behind it cannot hold before it takes
any memory for it. What it cannot know is checked here: ranks, columns of one length, a readable program.

>>> fact = facts.NodeLease(node="n-1", renewed_ns=1 << 70, duration_s=40.0, origin=Origin(path="l.json"))
>>> FactReader().read(write([(4, (fact,))])) == ((4, (fact,)),)
True
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from functools import reduce
from operator import attrgetter, or_
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from gpufleet_cli import facts
from gpufleet_cli.errors import ParseError
from gpufleet_cli.facts import (
    MOST_RANKS,
    ContainerState,
    DumpGroup,
    DumpPlace,
    Fact,
    GroupRef,
    JobNumbers,
    LastOp,
    OpenOp,
    Origin,
    RankDump,
    Speaker,
    StepPoint,
)
from gpufleet_cli.parsers import recorder_program
from gpufleet_cli.step_points import StepPoints

PARTS: tuple[type, ...] = (
    Origin, Speaker, GroupRef, StepPoint, ContainerState, DumpPlace, OpenOp, DumpGroup, LastOp,
)  # fmt: skip
"""What facts are made of, each behind those that it holds."""
FACTS: tuple[type, ...] = get_args(Fact)
"""What one fact can be. The place here is its number on the wire: the fingerprint tells when it moved."""
MOST_MEMBERS = 4 * MOST_RANKS
MOST_MEMBERS_IN_ALL = 1 << 23
"""Members of all different groups of one reader: a small part could ask for terabytes of them."""

Told = Iterable[tuple[int, Sequence[Fact]]]
"""The facts of one file by parser."""
Read = tuple[tuple[int, tuple[Fact, ...]], ...]


class NotFacts(ParseError):
    """These bytes are no facts: torn, made by something else, or made to hurt."""


# --- Types on the wire ----------------------------------------------------------------------------


class _Points(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """Step lines: as columns, or as they are."""

    columns: tuple[bytes, bytes, bytes, bytes, bytes] | None
    rows: tuple[Any, ...]


class _Wire(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """One dataclass; the rest is made of its fields."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """How one class travels: its wire type, and per field what is to be converted on either way."""

    cls: type
    wire: type
    names: tuple[str, ...]
    values: Callable[[Any], tuple[Any, ...]]
    out: tuple[tuple[int, Callable[[Any], Any]], ...]
    back: tuple[tuple[int, Callable[[Any, FactReader], Any]], ...]


_KINDS: dict[type, _Kind] = {}
_BY_WIRE: dict[type, _Kind] = {}


def _wire_type(hint: Any) -> Any:  # noqa: ANN401  types are values here
    """The type of a field on the wire."""
    if hint in _KINDS:
        return _KINDS[hint].wire
    if hint is int:
        return int | bytes
    if hint is float:
        return float | int | bytes  # a whole number that stands for seconds stays one
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return reduce(or_, (_wire_type(one) for one in inner))
    if origin is tuple:
        return tuple[tuple(one if one is ... else _wire_type(one) for one in inner)]  # type: ignore[misc]
    if hint == Sequence[StepPoint]:
        return _Points
    is_plain = hint in (str, bytes, bool, NoneType) or origin is Literal
    if not is_plain and not (isinstance(hint, type) and issubclass(hint, Enum)):
        raise TypeError(f"no wire type for {hint}")
    return hint


def _out(hint: Any) -> Callable[[Any], Any] | None:  # noqa: ANN401
    """What makes the wire's value of a field's, None where it is the same."""
    if hint in _KINDS:
        return _to_wire
    if hint in (int, float):
        return wide
    if hint == Sequence[StepPoint]:
        return _points_out
    inner = get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        found = [convert for one in inner if (convert := _out(one)) is not None]
        if not found:
            return None
        assert len(found) == 1, hint
        return lambda value: None if value is None else found[0](value)
    if get_origin(hint) is tuple:
        return _tuple_out(inner)
    return None


def _tuple_out(inner: tuple[Any, ...]) -> Callable[[Any], Any] | None:
    if inner[-1] is ...:
        one = _out(inner[0])
        return None if one is None else lambda values: tuple(map(one, values))
    each = [_out(hint) for hint in inner]
    if not any(each):
        return None
    return lambda values: tuple(
        value if convert is None else convert(value)
        for convert, value in zip(each, values, strict=True)
    )


def _back(hint: Any) -> Callable[[Any, FactReader], Any] | None:  # noqa: ANN401
    """The same the other way; what comes is of the wire's type already."""
    if hint in _KINDS:
        return _from_wire
    if hint in (int, float):
        return lambda value, reader: narrow(value)
    if hint == Sequence[StepPoint]:
        return _points_back
    inner = get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        found = [convert for one in inner if (convert := _back(one)) is not None]
        if not found:
            return None
        return lambda value, reader: None if value is None else found[0](value, reader)
    if get_origin(hint) is tuple:
        each = [_back(one) for one in inner if one is not ...]
        if not any(each):
            return None
        if inner[-1] is ...:
            one = each[0]
            assert one is not None
            return lambda values, reader: tuple(one(value, reader) for value in values)
        return lambda values, reader: tuple(
            value if convert is None else convert(value, reader)
            for convert, value in zip(each, values, strict=True)
        )
    return None


def _register(cls: type, *, number: int | None) -> None:
    hints = get_type_hints(cls, vars(facts))
    names = tuple(field.name for field in fields(cls))
    wires = {name: _wire_type(hints[name]) for name in names}
    out: dict[str, Any] = {name: _out(hints[name]) for name in names}
    back: dict[str, Any] = {name: _back(hints[name]) for name in names}
    if cls is DumpGroup:
        wires["members"] = tuple[int, int, int] | bytes | None
        out["members"] = _members_out
        back["members"] = _members_back
    wire = msgspec.defstruct(
        cls.__name__,
        list(wires.items()),
        bases=(_Wire,),
        array_like=True,
        frozen=True,
        forbid_unknown_fields=True,
        tag=number,
    )
    get = attrgetter(*names) if len(names) > 1 else lambda one: (getattr(one, names[0]),)
    kind = _Kind(
        cls,
        wire,
        names,
        get,
        tuple((at, f) for at, name in enumerate(names) if (f := out[name]) is not None),
        tuple((at, f) for at, name in enumerate(names) if (f := back[name]) is not None),
    )
    _KINDS[cls] = _BY_WIRE[wire] = kind  # a struct is looked up by its type on the way back


def _to_wire(fact: Any) -> Any:  # noqa: ANN401  any registered class
    kind = _KINDS[type(fact)]
    values = list(kind.values(fact))
    for at, convert in kind.out:
        values[at] = convert(values[at])
    return kind.wire(*values)


def _from_wire(wire: Any, reader: FactReader) -> Any:  # noqa: ANN401
    kind = _BY_WIRE[type(wire)]
    values = list(kind.values(wire))
    for at, convert in kind.back:
        values[at] = convert(values[at], reader)
    return kind.cls(**dict(zip(kind.names, values, strict=True)))


# --- Values ---------------------------------------------------------------------------------------


def wide(value: Any) -> Any:  # noqa: ANN401  a number
    """A whole number as MessagePack has it: beyond 64 bits as its bytes."""
    if type(value) is int and not -(1 << 63) <= value < 1 << 64:
        return value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)
    return value


def narrow(value: Any) -> Any:  # noqa: ANN401
    return int.from_bytes(value, "big", signed=True) if type(value) is bytes else value


def _points_out(points: Sequence[StepPoint]) -> _Points:
    if isinstance(points, StepPoints):
        return _Points(points.__reduce__()[1], ())
    return _Points(None, tuple(map(_to_wire, points)))


def _points_back(points: Any, reader: FactReader) -> Sequence[StepPoint]:  # noqa: ANN401
    if points.columns is None:
        return tuple(
            _from_wire(msgspec.convert(row, _KINDS[StepPoint].wire), reader) for row in points.rows
        )
    at, step, line, seconds, data = columns = points.columns
    lengths = {len(at), len(step), len(line)} | {len(one) for one in (seconds, data) if one}
    if points.rows or len(lengths) != 1 or len(step) % 8:
        raise NotFacts("step lines whose columns differ in length")
    return StepPoints(*columns)


def _members_out(members: tuple[int, ...] | None) -> tuple[int, int, int] | bytes | None:
    packed = facts.packed_members(members)
    return (packed.start, packed.stop, packed.step) if isinstance(packed, range) else packed


def _members_back(
    packed: tuple[int, int, int] | bytes | None, reader: FactReader
) -> tuple[int, ...] | None:
    return None if packed is None else reader.members(packed)


def _checked(fact: Fact) -> Fact:
    """What the parsers promise of their facts and the reasoning counts on."""
    match fact:
        case RankDump():
            if not 0 <= fact.rank < MOST_RANKS:
                raise NotFacts(f"a dump of rank {fact.rank:,}")
            if any(len(group.done) % 16 for group in fact.groups):
                raise NotFacts("completions that are no pairs")
            last = fact.last_op
            if last is not None and not 0 <= last.group < len(fact.groups):
                raise NotFacts("a last operation of no group")
            _check_program(fact)
        case JobNumbers():
            if fact.source != "file":
                raise NotFacts("options of a command line, which no file has")
            if fact.world_size is not None and not 0 < fact.world_size <= MOST_RANKS:
                raise NotFacts(f"a world of {fact.world_size:,} ranks")
        case _:
            pass
    return fact


def _check_program(dump: RankDump) -> None:
    try:
        program = recorder_program.unpack(dump.program)
    except (msgspec.DecodeError, ValueError, TypeError) as exc:
        raise NotFacts("a program that cannot be read") from exc
    if len(program.order) != len(program.seqs) or (
        program.order and max(program.order) >= len(program.kinds)
    ):
        raise NotFacts("a program of operations that it does not hold")
    if any(not 0 <= kind.group < len(dump.groups) for kind in program.kinds):
        raise NotFacts("a program of a group that the dump does not hold")


# --- Writing and reading --------------------------------------------------------------------------

for _cls in PARTS:
    _register(_cls, number=None)
for _number, _cls in enumerate(FACTS):
    _register(_cls, number=_number)

_FACT: Any = reduce(or_, (_KINDS[cls].wire for cls in FACTS))
_FILE: Any = tuple[tuple[int, tuple[_FACT, ...]], ...]
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(_FILE)


def write(told: Told) -> bytes:
    """The facts of one file. ParseError where one of them can be no message: a lone surrogate, say."""
    rows = [(order, [_to_wire(fact) for fact in found]) for order, found in told]
    try:
        return _encoder.encode(rows)
    except (UnicodeEncodeError, OverflowError, msgspec.MsgspecError) as exc:
        raise ParseError(f"a fact of it cannot travel ({exc})"[:200]) from exc


class FactReader:
    """Reads the facts of many files; equal groups share their members. Its memory of them is bounded."""

    def __init__(self) -> None:
        self._members: dict[tuple[int, int, int] | bytes, tuple[int, ...]] = {}
        self._left = MOST_MEMBERS_IN_ALL

    def read(self, data: bytes) -> Read:
        """The facts again. NotFacts for anything else."""
        try:
            wires = _decoder.decode(data)
            return tuple(
                (order, tuple(_checked(_from_wire(one, self)) for one in found))
                for order, found in wires
            )
        except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as exc:
            raise NotFacts(f"no facts of gpufleet ({exc})"[:160]) from exc

    def members(self, packed: tuple[int, int, int] | bytes) -> tuple[int, ...]:
        """The global ranks of a group, within bounds."""
        known = self._members.get(packed)
        if known is None:
            known = self._members[packed] = self._unpacked(packed)
        return known

    def _unpacked(self, packed: tuple[int, int, int] | bytes) -> tuple[int, ...]:
        if isinstance(packed, bytes):
            found: Sequence[int] = array("q")
            if len(packed) % 8 or len(packed) > 8 * MOST_MEMBERS:
                raise NotFacts("a group whose members cannot be read")
            found = memoryview(packed).cast("q") if packed else ()
        else:
            found = range(*packed)
        if len(found) > MOST_MEMBERS or len(found) > self._left:
            raise NotFacts("groups of more ranks than a job can have")
        self._left -= len(found)
        members = tuple(found)
        if members and not 0 <= min(members) <= max(members) < MOST_RANKS:
            raise NotFacts("a group with ranks that no job can have")
        return members


def fingerprint(more: Mapping[str, Sequence[str]]) -> bytes:
    """Eight bytes that change when any class, field, type or order of facts does."""
    shapes = [
        (cls.__name__, [(field.name, str(field.type)) for field in fields(cls)])
        for cls in (*PARTS, *FACTS)
    ]
    told = repr((shapes, sorted((key, list(names)) for key, names in more.items())))
    return hashlib.sha256(told.encode()).digest()[:8]
