"""What the evidence says: one frozen record per kind of fact, each with its Origin.

Times are Unix nanoseconds UTC as `int` (`*_ns`), None when the source has none. None always means
"not known". Ranks are global ranks unless a name says otherwise. Rank 0 and GPU 0 are values.
A fact repeats what one place in the evidence says and judges nothing: `reason` resolves who spoke,
`rules` say what follows.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import lru_cache
from typing import Literal

MOST_RANKS = 1 << 17
"""A rank or world size above it is a broken number: every rank has a row in the report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a fact stands: a path inside the target, with a 1-based line or a 0-based entry."""

    path: str
    line: int | None = None
    entry: int | None = None

    def __str__(self) -> str:
        if self.line is not None:
            return f"{self.path}:{self.line}"
        return self.path if self.entry is None else f"{self.path}#{self.entry}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Something that could not be had or not be understood, and what it would settle.

    `rank` is the global rank it speaks of, where it speaks of one.
    """

    what: str
    why: str
    would_settle: str = ""
    rank: int | None = None
    origin: Origin | None = None


# --- Who wrote a line ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Speaker:
    """Who wrote a log line, as far as line, wrapper and path tell; `reason.topology` finds the rank.

    `rank` is a proven global rank: the inner of two `[rankN]:` prefixes, or a rank field of the
    application. `prefix_rank` is the number of a single outer `[rankN]:`, which is global where c10
    or Python wrote it and local where torchrun's role prefix did; parsing cannot tell.
    `task` is the number of `srun --label` or `mpirun --tag-output`, `node_rank` the replica of
    torchx or nemo-run. `attempt` is torchrun's attempt or the container's restart count.
    `cycle` counts in-process restarts (NVRx). `previous`: from `kubectl logs --previous`.
    `stream` names the byte stream (path, and pod or stream name inside a merged file).
    """

    stream: str
    rank: int | None = None
    prefix_rank: int | None = None
    local_rank: int | None = None
    node_rank: int | None = None
    task: int | None = None
    pod: str | None = None
    pod_uid: str | None = None
    container: str | None = None
    namespace: str | None = None
    node: str | None = None
    host: str | None = None
    pid: int | None = None
    attempt: int | None = None
    cycle: int | None = None
    previous: bool = False


# --- Log lines ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRef:
    """A process group as a log line names it: GUID (the group's name) and description."""

    name: str | None
    desc: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchdogTimeout:
    """A rank's watchdog gave up on a collective: the rank waited, so it is a witness.

    `group_rank` is the rank inside the group. `started_ns` = line time minus `ran_ms`.
    Numels are None where unset. `at_ns` is None too where a later line only repeats the timeout.
    `frames` are "function (file:line)" of the failed call, innermost first, where printed.
    """

    speaker: Speaker
    at_ns: int | None
    group: GroupRef | None
    group_rank: int | None
    seq: int | None
    op: str
    numel_in: int | None
    numel_out: int | None
    timeout_ms: int
    ran_ms: int
    origin: Origin
    frames: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatus:
    """Counters of one process group on one rank, as a watchdog or a dump signal prints them.

    `work` is the sequence number that failed (None in dump signals). -1 means none so far; a
    completed number above the enqueued one is garbage of torch 2.3 and is stored as None.
    `from_signal` marks dump-signal lines, which speak of the default group only.
    """

    speaker: Speaker
    at_ns: int | None
    group: GroupRef | None
    group_rank: int | None
    work: int | None
    last_enqueued: int | None
    last_completed: int | None
    from_signal: bool
    origin: Origin


class Sign(StrEnum):
    """What kind of thing a log line says. The comment gives the guilt by itself."""

    DUMP_SIGNAL_OWN = "dump-signal-own"  # own watchdog fired: witness
    DUMP_SIGNAL_OTHER = "dump-signal-other"  # alive, own watchdog saw no timeout: weak suspect
    ABORT = "abort"  # consequence: the process ends itself after a timeout or error
    WATCHDOG_STUCK = "watchdog-stuck"  # suspect when it is the first line of an incident
    GIL_HELD = "gil-held"  # suspect
    ASYNC_ERROR = (
        "async-error"  # NCCL returned an error; guilt by `detail` (cuda, system, remote...)
    )
    REMOTE_ERROR = "remote-error"  # points at `named_ranks` or `peer`
    STORE_LOST = "store-lost"  # consequence: the store's host ended
    STORE_WAIT = "store-wait"  # waits for group rank 0 (ncclUniqueId): points there
    CLIENTS_JOINED = "clients-joined"  # `joined` of `expected` at the store
    RENDEZVOUS_FAILED = "rendezvous-failed"
    RENDEZVOUS_DONE = "rendezvous-done"  # attempt boundary and map
    PORT_IN_USE = "port-in-use"  # configuration
    CHILD_FAILED = (
        "child-failed"  # agent: first failed child on this node (exit_code, local_rank, pid)
    )
    ROOT_CAUSE_BLOCK = "root-cause-block"  # agent's block: first process to exit on that node
    CHILD_SIGTERM = "child-sigterm"  # agent ends a sibling (pid): that rank is innocent
    AGENT_TOLD_TO_STOP = "agent-told-to-stop"  # outside: preemption, time limit, deletion
    PYTHON_EXCEPTION = "python-exception"  # traceback's last line; self unless `after` text
    CUDA_OOM = "cuda-oom"  # self, unless a consequence
    HOST_OOM = "host-oom"  # killed by the OOM killer, as the job's own log or Slurm says
    ECC_ERROR = "ecc-error"  # self, hardware
    CUDA_ERROR = "cuda-error"  # self, ambiguous
    CUDA_PEER_ERROR = "cuda-peer-error"  # NVLink or peer access: node or fabric
    ILLEGAL_ACCESS = "illegal-access"  # self, code unless the kernel says otherwise
    DEVICE_ASSERT = "device-assert"  # self, code
    NVLS_FAILED = "nvls-failed"  # node-level hardware or fabric state
    ROCM_GPU_HANG = "rocm-gpu-hang"  # points at the KFD node `device` of this node
    PEER_UNREACHABLE = (
        "peer-unreachable"  # completion status 12, EFA 4124/13, ...: points at `peer`
    )
    PEER_CLOSED = "peer-closed"  # consequence; names `peer`
    NIC_ERROR = "nic-error"  # self: this node's adapter or port
    NIC_RECOVERED = "nic-recovered"
    NETWORK_SOCKET = "network-socket"  # transport is plain sockets
    NETWORK_FAST = "network-fast"  # transport is IB, RoCE, EFA, FasTrak
    NETWORK_SETUP_FAILED = "network-setup-failed"  # plugin, interface, EFA security group
    MISMATCH = "mismatch"  # fingerprints differ, or NCCL says so
    BARRIER_MISSING = "barrier-missing"  # monitored barrier names ranks
    DESYNC_REPORT = "desync-report"  # NCCL_DESYNC_DEBUG names ranks (group-local)
    RAS_MISSING = "ras-missing"  # NCCL RAS names missing or dead processes
    LOADER_KILLED = "loader-killed"  # a data loader worker was killed (shm, OOM)
    DATA_RETRY = "data-retry"  # a download or read is being retried
    FS_ERROR = "fs-error"  # ENOSPC, EIO, ESTALE, EDQUOT
    SAVE_STARTED = "save-started"  # `step` where known
    SAVE_STAGED = "save-staged"  # staged or scheduled: never durable
    SAVE_DURABLE = "save-durable"  # finished, finalised
    EVAL_STARTED = "eval-started"
    COMPILE_STARTED = "compile-started"
    FINISHED = "finished"  # training completed
    JOB_CANCELLED = "job-cancelled"  # scheduler: time limit, node failure, preemption in `detail`
    TASK_EXIT = "task-exit"  # srun: task N exited (exit_code or signal in `detail`)
    NODE_FAILED = "node-failed"  # scheduler or Ray names a dead node
    FATAL_SIGNAL = "fatal-signal"  # segfault, bus error, abort printed by the process itself
    SLOW_SECTION = (
        "slow-section"  # straggler report: `value` s for `named_ranks`, `expected_value` median
    )
    SHIPPER_LOSS = "shipper-loss"  # the log pipeline says it dropped lines
    LOG_UNAVAILABLE = (
        "log-unavailable"  # "unable to retrieve container logs": a gap, never a last line
    )
    NVRX_ABORT = "nvrx-abort"  # in-process restart names interrupted ranks
    QUORUM_CHANGE = "quorum-change"  # torchft
    STEP_COMMITTED = "step-committed"  # torchft should_commit=True
    PREEMPTION = "preemption"  # external, nobody to blame
    OTHER_CAUSE = "other-cause"  # a cause line that fits nothing above; `detail` says what


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSign:
    """One meaningful log line. Only the fields that the line states are set.

    `named_ranks` are ranks the line names; they are inside `group` when `ranks_are_group_local`.
    `peer` is an address or host the line points at. `text` is the line itself, cut at 400
    characters. `value` and `expected_value` are seconds unless the Sign says otherwise.
    """

    sign: Sign
    speaker: Speaker
    at_ns: int | None
    text: str
    origin: Origin
    detail: str | None = None
    group: GroupRef | None = None
    named_ranks: tuple[int, ...] = ()
    ranks_are_group_local: bool = False
    peer: str | None = None
    device: str | None = None
    exit_code: int | None = None
    local_rank: int | None = None
    pid: int | None = None
    joined: int | None = None
    expected: int | None = None
    step: int | None = None
    value: float | None = None
    expected_value: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPoint:
    """One step line: the step number, when, and the printed seconds per step where there are any."""

    at_ns: int | None
    step: int
    step_s: float | None
    line: int | None
    data_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The step lines of one speaker in one stream: a thinned series, in file order, newest kept.

    `series` keeps a validation bar apart from training: only "train" counts as progress of the job.
    """

    speaker: Speaker
    points: Sequence[StepPoint]
    total_steps: int | None
    path: str
    series: Literal["train", "validation"] = "train"


@dataclass(frozen=True, slots=True, kw_only=True)
class Writes:
    """When one speaker wrote in one stream, and its habit of writing.

    `last_normal_ns` is the last line before the speaker's first complaint (watchdog, abort,
    traceback, teardown): the last sign of ordinary work. `habit_s` is the median and `habit_max_s`
    the longest gap between its ordinary lines; None with fewer than three lines.
    `cut` is True when the stream ends inside a line, `buffered` when its size is a multiple of
    4096 as well (unflushed stdout). `dated` False means that no line had a time: then only
    `last_line` orders writes inside the same stream. `rank_filtered` is True when a launcher's
    filter keeps other ranks out of this stream, so their silence is unknown. `year_given`: nothing in
    the stream tells the year of its stamps, it is that of another file of the target, or a placeholder.
    """

    speaker: Speaker
    first_ns: int | None
    last_ns: int | None
    last_normal_ns: int | None
    last_line: int
    last_normal_line: int | None
    last_text: str
    last_normal_text: str
    lines: int
    habit_s: float | None
    habit_max_s: float | None
    zone_stated: bool
    dated: bool
    cut: bool
    buffered: bool
    complained: bool
    path: str
    rank_filtered: bool = False
    year_given: bool = False


class Link(StrEnum):
    """How an identity link was learned, most trusted first."""

    LOG = "log"  # the rank's own lines in this attempt
    NCCL_INIT = "nccl-init"
    AGENT = "agent"  # torchrun's rendezvous line
    RAY = "ray"
    TOPOLOGY_FILE = "topology.json"
    POD_SPEC = "pod-spec"
    METRICS_LABELS = "metrics-labels"
    KERNEL = "kernel-log"
    SCHEDULER = "scheduler"
    DERIVED = "derived"


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityLink:
    """Any two or more names of one process, pod, node or GPU that one place states together.

    `rank_in` is the size of the communicator for NCCL init lines, where `rank` is global only if
    it equals the world size. PCI addresses are as written; `reason.topology` normalises them.
    `comm` is the communicator's id where the line has one; `comm_ready` tells whether that line says
    that its set-up began (False) or ended (True).
    """

    how: Link
    origin: Origin
    rank: int | None = None
    rank_in: int | None = None
    node_rank: int | None = None
    local_rank: int | None = None
    pod: str | None = None
    pod_uid: str | None = None
    container: str | None = None
    namespace: str | None = None
    node: str | None = None
    host: str | None = None
    pid: int | None = None
    pod_ip: str | None = None
    gpu_index: int | None = None
    pci_bus_id: str | None = None
    gpu_uuid: str | None = None
    attempt: int | None = None
    cycle: int | None = None
    stream: str | None = None
    comm: str | None = None
    comm_ready: bool | None = None


# --- Kernel logs, metrics ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class XidEvent:
    """One NVIDIA driver error of a GPU, from a kernel log or a transition of the DCGM gauge.

    `at_ns` None means that it happened, but before what we can see (a sticky gauge), or that the
    log counts from boot and the boot time is not known (`boot_s` then has the seconds).
    `resolution_s` is how wrong the time can be by itself: 0 for a kernel log, one scrape for a
    gauge. `pci_bus_id` is as written. `repeats` counts further lines of the same burst.
    `severity`, `unit`, `subcode`, `link` are filled for NVLink 5 codes 144-150; `recovery` for 154;
    `unit` is "GPC 7, TPC 7" for 13. `words` are the hexadecimal words of the line (74, 144-150).
    `year_stated` False: the line has no year, `at_ns` stands in a wrong one until
    `parsers.kernel_log.with_year` puts it near a known time. `gpu_instance` is a MIG instance.
    `seen_ns` is the first sample that shows an undated gauge value.
    """

    xid: int
    node: str | None
    pci_bus_id: str | None
    at_ns: int | None
    text: str
    origin: Origin
    source: Literal["kernel", "dcgm", "log"]
    gpu_uuid: str | None = None
    gpu_index: int | None = None
    boot_s: float | None = None
    resolution_s: float = 0.0
    pid: int | None = None
    process: str | None = None
    severity: str | None = None
    unit: str | None = None
    subcode: int | None = None
    link: int | None = None
    words: tuple[int, ...] = ()
    recovery: str | None = None
    caused_by: int | None = None
    repeats: int = 0
    zone_stated: bool = True
    year_stated: bool = True
    gpu_instance: int | None = None
    seen_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SxidEvent:
    """One NVSwitch error; `fatal` as the line says."""

    sxid: int
    node: str | None
    pci_bus_id: str | None
    at_ns: int | None
    fatal: bool
    link: int | None
    text: str
    origin: Origin
    boot_s: float | None = None
    zone_stated: bool = True
    year_stated: bool = True
    resolution_s: float = 0.0
    repeats: int = 0


class HostSign(StrEnum):
    """What a kernel line says about the host."""

    OOM_KILL = "oom-kill"
    NFS_DOWN = "nfs-not-responding"
    NFS_OK = "nfs-ok"
    HUNG_TASK = "hung-task"
    FS_ERROR = "filesystem-error"
    LOCKUP = "lockup"
    PANIC = "panic"
    MACHINE_CHECK = "machine-check"
    PCIE_ERROR = "pcie-error"
    PCIE_LINK_DOWN = "pcie-link-down"
    PCIE_DEGRADED = "pcie-degraded"  # a link that came up below its width or speed
    NIC_DOWN = "nic-down"
    NIC_UP = "nic-up"
    GPU_OFF_BUS = "gpu-off-bus"  # the driver's line without an Xid number
    AMD_GPU_ERROR = "amd-gpu-error"
    REBOOT = "reboot"
    THERMAL = "thermal"
    SEGFAULT = "segfault"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEvent:
    """A kernel line that is not an Xid. `pod_uid` comes from the cgroup path, with dashes.

    `fatal` is False for corrected errors, None where the line does not say. `device` is a network
    interface, an adapter or a disk; `repeats` counts further lines of the same burst.
    """

    sign: HostSign
    node: str | None
    at_ns: int | None
    text: str
    origin: Origin
    boot_s: float | None = None
    pid: int | None = None
    process: str | None = None
    pod_uid: str | None = None
    pci_bus_id: str | None = None
    server: str | None = None
    fatal: bool | None = None
    zone_stated: bool = True
    year_stated: bool = True
    device: str | None = None
    container_id: str | None = None
    repeats: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesEnd:
    """A GPU's metric series that ends before its neighbours' do: the GPU or exporter is gone."""

    node: str | None
    gpu_uuid: str | None
    pci_bus_id: str | None
    gpu_index: int | None
    last_ns: int
    others_last_ns: int
    origin: Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLogSpan:
    """What one kernel log covers, so that "no Xid" can be said of a stretch of time and no more.

    `boot_first_s`/`boot_last_s` are seconds since boot, for logs that count from it. `lines` is the
    number of lines read.
    """

    node: str | None
    first_ns: int | None
    last_ns: int | None
    boot_first_s: float | None
    boot_last_s: float | None
    lines: int
    zone_stated: bool
    year_stated: bool
    origin: Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeBoot:
    """When a node booted, so that kernel logs that count from it get their times.

    `error_s` is how wrong it can be; `how` says which line or metric told it.
    """

    node: str | None
    boot_ns: int
    error_s: float
    how: str
    origin: Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """One DCGM field of one GPU over the samples at hand; blanks and NaN are left out.

    `field` is the DCGM name before 4.6. `changed_ns` is the last sample whose value differs from
    the one before it. `median` serves to compare a GPU with its peers.
    """

    field: str
    node: str | None
    gpu_uuid: str | None
    pci_bus_id: str | None
    gpu_index: int | None
    first: float
    last: float
    low: float
    high: float
    median: float
    first_ns: int | None
    last_ns: int | None
    changed_ns: int | None
    samples: int
    origin: Origin


# --- Kubernetes, Slurm ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerState:
    """One container's status. `state` is waiting, running or terminated."""

    name: str
    state: Literal["waiting", "running", "terminated", "unknown"]
    reason: str | None
    message: str | None
    exit_code: int | None
    started_ns: int | None
    finished_ns: int | None
    restarts: int
    has_gpu: bool
    last_exit_code: int | None = None
    last_reason: str | None = None
    last_finished_ns: int | None = None
    container_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpPlace:
    """Where a container's Flight Recorder dumps land: `prefix` and the rank's number, in the container.

    `volume`: the pod's volume that holds them, None for the container's own layer. `below`: the prefix
    within the volume, None where the spec does not tell it. `image`: the container's. `is_closed`: nothing can be
    written there, by the spec (a read-only root or mount).
    """

    prefix: str
    image: str | None = None
    volume: str | None = None
    kind: str | None = None
    host_path: str | None = None
    claim: str | None = None
    below: str | None = None
    is_closed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PodState:
    """One pod. `rank_container` is the name of the container that runs the ranks, where known.

    `rendezvous` is "static" when the spec fixes the node rank, "c10d" when torchrun's agents sort
    themselves and `node_rank` is no more than a guess. `nproc` is processes per pod as the spec says, `nnodes` how many
    such pods there are.
    `attempt` is the controller's restart attempt. `terminating`: asked to go, still there. `sorts_as`: the host name
    by which torchrun's agents are put in order, where they are.
    """

    name: str
    namespace: str | None
    uid: str | None
    node: str | None
    pod_ip: str | None
    phase: str | None
    reason: str | None
    created_ns: int | None
    deleted_ns: int | None
    containers: tuple[ContainerState, ...]
    rank_container: str | None
    disruption: str | None
    disrupted_ns: int | None
    gpus: int | None
    labels: tuple[tuple[str, str], ...]
    node_rank: int | None
    owner: str | None
    origin: Origin
    scheduled: bool | None = None
    unscheduled_why: str | None = None
    nproc: int | None = None
    nnodes: int | None = None
    rendezvous: Literal["static", "c10d"] | None = None
    attempt: int | None = None
    hostname: str | None = None
    terminating: bool = False
    dumps: DumpPlace | None = None
    sorts_as: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """One node. `bad_conditions` are (type, status, reason, message, since_ns) known to mean ill.

    `doubtful_conditions` are of types that no source at hand describes: shown, never scored alone.
    """

    name: str
    ready: Literal["True", "False", "Unknown"] | None
    ready_since_ns: int | None
    ready_reason: str | None
    unschedulable: bool
    bad_conditions: tuple[tuple[str, str, str, str, int | None], ...]
    gpus_capacity: int | None
    gpus_allocatable: int | None
    nvlink_domain: str | None
    provider_id: str | None
    internal_ip: str | None
    created_ns: int | None
    labels: tuple[tuple[str, str], ...]
    taints: tuple[str, ...]
    origin: Origin
    uid: str | None = None
    boot_id: str | None = None
    doubtful_conditions: tuple[tuple[str, str, str, str, int | None], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterEvent:
    """One Kubernetes event. `age_error_s` is the width of a relative age such as `14m`.

    `at_ns`/`age_s` is the last time it was seen, `first_*` the first, `count` how often.
    """

    reason: str
    kind: str
    name: str
    namespace: str | None
    message: str
    warning: bool
    at_ns: int | None
    age_s: float | None
    age_error_s: float
    origin: Origin
    first_ns: int | None = None
    first_age_s: float | None = None
    count: int = 1
    node: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLease:
    """A node's heartbeat lease: the kubelet was alive at `renewed_ns`. The best clock of a death."""

    node: str
    renewed_ns: int
    duration_s: float
    origin: Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletReply:
    """Whether one node's kubelet replied when the API server asked it for logs of its pods.

    `replied` is False where no read of the node came through: `pods` are those whose logs were asked
    for, `said` is the API server's word on the first of them, `at_ns` when it was asked.
    """

    node: str
    replied: bool
    pods: tuple[str, ...]
    said: str
    at_ns: int | None
    origin: Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerJob:
    """What a Slurm command says of a job (or step): state words are Slurm's own."""

    job_id: str
    name: str | None
    state: str | None
    reason: str | None
    exit_code: str | None
    nodes: tuple[str, ...]
    started_ns: int | None
    ended_ns: int | None
    batch_host: str | None
    tasks: int | None
    origin: Origin
    scheduler: Literal["slurm"] = "slurm"
    zone_stated: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerNode:
    """What Slurm says of a node."""

    name: str
    state: str
    reason: str | None
    since_ns: int | None
    origin: Origin
    zone_stated: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class JobNumbers:
    """Values of job.json or of the command line; None where not given. Times in ns, durations in s."""

    source: Literal["flag", "file"]
    name: str | None = None
    namespace: str | None = None
    world_size: int | None = None
    gpus_per_node: int | None = None
    state: str | None = None
    checkpoint_interval_s: float | None = None
    last_checkpoint_ns: int | None = None
    last_checkpoint_step: int | None = None
    step_s: float | None = None
    watchdog_timeout_s: float | None = None
    restart_s: float | None = None
    boot_ns: int | None = None
    captured_ns: int | None = None
    origin: Origin | None = None


# --- Flight Recorder -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenOp:
    """One recorded operation that is not done, with what is needed to compare and to show it.

    `entry` is its place in the file. `seq` is collective_seq_id, or p2p_seq_id when `is_p2p`.
    `peers` are (rank inside the group, is_send) of a send, a receive or all of a batch.
    `sizes` are the input shapes, as "64x64,8". `started` is None where nothing was timed.
    `gave_up`: retired or aborted without being completed, so the timeout had passed.
    `frames` are "function (file:line)", innermost first, at most eight.
    """

    entry: int
    seq: int
    op: str
    is_p2p: bool
    sizes: str
    dtypes: str
    created_ns: int | None
    started: bool | None = None
    timeout_ms: int | None = None
    peers: tuple[tuple[int, bool], ...] = ()
    gave_up: bool = False
    frames: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpGroup:
    """One process group in one rank's dump, reduced to what localisation needs.

    `members` are global ranks, None where the dump does not say (Gloo). `last_enqueued` and
    `last_completed` count collectives; they come from `pg_status` alone when `from_status`, and may
    then count sends and receives instead.
    `last_p2p` is the last p2p number. `open_ops` are the oldest open ones, `open_count` is all.
    `done` packs (seq, completion time in ns) of the last full-sync collectives as int64 pairs.
    """

    name: str
    desc: str
    members: tuple[int, ...] | None
    last_enqueued: int | None = None
    last_completed: int | None = None
    last_p2p: int | None = None
    last_done_ns: int | None = None
    from_status: bool = False
    open_count: int = 0
    open_ops: tuple[OpenOp, ...] = ()
    done: bytes = b""

    def __reduce__(self) -> tuple[object, ...]:
        """Members travel as few numbers and are one tuple for all who name them: the group of the
        whole world stands in the dump of each of its sixteen thousand ranks."""
        values = tuple(getattr(self, name) for name in _GROUP_FIELDS)
        return _dump_group, (packed_members(self.members), values)


_GROUP_FIELDS = tuple(field.name for field in fields(DumpGroup) if field.name != "members")


def _dump_group(members: range | bytes | None, values: tuple[object, ...]) -> DumpGroup:
    given = dict(zip(_GROUP_FIELDS, values, strict=True))
    return DumpGroup(members=_unpacked_members(members), **given)  # type: ignore[arg-type]


def packed_members(members: tuple[int, ...] | None) -> range | bytes | None:
    if members is None:
        return None
    if len(members) > 1 and members[1] != members[0]:
        step = members[1] - members[0]
        regular = range(members[0], members[-1] + (1 if step > 0 else -1), step)
        if len(regular) == len(members) and tuple(regular) == members:
            return regular
    return array("q", members).tobytes()


@lru_cache(maxsize=65_536)
def _unpacked_members(members: range | bytes | None) -> tuple[int, ...] | None:
    if members is None:
        return None
    return tuple(members) if isinstance(members, range) else tuple(memoryview(members).cast("q"))


@dataclass(frozen=True, slots=True, kw_only=True)
class LastOp:
    """The last collective that a rank put into its queue: what `gpufleet ranks` shows."""

    group: int
    seq: int
    op: str
    created_ns: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankDump:
    """One rank's Flight Recorder file. `rank` comes from the file name: no dump says its rank.

    `newest_ns` and `oldest_ns` are times inside the file, by the node's own clock. `dumped_ns` is
    when the dump was made, where that can be told: some entry was completed and not yet retired.
    `timeout_ms` is the shortest timeout of its groups. `timed_out` is an entry whose timeout had
    passed. `retired_only`: only `retired` tells what is done (Gloo), failures included.
    `only_active`: done entries were left out. `program` is the end of the ring, packed (see
    `gpufleet_cli.reason.programs`).
    """

    rank: int
    path: str
    version: str
    backend: str
    entries: int
    wrapped: bool
    oldest_ns: int | None
    newest_ns: int | None
    groups: tuple[DumpGroup, ...]
    timed_out: int | None
    has_start_stamps: bool
    has_frames: bool
    only_active: bool
    origin: Origin
    dumped_ns: int | None = None
    timeout_ms: int | None = None
    retired_only: bool = False
    last_op: LastOp | None = None
    program: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class GangHeld:
    """Why a gang does not start, by what holds it back: a queue's object, or the job's own `suspend`."""

    kind: str
    name: str
    reason: str
    message: str
    since_ns: int | None
    origin: Origin
    namespace: str | None = None
    queue: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartRoom:
    """Whether the gang would find room without one node, judged when the cluster was read. `places` None:
    it could not be told."""

    node: str
    places: bool | None
    why: str
    cause: str | None
    nodes: tuple[str, ...]
    spare_nodes: int
    origin: Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStack:
    """Where the main thread of a rank's process was; `frames` innermost first. A moment, no verdict: what
    waits in a collective and what waits for a file may both be victims."""

    rank: int
    state: str
    frames: tuple[str, ...]
    origin: Origin


Fact = (
    WatchdogTimeout
    | GroupStatus
    | LogSign
    | Progress
    | Writes
    | IdentityLink
    | XidEvent
    | SxidEvent
    | HostEvent
    | KernelLogSpan
    | NodeBoot
    | SeriesEnd
    | GpuReading
    | PodState
    | NodeState
    | NodeLease
    | KubeletReply
    | ClusterEvent
    | GangHeld
    | RestartRoom
    | SchedulerJob
    | SchedulerNode
    | JobNumbers
    | RankDump
    | ProcessStack
    | Gap
)
