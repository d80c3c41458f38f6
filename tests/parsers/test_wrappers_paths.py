"""What the place and the name of a log file tell."""

from __future__ import annotations

import pytest

from gpufleet_cli.parsers.wrappers import labels
from gpufleet_cli.parsers.wrappers.paths import hints

UID = "8c1f77d0-5b10-4d2e-9f60-1a2b3c4d5e60"


@pytest.mark.parametrize(
    ("path", "who"),
    [
        (f"var/log/pods/ml_sft-0_{UID}/trainer/2.log", {"namespace": "ml", "pod": "sft-0", "pod_uid": UID, "container": "trainer", "attempt": 2}),
        (f"ml_sft-0_{UID}/trainer/0.log.20250303-214100", {"namespace": "ml", "pod": "sft-0", "pod_uid": UID, "container": "trainer", "attempt": 0}),
        (f"ml_sft-0_{UID}/trainer/0.log.20250303-214100.gz", {"namespace": "ml", "pod": "sft-0", "pod_uid": UID, "container": "trainer", "attempt": 0}),
        ("containers/sft-0_ml_trainer-" + "a" * 64 + ".log", {"namespace": "ml", "pod": "sft-0", "container": "trainer"}),
        ("gpu-b07/none_k3v9q1zt/attempt_0/3/stderr.log", {"attempt": 0, "local_rank": 3, "node": "gpu-b07"}),
        ("llm-worker-1/run_x/attempt_2/0/stdout.log", {"attempt": 2, "local_rank": 0, "pod": "llm-worker-1"}),
        ("node-2/run_x/attempt_0/1/error.json", {"attempt": 0, "local_rank": 1, "node_rank": 2, "node": "node-2"}),
        ("run_x/attempt_0/1/stdout.log", {"attempt": 0, "local_rank": 1}),
        ("slurm-418822.out", {}),
        ("logs/slurm-418822_7.out", {}),
        ("slurm-418822-gpu-n03-12.out", {"node": "gpu-n03", "task": 12}),
        ("slurm-418822.gpu-n03.err", {"node": "gpu-n03"}),
        ("rank_12.log", {"prefix_rank": 12}),
        ("rank12.txt", {"prefix_rank": 12}),
        ("logs/local_rank_3.log", {"local_rank": 3}),
        ("gpu-node-7.rank3.err", {"node": "gpu-node-7", "prefix_rank": 3}),
        ("node-3/ds.log", {"node": "node-3", "node_rank": 3}),
        ("host_0_gpu-j05.output", {"node": "gpu-j05", "node_rank": 0}),
        ("gpu-n01/train.log", {"node": "gpu-n01"}),
        ("pods/sft-0/trainer.log", {"pod": "sft-0"}),
        ("sft-0.log", {"pod": "sft-0"}),
        ("sft-0_trainer.log", {"pod": "sft-0", "container": "trainer"}),
        ("ml_sft-0_trainer.log", {"namespace": "ml", "pod": "sft-0", "container": "trainer"}),
        ("sft-0.previous.log", {"pod": "sft-0", "previous": True}),
        ("sft-0-previous.log", {"pod": "sft-0", "previous": True}),
        ("previous/sft-0.log", {"pod": "sft-0", "previous": True}),
        ("session_x/logs/worker-0a1b2c3d4e5f6071-01000000-4242.out", {"pid": 4242}),
        ("nvrx_log_gpu-n01.log", {"host": "gpu-n01"}),
        ("namespaces/ml/pods/sft-0/t/t/logs/previous.log", {"namespace": "ml", "pod": "sft-0", "container": "t", "previous": True}),
        ("dump/ml/sft-0/logs.txt", {"namespace": "ml", "pod": "sft-0"}),
        ("ip-10-0-1-2.ec2.internal.log", {"node": "ip-10-0-1-2.ec2.internal"}),
        ("out/1/rank.12/stderr", {"prefix_rank": 12}),
        ("logs/rank_3/train.log", {"prefix_rank": 3}),
        ("job.log", {}),
        ("-", {}),
        ("stdin", {}),
        ("3f9c1d5e7a/3f9c1d5e7a-json.log", {}),
    ],
)  # fmt: skip
def test_names_in_paths(path: str, who: dict[str, object]) -> None:
    """Every layout of the facts, and names that are no names."""
    assert dict(hints(path).who) == who


def test_rotated_files_are_one_stream_in_order() -> None:
    """Dated and numbered rotations come before the file that is written now."""
    names = ["0.log", "0.log.20250303-214100", "0.log.20250302-214100.gz"]
    ordered = sorted(names, key=lambda name: hints(name).order)
    assert ordered == ["0.log.20250302-214100.gz", "0.log.20250303-214100", "0.log"]
    assert {hints(name).stream for name in names} == {"0.log"}
    numbered = sorted(
        ["a.log", "a.log.1", "a.log.10", "a.log.2.gz"], key=lambda name: hints(name).order
    )
    assert numbered == ["a.log.10", "a.log.2.gz", "a.log.1", "a.log"]


def test_torchrun_files_belong_to_one_process() -> None:
    """`single`: one process writes such a file."""
    assert hints("n/r/attempt_0/3/stdout.log").single
    assert not hints("sft-0.log").single


@pytest.mark.parametrize(
    "names",
    [
        {"pod": "p", "node": "n"},
        {"pod_name": "p", "node_name": "n"},
        {"kubernetes_pod_name": "p", "kubernetes_host": "n"},
        {"kubernetes.pod_name": "p", "kubernetes.host": "n"},
        {"k8s.pod.name": "p", "k8s.node.name": "n"},
        {"k8s_pod_name": "p", "hostname": "n"},
        {"kubernetes": {"pod_name": "p", "host": "n"}},
        {"kubernetes": {"pod": {"name": "p"}, "node": {"name": "n"}}},
        {"resource": {"attributes": {"k8s.pod.name": "p", "k8s.node.name": "n"}}},
    ],
)
def test_collectors_spell_labels_their_own_way(names: dict[str, object]) -> None:
    """Pod and node under every name of the known collectors."""
    assert dict(labels.of(names)) == {"pod": "p", "node": "n"}
