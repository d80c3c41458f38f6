"""Pods as they are and as they end: what a kubelet would write in their status, and their files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from servers.api import Json, in_parallel
from servers.namespaces import Namespace
from servers.running import wait_until
from servers.stages import HOLD, LEFT

Line = tuple[datetime, str]  # when the runtime got it, and what it says

KEEP = "test.gpufleet.dev/keep"  # finalizer: the object stays when it was deleted
_CRI_PART = 16 * 1024  # the runtime splits longer lines


def read(namespace: Namespace, pod: str) -> Json:
    """The pod as it is now."""
    return namespace.api.get(namespace.path(f"pods/{pod}"))


def found(namespace: Namespace, selector: str = "") -> list[Json]:
    """The pods that a label selector finds, by name."""
    query = {"labelSelector": selector} if selector else {}
    pods = namespace.api.items(namespace.path("pods"), **query)
    return sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))


def wait(
    namespace: Namespace,
    selector: str,
    count: int,
    *,
    phase: str = "Running",
    within_s: float | None = None,
) -> list[Json]:
    """Wait for exactly so many pods in that phase; they, by name."""

    def chosen() -> list[Json]:
        return [pod for pod in found(namespace, selector) if pod["status"]["phase"] == phase]

    wait_until(
        lambda: len(chosen()) == count,
        f"{count} pods of {selector} {phase}",
        within_s=within_s or 60 + count / 5,
    )
    return chosen()


def remake(namespace: Namespace, pod: str) -> None:
    """Delete a pod that no controller made and make it again under its name and labels; it runs when this returns.

    Without kwok: its own deletion is by name, comes late, and would take the new pod instead (5 times in 60).
    """
    old = read(namespace, pod)
    path = namespace.path(f"pods/{pod}")
    namespace.api.patch(path, {"metadata": {"annotations": {LEFT: "true"}}})
    namespace.api.send("DELETE", path, {"gracePeriodSeconds": 0})
    wait_until(lambda: not namespace.api.answers(path), f"{pod} is gone")
    kept = {key: old["metadata"][key] for key in ("name", "namespace", "labels")}
    spec = {key: old["spec"][key] for key in ("containers", "nodeSelector", "restartPolicy")}
    made = namespace.api.create({"apiVersion": "v1", "kind": "Pod", "metadata": kept, "spec": spec})

    def runs() -> bool:
        now = read(namespace, pod)
        uid, phase = now["metadata"]["uid"], now["status"]["phase"]
        return bool(uid == made["metadata"]["uid"] and phase == "Running")

    wait_until(runs, f"{pod} runs again", within_s=60)


def terminate(
    namespace: Namespace,
    pod: str,
    *,
    exit_code: int = 1,
    reason: str | None = None,
    at: datetime | None = None,
    container: str | None = None,
    message: str | None = None,
) -> None:
    """A container (the first) ends for good; the pod with it when none runs any more."""
    ended = _terminated(exit_code, reason, at, message)

    def change(status: Json) -> None:
        chosen = _container(status, container)
        chosen["state"] = {"terminated": _since(chosen, ended)}
        chosen.update(ready=False, started=False)
        every = [one["state"] for one in status["containerStatuses"]]
        if all("terminated" in state for state in every):
            failed = any(state["terminated"]["exitCode"] != 0 for state in every)
            status["phase"] = "Failed" if failed else "Succeeded"
        _not_ready(status, ended["finishedAt"])

    _change_status(namespace, pod, change)


def kill_for_memory(namespace: Namespace, pod: str, *, at: datetime | None = None) -> None:
    """The kernel killed the container over its limit."""
    terminate(namespace, pod, exit_code=137, reason="OOMKilled", at=at)


def restart(
    namespace: Namespace,
    pod: str,
    *,
    exit_code: int = 1,
    reason: str | None = None,
    at: datetime | None = None,
    container: str | None = None,
) -> None:
    """A container ended and runs again in its place (restartPolicy other than Never)."""
    ended = _terminated(exit_code, reason, at, None)

    def change(status: Json) -> None:
        chosen = _container(status, container)
        chosen["lastState"] = {"terminated": _since(chosen, ended)}
        chosen["restartCount"] += 1
        chosen["state"] = {"running": {"startedAt": ended["finishedAt"]}}

    _change_status(namespace, pod, change)


def evict(
    namespace: Namespace,
    pod: str,
    *,
    message: str = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 62Mi. ",
    at: datetime | None = None,
) -> None:
    """The kubelet evicted the pod under node pressure: Failed, `Evicted`, and its containers are gone."""
    ended = _terminated(137, "ContainerStatusUnknown", at, "The container could not be located")

    def change(status: Json) -> None:
        status.update(phase="Failed", reason="Evicted", message=message)
        for one in status["containerStatuses"]:
            one["state"] = {"terminated": _since(one, ended)}
            one.update(ready=False, started=False)
        _not_ready(status, ended["finishedAt"])
        _condition(status, "DisruptionTarget", "True", ended["finishedAt"])
        status["conditions"][-1].update(reason="TerminationByKubelet", message=message)

    _change_status(namespace, pod, change)


def hold_back(
    namespace: Namespace,
    pod: str,
    *,
    reason: str = "ImagePullBackOff",
    message: str = 'Back-off pulling image "registry.example/train:1": not found',
) -> None:
    """The first container of a pod made with `hold` waits for this reason."""

    def change(status: Json) -> None:
        made = read(namespace, pod)["spec"]["containers"]
        status["containerStatuses"] = [
            {
                "name": one["name"],
                "image": one["image"],
                "imageID": "",
                "ready": False,
                "started": False,
                "restartCount": 0,
                "state": {
                    "waiting": {"reason": reason, "message": message}
                    if one is made[0]
                    else {"reason": "ContainerCreating"}
                },
            }
            for one in made
        ]
        now = _stamp(None)
        status.setdefault("conditions", [])
        _condition(status, "Initialized", "True", now)
        _not_ready(status, now)

    _change_status(namespace, pod, change)


def let_start(namespace: Namespace, pod: str) -> None:
    """A pod made with `hold` may start now."""
    namespace.api.patch(namespace.path(f"pods/{pod}"), {"metadata": {"annotations": {HOLD: None}}})


def evict_by_api(namespace: Namespace, pod: str, *, at: datetime | None = None) -> None:
    """Somebody evicts the pod through the real Eviction API; its kubelet ends it, and it is still Terminating.

    A finalizer keeps the object, as a Job's does until its controller has counted it. `at`: when that was.
    """
    path = namespace.path(f"pods/{pod}")
    kept = read(namespace, pod)["metadata"].get("finalizers", [])
    namespace.api.patch(path, {"metadata": {"finalizers": [*kept, KEEP]}})
    meta: Json = {"name": pod, "namespace": namespace.name}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
    namespace.api.post(f"{path}/eviction", eviction)
    terminate(namespace, pod, exit_code=143, at=at)
    if at is None:
        return

    def change(status: Json) -> None:
        told = next(one for one in status["conditions"] if one["type"] == "DisruptionTarget")
        told["lastTransitionTime"] = _stamp(at)

    _change_status(namespace, pod, change)


def take_off_dead_node(namespace: Namespace, pod: str, *, at: datetime) -> None:
    """The taint manager deletes the pod of a node that is dead; it stays Terminating."""

    def change(status: Json) -> None:
        _condition(status, "DisruptionTarget", "True", _stamp(at))
        status["conditions"][-1].update(
            reason="DeletionByTaintManager",
            message="Taint manager: deleting due to NoExecute taint",
        )
        _not_ready(status, _stamp(at))

    _change_status(namespace, pod, change)
    namespace.api.delete(namespace.path(f"pods/{pod}"))


def let_go(namespace: Namespace, pod: str) -> None:
    """Nothing of ours keeps the object any longer."""
    path = namespace.path(f"pods/{pod}")
    kept = [one for one in read(namespace, pod)["metadata"].get("finalizers", []) if one != KEEP]
    namespace.api.patch(path, {"metadata": {"finalizers": kept}})


def report_event(
    namespace: Namespace,
    about: Json,
    *,
    reason: str,
    message: str,
    component: str = "kubelet",
    kind: str = "Warning",
    at: datetime | None = None,
) -> None:
    """An event about an object, as a component reports it."""
    meta = about["metadata"]
    stamp = _stamp(at)
    where = meta.get("namespace", "default")
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{meta['name']}.", "namespace": where},
        "involvedObject": {
            "apiVersion": about.get("apiVersion", "v1"),
            "kind": about.get("kind", "Pod"),
            "name": meta["name"],
            "namespace": meta.get("namespace", ""),
            "uid": meta.get("uid", ""),
        },
        "reason": reason,
        "message": message,
        "type": kind,
        "source": {"component": component},
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }
    namespace.api.post(f"/api/v1/namespaces/{where}/events", event)


def give_log(
    namespace: Namespace,
    pod: str,
    lines: Sequence[Line],
    *,
    container: str = "trainer",
    previous: Sequence[Line] = (),
    more: Mapping[str, Sequence[Line]] | None = None,
) -> Path:
    """Log files of a pod: this container's, the one before it, and those of `more` containers. The first one's path.

    The file may grow, and the log with it: append what `cri_line` makes.
    """
    folder = namespace.cluster.folder / "logs" / namespace.name / pod
    folder.mkdir(parents=True, exist_ok=True)
    entries = []
    for name, text in {container: lines, **(more or {})}.items():
        file = folder / f"{name}.log"
        file.write_bytes(b"".join(cri_line(*line) for line in text))
        entries.append({"containers": [name], "logsFile": str(file)})
    if previous:
        file = folder / f"{container}.previous.log"
        file.write_bytes(b"".join(cri_line(*line) for line in previous))
        entries[0]["previousLogsFile"] = str(file)
    _configure(namespace, pod, "Logs", {"logs": entries})
    _wait_for_log(namespace, pod, container)
    return folder / f"{container}.log"


def give_logs(
    namespace: Namespace, logs: Mapping[str, Sequence[Line]], *, container: str = "trainer"
) -> None:
    """`give_log` for many pods at once. All are written before the first is asked for: kwok reads all anew each time."""
    folder = namespace.cluster.folder / "logs" / namespace.name

    def write(pod: str) -> None:
        file = folder / pod / f"{container}.log"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"".join(cri_line(*line) for line in logs[pod]))
        entry = {"containers": [container], "logsFile": str(file)}
        _configure(namespace, pod, "Logs", {"logs": [entry]})

    in_parallel(write, logs)
    for pod in logs:
        _wait_for_log(namespace, pod, container)


def _wait_for_log(namespace: Namespace, pod: str, container: str) -> None:
    """Wait until kwok knows where the log lies; the API server and the pod's state have no part in it."""
    asked = f"/containerLogs/{namespace.name}/{pod}/{container}?limitBytes=1"
    kubelet = namespace.cluster.kubelet
    wait_until(lambda: kubelet.answers(asked), f"kwok knows the log of {pod}", within_s=60)


def allow_exec(
    namespace: Namespace, pod: str, folder: Path, *, env: Mapping[str, str] | None = None
) -> None:
    """Exec into any container of the pod runs on this machine, in `folder`: paths must be unique per pod."""
    target = {
        "local": {
            "workDir": str(folder),
            "envs": [{"name": name, "value": value} for name, value in (env or {}).items()],
        }
    }
    _configure(namespace, pod, "Exec", {"execs": [target]})


def cri_line(at: datetime, text: str, stream: str = "stdout") -> bytes:
    """One line as the runtime stores it, in parts where it is long (`tailLines` counts the parts).

    Escaped surrogates carry bytes that are no UTF-8.
    """
    stamp = f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}000Z {stream}".encode()
    raw = text.encode(errors="surrogateescape")
    parts = [raw[at : at + _CRI_PART] for at in range(0, len(raw), _CRI_PART)] or [b""]
    tags = [b"P"] * (len(parts) - 1) + [b"F"]
    return b"".join(
        b"%s %s %s\n" % (stamp, tag, part) for tag, part in zip(tags, parts, strict=True)
    )


def _configure(namespace: Namespace, pod: str, kind: str, spec: Json) -> None:
    """Make or replace what kwok knows of the pod."""
    plural = {"Logs": "logs", "Exec": "execs"}[kind]
    meta: Json = {"name": pod, "namespace": namespace.name}
    path = namespace.path(f"{plural}/{pod}", "/apis/kwok.x-k8s.io/v1alpha1")
    if namespace.api.answers(path):
        namespace.api.patch(path, {"spec": spec})
    else:
        version = "kwok.x-k8s.io/v1alpha1"
        namespace.api.create({"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec})


def _change_status(namespace: Namespace, pod: str, change: Callable[[Json], None]) -> None:
    """Write the pod's status as its kubelet would."""
    path = namespace.path(f"pods/{pod}")
    namespace.api.update(path, lambda found: change(found["status"]), part="/status")


def _container(status: Json, name: str | None) -> Json:
    """The status of that container, or of the first."""
    statuses: list[Json] = status["containerStatuses"]
    return next(one for one in statuses if name in (None, one["name"]))


def _terminated(code: int, reason: str | None, at: datetime | None, message: str | None) -> Json:
    """The end of a container."""
    made = {
        "exitCode": code,
        "reason": reason or ("Completed" if code == 0 else "Error"),
        "finishedAt": _stamp(at),
    }
    return made | ({"message": message} if message else {})


def _since(container: Json, ended: Json) -> Json:
    """That end, with the start that the container's status knew."""
    running = container["state"].get("running", {})
    known = {"containerID": container["containerID"]} if container.get("containerID") else {}
    return ended | known | {"startedAt": running.get("startedAt", ended["finishedAt"])}


def _not_ready(status: Json, stamp: str) -> None:
    """Neither the pod nor its containers are ready."""
    for kind in ("Ready", "ContainersReady"):
        _condition(status, kind, "False", stamp)


def _condition(status: Json, kind: str, value: str, stamp: str) -> None:
    """Set one condition of the pod."""
    kept = [one for one in status["conditions"] if one["type"] != kind]
    made = {"type": kind, "status": value, "lastTransitionTime": stamp}
    status["conditions"] = [*kept, made]


def _stamp(at: datetime | None) -> str:
    """As the API writes a time; now where none is given."""
    return f"{(at or datetime.now(UTC)).astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
