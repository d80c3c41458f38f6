"""Plain pods that meet at one address: one gang, looked at as any other."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gpufleet_cli.operate.preflight.build import specs_of
from gpufleet_cli.operate.preflight.check import checked
from gpufleet_cli.operate.preflight.documents import Document

GPU = "nvidia.com/gpu"


def pods(count: int, address: str = "run-0.run", **more: str) -> list[Document]:
    """Each with its node rank as the launcher wants it, and variables of its own."""
    made = []
    for index in range(count):
        env = {"MASTER_ADDR": address, "NODE_RANK": str(index), "PET_NNODES": str(count), **more}
        container: dict[str, Any] = {
            "name": "c",
            "command": ["torchrun", f"--node-rank={index}", "train.py"],
            "env": [{"name": key, "value": value} for key, value in env.items()],
            "resources": {"limits": {GPU: 8}},
        }
        meta = {"name": f"run-{index}", "namespace": "ml"}
        spec = {"restartPolicy": "Never", "nodeName": f"n{index}", "containers": [container]}
        raw = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
        made.append(Document(source="pods.yaml", raw=raw))
    return made


def ids(documents: list[Document]) -> set[str]:
    return {one.id for one in checked(documents).findings}


def test_pods_that_meet_are_one_gang_and_looked_at_once() -> None:
    """1,024 pods that differ in name, node and node rank alone are one role."""
    [spec] = specs_of(pods(1024))
    assert (True, 1024, 8192, 1) == (spec.is_gang, spec.pods, spec.gpus, len(spec.roles))


def test_what_differs_between_them_is_found() -> None:
    """By the pod that has it."""
    made = pods(4)
    odd = copy.deepcopy(made[2].raw)
    odd["spec"]["containers"][0]["env"].append({"name": "NCCL_ALGO", "value": "Ring"})  # type: ignore[index]
    found = checked([*made[:2], Document(source="pods.yaml", raw=odd), made[3]]).findings
    [differs] = [one for one in found if one.id == "values-differ"]
    assert "run-0 not set, run-2 Ring" in differs.message
    assert ("pods.yaml Pod/run-2 spec.containers[0].env",) == differs.where


@pytest.mark.parametrize("address", ["localhost", "127.0.0.1:29500", "[::1]:29500", "$(HOST)"])
def test_pods_that_meet_themselves_are_no_gang(address: str) -> None:
    """Each trains alone; an address that is not known ties nobody."""
    assert [False, False] == [spec.is_gang for spec in specs_of(pods(2, address))]


def test_two_gangs_in_one_file() -> None:
    """Told apart by where they meet."""
    both = specs_of([*pods(2), *pods(3, "other-0.other")])
    assert [2, 3] == [spec.pods for spec in both]


@pytest.mark.parametrize(
    ("id_", "name", "value"),
    [
        ("hca-prefix", "NCCL_IB_HCA", "mlx5_0,mlx5_1"),
        ("ib-patience", "NCCL_IB_TIMEOUT", "14"),
        ("ib-patience", "NCCL_IB_RETRY_CNT", "0"),
        ("data-moves", "DATA", "s3://sets/tokens/latest/train.bin"),
        ("data-moves", "WEIGHTS", "hf://team/model-main"),
    ],
)
def test_a_setting_worth_a_note(id_: str, name: str, value: str) -> None:
    """Told as information."""
    found = [one for one in checked(pods(2, **{name: value})).findings if one.id == id_]
    assert ["info"] == [one.severity for one in found]


@pytest.mark.parametrize(
    ("id_", "name", "value"),
    [
        ("hca-prefix", "NCCL_IB_HCA", "=mlx5_0,mlx5_1"),
        ("hca-prefix", "NCCL_IB_HCA", "mlx5"),
        ("ib-patience", "NCCL_IB_TIMEOUT", "22"),
        ("ib-patience", "NCCL_IB_TIMEOUT", "many"),
        ("data-moves", "DATA", "s3://sets/tokens/2026-08-01/maintained.bin"),
        ("loopback", "NCCL_SOCKET_IFNAME", "^lo,docker0"),
    ],
)
def test_a_setting_that_is_well(id_: str, name: str, value: str) -> None:
    """Nothing is said of it."""
    assert id_ not in ids(pods(2, **{name: value}))


def test_locked_memory() -> None:
    """Asked of a device of RDMA, not where the capability or the right to all is given."""
    made = pods(2)
    for one in made:
        one.raw["spec"]["containers"][0]["resources"]["limits"]["rdma/ib"] = 1  # type: ignore[index]
    assert "memlock" in ids(made)
    for one in made:
        context = {"capabilities": {"add": ["IPC_LOCK"]}}
        one.raw["spec"]["containers"][0]["securityContext"] = context  # type: ignore[index]
    assert "memlock" not in ids(made)
