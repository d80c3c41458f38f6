"""What kwok, the kubelet of all nodes, does with pods: it runs them until somebody says otherwise, and deletes them.

Its own default completes every pod of a Job at once. A pod with the annotation `HOLD` stays as it was created: for
images that cannot be pulled and containers that are being created.
"""

from __future__ import annotations

import json

MANAGED = "test.gpufleet.dev/kubelet"  # node label: kwok is its kubelet; take it away and the node is dead
LEFT = "test.gpufleet.dev/left"  # pod annotation: its deletion is the API server's alone, see `pods.remake`
HOLD = "test.gpufleet.dev/hold"  # pod annotation: its containers do not start

# Conditions and container statuses as a kubelet of 1.34 writes them. Go template.
_RUNNING = """
{{ $now := Now }}
{{ $uid := .metadata.uid }}
conditions:
{{ range $type := (list "PodReadyToStartContainers" "Initialized" "Ready" "ContainersReady") }}
- lastTransitionTime: {{ $now | Quote }}
  status: "True"
  type: {{ $type }}
{{ end }}
containerStatuses:
{{ range .spec.containers }}
- image: {{ .image | Quote }}
  imageID: {{ printf "%s@sha256:tests" .image | Quote }}
  containerID: {{ printf "containerd://%s-%s-0" $uid .name | Quote }}
  name: {{ .name | Quote }}
  ready: true
  started: true
  restartCount: 0
  state:
    running:
      startedAt: {{ $now | Quote }}
{{ end }}
initContainerStatuses:
{{ range .spec.initContainers }}
- image: {{ .image | Quote }}
  imageID: {{ printf "%s@sha256:tests" .image | Quote }}
  containerID: {{ printf "containerd://%s-%s-0" $uid .name | Quote }}
  name: {{ .name | Quote }}
  ready: true
  restartCount: 0
  {{ if eq .restartPolicy "Always" }}
  started: true
  state:
    running:
      startedAt: {{ $now | Quote }}
  {{ else }}
  state:
    terminated:
      exitCode: 0
      finishedAt: {{ $now | Quote }}
      reason: Completed
      startedAt: {{ $now | Quote }}
  {{ end }}
{{ end }}
hostIP: {{ NodeIPWith .spec.nodeName | Quote }}
podIP: {{ PodIPWith .spec.nodeName ( or .spec.hostNetwork false ) ( or .metadata.uid "" ) ( or .metadata.name "" ) ( or .metadata.namespace "" ) | Quote }}
phase: Running
startTime: {{ $now | Quote }}
"""

_CREATED = [
    {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"},
    {"key": ".status.podIP", "operator": "DoesNotExist"},
    {"key": f'.metadata.annotations["{HOLD}"]', "operator": "DoesNotExist"},
]
# kwok deletes by name alone, and may do so twice: of a pod that is made again at once it would hit the new one.
_DELETED = [
    {"key": ".metadata.deletionTimestamp", "operator": "Exists"},
    {"key": f'.metadata.annotations["{LEFT}"]', "operator": "DoesNotExist"},
]


def _stage(name: str, selector: list[dict[str, str]], then: dict[str, object]) -> dict[str, object]:
    """One Stage object of kwok about pods."""
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
            "selector": {"matchExpressions": selector},
            "next": then,
        },
    }


def kwok_config() -> str:
    """The text of kwok's configuration file (JSON documents are YAML)."""
    # Finalizers stay: with them the Job controller counts the pods that were deleted.
    stages = (
        _stage("pod-ready", _CREATED, {"statusTemplate": _RUNNING}),
        _stage("pod-delete", _DELETED, {"delete": True}),
    )
    return "\n---\n".join(json.dumps(stage) for stage in stages)
