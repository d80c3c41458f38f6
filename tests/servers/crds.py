"""Minimal custom resources: real discovery, owner references and garbage collection, without their controllers.

Any field is kept. kwok's own two kinds are here as well: its log files and exec targets are objects of the cluster.
"""

from __future__ import annotations

from servers.api import Json

# group, version, kind, plural
KINDS = (
    ("kwok.x-k8s.io", "v1alpha1", "Logs", "logs"),
    ("kwok.x-k8s.io", "v1alpha1", "Exec", "execs"),
    ("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets"),
    ("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets"),
    ("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs"),
    ("kubeflow.org", "v2beta1", "MPIJob", "mpijobs"),
    ("trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs"),
    ("trainer.kubeflow.org", "v1alpha1", "TrainingRuntime", "trainingruntimes"),
    ("ray.io", "v1", "RayJob", "rayjobs"),
    ("ray.io", "v1", "RayCluster", "rayclusters"),
    ("batch.volcano.sh", "v1alpha1", "Job", "jobs"),
    ("bus.volcano.sh", "v1alpha1", "Command", "commands"),
    ("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups"),
    ("kueue.x-k8s.io", "v1beta1", "Workload", "workloads"),
)


def definition(group: str, version: str, kind: str, plural: str) -> Json:
    """A CustomResourceDefinition that takes anything."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            # Kubernetes wants a note of approval in groups of its own community.
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower() if kind != "Logs" else "logs",
            },
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    # Without the subresource a status is written like any other field.
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "x-kubernetes-preserve-unknown-fields": True,
                        }
                    },
                }
            ],
        },
    }
