"""A node of a gang dies on a real API server: triage says whether a restart places, as `drain-check` does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from servers import nodes
from servers.metrics import Series
from servers.namespaces import Namespace

from gpufleet_cli.cli import main
from live.incidents import INCIDENTS
from live.job_voices import FORMS, RANKS_A_POD

DEAD = next(one for one in INCIDENTS if one.name == "node-dead")


@pytest.mark.parametrize("kind", ["indexed-job", "jobset"])
def test_triage_says_what_drain_check_says(
    kind: str,
    namespace: Namespace,
    kubeconfig: Path,
    prometheus: Callable[[Iterable[Series]], str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Live, and from the bundle that it left: equal but for the target."""
    scene = DEAD.happen(namespace, FORMS[kind], prometheus)
    target = [*scene.job.form.target(scene.job.name), "-n", namespace.name, *scene.more]
    config = ["--kubeconfig", str(kubeconfig)]

    def asked(*command: str) -> dict[str, Any]:
        main([*command, "-o", "json"])
        told = capsys.readouterr()
        assert told.out, told.err
        found: dict[str, Any] = json.loads(told.out)
        return found

    place = str(tmp_path / "saved")
    live = asked("triage", *target, "--save", place, *config)
    assert [scene.node] == live["recommendation"]["nodes"]
    told = live["recommendation"]["spares"]
    assert told is not None
    assert scene.node == told["node"]
    saved = asked("triage", place)
    assert json.dumps(live | {"target": None}) == json.dumps(saved | {"target": None})
    (card,) = asked("drain-check", str(scene.node), "--spares", *config)["nodes"]
    (answer,) = [one for one in card["spares"] if one["namespace"] == namespace.name]
    # how many of the gang find room; the free GPUs elsewhere are other tests' nodes, which come and go
    assert answer["places"] is told["places"]
    assert answer["why"].rpartition("; ")[2] == told["why"].rpartition("; ")[2]
    assert told["places"] is False
    assert "find room" in told["why"]

    # a node as large as the dead one joins, and the restart places on it
    joined = nodes.make(namespace, 1, gpus=RANKS_A_POD, prefix="spare")
    told = asked("triage", *target, *config)["recommendation"]["spares"]
    assert (True, joined) == (told["places"], told["nodes"]), told
