"""Where a container's Flight Recorder dumps land: on which of the pod's volumes, or in its own layer.

    {"env": [{"name": "TORCH_FR_DUMP_TEMP_FILE", "value": "/dumps/rank_"}],
     "volumeMounts": [{"name": "dumps", "mountPath": "/dumps", "subPath": "run7"}]}

API: core/v1 PodSpec. The settings: PyTorch, c10d/FlightRecorder and ProcessGroupNCCL.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpufleet_cli.facts import DumpPlace
from gpufleet_cli.parsers import json_documents as js

SETTINGS = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_KINDS = (
    "emptyDir", "hostPath", "persistentVolumeClaim", "ephemeral", "csi", "nfs", "local",
)  # fmt: skip
_OWN_MEMORY = ("/dev/shm/",)
"""Every container has it, and may write there."""


def container_of(pod: object, name: str | None) -> object:
    """One container of the spec."""
    specs = js.items(js.at(pod, "spec", "containers"))
    return next((one for one in specs if js.text_at(one, "name") == name), None)


def setting(pod: object, container: str | None, names: tuple[str, ...]) -> str | None:
    """The first of these variables that holds an absolute path with nothing left to expand."""
    env: dict[str, str] = {}
    for entry in js.items(js.at(container_of(pod, container), "env")):
        name, value = js.text_at(entry, "name"), js.text_at(entry, "value")
        if name is not None and value is not None:
            env[name] = value
    for name in names:
        found = env.get(name)
        if found is not None and found.startswith("/") and "$(" not in found:
            return found
    return None


def dump_place(pod: object, container: str | None, prefix: str | None = None) -> DumpPlace | None:
    """Where the container's dumps land; `prefix` where somebody stated it, else by its environment."""
    prefix = prefix or setting(pod, container, SETTINGS)
    if prefix is None:
        return None
    spec = container_of(pod, container)
    image = js.text_at(spec, "image")
    mounts = [
        (at, mount)
        for mount in js.items(js.at(spec, "volumeMounts"))
        if (at := (js.text_at(mount, "mountPath") or "").rstrip("/"))
        and prefix.startswith(f"{at}/")
    ]
    if not mounts:
        closed = js.at(spec, "securityContext", "readOnlyRootFilesystem") is True
        is_closed = closed and not prefix.startswith(_OWN_MEMORY)
        return DumpPlace(prefix=prefix, image=image, is_closed=is_closed)
    at, mount = max(mounts, key=lambda one: len(one[0]))
    name = js.text_at(mount, "name")
    volumes = js.items(js.at(pod, "spec", "volumes"))
    volume = js.mapping(next((one for one in volumes if js.text_at(one, "name") == name), None))
    below = (js.text_at(mount, "subPath") or "").strip("/")
    return DumpPlace(
        prefix=prefix,
        image=image,
        volume=name,
        kind=_kind(volume),
        host_path=js.text_at(volume, "hostPath", "path"),
        claim=js.text_at(volume, "persistentVolumeClaim", "claimName"),
        is_closed=js.at(mount, "readOnly") is True,
        below=None
        if js.text_at(mount, "subPathExpr")
        else f"{below}/{prefix[len(at) + 1 :]}".lstrip("/"),
    )


def _kind(volume: Mapping[str, object]) -> str:
    return next((kind for kind in _KINDS if kind in volume), "another kind")
