"""Every verdict that a live cluster can give, for every kind of job, from the state of a real API server.

Eight incidents by five kinds of job. Each test holds kind, culprit and action to the truth, and that nobody innocent
is named, however loud.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from servers.metrics import Series
from servers.namespaces import Namespace

from gpufleet_cli.cli import main
from live.incidents import INCIDENTS, Incident, Scene
from live.job_voices import FORMS, OTHER_FORMS, JobForm

BY_NAME = {incident.name: incident for incident in INCIDENTS}
OTHERS = (
    ("trainjob", "gpu-off-the-bus"),
    ("trainjob", "oom-killed"),
    ("trainjob", "node-dead"),
    ("volcano-job", "evicted"),
    ("volcano-job", "unschedulable"),
    ("mpijob", "oom-killed"),
    ("mpijob", "user-exception"),
    ("mpijob-launcher-works", "oom-killed"),
    ("mpijob-launcher-works", "gpu-off-the-bus"),
)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
@pytest.mark.parametrize("incident", INCIDENTS, ids=lambda one: one.name)
def test_verdict(
    incident: Incident,
    form: JobForm,
    namespace: Namespace,
    kubeconfig: Path,
    prometheus: Callable[[Iterable[Series]], str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Kind, culprit and action are the truth; the innocent are not named."""
    _hold_to_truth(incident.happen(namespace, form, prometheus), incident, kubeconfig, capsys)


@pytest.mark.parametrize(("kind", "name"), OTHERS, ids=lambda one: one)
def test_verdict_of_other_kinds(
    kind: str,
    name: str,
    namespace: Namespace,
    kubeconfig: Path,
    prometheus: Callable[[Iterable[Series]], str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The same for kinds whose ranks lie otherwise: by downward API, by hostfile, by the program's word alone."""
    incident = BY_NAME[name]
    scene = incident.happen(namespace, OTHER_FORMS[kind], prometheus)
    _hold_to_truth(scene, incident, kubeconfig, capsys)


def _hold_to_truth(
    scene: Scene, incident: Incident, kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = [*scene.job.form.target(scene.job.name), "-n", scene.job.namespace.name, *scene.more]
    code = main(["triage", *target, "-o", "json", "--kubeconfig", str(kubeconfig)])
    told = capsys.readouterr()
    assert told.out, told.err
    found: dict[str, Any] = json.loads(told.out)
    shown = json.dumps({"verdict": found["verdict"], "action": found["recommendation"]}, indent=1)
    assert incident.kind == found["verdict"]["kind"], shown
    assert 0 == code, shown
    assert _named(incident, scene) == _culprits(found), shown
    assert (scene.action or incident.action) == found["recommendation"]["action"], shown
    assert ([scene.node] if incident.evicts else []) == found["recommendation"]["nodes"], shown
    _nobody_innocent(found, scene)
    _size(found, scene, incident)


def _named(incident: Incident, scene: Scene) -> list[tuple[int | None, str | None, str | None]]:
    """(rank, pod, node) of those who are guilty; a dead node is named without a pod."""
    if not incident.ranks:
        pod = None if incident.kind == "hardware" else scene.pod
        return [(None, pod, scene.node)]
    if not incident.waited and not scene.job.form.is_static:
        return [(None, scene.pod, scene.node)]  # before the rendezvous nobody has a rank
    return [(scene.ranks[local], scene.pod, scene.node) for local in incident.ranks]


def _culprits(found: dict[str, Any]) -> list[tuple[int | None, str | None, str | None]]:
    return [(one["rank"], one["pod"], one["node"]) for one in found["verdict"]["culprits"]]


def _nobody_innocent(found: dict[str, Any], scene: Scene) -> None:
    """Neither in the sentence that a person reads nor in a command to paste."""
    shown = [found["verdict"]["summary"]]
    shown += [one["run"] for one in found["recommendation"]["commands"]]
    innocent = {*scene.innocent_pods}
    innocent |= {node for i in range(len(scene.job.pods)) if (node := scene.job.node_of(i))}
    for name in innocent - {scene.node}:
        assert not [text for text in shown if name in text], name


def _size(found: dict[str, Any], scene: Scene, incident: Incident) -> None:
    """The gang is counted whole, and who waited is counted as a witness."""
    job = found["job"]
    assert len(scene.job.ranks) == job["world_size"], job
    placed = {scene.job.node_of(i) for i in range(len(scene.job.pods))}
    assert len(placed - {None}) == job["nodes"], job
    if incident.waited:
        guilty = len(incident.ranks) or len(scene.ranks)
        assert len(scene.job.ranks) - guilty - 1 <= found["verdict"]["witnesses"]["count"]
