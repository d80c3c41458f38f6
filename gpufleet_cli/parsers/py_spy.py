"""What `py-spy dump` prints: where the threads of one Python process are.

    Process 412: /usr/bin/python train.py --config run7.yaml
    Python v3.11.7 (/usr/bin/python3.11)

    Thread 412 (idle): "MainThread"
        read (torch/utils/data/_utils/worker.py:41)
        train (train.py:88)

The rank stands in no line of it; `stacks/POD/rank_N.txt`, or any name that tells one, has it. Only the
main thread is told: the others of a training process wait by profession. https://github.com/benfred/py-spy
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpufleet_cli.evidence import Evidence
from gpufleet_cli.facts import Fact, Gap, Origin, ProcessStack
from gpufleet_cli.parsers import recorder_names

MOST_FRAMES = 64
_HEAD = re.compile(rb"\s{0,16}Process \d{1,9}: [^\0]{0,60000}?\nPython v\d[^\n]{0,300}\n")
_THREAD = re.compile(
    r'Thread (?P<id>\S{1,40}) \((?P<state>[\w+ ]{1,40})\)(?:: "(?P<name>[^"\n]{0,100})")?'
)
_FRAME = re.compile(
    r"    (?P<name>\S[^\n(]{0,300}) \((?P<place>[^\n()]{1,400}:\d{1,7}|[^\n()]{1,400})\)"
)


def matches(path: str, head: bytes) -> bool:
    """By its first lines; a command line may hold line ends."""
    del path
    return _HEAD.match(head[:65_536]) is not None


def parse(evidence: Evidence) -> Iterator[Fact]:
    """The main thread's frames, innermost first."""
    lines = evidence.read().decode("utf-8", "replace").splitlines()
    thread: re.Match[str] | None = None
    frames: list[str] = []
    at = 0
    for number, line in enumerate(lines, start=1):
        found = _THREAD.match(line)
        if found is not None:
            if thread is not None:
                break
            if found["name"] in (None, "MainThread"):
                thread, at = found, number
            continue
        frame = _FRAME.fullmatch(line) if thread is not None else None
        if frame is not None and len(frames) < MOST_FRAMES:
            frames.append(f"{frame['name']} ({frame['place']})")
    rank = recorder_names.rank_in_name(evidence.path)
    if thread is None or not frames or rank is None:
        why = "no rank in its name" if rank is None else "no frame of a main thread in it"
        yield Gap(what=evidence.path, why=why, would_settle="what that rank does")
        return
    yield ProcessStack(
        rank=rank,
        state=thread["state"],
        frames=tuple(frames),
        origin=Origin(path=evidence.path, line=at),
    )
