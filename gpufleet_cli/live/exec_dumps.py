"""Flight Recorder dumps read out of running containers: `cat PATH` by exec, argv only, no shell, no glob.

A container that ended cannot be asked, one without `cat` neither: each dump that does not come is a gap
with its reason. Where the file lies on a volume of the pod, the gap names the command that copies it
from the node; it is printed, never run. Protocol: v4.channel.k8s.io over WebSocket.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from gpufleet_cli.errors import UsageError
from gpufleet_cli.live import threads
from gpufleet_cli.live.answers import LATE, LOST, NO_LOGIN
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.bundle_writer import BundleWriter
from gpufleet_cli.live.find_job import Job
from gpufleet_cli.live.pods import Attempt, Pod
from gpufleet_cli.parsers import json_documents as js

SETTINGS = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
TIMEOUT_S = 20.0
THREADS = 8
MOST_BYTES = 512 << 20
MOST_GAPS = 16
_SETTLES = "which collective it entered last"
_RANK = re.compile(rb"\[rank(\d{1,6})\]:")
_STDOUT, _STDERR, _STATUS = 1, 2, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Dump:
    """One file that a rank should have written."""

    pod: Pod
    rank: int
    path: str

    @property
    def kept_as(self) -> str:
        return f"dumps/nccl_trace_rank_{self.rank}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What exec gave: bytes, or why not."""

    data: bytes
    failed: str | None


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
        why = why_not(pod)
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
    for why, whom in refused.items():
        _gap(why, whom, sink)


def _read(
    api: Api,
    wanted: Sequence[Dump],
    refused: dict[str, list[tuple[int | None, str]]],
    sink: BundleWriter,
) -> None:
    done = set()
    results = threads.each(
        lambda dump: run(api, dump.pod, ("cat", dump.path)),
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
            refused[LATE].append((dump.rank, ""))


def _gap(why: str, whom: Sequence[tuple[int | None, str]], sink: BundleWriter) -> None:
    ranks = sorted(rank for rank, _ in whom if rank is not None)
    commands = [command for _, command in whom if command.startswith("kubectl")]
    settles = f"{_SETTLES}; from the node: {commands[0]}" if commands else _SETTLES
    if not ranks:
        pods = sorted({name for _, name in whom if name})
        shown = f" of {', '.join(pods[:4])}{' and others' if len(pods) > 4 else ''}" if pods else ""
        sink.gap(f"Flight Recorder dumps{shown}", why, settles)
    elif len(ranks) <= MOST_GAPS:
        for rank in ranks:
            sink.gap(f"Flight Recorder dump of rank {rank}", why, settles)
    else:
        shown = ", ".join(map(str, ranks[:8]))
        sink.gap(f"Flight Recorder dumps of {len(ranks)} ranks ({shown}, ...)", why, settles)


# --- Where they are -------------------------------------------------------------------------------


def _container(pod: Pod) -> object:
    specs = js.items(js.at(pod.raw, "spec", "containers"))
    return next((s for s in specs if js.text_at(s, "name") == pod.state.rank_container), None)


def environment_of(pod: Pod) -> dict[str, str]:
    """Of the rank's container; a value that comes from elsewhere (a ConfigMap) is empty."""
    return {
        name: js.text_at(entry, "value") or ""
        for entry in js.items(js.at(_container(pod), "env"))
        if (name := js.text_at(entry, "name")) is not None
    }


def prefix_of(pod: Pod) -> str | None:
    """The prefix that the rank's container writes to, by its own environment."""
    env = environment_of(pod)
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


def why_not(pod: Pod) -> str | None:
    """Why the container cannot be asked, None where it runs."""
    own = next((c for c in pod.state.containers if c.name == pod.state.rank_container), None)
    if own is None or own.state == "waiting":
        return "its container has not started"
    if own.state == "terminated" or pod.state.phase in ("Failed", "Succeeded"):
        return "its container has terminated: exec is not possible any more"
    return None


def _mounts(pod: Pod, path: str) -> list[tuple[str, str | None]]:
    """(where, name) of the volumes that this path may lie on; the one it does is the last."""
    return sorted(
        (mounted, js.text_at(one, "name"))
        for one in js.items(js.at(_container(pod), "volumeMounts"))
        if (mounted := (js.text_at(one, "mountPath") or "").rstrip("/"))
        and path.startswith(f"{mounted}/")
    )


def volume_of(pod: Pod, path: str) -> tuple[str | None, Mapping[str, object] | None]:
    """The volume that a path of the rank's container lies on; None for the container's own files."""
    mounts = _mounts(pod, path)
    if not mounts:
        return None, None
    name = mounts[-1][1]
    volumes = js.items(js.at(pod.raw, "spec", "volumes"))
    return name, js.mapping(next((v for v in volumes if js.text_at(v, "name") == name), None))


def from_volume(pod: Pod, path: str) -> str:
    """The command that reads a file from the pod's volume on its node; empty where it lies in none."""
    name, volume = volume_of(pod, path)
    if volume is None or pod.state.node is None:
        return ""
    mounted = _mounts(pod, path)[-1][0]
    host = js.text_at(volume, "hostPath", "path")
    if host is None and "emptyDir" in volume:
        host = f"/var/lib/kubelet/pods/{pod.state.uid}/volumes/kubernetes.io~empty-dir/{name}"
    if host is None:
        return ""
    import shlex

    place = shlex.quote(f"/host{host.rstrip('/')}{path[len(mounted) :]}")
    node = shlex.quote(f"node/{pod.state.node}")
    return f"kubectl debug {node} -q -i --image=busybox -- cat {place}"


# --- Exec -----------------------------------------------------------------------------------------


def run(api: Api, pod: Pod, command: Sequence[str]) -> Heard:
    """One command in the rank's container: its standard output, or why there is none."""
    import websocket

    api.requests["exec"] += 1
    query = [
        ("container", pod.state.rank_container or ""),
        ("stdout", "true"),
        ("stderr", "true"),
        *(("command", word) for word in command),
    ]
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/exec?{urlencode(query)}"
    url = "ws" + api.access.url(path).removeprefix("http")
    bound = max(0.1, api.deadline.bound(TIMEOUT_S))
    try:
        connection = websocket.create_connection(
            url,
            timeout=bound,
            header=[f"{name}: {value}" for name, value in api.access.headers().items()],
            subprotocols=["v4.channel.k8s.io"],
            **_way(api),
        )
    except websocket.WebSocketBadStatusException as exc:
        return Heard(data=b"", failed=_refused(exc.status_code, exc.resp_body))
    except (websocket.WebSocketException, OSError) as exc:
        return Heard(data=b"", failed=_broken(api, f"{LOST}: exec did not connect", exc))
    try:
        return _hear(connection, command[0])
    except (websocket.WebSocketException, OSError) as exc:
        return Heard(data=b"", failed=_broken(api, "exec broke off", exc))
    finally:
        connection.close(timeout=1)


def _broken(api: Api, what: str, exc: Exception) -> str:
    return LATE if api.deadline.is_over() else f"{what}: {' '.join(str(exc).split())[:120]}"


def _way(api: Api) -> dict[str, Any]:
    """Certificates and proxy of the connection, as for all other requests."""
    found: dict[str, Any] = {}
    if "ssl_context" in api.access.tls:
        found["sslopt"] = {"context": api.access.tls["ssl_context"]}
        if "server_hostname" in api.access.tls:
            found["sslopt"]["server_hostname"] = api.access.tls["server_hostname"]
    if api.access.proxy is not None:
        proxy = urlsplit(api.access.proxy)
        kind = {"socks5": "socks5h"}.get(proxy.scheme, proxy.scheme)
        found |= {
            "http_proxy_host": proxy.hostname,
            "http_proxy_port": proxy.port,
            "proxy_type": "http" if kind == "https" else kind,
            "http_no_proxy": [],
        }
        if proxy.username:
            found["http_proxy_auth"] = (proxy.username, proxy.password or "")
    else:
        found["http_no_proxy"] = ["*"]
    return found


def _refused(status: int, body: bytes | None) -> str:
    message = (body or b"").decode("utf-8", "replace")
    try:
        message = str(json.loads(message)["message"])
    except (ValueError, KeyError, TypeError):
        message = " ".join(message.split())[:120]
    if status == 401:
        return NO_LOGIN
    if status == 403:
        return "not allowed: needs create and get on pods/exec (gpufleet-capture)"
    return f"exec was refused ({status}): {message[:160]}"


def _hear(connection: Any, program: str) -> Heard:  # noqa: ANN401
    """Frames until the end: the first byte is the channel."""
    import websocket

    out: list[bytes] = []
    errors: list[bytes] = []
    size = 0
    status: Mapping[str, object] = {}
    while True:
        try:
            code, frame = connection.recv_data()
        except websocket.WebSocketConnectionClosedException:
            break
        if code == websocket.ABNF.OPCODE_CLOSE:
            break
        if not frame:
            continue
        channel, payload = frame[0], frame[1:]
        if channel == _STDOUT:
            out.append(payload)
            size += len(payload)
            if size > MOST_BYTES:
                return Heard(data=b"", failed=f"over {MOST_BYTES >> 20} MB: not read")
        elif channel == _STDERR:
            errors.append(payload)
        elif channel == _STATUS:
            status = js.mapping(_json(payload))
            break
    if status.get("status") == "Success":
        return Heard(data=b"".join(out), failed=None)
    said = b"".join(errors).decode("utf-8", "replace") or str(status.get("message") or "")
    return Heard(data=b"", failed=_failure(said, program))


def _json(payload: bytes) -> object:
    try:
        return json.loads(payload)
    except ValueError:
        return None


def _failure(said: str, program: str) -> str:
    line = " ".join(said.split())
    if "No such file or directory" in line and f'exec: "{program}"' not in line:
        return "no such file: no dump was written there (yet)"
    if "executable file not found" in line or f'exec: "{program}"' in line:
        return f"the image has no {program} (distroless)"
    if "Permission denied" in line:
        return "permission denied inside the container"
    return line[:160] or "exec ended without a status"
