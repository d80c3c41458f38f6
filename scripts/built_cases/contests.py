"""Two stories compete: a code on a witness, a node that fails later, a map that is missing."""

from __future__ import annotations

import json
from collections.abc import Iterator

from built_cases.clusters import _list, _node, _pod, _scontrol, _slurm_job, _task_lines
from built_cases.fleet import (
    CONTAINED,
    CORDON,
    DBE,
    EVICT,
    FIX,
    MMU,
    NODES,
    OFF_BUS,
    PCI,
    QUIET,
    REMAP,
    RESTART,
    TIMEOUT_S,
    UNNAMED,
    WORLD,
    Incident,
    bus,
    cleanup,
    job,
    kernel,
    node_of,
    ranks_on,
    running,
    said,
    stalled,
    steps,
    topology,
    xid,
)
from built_cases.hosts import XIDS, _answer, _scrapes, _series

R, N = 35, "gpu-n05"
GONE = ranks_on(N)
REST = [r for r in range(WORLD) if r not in GONE]
MISSING = {"verdict": "rank-missing", "actions": (RESTART,)}
GSP = "Timeout after 45s of waiting for RPC response from GPU2 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20808513 0x598)."


def incidents() -> Iterator[Incident]:
    yield from _code_on_a_witness()
    yield from _codes_on_the_silent()
    yield from _without_a_map()
    yield from _clusters()
    yield from _slurm()


def _code_on_a_witness() -> Iterator[Incident]:
    one = stalled(
        "79-on-a-witness-while-waiting",
        culprit=(R,),
        **MISSING,
        title="A witness's GPU leaves the bus five minutes into the wait",
        why="It comes after the onset, on a rank that waited: the silent rank is missing without a cause.",
    )
    one.add("kernel/gpu-n03.log", [kernel("gpu-n03", 300, xid(18, 79, OFF_BUS))])
    yield one

    one = stalled(
        "94-on-a-witness-earlier",
        culprit=(R,),
        **MISSING,
        title="A contained error on a witness's GPU twelve minutes before",
        why="The witness stepped on for twelve minutes and then waited.",
    )
    one.add("kernel/gpu-n03.log", [kernel("gpu-n03", -720, xid(18, 94, CONTAINED))])
    yield one

    one = stalled(
        "109-on-witnesses-after-abort",
        culprit=(R,),
        **MISSING,
        title="Context switch timeouts on witnesses when they are killed",
        why="After the abort: consequences.",
    )
    one.add(
        "kernel/gpu-n01.log",
        [
            kernel(
                "gpu-n01",
                TIMEOUT_S + 63,
                xid(r, 109, "Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x58005", pid=True),
            )
            for r in range(8)
        ],
    )
    yield one

    one = stalled(
        "old-cordon-on-a-witness",
        culprit=(R,),
        title="A witness's node was quarantined days ago; Xid 119 on the silent rank's GPU",
        why="A condition days old explains nothing; 119 does.",
    )
    old = _node(
        "gpu-n01",
        cordoned=True,
        conditions=(
            ("SysLogsXIDError", "True", "XIDError", "[31] MMU fault - RecommendedAction: NONE"),
        ),
    )
    old["status"]["conditions"][1]["lastTransitionTime"] = "2026-04-11T02:00:00Z"
    one.add("nodes.json", _list([old, *(_node(n) for n in NODES[1:])]))
    one.add(f"kernel/{N}.log", [kernel(N, -0.4, xid(R, 119, GSP))])
    yield one

    one = stalled(
        "node-not-ready-after-abort",
        culprit=(R,),
        **MISSING,
        title="Auto-repair reboots a witness's node after the abort",
        why="Not ready fifteen minutes after the onset, its ranks had waited and aborted.",
        captured=TIMEOUT_S + 400,
    )
    late = _node("gpu-n03", ready="Unknown")
    late["status"]["conditions"][0]["lastTransitionTime"] = "2026-04-14T09:27:30Z"
    one.add("nodes.json", _list(late if n == "gpu-n03" else _node(n) for n in NODES))
    yield one

    one = stalled(
        "domain-errors-minutes-apart",
        culprit=(R,),
        title="Two trays of a domain log link errors ten minutes apart",
        why="Not within 30 s: no domain fault. The later one is at the onset, on the silent rank's GPU.",
    )
    one.add(
        "nodes.json",
        _list(
            _node(n, labels={"nvidia.com/gpu.clique": "7b968a6d-c8aa-45e1-9e07-e1e51be99c31.1"})
            for n in NODES
        ),
    )
    one.add(
        "kernel/gpu-n06.log",
        [
            kernel(
                "gpu-n06",
                -620,
                f"NVRM: Xid (PCI:{bus(42)}): 149, {UNNAMED}NETIR_BER_EVENT Nonfatal XC0 i0 Link 11 (0x00000226 0x00000001 0x00000000 0x00000000 0x00000000 0x00000000)",
            )
        ],
    )
    one.add(
        f"kernel/{N}.log",
        [
            kernel(
                N,
                -0.5,
                f"NVRM: Xid (PCI:{bus(R)}): 149, {UNNAMED}NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)",
            )
        ],
    )
    yield one

    one = stalled(
        "domain-ber-on-many-trays",
        culprit=(R,),
        **MISSING,
        title="Bit error notices on several trays within seconds, one rank silent",
        why="BER events are non-fatal notices: no domain fault. The silent rank's cause is not shown.",
    )
    one.add(
        "nodes.json",
        _list(
            _node(n, labels={"nvidia.com/gpu.clique": "7b968a6d-c8aa-45e1-9e07-e1e51be99c31.1"})
            for n in NODES
        ),
    )
    for i, node in enumerate(("gpu-n01", "gpu-n03", "gpu-n06")):
        rank = ranks_on(node)[i]
        one.add(
            f"kernel/{node}.log",
            [
                kernel(
                    node,
                    -60 + i * 4,
                    f"NVRM: Xid (PCI:{bus(rank)}): 149, {UNNAMED}NETIR_BER_EVENT Nonfatal XC0 i0 Link 11 (0x00000226 0x00000001 0x00000000 0x00000000 0x00000000 0x00000000)",
                )
            ],
        )
    yield one


def _codes_on_the_silent() -> Iterator[Incident]:
    one = stalled(
        "63-then-silent",
        culprit=(R,),
        also=("rank-missing",),
        actions=(EVICT, RESTART),
        title="A remap is recorded and its rank falls silent",
        why="63 alone stops nothing, but the job is stopped and the reset is due: the free moment.",
    )
    one.add(f"kernel/{N}.log", [kernel(N, -0.5, xid(R, 63, REMAP))])
    yield one

    one = stalled(
        "31-then-silent",
        culprit=(R,),
        verdict="rank-crashed",
        also=("rank-missing",),
        actions=(FIX, RESTART),
        title="One page fault on the silent rank's GPU",
        why="A single 31 is the application: never a cordon.",
    )
    one.add(
        f"kernel/{N}.log",
        [
            kernel(N, -0.5, f"NVRM: Xid (PCI:{bus(R)}): 31, pid=41877, name=python3, {MMU}"),
            kernel(N, -0.3, xid(R, 43, "channel 0x00000002", pid=True)),
        ],
    )
    yield one

    one = stalled(
        "45-alone-then-silent",
        culprit=(R,),
        **MISSING,
        title="Clean-up codes alone on the silent rank's GPU",
        why="45 follows the end of a process; what ended it is not shown.",
    )
    one.add(f"kernel/{N}.log", cleanup(R, N, -0.2, 30))
    yield one

    one = stalled(
        "48-recorded-days-ago",
        culprit=(R,),
        **MISSING,
        title="The silent rank's GPU had a double bit error last week",
        why="An old error that was recorded long ago is not today's fault.",
    )
    one.add(
        f"kernel/{N}.log",
        [
            kernel(N, -7 * 86400, xid(R, 48, DBE)),
            kernel(N, -7 * 86400 + 0.1, xid(R, 63, REMAP)),
            kernel(
                N,
                -6 * 86400,
                "Linux version 5.15.0-1040-nvidia (buildd@lcy02) (gcc 11.4.0) #40-Ubuntu SMP",
            ),
        ],
    )
    yield one

    one = running(
        "119-on-an-idle-gpu",
        rank=R,
        verdict="hardware",
        ranks=(),
        nodes=(N,),
        also=("healthy",),
        by_node=True,
        also_ranks=((), GONE),
        actions=(CORDON, *QUIET),
        title="A GSP timeout on a GPU of the job's node that holds no rank",
        why="The GPU is not the job's; at most a cordon.",
    )
    one.ranks = GONE
    bare = json.loads(one.files["topology.json"])
    bare["ranks"] = [e for e in bare["ranks"] if e["rank"] != 39]
    bare["world_size"] = WORLD - 1
    one.files["topology.json"] = json.dumps(bare) + "\n"
    one.files["job.json"] = job(world_size=WORLD - 1)
    one.add(f"kernel/{N}.log", [kernel(N, 0, xid(39, 119, GSP))])
    yield one

    one = running(
        "156-resource-retired-running",
        rank=R,
        verdict="hardware",
        ranks=(R,),
        also=("healthy",),
        also_ranks=((),),
        actions=(CORDON, *QUIET),
        title="A resource is retired on a job that runs",
        why="A spare took over; a reset is due some time.",
    )
    one.add(
        f"kernel/{N}.log",
        [kernel(N, 0, xid(R, 156, "Resource Retirement Event: GPC 3 TPC 5 retired"))],
    )
    yield one


def _without_a_map() -> Iterator[Incident]:
    def bare(name: str, **truth: object) -> Incident:
        one = stalled(name, culprit=(R,), plain=False, **truth)
        one.add("job.json", job())
        return one

    one = bare(
        "no-map-one-silent-one-xid",
        by_node=True,
        title="No topology: one rank is silent, one node logs the only cause code",
        why="Nothing ties rank to node, and nothing speaks against it: the two are one story.",
    )
    one.add(f"kernel/{N}.log", [kernel(N, -0.4, xid(R, 79, OFF_BUS)), *cleanup(R, N, 0.4, 6)])
    yield one

    one = bare(
        "map-by-nccl-init",
        title="No topology: NCCL's init lines tell host and bus address of each rank",
        why="busId 61000 on gpu-n05 is rank 35.",
    )
    for pod in (0, 2, 4):
        own = range(pod * 8, pod * 8 + 8)
        lines = one.files.pop(f"logs/train-{pod}.log")
        init = [
            f"2026-04-14T06:00:09.{r:06d}Z {node_of(r)}:{4100 + r}:{4800 + r} [{r % 8}] NCCL INFO ncclCommInitRank comm 0x5550{r:04x}3082 rank {r} nranks 64 cudaDev {r % 8} nvmlDev {r % 8} busId {PCI[r % 8]}000 commId 0x7d1e6c33a09b41f2 - Init COMPLETE"
            for r in own
        ]
        one.files[f"logs/train-{pod}.log"] = "\n".join(init) + "\n" + lines
    one.add(f"kernel/{N}.log", [kernel(N, -0.4, xid(R, 79, OFF_BUS))])
    yield one

    one = bare(
        "map-by-dcgm-pod-labels",
        by_node=True,
        title="No topology: DCGM's labels tie pod, node and GPU",
        why="The gauge's exported_pod is the pod of the silent rank.",
    )
    one.add(
        "metrics/xid.json",
        _answer(
            [
                _series(
                    r, XIDS, _scrapes(-1797, -27, "0") + _scrapes(3, 663, "79" if r == R else "0")
                )
                for r in (*GONE, *range(8))
            ]
        ),
    )
    yield one

    one = bare(
        "map-by-pods-json",
        by_node=True,
        title="No topology: the pod list tells the node of the silent rank's pod",
        why="train-4 runs on gpu-n05, whose kernel logs the only cause code.",
    )
    one.add("pods.json", _list(_pod(i, status="running") for i in range(8)))
    one.add(f"kernel/{N}.log", [kernel(N, -0.4, xid(R, 119, GSP))])
    yield one


def _clusters() -> Iterator[Incident]:
    whole = {"culprit": GONE, "by_node": True, "whole_node": True}
    one = stalled(
        "evicted-by-old-kubelet",
        **whole,
        verdict="rank-crashed",
        also=("rank-missing", "host-oom"),
        actions=(RESTART, FIX),
        also_ranks=((),),
        title="status.reason Evicted: the node was low on memory",
        why="Node pressure took the pod; no GPU fault.",
    )
    pods = [_pod(i, status="running") for i in range(8)]
    pods[4]["status"] = {
        "phase": "Failed",
        "reason": "Evicted",
        "message": "The node was low on resource: memory. Threshold quantity: 100Mi, available: 40Mi.",
    }
    one.add("pods.json", _list(pods))
    yield one

    one = stalled(
        "get-pods-wide-oomkilled",
        **whole,
        verdict="host-oom",
        actions=(FIX, RESTART),
        title="`kubectl get pods -o wide` as text: one OOMKilled",
        why="Its container was killed for memory.",
    )
    one.add(
        "pods.txt",
        [
            "NAME      READY   STATUS      RESTARTS   AGE     IP             NODE      NOMINATED NODE   READINESS GATES",
            *(
                f"train-{i}   {'0/1' if i == 4 else '1/1'}     {'OOMKilled' if i == 4 else 'Running  '}   0          3h23m   10.244.{i}.12    {NODES[i]}   <none>           <none>"
                for i in range(8)
            ),
        ],
    )
    yield one

    one = stalled(
        "two-pods-oom-killed",
        culprit=(*GONE, *ranks_on("gpu-n08")),
        whole_node=True,
        by_node=True,
        verdict="host-oom",
        actions=(FIX, RESTART),
        title="Two rank containers end as OOMKilled in the same second",
        why="Both were killed for memory: several culprits.",
    )
    one.nodes = (N, "gpu-n08")
    one.add(
        "pods.json",
        _list(
            _pod(i, status="terminated" if i in (4, 7) else "running", reason="OOMKilled", code=137)
            for i in range(8)
        ),
    )
    yield one

    one = stalled(
        "aks-ib-flapping",
        culprit=GONE,
        by_node=True,
        whole_node=True,
        witness_pods=(0, 2, 4),
        culprit_logs=False,
        verdict="network",
        also=("hardware",),
        title="AKS: IBLinkFlapping True on one node; all ranks at hand waited",
        why="The flapping adapter is one node's, since the onset.",
        innocent=[*range(8), *range(16, 24)],
    )
    one.add(
        "nodes.json",
        _list(
            _node(
                n,
                conditions=(
                    (
                        "IBLinkFlapping",
                        "True" if n == N else "False",
                        "IBLinkFlapping" if n == N else "NoIBLinkFlapping",
                        "mlx5_0 went down 4 times in 60 s" if n == N else "no flaps",
                    ),
                ),
            )
            for n in NODES
        ),
    )
    yield one

    one = Incident(
        name="failed-scheduling-events",
        verdict="rendezvous-failure",
        ranks=GONE,
        nodes=(),
        by_node=True,
        innocent=REST,
        captured=1000,
        actions=(RESTART, "watch", FIX, "collect-more"),
        title="Only events: one pod never found a node",
        why="The pod that was not scheduled never joined.",
    )
    bare = json.loads(topology())
    for entry in bare["ranks"]:
        if entry["rank"] in GONE:
            entry["node"] = None
    one.add("topology.json", json.dumps(bare) + "\n")
    one.add(
        "logs/train-0.log",
        [
            said(
                0,
                903,
                "torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 7/8 clients joined.",
            )
        ],
    )
    one.add(
        "events.txt",
        [
            "LAST SEEN   TYPE      REASON             OBJECT        MESSAGE",
            "16m         Normal    Scheduled          pod/train-0   Successfully assigned ml/train-0 to gpu-n01",
            "16m         Warning   FailedScheduling   pod/train-4   0/9 nodes are available: 9 Insufficient nvidia.com/gpu. preemption: 0/9 nodes are available: 9 No preemption victims found for incoming pod.",
        ],
    )
    yield one

    one = stalled(
        "taint-manager-deletes-pod",
        **whole,
        title="A pod is Terminating on an unreachable node",
        why="DeletionByTaintManager: the node is gone, its eight ranks silent.",
    )
    pods = [_pod(i, status="running") for i in range(8)]
    pods[4]["metadata"]["deletionTimestamp"] = "2026-04-14T09:18:00Z"
    pods[4]["status"]["conditions"].append(
        {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByTaintManager",
            "message": "Taint manager: deleting due to NoExecute taint",
            "lastTransitionTime": "2026-04-14T09:17:55Z",
        }
    )
    one.add("pods.json", _list(pods))
    one.add("nodes.json", _list(_node(n, ready="Unknown" if n == N else "True") for n in NODES))
    yield one


def _slurm() -> Iterator[Incident]:
    one = _slurm_job(
        "slurm-sinfo-down-star",
        verdict="hardware",
        ranks=GONE,
        nodes=(N,),
        by_node=True,
        actions=(EVICT,),
        innocent=REST,
        captured=420,
        title="sinfo shows one of the job's nodes down*, srun says it ran out of contact",
        why="down* is a node that does not answer.",
    )
    one.add(
        "slurm-418822.out",
        [
            *[
                line
                for task in (0, 2)
                for line in _task_lines(task, steps((task * 8,), until=-1.0))
            ],
            "srun: error: Node failure on gpu-n05",
            "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
        ],
    )
    one.add(
        "sinfo.txt",
        [
            "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST",
            "gpu*         up   infinite      1  down* gpu-n05",
            "gpu*         up   infinite      1  drain gpu-n12",
            "gpu*         up   infinite      7   idle gpu-n[01-04,06-08]",
        ],
    )
    yield one

    one = _slurm_job(
        "slurm-requeued-after-preemption",
        verdict="healthy",
        ranks=(),
        also=("rank-crashed", "undecidable"),
        actions=("none", "watch", RESTART, "collect-more"),
        innocent=list(range(WORLD)),
        captured=120,
        title="scontrol: PREEMPTED, requeued",
        why="External: nobody to blame.",
    )
    one.add("scontrol-job.txt", _scontrol("PREEMPTED", "None", 2))
    yield one

    one = _slurm_job(
        "slurm-healthy-squeue",
        verdict="healthy",
        ranks=(),
        actions=QUIET,
        captured=124,
        innocent=list(range(WORLD)),
        title="squeue says running, steps go on, other nodes are down",
        why="Down nodes that are not the job's say nothing.",
    )
    one.add(
        "slurm-418822.out",
        [
            line
            for task in (0, 4)
            for line in _task_lines(task, steps((task * 8,), until=121, count=40))
        ],
    )
    one.add(
        "squeue.txt",
        [
            "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)",
            "            418822       gpu pretrain    alice  R    3:14:05      8 gpu-n[01-08]",
        ],
    )
    one.add(
        "sinfo-R.txt",
        [
            "REASON               USER      TIMESTAMP           NODELIST",
            "Not responding       slurm     2026-04-14T09:10:18 gpu-n[20-21]",
        ],
    )
    yield one
