"""Facts through MessagePack: every class and field comes back as it was; bytes that hurt cost themselves."""

from __future__ import annotations

import random
import resource
from collections.abc import Sequence
from dataclasses import fields, replace
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

from gpufleet_cli import facts
from gpufleet_cli.errors import ParseError
from gpufleet_cli.facts import DumpGroup, Gap, JobNumbers, LastOp, Origin, RankDump, StepPoint
from gpufleet_cli.parsers import recorder_program
from gpufleet_cli.reason import fact_wire
from gpufleet_cli.reason.fact_wire import FactReader, NotFacts, write
from gpufleet_cli.step_points import packed

INTS = (0, 1, -1, 7, 255, 2**31, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 10**30)
TEXTS = ("", "x", "rank 3 \u4e16", "a\tb\nc", "\x00", "\U0001f680", "y" * 400)


def made(hint: Any, rng: random.Random) -> Any:
    """Any value of a field's type."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return made(rng.choice(inner), rng)
    if origin is tuple:
        if inner[-1] is ...:
            return tuple(made(inner[0], rng) for _ in range(rng.randrange(4)))
        return tuple(made(one, rng) for one in inner)
    if origin is Literal:
        return rng.choice(inner)
    if hint == Sequence[StepPoint]:
        few = [of_class(StepPoint, rng) for _ in range(rng.choice((0, 3, 40)))]
        return packed(few)
    if hint in fact_wire.PARTS:
        return of_class(hint, rng)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return rng.choice(list(hint))
    return {
        int: lambda: rng.choice(INTS),
        float: lambda: rng.choice((0.0, 1.5, -2.25, 5, 1e300, float("inf"))),
        str: lambda: rng.choice(TEXTS),
        bool: lambda: rng.random() < 0.5,
        bytes: lambda: bytes(16 * rng.randrange(3)),
        NoneType: lambda: None,
    }[hint]()


def of_class(cls: type, rng: random.Random) -> Any:
    hints = get_type_hints(cls, vars(facts))
    fact = cls(**{field.name: made(hints[field.name], rng) for field in fields(cls)})
    if isinstance(fact, DumpGroup):
        world = rng.choice((None, (), (5,), (0, 1), (9, 7, 5), (3, 3), tuple(range(0, 64, 8))))
        return replace(fact, members=world)
    if isinstance(fact, RankDump):
        last = LastOp(group=0, seq=3, op="x", created_ns=None) if fact.groups else None
        return replace(fact, rank=rng.randrange(1 << 17), program=b"", last_op=last)
    if isinstance(fact, JobNumbers):
        return replace(fact, source="file", world_size=rng.choice((None, 1, 1 << 17)))
    return fact


@pytest.mark.parametrize("cls", fact_wire.FACTS, ids=lambda cls: cls.__name__)
def test_every_fact_comes_back_as_it_was(cls: type) -> None:
    """Any value of any field, also one beyond 64 bits; a whole number of seconds stays whole."""
    rng = random.Random(cls.__name__)
    for _ in range(120):
        told = ((3, (of_class(cls, rng), of_class(cls, rng))), (-1, ()))
        back = FactReader().read(write(told))
        assert told == back
        assert repr(told) == repr(back)


def test_every_class_of_facts_travels() -> None:
    """A class added to `facts` is in the registry, or this says so."""
    classes = {
        one
        for one in vars(facts).values()
        if isinstance(one, type) and hasattr(one, "__dataclass_fields__")
    }
    assert classes == {*fact_wire.PARTS, *fact_wire.FACTS}


def test_the_fingerprint_tells_another_shape() -> None:
    same = fact_wire.fingerprint({"parsers": ["a", "b"]})
    assert same == fact_wire.fingerprint({"parsers": ("a", "b")})
    assert same != fact_wire.fingerprint({"parsers": ["b", "a"]})


def dump(**changes: Any) -> RankDump:
    group = DumpGroup(name="0", desc="default_pg", members=(0, 1))
    made = RankDump(
        rank=1,
        path="d",
        version="2.10",
        backend="nccl",
        entries=1,
        wrapped=False,
        oldest_ns=None,
        newest_ns=None,
        groups=(group,),
        timed_out=None,
        has_start_stamps=False,
        has_frames=False,
        only_active=False,
        origin=Origin(path="d"),
    )
    return replace(made, **changes)


def odd_programs() -> list[bytes]:
    kind = recorder_program.OpKind(0, "all_reduce", False, "64", "Float", ())
    stranger = (
        replace(kind, group=9) if hasattr(kind, "__dataclass_fields__") else kind._replace(group=9)
    )
    return [
        b"\xff",
        b"\x00",
        msgspec.msgpack.encode(([], b"\x00", b"")),
        msgspec.msgpack.encode(([], b"\x00\x00", b"")),
        msgspec.msgpack.encode(([], b"\x07\x00", bytes(8))),
        recorder_program.pack([stranger], [0], [7]),
    ]


@pytest.mark.parametrize(
    "fact",
    [
        dump(rank=1 << 17),
        dump(rank=-1),
        dump(last_op=LastOp(group=7, seq=0, op="x", created_ns=None)),
        dump(groups=(DumpGroup(name="0", desc="", members=(0, 1 << 17)),)),
        dump(groups=(DumpGroup(name="0", desc="", members=(-5, 3)),)),
        dump(groups=(DumpGroup(name="0", desc="", members=None, done=b"123"),)),
        *(dump(program=one) for one in odd_programs()),
        JobNumbers(source="flag", world_size=8),
        JobNumbers(source="file", world_size=(1 << 17) + 1),
    ],
)
def test_what_no_parser_says_is_refused(fact: Any) -> None:
    """Types alone do not make a fact: a rank that no job can have would be a row a rank in the report."""
    with pytest.raises(NotFacts):
        FactReader().read(write([(1, (fact,))]))


def test_columns_of_different_length_are_refused() -> None:
    """Step lines are read without a look at each."""
    rng = random.Random(1)
    points = packed([StepPoint(at_ns=n, step=n, step_s=None, line=n) for n in range(20)])
    progress = replace(of_class(facts.Progress, rng), points=points)
    (at, step, line, seconds, data) = points.__reduce__()[1]  # type: ignore[misc]
    for columns in ((at[8:], step, line, seconds, data), (at, step, line, b"12345678", data),
                    (at[:-1], step[:-1], line[:-1], b"", b"")):  # fmt: skip
        broken = write([(0, (replace(progress, points=fact_wire.StepPoints(*columns)),))])
        with pytest.raises(NotFacts):
            FactReader().read(broken)


def test_a_few_bytes_cannot_ask_for_all_memory() -> None:
    """Ranges of ranks are short on the wire and long in memory: their sum is bounded, and so are lengths."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    groups = tuple(
        DumpGroup(name=str(n), desc="", members=tuple(range(n, 1 << 16))) for n in range(300)
    )
    small = write([(1, (dump(groups=groups),))])
    assert len(small) < 20_000
    del groups
    with pytest.raises(NotFacts, match="more ranks than a job"):
        FactReader().read(small)
    for length in (
        b"\xdd\xff\xff\xff\xff",
        b"\x91\x92\x00\xdd\x7f\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
    ):
        with pytest.raises(NotFacts):
            FactReader().read(length)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2 << 20  # 2 GiB, in KiB


def test_depth_costs_nothing() -> None:
    for one in (b"\x91", b"\x81\xa1a", b"\x91\x92\x00"):
        with pytest.raises(NotFacts):
            FactReader().read(one * 100_000)


def test_any_bytes_are_facts_or_none() -> None:
    """Flipped, cut and doubled: never another exception."""
    rng = random.Random(8)
    told = [(1, (dump(), *(of_class(cls, rng) for cls in fact_wire.FACTS)))]
    whole = write(told)
    refused = 0
    for _ in range(3000):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        some = bytes(data[: rng.randrange(len(data))] if rng.random() < 0.3 else data)
        try:
            FactReader().read(some)
        except NotFacts:
            refused += 1
    assert refused > 1000


def test_what_cannot_travel_is_said() -> None:
    """A lone surrogate is no text that any message can hold."""
    with pytest.raises(ParseError, match="cannot travel"):
        write([(0, (Gap(what="\udc80", why=""),))])
