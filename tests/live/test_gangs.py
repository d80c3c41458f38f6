"""`gpufleet` alone: the gangs of a cluster, worst first, and what could not be seen of them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpufleet_cli.cli import main
from live import fake_api
from live.fake_api import FakeApi

NODES = "/api/v1/nodes"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


def ago(minutes: float) -> str:
    """A time so long ago, as the API writes it."""
    return (datetime.now(UTC) - timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")


def gang(
    fake: FakeApi,
    name: str,
    *,
    pods: int = 2,
    size: int = 2,
    wrote: float | None = 0.1,
    **more: Any,
) -> None:
    """An Indexed Job whose pods are on nodes of its own; `wrote`: minutes since its last lines."""
    template = {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "8"}}}]}}
    job = {
        "metadata": {"name": name, "namespace": "ml", "uid": f"uid-{name}",
                     "creationTimestamp": ago(60)},
        "spec": {"completions": size, "parallelism": size, "template": template},
    }  # fmt: skip
    fake.add("/apis/batch/v1/namespaces/ml/jobs", job)
    for index in range(pods):
        labels = {
            "batch.kubernetes.io/job-name": name,
            "batch.kubernetes.io/job-completion-index": str(index),
        }
        own, node = f"{name}-{index}", f"node-{name}-{index}"
        stated = {"gpus": 8, "created": ago(60), "args": ["--nproc-per-node=8"], **more}
        fake.add(
            "/api/v1/namespaces/ml/pods", fake_api.pod(own, labels=labels, node=node, **stated)
        )
        fake.add(NODES, fake_api.node(node))
        fake.add(LEASES, fake_api.lease(node, ago(0.1)))
        if wrote is not None:
            line = f"{ago(wrote)[:-1]}.000000000Z step 1\n"
            fake.logs[(own, "trainer")] = line.encode()


def asked(capsys: pytest.CaptureFixture[str], kubeconfig: Path, *more: str) -> dict[str, Any]:
    assert 0 == main(["--kubeconfig", str(kubeconfig), "-o", "json", *more])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_worst_first(
    fake: FakeApi, fake_kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Failed, silent, on a dead node, short, pending, and those that are well."""
    ended = {"terminated": {"exitCode": 1, "reason": "Error", "finishedAt": ago(8)}}
    gang(fake, "well")
    gang(fake, "waits", phase="Pending", state={"waiting": {"reason": "ImagePullBackOff"}})
    gang(fake, "short", pods=1)
    gang(fake, "dead")
    gang(fake, "quiet", wrote=20)
    gang(fake, "broken", phase="Failed", state=ended)
    gang(fake, "not-there", pods=0)
    next(one for one in fake.collections[LEASES] if one["metadata"]["name"] == "node-dead-1")[
        "spec"
    ]["renewTime"] = ago(12)
    found = asked(capsys, fake_kubeconfig)
    order = [(one["name"], one["state"]) for one in found["gangs"]]
    assert [
        ("broken", "failed"), ("quiet", "silent"), ("dead", "running"), ("short", "running"),
        ("waits", "pending"), ("not-there", "pending"), ("well", "running"),
    ] == order  # fmt: skip
    by_name = {one["name"]: one for one in found["gangs"]}
    assert "exit 1" in by_name["broken"]["why"]
    assert "ImagePullBackOff" in by_name["waits"]["why"]
    assert "1 of 2 pods" in by_name["short"]["why"]
    (sick,) = by_name["dead"]["marked_nodes"]
    assert ("node-dead-1", True) == (sick["node"], sick["ill"])
    assert "stale since" in sick["what"]
    assert [16, 16] == [by_name["well"]["ranks"], by_name["short"]["ranks"]]
    assert (False, []) == (by_name["well"]["looks_ill"], found["missing"])

    assert 0 == main(["--kubeconfig", str(fake_kubeconfig), "--no-color"])
    told = capsys.readouterr()
    lines = told.out.splitlines()
    assert len(lines) <= 21
    assert all(len(line) <= 80 for line in lines)
    assert "7 gangs in fake" in lines[0]
    assert "gpufleet triage broken -n ml" == lines[-1].strip()
    assert "context fake at" in told.err


def test_a_large_fleet_fits_a_screen(
    fake: FakeApi, fake_kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The worst, and how many more; -v has all. Three lists in pages, each side by side."""
    for number in range(40):
        gang(fake, f"well-{number}")
    gang(fake, "broken", phase="Failed", state={"terminated": {"exitCode": 7}})
    fake.page = 20
    assert 0 == main(["--kubeconfig", str(fake_kubeconfig)])
    lines = capsys.readouterr().out.splitlines()
    assert (True, 41) == (len(lines) <= 21, int(lines[0].split()[0]))
    assert "ml/broken" in lines[3]
    assert any("more, none of them worse; -v shows all" in line for line in lines)
    assert 0 == main(["--kubeconfig", str(fake_kubeconfig), "-v"])
    assert 41 == sum("ml/" in line for line in capsys.readouterr().out.splitlines())
    assert fake.count(r"^/api/v1/pods$") >= 5


def test_yaml_and_one_namespace(
    fake: FakeApi, fake_kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same document; with -n only that namespace is asked."""
    gang(fake, "well")
    assert 0 == main(["-n", "other", "--kubeconfig", str(fake_kubeconfig), "-o", "yaml"])
    assert [] == yaml.safe_load(capsys.readouterr().out)["gangs"]
    assert 0 == fake.count("^/api/v1/pods")
    assert 0 == main(["-n", "ml", "--kubeconfig", str(fake_kubeconfig), "-o", "yaml"])
    assert ["well"] == [one["name"] for one in yaml.safe_load(capsys.readouterr().out)["gangs"]]


def test_without_nodes_and_jobs_the_pods_still_tell(
    fake: FakeApi, fake_kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What could not be read is said, and a gang is not called short for want of it."""
    gang(fake, "one", pods=1)
    closed = ("/nodes", "/leases", "/jobs", "/log")
    fake.odd.append(lambda path, _: fake_api.failure(403) if path.endswith(closed) else None)
    found = asked(capsys, fake_kubeconfig)
    (one,) = found["gangs"]
    assert ("running", "", None, None) == tuple(
        one[key] for key in ("state", "why", "size", "last_write_at")
    )
    assert {"nodes", "leases", "last lines", "objects: jobs"} == {
        one["what"] for one in found["missing"]
    }


def test_objects_of_the_own_namespace_where_not_all_may_be_listed(
    fake: FakeApi, fake_kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A right in one namespace is enough to know that a gang there is short of a pod."""
    gang(fake, "one", pods=2, size=3)
    closed = ("/api/v1/pods", "/apis/batch/v1/jobs")
    fake.odd.append(lambda path, _: fake_api.failure(403) if path in closed else None)
    found = asked(capsys, fake_kubeconfig)
    (one,) = found["gangs"]
    assert ("one", 3) == (one["name"], one["size"])
    assert {"objects: jobs": "not allowed to list them in all namespaces; read in ml"} == {
        one["what"]: one["why"] for one in found["missing"] if one["what"].startswith("objects")
    }


def test_a_group_of_pods_is_named_by_its_label(
    fake: FakeApi, fake_kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Plain pods that Kueue admits together: what is printed to type next finds them."""
    labels = {"kueue.x-k8s.io/pod-group-name": "run7"}
    dead = {"terminated": {"exitCode": 1, "finishedAt": ago(2)}}
    for name, state in (("run7-a", None), ("run7-b", dead)):
        fake.add(
            "/api/v1/namespaces/ml/pods",
            fake_api.pod(name, labels=labels, state=state, node=f"n-{name}"),
        )
    main(["--kubeconfig", str(fake_kubeconfig)])
    (line,) = [one for one in capsys.readouterr().out.splitlines() if "gpufleet triage" in one]
    assert "gpufleet triage -l kueue.x-k8s.io/pod-group-name=run7 -n ml" == line.strip()
    assert main([*line.split()[1:], "--kubeconfig", str(fake_kubeconfig)]) in (0, 3)


def test_nothing_to_read_is_four(
    fake: FakeApi, fake_kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No pod may be listed anywhere: that is no empty cluster."""
    fake.odd.append(lambda path, _: fake_api.failure(403) if path.endswith("/pods") else None)
    assert 4 == main(["--kubeconfig", str(fake_kubeconfig), "-o", "json"])
    told = capsys.readouterr()
    assert "" == told.out
    assert "no pod of fake could be read: not allowed (list on pods)" in told.err


def test_nodes_that_hang_cost_their_part(
    fake: FakeApi, fake_kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the deadline the gangs are shown; nothing is concluded of nodes that did not come."""
    gang(fake, "well")
    fake.odd.append(lambda path, _: fake_api.Said(hold_s=30.0) if path == NODES else None)
    found = asked(capsys, fake_kubeconfig, "--deadline", "2s")
    assert ["well"] == [one["name"] for one in found["gangs"]]
    assert ["nodes"] == [one["what"] for one in found["missing"]]
    assert "--deadline" in found["missing"][0]["why"]


def test_daemons_and_others_are_no_gangs(
    fake: FakeApi, fake_kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A DaemonSet's pods are not even sent; plain pods with a common label are a gang."""
    space = "/api/v1/namespaces/ml/pods"
    fake.add(space, fake_api.pod("burn-in", labels={"pod-template-generation": "1"}))
    fake.add(space, fake_api.pod("notebook"))
    for index in range(2):
        fake.add(space, fake_api.pod(f"mine-{index}", labels={"job-id": "7"}, gpus=4))
    found = asked(capsys, fake_kubeconfig)
    (one,) = found["gangs"]
    assert ("pods", "job-id=7", 2) == (one["kind"], one["name"], one["pods"])
    assert 1 == found["other_workloads"]


def test_a_jobset_is_one_gang_and_a_suspended_job_waits(
    fake: FakeApi, fake_kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The Jobs of a JobSet are parts of it; what is suspended is no trouble; an ended one is not shown."""
    gpu = {"x": "nvidia.com/gpu"}
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "set",
             "uid": "uid-set", "controller": True}  # fmt: skip
    part = {"replicas": 1, "template": {"spec": {"parallelism": 2}}}
    fake.add(
        "/apis/jobset.x-k8s.io/v1alpha2/namespaces/ml/jobsets",
        {"metadata": {"name": "set", "namespace": "ml", "uid": "uid-set"},
         "spec": {"replicatedJobs": [part], **gpu}},
    )  # fmt: skip
    meta = {"name": "set-w-0", "namespace": "ml", "uid": "uid-w", "ownerReferences": [owner]}
    done = {"type": "Complete", "status": "True"}
    fake.add(
        "/apis/batch/v1/namespaces/ml/jobs",
        {"metadata": meta, "spec": {"completions": 2, **gpu}},
        {"metadata": {"name": "held", "namespace": "ml", "uid": "h"},
         "spec": {"suspend": True, **gpu}},
        {"metadata": {"name": "over", "namespace": "ml", "uid": "o"}, "spec": gpu,
         "status": {"conditions": [done]}},
        {"metadata": {"name": "cpu-only", "namespace": "ml", "uid": "c"}, "spec": {}},
    )  # fmt: skip
    for attempt, state in ((0, {"terminated": {"exitCode": 1, "finishedAt": ago(20)}}), (1, None)):
        for index in range(2):
            labels = {
                "jobset.sigs.k8s.io/jobset-name": "set",
                "batch.kubernetes.io/job-name": "set-w-0",
                "batch.kubernetes.io/job-completion-index": str(index),
                "jobset.sigs.k8s.io/restart-attempt": str(attempt),
            }
            name = f"set-w-0-{index}-{attempt}"
            phase = "Running" if state is None else "Failed"
            made = fake_api.pod(
                name, labels=labels, phase=phase, state=state, created=ago(30 - 20 * attempt)
            )
            by = {"apiVersion": "batch/v1", "kind": "Job", "name": "set-w-0", "uid": "uid-w"}
            made["metadata"]["ownerReferences"] = [{**by, "controller": True}]
            fake.add("/api/v1/namespaces/ml/pods", made)
    found = asked(capsys, fake_kubeconfig)["gangs"]
    assert [("JobSet", "set", "running"), ("Job", "held", "suspended")] == [
        (one["kind"], one["name"], one["state"]) for one in found
    ]
    assert (2, 2, 2) == tuple(found[0][key] for key in ("pods", "size", "attempts"))
    assert "attempt 0 failed at" in found[0]["why"]
    assert not found[1]["looks_ill"]


def test_names_of_a_cluster_cannot_steer_the_terminal(
    fake: FakeApi, fake_kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Controls in a reason are made visible."""
    gang(fake, "odd", phase="Pending", state={"waiting": {"reason": "Bad\x1b[31m"}})
    assert 0 == main(["--kubeconfig", str(fake_kubeconfig)])
    assert "\x1b" not in capsys.readouterr().out
