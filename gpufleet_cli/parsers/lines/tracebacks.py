"""Python tracebacks: the exception that ends one, and the innermost frame of the user's own code.

One fact per traceback, standing at the exception's line. `detail` is "Type: message (at FILE:LINE in F)",
with `effect: ` in front where the exception is a consequence by its text. Chained exceptions and the
"Original Traceback" of a data loader's worker are facts of their own. torch from 2.3 on prefixes each
line with `[rankN]:`, older ones do not, so lines of several ranks may alternate: a line that is neither
a frame nor an exception is passed over. Ray's driver raises a worker's exception again, with the worker
in the text (`RayTaskError(KeyError): ray::fn() (pid=31, ip=10.0.0.2, ...`): that worker speaks then.

>>> from gpufleet_cli.parsers.lines.pasted import read
>>> fact, = read(recognise, '''Traceback (most recent call last):
...   File "/opt/conda/lib/python3.10/site-packages/torch/utils/data/dataloader.py", line 633, in __next__
...     data = self._next_data()
...   File "/app/data/jsonl.py", line 88, in __getitem__
...     return self.encode(row['text'])
... KeyError: 'text'
... ''')
>>> fact.detail, fact.origin.line
("KeyError: 'text' (at jsonl.py:88 in __getitem__)", 6)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from gpufleet_cli.facts import Fact, Sign
from gpufleet_cli.parsers.lines.effects import mark_effect
from gpufleet_cli.parsers.lines.signs import (
    Rule,
    by_literal,
    continuation,
    cut,
    make_sign,
    patterns_of,
)
from gpufleet_cli.parsers.log_line import Following, LogLine

_HEADER = "Traceback (most recent call last)"
_FRAME = re.compile(
    r'\s{0,40}File "(?P<path>[^"\n]{1,600})", line (?P<line>\d{1,8})(?:, in (?P<function>[^\n]{1,120}))?'
)
_EXCEPTION = re.compile(
    r"(?P<name>[A-Za-z_][\w.]{0,200}?)(?::(?: (?P<message>[^\n]{0,2000}))?)?\s{0,4}"
)
_KNOWN_END = (
    "Error",
    "Exception",
    "Exit",
    "Interrupt",
    "Iteration",
    "Warning",
    "Timeout",
    "Expired",
    "Failure",
    "Fault",
    "Group",
    "Restart",
    "Terminated",
)
_LIBRARY = re.compile(
    r"/site-packages/|/dist-packages/|/lib/python\d|/torch/|^<|importlib|runpy\.py"
)
_CAMEL = re.compile(r"[A-Z][a-z0-9]{1,40}[A-Z][a-z0-9]")
_RAY_TASK = re.compile(
    r"RayTaskError(?:\(\w{1,120}\))?: ray::[^\n]{0,300}?\(pid=(?P<pid>\d{1,10})(?:, ip=(?P<ip>[\w.:]{2,60}))?"
)
_BAR = re.compile(r"\s{0,40}[|+][-+ ]{0,40}")
_LIMIT = 200
_SKIPPABLE = 60


@dataclass(frozen=True, slots=True)
class _Frame:
    path: str
    line: str
    function: str

    def __str__(self) -> str:
        name = self.path.rpartition("/")[2]
        return f"{name}:{self.line} in {self.function}" if self.function else f"{name}:{self.line}"


def _traceback(line: LogLine, following: Following) -> Iterator[Fact]:
    """Read down to the exception; a traceback that is cut before it says nothing."""
    frames: list[_Frame] = []
    skipped = 0
    for row in continuation(line, following, _LIMIT):
        text = _BAR.sub("", row.text, count=1) if "|" in row.text[:40] else row.text
        if _HEADER in text:
            return
        frame, task = _FRAME.match(text), _RAY_TASK.search(text[:600])
        if task is not None:
            worker = replace(line.speaker, host=task["ip"], pid=int(task["pid"]))
            line = line._replace(speaker=worker)
        elif frame is not None:
            frames.append(_Frame(frame["path"], frame["line"], frame["function"] or ""))
        elif text[:1].isspace() or not text.strip():
            continue
        elif frames and is_exception(text):
            yield _fact(line, row._replace(text=text), frames)
            return
        else:
            skipped += 1
            if skipped > _SKIPPABLE:
                return


def is_exception(text: str) -> bool:
    """Whether a line reads `Type: message` or `package.Type`, as the end of a traceback does.

    >>> is_exception("mylib.errors.BadShard: shard 7"), is_exception("INFO: done"), is_exception("step: 10")
    (True, False, False)
    """
    found = _EXCEPTION.fullmatch(text[:2400])
    if found is None:
        return False
    package, _, name = found["name"].rpartition(".")
    if name.isupper() or not name[:1].isupper():
        return False
    return name.endswith(_KNOWN_END) or bool(package) or _CAMEL.match(name) is not None


def _fact(header: LogLine, row: LogLine, frames: list[_Frame]) -> Fact:
    found = _EXCEPTION.fullmatch(row.text[:2400])
    assert found is not None
    name = found["name"].rpartition(".")[2]
    message = cut(found["message"] or "", 160)
    own = [frame for frame in frames if not _LIBRARY.search(frame.path)]
    place = (own or frames)[-1]
    detail = f"{name}: {message}" if message else name
    paths = tuple(frame.path for frame in frames)
    marked = mark_effect(f"{name}: {found['message'] or ''}", paths).startswith("effect: ")
    return make_sign(
        Sign.PYTHON_EXCEPTION,
        row,
        speaker=header.speaker,
        at_ns=row.at_ns if row.at_ns is not None else header.at_ns,
        detail=f"{'effect: ' if marked else ''}{detail} (at {place})",
    )


_RULES: tuple[Rule, ...] = (((_HEADER,), _traceback),)
PATTERNS: tuple[str, ...] = patterns_of(_RULES)


def recognise(line: LogLine, following: Following) -> Iterator[Fact]:
    """The exception of a traceback that begins on this line, which may hold all of it, escaped."""
    if _HEADER in line.text and "\\n" in line.text and "\n" not in line.text:
        line = line._replace(text=line.text.replace("\\n", "\n"))
    return by_literal(_RULES, line, following)
