"""One line of a log before any wrapper: who wrote it, when, and the prefixes that programs put on it.

Forms: glog's of PyTorch's C++ (c10), the elastic agent's of each release, NCCL's.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from gpufleet_cli.operate.simulate import identities
from gpufleet_cli.operate.simulate.story import Story
from gpufleet_cli.verdict import Kind

# NCCL that each release of torch ships.
NCCL = {
    "2.1": (2, 18, 1),
    "2.4": (2, 20, 5),
    "2.6": (2, 21, 5),
    "2.8": (2, 27, 3),
    "2.10": (2, 27, 5),
}
SRUN = -1_000_000


@dataclass(frozen=True, slots=True)
class Says:
    """What a line tells of the true fault. `text`: the part that tells, the whole line where empty."""

    ranks: tuple[int, ...]
    kinds: tuple[Kind, ...] = ()
    loud: bool = True
    text: str = ""


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The line is its writer's own watchdog timeout, for a call of its program."""

    call: int


class Line(NamedTuple):
    """`writer` is a rank, `agent_of` a node, or SRUN; `ns` by the clock of its node."""

    ns: int
    writer: int
    err: bool
    text: str
    says: Says | TimedOut | None = None


def agent_of(node_index: int) -> int:
    """The agent of a node as a writer."""
    return -1 - node_index


@lru_cache(maxsize=65_536)
def _second(second: int) -> tuple[str, str, str, str]:
    at = datetime.fromtimestamp(second, UTC)
    clock = f"{at:%H:%M:%S}"
    return (
        f"{at:%Y-%m-%d} {clock}",
        f"{at.month}{at:%d} {clock}",
        f"{at:%m%d} {clock}",
        f"{at:%m/%d/%Y} {clock}",
    )


def day(ns: int) -> str:
    """`2025-05-12 09:57:45`."""
    return _second(ns // 1_000_000_000)[0]


def day_ms(ns: int) -> str:
    """`2025-05-12 09:57:45,014`, as Python's logging has it."""
    return f"{_second(ns // 1_000_000_000)[0]},{ns // 1_000_000 % 1000:03}"


def glog_day(ns: int) -> str:
    """`0512 09:57:45`, as torch's Python logs have it."""
    return _second(ns // 1_000_000_000)[2]


def american(ns: int) -> str:
    """`06/20/2023 18:00:09`."""
    return _second(ns // 1_000_000_000)[3]


def rfc3339(ns: int) -> str:
    """`2025-05-12T09:57:45.014040040`, always nine digits and no zone."""
    return f"{_second(ns // 1_000_000_000)[0].replace(' ', 'T')}.{ns % 1_000_000_000:09}"


def c10(story: Story, rank: int, ns: int, line: int, *, level: str = "E") -> str:
    """The prefix of a line of ProcessGroupNCCL.cpp."""
    return c10_of(story, rank, ns, f"ProcessGroupNCCL.cpp:{line}", level=level)


def c10_of(story: Story, rank: int, ns: int, source: str, *, level: str = "E") -> str:
    """The prefix of a line of PyTorch's C++: neither rank nor time before 2.2 and 2.4."""
    if story.style.torch == "2.1":
        return f"[{level} {source}] "
    stamp = _second(ns // 1_000_000_000)[1]
    return f"[rank{rank}]:[{level}{stamp}.{ns % 1_000_000_000:09} {source}] "


def python_tag(story: Story, rank: int) -> str:
    """What torch's excepthook puts in front of each line of a traceback, from about 2.3."""
    return "" if story.style.torch == "2.1" else f"[rank{rank}]: "


def agent_prefix(story: Story, node_index: int, ns: int, level: str, where: str) -> str:
    """`where`: `multiprocessing/api.py:897`, below `torch/distributed/elastic`."""
    torch = story.style.torch
    if torch == "2.1":
        word = {"I": "INFO", "W": "WARNING", "E": "ERROR"}[level]
        module = where.partition(".py")[0].replace("/", ".")
        return f"[{day_ms(ns)}] torch.distributed.elastic.{module}: [{word}] "
    stamp = f"{_second(ns // 1_000_000_000)[2]}.{ns // 1_000_000 % 1000:03}000"
    who = 140_602_427_192_448 if torch == "2.4" else identities.agent_pid(story, node_index)
    site = "" if torch in ("2.4", "2.8") else "site-packages/"
    return f"{level}{stamp} {who} {site}torch/distributed/elastic/{where}] "


def nccl(story: Story, rank: int, text: str) -> str:
    """An INFO line of NCCL."""
    layout = story.layout
    host, pid = identities.host(story, layout.node_index(rank)), identities.pid(story, rank)
    return f"{host}:{pid}:{pid + 700 + rank % 61} [{layout.local_rank(rank)}] NCCL INFO {text}"


def nccl_warn(story: Story, rank: int, ns: int, source: str, text: str) -> str:
    """A WARN line of NCCL; an empty line goes before it."""
    layout = story.layout
    host, pid = identities.host(story, layout.node_index(rank)), identities.pid(story, rank)
    stamp = f"[{day(ns)}] " if NCCL[story.style.torch] >= (2, 26, 0) else ""
    thread = pid + 900 + rank % 53
    return f"{stamp}{host}:{pid}:{thread} [{layout.local_rank(rank)}] {source} NCCL WARN {text}"


def rank_ns(story: Story, rank: int, at_s: float) -> int:
    """A moment by the clock of the rank's node."""
    return story.wall_ns(at_s, story.layout.node_index(rank))
