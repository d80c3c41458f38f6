"""Flight Recorder dumps read out of running containers: `cat PATH` by exec, argv only, no shell, no glob.

A container that ended cannot be asked, one without `cat` neither: each dump that does not come is a gap
with its reason. Where the file lies on a volume of the pod, the gap names the command that copies it
from the node; it is printed, never run.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from gpufleet_cli.errors import UsageError
from gpufleet_cli.live import dump_gaps, exec_socket, threads
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.bundle_writer import BundleWriter
from gpufleet_cli.live.find_job import Job
from gpufleet_cli.live.pods import Attempt, Pod
from gpufleet_cli.parsers import json_documents as js

SETTINGS = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
THREADS = 8
_RANK = re.compile(rb"\[rank(\d{1,6})\]:")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dump:
    """One file that a rank should have written."""

    pod: Pod
    rank: int
    path: str

    @property
    def kept_as(self) -> str:
        return f"dumps/nccl_trace_rank_{self.rank}"


def gather(
    api: Api, job: Job, attempt: Attempt, sink: BundleWriter, *, stated: str | None = None
) -> None:
    """The dumps of all ranks. `stated`: the prefix of `--dumps exec:PREFIX`, else the pods' own."""
    if stated is not None and not stated.startswith("/"):
        raise UsageError(f"--dumps exec:{stated}: the prefix is an absolute path in the container")
    refused: dict[str, list[tuple[int | None, str]]] = defaultdict(list)
    wanted: list[Dump] = []
    for pod in attempt.pods:
        if pod.state.gpus is None and stated is None:
            continue
        prefix = stated or prefix_of(pod)
        if prefix is None:
            refused["neither --dumps nor the pod's environment says where they are"].append(
                (None, "")
            )
            continue
        ranks = ranks_of(pod, sink)
        why = _why_not(pod)
        if not ranks:
            refused["no log or setting tells the ranks of its pod"].append((None, pod.name))
        for rank in ranks:
            dump = Dump(pod=pod, rank=rank, path=f"{prefix}{rank}")
            if sink.has(dump.kept_as):
                continue
            if why is None:
                wanted.append(dump)
            else:
                refused[why].append((rank, from_volume(pod, dump.path)))
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
            why = heard.failed or "the file is empty"
            refused[why.replace(dump.path, "the file")].append(
                (dump.rank, from_volume(dump.pod, dump.path))
            )
    for dump in wanted:
        if dump.rank not in done:
            refused["not there by the deadline"].append((dump.rank, ""))


# --- Where they are -------------------------------------------------------------------------------


def _container(pod: Pod) -> object:
    specs = js.items(js.at(pod.raw, "spec", "containers"))
    return next((s for s in specs if js.text_at(s, "name") == pod.state.rank_container), None)


def prefix_of(pod: Pod) -> str | None:
    """The prefix that the rank's container writes to, by its own environment."""
    env: dict[str, str] = {}
    for entry in js.items(js.at(_container(pod), "env")):
        name, value = js.text_at(entry, "name"), js.text_at(entry, "value")
        if name is not None and value is not None:
            env[name] = value
    for setting in SETTINGS:
        found = env.get(setting)
        if found is not None and found.startswith("/") and "$(" not in found:
            return found
    return None


def ranks_of(pod: Pod, sink: BundleWriter) -> list[int]:
    """Its ranks: those that its log names, else by a static node rank."""
    state = pod.state
    path = (
        f"namespaces/{pod.namespace}/pods/{pod.name}/{state.rank_container}/"
        f"{state.rank_container}/logs/current.log"
    )
    size = state.nproc or state.gpus
    if path in sink.files:
        named = {int(found) for found in _RANK.findall(sink.read(path))}
        is_global = max(named, default=0) >= (size or 1) or state.node_rank == 0
        if named and is_global and (size is None or len(named) <= size):
            return sorted(named)
    if state.node_rank is not None and size and state.rendezvous != "c10d":
        return list(range(state.node_rank * size, (state.node_rank + 1) * size))
    return []


def _why_not(pod: Pod) -> str | None:
    """Why the container cannot be asked, None where it runs."""
    own = next((c for c in pod.state.containers if c.name == pod.state.rank_container), None)
    if own is None or own.state == "waiting":
        return "its container has not started"
    if own.state == "terminated" or pod.state.phase in ("Failed", "Succeeded"):
        return "its container has terminated: exec is not possible any more"
    return None


def from_volume(pod: Pod, path: str) -> str:
    """The command that reads a file from the pod's volume on its node; empty where it lies in none."""
    mounts = [
        (mounted, js.text_at(one, "name"))
        for one in js.items(js.at(_container(pod), "volumeMounts"))
        if (mounted := (js.text_at(one, "mountPath") or "").rstrip("/"))
        and path.startswith(f"{mounted}/")
    ]
    if not mounts or pod.state.node is None:
        return ""
    mounted, name = max(mounts)
    volumes = js.items(js.at(pod.raw, "spec", "volumes"))
    volume = js.mapping(next((v for v in volumes if js.text_at(v, "name") == name), None))
    host = js.text_at(volume, "hostPath", "path")
    if host is None and "emptyDir" in volume:
        host = f"/var/lib/kubelet/pods/{pod.state.uid}/volumes/kubernetes.io~empty-dir/{name}"
    if host is None:
        return ""
    import shlex

    place = shlex.quote(f"/host{host.rstrip('/')}{path[len(mounted) :]}")
    node = shlex.quote(f"node/{pod.state.node}")
    return f"kubectl debug {node} -q -i --image=busybox -- cat {place}"
