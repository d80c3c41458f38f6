"""The ten things that are easy to get wrong about live clusters, a test for each by its number.

Where another file has the whole story, the shortest form of it stands here.
"""

from __future__ import annotations

import json
import tomllib
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest
from builders import evidence

from gpufleet_cli.cli import main
from gpufleet_cli.facts import IdentityLink, XidEvent
from gpufleet_cli.live.answers import Answer, LogRead, read_log
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.log_tasks import LogTask
from gpufleet_cli.live.pod_logs import ask
from gpufleet_cli.live.pods import pods_of
from gpufleet_cli.parsers import dcgm_metrics
from live import cluster_stories as stories
from live import fake_api
from live.fake_api import FakeApi

ROOT = Path(__file__).parents[2]
PODS = "/api/v1/namespaces/ml/pods"
AT = datetime(2026, 8, 20, 3, 10, 0, tzinfo=UTC)
XID = "DCGM_FI_DEV_XID_ERRORS"


def lines(first: int, ranks: int) -> bytes:
    told = stories.steps(first, ranks, AT, 20)
    return b"".join(f"{at:%Y-%m-%dT%H:%M:%S.%f}000Z {line}\n".encode() for at, line in told)


def ranks_of(kubeconfig: Path, capsys: pytest.CaptureFixture[str]) -> dict[int, str | None]:
    main(["ranks", "-l", "job=t", "-n", "ml", "-o", "json", "--kubeconfig", str(kubeconfig)])
    found = json.loads(capsys.readouterr().out)
    return {one["rank"]: one["pod"] for one in found["ranks"]}


def sorting_themselves(fake: FakeApi) -> list[str]:
    """Twelve pods of two ranks, `t-0` to `t-11`, whose agents sort themselves; in the order of their ranks."""
    args = ["torchrun", "--rdzv-backend=c10d", "--nproc-per-node=2", "train.py"]
    names = [f"t-{index}" for index in range(12)]
    for name in names:
        labels = {"job": "t", "batch.kubernetes.io/job-completion-index": name[2:]}
        fake.add(PODS, fake_api.pod(name, labels=labels, node=f"n{name}", gpus=2, args=args))
    return sorted(names)


def test_trap_1_the_pod_index_is_not_the_rank(
    fake: FakeApi, fake_kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """c10d sorts names as strings, so `t-10` comes before `t-2`: what the logs say holds, one of them is enough
    to tell the order, and where no log says anything no rank is placed by the index of its pod."""
    ordered = sorting_themselves(fake)
    assert ["t-1", "t-10", "t-11", "t-2"] == ordered[1:5]
    truth = {2 * at + local: name for at, name in enumerate(ordered) for local in (0, 1)}
    assert {None} >= set(ranks_of(fake_kubeconfig, capsys).values())
    fake.logs["t-10", "trainer"] = lines(4, 2)
    assert truth == ranks_of(fake_kubeconfig, capsys)
    for at, name in enumerate(ordered):
        fake.logs[name, "trainer"] = lines(2 * at, 2)
    assert truth == ranks_of(fake_kubeconfig, capsys)


def test_trap_2_rank_in_a_pods_environment_is_a_node_rank(
    fake: FakeApi, fake_kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A PyTorchJob's worker of eight GPUs with RANK=1 has ranks 8 to 15, and no pod has rank 1 alone."""
    for index, role in enumerate(("master", "worker")):
        labels = {"training.kubeflow.org/replica-type": role, "job": "t"}
        labels["training.kubeflow.org/job-name"] = "t"
        env = {"RANK": str(index), "PET_NODE_RANK": str(index), "WORLD_SIZE": "16"}
        args = ["--nproc-per-node=8", "train.py"]
        name = f"t-{role}-0"
        fake.add(PODS, fake_api.pod(name, labels=labels, node=role, env=env, gpus=8, args=args))
    (_, worker) = pods_of(fake.collections[PODS])
    assert (1, "static") == (worker.state.node_rank, worker.state.rendezvous)
    homes = ranks_of(fake_kubeconfig, capsys)
    assert {"t-master-0": set(range(8)), "t-worker-0": set(range(8, 16))} == {
        pod: {rank for rank, home in homes.items() if home == pod} for pod in set(homes.values())
    }


def test_trap_3_an_error_can_come_as_the_body_of_a_200() -> None:
    """Missing evidence, never the rank's last line."""
    body = b"unable to retrieve container logs for containerd://8f2e"
    assert LogRead.CONTAINER_GONE is read_log(Answer(status=200, body=body))[0]


@pytest.mark.parametrize(
    "words", ["i/o timeout", "connect: no route to host", "connect: connection refused"]
)
def test_trap_4_a_failed_log_read_is_evidence(words: str) -> None:
    """Of the kubelet; `test_silent_kubelet` has what follows from it, and what not."""
    said = f'Get "https://10.0.0.1:10250/containerLogs/ml/w/t": dial tcp 10.0.0.1:10250: {words}'
    answer = Answer(status=500, body=json.dumps({"message": said}).encode())
    assert LogRead.KUBELET is read_log(answer)[0]


def test_trap_5_a_tail_of_one_stream_is_refused(fake: FakeApi, api: Api) -> None:
    """`stream` is never sent."""
    task = LogTask(
        pod="p", namespace="ml", node=None, container="trainer", previous=False, started_ns=None
    )
    fake.logs["p", "trainer"] = lines(0, 1)
    assert ask(api, task, {"tailLines": 5}).ok
    assert {"container", "timestamps", "tailLines"} == set(fake.asked[-1][1])


def series(values: list[list[Any]], **labels: str) -> list[Any]:
    metric = {"__name__": XID, "gpu": "0", "UUID": "GPU-a", **labels}
    result = [{"metric": metric, "values": values}]
    document = {"status": "success", "data": {"resultType": "matrix", "result": result}}
    return list(dcgm_metrics.parse(evidence(json.dumps(document).encode(), "metrics/xid.json")))


FLAT = [[1_787_000_000 + 30 * n, "79"] for n in range(6)]
RISE = [[1_787_000_000 + 30 * n, "79" if n > 3 else "0"] for n in range(6)]


@pytest.mark.parametrize("exporter", ["dcgm-exporter-x7", "gpu-telemetry-x7"])
def test_trap_6_the_pod_of_a_series_may_be_the_exporters(exporter: str) -> None:
    """Where `exported_pod` is there, `pod` names the exporter, whatever it is called, and is nobody's rank."""
    facts = series(RISE, Hostname="gpu-1", pod=exporter, exported_pod="w-1")
    assert ["w-1"] == [one.pod for one in facts if isinstance(one, IdentityLink)]
    assert exporter not in repr(facts)
    kept = series(RISE, Hostname="gpu-1", pod="w-1")
    assert ["w-1"] == [one.pod for one in kept if isinstance(one, IdentityLink)]


@pytest.mark.parametrize("label", ["Hostname", "hostname"])
def test_trap_7_the_label_of_the_host_changed_its_case(label: str) -> None:
    """Both name the node."""
    found = [f for f in series(RISE, **{label: "gpu-1"}) if isinstance(f, XidEvent)]
    assert ["gpu-1"] == [one.node for one in found]


def test_trap_8_the_gauge_is_sticky() -> None:
    """A value is no incident, a transition is: what stood there from the first sample on has no time."""
    (stood,) = [f for f in series(FLAT, Hostname="gpu-1") if isinstance(f, XidEvent)]
    (rose,) = [f for f in series(RISE, Hostname="gpu-1") if isinstance(f, XidEvent)]
    assert stood.at_ns is None
    assert rose.at_ns is not None


def test_trap_9_a_series_that_begins_is_no_change() -> None:
    """We tell transitions from the samples ourselves; what a server's `changes()` counts decides nothing.

    `test_metrics_servers` asks a real VictoriaMetrics.
    """
    begins = [[1_787_000_090 + 30 * n, "79"] for n in range(3)]
    found = [f for f in series(begins, Hostname="gpu-1") if isinstance(f, XidEvent)]
    assert [None] == [one.at_ns for one in found]


def test_trap_10_the_client_is_pinned_and_boto_is_kept_out(fake: FakeApi, api: Api) -> None:
    """kubernetes 37 or later, nothing of botocore beside it; and the bytes of a log are never `b'...'`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "kubernetes>=37" in project["dependencies"]
    optional = project["optional-dependencies"].values()
    wanted = [*project["dependencies"], *(one for group in optional for one in group)]
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8").lower()
    for name in ("boto3", "botocore", "moto", "s3fs"):
        assert not [one for one in wanted if one.lower().startswith(name)]
        assert f"\n{name}==" not in pinned
    with pytest.raises(PackageNotFoundError):
        version("botocore")
    assert int(version("kubernetes").split(".")[0]) >= 37
    raw = b'2026-08-20T03:10:00.123456789Z {"step": 1, "msg": "it\'s"}\n2026-08-20T03:10:01Z \xe2\x82\n'
    fake.logs["p", "trainer"] = raw
    query = {"container": "trainer", "timestamps": "true"}
    assert raw == api.get(f"{PODS}/p/log", query).body
