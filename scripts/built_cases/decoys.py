"""Node, pod and job states as text tables, decoys beside a true cause, and states that are no fault."""

from __future__ import annotations

from collections.abc import Iterator

from built_cases.clusters import _list, _node, _pod, _scontrol, _slurm_job, _task_lines
from built_cases.fleet import (
    CORDON,
    EVICT,
    FIX,
    NODES,
    OFF_BUS,
    QUIET,
    RESTART,
    TIMEOUT_S,
    WORLD,
    Incident,
    aborted,
    at,
    bus,
    job,
    kernel,
    ranks_on,
    running,
    stalled,
    stamp,
    steps,
    timed_out,
    xid,
)
from built_cases.hosts import XIDS, _answer, _scrapes, _series

R, N = 35, "gpu-n05"
GONE = ranks_on(N)
REST = [r for r in range(WORLD) if r not in GONE]


def incidents() -> Iterator[Incident]:
    yield from _kubernetes_text()
    yield from _kubernetes_no_fault()
    yield from _slurm()
    yield from _kernel_decoys()
    yield from _metrics()
    yield from _running_questions()


def _kubernetes_text() -> Iterator[Incident]:
    whole = {"culprit": GONE, "by_node": True, "whole_node": True}
    one = stalled(
        "get-nodes-table-not-ready",
        **whole,
        title="`kubectl get nodes` as text: one NotReady",
        why="The node of eight silent ranks is NotReady.",
    )
    one.add(
        "nodes.txt",
        [
            "NAME      STATUS     ROLES    AGE    VERSION",
            *(
                f"{n}   {'NotReady' if n == N else 'Ready   '}   <none>   212d   v1.30.4"
                for n in NODES
            ),
        ],
    )
    yield one

    one = stalled(
        "events-node-not-ready",
        **whole,
        title="Only events: NodeNotReady, then taint eviction",
        why="The events name the node whose eight ranks are silent.",
    )
    one.add(
        "events.txt",
        [
            "LAST SEEN   TYPE      REASON                 OBJECT             MESSAGE",
            f"10m         Normal    NodeNotReady           node/{N}       Node {N} status is now: NodeNotReady",
            "10m         Warning   NodeNotReady           pod/train-4        Node is not ready",
            "5m12s       Normal    TaintManagerEviction   pod/train-4        Marking for deletion Pod ml/train-4",
            "31m         Normal    Pulled                 pod/train-0        Container image already present on machine",
        ],
    )
    yield one

    one = stalled(
        "describe-node-gpu-missing",
        culprit=(R,),
        by_node=True,
        culprit_logs=False,
        title="`kubectl describe node` of one node: a lost kubelet",
        why="Ready Unknown since the onset.",
    )
    one.ranks = GONE
    one.add(
        f"describe-{N}.txt",
        [
            f"Name:               {N}",
            "Roles:              <none>",
            "Labels:             nvidia.com/gpu.count=8",
            "                    nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3",
            "CreationTimestamp:  Mon, 01 Dec 2025 08:00:00 +0000",
            "Taints:             node.kubernetes.io/unreachable:NoExecute",
            "Unschedulable:      false",
            "Conditions:",
            "  Type             Status    LastHeartbeatTime                 LastTransitionTime                Reason              Message",
            "  ----             ------    -----------------                 ------------------                ------              -------",
            "  MemoryPressure   Unknown   Tue, 14 Apr 2026 09:11:58 +0000   Tue, 14 Apr 2026 09:12:49 +0000   NodeStatusUnknown   Kubelet stopped posting node status.",
            "  DiskPressure     Unknown   Tue, 14 Apr 2026 09:11:58 +0000   Tue, 14 Apr 2026 09:12:49 +0000   NodeStatusUnknown   Kubelet stopped posting node status.",
            "  Ready            Unknown   Tue, 14 Apr 2026 09:11:58 +0000   Tue, 14 Apr 2026 09:12:49 +0000   NodeStatusUnknown   Kubelet stopped posting node status.",
            "Capacity:",
            "  nvidia.com/gpu:  8",
            "Allocatable:",
            "  nvidia.com/gpu:  8",
        ],
    )
    yield one

    one = stalled(
        "lease-stopped",
        **whole,
        title="Leases: one node's stopped renewing at the onset",
        why="renewTime is the best death clock; the node's condition had not flipped yet.",
        verdict="hardware",
        also=("rank-missing",),
        actions=(EVICT, RESTART),
    )
    one.add(
        "leases.json",
        _list(
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": n, "namespace": "kube-node-lease"},
                "spec": {
                    "holderIdentity": n,
                    "leaseDurationSeconds": 40,
                    "renewTime": stamp(at(-3 if n == N else 668)),
                },
            }
            for n in NODES
        ),
    )
    yield one

    one = stalled(
        "oom-killed-with-cgroup-line",
        culprit=(R,),
        verdict="host-oom",
        actions=(FIX, RESTART),
        by_node=True,
        title="OOMKilled by the kubelet, the kernel names the pod's uid",
        why="Memory of the pod ran out: raise the limit.",
    )
    one.ranks = GONE
    one.innocent = [*range(8), *range(16, 24)]
    one.add(
        "pods.json",
        _list(
            _pod(i, status="terminated" if i == 4 else "running", reason="OOMKilled", code=137)
            for i in range(8)
        ),
    )
    one.add(
        f"kernel/{N}.log",
        [
            kernel(
                N,
                -0.2,
                "python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=-997",
            ),
            kernel(
                N,
                -0.2,
                "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=cri-containerd-77ab0c.scope,mems_allowed=0-1,"
                "oom_memcg=/kubepods.slice/kubepods-pod8c1f77d0_5b11_4d2e_9f60_1a2b3c4d5e04.slice,"
                "task_memcg=/kubepods.slice/kubepods-pod8c1f77d0_5b11_4d2e_9f60_1a2b3c4d5e04.slice/cri-containerd-77ab0c.scope,task=python3,pid=41877,uid=0",
            ),
            kernel(
                N,
                -0.1,
                "Memory cgroup out of memory: Killed process 41877 (python3) total-vm:701223904kB, anon-rss:448211004kB, file-rss:311220kB, shmem-rss:18874368kB, UID:0 pgtables:912004kB oom_score_adj:-997",
            ),
        ],
    )
    yield one

    one = stalled(
        "preempted-by-events-table",
        **whole,
        verdict="rank-crashed",
        also=("healthy", "rank-missing"),
        actions=(RESTART, "watch"),
        also_ranks=((),),
        title="Only the events say that a pod was preempted",
        why="The scheduler took it: external, no node is to blame.",
    )
    one.add(
        "events.txt",
        [
            "LAST SEEN   TYPE      REASON      OBJECT        MESSAGE",
            f"11m         Normal    Preempted   pod/train-4   Preempted by pod ml/prod-serving-7 on node {N}",
            "11m         Normal    Killing     pod/train-4   Stopping container pytorch",
        ],
    )
    yield one


def _kubernetes_no_fault() -> Iterator[Incident]:
    healthy = {"verdict": "healthy", "ranks": (), "actions": QUIET}
    one = running(
        "spare-node-not-ready",
        rank=R,
        **healthy,
        title="A node that holds no rank is NotReady",
        why="The job does not use it.",
    )
    one.add("nodes.json", _list([*(_node(n) for n in NODES), _node("gpu-n99", ready="Unknown")]))
    yield one

    one = running(
        "every-node-unknown",
        rank=R,
        **healthy,
        title="All nodes are Unknown while the job steps on",
        why="When every node is unknown, the control plane is, not the nodes.",
    )
    one.add("nodes.json", _list(_node(n, ready="Unknown") for n in NODES))
    yield one

    one = running(
        "kubelet-gone-ranks-alive",
        rank=R,
        verdict="hardware",
        ranks=GONE,
        by_node=True,
        also=("healthy",),
        also_ranks=((),),
        actions=(CORDON, *QUIET),
        title="A kubelet stopped posting; the ranks on its node step on",
        why="The job runs: never an action that stops it.",
    )
    one.add("nodes.json", _list(_node(n, ready="Unknown" if n == N else "True") for n in NODES))
    yield one

    one = running(
        "restarted-long-ago",
        rank=R,
        **healthy,
        title="A container that was OOMKilled before this run",
        why="lastState is of an earlier instance; today's container runs and steps.",
    )
    pods = [_pod(i, status="running") for i in range(8)]
    pods[4]["status"]["containerStatuses"][0] |= {
        "restartCount": 1,
        "lastState": {
            "terminated": {
                "exitCode": 137,
                "reason": "OOMKilled",
                "finishedAt": "2026-04-12T03:00:00Z",
            }
        },
    }
    one.add("pods.json", _list(pods))
    yield one

    one = running(
        "sidecar-oom-killed",
        rank=R,
        **healthy,
        title="A log shipper beside a rank is OOMKilled",
        why="A rank's life is its GPU container's.",
    )
    pods = [_pod(i, status="running") for i in range(8)]
    pods[4]["spec"]["containers"].append({"name": "fluent-bit"})
    pods[4]["status"]["containerStatuses"].append(
        {
            "name": "fluent-bit",
            "restartCount": 3,
            "state": {
                "terminated": {
                    "exitCode": 137,
                    "reason": "OOMKilled",
                    "finishedAt": stamp(at(-30), 0).replace(".", ""),
                }
            },
        }
    )
    one.add("pods.json", _list(pods))
    yield one


def _slurm() -> Iterator[Incident]:
    one = _slurm_job(
        "slurm-gres-count-low",
        verdict="hardware",
        ranks=GONE,
        nodes=(N,),
        by_node=True,
        actions=(EVICT,),
        innocent=REST,
        captured=TIMEOUT_S + 75,
        title="slurmd reports seven of eight GPUs",
        why="`gres/gpu count reported lower than configured` on the node of the silent ranks.",
    )
    for node in (0, 2):
        own = range(node * 8, node * 8 + 8)
        one.add(f"logs/{NODES[node]}.log", steps(own, until=-1.0) + timed_out(own) + aborted(own))
    one.add(
        "nodes.txt",
        "\n\n".join(
            f"NodeName={n} Arch=x86_64 CoresPerSocket=48\n   Gres=gpu:h100:8\n   NodeAddr={n} NodeHostName={n} Version=23.11.4\n"
            + (
                "   State=DOWN+DRAIN ThreadsPerCore=2\n   Reason=gres/gpu count reported lower than configured (7 < 8) [slurm@2026-04-14T09:12:30]"
                if n == N
                else "   State=ALLOCATED ThreadsPerCore=2"
            )
            for n in NODES
        )
        + "\n",
    )
    one.add("scontrol-job.txt", _scontrol("FAILED", "NonZeroExitCode", TIMEOUT_S + 70))
    yield one

    for name, words, code, kinds, title in (
        (
            "slurm-task-segfault",
            "Segmentation fault (core dumped)",
            "139:0",
            (FIX, RESTART),
            "One task per GPU: task 35 segfaults",
        ),
        (
            "slurm-task-killed",
            "Killed",
            "0:9",
            (RESTART, FIX),
            "One task per GPU: task 35 is killed, sender unknown",
        ),
    ):
        one = _slurm_job(
            name,
            verdict="rank-crashed",
            ranks=(R,),
            nodes=(N,),
            actions=kinds,
            innocent=[r for r in range(WORLD) if r != R],
            captured=120,
            title=title,
            why="The label is the rank with one task per GPU; nothing blames the node.",
        )
        lines = [
            f"{r:2d}: step {4200 + i} loss 2.1 step_time 2.0s"
            for i in range(6)
            for r in range(WORLD)
        ]
        one.add(
            "slurm-418822.out",
            [
                *lines,
                f"srun: error: {N}: task {R}: {words}",
                "srun: Terminating StepId=418822.0",
                "slurmstepd: error: *** STEP 418822.0 ON gpu-n01 CANCELLED AT 2026-04-14T09:12:40 ***",
                "srun: error: gpu-n01: tasks 0-7: Terminated",
            ],
        )
        one.add(
            "sacct.txt",
            [
                "JobID|JobName|State|ExitCode|Start|End|NodeList|NTasks",
                f"418822|pretrain|FAILED|{code}|2026-04-14T06:00:05|2026-04-14T09:12:41|gpu-n[01-08]|",
                f"418822.0|python|FAILED|{code}|2026-04-14T06:00:06|2026-04-14T09:12:40|gpu-n[01-08]|64",
            ],
        )
        yield one

    one = _slurm_job(
        "slurm-cancelled-by-user",
        verdict="healthy",
        ranks=(),
        also=("undecidable",),
        actions=("none", "watch", "collect-more"),
        innocent=list(range(WORLD)),
        captured=120,
        title="Somebody cancelled the job",
        why="No fault is shown.",
    )
    one.add(
        "slurm-418822.out",
        [
            *[
                line
                for task in (0, 4)
                for line in _task_lines(task, steps((task * 8,), until=-1.0))
            ],
            "slurmstepd: error: *** STEP 418822.0 ON gpu-n01 CANCELLED AT 2026-04-14T09:12:07 ***",
        ],
    )
    one.add(
        "sacct.txt",
        [
            "JobID|JobName|State|ExitCode|Start|End|NodeList",
            "418822|pretrain|CANCELLED by 1000|0:0|2026-04-14T06:00:05|2026-04-14T09:12:09|gpu-n[01-08]",
        ],
    )
    yield one

    one = _slurm_job(
        "slurm-node-fail-unnamed",
        verdict="undecidable",
        ranks=None,
        actions=("collect-more",),
        innocent=list(range(WORLD)),
        captured=420,
        title="NODE_FAIL, and nothing says which node",
        why="The state names no node: scontrol show node or slurmctld's log would.",
        also=("hardware",),
    )
    one.actions = ("collect-more", RESTART)
    one.add("scontrol-job.txt", _scontrol("NODE_FAIL", "NodeFail", 314))
    yield one

    one = _slurm_job(
        "slurm-running-drained-node",
        verdict="healthy",
        ranks=(),
        actions=QUIET,
        captured=124,
        innocent=list(range(WORLD)),
        title="A node of the job is draining for maintenance; the job runs",
        why="Slurm's drain lets the job finish; it is a cordon and no fault.",
    )
    one.add("logs/gpu-n01.log", steps((0,), until=121, count=40))
    one.add(
        "nodes.txt",
        "\n\n".join(
            f"NodeName={n} Arch=x86_64 CoresPerSocket=48\n   NodeAddr={n} NodeHostName={n} Version=23.11.4\n"
            + (
                "   State=MIXED+DRAIN ThreadsPerCore=2\n   Reason=firmware upgrade, ticket 91 [root@2026-04-14T08:00:00]"
                if n == N
                else "   State=MIXED ThreadsPerCore=2"
            )
            for n in NODES
        )
        + "\n",
    )
    one.add(
        "squeue.txt",
        [
            "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)",
            "            418822       gpu pretrain    alice  R    3:14:05      8 gpu-n[01-08]",
        ],
    )
    yield one


def _kernel_decoys() -> Iterator[Incident]:
    one = stalled(
        "oom-of-exporter-beside-79",
        culprit=(R,),
        title="An exporter is killed for memory on a witness's node; Xid 79 elsewhere",
        why="The killed process is no rank; 79 is the cause.",
    )
    one.add(
        "kernel/gpu-n01.log",
        [
            kernel(
                "gpu-n01",
                -8,
                "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=node-exporter.service,mems_allowed=0-1,oom_memcg=/system.slice/node-exporter.service,task_memcg=/system.slice/node-exporter.service,task=node_exporter,pid=2211,uid=998",
            ),
            kernel(
                "gpu-n01",
                -8,
                "Memory cgroup out of memory: Killed process 2211 (node_exporter) total-vm:1223904kB, anon-rss:98211kB, file-rss:0kB, shmem-rss:0kB, UID:998 pgtables:204kB oom_score_adj:0",
            ),
        ],
    )
    one.add(f"kernel/{N}.log", [kernel(N, -0.4, xid(R, 79, OFF_BUS))])
    yield one

    one = stalled(
        "link-flap-and-heat-beside-62",
        culprit=(R,),
        title="A link flaps and a CPU is hot on witnesses' nodes; a PMU halt on the silent rank's GPU",
        why="The flap healed 40 minutes ago, heat slows nothing here; 62 is the cause.",
    )
    one.add(
        "kernel/gpu-n01.log",
        [
            kernel("gpu-n01", -2400, "mlx5_core 0000:12:00.0 ib0: Link down"),
            kernel("gpu-n01", -2397, "mlx5_core 0000:12:00.0 ib0: Link up"),
        ],
    )
    one.add(
        "kernel/gpu-n03.log",
        [
            kernel(
                "gpu-n03",
                -30,
                "mce: CPU12: Core temperature is above threshold, cpu clock is throttled (total events = 8831)",
            )
        ],
    )
    one.add(
        f"kernel/{N}.log",
        [kernel(N, -0.4, f"NVRM: Xid (PCI:{bus(R)}): 62, 32260b5e 000154b0 00000000 20208001")],
    )
    yield one

    one = stalled(
        "pcie-fatal-without-xid",
        culprit=(R,),
        by_node=True,
        title="A fatal PCIe error on the GPU's port; the driver says nothing",
        why="AER names the GPU's address as the source of a fatal error at the onset.",
    )
    one.add(
        f"kernel/{N}.log",
        [
            kernel(
                N,
                -0.6,
                f"pcieport 0000:9a:01.0: AER: Uncorrected (Fatal) error received: {bus(R)}.0",
            ),
            kernel(
                N,
                -0.6,
                f"nvidia {bus(R)}.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Receiver ID)",
            ),
            kernel(
                N,
                -0.6,
                f"nvidia {bus(R)}.0:   device [10de:2330] error status/mask=00000020/00000000",
            ),
            kernel(N, -0.5, f"nvidia {bus(R)}.0:    [ 5] SDES                   (First)"),
        ],
    )
    yield one

    one = stalled(
        "amdgpu-ring-timeout-reset-ok",
        culprit=(R,),
        title="An AMD ring times out; the reset succeeds, the process is lost",
        why="The reset ends every process on that GPU: its rank is the one that is missing.",
        also=("rank-missing", "rank-crashed"),
        actions=(EVICT, RESTART),
    )
    one.add(
        f"kernel/{N}.log",
        [
            kernel(
                N,
                -0.9,
                f"amdgpu {bus(R)}.0: amdgpu: ring sdma0 timeout, signaled seq=88123, emitted seq=88125",
            ),
            kernel(N, -0.8, f"amdgpu {bus(R)}.0: amdgpu: GPU reset begin!"),
            kernel(N, 3.5, f"amdgpu {bus(R)}.0: amdgpu: GPU reset(2) succeeded!"),
        ],
    )
    yield one

    one = stalled(
        "rebooted-under-ranks",
        culprit=GONE,
        by_node=True,
        whole_node=True,
        title="The kernel log begins anew: the node rebooted in mid-run",
        why="A boot after the onset on the node of eight silent ranks.",
    )
    one.add(
        f"kernel/{N}.log",
        [
            kernel(N, -4000, "eth2: renamed from veth71ab3c0"),
            kernel(
                N,
                190,
                "Linux version 5.15.0-1040-nvidia (buildd@lcy02) (gcc 11.4.0) #40-Ubuntu SMP",
            ),
            kernel(N, 191, "Command line: BOOT_IMAGE=/vmlinuz-5.15.0-1040-nvidia root=UUID=1 ro"),
        ],
    )
    yield one

    one = stalled(
        "hung-task-behind-119",
        culprit=(R,),
        title="A hung task after a GSP timeout on one node",
        why="The hung task waits for the dead GSP; 119 is the cause.",
    )
    one.add(
        f"kernel/{N}.log",
        [
            kernel(
                N,
                -0.4,
                f"NVRM: Xid (PCI:{bus(R)}): 119, pid=41877, name=python3, Timeout after 45s of waiting for RPC response from GPU4 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20808513 0x598).",
            ),
            kernel(N, 122, "INFO: task python3:41877 blocked for more than 120 seconds."),
        ],
    )
    yield one


def _metrics() -> Iterator[Incident]:
    one = stalled(
        "dcgm-45-hides-the-cause",
        culprit=(R,),
        culprit_logs=True,
        verdict="rank-missing",
        also=("hardware",),
        actions=(RESTART, EVICT),
        title="The gauge went from 0 to 45 on the silent rank's GPU: 45 hides what came before",
        why="45 is clean-up; the cause fell between two scrapes. The rank is known, its cause is not.",
    )
    one.add(
        "metrics/xid.json",
        _answer(
            [
                _series(R, XIDS, _scrapes(-1797, -27, "0") + _scrapes(3, 663, "45")),
                _series(2, XIDS, _scrapes(-1797, 603, "0") + _scrapes(633, 693, "45")),
            ]
        ),
    )
    yield one

    one = stalled(
        "dcgm-dbe-counter-rises",
        culprit=(R,),
        title="No Xid at hand: the volatile double bit counter rises on the silent rank's GPU",
        why="DCGM_FI_DEV_ECC_DBE_VOL_TOTAL 0 to 1 at the onset; a lifetime counter on a witness is flat.",
        also=("rank-missing",),
        actions=(EVICT,),
    )
    one.add(
        "metrics/ecc.json",
        _answer(
            [
                *(
                    _series(
                        r,
                        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
                        _scrapes(-597, -27, "0") + _scrapes(3, 663, "1" if r == R else "0"),
                    )
                    for r in GONE
                ),
                _series(2, "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", _scrapes(-597, 663, "7")),
            ]
        ),
    )
    yield one

    one = running(
        "dcgm-remap-failure-flag",
        rank=R,
        verdict="hardware",
        ranks=(R,),
        also=("healthy",),
        also_ranks=((),),
        actions=(CORDON, *QUIET),
        title="The row remap failure flag comes up on a job that runs",
        why="An RMA criterion; nothing stops: at most a cordon.",
    )
    one.add(
        "metrics/remap.json",
        _answer(
            [
                _series(
                    r,
                    "DCGM_FI_DEV_ROW_REMAP_FAILURE",
                    _scrapes(-597, -27, "0") + _scrapes(3, 123, "1" if r == R else "0"),
                )
                for r in GONE
            ]
        ),
    )
    yield one

    one = stalled(
        "dcgm-xid-count",
        culprit=(R,),
        culprit_logs=False,
        title="DCGM_EXP_XID_ERRORS_COUNT rises for 95 on one GPU",
        why="The count beats the sticky gauge; it falls by itself when the window has passed.",
    )
    one.add(
        "metrics/count.json",
        _answer(
            [
                _series(
                    R,
                    "DCGM_EXP_XID_ERRORS_COUNT",
                    _scrapes(3, 303, "1"),
                    xid="95",
                    window_size_in_ms="300000",
                ),
                _series(
                    2,
                    "DCGM_EXP_XID_ERRORS_COUNT",
                    _scrapes(633, 693, "8"),
                    xid="45",
                    window_size_in_ms="300000",
                ),
            ]
        ),
    )
    yield one

    one = stalled(
        "dcgm-node-and-instance-labels",
        culprit=(R,),
        culprit_logs=False,
        title="No Hostname label: only kubernetes_node and instance",
        why="The label differs by scrape configuration; the PCI address is 8-digit and upper case.",
    )
    series = [
        _series(R, XIDS, _scrapes(-1797, -27, "0") + _scrapes(3, 663, "62")),
        _series(2, XIDS, _scrapes(-1797, 663, "0")),
    ]
    for entry in series:
        entry["metric"]["kubernetes_node"] = entry["metric"].pop("Hostname")
        entry["metric"]["instance"] = "10.51.0.8:9400"
    one.add("metrics/xid.json", _answer(series))
    yield one


def _running_questions() -> Iterator[Incident]:
    one = running(
        "48-running-known-inputs",
        rank=R,
        verdict="hardware",
        ranks=(R,),
        actions=(EVICT,),
        title="Double bit error alone on a running job, every price given",
        why="48 without 94: state may be corrupt, whatever the arithmetic says.",
    )
    one.files["job.json"] = job(restart_seconds=240, step_seconds=2.0, state="running")
    one.add(
        f"kernel/{N}.log",
        [
            kernel(
                N,
                0,
                xid(
                    R,
                    48,
                    "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at physAddr 0x3a1f7c40 partition 16, subpartition 3.",
                ),
            )
        ],
    )
    yield one

    one = running(
        "94-running-shell-text",
        rank=R,
        verdict="hardware",
        ranks=(R,),
        actions=(CORDON,),
        title="A job whose name needs quoting",
        why="Contained errors wait for the boundary; commands are quoted.",
    )
    one.files["job.json"] = job(name="train; rm -rf $HOME", namespace="ml prod")
    one.add(
        f"kernel/{N}.log",
        [kernel(N, 0, xid(R, 94, "Contained: CE User Channel (0x9). RST: No, D-RST: No"))],
    )
    yield one

    one = running(
        "54-power-running",
        rank=R,
        verdict="hardware",
        ranks=(R,),
        also=("healthy",),
        also_ranks=((),),
        actions=(CORDON, "watch"),
        title="Xid 54 while steps keep their pace",
        why="Steps are as quick as before: not degrading now, so nothing may stop the job.",
    )
    one.add(
        f"kernel/{N}.log",
        [kernel(N, 0, xid(R, 54, "Auxiliary power is not connected to the GPU board"))],
    )
    yield one

    one = running(
        "119-running-steps-on",
        rank=R,
        verdict="hardware",
        ranks=(R,),
        actions=(CORDON,),
        title="A GSP timeout seen by a monitor; steps go on",
        why="The job runs and keeps its pace: cordon, then the boundary.",
    )
    one.add(
        f"kernel/{N}.log",
        [
            kernel(
                N,
                0,
                f"NVRM: Xid (PCI:{bus(R)}): 119, pid=90211, name=dcgm-exporter, Timeout after 45s of waiting for RPC response from GPU0 GSP! Expected function 76 (GSP_RM_CONTROL) (0x2080014b 0x5).",
            )
        ],
    )
    yield one
