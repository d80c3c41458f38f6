"""Python stacks of the quietest ranks by py-spy, where the image has it; the process is never stopped for it.

Which process is which rank is told by its own environment (`RANK` beside `LOCAL_RANK`, as torchrun sets
them): only these two are read, since the rest may hold secrets.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from gpufleet_cli.live import dump_gaps, exec_socket, threads
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.bundle_writer import BundleWriter
from gpufleet_cli.live.deadline import Deadline
from gpufleet_cli.live.exec_dumps import NO_RANKS, ranks_of
from gpufleet_cli.live.pods import Pod

MOST_PODS = 16
MOST_PROCESSES = 1_000
THREADS = 4
LATE = "not within the time before the watchdog"
SETTLES = "whether a rank sits in its loader, in a lock or in a collective"
_VARIABLE = re.compile(rb"/proc/(\d{1,9})/environ:(RANK|LOCAL_RANK)=(\d{1,7})(?:\0|\n|$)")
_PARENT = re.compile(rb"/proc/(\d{1,9})/status:PPid:\s{1,8}(\d{1,9})")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stack:
    """What py-spy said of one rank, or why it said nothing."""

    rank: int | None
    text: bytes
    failed: str | None


def gather(api: Api, pods: Sequence[Pod], sink: BundleWriter, until: Deadline) -> None:
    """Stacks as `stacks/POD/rank_N.txt`, of those pods that come first."""
    chosen = pods[:MOST_PODS]
    refused: dict[str, list[tuple[int | None, str]]] = defaultdict(list)
    done = set()
    for pod, stacks in threads.each(
        lambda pod: _of_pod(api, pod, ranks_of(pod, sink), until),
        chosen,
        threads=THREADS,
        deadline=until,
    ):
        done.add(pod.name)
        for one in stacks:
            if one.failed is None:
                sink.add_log(f"stacks/{pod.name}/rank_{one.rank}.txt", one.text, captured=True)
            else:
                refused[one.failed].append((one.rank, pod.name if one.rank is None else ""))
    refused[LATE] = [(None, pod.name) for pod in chosen if pod.name not in done]
    refused[f"only the {MOST_PODS} quietest pods are asked"] = [
        (None, pod.name) for pod in pods[MOST_PODS:]
    ]
    told = {why: whom for why, whom in refused.items() if whom}
    dump_gaps.tell(told, sink, what="Python stack", settles=SETTLES)


def _of_pod(api: Api, pod: Pod, ranks: Sequence[int], until: Deadline) -> list[_Stack]:
    version = exec_socket.run(api, pod, ("py-spy", "--version"))
    if version.failed is not None:
        return [_Stack(rank=None, text=b"", failed=version.failed)]
    processes = _processes(api, pod)
    found = []
    if not ranks and not processes:
        return [_Stack(rank=None, text=b"", failed=NO_RANKS)]
    for rank in ranks or sorted(processes):  # the processes' own word, where nothing else told
        if until.is_over():
            break
        found.append(_of_rank(api, pod, rank, processes.get(rank, ())))
    return found


def _of_rank(api: Api, pod: Pod, rank: int, processes: Sequence[int]) -> _Stack:
    failed = "no process has its RANK and a LOCAL_RANK"
    for process in processes:
        heard = exec_socket.run(
            api, pod, ("py-spy", "dump", "--nonblocking", "--pid", str(process))
        )
        if heard.failed is None and heard.data:
            return _Stack(rank=rank, text=heard.data, failed=None)
        failed = heard.failed or "py-spy said nothing"
    return _Stack(rank=rank, text=b"", failed=failed)


def _processes(api: Api, pod: Pod) -> dict[int, list[int]]:
    """The processes of each rank: what its agent started, before what that started (loader workers)."""
    listed = exec_socket.run(api, pod, ("ls", "/proc")).data.split()
    numbers = sorted(int(one) for one in listed if one.isdigit())[-MOST_PROCESSES:]
    if not numbers:
        return {}
    words = ("-e", "^RANK=[0-9]*", "-e", "^LOCAL_RANK=[0-9]*")
    places = [f"/proc/{number}/environ" for number in numbers]
    said = exec_socket.run(api, pod, ("grep", "-Haosz", *words, *places)).data
    told: dict[int, dict[bytes, int]] = {}
    for found in _VARIABLE.finditer(said):
        told.setdefault(int(found[1]), {})[found[2]] = int(found[3])
    ranks = {number: one[b"RANK"] for number, one in told.items() if len(one) == 2}
    if not ranks:
        return {}
    states = [f"/proc/{number}/status" for number in ranks]
    said = exec_socket.run(api, pod, ("grep", "-Hs", "^PPid:", *states)).data
    parents = {int(found[1]): int(found[2]) for found in _PARENT.finditer(said)}
    by_rank: dict[int, list[int]] = {}
    for number, rank in sorted(ranks.items()):
        if ranks.get(parents.get(number, 0)) != rank:
            by_rank.setdefault(rank, []).append(number)
    return by_rank
