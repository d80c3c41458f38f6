"""Does a restart place without the node to blame: asked in the live look, kept, and told by the saved bundle too."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gpufleet_cli.cli import main
from gpufleet_cli.live import restart_room, spare_look
from gpufleet_cli.spare_facts import HOST, Need, Room, Wants
from live import cluster_stories as stories
from live import fake_api
from live.fake_api import FakeApi, failure

PODS = "/api/v1/namespaces/ml/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
QUOTAS = "/api/v1/namespaces/ml/resourcequotas"
AT = datetime(2026, 8, 20, 3, 10, 0, tzinfo=UTC)
GPU = "nvidia.com/gpu"


def node(fake: FakeApi, name: str, *, ready: str = "True", gpus: int = 1) -> None:
    made = fake_api.node(name, ready=ready)
    made["status"] |= {"allocatable": {GPU: str(gpus)}, "capacity": {GPU: str(gpus)}}
    fake.add("/api/v1/nodes", made)


def dead_node(fake: FakeApi, spare: int) -> None:
    """A job of three: the node of the second died, the others waited for it; and spare nodes."""
    spec = {"completions": 3, "parallelism": 3}
    meta = {"name": "train", "namespace": "ml", "uid": "uid-train"}
    fake.add("/apis/batch/v1/namespaces/ml/jobs", {"metadata": meta, "spec": spec})
    for index in range(3):
        labels = {
            "batch.kubernetes.io/job-name": "train",
            "batch.kubernetes.io/job-completion-index": str(index),
        }
        name, where = f"train-{index}", f"gpu-{index}"
        fake.add(PODS, fake_api.pod(name, labels=labels, node=where))
        is_dead = index == 1
        node(fake, where, ready="Unknown" if is_dead else "True")
        renewed = AT + timedelta(seconds=60) if is_dead else datetime.now(UTC)
        fake.add(LEASES, fake_api.lease(where, f"{renewed:%Y-%m-%dT%H:%M:%S.%fZ}"))
        lines = list(stories.steps(index, 1, AT, 60))
        if not is_dead:
            lines += stories.timeouts(index, 1, AT + timedelta(seconds=660))
        fake.logs[name, "trainer"] = b"".join(
            f"{at:%Y-%m-%dT%H:%M:%S.%f}000Z {line}\n".encode() for at, line in lines
        )
    for index in range(spare):
        node(fake, f"spare-{index}")


class Triaged:
    """A live look, and the saved bundle of it."""

    def __init__(self, config: Path, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.place, self.capsys = place, capsys
        self.live = self.json(
            "train", "-n", "ml", "--kubeconfig", str(config), "--save", str(place)
        )

    def json(self, *target: str) -> dict[str, Any]:
        main(["triage", *target, "-o", "json"])
        found: dict[str, Any] = json.loads(self.capsys.readouterr().out)
        return found

    def text(self) -> list[str]:
        main(["triage", str(self.place), "-o", "text"])
        return self.capsys.readouterr().out.splitlines()

    def says_it(self) -> bool:
        """Whether the screen has the line."""
        heads = ("  a restart places: ", "  a restart will not place: ")
        return any(line.startswith(heads) for line in self.text())

    def advice(self) -> dict[str, Any]:
        """What both say of a restart; all else is equal too, but for the target."""
        again = self.json(str(self.place))
        live = {key: value for key, value in self.live.items() if key != "target"}
        again.pop("target")
        assert json.dumps(live) == json.dumps(again)
        assert live["recommendation"]["nodes"] == ["gpu-1"]
        found: dict[str, Any] = live["recommendation"]["spares"]
        return found


@pytest.fixture
def triaged(
    fake: FakeApi, fake_kubeconfig: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Any:
    del fake
    return lambda: Triaged(fake_kubeconfig, tmp_path / "saved", capsys)


def test_a_restart_places(fake: FakeApi, triaged: Any) -> None:
    """Two nodes of the gang are free again, and a spare one takes the third pod."""
    dead_node(fake, spare=1)
    found = triaged()
    told = found.advice()
    assert ("gpu-1", True, ["spare-0"]) == (told["node"], told["places"], told["nodes"])
    assert "all 3 pods (3 GPUs) find room; 1 spare node" == told["why"]
    lines = found.text()
    assert any(line.startswith("  a restart places: all 3 pods") for line in lines)
    assert len(lines) < 24


def test_a_restart_will_not_place(fake: FakeApi, triaged: Any) -> None:
    """Before anybody evicts: no node is left that could take the third pod."""
    dead_node(fake, spare=0)
    found = triaged()
    told = found.advice()
    assert (False, []) == (told["places"], told["nodes"])
    assert "2 of 3 pods find room" in told["why"]
    assert found.says_it()


def test_quota_is_a_reason(fake: FakeApi, triaged: Any) -> None:
    """The namespace may hold two GPUs by now."""
    dead_node(fake, spare=1)
    key = f"requests.{GPU}"
    meta = {"name": "gpus", "namespace": "ml"}
    fake.add(QUOTAS, {"metadata": meta, "status": {"hard": {key: "2"}, "used": {key: "2"}}})
    told = triaged().advice()
    assert told["places"] is False
    assert told["why"].startswith("quota: ResourceQuota gpus leaves 2 of 2")


@pytest.mark.parametrize("lost", ["/api/v1/nodes", "/api/v1/pods"])
def test_what_may_not_be_read_makes_no_answer(fake: FakeApi, triaged: Any, lost: str) -> None:
    """Neither yes nor no; nothing of it on the screen, and no part of the job counts as missing."""
    dead_node(fake, spare=1)
    fake.odd.append(lambda path, _: failure(403) if path == lost else None)
    found = triaged()
    told = found.advice()
    assert told["places"] is None
    assert lost.rpartition("/")[2] in told["why"]
    assert not found.says_it()


def test_it_holds_nobody_up(fake: FakeApi, triaged: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has no time for the fleet is told so, and the verdict is there."""
    monkeypatch.setattr(restart_room, "LONGEST_S", 0.0)
    dead_node(fake, spare=1)
    told = triaged().advice()
    assert told["places"] is None
    assert "the nodes could not be read" in told["why"]
    assert fake.count("^/api/v1/pods$") == 0


def test_a_bundle_without_the_file_says_nothing(fake: FakeApi, triaged: Any) -> None:
    """As those of an earlier version."""
    dead_node(fake, spare=1)
    found = triaged()
    (found.place / restart_room.SPARES_FILE).unlink()
    again = found.json(str(found.place))
    assert again["recommendation"]["spares"] is None
    assert not found.says_it()


@pytest.mark.parametrize(
    "without", ['"x"', '[{"node":"gpu-1"}]', '[{"node":["gpu-1"]},null,7]', "["]
)
def test_a_broken_file_costs_itself(fake: FakeApi, triaged: Any, without: str) -> None:
    """The verdict stays as it is."""
    dead_node(fake, spare=1)
    found = triaged()
    (found.place / restart_room.SPARES_FILE).write_text(
        f'{{"schema":"gpufleet.spares/v1","without":{without}}}'
    )
    again = found.json(str(found.place))
    assert again["recommendation"]["spares"] is None
    assert again["verdict"]["kind"] == found.live["verdict"]["kind"]
    assert again["recommendation"]["nodes"] == ["gpu-1"]


def test_few_nodes_are_judged_and_ill_ones_first(
    fake: FakeApi, triaged: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a large gang the node that looks ill is among them."""
    monkeypatch.setattr(restart_room, "MOST_NODES", 1)
    dead_node(fake, spare=1)
    found = triaged()
    document = json.loads((found.place / restart_room.SPARES_FILE).read_text())
    assert ["gpu-1"] == [one["node"] for one in document["without"]]


def test_nodes_that_are_alike_have_one_answer() -> None:
    """Whatever sets a node apart (GPUs, labels, taints, a name that a pod asks for) sets its answer apart: each
    is that of the node judged alone."""
    rack = "topology.kubernetes.io/rack"
    hosts = [f"n-{index}" for index in range(8)]

    def room(index: int) -> Room:
        labels = {HOST: hosts[index], rack: "a" if index < 3 else "b"}
        taints = (("special", "", "NoSchedule"),) if index == 7 else ()
        return Room(
            name=hosts[index], labels=labels, taints=taints, is_open=True,
            offers={GPU: 16 if index == 5 else 8}, holds_gang=index < 6,
        )  # fmt: skip

    pinned = Need(count=1, devices=((GPU, 8),), selector=((HOST, "n-2"),))
    racked = Need(count=3, devices=((GPU, 8),), selector=((rack, "b"),))
    free = Need(count=2, devices=((GPU, 8),))
    answers = set()
    for needs in ((pinned, racked, free), (racked, free), (free,)):
        question = spare_look.Question(
            wants=Wants(units=(needs,)), rooms=tuple(map(room, range(8))), quota=None, unread=()
        )
        for node, told in question.without_each(hosts[:6]):
            assert question.without(node) == told
            answers.add(told.places)
    assert {True, False} == answers
