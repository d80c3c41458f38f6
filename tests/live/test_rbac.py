"""`deploy/rbac/`: what each ClusterRole lets a person do on the real API server, and what not."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from servers import namespaces
from servers.api import Api, ApiError
from servers.cluster import Cluster
from servers.namespaces import Namespace

RBAC = Path(__file__).parents[2] / "deploy" / "rbac"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

# verb, group, resource (with subresource), and who may: r(eader), c(apture), o(perator)
RIGHTS = (
    ("list", "", "pods", "ro"),
    ("get", "", "pods/log", "ro"),
    ("list", "", "nodes", "ro"),
    ("list", "", "events", "ro"),
    ("list", "", "namespaces", "ro"),
    ("list", "", "services", "ro"),
    ("get", "coordination.k8s.io", "leases", "ro"),
    ("list", "batch", "jobs", "ro"),
    ("list", "jobset.x-k8s.io", "jobsets", "ro"),
    ("list", "leaderworkerset.x-k8s.io", "leaderworkersets", "ro"),
    ("get", "kubeflow.org", "pytorchjobs", "ro"),
    ("get", "kubeflow.org", "mpijobs", "ro"),
    ("get", "trainer.kubeflow.org", "trainjobs", "ro"),
    ("get", "ray.io", "rayjobs", "ro"),
    ("get", "ray.io", "rayclusters", "ro"),
    ("get", "batch.volcano.sh", "jobs", "ro"),
    ("list", "kueue.x-k8s.io", "workloads", "ro"),
    ("get", "apps", "statefulsets", "ro"),
    ("list", "policy", "poddisruptionbudgets", "ro"),
    ("list", "", "resourcequotas", "ro"),
    ("get", "", "pods/exec", "c"),
    ("create", "", "pods/exec", "c"),
    ("patch", "", "nodes", "o"),
    ("create", "", "events", "o"),
    ("create", "", "pods/eviction", "o"),
    ("patch", "batch", "jobs", "o"),
    ("delete", "batch", "jobs", "o"),
    ("delete", "kubeflow.org", "pytorchjobs", "o"),
    ("patch", "jobset.x-k8s.io", "jobsets", "o"),
    ("create", "bus.volcano.sh", "commands", "o"),
    ("patch", "kueue.x-k8s.io", "workloads", "o"),
    ("delete", "", "pods", ""),
    ("create", "", "pods", ""),
    ("delete", "", "nodes", ""),
    ("get", "", "secrets", ""),
    ("get", "", "services/proxy", ""),
    ("get", "", "nodes/proxy", ""),
    ("patch", "rbac.authorization.k8s.io", "clusterroles", ""),
)


def roles() -> dict[str, list[dict[str, Any]]]:
    """The rules of each role, by its name."""
    found = {}
    for path in sorted(RBAC.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            assert "ClusterRole" == document["kind"]
            found[document["metadata"]["name"]] = document["rules"]
    return found


def test_the_roles_and_that_the_operator_may_read_all() -> None:
    """Three roles; the operator's begins with the reader's rules."""
    found = roles()
    assert {"gpufleet-reader", "gpufleet-capture", "gpufleet-operator"} == set(found)
    reading = found["gpufleet-reader"]
    assert reading == found["gpufleet-operator"][: len(reading)]
    assert {"get", "list", "watch"} >= {verb for rule in reading for verb in rule["verbs"]}
    assert not [
        one for rules in found.values() for rule in rules for one in rule["verbs"] if one == "*"
    ]


@pytest.fixture
def applied(cluster: Cluster, tmp_path: Path) -> None:
    """The manifests, applied as a person would."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not on PATH")
    admin = cluster.write_kubeconfig(tmp_path / "admin")
    command = [kubectl, "--kubeconfig", str(admin), "apply", "-R", "-f", str(RBAC)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr
    assert 3 == done.stdout.count("clusterrole.rbac.authorization.k8s.io/gpufleet-")


@pytest.mark.usefixtures("applied")
def test_what_each_role_may(cluster: Cluster, namespace: Namespace) -> None:
    """By the API server's own review, with a token of each; then two calls for real."""
    clients: dict[str, Api] = {}
    for letter, role in (("r", "reader"), ("c", "capture"), ("o", "operator")):
        token = namespaces.make_user(
            namespace, role, cluster_role=f"gpufleet-{role}", whole_cluster=True
        )
        clients[letter] = Api(cluster.url, ca=str(cluster.ca), token=token)
    wrong = [
        (letter, verb, resource)
        for verb, group, resource, may in RIGHTS
        for letter, client in clients.items()
        if _may(client, namespace.name, verb, group, resource) is not (letter in may)
    ]
    assert [] == wrong
    assert clients["r"].items(namespace.path("pods")) == []
    cordon = {"spec": {"unschedulable": True}}
    for letter, status in (("r", 403), ("c", 403), ("o", 404)):
        with pytest.raises(ApiError) as refused:
            clients[letter].patch("/api/v1/nodes/no-such-node", cordon)
        assert status == refused.value.status
    for client in clients.values():
        client.close()


def _may(client: Api, namespace: str, verb: str, group: str, resource: str) -> bool:
    name, _, part = resource.partition("/")
    asked = {"namespace": namespace, "verb": verb, "group": group, "resource": name}
    if part:
        asked["subresource"] = part
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": asked},
    }
    return client.post(REVIEWS, review)["status"]["allowed"] is True
