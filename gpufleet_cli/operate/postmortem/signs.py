"""What could be seen of an incident, by anybody: error lines, watchdogs, kernel lines, events, ends of containers.

One flat list of dated things, each with its place. Nothing here judges: `times` takes the first of them that
follows the cause, `timeline` draws those together that are alike.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from gpufleet_cli.facts import Origin, Sign
from gpufleet_cli.reason import Case
from gpufleet_cli.verdict import HardwareEvent

WORDS: dict[Sign, str] = {
    Sign.DUMP_SIGNAL_OWN: "asked for Flight Recorder dumps, its own watchdog had fired",
    Sign.DUMP_SIGNAL_OTHER: "wrote its dump because another rank asked for it",
    Sign.ABORT: "ended itself after the timeout",
    Sign.WATCHDOG_STUCK: "its heartbeat monitor found the watchdog stuck",
    Sign.GIL_HELD: "its interpreter lock was held",
    Sign.ASYNC_ERROR: "NCCL returned an error",
    Sign.REMOTE_ERROR: "NCCL told of an error of another rank",
    Sign.STORE_LOST: "lost the store",
    Sign.STORE_WAIT: "waited for the first rank of its group",
    Sign.CLIENTS_JOINED: "not all ranks had joined",
    Sign.RENDEZVOUS_FAILED: "the rendezvous failed",
    Sign.PORT_IN_USE: "the port was in use",
    Sign.CHILD_FAILED: "the agent told of its first failed process",
    Sign.ROOT_CAUSE_BLOCK: "the agent named the first process that exited on its node",
    Sign.CHILD_SIGTERM: "the agent told a sibling to end",
    Sign.AGENT_TOLD_TO_STOP: "the agent was told to stop from outside",
    Sign.PYTHON_EXCEPTION: "a Python exception",
    Sign.CUDA_OOM: "out of GPU memory",
    Sign.HOST_OOM: "killed, its host was out of memory",
    Sign.ECC_ERROR: "an uncorrectable memory error of the GPU",
    Sign.CUDA_ERROR: "a CUDA error",
    Sign.CUDA_PEER_ERROR: "a CUDA error between GPUs",
    Sign.ILLEGAL_ACCESS: "an illegal memory access",
    Sign.DEVICE_ASSERT: "an assertion failed on the GPU",
    Sign.NVLS_FAILED: "NVLink SHARP could not be set up",
    Sign.ROCM_GPU_HANG: "the GPU hangs",
    Sign.PEER_UNREACHABLE: "could not reach a peer",
    Sign.PEER_CLOSED: "a peer closed its connection",
    Sign.NIC_ERROR: "an error of its network adapter",
    Sign.NETWORK_SETUP_FAILED: "the network could not be set up",
    Sign.MISMATCH: "ranks disagreed about a collective",
    Sign.BARRIER_MISSING: "a barrier named the ranks that it missed",
    Sign.DESYNC_REPORT: "a desync report named ranks",
    Sign.RAS_MISSING: "NCCL RAS named processes that it missed",
    Sign.LOADER_KILLED: "a data loader worker was killed",
    Sign.DATA_RETRY: "a read of data was tried again",
    Sign.FS_ERROR: "a file system error",
    Sign.JOB_CANCELLED: "the scheduler ended the job",
    Sign.TASK_EXIT: "a task of the scheduler ended",
    Sign.NODE_FAILED: "a node was reported dead",
    Sign.FATAL_SIGNAL: "ended by a fatal signal",
    Sign.SLOW_SECTION: "a report of slow ranks",
    Sign.NVRX_ABORT: "an in-process restart began",
    Sign.PREEMPTION: "preempted",
    Sign.OTHER_CAUSE: "an error line",
}
"""Signs that something is wrong; those of ordinary work are not among them."""

ENDS = frozenset(
    {
        Sign.ABORT,
        Sign.CHILD_FAILED,
        Sign.ROOT_CAUSE_BLOCK,
        Sign.CHILD_SIGTERM,
        Sign.AGENT_TOLD_TO_STOP,
        Sign.JOB_CANCELLED,
        Sign.TASK_EXIT,
        Sign.STORE_LOST,
        Sign.DUMP_SIGNAL_OTHER,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One dated thing. `kind` draws alike ones together; `who` is a GPU, node or pod (`unit` says which)."""

    at_ns: int
    kind: str
    what: str
    origin: Origin | None
    rank: int | None = None
    who: str = ""
    unit: str = "node"
    is_end: bool = False


def all_of(case: Case, hardware: Iterable[HardwareEvent] = ()) -> tuple[Seen, ...]:
    """Everything dated that says that something is wrong, in order of time; but for events of the hardware that
    have nothing to do with it."""
    unrelated = {(one.origin, one.xid) for one in hardware if one.role == "unrelated"}
    found = [
        *_watchdogs(case),
        *_lines(case),
        *_hardware(case, unrelated),
        *_nodes(case),
        *_pods(case),
        *_events(case),
        *_scheduler(case),
        *_pace(case),
    ]
    return tuple(sorted(found, key=lambda s: (s.at_ns, s.kind, s.rank or 0, str(s.origin or ""))))


def _watchdogs(case: Case) -> Iterator[Seen]:
    for timeout in case.timeouts:
        if timeout.at_ns is None:
            continue
        fact = timeout.fact
        called = fact.op if fact.seq is None else f"{fact.op} {fact.seq}"
        yield Seen(
            at_ns=timeout.at_ns,
            kind=f"watchdog {called}",
            what=f"watchdog gave up on {called} after {fact.ran_ms / 1000:.0f} s",
            origin=fact.origin,
            rank=timeout.rank,
        )


def _lines(case: Case) -> Iterator[Seen]:
    for sign in case.signs:
        fact = sign.fact
        if sign.at_ns is None or fact.sign not in WORDS:
            continue
        if fact.sign is Sign.CLIENTS_JOINED and (fact.joined or 0) >= (fact.expected or 0):
            continue
        yield Seen(
            at_ns=sign.at_ns,
            kind=str(fact.sign),
            what=WORDS[fact.sign],
            origin=fact.origin,
            rank=sign.rank,
            who=sign.node or "",
            is_end=fact.sign in ENDS,
        )


def _hardware(
    case: Case, unrelated: Collection[tuple[Origin | None, int | None]]
) -> Iterator[Seen]:
    for xid in case.xids:
        if (xid.event.origin, xid.event.xid) in unrelated:
            continue
        if xid.relevant and xid.at_ns is not None:
            code = xid.event.xid
            yield Seen(
                at_ns=xid.at_ns,
                kind=f"xid {code}",
                what=f"XID {code}: {xid.reading.summary}",
                origin=xid.event.origin,
                who=_gpu(xid.node, xid.event.pci_bus_id or xid.event.gpu_uuid),
                unit="GPU",
            )
    for switch in case.sxids:
        if switch.relevant and switch.at_ns is not None:
            word = "fatal" if switch.event.fatal else "non-fatal"
            yield Seen(
                at_ns=switch.at_ns,
                kind=f"sxid {switch.event.sxid}",
                what=f"SXid {switch.event.sxid} of an NVSwitch, {word}",
                origin=switch.event.origin,
                who=switch.node or "",
            )
    for host in case.hosts:
        if host.relevant and host.at_ns is not None:
            yield Seen(
                at_ns=host.at_ns,
                kind=f"host {host.event.sign} {host.node}",
                what=f"kernel: {host.event.text[:160]}",
                origin=host.event.origin,
                who=host.node or "",
            )


def _gpu(node: str | None, gpu: str | None) -> str:
    return " ".join(part for part in (node, gpu) if part)


def _nodes(case: Case) -> Iterator[Seen]:
    """Of nodes that hold ranks: not ready, ill by a condition."""
    for node in case.nodes:
        if node.name not in case.topology.by_node:
            continue
        if node.ready in ("False", "Unknown") and node.ready_since_ns is not None:
            yield Seen(
                at_ns=node.ready_since_ns,
                kind="not ready",
                what=f"node not Ready ({node.ready_reason or node.ready})",
                origin=node.origin,
                who=node.name,
            )
        for name, _status, reason, _message, since_ns in node.bad_conditions:
            if since_ns is not None:
                yield Seen(
                    at_ns=since_ns,
                    kind=f"condition {name}",
                    what=f"condition {name} ({reason})" if reason else f"condition {name}",
                    origin=node.origin,
                    who=node.name,
                )


def _pods(case: Case) -> Iterator[Seen]:
    for pod in case.pods:
        if pod.disrupted_ns is not None:
            yield Seen(
                at_ns=pod.disrupted_ns,
                kind="disrupted",
                what=f"pod disrupted: {pod.disruption or 'no reason given'}",
                origin=pod.origin,
                who=pod.name,
                unit="pod",
            )
        for container in pod.containers:
            if container.name != pod.rank_container or not container.exit_code:
                continue
            if container.finished_ns is not None:
                told = f" ({container.reason})" if container.reason else ""
                yield Seen(
                    at_ns=container.finished_ns,
                    kind=f"exit {container.exit_code}",
                    what=f"container ended with exit code {container.exit_code}{told}",
                    origin=pod.origin,
                    who=pod.name,
                    unit="pod",
                    is_end=True,
                )


def _events(case: Case) -> Iterator[Seen]:
    """Warnings of the cluster about the job's pods and nodes."""
    pods = {pod.name for pod in case.pods} | set(case.topology.by_pod)
    for event in case.events:
        at = event.first_ns if event.first_ns is not None else event.at_ns
        about = event.name in pods or event.name in case.topology.by_node
        if event.warning and at is not None and about:
            yield Seen(
                at_ns=at,
                kind=f"event {event.reason}",
                what=f"cluster event {event.reason}: {event.message[:160]}",
                origin=event.origin,
                who=event.name,
                unit="pod" if event.name in pods else "node",
            )


def _scheduler(case: Case) -> Iterator[Seen]:
    for job in case.scheduler_jobs:
        if job.ended_ns is not None and not (job.state or "").startswith("COMPLETED"):
            yield Seen(
                at_ns=job.ended_ns,
                kind="slurm",
                what=f"Slurm: job {job.job_id} {job.state or 'ended'}",
                origin=job.origin,
                is_end=True,
            )
    for node in case.scheduler_nodes:
        if node.since_ns is not None and node.name in case.topology.by_node:
            yield Seen(
                at_ns=node.since_ns,
                kind=f"slurm {node.state}",
                what=f"Slurm: node {node.state}{': ' + node.reason if node.reason else ''}",
                origin=node.origin,
                who=node.name,
            )


def _pace(case: Case) -> Iterator[Seen]:
    steps = case.steps
    if steps.changed_ns is not None and steps.before_s and steps.after_s:
        yield Seen(
            at_ns=steps.changed_ns,
            kind="pace",
            what=f"steps became slower: {steps.before_s:.2f} s before, {steps.after_s:.2f} s since",
            origin=steps.change_origin,
        )
