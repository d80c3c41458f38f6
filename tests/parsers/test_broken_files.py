"""No file raises anything but ParseError: mutated samples through every parser of this part."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest
from builders import evidence

from gpufleet_cli.errors import ParseError
from gpufleet_cli.parsers import (
    dcgm_metrics,
    job_files,
    kernel_log,
    kubernetes_objects,
    kubernetes_tables,
    slurm,
)

SAMPLES = Path(__file__).parents[2] / "fixtures" / "samples"
PARSERS = (kernel_log, dcgm_metrics, kubernetes_objects, kubernetes_tables, slurm, job_files)
FILES = {
    path.name: path.read_bytes()
    for folder in ("kernel", "dcgm", "kubernetes", "slurm")
    for path in sorted((SAMPLES / folder).glob("*"))
} | {
    "topology.json": json.dumps(
        {"world_size": 2, "ranks": [{"rank": 0, "node": "gpu-1"}], "dmesg_boot_epoch": 1762750770}
    ).encode()
}
JUNK = (
    b"null", b"-1", b"1e999", b"9" * 5000, b"NaN", b'"', b"{", b"}", b"[", b"]", b"\x00", b"\xff\xfe",
    b"\n", b"\r", b"true", b"[]", b"{}", b"0x", b":", b"=", b"|", b"2025-99-99T99:99:99Z",
    b"[1-999999999]", b"\x1b[31m", b" " * 50,
)  # fmt: skip


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Up to six cuts, insertions, doublings, flipped bytes and replaced values."""
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(data) + 1)
        end = min(len(data), at + chance.randint(1, 60))
        match chance.randrange(6):
            case 0:
                data = data[:at] + chance.choice(JUNK) + data[at:]
            case 1:
                data = data[:at] + data[end:]
            case 2:
                data = data[:at]
            case 3:
                data = data[:at] + data[at:end] + data[at:]
            case 4:
                data = data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]
            case _:
                values = list(re.finditer(rb'"[^"]*"|\d+|null|true', data))
                if values:
                    value = chance.choice(values)
                    data = data[: value.start()] + chance.choice(JUNK) + data[value.end() :]
    return data


@pytest.mark.parametrize("name", sorted(FILES))
def test_mutations_raise_parse_errors_at_most(name: str) -> None:
    """Two hundred broken copies of each sample, through all parsers."""
    chance = random.Random(name)
    read = 0
    for _ in range(200):
        data = mutated(FILES[name], chance)
        for parser in PARSERS:
            parser.matches(name, data[:65_536])
            try:
                read += len(list(parser.parse(evidence(data, name))))
            except ParseError as exc:
                assert exc.message
    assert read


@pytest.mark.parametrize("parser", PARSERS, ids=lambda p: p.__name__.rsplit(".", 1)[-1])
def test_two_runs_say_the_same(parser: object) -> None:
    """Same bytes, same facts, in the same order."""
    for name, data in FILES.items():
        runs = []
        for _ in range(2):
            try:
                runs.append(list(parser.parse(evidence(data, name))))  # type: ignore[attr-defined]
            except ParseError:
                runs.append([])
        assert runs[0] == runs[1]
