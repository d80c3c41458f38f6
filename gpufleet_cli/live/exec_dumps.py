"""Flight Recorder dumps read out of running containers: `cat PATH` by exec, argv only, no shell, no glob.

A container that ended cannot be asked, one without `cat` neither: each dump that does not come is a gap
with its reason, and with the volume where the file still lies.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from gpufleet_cli import dump_copy
from gpufleet_cli.facts import DumpPlace
from gpufleet_cli.live import dump_gaps, exec_socket, threads
from gpufleet_cli.live.answers import LATE
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.bundle_writer import BundleWriter
from gpufleet_cli.live.exec_socket import NO_FILE
from gpufleet_cli.live.find_job import Job
from gpufleet_cli.live.pods import Attempt, Pod
from gpufleet_cli.parsers import json_documents as js
from gpufleet_cli.parsers import kubernetes_volumes

THREADS = 8
EMPTY = "the file is empty"
NO_RANKS = "no log or setting tells the ranks of its pod"
_RANK = re.compile(rb"\[rank(\d{1,6})\]:")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dump:
    """One file that a rank should have written."""

    pod: Pod
    rank: int
    place: DumpPlace

    @property
    def path(self) -> str:
        return f"{self.place.prefix}{self.rank}"

    @property
    def kept_as(self) -> str:
        return f"dumps/nccl_trace_rank_{self.rank}"


def gather(
    api: Api, job: Job, attempt: Attempt, sink: BundleWriter, *, stated: str | None = None
) -> None:
    """The dumps of all ranks. `stated`: the prefix of `--dumps exec:PREFIX`, else the pods' own."""
    if stated is not None and not stated.startswith("/"):
        odd = f"exec:{stated}: the prefix is no absolute path in the container"
        sink.gap("Flight Recorder dumps of all ranks", odd, dump_gaps.SETTLES)
        return
    refused: dict[str, list[tuple[int | None, str]]] = defaultdict(list)
    wanted: list[Dump] = []
    sorted_so = by_host_names(attempt.pods)
    for pod in attempt.pods:
        if pod.state.gpus is None and stated is None:
            continue
        place = _place(pod, stated)
        if place is None:
            refused["neither --dumps nor the pod's environment says where they are"].append(
                (None, "")
            )
            continue
        why = why_not(pod)
        ranks = ranks_of(pod, sink)
        if not ranks and why is None:  # what is found there proves the guess
            ranks = sorted_so.get(pod.name, [])
        if not ranks:
            refused[NO_RANKS].append((None, pod.name))
        for rank in ranks:
            dump = Dump(pod=pod, rank=rank, place=place)
            if dump.kept_as in sink.files or sink.has(dump.kept_as):
                continue
            if why is None:
                wanted.append(dump)
            else:
                fate = dump_copy.fate(pod.state, place)
                told = why if fate is None else f"{why}; {fate}"
                refused[told].append((rank, _still_at(dump, why)))
    _read(api, wanted, refused, sink)
    dump_gaps.tell(refused, sink)


def _read(
    api: Api,
    wanted: Sequence[Dump],
    refused: dict[str, list[tuple[int | None, str]]],
    sink: BundleWriter,
) -> None:
    done = set()
    results = threads.each(
        lambda dump: exec_socket.run(api, dump.pod, ("cat", dump.path)),
        wanted,
        threads=min(api.threads, THREADS),
        deadline=api.deadline,
    )
    for dump, heard in results:
        done.add(dump.rank)
        if heard.failed is None and heard.data:
            sink.add_bytes(dump.kept_as, heard.data, pod=dump.pod.name, read_from=dump.path)
        else:
            why = heard.failed or EMPTY
            if why == NO_FILE and dump.place.is_closed:
                why = dump_copy.CLOSED
            refused[why.replace(dump.path, "the file")].append((dump.rank, _still_at(dump, why)))
    for dump in wanted:
        if dump.rank not in done:
            refused[LATE].append((dump.rank, ""))


# --- Where they are -------------------------------------------------------------------------------


def _place(pod: Pod, stated: str | None) -> DumpPlace | None:
    """By the prefix that was stated, else by the container's own environment."""
    if stated is None:
        return pod.state.dumps
    return kubernetes_volumes.dump_place(pod.raw, pod.state.rank_container, stated)


def environment_of(pod: Pod) -> dict[str, str]:
    """Of the rank's container; a value that comes from elsewhere (a ConfigMap) is empty."""
    spec = kubernetes_volumes.container_of(pod.raw, pod.state.rank_container)
    return {
        name: js.text_at(entry, "value") or ""
        for entry in js.items(js.at(spec, "env"))
        if (name := js.text_at(entry, "name")) is not None
    }


def log_of(pod: Pod, sink: BundleWriter) -> str | None:
    """The log of its rank's container in the bundle."""
    container = pod.state.rank_container
    path = f"namespaces/{pod.namespace}/pods/{pod.name}/{container}/{container}/logs/current.log"
    return path if path in sink.files else None


def ranks_of(pod: Pod, sink: BundleWriter) -> list[int]:
    """Its ranks: those that its log names, else by a static node rank."""
    state = pod.state
    size = state.nproc or state.gpus
    path = log_of(pod, sink)
    if path is not None:
        named = {int(found) for found in _RANK.findall(sink.read(path))}
        is_global = max(named, default=0) >= (size or 1) or state.node_rank == 0
        if named and is_global and (size is None or len(named) <= size):
            return sorted(named)
    if state.node_rank is not None and size and state.rendezvous != "c10d":
        return list(range(state.node_rank * size, (state.node_rank + 1) * size))
    return []


def by_host_names(pods: Sequence[Pod]) -> dict[str, list[int]]:
    """The ranks that agents which sort themselves (c10d) give out by their host names, by pod: a guess by which a file
    is asked for, whose name then proves it."""
    held = [pod for pod in pods if pod.state.gpus] or list(pods)
    hosts = {pod.state.sorts_as for pod in held}
    sizes = {pod.state.nproc or pod.state.gpus for pod in held}
    size = sizes.pop() if len(sizes) == 1 else None
    if not size or None in hosts or len(hosts) < len(held):
        return {}
    ordered = sorted(held, key=lambda pod: pod.state.sorts_as or "")
    return {pod.name: list(range(at * size, (at + 1) * size)) for at, pod in enumerate(ordered)}


def why_not(pod: Pod) -> str | None:
    """Why the container cannot be asked, None where it runs."""
    own = next((c for c in pod.state.containers if c.name == pod.state.rank_container), None)
    if own is None or own.state == "waiting":
        return "its container has not started"
    if own.state == "terminated" or pod.state.phase in ("Failed", "Succeeded"):
        return "its container has terminated: exec is not possible any more"
    return None


def _still_at(dump: Dump, why: str) -> str:
    """Where the file still lies when exec cannot fetch it; empty where no node shows it. The command that
    copies it stands in the report, for the ranks whose dump would settle the verdict."""
    if (
        why in (NO_FILE, EMPTY, dump_copy.CLOSED)
        or dump_copy.command(dump.pod.state, dump.rank, dump.place) is None
    ):
        return ""
    return f"it lies on the volume {dump.place.volume} of {dump.pod.name}, on {dump.pod.state.node}"
