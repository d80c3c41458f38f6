"""One mistake at a time, as edits of good manifests: what people write, apart from the code of the rules.

Each is (id that must be found, files, edit). An edit gets the documents of a file and changes them in place.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

GOOD = Path(__file__).parents[1] / "fixtures" / "preflight" / "good"
EVERY = ("job", "jobset", "pytorchjob", "trainjob", "rayjob", "leaderworkerset", "volcano")
NO_RAY = tuple(name for name in EVERY if name != "rayjob")
TORCHRUN = ("job", "jobset", "leaderworkerset", "volcano")

Documents = list[dict[str, Any]]
Edit = Callable[[Documents], None]
NAMES = {"job": ("batch.kubernetes.io/job-name", "Job"), "jobset": ("app", "JobSet")}


def good(name: str) -> Documents:
    text = (GOOD / f"{name}.yaml").read_text(encoding="utf-8")
    return [copy.deepcopy(one) for one in yaml.safe_load_all(text)]


def pods(documents: Documents) -> list[dict[str, Any]]:
    """The pod templates whose containers have GPUs."""
    return [one for document in documents for one in _templates(document)]


def _templates(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        inner = value.get("spec")
        if isinstance(inner, dict) and "nvidia.com/gpu" in str(inner.get("containers", "")):
            yield value
            return
        for one in value.values():
            yield from _templates(one)
    elif isinstance(value, list):
        for one in value:
            yield from _templates(one)


def container(pod: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = pod["spec"]["containers"][0]
    return found


def job(documents: Documents) -> dict[str, Any]:
    return next(one for one in documents if one["kind"].endswith(("Job", "Set")))


def with_env(name: str, value: str | None) -> Edit:
    """Set a variable in every container of ranks, or take it out."""

    def edit(documents: Documents) -> None:
        for pod in pods(documents):
            env = [one for one in container(pod)["env"] if one["name"] != name]
            container(pod)["env"] = env + (
                [] if value is None else [{"name": name, "value": value}]
            )
        trainer = job(documents)["spec"].get("trainer")
        if trainer:  # what it sets itself would win
            trainer["env"] = [one for one in trainer["env"] if one["name"] != name]

    return edit


def without_env(*names: str) -> Edit:
    def edit(documents: Documents) -> None:
        for name in names:
            with_env(name, None)(documents)

    return edit


def in_pod(**fields: Any) -> Edit:
    def edit(documents: Documents) -> None:
        for pod in pods(documents):
            pod["spec"].update(copy.deepcopy(fields))

    return edit


def without(name: str) -> Edit:
    def edit(documents: Documents) -> None:
        for pod in pods(documents):
            pod["spec"].pop(name, None)

    return edit


def in_container(**fields: Any) -> Edit:
    def edit(documents: Documents) -> None:
        for pod in pods(documents):
            container(pod).update(copy.deepcopy(fields))

    return edit


def marked(name: str, value: str) -> Edit:
    def edit(documents: Documents) -> None:
        for pod in pods(documents):
            pod["metadata"]["annotations"][name] = value

    return edit


def at(path: str, value: Any) -> Edit:
    """Set a field of the job: `spec.failurePolicy.maxRestarts`, a number is an index."""

    def edit(documents: Documents) -> None:
        *steps, last = [int(s) if s.isdigit() else s for s in path.split(".")]
        where: Any = job(documents)
        for step in steps:
            where = where[step] if isinstance(step, int) else where.setdefault(step, {})
        if value is None:
            where.pop(last, None)
        else:
            where[last] = value

    return edit


def arguments(change: Callable[[list[str]], list[str]]) -> Edit:
    """The words of the command, wherever it stands."""

    def edit(documents: Documents) -> None:
        owners = [container(pod) for pod in pods(documents) if container(pod).get("command")]
        trainer = job(documents)["spec"].get("trainer")
        for owner in [*owners, *([trainer] if trainer else [])]:
            owner["command"] = change(list(owner["command"]))

    return edit


def replaced(old: str, new: str | None) -> Edit:
    return arguments(
        lambda words: [
            new if w.startswith(old) else w for w in words if new or not w.startswith(old)
        ]
    )  # type: ignore[misc]


def _behind_script(words: list[str]) -> list[str]:
    return [w for w in words if not w.startswith("--log-dir")] + ["--log-dir=/dumps/logs"]


def without_mount(path: str) -> Edit:
    def edit(documents: Documents) -> None:
        for pod in pods(documents):
            mounts = container(pod)["volumeMounts"]
            container(pod)["volumeMounts"] = [m for m in mounts if m["mountPath"] != path]

    return edit


def volume(name: str, **source: Any) -> Edit:
    def edit(documents: Documents) -> None:
        for pod in pods(documents):
            kept = [v for v in pod["spec"]["volumes"] if v["name"] != name]
            pod["spec"]["volumes"] = [*kept, {"name": name, **source}]

    return edit


def beside(**document: Any) -> Edit:
    """Another object in the same input; its selector or target is this job."""

    def edit(documents: Documents) -> None:
        one = copy.deepcopy(document)
        target = job(documents)
        for field in ("scaleTargetRef", "targetRef"):
            if field in one["spec"]:
                one["spec"][field] = {
                    "kind": target["kind"],
                    "name": "llm",
                    "apiVersion": target["apiVersion"],
                }
        documents[:] = [d for d in documents if d["kind"] != one["kind"]] + [one]

    return edit


def gpu(count: int) -> Edit:
    def edit(documents: Documents) -> None:
        for one in [container(pod) for pod in pods(documents)]:
            for field in ("limits", "requests"):
                one["resources"][field]["nvidia.com/gpu"] = count
        trainer = job(documents)["spec"].get("trainer")
        if trainer:
            trainer["resourcesPerNode"]["limits"]["nvidia.com/gpu"] = count
            trainer["resourcesPerNode"]["requests"]["nvidia.com/gpu"] = count

    return edit


def no_rdma(documents: Documents) -> None:
    owners = [container(pod)["resources"] for pod in pods(documents)]
    trainer = job(documents)["spec"].get("trainer")
    for one in [*owners, *([trainer["resourcesPerNode"]] if trainer else [])]:
        for field in ("limits", "requests"):
            one[field].pop("rdma/ib", None)


def no_queue(documents: Documents) -> None:
    job(documents)["metadata"].pop("labels")


def worker_only(name: str, value: str) -> Edit:
    def edit(documents: Documents) -> None:
        container(pods(documents)[1])["env"].append({"name": name, "value": value})

    return edit


def moved_mark(documents: Documents) -> None:
    for pod in pods(documents):
        pod["metadata"]["annotations"].pop("karpenter.sh/do-not-disrupt")
    job(documents)["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}


def script(before: str) -> Edit:
    """The command behind a shell, with lines of its own before it."""
    return arguments(lambda words: ["bash", "-c", f"set -e\n{before}\nexec {' '.join(words)}\n"])


def toleration(seconds: int) -> Edit:
    one = {
        "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
        "tolerationSeconds": seconds,
    }  # fmt: skip
    return in_pod(tolerations=[one])


def budget(**spec: Any) -> Edit:
    return beside(
        apiVersion="policy/v1", kind="PodDisruptionBudget", metadata={"name": "llm"},
        spec={"selector": {"matchLabels": {"app": "llm"}}, **spec},
    )  # fmt: skip


PROBE = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10, "failureThreshold": 3}
HPA = beside(
    apiVersion="autoscaling/v2", kind="HorizontalPodAutoscaler", metadata={"name": "llm"},
    spec={"scaleTargetRef": {}, "minReplicas": 1, "maxReplicas": 8},
)  # fmt: skip
VPA = beside(
    apiVersion="autoscaling.k8s.io/v1", kind="VerticalPodAutoscaler", metadata={"name": "llm"},
    spec={"targetRef": {}, "updatePolicy": {"updateMode": "Recreate"}},
)  # fmt: skip
POLICY = beside(
    apiVersion="networking.k8s.io/v1", kind="NetworkPolicy", metadata={"name": "strict"},
    spec={
        "podSelector": {}, "policyTypes": ["Ingress"],
        "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "llm"}}}], "ports": [{"port": 29500}]}],
    },
)  # fmt: skip
CLOSED = beside(
    apiVersion="networking.k8s.io/v1", kind="NetworkPolicy", metadata={"name": "deny"},
    spec={"podSelector": {}, "policyTypes": ["Ingress"]},
)  # fmt: skip

_FR = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_PATHS = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")


def _all(*edits: Edit) -> Edit:
    def edit(documents: Documents) -> None:
        for one in edits:
            one(documents)

    return edit


_CHILD = "spec.replicatedJobs.0.template.spec"
MISTAKES: tuple[tuple[str, tuple[str, ...], Edit], ...] = (
    ("restart-policy", ("job", "jobset", "trainjob", "volcano"), in_pod(restartPolicy="OnFailure")),
    ("restart-policy", ("jobset", "trainjob", "volcano"), without("restartPolicy")),
    ("restart-policy", ("pytorchjob",), at("spec.pytorchReplicaSpecs.Worker.restartPolicy", None)),
    ("restart-policy", ("pytorchjob",), at("spec.pytorchReplicaSpecs.Master.restartPolicy", "Always")),
    ("retries-stacked", ("jobset",), at(f"{_CHILD}.backoffLimit", 10)),
    ("retries-stacked", ("jobset",), at(f"{_CHILD}.backoffLimit", None)),
    ("single-rank-retry", ("job",), at("spec.backoffLimit", 4)),
    ("single-rank-retry", ("job",), at("spec.backoffLimit", None)),
    ("retries-many", ("jobset",), at("spec.failurePolicy.maxRestarts", 100)),
    ("retries-many", ("volcano",), at("spec.maxRetry", 50)),
    ("retries-many", ("rayjob",), at("spec.backoffLimit", 100)),
    ("retries-many", ("pytorchjob",), at("spec.elasticPolicy.maxRestarts", 100)),
    ("partial-restart", ("leaderworkerset",), at("spec.leaderWorkerTemplate.restartPolicy", "None")),
    ("partial-restart", ("volcano",), at("spec.policies.0.action", "RestartTask")),
    ("recorder-off", EVERY, _all(with_env(_FR[0], "0"), with_env(_FR[1], "0"))),
    ("recorder-off", EVERY, without_env(*_FR)),
    ("recorder-off", EVERY, without_env(*_FR, *_PATHS, "TORCH_NCCL_DUMP_ON_TIMEOUT")),
    ("recorder-off", EVERY, with_env("TORCH_NCCL_DUMP_ON_TIMEOUT", "false")),
    ("recorder-off", ("job", "rayjob"), with_env("TORCH_NCCL_ENABLE_MONITORING", "0")),
    ("recorder-lost", EVERY, without_env(*_PATHS)),
    ("recorder-lost", EVERY, _all(*(with_env(name, "/tmp/rank_") for name in _PATHS))),
    ("recorder-lost", EVERY, volume("dumps", emptyDir={})),
    ("recorder-trigger", EVERY, without_env("TORCH_NCCL_DUMP_ON_TIMEOUT")),
    ("recorder-names", EVERY, with_env(_FR[1], "20000")),
    ("evidence-ttl", ("job", "jobset", "volcano", "rayjob"), at("spec.ttlSecondsAfterFinished", 300)),
    ("evidence-ttl", ("jobset",), at(f"{_CHILD}.ttlSecondsAfterFinished", 60)),
    ("evidence-ttl", ("pytorchjob",), at("spec.runPolicy.ttlSecondsAfterFinished", 3600)),
    ("evidence-ttl", ("rayjob",), at("spec.ttlSecondsAfterFinished", None)),
    ("evidence-cleaned", ("pytorchjob",), at("spec.runPolicy.cleanPodPolicy", "All")),
    ("evidence-cleaned", ("pytorchjob",), at("spec.runPolicy.cleanPodPolicy", "Running")),
    ("nccl-debug-log", EVERY, with_env("NCCL_DEBUG", "INFO")),
    ("python-unbuffered", EVERY, with_env("PYTHONUNBUFFERED", "0")),
    ("shared-memory", NO_RAY, without_mount("/dev/shm")),
    ("shared-memory", NO_RAY, volume("shm", emptyDir={})),
    ("shared-memory", NO_RAY, volume("shm", emptyDir={"medium": "Memory", "sizeLimit": "64Mi"})),
    ("shm-over-memory", NO_RAY, volume("shm", emptyDir={"medium": "Memory", "sizeLimit": "1000Gi"})),
    ("gpu-count", TORCHRUN, replaced("--nproc-per-node", "--nproc-per-node=4")),
    ("gpu-count", TORCHRUN, replaced("--nproc-per-node", None)),
    ("gpu-count", ("pytorchjob",), at("spec.nprocPerNode", "1")),
    ("gpu-count", ("trainjob",), at("spec.trainer.numProcPerNode", 4)),
    ("gpu-count", ("job", "jobset", "pytorchjob", "trainjob", "volcano"), gpu(4)),
    ("rdma", EVERY, no_rdma),
    ("nccl-tcp", EVERY, with_env("NCCL_IB_DISABLE", "1")),
    ("nccl-tcp", EVERY, with_env("NCCL_NET", "Socket")),
    ("loopback", EVERY, with_env("NCCL_SOCKET_IFNAME", "lo")),
    ("loopback", EVERY, with_env("GLOO_SOCKET_IFNAME", "=lo")),
    ("debug-left-over", EVERY, with_env("NCCL_P2P_DISABLE", "1")),
    ("debug-left-over", EVERY, with_env("CUDA_LAUNCH_BLOCKING", "1")),
    ("headless-service", ("jobset",), at("spec.network.publishNotReadyAddresses", False)),
    ("headless-service", ("jobset",), at("spec.network.enableDNSHostnames", False)),
    ("headless-service", ("job",), lambda d: d[0]["spec"].pop("clusterIP")),
    ("rank-names", ("job",), without("subdomain")),
    ("rank-names", ("job",), in_pod(subdomain="")),
    ("network-policy", EVERY, POLICY),
    ("network-policy", EVERY, CLOSED),
    ("gang-scheduling", ("job", "jobset", "pytorchjob", "trainjob", "rayjob", "leaderworkerset"), no_queue),
    ("min-available", ("volcano",), at("spec.minAvailable", 1)),
    ("min-available", ("pytorchjob",), at("spec.runPolicy.schedulingPolicy.minAvailable", 1)),
    ("liveness-probe", NO_RAY, in_container(livenessProbe=PROBE)),
    ("hpa", EVERY, HPA),
    ("hpa", ("pytorchjob",), at("spec.elasticPolicy.metrics", [{"type": "Resource"}])),
    ("vpa", EVERY, VPA),
    ("pdb", EVERY, budget(maxUnavailable=1)),
    ("pdb", EVERY, budget(minAvailable=1)),
    ("pdb", EVERY, budget(minAvailable="50%")),
    (
        "rolling-update", ("leaderworkerset",),
        at("spec.rolloutStrategy.rollingUpdateConfiguration", {"maxUnavailable": 1}),
    ),
    ("rolling-update", NO_RAY, at("spec.strategy", {"type": "RollingUpdate"})),
    ("evictable", EVERY, marked("cluster-autoscaler.kubernetes.io/safe-to-evict", "true")),
    ("evictable", EVERY, marked("descheduler.alpha.kubernetes.io/evict", "true")),
    ("mark-misplaced", EVERY, moved_mark),
    ("toleration-short", EVERY, toleration(10)),
    ("grace-period", EVERY, in_pod(terminationGracePeriodSeconds=5)),
    ("grace-period", EVERY, without("terminationGracePeriodSeconds")),
    (
        "prestop-sleep", EVERY,
        in_container(lifecycle={"preStop": {"exec": {"command": ["sh", "-c", "sleep 290"]}}}),
    ),
    ("checkpoint-in-container", EVERY, without_mount("/checkpoints")),
    ("checkpoint-in-container", EVERY, volume("checkpoints", emptyDir={"sizeLimit": "1Ti"})),
    ("checkpoint-in-container", NO_RAY, replaced("--save", "--output_dir=/root/out")),
    ("separate-worlds", TORCHRUN, replaced("--nnodes", None)),
    ("nnodes", TORCHRUN, replaced("--nnodes", "--nnodes=8")),
    ("nnodes", TORCHRUN, replaced("--nnodes", "--nnodes=1")),
    ("option-misplaced", NO_RAY, arguments(_behind_script)),
    ("async-error-handling", EVERY, with_env("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")),
    ("async-error-handling", EVERY, with_env("NCCL_ASYNC_ERROR_HANDLING", "0")),
    ("values-differ", ("pytorchjob",), worker_only("NCCL_SOCKET_IFNAME", "eth0")),
    ("values-differ", ("pytorchjob",), worker_only("NCCL_ALGO", "Ring")),
    ("values-differ", ("pytorchjob",), lambda d: container(pods(d)[1])["command"].append("--seed=2") or container(pods(d)[0])["command"].append("--seed=1")),
    ("values-differ", ("pytorchjob",), lambda d: [container(p)["env"].append({"name": "MICRO_BATCH", "value": str(i)}) for i, p in enumerate(pods(d))]),
    ("liveness-probe", NO_RAY, in_container(startupProbe=PROBE)),
    ("image-differs", ("pytorchjob",), lambda d: container(pods(d)[1]).update(image="x/y:2")),
    ("image-differs", ("pytorchjob",), lambda d: container(pods(d)[0]).update(image="x/y:3")),
    ("watchdog-timeout", NO_RAY, arguments(lambda w: [*w, "--distributed-timeout-minutes", "600"])),
    ("watchdog-timeout", NO_RAY, arguments(lambda w: [*w, "--ddp_timeout=180000000"])),
    ("secret-in-env", EVERY, with_env("WANDB_API_KEY", "0123456789abcdef0123456789abcdef01234567")),
    ("secret-in-env", EVERY, with_env("HF_TOKEN", "hf_AbCdEfGhIjKlMnOpQrStUvWxYz01234567")),
    ("code-fetched", NO_RAY, script("git clone https://git.example.com/llm/code.git")),
    ("code-fetched", NO_RAY, script("wget https://files.example.com/train.py -O train.py")),
)  # fmt: skip
