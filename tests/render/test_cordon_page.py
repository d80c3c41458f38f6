"""Answers of cordon and uncordon, the gate and the queue: 80 columns, one screen, and JSON of the same."""

from __future__ import annotations

import json
from dataclasses import replace

from gpufleet_cli.cordon_card import CordonAnswer, GateItem, Queue, QueueEntry
from gpufleet_cli.node_card import HeldGang, HeldPod, Missing
from gpufleet_cli.operate.queue_look import urgency
from gpufleet_cli.render.cordon_page import answers_json, answers_text, queue_json, queue_text
from gpufleet_cli.render.layout import Look

NOW = 1_773_200_000_000_000_000
LOOK = Look()
GANG = HeldGang(
    kind="JobSet",
    name="train-run-7",
    namespace="train",
    size=16,
    pods=(HeldPod(name="w-0", phase="running", gpus=8),),
)
WAITS = QueueEntry(
    node="gpu-node-0417",
    by="ml-platform (anna@bastion-eu-1)",
    at_ns=NOW - 7_400 * 10**9,
    reason="XID 79",
    incident="INC-2031",
    is_cordoned=True,
    other_owner=None,
    ready="False",
    gpus=8,
    gangs=(),
)
HELD = replace(
    WAITS, node="gpu-node-0420", reason="XID 94", gangs=(GANG,), ready="True", incident=None
)
OPEN = replace(WAITS, node="gpu-node-0018", is_cordoned=False, ready="True")
TAKEN = replace(
    HELD, node="gpu-node-0611", other_owner="a person (kubectl) at 2026-03-11T01:00:00Z"
)
BLIND = replace(WAITS, node="gpu-node-0900", gangs=None, at_ns=None, by="", reason="")


def queue(*entries: QueueEntry) -> Queue:
    ordered = tuple(sorted(entries, key=urgency))
    gaps = (Missing(what="pods on the nodes", why="not allowed (list on pods)"),)
    return Queue(context="prod", server="s", read_at_ns=NOW, entries=ordered, missing=gaps)


def test_the_queue_is_priced_and_ordered() -> None:
    """Idle GPUs first; what a gang still works on costs nothing; in service again comes last."""
    found = queue(OPEN, HELD, WAITS, TAKEN, BLIND)
    shown = queue_text(found, LOOK)
    lines = shown.splitlines()
    assert "4 nodes for replacement in prod · 8 GPUs idle at least: 8 GPU-h each hour" == lines[0]
    order = [line.split()[0] for line in lines if line.startswith("gpu-")]
    assert [
        "gpu-node-0900",
        "gpu-node-0417",
        "gpu-node-0420",
        "gpu-node-0611",
        "gpu-node-0018",
    ] == order
    assert all(len(line) <= 80 for line in lines), shown
    assert len(lines) <= 23
    for words in ("8 GPU-h/h", "2h03m", "train/train-run-7 (8 GPUs, running)", "uncordoned by hand",
                  "now that of a person (kubectl)", "(incident INC-2031)", "Not seen: pods"):  # fmt: skip
        assert words in shown
    rows = json.loads(queue_json(found))["queue"]
    assert [None, 8, 0, 0, 0] == [row["gpu_hours_per_hour"] for row in rows]
    assert [True, True, True, True, False] == [row["cordoned"] for row in rows]


def test_an_empty_queue() -> None:
    """One line."""
    found = replace(queue(), missing=())
    assert "no node waits for replacement in prod\n" == queue_text(found, LOOK)
    assert [] == json.loads(queue_json(found))["queue"]


def test_a_part_of_a_node_that_is_held() -> None:
    """The rest of its GPUs is idle; a gang that is over holds nothing."""
    half = replace(GANG, pods=(HeldPod(name="w-0", phase="running", gpus=3),))
    over = replace(GANG, pods=(HeldPod(name="w-0", phase="failed", gpus=8),))
    assert (5, 8) == (
        replace(WAITS, gangs=(half,)).idle_gpus,
        replace(WAITS, gangs=(over,)).idle_gpus,
    )


def test_an_answer_with_all_that_follows() -> None:
    """A refusal's line is on standard error; its gate is on the page; a command stays in one line."""
    answer = CordonAnswer(
        node="gpu-node-0417",
        answer="cordoned",
        why="no new pod lands here; nothing that runs is stopped",
        holds=("train/train-run-7 (JobSet, 8 GPUs here, 16 pods in all, running): it goes on",),
        sets_off=("Slinky drains the Slurm node too: no new Slurm job starts there, those that run go on",),
        then=("gpufleet evict train-run-7 -n train --at-checkpoint",),
    )  # fmt: skip
    gate = (
        GateItem(name="reset", state="unknown", why="no sign of one", stated="nvidia-smi -r"),
        GateItem(name="xid-free", state="fail", why="XID 79 of GPU 0 12m ago"),
    )
    refused = CordonAnswer(node="n2", answer="refused", why="xid-free: fail", code=5, gate=gate)
    shown = answers_text([answer, refused], LOOK)
    assert all(len(line) <= 80 for line in shown.splitlines()), shown
    for words in ("gpu-node-0417: cordoned: ", "  next      gpufleet evict train-run-7 -n train --at-checkpoint",
                  "stated: nvidia-smi -r", "fail    xid-free"):  # fmt: skip
        assert words in shown
    assert "n2: refused" not in shown
    first, second = json.loads(answers_json([answer, refused]))["nodes"]
    assert ("cordoned", 0, 5) == (first["answer"], first["exit_code"], second["exit_code"])
    assert ["unknown", "fail"] == [item["state"] for item in second["gate"]]
    assert "gate" not in first


def test_what_a_node_says_cannot_steer_the_terminal() -> None:
    """An annotation is anybody's text."""
    shown = queue_text(queue(replace(WAITS, reason="\x1b[31mred\u202e", by="x\ny")), LOOK)
    assert "\x1b" not in shown
    assert "\u202e" not in shown
