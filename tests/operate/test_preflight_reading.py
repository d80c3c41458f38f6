"""Manifests as people write them, and what a container will really be given."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from gpufleet_cli.operate.preflight.build import specs_of
from gpufleet_cli.operate.preflight.check import checked
from gpufleet_cli.operate.preflight.documents import Document, read_text
from gpufleet_cli.operate.preflight.model import Spec
from gpufleet_cli.operate.preflight.shell import MOST_TEXT, commands_of, expanded, is_open

HELM = b"""---
# Source: llm/templates/empty.yaml
---
# Source: llm/templates/job.yaml
apiVersion: batch/v1
kind: Job
metadata: {name: a}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: x}]}}}
---

---
apiVersion: v1
kind: List
items:
  - {apiVersion: v1, kind: Pod, metadata: {name: b}, spec: {containers: [{name: c, image: x}]}}
  - {apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {A: "1"}}
"""


def read(data: bytes | str, source: str = "in.yaml") -> list[Document]:
    found, unread = read_text(source, data.encode() if isinstance(data, str) else data)
    assert unread == []
    return found


def gang(container: dict[str, Any], *beside: dict[str, Any], kind: str = "JobSet") -> Spec:
    """A JobSet of two pods of eight GPUs with this container."""
    raw = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": 8}}, **container}
    template = {"spec": {"restartPolicy": "Never", "containers": [raw]}}
    child = {"parallelism": 2, "backoffLimit": 0, "template": template}
    made = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": kind, "metadata": {"name": "g"},
        "spec": {"replicatedJobs": [{"name": "w", "template": {"spec": child}}]},
    }  # fmt: skip
    return specs_of(read(json.dumps([made, *beside])))[0]


def test_helm_output_lists_and_empty_documents() -> None:
    """Comments and empty documents cost nothing; a list is its items, with their own lines."""
    found = read(HELM)
    assert [(one.kind, one.name) for one in found] == [
        ("Job", "a"), ("Pod", "b"), ("ConfigMap", "settings"),
    ]  # fmt: skip
    assert found[0].where(("spec", "template")) == "in.yaml:8 Job/a spec.template"
    assert found[1].where(("spec", "nothing")).startswith("in.yaml:15 Pod/b")


def test_anchors_are_put_in_and_bombs_refused() -> None:
    """People share environments by anchors; what blows up is told, whatever else the file holds."""
    shared = "x: &e [{name: A, value: b}]\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, env: *e}]}"
    assert specs_of(read(f"apiVersion: v1\n{shared}"))[0].roles[0].main.env == {"A": "b"}
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(9)
    )
    found, unread = read_text("bomb.yaml", bomb.encode())
    assert (found, len(unread)) == ([], 1)
    assert "anchors expand" in unread[0].why
    itself = read_text("self.yaml", b"kind: Pod\na: &a [*a]\n")
    assert itself[1][0].why == "an anchor that holds itself"


@pytest.mark.parametrize(
    "data",
    [
        b"a: [1",
        b"{{ if .Values.x }}\nkind: Job\n{{ end }}",
        b"\xff\xfe\x00k",
        b"a: !!python/object:x.Y {}",
    ],
)
def test_a_broken_document_is_told_and_keeps_those_before_it(data: bytes) -> None:
    """With the line, and as a warning: a gate must not open because a template is broken."""
    found, unread = read_text("b.yaml", HELM + b"---\n" + data)
    assert len(unread) == 1
    assert len(found) in (0, 3)
    result = checked(found, unread)
    assert result.findings[0].id == "not-read"
    assert result.stands


@pytest.mark.parametrize(
    "spec",
    [
        None, [], "x", {"template": None}, {"template": {"spec": {"containers": "x"}}},
        {"template": {"spec": {"containers": [None, 3, {"env": 3, "command": "x", "resources": []}]}}},
        {"template": {"spec": {"containers": [{"env": [{"name": 3}, {"value": {}}, {"name": "A", "value": True}]}]}}},
        {"replicatedJobs": [None, {"template": {"spec": {"template": 3}}}]},
        {"tasks": 3, "pytorchReplicaSpecs": {"Worker": None}, "workerGroupSpecs": [3], "mpiReplicaSpecs": []},
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "kind", ["batch/v1 Job", "jobset.x-k8s.io/v1alpha2 JobSet", "kubeflow.org/v1 PyTorchJob",
             "kubeflow.org/v2beta1 MPIJob", "trainer.kubeflow.org/v1alpha1 TrainJob", "ray.io/v1 RayJob",
             "leaderworkerset.x-k8s.io/v1 LeaderWorkerSet", "batch.volcano.sh/v1alpha1 Job", "v1 Pod"],
)  # fmt: skip
def test_nonsense_costs_nothing(kind: str, spec: object) -> None:
    """Any value may stand anywhere in a manifest that somebody wrote by hand."""
    version, name = kind.split()
    made = {"apiVersion": version, "kind": name, "metadata": {"name": "n"}, "spec": spec}
    checked(read(json.dumps(made)))


def test_the_environment_is_that_of_the_running_program() -> None:
    """ConfigMaps that were given, references, what the script exports; the rest is not known."""
    maps = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "m"},
        "data": {"NCCL_ALGO": "Ring"},
    }
    spec = gang(
        {
            "envFrom": [{"configMapRef": {"name": "m"}}],
            "env": [
                {"name": "ROOT", "value": "/dumps"},
                {"name": "TORCH_FR_DUMP_TEMP_FILE", "value": "$(ROOT)/rank_"},
                {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            ],
            "command": [
                "bash",
                "-c",
                "export NCCL_DEBUG=WARN\nB=$HOSTNAME torchrun --nnodes=$NNODES t.py",
            ],
        },
        maps,
    )
    env = spec.roles[0].main.env
    assert env["TORCH_FR_DUMP_TEMP_FILE"] == "/dumps/rank_"
    assert (env["NCCL_ALGO"], env["NCCL_DEBUG"], env["TOKEN"], env["B"]) == (
        "Ring",
        "WARN",
        None,
        None,
    )
    assert not spec.roles[0].main.env_open
    launcher = spec.roles[0].main.launcher
    assert launcher is not None
    assert launcher.option("nnodes") == "$NNODES"


def test_what_an_unseen_source_may_set_is_not_missing() -> None:
    """Nothing is said of a recorder that an unread ConfigMap or Secret may have turned on."""
    command = ["torchrun", "--nnodes=2", "--nproc-per-node=8", "t.py"]
    open_ = gang({"command": command, "envFrom": [{"secretRef": {"name": "s"}}]})
    closed = gang({"command": command})
    told = [{one.id for one in checked([spec.document]).findings} for spec in (open_, closed)]
    assert "recorder-off" not in told[0]
    assert "recorder-lost" not in told[0]
    assert "recorder-off" in told[1]


def test_the_ranks_of_an_mpi_job_get_what_mpirun_hands_on() -> None:
    """`-x NAME=VALUE`, and `-x NAME` with the launcher's own value."""
    launcher = {
        "name": "l", "env": [{"name": "NCCL_IB_HCA", "value": "mlx5"}],
        "command": ["mpirun", "-x", "NCCL_DEBUG=INFO", "-x", "NCCL_IB_HCA", "-x", "PATH", "python", "t.py"],
    }  # fmt: skip
    worker = {"name": "w", "resources": {"limits": {"nvidia.com/gpu": 8}}}
    roles = {
        name: {"replicas": 2, "template": {"spec": {"containers": [one]}}}
        for name, one in (("Launcher", launcher), ("Worker", worker))
    }
    made = {
        "apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": "m"},
        "spec": {"slotsPerWorker": 8, "mpiReplicaSpecs": roles},
    }  # fmt: skip
    spec = specs_of(read(json.dumps(made)))[0]
    assert [(role.name, role.is_rank) for role in spec.roles] == [
        ("Launcher", False),
        ("Worker", True),
    ]
    env = spec.ranks[0].main.env
    assert (env["NCCL_DEBUG"], env["NCCL_IB_HCA"], env["PATH"]) == ("INFO", "mlx5", None)


def test_a_recorder_that_torch_turns_on_itself() -> None:
    """From 2.11 by the image's tag: only the place of its dumps is missing."""
    command = ["torchrun", "--nnodes=2", "--nproc-per-node=8", "t.py"]
    new = gang({"command": command, "image": "pytorch/pytorch:2.11.0-cuda12.8"})
    ids = {one.id for one in checked([new.document]).findings}
    assert "recorder-lost" in ids
    assert "recorder-off" not in ids


def test_a_name_that_this_torch_does_not_know() -> None:
    """TORCH_FR_BUFFER_SIZE came with 2.8; the old name is taken everywhere."""
    command = ["torchrun", "--nnodes=2", "--nproc-per-node=8", "t.py"]
    for image, name, is_off in (
        ("pytorch/pytorch:2.7.1", "TORCH_FR_BUFFER_SIZE", True),
        ("pytorch/pytorch:2.8.0", "TORCH_FR_BUFFER_SIZE", False),
        ("pytorch/pytorch:2.7.1", "TORCH_NCCL_TRACE_BUFFER_SIZE", False),
    ):
        env = [{"name": name, "value": "2000"}]
        spec = gang({"command": command, "image": image, "env": env})
        ids = {one.id for one in checked([spec.document]).findings}
        assert ("recorder-off" in ids) is is_off, (image, name)


@pytest.mark.parametrize(
    ("command", "gpus"),
    [
        (["jupyter", "lab"], 8),
        (["sleep", "infinity"], 8),
        (["nvidia-smi"], 1),
        (["python", "t.py"], 1),
    ],
)
def test_a_notebook_and_one_gpu_are_not_asked_for_a_recorder(command: list[str], gpus: int) -> None:
    """One GPU has no collective; a notebook with torch in its image trains nothing that we know of."""
    raw = {
        "name": "c", "image": "pytorch/pytorch:2.7.1", "command": command,
        "resources": {"limits": {"nvidia.com/gpu": gpus}},
    }  # fmt: skip
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [raw]},
    }
    found = checked(read(json.dumps(pod))).findings
    assert [one.id for one in found if one.severity != "info"] == []


def test_a_worker_owned_by_what_is_there_too_is_not_a_job_of_its_own() -> None:
    """`kubectl get all -o yaml` lists the Job of a JobSet as well."""
    owner = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "s", "uid": "u"},
    }
    child = {
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "s-w-0", "ownerReferences": [{"uid": "u", "controller": True}]},
    }  # fmt: skip
    assert [one.kind for one in specs_of(read(json.dumps([owner, child])))] == ["JobSet"]


def test_silence_needs_a_known_id_and_a_reason() -> None:
    """By the annotation; what silences nothing is told."""
    spec = gang({"command": ["torchrun", "--nnodes=2", "--nproc-per-node=8", "t.py"]})
    raw = dict(spec.raw)
    raw["metadata"] = {
        "name": "g",
        "annotations": {"gpufleet/ignore": "rdma: we have none; hpa; typo: x"},
    }
    found = checked([Document(source="s", raw=raw)])
    assert [(one.finding.id, one.reason) for one in found.silenced] == [("rdma", "we have none")]
    unclear = [one.message for one in found.findings if one.id == "ignore-unclear"]
    assert unclear == [
        "hpa is not silenced: it has no reason",
        "typo is not silenced: there is no such id",
    ]


@pytest.mark.parametrize("by_kubelet", [True, False], ids=["env", "script"])
def test_variables_that_double_stay_as_they_are_written(by_kubelet: bool) -> None:
    """Forty doublings would be terabytes; the word stays open, which counts as not known."""
    names = [f"A{n}" for n in range(41)]
    if by_kubelet:
        env: dict[str, str | None] = {"A0": "x" * 16}
        for before, name in pairwise(names):
            env[name] = expanded(f"$({before})$({before})", env, in_shell=False)
        last = env["A40"]
    else:
        doubled = "; ".join(f"export {b}=${a}${a}" for a, b in pairwise(names))
        last = commands_of(("sh", "-c", f"export A0=xxxx; {doubled}; run"), {}).exports["A40"]
    assert last is None or (len(last) < 100_000 and is_open(last))


def test_words_of_a_container_have_a_limit_together() -> None:
    """Each word may be long, and all of them together may not fill the memory."""
    script = "echo " + "$A " * 3_000 + "; torchrun $A " + "$A " * 3_000 + "; torchrun --x $A"
    told = commands_of(("sh", "-c", script), {"A": "x" * 2_000})
    assert sum(len(word) for words in told.commands for word in words) < 3 * MOST_TEXT
    assert told.commands[-1] == ("torchrun", "--x", "$A")


@pytest.mark.parametrize("by_kubelet", [True, False], ids=["arguments", "assignments"])
def test_the_limit_is_of_arguments_and_assignments_too(by_kubelet: bool) -> None:
    """A hundred thousand of some bytes each would be a gigabyte; what is over the limit counts as not known."""
    env = {"A": "x" * 8_000}
    if by_kubelet:
        told = commands_of(("run", *["b$(A)"] * 100_000), env)
        kept = list(told.commands[0])
    else:
        script = "\n".join(f"a{number}=b$A" for number in range(100_000))
        told = commands_of(("sh", "-c", script), env)
        kept = [value or "" for value in told.exports.values()]
        assert (100_000, None) == (len(told.exports), told.exports["a99999"])
    assert sum(map(len, kept)) < 2 * MOST_TEXT
    assert len(kept[1]) == 8_001


def test_here_documents_are_left_out_and_a_mark_that_never_ends_begins_none() -> None:
    script = "cat <<'EOF' > f\ntorchrun no.py\nEOF\ncat <<NEVER\ntorchrun yes.py"
    told = commands_of(("sh", "-c", script), {})
    assert ("torchrun", "yes.py") in told.commands
    assert all("no.py" not in words for words in told.commands)
