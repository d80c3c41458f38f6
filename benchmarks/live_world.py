"""A large job that stopped, on the test cluster: its nodes, its pods, their logs, and their GPUs' XID history.

Steps, a GPU that falls off the bus, ten minutes of silence, and then the watchdogs of all ranks but one. Every
`LOUD_EVERY`-th pod prints the stacks of all its threads as well, more lines than a first look at a log takes, so that
what came before the stall has to be asked for again.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tests"), str(HERE.parent / "scripts")]

from servers import jobs, metrics, namespaces, nodes, pods, prometheus  # noqa: E402 - of the tests
from servers.api import in_parallel  # noqa: E402
from servers.cluster import Cluster, running_cluster  # noqa: E402
from servers.namespaces import Namespace  # noqa: E402
from train_run_7.logs import FAILED_STACK, WHY_TIMEOUT, c10  # noqa: E402
from train_run_7.world import MS, Node, S  # noqa: E402

JOB = "train-run-9"
GPUS = 8
LOUD_EVERY = 16
LOUD_LINES = 280  # of a rank; the first look takes 2,000 lines of a pod
STEP_S = 10
TIMEOUT_S = 600
SEQ = 88_214
FRAMES = tuple(
    f"frame #{number}: c10d::ProcessGroupNCCL::{name} + {offset:#x} (0x7f{number:02x}3a5c{offset:04x} in "
    "/opt/venv/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so)"
    for number, (name, offset) in enumerate(
        [
            ("WorkNCCL::checkTimeout(std::optional<std::chrono::duration<long> >)", 0x1D2),
            ("watchdogHandler()", 0x2F3),
            ("ncclCommWatchdog()", 0x6D),
            ("HeartbeatMonitor::runLoop()", 0x5C2),
            ("Watchdog::run()", 0x14D),
        ]
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What was made, and what is true of it. `place`: the node of each pod, by index; `server`: the URL by which
    the API server is asked."""

    cluster: Cluster
    server: str
    namespace: Namespace
    pods: tuple[str, ...]
    place: tuple[str, ...]
    culprit: int
    prometheus: str
    kubeconfig: Path
    lines: int


@contextmanager
def made(folder: Path, count: int, told: Callable[[str], None], *, steps: int) -> Iterator[World]:
    """The incident on a cluster of its own, until the block ends; so many steps before the stall."""
    with ExitStack() as stack:
        cluster = stack.enter_context(running_cluster(folder / "cluster"))
        told("the control plane is up")
        namespace = namespaces.make(cluster)
        nodes.make(namespace, count)
        told(f"{count:,} nodes are Ready")
        env = {"PET_NNODES": str(count), "PET_NPROC_PER_NODE": str(GPUS)}
        jobs.indexed_job(namespace, JOB, jobs.Shape(pods=count, gpus=GPUS, env=env))
        selector = f"batch.kubernetes.io/job-name={JOB}"
        found = pods.wait(namespace, selector, count, within_s=900)
        told(f"{count:,} pods run")
        index = "batch.kubernetes.io/job-completion-index"
        found.sort(key=lambda pod: int(pod["metadata"]["labels"][index]))
        names = tuple(pod["metadata"]["name"] for pod in found)
        place = tuple(pod["spec"]["nodeName"] for pod in found)
        end = datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=5)
        culprit = count // 2 * GPUS + 5
        lines = _write_logs(namespace, names, steps, end, culprit)
        told(f"{lines:,} lines of logs are there")
        in_parallel(lambda name: pods.terminate(namespace, name, at=end), names)
        told("all pods ended")
        url = stack.enter_context(
            prometheus.running_prometheus(
                folder / "prometheus", _xids(place, names, namespace.name, end, culprit)
            )
        )
        told("Prometheus is up")
        yield World(
            cluster=cluster,
            server=cluster.url,
            namespace=namespace,
            pods=names,
            place=place,
            culprit=culprit,
            prometheus=url,
            kubeconfig=cluster.write_kubeconfig(folder / "kubeconfig", namespace=namespace.name),
            lines=lines,
        )


# --- Logs -----------------------------------------------------------------------------------------


def _write_logs(
    namespace: Namespace, names: tuple[str, ...], steps: int, end: datetime, culprit: int
) -> int:
    """The logs of all pods; how many lines they have. Some pods at a time: the text of all is much."""
    count = 0
    for begin in range(0, len(names), 128):
        some = {
            names[index]: _log(index, len(names), steps, end, culprit)
            for index in range(begin, min(begin + 128, len(names)))
        }
        count += sum(map(len, some.values()))
        pods.give_logs(namespace, some)
    return count


def _log(index: int, count: int, steps: int, end: datetime, culprit: int) -> list[pods.Line]:
    """The log of one pod. The watchdogs wake some seconds before its end."""
    rng = random.Random(f"live/{index}")
    timeout = end - timedelta(seconds=30)
    stall = timeout - timedelta(seconds=TIMEOUT_S)
    node = Node(index=index, offset_ns=0, rng=rng)
    lines = list(_start(index, count, stall - timedelta(seconds=STEP_S * steps + 60)))
    for step in range(steps):
        at = stall - timedelta(seconds=STEP_S * (steps - 1 - step))
        lines += [
            (at + timedelta(milliseconds=rng.randrange(900)), _step(rank, step, rng))
            for rank in node.ranks
        ]
    for rank in node.ranks:
        if rank != culprit:
            at = timeout + timedelta(milliseconds=rng.randrange(4000))
            lines += _storm(node, rank, at, is_loud=index % LOUD_EVERY == 3)
    return sorted(lines, key=lambda line: line[0])


def _start(index: int, count: int, at: datetime) -> Iterator[pods.Line]:
    ranks = [index * GPUS + local for local in range(GPUS)]
    for text in (
        "[default] Rendezvous complete for workers. Result:",
        "  restart_count=0",
        f"  master_addr={JOB}-0",
        "  master_port=29500",
        f"  group_rank={index}",
        f"  group_world_size={count}",
        f"  local_ranks={list(range(GPUS))}",
        f"  role_ranks={ranks}",
        f"  global_ranks={ranks}",
    ):
        yield at, text
    for rank in ranks:
        head = f"[rank{rank}]: {JOB}-{index}:{412 + rank % GPUS}:{412 + rank % GPUS} [{rank % GPUS}] NCCL INFO"
        comm = f"ncclCommInitRank comm 0x55d3a0{rank:06x} rank {rank} nranks {count * GPUS} cudaDev {rank % GPUS}"
        yield at + timedelta(seconds=9), f"{head} {comm} commId 0x5a1c09e7d3b64f20 - Init COMPLETE"


def _step(rank: int, step: int, rng: random.Random) -> str:
    return (
        f"[rank{rank}]: step: {step + 48_181}  loss: {2 + rng.random():7.4f}  grad_norm:  0.{rng.randrange(500, 900)}"
        f"  memory: 61.24GiB(77.31%)  tps: {rng.randrange(9_790, 9_804):,}  tflops: 471.10  mfu: 47.63%"
    )


def _storm(node: Node, rank: int, at: datetime, *, is_loud: bool) -> Iterator[pods.Line]:
    """What a rank prints that waited: its timeout, stacks, its dump, its end."""
    ns = int(at.timestamp()) * S + at.microsecond * 1000
    ran = TIMEOUT_S * 1000 + rank % 97
    group = f"[PG ID 0 PG GUID 0(default_pg) Rank {rank}]"
    work = (
        f"[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={SEQ}, OpType=ALLREDUCE, "
        f"NumelIn=1, NumelOut=1, Timeout(ms)={TIMEOUT_S * 1000}) ran for {ran} milliseconds before timing out."
    )
    said: list[tuple[int, int, str]] = [
        (0, 685, work),
        (
            1,
            2252,
            f"{group}  failure detected by watchdog at work sequence id: {SEQ} PG status: last enqueued work: {SEQ}, "
            f"last completed work: {SEQ - 1}",
        ),
        (2, 732, "Stack trace of the failed collective: "),
        (
            300,
            1794,
            f"{group} Received a dump signal due to a collective timeout from this local rank and we will try our best "
            f"to dump the debug info. Last enqueued NCCL work: {SEQ}, last completed NCCL work: {SEQ - 1}.{WHY_TIMEOUT}",
        ),
        (
            9000,
            760,
            f"[Rank {rank}] To avoid data inconsistency, we are taking the entire process down.",
        ),
        (
            9001,
            2068,
            f"{group} Process group watchdog thread terminated with exception: {work}",
        ),
    ]
    for after_ms, source, text in said:
        when = at + timedelta(milliseconds=after_ms)
        yield when, c10(node, ns + after_ms * MS, rank, source, text)
        if source == 732:
            yield from ((when, f"[rank{rank}]:{frame}") for frame in FAILED_STACK)
        if source == 2068:
            yield from ((when, f"[rank{rank}]:{frame}") for frame in FRAMES for _ in range(3))
    for number in range(LOUD_LINES if is_loud else 0):
        when = at + timedelta(milliseconds=9002 + number)
        yield (
            when,
            f'[rank{rank}]:  File "/opt/train/titan/loader.py", line {number}, in _wait_{number % 7}',
        )


# --- Metrics --------------------------------------------------------------------------------------


def _xids(
    place: tuple[str, ...], names: tuple[str, ...], namespace: str, end: datetime, culprit: int
) -> Iterator[metrics.Series]:
    """Half an hour of every GPU's last XID, a sample a minute: 0 everywhere but for one."""
    begin = end - timedelta(minutes=30)
    fault = end - timedelta(seconds=30 + TIMEOUT_S - 4)
    calm = metrics.held(begin, end, every_s=60)
    ill = metrics.held(begin, end, [(fault, 79)], every_s=60)
    for index, node in enumerate(place):
        for gpu in range(GPUS):
            samples = ill if index * GPUS + gpu == culprit else calm
            yield metrics.xid_series(node, gpu, samples, pod=names[index], namespace=namespace)


def clock() -> Callable[[str], None]:
    """Tells what was done on standard error, with the seconds since the last."""
    last = time.monotonic()

    def told(what: str) -> None:
        nonlocal last
        now = time.monotonic()
        print(f"{now - last:7.1f} s  {what}", file=sys.stderr, flush=True)
        last = now

    return told
