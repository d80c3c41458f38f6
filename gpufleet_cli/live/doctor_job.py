"""Would the Flight Recorder of this job leave dumps, and could they be read now? Of the pods' own settings.

Variables and defaults: PyTorch's ProcessGroupNCCL and FlightRecorder sources; the recorder is off by
default until torch 2.10 (buffer 0) and on from 2.11 (2000 entries), and whether it dumps on a timeout by
default differs by version: what is not set is therefore said as not known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from gpufleet_cli import dump_copy
from gpufleet_cli.live import exec_dumps, exec_socket
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.pods import Pod
from gpufleet_cli.parsers import json_documents as js
from gpufleet_cli.source_check import SourceCheck

BUFFER = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
ON_TIMEOUT = "TORCH_NCCL_DUMP_ON_TIMEOUT"
_TRUE = frozenset({"1", "true", "yes", "y", "t", "on"})
_FALSE = frozenset({"0", "false", "no", "n", "f", "off"})
_OUTLIVES = ("persistentVolumeClaim", "hostPath", "nfs", "csi", "flexVolume", "cephfs", "glusterfs")
DUMPS = "Flight Recorder dumps: which collective each rank entered last"


def recorder(pods: Sequence[Pod]) -> SourceCheck:
    """What the environment of the rank containers says of the recorder; the most frequent finding leads."""
    if not pods:
        return SourceCheck(source="recorder", ok=False, what="no pod with GPUs", would_lack=DUMPS)
    found = Counter(_recorder(pod) for pod in pods)
    worst = min(found, key=lambda one: (one.ok and not one.would_lack, one.ok, one.what))
    if len(found) == 1:
        return worst
    what = f"{found[worst]} of {len(pods)} pods: {worst.what}"
    return SourceCheck(
        source="recorder", ok=worst.ok, what=what, would_lack=worst.would_lack, action=worst.action
    )


def _recorder(pod: Pod) -> SourceCheck:
    env = exec_dumps.environment_of(pod)
    lacks, told, actions = [], [], []
    size = next((env[name] for name in BUFFER if name in env), None)
    if size is None:
        told.append("buffer size not set: records from torch 2.11 on, nothing before")
        lacks.append("perhaps all Flight Recorder dumps")
        actions.append("TORCH_FR_BUFFER_SIZE=2000 (TORCH_NCCL_TRACE_BUFFER_SIZE before 2.8)")
    elif size.strip() == "0":
        told.append("buffer size 0: records nothing")
        lacks.append(DUMPS)
        actions.append("TORCH_FR_BUFFER_SIZE=2000 (TORCH_NCCL_TRACE_BUFFER_SIZE before 2.8)")
    else:
        told.append(f"buffer of {size or 'a value that is not in the spec'}")
    on_timeout = env.get(ON_TIMEOUT)
    if on_timeout is None:
        told.append("dump on timeout not set: the default differs by version")
        lacks.append("perhaps dumps at a timeout")
        actions.append(f"{ON_TIMEOUT}=1")
    elif on_timeout.strip().lower() in _FALSE:
        told.append("dump on timeout is off")
        lacks.append("dumps at a timeout")
        actions.append(f"{ON_TIMEOUT}=1")
    elif on_timeout.strip().lower() in _TRUE:
        told.append("dumps on timeout")
    else:
        told.append(f"{ON_TIMEOUT} has a value that is not in the spec")
    place, outlives = place_of(pod)
    told.append(place)
    if pod.state.dumps is not None and pod.state.dumps.is_closed:
        told.append(dump_copy.CLOSED)
        lacks.append(DUMPS)
        actions.append("TORCH_NCCL_DEBUG_INFO_TEMP_FILE on a volume that outlives the pod")
    elif not outlives:
        lacks.append("dumps once the pod is gone")
        actions.append("TORCH_NCCL_DEBUG_INFO_TEMP_FILE on a volume that outlives the pod")
    return SourceCheck(
        source="recorder",
        ok=all(one.startswith("perhaps") for one in lacks),
        what="; ".join(told),
        would_lack="; ".join(dict.fromkeys(lacks)),
        action=f"set in the pod's env: {'; '.join(actions)}" if actions else "",
    )


def place_of(pod: Pod) -> tuple[str, bool]:
    """Where dumps are written, in a few words, and whether that outlives the pod."""
    place = pod.state.dumps
    if place is None:
        return "no dump path in the environment (default: /tmp or the user's cache)", False
    if place.volume is None:
        return f"{place.prefix} is in the container itself", False
    return f"{place.prefix} on {place.kind} {place.volume}", place.kind in _OUTLIVES


def dumps_by_exec(
    api: Api, pods: Sequence[Pod], *, stated: str | None, may_exec: bool | None
) -> SourceCheck:
    """Whether a dump could be read out of a running container now: path, right, container, `cat`."""
    source = "dumps"
    known = [pod for pod in pods if stated or pod.state.dumps]
    if not known:
        return SourceCheck(
            source=source, ok=False, would_lack=DUMPS,
            what="neither --dumps nor the pods' environment says where they are",
            action="TORCH_NCCL_DEBUG_INFO_TEMP_FILE in the pods, or --dumps exec:/path/prefix_",
        )  # fmt: skip
    if may_exec is False:
        return SourceCheck(
            source=source, ok=False, what="pods/exec is not allowed", would_lack=DUMPS,
            action="bind gpufleet-capture (deploy/rbac/capture.yaml), or --dumps with a folder",
        )  # fmt: skip
    running = [pod for pod in known if exec_dumps.why_not(pod) is None]
    if not running:
        why = exec_dumps.why_not(known[0]) or "none of its containers runs"
        return SourceCheck(
            source=source, ok=False, what=why, would_lack=DUMPS,
            action="a dump path on a volume that outlives the pod, and --dumps with it",
        )  # fmt: skip
    heard = exec_socket.run(api, running[0], ("cat", "/dev/null"))
    if heard.failed is not None:
        return SourceCheck(
            source=source, ok=False, would_lack=DUMPS,
            what=f"exec in {running[0].name}: {heard.failed}",
            action="--dumps with a folder or store that the pods write to",
        )  # fmt: skip
    place = running[0].state.dumps
    prefix = stated or ("" if place is None else place.prefix)
    what = f"exec works in {running[0].name} (it has cat); {prefix}RANK in {len(running)} pods"
    ended = len(known) - len(running)
    lack = f"dumps of {ended} pods whose containers have ended" if ended else ""
    return SourceCheck(source=source, ok=True, what=what, would_lack=lack)


def with_gpus(pods: Iterable[Pod]) -> list[Pod]:
    """The pods that run ranks; all where none asks for GPUs."""
    every = list(pods)
    return [pod for pod in every if js.at(pod.raw, "spec") and pod.state.gpus] or every
