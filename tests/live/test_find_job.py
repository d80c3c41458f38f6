"""From what a person typed to the job that is meant."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gpufleet_cli import completion
from gpufleet_cli.cli import main
from gpufleet_cli.errors import TargetError, UsageError
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.find_job import Wanted, find
from gpufleet_cli.live.pods import attempts_of, pods_of
from live import fake_api
from live.fake_answers import answer
from live.fake_api import FakeApi, failure

JOBS = "/apis/batch/v1/namespaces/{}/jobs"
JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets"
JOB_NAME = "batch.kubernetes.io/job-name"
SET_NAME = "jobset.sigs.k8s.io/jobset-name"


def named(name: str, namespace: str = "ml", **more: Any) -> dict[str, Any]:
    """Any object."""
    meta = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{namespace}-{name}",
        **more.pop("meta", {}),
    }
    return {"metadata": meta, "spec": {}, **more}


def wanted(
    target: str | None = None, selector: str | None = None, namespace: str | None = None
) -> Wanted:
    return Wanted(target=target, selector=selector, namespace=namespace)


def pods(
    fake: FakeApi, label: str, name: str, count: int, namespace: str = "ml", **more: Any
) -> None:
    place = f"/api/v1/namespaces/{namespace}/pods"
    for n in range(count):
        labels = {label: name, **more.get("labels", {})}
        fake.add(place, fake_api.pod(f"{name}-{n}", labels=labels, namespace=namespace))


def test_a_bare_name_in_any_namespace(fake: FakeApi, api: Api) -> None:
    """No -n needed."""
    fake.add(JOBS.format("team-a"), named("train", "team-a"))
    pods(fake, JOB_NAME, "train", 2, "team-a")
    found = find(api, wanted("train"))
    assert ("team-a", 2, "Job") == (
        found.namespace,
        len(found.pods),
        found.kind and found.kind.kind,
    )


def test_several_kinds_of_one_name_are_named(fake: FakeApi, api: Api) -> None:
    """Exit 2; KIND/NAME chooses."""
    fake.add(JOBS.format("ml"), named("train"))
    fake.add(JOBSETS.format("ml"), named("train", meta={"uid": "other"}))
    with pytest.raises(
        UsageError, match="several kinds have the name train: job/train, jobset/train"
    ):
        find(api, wanted("train", namespace="ml"))
    pods(fake, SET_NAME, "train", 1)
    assert "uid-ml-train" != find(api, wanted("jobset/train", namespace="ml")).uid


def test_several_namespaces_are_named(fake: FakeApi, api: Api) -> None:
    """Exit 2; -n chooses."""
    for namespace in ("a", "b"):
        fake.add(JOBS.format(namespace), named("train", namespace))
    with pytest.raises(UsageError, match="several namespaces: job/train -n a, job/train -n b"):
        find(api, wanted("train"))


def test_a_part_is_not_another_job(fake: FakeApi, api: Api) -> None:
    """The Job that a JobSet of the same name owns."""
    owner = {"kind": "JobSet", "name": "train", "uid": "uid-ml-set", "controller": True}
    fake.add(JOBSETS.format("ml"), named("train", meta={"uid": "uid-ml-set"}))
    fake.add(JOBS.format("ml"), named("train", meta={"ownerReferences": [owner]}))
    pods(fake, SET_NAME, "train", 1)
    found = find(api, wanted("train", namespace="ml"))
    assert found.kind is not None
    assert "JobSet" == found.kind.kind


def test_a_bare_name_of_a_part_means_the_whole(fake: FakeApi, api: Api) -> None:
    """What `kubectl get jobs` shows of a JobSet; with its kind it is what was typed, and so it is for evict."""
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "train"}
    owners = [{**owner, "uid": "uid-ml-train", "controller": True}]
    fake.add(JOBSETS.format("ml"), named("train"))
    fake.add(JOBS.format("ml"), named("train-w-0", meta={"ownerReferences": owners}))
    labels = {JOB_NAME: "train-w-0"}
    pods(fake, SET_NAME, "train", 2, labels=labels)

    def shown(target: str, *, is_whole: bool) -> str:
        asked = Wanted(target=target, selector=None, namespace="ml", is_whole=is_whole)
        return find(api, asked).shown

    assert "JobSet ml/train" == shown("train-w-0", is_whole=True)
    assert "Job ml/train-w-0" == shown("job/train-w-0", is_whole=True)
    assert "Job ml/train-w-0" == shown("train-w-0", is_whole=False)
    fake.collections[JOBSETS.format("ml")].clear()
    assert "Job ml/train-w-0" == shown("train-w-0", is_whole=True)


def test_neither_found_names_both_looks(
    fake: FakeApi, fake_kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 4."""
    assert 4 == main(["triage", "nothing", "--kubeconfig", str(fake_kubeconfig)])
    told = capsys.readouterr()
    assert "" == told.out
    assert (
        "nothing: no such file or folder, and no job nothing in any readable namespace of fake"
        in told.err
    )


def test_a_place_on_disk_of_that_name_wins_and_is_told(
    fake_kubeconfig: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Where a cluster was named beside it, somebody may have meant the job."""
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "w.log").write_text("2026-08-20T03:10:00Z [rank0]: step 3 loss 2\n")
    monkeypatch.chdir(tmp_path)
    told = "train is here on disk and is read; the job in the cluster: KIND/train"
    for words, is_told in ((["-n", "ml"], True), ([], False)):
        main(["triage", "train", *words, "--kubeconfig", str(fake_kubeconfig)])
        assert is_told is (told in capsys.readouterr().err)


def test_a_missing_right_is_said_first(
    fake: FakeApi, fake_kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The job may well be there: the right, and the command that names what else is missing."""
    fake.odd.append(lambda path, _: failure(403) if path.startswith(JOBS.format("ml")) else None)
    assert 4 == main(["collect", "train", "-n", "ml", "--kubeconfig", str(fake_kubeconfig)])
    err = capsys.readouterr().err
    assert "gpufleet: not allowed to read jobs in ml; else no job train in namespace ml" in err
    assert "(gpufleet doctor -n ml names the rights that are missing)" in err
    assert "gpufleet triage" not in err


def test_evict_says_how_evict_names_things(
    fake: FakeApi, fake_kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In its own form, and not in that of triage."""
    fake.odd.append(lambda path, _: failure(404) if path == "/api/v1/nodes/nothing" else None)
    assert 4 == main(["evict", "nothing", "-n", "ml", "--kubeconfig", str(fake_kubeconfig)])
    err = capsys.readouterr().err
    assert "no job nothing in namespace ml of fake, and no node of that name" in err
    assert "gpufleet evict KIND/NAME -n NAMESPACE, evict node/NAME" in err
    assert "gpufleet triage" not in err


def test_a_kind_that_is_closed_costs_nothing(fake: FakeApi, api: Api) -> None:
    """403 on one kind for the whole cluster: looked for namespace by namespace."""
    fake.add(JOBS.format("ml"), named("train"))
    fake.add("/api/v1/namespaces", {"metadata": {"name": "ml"}})
    pods(fake, JOB_NAME, "train", 1)
    fake.odd.append(
        lambda path, _: failure(403) if path in ("/apis/batch/v1/jobs", "/api/v1/pods") else None
    )
    assert "ml" == find(api, wanted("train")).namespace


def test_plain_pods_by_selector(fake: FakeApi, api: Api) -> None:
    """In one namespace or found in all; none is exit 4."""
    pods(fake, "job-id", "run7", 3)
    found = find(api, wanted(selector="job-id=run7"))
    assert ("run7", "ml", 3, None) == (found.name, found.namespace, len(found.pods), found.kind)
    with pytest.raises(TargetError, match="no pod in any readable namespace"):
        find(api, wanted(selector="job-id=none"))


def test_owners_are_followed_and_may_be_gone(fake: FakeApi, api: Api) -> None:
    """A parent that was deleted is normal."""
    pods(fake, "job-id", "run7", 1)
    reference = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "gone",
        "uid": "u",
        "controller": True,
    }
    fake.collections["/api/v1/namespaces/ml/pods"][0]["metadata"]["ownerReferences"] = [reference]
    assert () == find(api, wanted(selector="job-id=run7")).objects


def test_attempts_by_restart_label() -> None:
    """Counted from 0 by creation."""
    made = [
        fake_api.pod(
            f"w-{attempt}-{n}",
            labels={SET_NAME: "js", "jobset.sigs.k8s.io/restart-attempt": str(attempt)},
            created=f"2026-08-20T03:0{attempt}:00Z",
            phase="Failed" if attempt == 0 else "Running",
        )
        for attempt in (0, 1)
        for n in range(2)
    ]
    found = attempts_of(pods_of(json.loads(json.dumps(made))))
    assert [(0, 2, "failed"), (1, 2, "running")] == [
        (a.number, len(a.pods), a.state) for a in found
    ]


def test_attempts_by_replacement() -> None:
    """A Job's pod of the same index that came later; the others lived through both."""
    index = "batch.kubernetes.io/job-completion-index"
    made = [
        fake_api.pod("t-0-a", labels={index: "0"}),
        fake_api.pod("t-1-a", labels={index: "1"}, phase="Failed", created="2026-08-20T03:00:00Z"),
        fake_api.pod("t-1-b", labels={index: "1"}, created="2026-08-20T03:20:00Z"),
    ]
    found = attempts_of(pods_of(made))
    assert [["t-0-a", "t-1-a"], ["t-0-a", "t-1-b"]] == [[p.name for p in a.pods] for a in found]


def test_attempts_whose_pods_are_gone_are_counted() -> None:
    """A restart label says how many there were before; so does a RayJob's own status."""
    restart = "jobset.sigs.k8s.io/restart-attempt"
    made = [
        fake_api.pod(
            f"w-{n}", labels={SET_NAME: "js", restart: str(n)}, created=f"2026-08-20T03:0{n}:00Z"
        )
        for n in (3, 4)
    ]
    assert [3, 4] == [one.number for one in attempts_of(pods_of(made))]
    ray = [fake_api.pod("r-0", labels={"ray.io/cluster": "r-x7k2p"})]
    assert [2] == [one.number for one in attempts_of(pods_of(ray), newest=2)]


def test_a_submitter_is_no_attempt_of_its_own() -> None:
    """A RayJob's submitter carries no cluster: it belongs to the one made last before it."""
    made = [
        fake_api.pod("c0", labels={"ray.io/cluster": "r-a"}, created="2026-08-20T03:00:00Z"),
        fake_api.pod("c1", labels={"ray.io/cluster": "r-b"}, created="2026-08-20T03:20:00Z"),
        fake_api.pod(
            "sub",
            labels={"batch.kubernetes.io/controller-uid": "u"},
            created="2026-08-20T03:21:00Z",
        ),
    ]
    assert [["c0"], ["c1", "sub"]] == [[p.name for p in a.pods] for a in attempts_of(pods_of(made))]


def test_the_failed_attempt_is_the_subject_while_it_is_fresh(
    fake: FakeApi, fake_kubeconfig: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Even when a younger one runs; the report says so. `--attempt` chooses, unless that one stalled."""
    now = datetime.now(UTC)

    def ago(minutes: float) -> str:
        return f"{now - timedelta(minutes=minutes):%Y-%m-%dT%H:%M:%SZ}"

    fake.add(JOBSETS.format("ml"), named("js"))
    ended = {"terminated": {"exitCode": 1, "finishedAt": ago(30), "startedAt": ago(90)}}
    restart = "jobset.sigs.k8s.io/restart-attempt"
    for attempt, more in (
        (0, {"state": ended, "phase": "Failed", "created": ago(90)}),
        (1, {"created": ago(4)}),
    ):
        labels = {SET_NAME: "js", restart: str(attempt)}
        fake.add("/api/v1/namespaces/ml/pods", fake_api.pod(f"w-{attempt}", labels=labels, **more))  # type: ignore[arg-type]
        fake.logs[f"w-{attempt}", "trainer"] = f"{ago(1)} [rank0]: step 5 loss 1\n".encode()
    config = ["--kubeconfig", str(fake_kubeconfig)]
    main(["triage", "js", "-o", "json", *config])
    found = json.loads(capsys.readouterr().out)["job"]
    assert (0, ["failed", "running"]) == (
        found["attempt"],
        [one["state"] for one in found["attempts"]],
    )
    main(["triage", "js", *config])
    assert "; attempt 1 has run 4m" in capsys.readouterr().out.splitlines()[1]
    main(["triage", "js", "-o", "json", "--attempt", "1", *config])
    assert 1 == json.loads(capsys.readouterr().out)["job"]["attempt"]
    main(["triage", "js", "-o", "json", "--lookback", "10m", *config])
    assert 1 == json.loads(capsys.readouterr().out)["job"]["attempt"]
    assert 2 == main(["triage", "js", "--attempt", "7", *config])
    assert "no attempt 7 in the cluster; there are: 0, 1" in capsys.readouterr().err
    fake.logs["w-1", "trainer"] = f"{ago(20)} [rank0]: step 5 loss 1\n".encode()
    main(["triage", "js", "-o", "json", *config])
    assert 1 == json.loads(capsys.readouterr().out)["job"]["attempt"], (
        "it stalled, and that is newer"
    )


WORKLOADS = "/apis/kueue.x-k8s.io/v1beta1/namespaces/ml/workloads"


def with_kueue(path: str, _query: object) -> fake_api.Said | None:
    """Discovery of a cluster that has it."""
    if path != "/apis":
        return None
    groups = {**fake_api.GROUPS, "kueue.x-k8s.io": ["v1beta1"]}
    return answer({"groups": [fake_api.group(n, v) for n, v in groups.items()]})


@pytest.mark.parametrize(
    "typed", ["workload/job-train-1f2a3", "workloads/job-train-1f2a3", "job-train-1f2a3"]
)
def test_a_workload_of_kueue_leads_to_its_job(fake: FakeApi, api: Api, typed: str) -> None:
    """What `kubectl get workloads` shows is what somebody has at hand."""
    fake.odd.append(with_kueue)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "uid-ml-train"}
    owners = {"ownerReferences": [{**owner, "controller": True}]}
    fake.add(WORKLOADS, named("job-train-1f2a3", meta=owners))
    fake.add(JOBS.format("ml"), named("train"))
    pods(fake, JOB_NAME, "train", 2)
    for namespace in ("ml", None):
        found = find(api, wanted(typed, namespace=namespace))
        assert ("Job ml/train", 2) == (found.shown, len(found.pods))


def test_a_workload_of_plain_pods_is_their_group(fake: FakeApi, api: Api) -> None:
    """It has the group's name, which its pods carry as a label."""
    fake.odd.append(with_kueue)
    fake.add(WORKLOADS, named("run7"))
    pods(fake, "kueue.x-k8s.io/pod-group-name", "run7", 2)
    found = find(api, wanted("run7", namespace="ml"))
    assert (None, 2, "run7") == (found.kind, len(found.pods), found.name)
    with pytest.raises(TargetError, match="no job run8 in namespace ml"):
        find(api, wanted("workload/run8", namespace="ml"))


def test_a_fetch_in_vain_takes_no_name_away(
    fake: FakeApi,
    fake_kubeconfig: Path,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing read: exit 4, and what was kept stays; nodes alone refused: theirs stay, the others are new."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("GPUFLEET_NO_STATE", raising=False)
    asked = ["cache", "refresh", "--kubeconfig", str(fake_kubeconfig)]

    def offered(command: str) -> list[str]:
        words = ["gpufleet", "--kubeconfig", str(fake_kubeconfig), command, ""]
        return (completion.matches(words, dict(os.environ)) or ([], False))[0]

    fake.add("/api/v1/nodes", fake_api.node("gpu-1"))
    fake.add("/api/v1/namespaces", {"metadata": {"name": "ml"}})
    pods(fake, JOB_NAME, "train", 1)
    assert 0 == main(asked)
    assert (["gpu-1"], ["train"]) == (offered("node"), offered("triage"))
    closed = ["/api/v1/nodes", "/api/v1/pods", "/api/v1/namespaces"]
    fake.odd.append(lambda path, _: failure(403) if path in closed else None)
    fake.collections["/api/v1/nodes"].append(fake_api.node("gpu-2"))
    fake.collections["/api/v1/namespaces/ml/pods"].clear()
    capsys.readouterr()
    assert 4 == main(asked)
    told = capsys.readouterr()
    assert ("", True) == (told.out, "not allowed to read nodes" in told.err)
    assert (["gpu-1"], ["train"]) == (offered("node"), offered("triage"))
    closed[:] = closed[:1]
    pods(fake, JOB_NAME, "next", 1)
    assert 0 == main(asked)
    assert "not fetched: nodes: not allowed to read nodes" in capsys.readouterr().err
    assert (["gpu-1"], ["next"]) == (offered("node"), offered("triage"))
