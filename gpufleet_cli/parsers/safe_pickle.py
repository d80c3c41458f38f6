"""Reads a pickle that may be hostile: no class, no call, and memory that it cannot exceed.

Flight Recorder dumps are pickles of dicts, lists, tuples, strings, numbers and None: torch writes no
class at all (facts: flight-recorder 0.8), so `find_class` always refuses. Refusing classes is not
enough: one `LONG_BINPUT` with index 500,000,000 makes the C unpickler ask for gigabytes, so a load
runs under a soft `RLIMIT_AS` and fails with MemoryError instead. What a load builds may still be
huge when walked (a list that holds itself twice, forty times over): callers check shapes, and do it
inside `limited_memory` too.

The C unpickler is three times as fast on a buffered file as on a bare `BytesIO`, which has no
`peek` (facts: flight-recorder 4.2).

>>> read(io.BytesIO(pickle.dumps({"version": "2.10"}, protocol=2)))
{'version': '2.10'}
>>> read(io.BytesIO(b"cos\\nsystem\\n(S'true'\\ntR."))
Traceback (most recent call last):
gpufleet_cli.errors.ParseError: it wants to load os.system: refused, nothing was run
"""

from __future__ import annotations

import gc
import io
import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NoReturn

from gpufleet_cli.errors import ParseError

try:
    import resource
except ImportError:  # Windows has no limits of this kind: a hostile file may then cost memory
    resource = None  # type: ignore[assignment]

MALFORMED = (
    pickle.UnpicklingError,
    EOFError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    OverflowError,
    RecursionError,
)
"""What the unpickler raises on bytes that are no pickle, or one that was built to hurt."""

_BUFFER_BYTES = 1 << 16


class _Unpickler(pickle.Unpickler):
    """The C unpickler without classes."""

    def find_class(self, module_name: str, global_name: str) -> NoReturn:
        raise _Refusal(f"it wants to load {_shown(module_name)}.{_shown(global_name)}")

    def persistent_load(self, pid: object) -> NoReturn:
        raise _Refusal("it wants to load an object from outside the file")


class _Refusal(pickle.UnpicklingError):
    """The pickle asked for something that plain data never needs."""


def _shown(name: str) -> str:
    """A name from the file, short and printable."""
    return name[:60].encode("unicode_escape").decode("ascii")


def read(source: BinaryIO) -> object:
    """The plain data in a pickle; raises ParseError with the reason, never runs anything."""
    try:
        return _Unpickler(_buffered(source)).load()
    except _Refusal as exc:
        raise ParseError(f"{exc}: refused, nothing was run") from None
    except MemoryError:
        raise ParseError("it asks for more memory than a dump may use") from None
    except MALFORMED as exc:
        raise ParseError(f"not a complete pickle ({_reason(exc)})") from None


def opened(path: Path) -> io.BufferedReader:
    """A file open for reading with the buffer that the unpickler is quick on."""
    try:
        return io.BufferedReader(io.FileIO(path), _BUFFER_BYTES)
    except OSError as exc:
        raise ParseError(f"cannot be opened: {exc.strerror or exc}") from exc


def _buffered(source: BinaryIO) -> BinaryIO | io.BufferedReader:
    return io.BufferedReader(source, _BUFFER_BYTES) if isinstance(source, io.BytesIO) else source


def _reason(exc: Exception) -> str:
    if isinstance(exc, EOFError):
        return "the file is empty or ends too early"
    text = str(exc)[:80].encode("unicode_escape").decode("ascii")
    return text or type(exc).__name__


# --- Limits ---------------------------------------------------------------------------------------


@contextmanager
def limited_memory(extra_bytes: int) -> Iterator[None]:
    """Let this process take at most so much more address space while inside (soft, restored)."""
    if resource is None or sys.platform == "darwin":  # macOS does not keep RLIMIT_AS
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = _address_space() + extra_bytes
    bounds = [bound for bound in (soft, hard) if bound != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min([limit, *bounds]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _address_space() -> int:
    """Bytes of address space that this process has now."""
    try:
        pages = int(Path("/proc/self/statm").read_bytes().split(None, 1)[0])
    except (OSError, ValueError, IndexError):
        return 1 << 32
    return pages * (resource.getpagesize() if resource is not None else 4096)


@contextmanager
def no_collection() -> Iterator[None]:
    """Without the cycle collector, which costs a third of a load and finds nothing in plain data."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
