"""What the cluster says: kernel logs, the rank map, the pods."""

from __future__ import annotations

import json
from typing import Any

from train_run_7.world import (
    BUS_IDS,
    CULPRIT,
    FAULT_NS,
    FIRST_STEP,
    GPUS,
    JOB,
    LAST_STEP_NS,
    MS,
    NAMESPACE,
    US,
    WORLD,
    Node,
    S,
    moment,
    step_end,
)


def kernel_line(node: Node, at_ns: int, text: str) -> str:
    local = at_ns + node.offset_ns
    return f"{moment(local):%Y-%m-%dT%H:%M:%S}.{local % S // US:06d}+00:00 {node.name} kernel: {text}\n"


def xid(local_rank: int, rest: str) -> str:
    return f"NVRM: Xid (PCI:0000:{BUS_IDS[local_rank]}:00): {rest}"


def kernel_log(node: Node) -> str:
    """The fault on the culprit's node; on others an old code, a benign one, and clean-up."""
    start, fault = step_end(FIRST_STEP) - 90 * S, FAULT_NS
    said: list[tuple[int, str]] = [
        (start, "eth1: renamed from veth6f1c02a"),
        (start + 400 * MS, "eth0: renamed from tmp9a3e1"),
    ]
    gone = "GPU has fallen off the bus."
    if CULPRIT in node.ranks:
        said += [
            (fault - 900 * US, "pcieport 0000:4c:01.0: pciehp: Slot(3): Link Down"),
            (fault, xid(0, f"79, pid='<unknown>', name=<unknown>, {gone}")),
            (fault + 140 * US, f"NVRM: GPU 0000:4e:00.0: {gone}"),
            (
                fault + 610 * MS,
                xid(
                    0,
                    "154, GPU recovery action changed from 0x0 (None) to 0x2 "
                    "(Node Reboot Required)",
                ),
            ),
        ]
    if node.index in (43, 44, 71):  # clean-up after the processes aborted
        end = LAST_STEP_NS + 612_140 * MS
        for local_rank in (0, 3):
            who = f"pid={221_400 + local_rank}, name=python3"
            said.append((end + local_rank * MS, xid(local_rank, f"43, {who}, Ch 00000008")))
            said.append(
                (end + local_rank * MS + 300 * US, xid(local_rank, f"45, {who}, Ch 00000009"))
            )
    if node.index == 12:
        fault_text = (
            "31, pid=88121, name=python3, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS "
            "GPCCLIENT_T1_4 faulted @ 0x7f2c_11000000. Fault is of type FAULT_PDE "
            "ACCESS_TYPE_VIRT_READ"
        )
        said.append((LAST_STEP_NS - 2 * 86_400 * S - 4_000 * S, xid(5, fault_text)))
    if node.index == 88:
        remap = (
            "63, pid='<unknown>', name=<unknown>, Row Remapper: New row (0x000000000030c2b5) "
            "marked for remapping, reset gpu to activate."
        )
        said.append((LAST_STEP_NS - 5_400 * S, xid(2, remap)))
    return "".join(kernel_line(node, at, text) for at, text in sorted(said))


def topology(fleet: list[Node]) -> str:
    rows = [
        json.dumps(
            {
                "rank": rank,
                "pod": node.pod,
                "container": "pytorch",
                "node": node.name,
                "local_rank": rank % GPUS,
                "gpu_index": rank % GPUS,
                "pci_bus_id": f"0000:{BUS_IDS[rank % GPUS]}:00.0",
                "pod_ip": node.ip,
            }
        )
        for node in fleet
        for rank in node.ranks
    ]
    head = f'{{"world_size": {WORLD}, "namespace": "{NAMESPACE}", "ranks": [\n'
    return head + ",\n".join(rows) + "\n]}\n"


def pod(node: Node) -> dict[str, Any]:
    """A pod as `kubectl get pods -o json` gives it, without what nobody reads."""
    started = f"{moment(step_end(FIRST_STEP) - 88 * S):%Y-%m-%dT%H:%M:%SZ}"
    ended = f"{moment(LAST_STEP_NS + 612 * S):%Y-%m-%dT%H:%M:%SZ}"
    hangs = CULPRIT in node.ranks
    terminated = {"exitCode": 1, "reason": "Error", "startedAt": started, "finishedAt": ended}
    state = {"running": {"startedAt": started}} if hangs else {"terminated": terminated}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": node.pod,
            "namespace": NAMESPACE,
            "uid": f"3f1c{node.index:04x}-7a52-4d0b-9c11-5e8d2b90a7f1",
            "creationTimestamp": started,
            "labels": {
                "training.kubeflow.org/job-name": JOB,
                "training.kubeflow.org/replica-type": "worker",
                "training.kubeflow.org/replica-index": str(node.index),
            },
        },
        "spec": {
            "nodeName": node.name,
            "restartPolicy": "Never",
            "containers": [
                {"name": "pytorch", "resources": {"limits": {"nvidia.com/gpu": str(GPUS)}}}
            ],
        },
        "status": {
            "phase": "Running" if hangs else "Failed",
            "podIP": node.ip,
            "startTime": started,
            "containerStatuses": [
                {"name": "pytorch", "ready": hangs, "restartCount": 0, "state": state}
            ],
        },
    }


def pods(fleet: list[Node]) -> str:
    rows = ",\n".join(json.dumps(pod(node)) for node in fleet)
    return f'{{"apiVersion": "v1", "kind": "List", "items": [\n{rows}\n]}}\n'
