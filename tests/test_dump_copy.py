"""The command that gets a dump off a pod's volume: only where it lies on one, always quoted, never run."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

import pytest

from gpufleet_cli import dump_copy
from gpufleet_cli.bundle import Evidence
from gpufleet_cli.facts import DumpPlace, PodState
from gpufleet_cli.parsers import kubernetes_objects, kubernetes_volumes

UID = "1f0e2c6a-6a2b-4d3c-9b1e-0a1b2c3d4e5f"
VOLUMES = f"/host/var/lib/kubelet/pods/{UID}/volumes"


def pod(
    volume: dict[str, Any] | None = None,
    *,
    mount: dict[str, Any] | None = None,
    prefix: str | None = "/dumps/rank_",
    image: str = "registry.example/train:7",
    phase: str = "Running",
    node: str = "gpu-1",
) -> PodState:
    """A pod whose container has one volume at `/dumps`, as the parser reads it."""
    env = [] if prefix is None else [{"name": "TORCH_FR_DUMP_TEMP_FILE", "value": prefix}]
    container = {
        "name": "trainer",
        "image": image,
        "env": env,
        "volumeMounts": []
        if volume is None
        else [{"name": "d", "mountPath": "/dumps", **(mount or {})}],
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    raw = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "w-0", "namespace": "ml", "uid": UID},
        "spec": {
            "nodeName": node,
            "containers": [container],
            "volumes": [] if volume is None else [{"name": "d", **volume}],
        },
        "status": {"phase": phase},
    }
    import json

    text = json.dumps(raw).encode()
    evidence = Evidence(path="pod.json", size_bytes=len(text), content=text)
    (found,) = [one for one in kubernetes_objects.parse(evidence) if isinstance(one, PodState)]
    return found


def on_the_node(state: PodState, rank: int = 3) -> list[str]:
    """What the command runs on the node."""
    found = dump_copy.command(state, rank)
    assert found is not None
    words = shlex.split(found, posix=True)
    assert ["kubectl", "debug", "node/gpu-1", "-q", "-i"] == words[:5]
    return words[words.index("--") + 1 : words.index("|")]


def test_an_empty_dir() -> None:
    """Below the pod's uid, where the kubelet keeps it; into a file of the rank's name."""
    state = pod({"emptyDir": {}})
    assert ["base64", f"{VOLUMES}/kubernetes.io~empty-dir/d/rank_3"] == on_the_node(state)
    assert (dump_copy.command(state, 3) or "").endswith("| base64 -d >nccl_trace_rank_3")


def test_a_host_path_and_a_sub_path() -> None:
    """The node's own folder, and what the mount takes of it."""
    state = pod({"hostPath": {"path": "/mnt/scratch/"}}, mount={"subPath": "run7/"})
    assert ["base64", "/host/mnt/scratch/run7/rank_3"] == on_the_node(state)
    assert ["base64", "/host/mnt/scratch/run7/rank_3"] == on_the_node(
        replace(state, phase="Failed")
    )


def test_a_claim_is_looked_for() -> None:
    """No pod tells the name that its volume has on the node; once the pod has ended it is not there."""
    state = pod({"persistentVolumeClaim": {"claimName": "traces"}}, prefix="/dumps/a[1]/rank_")
    assert [
        "find", VOLUMES, "-path", r"*/a\[1]/rank_3", "-exec", "base64", "{}", ";",
    ] == on_the_node(state)  # fmt: skip
    ended = replace(state, phase="Failed")
    assert dump_copy.command(ended, 3) is None
    assert "it lies on the claim traces: mount that to read it" == dump_copy.fate(ended)


@pytest.mark.parametrize(
    "state",
    [
        pod(None),
        pod({"emptyDir": {}}, prefix="/tmp/rank_"),
        pod({"emptyDir": {}}, prefix=None),
        pod({"emptyDir": {}}, mount={"subPathExpr": "$(POD_NAME)"}),
        pod({"emptyDir": {}}, prefix="/dumps/../etc/rank_"),
        pod({"emptyDir": {}}, prefix="/dumps/\x1b[2J_"),
        pod({"hostPath": {"path": "/mnt/../.."}}),
        pod({"emptyDir": {}}, node="-oProxyCommand=id"),
        replace(pod({"emptyDir": {}}), uid="../../x"),
        replace(pod({"emptyDir": {}}), node=None),
    ],
)
def test_nothing_is_printed_for_what_lies_elsewhere(state: PodState) -> None:
    """In the container's own layer, in a place that nothing tells, or where a name is none."""
    assert dump_copy.command(state, 3) is None


def test_words_of_a_pod_are_quoted() -> None:
    """A path is one word, whatever is in it."""
    state = pod({"hostPath": {"path": "/mnt/a b;$(id)"}})
    assert ["base64", "/host/mnt/a b;$(id)/rank_3"] == on_the_node(state)


@pytest.mark.parametrize(
    ("image", "chosen"),
    [
        ("registry.example:5000/team/train:7", "registry.example:5000/team/train:7"),
        ("registry.example/train@sha256:00ff", "registry.example/train@sha256:00ff"),
        ("registry.example:5000/team/train", "busybox"),
        ("train:latest", "busybox"),
        ("train:7;id", "busybox"),
        ("", "busybox"),
    ],
)
def test_the_image_is_one_that_is_there(image: str, chosen: str) -> None:
    """The job's own, unless its tag would be asked for anew."""
    state = pod({"emptyDir": {}}, image=image)
    assert f" --image={chosen} -- " in (dump_copy.command(state, 3) or "")


def test_what_became_of_it() -> None:
    """The container's own layer is lost with it; an emptyDir goes soon after its pod."""
    assert "it lay in the container's own layer, and is lost with it" == dump_copy.fate(pod(None))
    assert dump_copy.fate(pod(None, prefix=None)) is None
    assert dump_copy.fate(pod({"emptyDir": {}})) is None
    ended = pod({"emptyDir": {}}, phase="Failed")
    assert "it lay in an emptyDir, which goes soon after its pod has ended" == dump_copy.fate(ended)


def test_the_deepest_mount_counts() -> None:
    """`/dumps/run7` within `/dumps`; `/dumps-old` is no part of it."""
    raw = {
        "spec": {
            "containers": [
                {
                    "name": "c",
                    "volumeMounts": [
                        {"name": "a", "mountPath": "/dumps"},
                        {"name": "b", "mountPath": "/dumps/run7/"},
                        {"name": "c", "mountPath": "/dumps/run"},
                    ],
                }
            ],
            "volumes": [{"name": "b", "emptyDir": {}}],
        }
    }
    expected = DumpPlace(prefix="/dumps/run7/rank_", volume="b", kind="emptyDir", below="rank_")
    assert expected == kubernetes_volumes.dump_place(raw, "c", "/dumps/run7/rank_")


def test_what_cannot_be_written_left_nothing() -> None:
    """A read-only mount: no command copies what was never there."""
    mount = {"name": "a", "mountPath": "/dumps", "readOnly": True}
    raw = {"spec": {"containers": [{"name": "c", "volumeMounts": [mount]}]}}
    place = kubernetes_volumes.dump_place(raw, "c", "/dumps/rank_")
    assert place is not None
    assert dump_copy.CLOSED == dump_copy.fate(pod(None), place)
    assert dump_copy.command(pod({"emptyDir": {}}), 0, place) is None
