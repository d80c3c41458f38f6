"""What leaves the reasoning: hypotheses with claims, one verdict, one recommendation, one Triage.

Every type here is shown to somebody; `render` turns it into text or JSON and adds nothing.
Durations are seconds, costs GPU-hours, times aware UTC as Unix nanoseconds (`*_ns`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from gpufleet_cli.facts import Gap, Origin
from gpufleet_cli.node_card import Spares

SCHEMA = "gpufleet.triage/v1"


class Kind(StrEnum):
    """What happened. The most specific kind that the evidence supports wins."""

    RANK_MISSING = "rank-missing"
    RANK_CRASHED = "rank-crashed"
    HARDWARE = "hardware"
    NETWORK = "network"
    HOST_OOM = "host-oom"
    CUDA_OOM = "cuda-oom"
    COLLECTIVE_MISMATCH = "collective-mismatch"
    DATA_STALL = "data-stall"
    STORAGE_STALL = "storage-stall"
    STRAGGLER = "straggler"
    RENDEZVOUS_FAILURE = "rendezvous-failure"
    HEALTHY = "healthy"
    UNDECIDABLE = "undecidable"


class Action(StrEnum):
    """What to do."""

    NONE = "none"
    WATCH = "watch"
    FIX_CODE = "fix-code"
    RESTART_JOB = "restart-job"
    CORDON_AT_CHECKPOINT = "cordon-at-checkpoint"
    EVICT_NOW = "evict-now"
    COLLECT_MORE = "collect-more"


class JobState(StrEnum):
    """Whether the job runs; anything but the last two needs positive evidence."""

    RUNNING = "running"
    STALLED = "stalled"
    ABORTED = "aborted"
    EXITED = "exited"
    UNKNOWN = "unknown"


Proof = Literal["terminated", "own-lines", "recorder", "hint", "older-attempt"]
"""On what a state rests: all rank containers have ended; the attempt's own abort lines, the scheduler's word; a dump
that the timeout wrote; a line that a job which goes on may write as well; or it is that of an
attempt after which another began in the same pods, and nothing shows that this one has stopped."""


class Remedy(StrEnum):
    """Where the cause of a hypothesis lies, which decides what kind of action can help."""

    NODE = "node"  # this node, GPU or adapter: cordon, evict
    PROCESS = "process"  # a process of this rank, cause unknown: a restart helps
    CODE = "code"  # user code or settings: restarting burns GPUs on the same bug
    OUTSIDE = "outside"  # storage, scheduler, rendezvous, fabric: fix it there
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One sentence that stands on one line of evidence.

    `weight` is a log likelihood ratio for its hypothesis (negative: against). `rank` and `at_ns`
    are what it speaks of, where it speaks of one.
    """

    text: str
    origin: Origin | None
    weight: float
    rank: int | None = None
    at_ns: int | None = None

    @property
    def supports(self) -> bool:
        return self.weight >= 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRef:
    """A GPU by all the names that are known. `index` is NVML's, or the local rank's when derived."""

    index: int | None = None
    uuid: str | None = None
    pci_bus_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Culprit:
    """A rank or node without which the stall would not have happened."""

    rank: int | None
    pod: str | None = None
    node: str | None = None
    local_rank: int | None = None
    gpu: GpuRef = GpuRef()
    silent_since_ns: int | None = None
    quieter_by_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveRef:
    """The collective that everybody waited in."""

    group: str | None = None
    desc: str | None = None
    op: str | None = None
    seq: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """One explanation, proposed by one rule. Rules set claims and no confidence.

    `ranks` and `nodes` are the culprits; empty where the kind has nobody to blame. `pods` are those of a
    container that holds several ranks, where nothing tells which. `suspects` is
    the set the evidence leaves when it cannot single anyone out (then `ranks` is empty).
    `degrades` and `worsens` answer questions two and three: None = not known.
    `corrupts` is True when state may be corrupt.
    `generic`: says that a rank stopped and not why, so that a cause may explain it.
    `narrows`: a fault of one GPU known only by its node, so the one silent rank there is its rank.
    `spread`, `touched`: nodes, and ranks, that a fault of something shared touches; none of them is a
    culprit.
    `onset_ns` is when it began. `would_settle` is the cheapest observation that would decide.
    """

    kind: Kind
    rule: str
    summary: str
    claims: tuple[Claim, ...]
    remedy: Remedy
    ranks: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()
    suspects: tuple[int, ...] = ()
    gpu: GpuRef | None = None
    collective: CollectiveRef | None = None
    onset_ns: int | None = None
    degrades: bool | None = None
    degrades_why: str = ""
    slowdown: float | None = None
    worsens: bool | None = None
    worsens_why: str = ""
    corrupts: bool = False
    xid: int | None = None
    narrows: bool = False
    spread: tuple[str, ...] = ()
    touched: tuple[int, ...] = ()
    generic: bool = False
    reason_tag: str = ""
    would_settle: str = ""
    settle_command: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """A weaker explanation, or (when undecidable) the set that the evidence leaves."""

    kind: Kind
    ranks: tuple[int, ...]
    nodes: tuple[str, ...]
    confidence: float
    why_less_likely: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """A loud rank, and why it is innocent."""

    rank: int
    error_lines: int
    why_innocent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Who and what. `confidence` is the belief that kind and culprits are right; when undecidable,
    that the guilty one is among the first alternative's ranks."""

    kind: Kind
    culprits: tuple[Culprit, ...]
    confidence: float
    summary: str
    collective: CollectiveRef
    evidence: tuple[Claim, ...]
    witness_count: int
    loudest: tuple[Witness, ...]
    alternatives: tuple[Alternative, ...]
    remedy: Remedy
    would_settle: str = ""
    settle_command: str | None = None
    ruled_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareEvent:
    """One hardware event shown beside the verdict."""

    at_ns: int | None
    node: str | None
    gpu: str | None
    xid: int | None
    meaning: str
    role: Literal["cause", "consequence", "unrelated"]
    origin: Origin | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One of the three questions, answered. Exactly one of the two costs is set, or neither."""

    id: Literal["stops-job", "degrading-now", "worse-if-left"]
    answer: Literal["yes", "no", "unknown"]
    why: str
    gpu_hours: float | None = None
    gpu_hours_per_hour: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One of the three options with its price; None where it cannot be had or priced."""

    option: Literal["evict-now", "wait-for-boundary", "leave"]
    gpu_hours: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command to paste, already shell-quoted. Nothing runs by itself."""

    run: str
    stops_job: bool
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A number that the arithmetic used, and where it came from."""

    name: str
    value: float | str | None
    unit: str
    source: Literal["flag", "file", "evidence", "default", "unknown", "history"]


Ground = Literal["stopped", "corrupt", "slowed", "arithmetic"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartView:
    """Whether the gang finds room again once `node` is out, as it was when the cluster was read."""

    node: str
    spares: Spares


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """What to do, why, and what it costs. `attempt_token` stands for the pods that this is about;
    `ground` is why an eviction now is right, None where it is not."""

    action: Action
    nodes: tuple[str, ...]
    questions: tuple[Question, ...]
    options: tuple[Option, ...]
    decided_by: Literal["rule", "arithmetic"]
    would_flip: str
    lost_gpu_hours: float | None
    lost_waiting_gpu_hours: float | None
    lost_recompute_gpu_hours: float | None
    commands: tuple[Command, ...]
    why: str
    inputs: tuple[Input, ...]
    attempt_token: str | None = None
    ground: Ground | None = None
    restart: RestartView | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptView:
    """One attempt as the cluster counts them. `state` is a word of its pods: failed, running, ..."""

    number: int
    state: str
    started_ns: int | None
    ended_ns: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """What is known of the job. `attempts` where a manifest lists them."""

    name: str | None
    namespace: str | None
    world_size: int | None
    world_size_source: str
    nodes: int | None
    attempt: int | None
    state: JobState
    state_why: str
    last_step: int | None
    last_step_ns: int | None
    step_s: float | None
    last_checkpoint_step: int | None
    last_checkpoint_ns: int | None
    checkpoint_interval_s: float | None
    watchdog_timeout_s: float | None
    ended_ns: int | None = None
    attempts: tuple[AttemptView, ...] = ()
    group: int | None = None
    groups: tuple[tuple[int, str], ...] = ()
    """Of a LeaderWorkerSet: which group this is of, and every group's number and state when it was gathered."""
    state_proof: Proof | None = None
    step_interval_s: float | None = None
    """Seconds between two steps that are printed, None where too few are."""
    open_work: str | None = None
    """The evaluation, compilation, save or usual pause in which no step is missed, None in none."""


RankStanding = Literal[
    "culprit", "suspect", "witness", "silent", "stuck", "finished", "running", "unknown"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRow:
    """One rank as `gpufleet ranks` shows it. `quiet_s` is seconds from its last ordinary sign of
    life to the end of the analysis; `silence_known` False when nothing tells (no log, filtered)."""

    rank: int
    pod: str | None
    node: str | None
    local_rank: int | None
    gpu: GpuRef
    how_mapped: str
    last_write_ns: int | None
    last_sign_ns: int | None
    quiet_s: float | None
    quiet_error_s: float | None
    silence_known: bool
    last_step: int | None
    collective: CollectiveRef
    standing: RankStanding
    error_lines: int
    note: str
    last_text: str = ""
    origin: Origin | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReport:
    """One process group as `gpufleet dumps` shows it."""

    name: str
    desc: str
    members: tuple[int, ...]
    op: str | None
    seq: int | None
    waiting: tuple[int, ...]
    behind: tuple[int, ...]
    missing: tuple[int, ...]
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpsReport:
    """Flight Recorder analysis alone. `groups` are operations that ranks wait in, most ranks first,
    cut; `edges` a sample of (waits, for, why). `missing` are all ranks without a usable dump, of
    which `unreadable`, `stale` and `early` (the rank moved on afterwards) left a file."""

    dumps: int
    versions: tuple[str, ...]
    groups: tuple[GroupReport, ...]
    roots: tuple[int, ...]
    finding: str
    edges: tuple[tuple[int, int, str], ...]
    missing: tuple[int, ...] = ()
    unreadable: tuple[int, ...] = ()
    stale: tuple[int, ...] = ()
    early: tuple[int, ...] = ()
    waiting: int = 0
    groups_known: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why one rank is, or is not, the culprit. `would_change` is what would turn the answer."""

    rank: int
    row: RankRow | None
    standing: RankStanding
    headline: str
    reasons: tuple[Claim, ...]
    would_change: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRead:
    """One file of the target and what was understood in it."""

    path: str
    size_bytes: int
    formats: tuple[str, ...]
    facts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Triage:
    """The whole answer."""

    target_kind: Literal["directory", "bundle", "job"]
    target_name: str | None
    target_namespace: str | None
    as_of_ns: int | None
    job: JobView
    verdict: Verdict
    hardware: tuple[HardwareEvent, ...]
    recommendation: Recommendation
    ranks: tuple[RankRow, ...]
    dumps: DumpsReport | None
    missing: tuple[Gap, ...]
    files: tuple[FileRead, ...]
