"""What Kubernetes and Slurm say: nodes, conditions, pods, domains, jobs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from built_cases.fleet import (
    EVICT,
    FIX,
    NODES,
    OFF_BUS,
    QUIET,
    RESTART,
    TIMEOUT_S,
    UNNAMED,
    WORLD,
    Incident,
    aborted,
    at,
    bus,
    kernel,
    node_of,
    ranks_on,
    running,
    said,
    stalled,
    stamp,
    steps,
    timed_out,
    topology,
    xid,
)

R, N = 35, "gpu-n05"


def incidents() -> Iterator[Incident]:
    yield from _nodes()
    yield from _domain()
    yield from _pods()
    yield from _slurm()


# --- Nodes ---------------------------------------------------------------------------------------


def _node(
    name: str,
    *,
    ready: str = "True",
    conditions: Sequence[tuple[str, str, str, str]] = (),
    allocatable: int = 8,
    labels: dict[str, str] | None = None,
    cordoned: bool = False,
) -> dict[str, Any]:
    reason = "NodeStatusUnknown" if ready == "Unknown" else "KubeletReady"
    message = (
        "Kubelet stopped posting node status."
        if ready == "Unknown"
        else "kubelet is posting ready status"
    )
    since = stamp(at(47 if ready == "Unknown" else -900_000), 0).replace(".", "")
    listed = [
        {
            "type": "Ready",
            "status": ready,
            "reason": reason,
            "message": message,
            "lastTransitionTime": since,
        }
    ]
    listed += [
        {
            "type": kind,
            "status": status,
            "reason": why,
            "message": text,
            "lastTransitionTime": stamp(at(4), 0).replace(".", ""),
        }
        for kind, status, why, text in conditions
    ]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.count": "8", **(labels or {})}},
        "spec": {"unschedulable": True} if cordoned else {},
        "status": {
            "capacity": {"nvidia.com/gpu": "8"},
            "allocatable": {"nvidia.com/gpu": str(allocatable)},
            "conditions": listed,
        },
    }


def _list(items: Iterable[dict[str, Any]]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)}) + "\n"


def _nodes() -> Iterator[Incident]:
    whole = {"culprit": ranks_on(N), "by_node": True, "whole_node": True}
    one = stalled(
        "node-not-ready",
        **whole,
        title="A node dies under eight ranks",
        why="Its kubelet stopped posting at the onset and its eight ranks are silent; the others waited.",
    )
    one.add("nodes.json", _list(_node(n, ready="Unknown" if n == N else "True") for n in NODES))
    one.add("pods.json", _list(_pod(i, status="running") for i in range(8)))
    yield one

    one = stalled(
        "eks-accelerated-hardware",
        culprit=(R,),
        culprit_logs=False,
        by_node=True,
        title="EKS: AcceleratedHardwareReady False on one node, True on the others",
        why="False is bad for this type; its reason carries the Xid. The rank follows only with the GPU.",
    )
    one.ranks = ranks_on(N)
    good = (
        "AcceleratedHardwareReady",
        "True",
        "AcceleratedHardwareIsReady",
        "Monitoring for the AcceleratedHardware system is active",
    )
    bad = (
        "AcceleratedHardwareReady",
        "False",
        "NvidiaXID79Error",
        "XID 79 on GPU: GPU has fallen off the bus",
    )
    one.add("nodes.json", _list(_node(n, conditions=(bad if n == N else good,)) for n in NODES))
    yield one

    one = stalled(
        "aks-gpu-missing",
        culprit=(R,),
        culprit_logs=False,
        by_node=True,
        title="AKS: GPUMissing True on one node; False, which is good, everywhere else",
        why="True is bad for these types.",
    )
    one.ranks = ranks_on(N)
    one.add(
        "nodes.json",
        _list(
            _node(
                n,
                conditions=(
                    (
                        "GPUMissing",
                        "True" if n == N else "False",
                        "GPUMissing" if n == N else "NoGPUMissing",
                        "7 of 8 GPUs" if n == N else "all GPUs present",
                    ),
                    ("XIDErrors", "False", "NoXIDErrors", "no XID errors"),
                    ("NVLinkStatusInactive", "False", "NVLinkActive", "all links active"),
                    ("IBLinkFlapping", "False", "NoIBLinkFlapping", "no flaps"),
                ),
            )
            for n in NODES
        ),
    )
    yield one

    one = stalled(
        "nvsentinel-quarantine",
        culprit=(R,),
        culprit_logs=False,
        by_node=True,
        title="NVSentinel: SysLogsXIDError True, cordoned by it; GpuMemWatch False elsewhere",
        why="True is a fault for its types; the quarantined node is the culprit.",
    )
    one.ranks = ranks_on(N)
    labels = {
        "dgxc.nvidia.com/nvsentinel-state": "quarantined",
        "k8saas.nvidia.com/cordon-by": "NVSentinel",
        "k8saas.nvidia.com/cordon-reason": "XID-79",
    }
    one.add(
        "nodes.json",
        _list(
            _node(
                n,
                cordoned=n == N,
                labels=labels if n == N else None,
                conditions=(
                    (
                        "SysLogsXIDError",
                        "True" if n == N else "False",
                        "XIDError" if n == N else "NoXIDError",
                        "[79] GPU has fallen off the bus - RecommendedAction: RESTART_BM"
                        if n == N
                        else "No health failures",
                    ),
                    ("GpuMemWatch", "False", "GpuMemWatchIsHealthy", "No health failures"),
                ),
            )
            for n in NODES
        ),
    )
    yield one

    one = stalled(
        "device-plugin-seven-of-eight",
        culprit=(R,),
        by_node=True,
        title="The device plugin offers seven of eight GPUs on the silent rank's node",
        why="A GPU was marked unhealthy there: the cheapest sign of a lost GPU, on the node of the silent rank.",
    )
    one.add("nodes.json", _list(_node(n, allocatable=7 if n == N else 8) for n in NODES))
    yield one

    one = stalled(
        "old-condition-on-innocent",
        culprit=(R,),
        title="A third-party condition on a witness's node; Xid 79 on the silent rank's",
        why="An unknown condition type is shown and never scored alone; 79 is the cause.",
    )
    one.add(
        "nodes.json",
        _list(
            _node(
                n,
                conditions=(("VendorFanCheck", "True", "FanSpeedLow", "fan 3 at 20%"),)
                if n == "gpu-n01"
                else (),
            )
            for n in NODES
        ),
    )
    one.add(f"kernel/{N}.log", [kernel(N, -0.4, xid(R, 79, OFF_BUS))])
    yield one

    one = running(
        "cordoned-node-running",
        rank=R,
        verdict="healthy",
        ranks=(),
        actions=QUIET,
        title="A node was cordoned for an upgrade while the job runs",
        why="A cordon stops nothing and is no fault.",
    )
    one.add("nodes.json", _list(_node(n, cordoned=n == N) for n in NODES))
    yield one


def _domain() -> Iterator[Incident]:
    trays = ("gpu-n05", "gpu-n06", "gpu-n07")
    clique = {
        n: {
            "nvidia.com/gpu.clique": "7b968a6d-c8aa-45e1-9e07-e1e51be99c31.1"
            if i >= 4
            else "7b968a6d-c8aa-45e1-9e07-e1e51be99c31.2"
        }
        for i, n in enumerate(NODES)
    }
    everyone = [r for n in NODES[4:] for r in ranks_on(n)]
    shown = [r for n in trays for r in ranks_on(n)]
    texts = {
        "nvlink-domain": lambda r: (
            f"NVRM: Xid (PCI:{bus(r)}): 149, {UNNAMED}NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)"
        ),
        "imex-domain": lambda r: (
            f"NVRM: Xid (PCI:{bus(r)}): 154, GPU recovery action changed from 0x0 (None) to 0x5 (IMEX Domain Reset Required)"
        ),
    }
    for name, text in texts.items():
        one = stalled(
            name,
            culprit=shown,
            by_node=True,
            witness_pods=(0, 2),
            culprit_logs=False,
            actions=(RESTART, "collect-more"),
            also_ranks=((), everyone),
            innocent=list(range(32)),
            title="Fabric errors on three trays of one NVLink domain within seconds",
            why="Several nodes of one domain within 30 s: the domain is the culprit, no single tray is evicted.",
        )
        one.nodes = NODES[4:]
        one.add("nodes.json", _list(_node(n, labels=clique[n]) for n in NODES))
        for i, node in enumerate(trays):
            rank = ranks_on(node)[i + 1]
            one.add(f"kernel/{node}.log", [kernel(node, -1.5 + i * 4, text(rank))])
        yield one


# --- Pods ----------------------------------------------------------------------------------------


def _pod(
    index: int,
    *,
    status: str,
    reason: str = "Error",
    code: int = 1,
    when: float = 2,
    disruption: str | None = None,
    message: str | None = None,
    node: str | None = "",
    scheduled: bool = True,
) -> dict[str, Any]:
    state: dict[str, Any]
    if status == "terminated":
        state = {
            "terminated": {
                "exitCode": code,
                "reason": reason,
                "startedAt": stamp(at(-9000), 0).replace(".", ""),
                "finishedAt": stamp(at(when), 0).replace(".", ""),
            }
        }
    elif status == "waiting":
        state = {"waiting": {"reason": reason, "message": message or ""}}
    else:
        state = {"running": {"startedAt": stamp(at(-9000), 0).replace(".", "")}}
    conditions = [
        {
            "type": "PodScheduled",
            "status": "True" if scheduled else "False",
            **({} if scheduled else {"reason": "Unschedulable", "message": message}),
        }
    ]
    if disruption:
        conditions.append(
            {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": disruption,
                "message": message or "",
                "lastTransitionTime": stamp(at(when - 3), 0).replace(".", ""),
            }
        )
    name = f"train-{index}"
    phase = {"terminated": "Failed", "waiting": "Pending"}.get(status, "Running")
    statuses = [] if not scheduled else [{"name": "pytorch", "restartCount": 0, "state": state}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "ml",
            "uid": f"8c1f77d0-5b11-4d2e-9f60-1a2b3c4d5e{index:02d}",
            "labels": {
                "batch.kubernetes.io/job-completion-index": str(index),
                "batch.kubernetes.io/job-name": "train",
            },
        },
        "spec": {
            **({"nodeName": node_of(index * 8) if node == "" else node} if scheduled else {}),
            "containers": [{"name": "pytorch", "resources": {"limits": {"nvidia.com/gpu": "8"}}}],
        },
        "status": {"phase": phase, "conditions": conditions, "containerStatuses": statuses},
    }


def _pods() -> Iterator[Incident]:
    gone = ranks_on(N)
    whole = {
        "culprit": gone,
        "by_node": True,
        "whole_node": True,
        "innocent": [*range(8), *range(16, 24)],
    }

    def others(index: int) -> dict[str, Any]:
        return _pod(index, status="running")

    def with_pods(one: Incident, pod: dict[str, Any]) -> Incident:
        one.add("pods.json", _list(pod if i == 4 else others(i) for i in range(8)))
        return one

    yield with_pods(
        stalled(
            "oom-killed-container",
            **whole,
            verdict="host-oom",
            actions=(FIX, RESTART),
            title="A rank container ends as OOMKilled while the others wait",
            why="The container's first process was killed for memory; the node is fine.",
        ),
        _pod(4, status="terminated", reason="OOMKilled", code=137),
    )
    yield with_pods(
        stalled(
            "preempted-pod",
            **whole,
            verdict="rank-crashed",
            actions=(RESTART,),
            also_ranks=((),),
            also=("healthy", "rank-missing"),
            title="The scheduler preempts one pod of the gang",
            why="DisruptionTarget PreemptionByScheduler: external; no node is to blame.",
        ),
        _pod(
            4,
            status="terminated",
            reason="Error",
            code=143,
            disruption="PreemptionByScheduler",
            message="preempting to accommodate a higher priority pod",
        ),
    )
    yield with_pods(
        stalled(
            "kubelet-evicted-pod",
            **whole,
            verdict="rank-crashed",
            actions=(RESTART, FIX),
            also_ranks=((),),
            also=("rank-missing",),
            title="The kubelet ends a pod for disk pressure",
            why="TerminationByKubelet: node pressure took the pod; no GPU fault.",
        ),
        _pod(
            4,
            status="terminated",
            reason="Error",
            code=137,
            disruption="TerminationByKubelet",
            message="The node was low on resource: ephemeral-storage.",
        ),
    )
    yield with_pods(
        stalled(
            "exit-139",
            **whole,
            verdict="rank-crashed",
            actions=(FIX, RESTART),
            also=("rank-missing",),
            title="A rank container ends with exit 139",
            why="SIGSEGV in that pod before the others' timeouts; nothing blames the node.",
        ),
        _pod(4, status="terminated", reason="Error", code=139),
    )
    yield with_pods(
        stalled(
            "exit-137-not-oom",
            **whole,
            verdict="rank-crashed",
            actions=(RESTART,),
            also=("rank-missing",),
            title="A rank container ends with exit 137, reason Error",
            why="SIGKILL of an unknown sender: killed, cause unknown; not OOM, no node to blame.",
        ),
        _pod(4, status="terminated", reason="Error", code=137),
    )

    for name, pod, why in (
        (
            "image-pull-back-off",
            _pod(
                4,
                status="waiting",
                reason="ImagePullBackOff",
                message='Back-off pulling image "registry.example.net/ml/train:v41"',
            ),
            "The pod that cannot pull its image never joined.",
        ),
        (
            "unschedulable-pod",
            _pod(
                4,
                status="waiting",
                scheduled=False,
                message="0/9 nodes are available: 9 Insufficient nvidia.com/gpu.",
            ),
            "The pod that cannot be scheduled never joined.",
        ),
    ):
        one = Incident(
            name=name,
            verdict="rendezvous-failure",
            ranks=gone,
            nodes=(N,),
            by_node=True,
            why=why,
            title="Seven of eight pods wait for the last one",
            innocent=[r for r in range(WORLD) if r not in gone],
            actions=(RESTART, "watch", FIX, "collect-more"),
            captured=1000,
        )
        bare = json.loads(topology())
        if name.startswith("unsched"):
            for entry in bare["ranks"]:
                if entry["rank"] in gone:
                    entry["node"] = None
            one.nodes = ()
        one.add("topology.json", json.dumps(bare) + "\n")
        one.add(
            "job.json",
            json.dumps(
                {"name": "train", "namespace": "ml", "world_size": WORLD, "gpus_per_node": 8}
            )
            + "\n",
        )
        one.add(
            "logs/train-0.log",
            [
                f"{stamp(at(0))} + torchrun --nnodes=8 --node_rank=0 --nproc_per_node=8 --master_addr=train-0 --master_port=29500 train.py",
                said(
                    0,
                    903,
                    "torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 7/8 clients joined.",
                ),
            ],
        )
        one.add("pods.json", _list(pod if i == 4 else _pod(i, status="running") for i in range(8)))
        yield one


# --- Slurm ---------------------------------------------------------------------------------------


def _slurm_job(name: str, **truth: Any) -> Incident:  # noqa: ANN401 - fields of one table
    one = Incident(name=name, **truth)
    one.add("topology.json", topology(pods=False))
    return one


def _scontrol(state: str, reason: str, end: float) -> str:
    return (
        "JobId=418822 JobName=pretrain\n   UserId=alice(1000) GroupId=ml(1000) MCS_label=N/A\n"
        f"   JobState={state} Reason={reason} Dependency=(null)\n"
        "   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:9\n"
        f"   StartTime=2026-04-14T06:00:05 EndTime={at(end):%Y-%m-%dT%H:%M:%S} Deadline=N/A\n"
        "   NodeList=gpu-n[01-08]\n   BatchHost=gpu-n01\n   NumNodes=8 NumCPUs=768 NumTasks=8 CPUs/Task=96 ReqB:S:C:T=0:0:*:*\n"
    )


def _task_lines(task: int, lines: Iterable[str]) -> list[str]:
    return [f"{task}: {line}" for line in lines]


def _slurm() -> Iterator[Incident]:
    gone = ranks_on(N)
    rest = [r for r in range(WORLD) if r not in gone]
    told = "slurmstepd: error: *** STEP 418822.0 ON gpu-n05 CANCELLED AT 2026-04-14T09:17:20 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***"
    one = _slurm_job(
        "slurm-node-fail",
        verdict="hardware",
        ranks=gone,
        nodes=(N,),
        by_node=True,
        actions=(EVICT,),
        innocent=rest,
        captured=420,
        title="Slurm sees a node fail; srun labels are node indices (one torchrun a node)",
        why="scontrol, sinfo and srun name the node; label 4 is its node index, not rank 4.",
    )
    body = [
        line for task in (0, 1, 2, 4) for line in _task_lines(task, steps((task * 8,), until=-1.0))
    ]
    one.add(
        "slurm-418822.out",
        [
            *sorted(body, key=lambda line: line.partition(": ")[2]),
            "srun: error: Node failure on gpu-n05",
            told,
            "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
        ],
    )
    one.add("scontrol-job.txt", _scontrol("NODE_FAIL", "NodeFail", 314))
    one.add(
        "sinfo-R.txt",
        [
            "REASON               USER      TIMESTAMP           NODELIST",
            "Not responding       slurm     2026-04-14T09:17:18 gpu-n05",
            "bad fan, ticket 88   root      2026-03-02T11:00:00 gpu-n02",
        ],
    )
    yield one

    one = _slurm_job(
        "slurm-sacct-node-fail-only",
        verdict="hardware",
        ranks=gone,
        nodes=(N,),
        by_node=True,
        actions=(EVICT,),
        innocent=rest,
        captured=420,
        title="Only sacct and scontrol show node were kept",
        why="The job ended as NODE_FAIL and one of its nodes is DOWN, not responding.",
    )
    one.add(
        "sacct.txt",
        [
            "JobID|JobName|State|ExitCode|Start|End|NodeList",
            "418822|pretrain|NODE_FAIL|0:0|2026-04-14T06:00:05|2026-04-14T09:17:21|gpu-n[01-08]",
            "418822.batch|batch|CANCELLED|0:15|2026-04-14T06:00:05|2026-04-14T09:17:21|gpu-n01",
            "418822.0|torchrun|CANCELLED|0:9|2026-04-14T06:00:06|2026-04-14T09:17:21|gpu-n[01-08]",
        ],
    )
    one.add(
        "nodes.txt",
        "\n\n".join(
            f"NodeName={n} Arch=x86_64 CoresPerSocket=48\n   Gres=gpu:h100:8\n   NodeAddr={n} NodeHostName={n} Version=23.11.4\n"
            + (
                "   State=DOWN+NOT_RESPONDING ThreadsPerCore=2\n   Reason=Not responding [slurm@2026-04-14T09:17:18]"
                if n == N
                else "   State=IDLE ThreadsPerCore=2"
            )
            for n in NODES
        )
        + "\n",
    )
    yield one

    one = _slurm_job(
        "slurm-out-of-memory",
        verdict="host-oom",
        ranks=gone,
        nodes=(N,),
        by_node=True,
        actions=(FIX, RESTART),
        innocent=rest,
        captured=120,
        title="The kernel kills a task; Slurm says OUT_OF_MEMORY",
        why="Memory of the step ran out on gpu-n05: raise the limit; no node is to blame.",
    )
    one.add(
        "slurm-418822.out",
        [
            *[
                line
                for task in (0, 4)
                for line in _task_lines(task, steps((task * 8,), until=-1.0))
            ],
            "slurmstepd: error: Detected 1 oom_kill event in StepId=418822.0. Some of the step tasks have been OOM Killed.",
            "srun: error: gpu-n05: task 4: Out Of Memory",
            "srun: Terminating StepId=418822.0",
            "slurmstepd: error: *** STEP 418822.0 ON gpu-n01 CANCELLED AT 2026-04-14T09:12:40 ***",
        ],
    )
    one.add(
        "sacct.txt",
        [
            "JobID|JobName|State|ExitCode|Start|End|NodeList",
            "418822|pretrain|OUT_OF_MEMORY|0:125|2026-04-14T06:00:05|2026-04-14T09:12:41|gpu-n[01-08]",
            "418822.0|torchrun|OUT_OF_MEMORY|0:125|2026-04-14T06:00:06|2026-04-14T09:12:40|gpu-n[01-08]",
        ],
    )
    yield one

    for name, word, text in (
        ("slurm-time-limit", "TIMEOUT", "DUE TO TIME LIMIT"),
        ("slurm-preempted", "PREEMPTED", "DUE TO PREEMPTION"),
    ):
        one = _slurm_job(
            name,
            verdict="healthy",
            ranks=(),
            also=("rank-crashed", "undecidable"),
            actions=("none", "watch", RESTART),
            innocent=list(range(WORLD)),
            captured=120,
            title=f"Slurm ends the job: {word}",
            why="The scheduler ended it; that is no fault, and a drained idle node is no part of it.",
        )
        one.add(
            "slurm-418822.out",
            [
                *[
                    line
                    for task in (0, 4)
                    for line in _task_lines(task, steps((task * 8,), until=-1.0))
                ],
                f"slurmstepd: error: *** JOB 418822 ON gpu-n01 CANCELLED AT 2026-04-14T09:12:07 {text} ***",
                "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
                "slurmstepd: error: *** STEP 418822.0 ON gpu-n01 CANCELLED AT 2026-04-14T09:12:07 "
                + text
                + " ***",
            ],
        )
        one.add(
            "sacct.txt",
            [
                "JobID|JobName|State|ExitCode|Start|End|NodeList",
                f"418822|pretrain|{word}|0:0|2026-04-14T06:00:05|2026-04-14T09:12:09|gpu-n[01-08]",
            ],
        )
        yield one

    one = _slurm_job(
        "slurm-xid-on-node-label",
        verdict="hardware",
        ranks=(R,),
        nodes=(N,),
        actions=(EVICT,),
        innocent=[r for r in range(WORLD) if r != R],
        captured=TIMEOUT_S + 75,
        title="Slurm, one torchrun a node: labels 0-7 beside [rankN]; Xid 79 on one GPU; drained decoys",
        why="The label is the node index, the inner prefix the rank. Drained nodes drain for other reasons.",
    )
    lines: list[str] = []
    for task in (0, 2, 4):
        own = range(task * 8, task * 8 + 8)
        waiting = [r for r in own if r != R]
        lines += _task_lines(
            task,
            [
                line.partition("Z ")[2]
                for line in (*steps(own, until=-1.0), *timed_out(waiting), *aborted(waiting))
            ],
        )
    one.add("slurm-418822.out", lines)
    one.add(f"kernel/{N}.log", [kernel(N, -0.4, xid(R, 79, OFF_BUS))])
    one.add(
        "sacct.txt",
        [
            "JobID|JobName|State|ExitCode|Start|End|NodeList",
            f"418822|pretrain|FAILED|134:0|2026-04-14T06:00:05|{at(TIMEOUT_S + 70):%Y-%m-%dT%H:%M:%S}|gpu-n[01-08]",
        ],
    )
    one.add(
        "sinfo-R.txt",
        [
            "REASON               USER      TIMESTAMP           NODELIST",
            "bad fan, ticket 88   root      2026-03-02T11:00:00 gpu-n02",
            "NHC: check_fs        root      2026-04-01T04:30:00 gpu-n[11-12]",
        ],
    )
    yield one
