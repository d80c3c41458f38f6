"""Which marks a node is to carry: the label's value, several gangs on a node, what is left alone."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gpufleet_cli.live import held_gangs
from gpufleet_cli.live.held_gangs import Gang
from gpufleet_cli.live.node_gangs import JobRef
from gpufleet_cli.live.pods import pods_of
from gpufleet_cli.operate import gang_marks
from gpufleet_cli.operate.gang_marks import Mark

LABEL = re.compile(r"(?=.{1,63}$)[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
MARK = Mark(label="ml.a", jobs=("ml/Job/a",), size=4, since="2026-08-20T03:00:00Z", uid="uid-a")
AS_IT_IS = {
    "gpufleet/gang-job": "ml/Job/a",
    "gpufleet/gang-size": "4",
    "gpufleet/gang-since": "2026-08-20T03:00:00Z",
    "gpufleet/gang-uid": "uid-a",
}


def pod(name: str, job: str, node: str, **more: Any) -> dict[str, Any]:
    """A pod of an Indexed Job."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": f"uid-{job}",
             "controller": True}  # fmt: skip
    gpus = more.pop("gpus", 8)
    return {
        "metadata": {
            "name": name, "namespace": more.pop("namespace", "ml"), "uid": f"uid-{name}",
            "creationTimestamp": more.pop("created", "2026-08-20T03:00:00.5Z"),
            "ownerReferences": [owner],
            **({"deletionTimestamp": "2026-08-20T04:00:00Z"} if more.pop("going", False) else {}),
        },
        "spec": {
            "nodeName": node,
            "containers": [{"name": "t", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}],
        },
        "status": {"phase": more.pop("phase", "Running")},
    }  # fmt: skip


def gangs(*pods: dict[str, Any]) -> list[Gang]:
    return [one for one in held_gangs.found_in(pods_of(pods), {}) if one.is_gang]


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (("train", "Job", "run-7"), "train.run-7"),
        (("train", "Job", "x" * 57), "train." + "x" * 57),
    ],
)
def test_a_plain_name_is_the_label(job: tuple[str, str, str], expected: str) -> None:
    """With its namespace, since two teams may both have a `train`."""
    namespace, kind, name = job
    assert expected == gang_marks.label_of(JobRef(namespace=namespace, kind=kind, name=name))


def test_odd_and_long_names_stay_valid_and_apart() -> None:
    """Whatever is cut off or replaced still tells two jobs apart."""
    names = [
        "y" * 58,
        "y" * 200,
        "y" * 199 + "z",
        "job-id=a",
        "job-id_a",
        "a b",
        "a/b",
        "ends-",
        "Ü",
    ]
    values = [
        gang_marks.label_of(JobRef(namespace="train", kind=kind, name=name))
        for name in names
        for kind in ("Job", "pods")
    ]
    long = [value for value in values if not LABEL.fullmatch(value)]
    assert [] == long
    assert len(set(values)) >= len(names) * 2 - 1  # `job-id_a` is valid as it is, for either kind


def test_the_largest_running_gang_is_the_label_and_all_are_named() -> None:
    """Of two on a node; the one that only starts comes last, however large."""
    found = gang_marks.wanted(
        gangs(
            pod("a-0", "a", "n1", gpus=4), pod("a-1", "a", "n2", gpus=4),
            pod("b-0", "b", "n1", gpus=2), pod("b-1", "b", "n3", gpus=2),
            pod("c-0", "c", "n1", phase="Pending"), pod("c-1", "c", "n4", phase="Pending"),
        )
    )  # fmt: skip
    assert {"n1": "ml.a", "n2": "ml.a", "n3": "ml.b", "n4": "ml.c"} == {
        node: mark.label for node, mark in found.items()
    }
    assert ("ml/Job/a", "ml/Job/b", "ml/Job/c") == found["n1"].jobs
    assert (2, "uid-a", "2026-08-20T03:00:00Z") == (
        found["n1"].size, found["n1"].uid, found["n1"].since,
    )  # fmt: skip


def test_what_holds_no_node() -> None:
    """A job of one pod, pods that ended or go, and pods that no node has."""
    found = gangs(
        pod("one-0", "one", "n1"),
        pod("over-0", "over", "n2", phase="Failed"), pod("over-1", "over", "n3", phase="Succeeded"),
        pod("goes-0", "goes", "n4", going=True), pod("goes-1", "goes", "n5", going=True),
    )  # fmt: skip
    assert {} == gang_marks.wanted(found)
    assert not any(one.job.name == "one" for one in found)


@pytest.mark.parametrize(
    ("labels", "annotations", "mark", "expected"),
    [
        # nothing to do
        ({}, {}, None, None),
        ({"gpufleet/gang": "ml.a", "other/key": "x"}, {**AS_IT_IS, "k": "v"}, MARK, None),
        # a new mark is written whole, a changed one in what differs
        ({}, {"k": "v"}, MARK, ("mark", {"gpufleet/gang": "ml.a"}, AS_IT_IS)),
        (
            {"gpufleet/gang": "ml.a"},
            {**AS_IT_IS, "gpufleet/gang-uid": "uid-old"},
            MARK,
            ("change", None, {"gpufleet/gang-uid": "uid-a"}),
        ),
        (
            {"gpufleet/gang": "ml.old"},
            {},
            MARK,
            ("change", {"gpufleet/gang": "ml.a"}, AS_IT_IS),
        ),
        # what is gone is taken away: our keys that are there, and no other
        (
            {"gpufleet/gang": "ml.a", "gpufleet.io/x": "y"},
            {**AS_IT_IS, "gpufleet/cordoned-by": "anna"},
            None,
            ("clear", {"gpufleet/gang": None}, dict.fromkeys(AS_IT_IS)),
        ),
        (
            {},
            {"gpufleet/gang-uid": "left behind"},
            None,
            ("clear", None, {"gpufleet/gang-uid": None}),
        ),
    ],
)
def test_a_change_is_what_differs(
    labels: dict[str, str],
    annotations: dict[str, str],
    mark: Mark | None,
    expected: tuple[str, dict[str, str] | None, dict[str, str] | None] | None,
) -> None:
    """No other key in it, and none at all where nothing differs."""
    found = gang_marks.change("n1", labels, annotations, mark, spaces=None)
    if expected is None:
        assert found is None
        return
    assert found is not None
    assert expected == (
        found.action, found.patch.get("labels"), found.patch.get("annotations"),
    )  # fmt: skip
    kept = {**labels, **(found.patch.get("labels") or {})}
    noted = {**annotations, **(found.patch.get("annotations") or {})}
    after = gang_marks.change(
        "n1",
        {k: v for k, v in kept.items() if v is not None},
        {k: v for k, v in noted.items() if v is not None},
        mark,
        spaces=None,
    )
    assert after is None


@pytest.mark.parametrize(
    ("jobs", "spaces", "writes"),
    [
        ("ml/Job/a", {"ml"}, True),
        ("ml/Job/a", {"ml", "other"}, True),
        ("other/Job/a", {"ml"}, False),
        ("ml/Job/a,other/Job/b", {"ml"}, False),
        ("", {"ml"}, True),
    ],
)
@pytest.mark.parametrize("mark", [None, MARK])
def test_marks_of_other_namespaces_stay(
    jobs: str, spaces: set[str], writes: bool, mark: Mark | None
) -> None:
    """Of what was not read nobody knows whether it is gone, or larger."""
    found = gang_marks.change(
        "n1",
        {"gpufleet/gang": "some.thing"},
        {"gpufleet/gang-job": jobs},
        mark,
        spaces=frozenset(spaces),
    )
    assert writes is (found is not None)
