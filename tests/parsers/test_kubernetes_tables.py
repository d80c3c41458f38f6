"""What kubectl prints for people: columns, relative ages, describe."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from builders import evidence

from gpufleet_cli.facts import ClusterEvent, Fact, IdentityLink, NodeState, PodState
from gpufleet_cli.parsers import kubernetes_tables
from gpufleet_cli.parsers.kubernetes_events import age
from gpufleet_cli.timestamps import parse_rfc3339

SAMPLES = Path(__file__).parents[2] / "fixtures" / "samples" / "kubernetes"


def parse(text: str | bytes, path: str = "kubectl.txt") -> list[Fact]:
    data = text.encode() if isinstance(text, str) else text
    return list(kubernetes_tables.parse(evidence(data, path)))


def sample(name: str) -> str:
    return (SAMPLES / name).read_text(encoding="utf-8")


def events(text: str) -> list[ClusterEvent]:
    return [f for f in parse(text) if isinstance(f, ClusterEvent)]


def pods(text: str) -> list[PodState]:
    return [f for f in parse(text) if isinstance(f, PodState)]


def nodes(text: str) -> list[NodeState]:
    return [f for f in parse(text) if isinstance(f, NodeState)]


@pytest.mark.parametrize(
    ("text", "seconds", "width"),
    [
        ("80s", 80.0, 1.0),
        ("5m9s", 309.0, 1.0),
        ("14m", 840.0, 60.0),
        ("3h25m", 12_300.0, 60.0),
        ("7h", 25_200.0, 3_600.0),
        ("5d2h", 439_200.0, 3_600.0),
        ("2y10d", 63_936_000.0, 86_400.0),
    ],
)
def test_an_age_and_how_wide_it_is(text: str, seconds: float, width: float) -> None:
    """`14m` is any time within that minute."""
    assert (seconds, width) == age(text)


@pytest.mark.parametrize(
    "text", ["", "<unknown>", "<invalid>", "5", "m", "-5m", "5 m", "2025-03-03"]
)
def test_what_is_no_age(text: str) -> None:
    """Unknown stays unknown."""
    assert age(text) is None


# --- Events ---------------------------------------------------------------------------------------


def test_get_events() -> None:
    """Kind and name, ages, repeats with their first sighting, unknown ages."""
    found = events(sample("get-events.txt"))
    assert [
        ("Scheduled", "Pod", "pt-job-worker-1", False, 960.0, 1),
        ("BackOff", "Pod", "pt-job-worker-1", True, 80.0, 3),
        ("NodeNotReady", "Node", "gpu-h09", True, 12_300.0, 1),
        ("Killing", "Pod", "pt-job-worker-2", False, None, 1),
    ] == [(e.reason, e.kind, e.name, e.warning, e.age_s, e.count) for e in found]
    assert (840.0, 1.0) == (found[1].first_age_s, found[1].age_error_s)
    assert 'Back-off pulling image "registry.example.net/ml/train:v41"' == found[1].message


def test_events_of_all_namespaces_in_columns_that_shift() -> None:
    """A long value pushes its row out of the columns; the row still reads."""
    found = events(sample("get-events-all-namespaces.txt"))
    assert [
        ("default", "NodeNotReady", "gpu-h09"),
        ("ml", "TaintManagerEviction", "trainer-3"),
    ] == [(e.namespace, e.reason, e.name) for e in found]


def test_events_whose_blanks_were_squeezed() -> None:
    """A chat window leaves one blank between columns."""
    squeezed = re.sub(r" {2,}", " ", sample("get-events.txt"))
    wanted = [(e.reason, e.name, e.age_s, e.message) for e in events(sample("get-events.txt"))]
    assert wanted == [(e.reason, e.name, e.age_s, e.message) for e in events(squeezed)]


def test_an_assignment_ties_pod_and_node() -> None:
    """The scheduler's message is a link."""
    links = [f for f in parse(sample("get-events.txt")) if isinstance(f, IdentityLink)]
    assert [("pt-job-worker-1", "gpu-h03", "ml")] == [(f.pod, f.node, f.namespace) for f in links]


def test_custom_columns_with_a_time() -> None:
    """LAST SEEN may hold a time."""
    found = events(
        "LAST SEEN              TYPE      REASON    OBJECT    MESSAGE\n"
        "2025-03-03T22:14:12Z   Warning   Failed    pod/p-0   Error\n"
    )
    stamp = parse_rfc3339("2025-03-03T22:14:12Z")
    assert stamp is not None
    assert (stamp[0], None) == (found[0].at_ns, found[0].age_s)


# --- Pods and nodes -------------------------------------------------------------------------------


def test_get_pods_wide() -> None:
    """Status words become container states; `<none>` is nothing."""
    found = pods(sample("get-pods-wide.txt"))
    assert [
        ("trainer-worker-0", "gpu-c01", "running", None, 0),
        ("trainer-worker-1", "gpu-c02", "terminated", "OOMKilled", 3),
        ("trainer-worker-2", "gpu-c03", "waiting", "ImagePullBackOff", 0),
        ("trainer-worker-3", None, "waiting", "Pending", 0),
        ("trainer-worker-4", "gpu-c05", "unknown", "Terminating", 0),
    ] == [
        (p.name, p.node, p.containers[0].state, p.containers[0].reason, p.containers[0].restarts)
        for p in found
    ]
    assert (137, True) == (found[1].containers[0].exit_code, found[4].terminating)
    assert ["10.244.17.30", None] == [found[0].pod_ip, found[2].pod_ip]


def test_one_word_for_two_containers_is_nobodys_state() -> None:
    """READY 2/2: which of them the word means is not said."""
    found = pods(sample("get-pods-wide.txt"))
    assert ["", None] == [found[0].rank_container, found[4].rank_container]


def test_get_pods_with_squeezed_blanks() -> None:
    """`3 (5m ago)` is one value."""
    squeezed = re.sub(r" {2,}", " ", sample("get-pods-wide.txt"))
    assert [(p.name, p.node) for p in pods(sample("get-pods-wide.txt"))] == [
        (p.name, p.node) for p in pods(squeezed)
    ]


def test_get_nodes() -> None:
    """Ready, NotReady, cordoned."""
    assert [("gpu-c01", "True", False), ("gpu-c02", "False", False), ("gpu-c03", "True", True)] == [
        (n.name, n.ready, n.unschedulable) for n in nodes(sample("get-nodes.txt"))
    ]
    assert "10.0.0.2" == nodes(sample("get-nodes.txt"))[1].internal_ip


def test_several_tables_in_one_file() -> None:
    """A person pastes one command after the other."""
    text = (
        sample("get-nodes.txt")
        + "\n"
        + sample("get-pods-wide.txt")
        + "\n"
        + sample("get-events.txt")
    )
    assert (3, 5, 4) == (len(nodes(text)), len(pods(text)), len(events(text)))


# --- describe -------------------------------------------------------------------------------------


def test_describe_pod() -> None:
    """State, last state, limits, events."""
    found = pods(sample("describe-pod.txt"))[0]
    container = found.containers[0]
    assert ("trainer-worker-1", "train", "gpu-c02", "10.244.18.12", "Failed", 8) == (
        found.name, found.namespace, found.node, found.pod_ip, found.phase, found.gpus,
    )  # fmt: skip
    assert ("pytorch", "terminated", "OOMKilled", 137, 1, "Error", True) == (
        container.name, container.state, container.reason, container.exit_code,
        container.last_exit_code, container.last_reason, container.has_gpu,
    )  # fmt: skip
    stamp = parse_rfc3339("2025-03-03T22:14:12Z")
    assert stamp is not None
    assert stamp[0] == container.finished_ns
    assert [("Scheduled", 2400.0), ("BackOff", 80.0)] == [
        (e.reason, e.age_s) for e in events(sample("describe-pod.txt"))
    ]


def test_describe_node() -> None:
    """Conditions with their polarity, capacity, taints, events of the node."""
    found = nodes(sample("describe-node.txt"))[0]
    assert ("gpu-c02", "Unknown", True, 8, 7, "9f3a.1") == (
        found.name, found.ready, found.unschedulable,
        found.gpus_capacity, found.gpus_allocatable, found.nvlink_domain,
    )  # fmt: skip
    assert ["AcceleratedHardwareReady"] == [c[0] for c in found.bad_conditions]
    assert ("node.kubernetes.io/unreachable:NoExecute",) == found.taints
    assert [("Node", "gpu-c02")] == [(e.kind, e.name) for e in events(sample("describe-node.txt"))]


def test_several_descriptions_in_a_row() -> None:
    """`kubectl describe pods` prints them one after the other."""
    text = sample("describe-pod.txt")
    assert 2 == len(pods(text + "\n\n" + text.replace("trainer-worker-1", "trainer-worker-2")))


# --- Broken input ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"LAST SEEN   TYPE   REASON   OBJECT   MESSAGE\n",
        b"LAST SEEN   TYPE   REASON   OBJECT   MESSAGE\n\xff\xfe\n16m\n   \n16m Warning\n",
        b"NAME   READY   STATUS   RESTARTS   AGE\n\nNo resources found in ml namespace.\n",
        b"Name:  x\nNamespace:",
        b"Name:  \nRoles:\nConditions:\n  Ready\n",
    ],
)
def test_scraps_raise_nothing(data: bytes) -> None:
    """Headers alone, cut rows, non-UTF-8."""
    found = parse(data)
    assert not any(isinstance(f, ClusterEvent) for f in found)


def test_what_is_kubectls() -> None:
    """By its headings; a log is none."""
    for path in sorted(SAMPLES.glob("*.txt")):
        assert kubernetes_tables.matches(path.name, path.read_bytes()), path.name
    assert not kubernetes_tables.matches("a.log", b"NAME is x\nstep 1 loss 2.0\n")
