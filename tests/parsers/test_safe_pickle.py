"""Hostile pickles cost themselves: nothing is run, and memory stays within its limit."""

from __future__ import annotations

import gc
import io
import pickle
import resource
import struct
from pathlib import Path

import pytest

from gpufleet_cli.errors import ParseError
from gpufleet_cli.parsers import safe_pickle

MIB = 1 << 20


def read(content: bytes) -> object:
    with safe_pickle.limited_memory(256 * MIB):
        return safe_pickle.read(io.BytesIO(content))


def refusal(content: bytes) -> str:
    with pytest.raises(ParseError) as caught:
        read(content)
    return caught.value.message


@pytest.mark.parametrize("protocol", range(6))
def test_plain_data_comes_back(protocol: int) -> None:
    """What torch writes, and what any protocol writes of plain data, is read."""
    data = {"entries": [{"seq": 2**40, "ok": True, "none": None, "f": 1.5, "t": ("0", "pg")}]}

    assert data == read(pickle.dumps(data, protocol=protocol))


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (print, ("run",))


@pytest.mark.parametrize("protocol", range(6))
def test_a_class_is_refused_and_not_run(protocol: int, capsys: pytest.CaptureFixture[str]) -> None:
    """A call inside a pickle is named in the error and never made."""
    message = refusal(pickle.dumps({"entries": [Evil()]}, protocol=protocol))

    assert "print: refused, nothing was run" in message
    assert "" == capsys.readouterr().out


def test_a_name_in_the_refusal_is_printable() -> None:
    """A class name is text from the file: no escape, no new line, no great length."""
    message = refusal(b"c" + b"o\x1b[31ms" + b"\n" + b"x" * 500 + b"\n.")

    assert message.isprintable()
    assert len(message) < 200


def test_a_persistent_id_is_refused() -> None:
    """An object outside of the file is not fetched."""
    assert "outside the file" in refusal(b"\x80\x02Vsome-id\nQ.")


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02Nr" + struct.pack("<I", 500_000_000) + b".",  # a memo of half a billion places
        b"\x80\x04\x8d" + struct.pack("<Q", 1 << 40) + b"x.",  # a string of a tebibyte
        b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b"x.",  # a bytearray, allocated up front
        b"\x80\x04\x95" + struct.pack("<Q", 1 << 40) + b"N.",  # a frame
        b"\x80\x02\x8b" + struct.pack("<i", 1 << 30) + b"\x01.",  # an integer of a gibibyte
        b"\x80\x02\x8b" + struct.pack("<i", -5) + b"\x01.",
    ],
)
def test_one_small_opcode_cannot_take_the_memory(content: bytes) -> None:
    """A few bytes that ask for gigabytes are an error, and the limit is lifted again after it."""
    before = resource.getrlimit(resource.RLIMIT_AS)

    refusal(content)

    assert before == resource.getrlimit(resource.RLIMIT_AS)
    assert len(bytes(64 * MIB)) == 64 * MIB


def test_a_file_that_builds_too_much_is_an_error() -> None:
    """A list that is filled beyond the limit, from a file of bytes alone."""
    content = b"\x80\x02(" + b"K\x01]" * (8 * MIB) + b"l."

    assert "more memory" in refusal(content)


def test_deep_nesting_is_read_and_dropped_without_a_crash() -> None:
    """Half a million lists inside one another are no recursion for reader or collector."""
    found = read(b"\x80\x02" + b"]" * 500_000 + b"a" * 499_999 + b".")

    assert isinstance(found, list)


@pytest.mark.parametrize("content", [b"", b"\x80", b"\x80\x02", b"<html>", b"\xff" * 100, b"no"])
def test_what_is_no_pickle_says_so(content: bytes) -> None:
    """Empty, cut, binary and text content end in one sentence."""
    assert "not a complete pickle" in refusal(content)


def test_every_cut_of_a_pickle_is_an_error_or_data() -> None:
    """A file cut anywhere never ends in another exception."""
    content = pickle.dumps({"entries": [{"name": "é" * 20, "n": 2**70}] * 3}, protocol=2)

    for end in range(len(content)):
        refusal(content[:end])


def test_a_bare_stream_and_a_file_read_alike(tmp_path: Path) -> None:
    """The buffered file on disk gives what the bytes give."""
    content = pickle.dumps({"version": "2.10"}, protocol=2)
    path = tmp_path / "dump"
    path.write_bytes(content)

    with safe_pickle.opened(path) as file:
        assert read(content) == safe_pickle.read(file)


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """A file that vanished between listing and reading is named, not raised through."""
    with pytest.raises(ParseError, match="cannot be opened"):
        safe_pickle.opened(tmp_path / "gone")


def test_the_collector_is_off_inside_and_as_before_after() -> None:
    """The collector is restored, also where it was off already."""
    assert gc.isenabled()
    with safe_pickle.no_collection():
        assert not gc.isenabled()
        with safe_pickle.no_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
