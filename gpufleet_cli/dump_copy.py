"""How a person gets a dump off a pod's volume where exec cannot: a command to paste, never run by us.

`kubectl debug node/NODE` starts a pod on the node that sees its files below `/host`. Base64, since the
output of a container that ends at once may come by way of its log, which is made of lines.
Paths: the kubelet's `pods/UID/volumes/PLUGIN/NAME`.
https://kubernetes.io/docs/tasks/debug/debug-cluster/kubectl-node-debug/
"""

from __future__ import annotations

import re
import shlex

from gpufleet_cli.facts import DumpPlace, PodState
from gpufleet_cli.plain_text import is_name

PODS = "/host/var/lib/kubelet/pods"
SMALL_IMAGE = "busybox"
NOTE = "copies the dump of rank {rank} off its node; leaves a node-debugger pod"
CLOSED = "no dump can be written there: it is read-only by the pod's spec"
_UID = re.compile(r"[0-9A-Za-z-]{1,64}", re.ASCII)
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,500}", re.ASCII)
_ENDED = ("Failed", "Succeeded")


def command(pod: PodState, rank: int, place: DumpPlace | None = None) -> str | None:
    """The command that copies the dump of a rank; None where it lies nowhere that a node shows."""
    place = place or pod.dumps
    if (
        place is None
        or place.is_closed
        or place.volume is None
        or pod.node is None
        or not is_name(pod.node)
    ):
        return None
    found = _where(pod, place, rank)
    if found is None:
        return None
    debug = f"kubectl debug {shlex.quote(f'node/{pod.node}')} -q -i --image={_image(place)}"
    words = " ".join(shlex.quote(word) for word in found)
    return f"{debug} -- {words} | base64 -d >nccl_trace_rank_{rank}"


def _where(pod: PodState, place: DumpPlace, rank: int) -> tuple[str, ...] | None:
    """What to run on the node. A claim's volume has a name there that no pod tells: it is looked for."""
    if place.below is None or not _is_plain(below := f"{place.below}{rank}"):
        return None
    if place.host_path is not None:
        if not _is_plain(place.host_path):
            return None
        return "base64", f"/host{place.host_path.rstrip('/')}/{below}"
    if pod.uid is None or not _UID.fullmatch(pod.uid) or not is_name(place.volume or ""):
        return None
    volumes = f"{PODS}/{pod.uid}/volumes"
    if place.kind == "emptyDir":
        return "base64", f"{volumes}/kubernetes.io~empty-dir/{place.volume}/{below}"
    if pod.phase in _ENDED:  # the kubelet has taken it off the node
        return None
    pattern = re.sub(r"([\\*?\[])", r"\\\1", below)
    return "find", volumes, "-path", f"*/{pattern}", "-exec", "base64", "{}", ";"


def _is_plain(path: str) -> bool:
    return path.isprintable() and ".." not in path.split("/")


def _image(place: DumpPlace) -> str:
    """The job's own, which is on the node already and needs no registry; a small one where its tag
    would be asked for anew."""
    image = place.image or ""
    tag = image.rpartition("/")[2].rpartition(":")[2] if ":" in image.rpartition("/")[2] else ""
    is_kept = "@" in image or tag not in ("", "latest")
    return image if is_kept and _IMAGE.fullmatch(image) else SMALL_IMAGE


def fate(pod: PodState, place: DumpPlace | None = None) -> str | None:
    """What has become of a dump whose container ended, as far as its place tells; None where no place
    is known or it lies where it was.

    The kubelet takes the volumes of a pod that ended off its node, and empties an emptyDir.
    """
    place = place or pod.dumps
    if place is None:
        return None
    if place.is_closed:
        return CLOSED
    if place.volume is None:
        return "it lay in the container's own layer, and is lost with it"
    if pod.phase not in _ENDED:
        return None
    if place.kind == "emptyDir":
        return "it lay in an emptyDir, which goes soon after its pod has ended"
    if place.claim is not None:
        return f"it lies on the claim {place.claim}: mount that to read it"
    return None
