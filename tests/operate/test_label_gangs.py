"""`label-gangs` against a server that says no, that is overtaken, or that is gone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from live import fake_api
from live.fake_api import FakeApi

from gpufleet_cli.live import access, held_look
from gpufleet_cli.live.answers import Answer
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.deadline import Deadline
from gpufleet_cli.mark_card import NOT_ASKED, MarkRun
from gpufleet_cli.operate import label_gangs
from gpufleet_cli.operate.writes import Writer
from gpufleet_cli.render.layout import Look
from gpufleet_cli.render.marks_page import marks_json, marks_text

NODES = "/api/v1/nodes"
Patch = Callable[[str, Any, str], Answer]
SAID = Answer(status=403, body=b'{"message": "nodes is forbidden: anna may not patch"}')


class Told(Writer):
    """A writer whose patches are answered by the test."""

    __slots__ = ()
    answer: Patch
    asked: list[tuple[str, Any, str]]

    def patch(self, path: str, change: Any, *, version: str) -> Answer:
        type(self).asked.append((path.rpartition("/")[2], change, version))
        return type(self).answer(path, change, version)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[tuple[FakeApi, Api]]:
    """A gang on 40 nodes of which none is marked, and a node that another gang left its mark on."""
    with fake_api.running() as fake:
        for index in range(40):
            labels = {"batch.kubernetes.io/job-name": "run"}
            one = fake_api.pod(f"run-{index}", labels=labels, node=f"n{index}", gpus=8)
            fake.add("/api/v1/namespaces/ml/pods", one)
            fake.add(NODES, fake_api.node(f"n{index}"))
        old = fake_api.node("old")
        old["metadata"]["labels"] = {"gpufleet/gang": "ml.gone", "keep": "x"}
        old["metadata"]["annotations"] = {"gpufleet/gang-job": "ml/Job/gone", "team/note": "y"}
        fake.add(NODES, old)
        path = fake_api.write_kubeconfig(tmp_path / "kubeconfig", fake.url)
        yield fake, Api(access.connect(kubeconfig=str(path)), deadline=Deadline(120))


def run(
    api: Api, answer: Patch, *, dry_run: bool = True
) -> tuple[MarkRun, list[tuple[str, Any, str]]]:
    """One run, and every patch that was sent. A dry run leaves no Event, which the fake does not take."""

    class Own(Told):
        __slots__ = ()

    Own.answer = staticmethod(answer)  # type: ignore[assignment]
    Own.asked = []
    said: list[str] = []
    made = label_gangs.label(Own(api=api, dry_run=dry_run), held_look.look(api, None), said.append)
    return made, Own.asked


def test_one_patch_a_node(fleet: tuple[FakeApi, Api]) -> None:
    """40 marked, one cleared, with the version that was read; pages of nodes, and no read of one."""
    fake, api = fleet
    fake.page = 20
    for one in fake.collections[NODES]:
        one["metadata"]["resourceVersion"] = f"v-{one['metadata']['name']}"
    made, asked = run(api, lambda *_: Answer(status=200))
    assert (40, 0, 1, 0) == (
        made.count("mark"),
        made.count("change"),
        made.count("clear"),
        made.unchanged,
    )
    assert 41 == len(asked) == len({node for node, _, _ in asked})
    assert all(version == f"v-{node}" for node, _, version in asked)
    cleared = next(change for node, change, _ in asked if node == "old")
    gone = {"labels": {"gpufleet/gang": None}, "annotations": {"gpufleet/gang-job": None}}
    assert {"metadata": gone} == cleared
    assert (1, 0) == (made.gangs, fake.count(r"/nodes/"))
    told = marks_text(made, Look())
    assert "40 nodes hold 1 gang: 40 marked, 0 changed, 1 cleared, 0 as" in told
    assert "and 29 more nodes; -v shows all" in told
    assert all(len(line) <= 80 for line in told.splitlines())
    document = json.loads(marks_json(made))
    assert (41, 40) == (len(document["nodes"]), document["marked"])


def test_a_missing_right_ends_the_run(fleet: tuple[FakeApi, Api]) -> None:
    """Not 41 refusals: those that were under way, and one reason."""
    _, api = fleet
    made, asked = run(api, lambda *_: SAID)
    assert len(asked) <= label_gangs.IN_FLIGHT
    assert (41, 0) == (len(made.not_made), made.count("mark"))
    assert made.refusal is not None
    assert "no right to patch nodes" in made.refusal.why
    assert 1 == sum(one.why != NOT_ASKED for one in made.changes)


def test_a_server_that_is_gone_ends_the_run(fleet: tuple[FakeApi, Api]) -> None:
    """Nobody knows whether that one patch was done."""
    _, api = fleet
    made, asked = run(api, lambda *_: Answer(status=0, failed="connection reset"))
    assert len(asked) <= label_gangs.IN_FLIGHT
    assert made.refusal is not None
    assert ("unknown", True) == (made.refusal.came, "connection reset" in made.refusal.why)


def test_overtaken_each_time(fleet: tuple[FakeApi, Api]) -> None:
    """Read again and tried again a few times, then said; the other nodes are marked."""
    _, api = fleet
    made, asked = run(api, lambda path, *_: Answer(status=409 if path.endswith("/n7") else 200))
    (late,) = made.not_made
    assert ("n7", "overtaken") == (late.node, late.came)
    assert label_gangs.MOST_TRIES == sum(node == "n7" for node, _, _ in asked)
    assert (39, 1) == (made.count("mark"), made.count("clear"))


def test_what_the_second_look_shows(fleet: tuple[FakeApi, Api]) -> None:
    """After a conflict: marked by somebody else by now, or another node of that name."""
    fake, api = fleet
    by_name = {one["metadata"]["name"]: one for one in fake.collections[NODES]}

    def answer(path: str, change: Any, _: str) -> Answer:
        name = path.rpartition("/")[2]
        if name == "n1":
            by_name[name]["metadata"].update(change["metadata"])
        elif name == "n2":
            by_name[name]["metadata"]["uid"] = "another"
        return Answer(status=409 if name in ("n1", "n2") else 200)

    made, _ = run(api, answer)
    came = {one.node: one.came for one in made.changes if one.came != "done"}
    assert {"n1": "not-needed", "n2": "gone"} == came
    assert () == made.not_made


def test_nothing_is_concluded_from_half_a_list(fleet: tuple[FakeApi, Api]) -> None:
    """Pods of one namespace alone: the mark of a gang of another one stays."""
    fake, api = fleet
    fake.add("/api/v1/namespaces", {"metadata": {"name": "ml"}}, {"metadata": {"name": "other"}})
    by_name = {one["metadata"]["name"]: one for one in fake.collections[NODES]}
    by_name["old"]["metadata"]["annotations"]["gpufleet/gang-job"] = "other/Job/gone"
    fake.odd.append(
        lambda path, _: (
            fake_api.failure(403)
            if path in ("/api/v1/pods", "/api/v1/namespaces/other/pods")
            else None
        )
    )
    made, asked = run(api, lambda *_: Answer(status=200))
    assert (40, 0, 1) == (made.count("mark"), made.count("clear"), made.left)
    assert "old" not in {node for node, _, _ in asked}
    assert ["pods of other namespaces"] == [one.what for one in made.missing]
