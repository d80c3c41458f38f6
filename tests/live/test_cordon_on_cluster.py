"""`gpufleet cordon`, `uncordon` and `queue` on the real API server, with kubectl as the second opinion."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from servers import jobs, nodes, pods, proxy, store
from servers.cluster import kubeconfig_context, write_kubeconfig
from servers.jobs import Shape
from servers.metrics import Series, held, xid_series
from servers.namespaces import Namespace

from gpufleet_cli.live import api as live_api
from gpufleet_cli.live.answers import Answer
from gpufleet_cli.operate import audit
from live.cordon_hands import KEYS, Hands, kubectl, user_of

ROOT = Path(__file__).parents[2]


@pytest.fixture
def hands(
    namespace: Namespace,
    kubeconfig: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Hands:
    """The admin's kubeconfig is the one that counts, and the audit log is kept."""
    monkeypatch.delenv("GPUFLEET_NO_STATE")
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    return Hands(namespace, capsys)


def log() -> list[tuple[str, str]]:
    """Verb and outcome of each line of the audit log."""
    lines = audit.place().read_text(encoding="utf-8").splitlines()
    deeds = [json.loads(line)["deed"] for line in lines]
    return [(deed["verb"], deed["outcome"]) for deed in deeds]


def test_from_cordon_to_service(hands: Hands, kubeconfig: Path, tmp_path: Path) -> None:
    """One patch in, one patch out; idempotent; the first reason stays; kubectl agrees; a dry run writes nothing."""
    namespace = hands.namespace
    first, second = nodes.make(namespace, 2)
    dry = hands.run("cordon", first, "--reason", "XID 79", "--dry-run", "-o", "json")
    assert (0, "would be cordoned") == (dry.code, dry.answers[0]["answer"])
    assert (False, {}) == (hands.is_cordoned(first), hands.marks(first))
    wrote = [
        one["requestURI"]
        for one in namespace.cluster.audit(user="admin")
        if one["verb"] not in ("get", "list", "watch")
        and "gpufleet" in one.get("userAgent", "")
        and first in one["requestURI"]
    ]
    assert ["dryRun=All" in one for one in wrote] == [True], wrote
    assert [] == hands.events(first)
    assert not audit.place().exists()

    made = hands.run("cordon", first, f"node/{second}", "--reason", "XID 79", "--incident", "INC-1")
    assert 0 == made.code, made.err
    assert f"{first}: cordoned" in made.out
    marks = hands.marks(first)
    assert (set(KEYS), "XID 79", "INC-1") == (
        set(marks), marks["gpufleet/reason"], marks["gpufleet/incident"],
    )  # fmt: skip
    assert marks["gpufleet/cordoned-by"].startswith("admin (")
    assert "@" in marks["gpufleet/cordoned-by"]
    assert ["GpufleetCordon"] == hands.events(first)
    shown = kubectl(kubeconfig, "get", "node", first)
    assert shown is None or "SchedulingDisabled" in shown
    told = kubectl(kubeconfig, "cordon", "--dry-run=server", first)
    assert told is None or "already cordoned" in told

    again = hands.run("cordon", first, "--reason", "slow link", "-o", "json")
    assert (0, "already") == (again.code, again.answers[0]["answer"])
    assert "the first reason is kept" in again.answers[0]["why"]
    assert marks == hands.marks(first)
    assert ["GpufleetCordon"] == hands.events(first)

    listed = json.loads(hands.run("queue", "-o", "json").out)["queue"]
    rows = {row["node"]: row for row in listed}
    assert {first, second} <= set(rows)
    assert (8, "XID 79", "INC-1", True, []) == tuple(
        rows[first][key]
        for key in ("gpu_hours_per_hour", "reason", "incident", "cordoned", "gangs")
    )

    assert 2 == hands.run("uncordon", first).code, "nobody is there to confirm it"
    assert hands.is_cordoned(first)
    freed = hands.run("uncordon", first, "--yes")
    assert 0 == freed.code, freed.err
    assert "8 allocatable" in freed.err, "health comes first"
    assert (False, {}) == (hands.is_cordoned(first), hands.marks(first))
    assert 0 == hands.run("uncordon", first, "--yes").code, "nothing to do"
    assert ["GpufleetCordon", "GpufleetUncordon"] == hands.events(first)
    assert [("cordon", "done"), ("cordon", "done"), ("uncordon", "done")] == log()
    assert first not in {
        row["node"] for row in json.loads(hands.run("queue", "-o", "json").out)["queue"]
    }

    assert 4 == hands.run("cordon", "no-such-node", "--reason", "x").code
    assert 2 == hands.run("cordon", "a/../b", "--reason", "x").code
    assert 2 == hands.run("cordon", first, "--reason", " ").code
    mixed = hands.run("cordon", first, "no-such-node", "--reason", "x")
    assert 4 == mixed.code
    assert f"{first}: cordoned" in mixed.out
    assert "no node no-such-node" in mixed.err


@pytest.mark.parametrize("who", ["person", "nvsentinel", "repair", "again"])
def test_another_owners_cordon(hands: Hands, who: str) -> None:
    """Left as it is: cordon says whose and ends with 0, uncordon and queue done end with 5 and their means."""
    (node,) = nodes.make(hands.namespace, 1)
    name, means = {
        "person": ("kubectl-cordon", "kubectl uncordon"),
        "nvsentinel": ("NVSentinel", "NVSentinel uncordons it"),
        "repair": ("eks-node-repair", "provider's console"),
        "again": ("kubectl-cordon", "kubectl uncordon"),
    }[who]
    if who == "again":  # ours, taken off by hand, and cordoned by a person since
        assert 0 == hands.run("cordon", node, "--reason", "XID 79").code
        hands.patch(node, {"spec": {"unschedulable": None}}, "kubectl-cordon")
        assert "uncordoned by hand" in hands.run("queue").out
    change = {"spec": {"unschedulable": True}}
    if who == "nvsentinel":
        change["metadata"] = {"labels": {"k8saas.nvidia.com/cordon-by": "NVSentinel"}}  # type: ignore[dict-item]
    hands.patch(node, change, "eks-node-repair" if who == "repair" else "kubectl-cordon")
    events, marks = hands.events(node), hands.marks(node)
    before = hands.node(node)["metadata"]["managedFields"]

    made = hands.run("cordon", node, "--reason", "XID 48", "-o", "json")
    (answer,) = made.answers
    assert (0, "not-ours") == (made.code, answer["answer"])
    assert name in answer["why"]
    assert "not in our queue" in answer["why"]
    assert (marks, events) == (hands.marks(node), hands.events(node))

    for command in (["uncordon", node, "--yes"], ["queue", "done", node, "--yes"]):
        refused = hands.run(*command)
        assert 5 == refused.code, refused.err
        assert name in refused.err
        assert means in refused.err
    assert hands.is_cordoned(node)
    assert marks == hands.marks(node)
    ours = [
        one for one in hands.node(node)["metadata"]["managedFields"] if one["manager"] == "gpufleet"
    ]
    assert [one for one in before if one["manager"] == "gpufleet"] == ours, (
        "nothing of it was written"
    )
    assert ["GpufleetUncordonRefused", "GpufleetQueueDoneRefused"] == hands.events(node)[-2:]
    assert [("uncordon", "refused"), ("queue-done", "refused")] == log()[-2:]


def start(kubeconfig: Path, *arguments: str) -> subprocess.Popen[str]:
    """The program in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "gpufleet_cli", *arguments, "--kubeconfig", str(kubeconfig)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_two_engineers_at_once(hands: Hands, tmp_path: Path) -> None:
    """Exactly one wins, on each of several nodes; all annotations are the winner's; the other ends with 0."""
    made = nodes.make(hands.namespace, 6)
    configs = []
    for user in ("anna", "bert"):
        context = kubeconfig_context(hands.namespace.cluster, "admin")
        configs.append(write_kubeconfig(tmp_path / user, {user: context}, current=user))
    running = [
        start(config, "cordon", *made, "--reason", f"said {config.name}", "-o", "json",
              "--deadline", "240s")
        for config in configs
    ]  # fmt: skip
    ended = [(one.communicate(timeout=280), one.returncode) for one in running]
    assert [0, 0] == [code for _, code in ended], [told[1] for told, _ in ended]
    answers = [
        {one["node"]: one["answer"] for one in json.loads(told[0])["nodes"]} for told, _ in ended
    ]
    for node in made:
        assert ["already", "cordoned"] == sorted(found[node] for found in answers)
        winner = configs[0 if answers[0][node] == "cordoned" else 1].name
        marks = hands.marks(node)
        assert f"said {winner}" == marks["gpufleet/reason"]
        assert marks["gpufleet/cordoned-by"].startswith(f"{winner} (")
        assert ["GpufleetCordon"] == hands.events(node)


@pytest.mark.parametrize("between", ["heartbeat", "kubectl", "gpufleet", "never-still"])
def test_somebody_between_our_look_and_our_patch(
    hands: Hands, between: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A heartbeat costs a second look; another owner's cordon is never overwritten; no endless loop."""
    (node,) = nodes.make(hands.namespace, 1)
    changes = {
        "heartbeat": ({"metadata": {"labels": {"beat": "1"}}}, "kubelet"),
        "kubectl": ({"spec": {"unschedulable": True}}, "kubectl-cordon"),
        "gpufleet": (
            {
                "spec": {"unschedulable": True},
                "metadata": {"annotations": {
                    "gpufleet/cordoned-by": "bert", "gpufleet/cordoned-at": "2026-03-11T03:50:11Z",
                    "gpufleet/reason": "said bert",
                }},
            },
            "gpufleet",
        ),
    }  # fmt: skip
    write = live_api.Api.write
    turns: list[int] = []

    def overtaken(
        self: live_api.Api, method: str, path: str, *rest: object, **more: object
    ) -> object:
        if method == "PATCH":
            turns.append(1)
            if between == "never-still":
                hands.patch(node, {"metadata": {"labels": {"beat": str(len(turns))}}}, "kubelet")
            elif len(turns) == 1:
                hands.patch(node, *changes[between])
        return write(self, method, path, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(live_api.Api, "write", overtaken)
    made = hands.run("cordon", node, "--reason", "XID 79", "-o", "json")
    marks = hands.marks(node)
    (answer,) = made.answers
    if between == "heartbeat":
        assert (0, "cordoned", 2) == (made.code, answer["answer"], len(turns))
        assert "XID 79" == marks["gpufleet/reason"]
    elif between == "kubectl":
        assert (0, "not-ours", {}) == (made.code, answer["answer"], marks)
    elif between == "gpufleet":
        assert (0, "already") == (made.code, answer["answer"])
        assert ("bert", "said bert") == (marks["gpufleet/cordoned-by"], marks["gpufleet/reason"])
    else:
        assert (5, "refused", {}) == (made.code, answer["answer"], marks)
        assert ["GpufleetCordonRefused"] == hands.events(node)
        assert not hands.is_cordoned(node)


def test_what_a_reader_may_not(hands: Hands, tmp_path: Path) -> None:
    """The reader's refusal is one line, before anything is written; the operator's role is enough for all."""
    (node,) = nodes.make(hands.namespace, 1)
    reader = str(user_of(hands.namespace, "reader", tmp_path / "reader"))
    operator = str(user_of(hands.namespace, "operator", tmp_path / "operator"))
    commands = (
        ["cordon", node, "--reason", "XID 79"],
        ["uncordon", node, "--yes"],
        ["queue", "done", node],
    )
    for command in commands:
        refused = hands.run(*command, "--kubeconfig", reader)
        assert (4, "") == (refused.code, refused.out)
        lines = [line for line in refused.err.splitlines() if "not allowed" in line]
        assert 1 == len(lines), refused.err
        assert "patch nodes" in lines[0]
        assert "gpufleet-operator" in lines[0]
    assert (False, {}, []) == (hands.is_cordoned(node), hands.marks(node), hands.events(node))
    assert [("cordon", "refused"), ("uncordon", "refused"), ("queue-done", "refused")] == log()
    assert 0 == hands.run("queue", "--kubeconfig", reader).code
    made = hands.run(*commands[0], "--kubeconfig", operator)
    assert 0 == made.code, made.err
    assert "not known" not in made.out
    assert 5 == hands.run(*commands[2], "--kubeconfig", operator).code
    assert 0 == hands.run(*commands[1], "--kubeconfig", operator).code
    assert ["GpufleetCordon", "GpufleetQueueDoneRefused", "GpufleetUncordon"] == hands.events(node)


def test_a_server_that_is_lost(
    hands: Hands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that never came is told from what a new look finds; a server that is gone is 4."""
    cluster = hands.namespace.cluster
    first, second, third = nodes.make(hands.namespace, 3)
    write = live_api.Api.write
    unheard: list[str] = []

    def silent(self: live_api.Api, method: str, path: str, *rest: object, **more: object) -> object:
        if method != "PATCH" or unheard:
            return write(self, method, path, *rest, **more)  # type: ignore[arg-type]
        unheard.append(path)
        if path.endswith(first):
            write(self, method, path, *rest, **more)  # type: ignore[arg-type]
        return Answer(status=0, failed="no answer in 15 s")

    with monkeypatch.context() as patched:
        patched.setattr(live_api.Api, "write", silent)
        for node, why in ((first, "a new look finds it done"), (second, "no new pod lands here")):
            unheard.clear()
            made = hands.run("cordon", node, "--reason", "XID 79", "-o", "json")
            (answer,) = made.answers
            assert (0, "cordoned", 1) == (made.code, answer["answer"], len(unheard)), made.err
            assert why in answer["why"]
            assert "XID 79" == hands.marks(node)["gpufleet/reason"]
            assert ["GpufleetCordon"] == hands.events(node)
    with proxy.running(cluster.url, folder=cluster.folder) as it:
        context = kubeconfig_context(cluster, "admin", url=it.url)
        config = write_kubeconfig(tmp_path / "proxied", {"prod": context}, current="prod")
        it.hang(f"nodes/{third}")
        asked = ["cordon", third, "--reason", "x", "--kubeconfig", str(config), "--deadline", "6s"]
        lost = hands.run(*asked)
        assert (4, "") == (lost.code, lost.out)
    assert not hands.is_cordoned(third)


def test_a_gang_that_holds_it(hands: Hands) -> None:
    """A cordon stops nothing: it names the gang, the next step, and what else it sets off."""
    namespace = hands.namespace
    labels = {"eks.amazonaws.com/nodegroup": "gpu"}
    made = nodes.make(namespace, 2, gpus=8, labels=labels)
    key = "alpha.jobset.sigs.k8s.io/exclusive-topology"
    shape = Shape(pods=2, gpus=8, nodes=made, annotations={key: "rack"})
    job = f"train-{namespace.name}"
    jobs.pytorchjob(namespace, job, shape)
    pods.wait(namespace, f"training.kubeflow.org/job-name={job}", 2)
    nodes.set_condition(
        namespace.cluster,
        made[0],
        "AcceleratedHardwareReady",
        status="False",
        reason="NvidiaXID79Error",
    )
    found = hands.run("cordon", made[0], "--reason", "XID 79", "-o", "json")
    (answer,) = found.answers
    assert (
        f"{namespace.name}/{job} (PyTorchJob, 8 GPUs here, 2 pods in all, running)"
        in answer["holds"][0]
    )
    assert [f"gpufleet evict {job} -n {namespace.name} --at-checkpoint"] == answer["next"]
    told = " ".join(answer["sets_off"])
    for words in (
        "may reboot or replace it in",
        "may find no place",
        "may be deleted once it is empty",
    ):
        assert words in told
    pods.wait(namespace, f"training.kubeflow.org/job-name={job}", 2)
    rows = {row["node"]: row for row in json.loads(hands.run("queue", "-o", "json").out)["queue"]}
    row = rows[made[0]]
    assert (0, [job], [True]) == (
        row["gpu_hours_per_hour"],
        [gang["name"] for gang in row["gangs"]],
        [gang["running"] for gang in row["gangs"]],
    )
    assert "nothing" in hands.run("queue").out
    refused = hands.run("queue", "done", made[0], "-o", "json")
    items = {item["item"]: item["state"] for item in refused.answers[0]["gate"]}
    assert (5, "fail", "fail") == (refused.code, items["reset"], items["healthy"])


def test_the_way_back(hands: Hands, prometheus: object) -> None:
    """The gate stays shut for what was not seen, opens by signs or by what a person states, and says so."""
    namespace = hands.namespace
    (node,) = nodes.make(namespace, 1, gpus=1)
    assert 0 == hands.run("cordon", node, "--reason", "XID 79").code
    shut = hands.run("queue", "done", node, "-o", "json")
    items = {item["item"]: item["state"] for item in shut.answers[0]["gate"]}
    assert 5 == shut.code
    assert {"reset": "unknown", "xid-free": "unknown", "diagnostics": "unknown", "healthy": "pass",
            "gpus": "pass"} == items  # fmt: skip
    assert "--accept" in shut.answers[0]["instead"]
    text = hands.run("queue", "done", node)
    assert "unknown reset" in text.out
    assert 2 == hands.run("queue", "done", node, "--accept", "everything=yes").code

    # four hours later, by its annotation: booted since, and watched without an XID
    now = datetime.now(UTC)
    earlier = f"{now - timedelta(hours=4):%Y-%m-%dT%H:%M:%SZ}"
    hands.patch(node, {"metadata": {"annotations": {"gpufleet/cordoned-at": earlier}}}, "gpufleet")
    store.back_date(namespace.cluster, f"/registry/minions/{node}", now - timedelta(days=30))
    samples = held(now - timedelta(hours=2), now + timedelta(minutes=10))
    boot = now.timestamp() // 10_000 * 10_000  # six digits are what the samples' text keeps
    booted = Series(
        name="node_boot_time_seconds",
        labels={"instance": f"{node}:9100", "node": node},
        samples=[(at, boot) for at, _ in samples],
    )
    url = prometheus([xid_series(node, 0, samples), booted])  # type: ignore[operator]
    asked = ["queue", "done", node, "--prometheus", url, "-o", "json"]
    found = hands.run(*asked)
    items = {item["item"]: item["state"] for item in found.answers[0]["gate"]}
    assert (5, "pass", "pass", "unknown") == (
        found.code, items["reset"], items["xid-free"], items["diagnostics"],
    )  # fmt: skip
    failed = hands.run(*asked, "--diagnostics", "dcgmi diag -r 3: FAIL")
    assert 5 == failed.code
    dry = hands.run(*asked, "--diagnostics", "dcgmi diag -r 3: pass", "--dry-run")
    assert (0, True) == (dry.code, hands.is_cordoned(node))
    opened = hands.run(*asked, "--accept", "diagnostics=vendor swapped the board")
    assert (0, "returned") == (opened.code, opened.answers[0]["answer"]), opened.err
    assert (False, {}) == (hands.is_cordoned(node), hands.marks(node))
    assert "GpufleetQueueDone" == hands.events(node)[-1]
    last = json.loads(audit.place().read_text(encoding="utf-8").splitlines()[-1])["deed"]
    assert "diagnostics stated: vendor swapped the board" in last["why"]
    assert (0, "not queued") == (
        (again := hands.run(*asked)).code,
        again.answers[0]["answer"],
    )


def test_a_person_is_asked(hands: Hands, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node's name has to be typed; a cordon made anew while they read is not undone."""
    import io

    (node,) = nodes.make(hands.namespace, 1)
    assert 0 == hands.run("cordon", node, "--reason", "XID 79").code

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal("yes\n"))
    refused = hands.run("uncordon", node)
    assert (5, True) == (refused.code, hands.is_cordoned(node))
    assert "not confirmed" in refused.err

    class Slow(Terminal):
        def readline(self, *_: object) -> str:  # type: ignore[override]
            hands.patch(
                node, {"metadata": {"annotations": {"gpufleet/reason": "other"}}}, "gpufleet"
            )
            return f"{node}\n"

    monkeypatch.setattr(sys, "stdin", Slow())
    changed = hands.run("uncordon", node)
    assert (5, True) == (changed.code, hands.is_cordoned(node))
    assert "another one by now" in changed.err
    monkeypatch.setattr(sys, "stdin", Terminal(f"{node}\n"))
    assert 0 == hands.run("uncordon", node).code
    assert not hands.is_cordoned(node)
