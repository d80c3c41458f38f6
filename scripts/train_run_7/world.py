"""The invented job: its nodes, its clocks, its steps, and the moment that it stopped."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random

JOB, NAMESPACE, SEED = "train-run-7", "train", 20260311
NODES, GPUS = 128, 8
WORLD = NODES * GPUS
CULPRIT, LOUDEST = 800, 344
BUS_IDS = ("4e", "5f", "6b", "7c", "9b", "ab", "bc", "cd")
# Pods whose trainer logs on every rank; elsewhere only local rank 0 does, so that the absence of
# step lines says nothing about a rank.
ALL_RANKS_LOG = (0, 17, 43, 64, 99, 100, 101, 127)

US, MS, S = 10**3, 10**6, 10**9
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
STEP_NS, TIMEOUT_MS, SAVE_NS = 418 * MS, 600_000, 4_830 * MS
FIRST_STEP, LAST_STEP, LOG_EVERY = 26_161, 48_211, 150
SAVED_STEPS = (28_333, 32_628, 36_923, 41_218, 45_513)  # half an hour apart
LAST_STEP_NS = 1_773_200_467_112 * MS  # 2026-03-11T03:41:07.112Z, the end of the last whole step
# The bus drops the GPU late in the next step: all but the last all-reduce of that step are done.
FAULT_NS = LAST_STEP_NS + 229 * MS
OPS_PER_STEP, OPS_BEFORE = 4, 5 + len(SAVED_STEPS)  # default group: 5 at start, 1 at each save
SEQ = (LAST_STEP - FIRST_STEP) * OPS_PER_STEP + OPS_BEFORE + OPS_PER_STEP
RING = 40

Lines = list[tuple[int, str]]  # (time the container runtime got the line, its text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node: its pod, its name, how far its clock is ahead, its own randomness."""

    index: int
    offset_ns: int
    rng: Random = field(repr=False)

    @property
    def name(self) -> str:
        return f"gpu-node-{317 + self.index:04d}"

    @property
    def pod(self) -> str:
        return f"{JOB}-worker-{self.index}"

    @property
    def ip(self) -> str:
        return f"10.112.{self.index // 32}.{10 + self.index % 32}"

    @property
    def ranks(self) -> range:
        return range(self.index * GPUS, (self.index + 1) * GPUS)

    def within(self, low_ns: int, high_ns: int) -> int:
        """A random number of nanoseconds; `random()` alone, because it never changes."""
        return low_ns + int(self.rng.random() * (high_ns - low_ns))


def nodes() -> list[Node]:
    made = []
    for index in range(NODES):
        rng = Random(SEED * 1000 + index)
        spread = rng.random() + rng.random() + rng.random() - 1.5
        offset_ns = 0 if index == CULPRIT // GPUS else int(spread * 60 * MS)
        made.append(Node(index=index, offset_ns=offset_ns, rng=rng))
    return made


def moment(ns: int) -> datetime:
    return EPOCH + timedelta(seconds=ns // S)


def rfc3339(ns: int) -> str:
    """RFC3339Nano as kubectl prints it: trailing zeros are trimmed."""
    return f"{moment(ns):%Y-%m-%dT%H:%M:%S}.{ns % S:09d}".rstrip("0").rstrip(".") + "Z"


def step_end(step: int) -> int:
    """When a step ended, in true time; a save blocks the steps after it."""
    saves = sum(step <= saved < LAST_STEP for saved in SAVED_STEPS)
    return LAST_STEP_NS - (LAST_STEP - step) * STEP_NS - saves * SAVE_NS


def enqueued_at(rank: int) -> int:
    """When a witness entered the all-reduce that never ended: in the middle of the next step."""
    jitter = Random(SEED * 7 + rank).random()
    return LAST_STEP_NS + 239 * MS + (0 if rank == LOUDEST else int((0.5 + jitter) * 9 * MS))
