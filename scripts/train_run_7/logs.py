"""The pods' logs, as `kubectl logs --timestamps` prints a pod that torchrun `--tee 3` runs in."""

from __future__ import annotations

from collections.abc import Callable

from train_run_7.world import (
    ALL_RANKS_LOG,
    BUS_IDS,
    CULPRIT,
    FIRST_STEP,
    GPUS,
    JOB,
    LAST_STEP,
    LAST_STEP_NS,
    LOG_EVERY,
    LOUDEST,
    MS,
    NODES,
    SAVE_NS,
    SAVED_STEPS,
    SEQ,
    TIMEOUT_MS,
    US,
    WORLD,
    Lines,
    Node,
    S,
    enqueued_at,
    moment,
    rfc3339,
    step_end,
)


def c10(node: Node, at_ns: int, rank: int, source: int, message: str, severity: str = "E") -> str:
    """A line of PyTorch's C++ side: month without a leading zero, nine digits, no year."""
    local = at_ns + node.offset_ns
    when = moment(local)
    stamp = f"{severity}{when.month}{when:%d %H:%M:%S}.{local % S:09d}"
    return f"[rank{rank}]:[{stamp} ProcessGroupNCCL.cpp:{source}] {message}"


def python_glog(node: Node, at_ns: int, severity: str, source: str, message: str) -> str:
    local = at_ns + node.offset_ns
    stamp = f"{severity}{moment(local):%m%d %H:%M:%S}.{local % S // MS:03d}000"
    return f"{stamp} 1 site-packages/torch/distributed/elastic/{source}] {message}"


def titan(node: Node, at_ns: int, local_rank: int, message: str) -> str:
    local = at_ns + node.offset_ns
    stamp = f"{moment(local):%Y-%m-%d %H:%M:%S},{local % S // MS:03d}"
    return f"[default{local_rank}]:[titan] {stamp} - root - INFO - {message}"


def pid_of(rank: int) -> int:
    return 412 + rank % GPUS


def start_lines(node: Node) -> Lines:
    """The agent's rendezvous, NCCL's start and the trainer's first words."""
    at = step_end(FIRST_STEP) - 74 * S + node.within(0, 400 * MS)
    ranks = list(node.ranks)
    result = (
        "[default] Rendezvous complete for workers. Result:",
        "  restart_count=0",
        f"  master_addr={JOB}-worker-0",
        "  master_port=29500",
        f"  group_rank={node.index}",
        f"  group_world_size={NODES}",
        f"  local_ranks={list(range(GPUS))}",
        f"  role_ranks={ranks}",
        f"  global_ranks={ranks}",
        f"  role_world_sizes={[WORLD] * GPUS}",
        f"  global_world_sizes={[WORLD] * GPUS}",
    )
    first = python_glog(node, at, "I", "agent/server/api.py:525", result[0])
    lines: Lines = [(at, first), *((at, text) for text in result[1:])]
    for rank in ranks:
        local_rank = rank % GPUS
        init = at + 21 * S + node.within(0, 900 * MS)
        head = f"[default{local_rank}]:{node.pod}:{pid_of(rank)}:{pid_of(rank)} [{local_rank}]"
        comm = 0x55D3_0000_0000 + node.within(0, 1 << 24) * 16
        who = (
            f"ncclCommInitRank comm {comm:#x} rank {rank} nranks {WORLD} cudaDev {local_rank} "
            f"nvmlDev {local_rank} busId {BUS_IDS[local_rank]}000 commId 0x5a1c09e7d3b64f20"
        )
        lines.append((init, f"{head} NCCL INFO Using network IB"))
        lines.append((init + 30 * MS, f"{head} NCCL INFO {who} - Init START"))
        lines.append((init + 9 * S, f"{head} NCCL INFO {who} - Init COMPLETE"))
    for after_s, text in (
        (33, "Building 2-D device mesh with ['dp_replicate', 'dp_shard'], [128, 8]"),
        (38, f"Loading the checkpoint at step {FIRST_STEP}."),
        (71, "Finished loading the checkpoint in 32.71 seconds."),
        (72, f"Training starts at step {FIRST_STEP + 1}"),
    ):
        lines.append((at + after_s * S, titan(node, at + after_s * S, 0, text)))
    return lines


def step_lines(node: Node, loss_of: Callable[[int], float]) -> Lines:
    lines: Lines = []
    speakers = range(GPUS) if node.index in ALL_RANKS_LOG else range(1)
    for step in range(FIRST_STEP + LOG_EVERY, LAST_STEP + 1, LOG_EVERY):
        for local_rank in speakers:
            late = node.within(1 * MS, 12 * MS)
            if step == LAST_STEP and node.ranks[local_rank] == CULPRIT:
                late = 6 * MS
            at = step_end(step) + late
            tps = 9_790 + node.within(0, 14)
            text = (
                f"step: {step}  loss: {loss_of(step):7.4f}  grad_norm:  0.{step * 37 % 400 + 500}"
                f"  memory: 61.24GiB(77.31%)  tps: {tps:,}  tflops: 471.10  mfu: 47.63%"
            )
            lines.append((at, titan(node, at, local_rank, text)))
    for step in SAVED_STEPS:
        begin = step_end(step) + node.within(1 * MS, 9 * MS)
        end = step_end(step) + SAVE_NS - node.within(1 * MS, 9 * MS)
        for local_rank in speakers:
            saving = f"Saving a full checkpoint at step {step}"
            saved = f"Finished saving the checkpoint in {(end - begin) / S:.2f} seconds."
            lines.append((begin, titan(node, begin, local_rank, saving)))
            lines.append((end, titan(node, end, local_rank, saved)))
    return lines


WHY_TIMEOUT = (
    "This is most likely caused by incorrect usages of collectives, e.g., wrong sizes used across "
    "ranks, the order of collectives is not same for all ranks or the scheduled collective, for "
    "some reason, didn't run. Additionally, this can be caused by GIL deadlock or other reasons "
    "such as network errors or bugs in the communications library (e.g. NCCL), etc. "
)


def witness_lines(node: Node, rank: int) -> Lines:
    """What a waiting rank prints: its time-out, its dump, its end."""
    ran_ms = TIMEOUT_MS + (4 if rank == LOUDEST else 9 + node.within(0, 84))
    fired = enqueued_at(rank) + ran_ms * MS
    group = f"[PG ID 0 PG GUID 0(default_pg) Rank {rank}]"
    work = (
        f"[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={SEQ}, "
        f"OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)={TIMEOUT_MS}) "
        f"ran for {ran_ms} milliseconds before timing out."
    )
    saw_other = rank != LOUDEST and node.rng.random() < 0.1
    source = f" rank {LOUDEST}" if saw_other else "this local rank"
    dump, end = fired + node.within(180 * MS, 420 * MS), fired + 11_650 * MS
    said: list[tuple[int, int, str]] = [
        (fired, 685, work),
        (
            fired + 60 * US,
            2252,
            f"{group}  failure detected by watchdog at work sequence id: {SEQ} PG status: "
            f"last enqueued work: {SEQ}, last completed work: {SEQ - 1}",
        ),
        (fired + 85 * US, 732, "Stack trace of the failed collective: "),
        (
            dump,
            1794,
            f"{group} Received a dump signal due to a collective timeout from {source} and we will "
            f"try our best to dump the debug info. Last enqueued NCCL work: {SEQ}, "
            f"last completed NCCL work: {SEQ - 1}.{WHY_TIMEOUT}",
        ),
        (
            dump + 90 * US,
            1589,
            f"{group} ProcessGroupNCCL preparing to dump debug info. "
            "Include stack trace: 1, only active collectives: 0",
        ),
        (
            end,
            746,
            f"[Rank {rank}] Some NCCL operations have failed or timed out. Due to the asynchronous "
            "nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete "
            "data.",
        ),
        (
            end + 40 * US,
            760,
            f"[Rank {rank}] To avoid data inconsistency, we are taking the entire process down.",
        ),
        (
            end + 1 * MS,
            2068,
            f"{group} Process group watchdog thread terminated with exception: {work}",
        ),
    ]
    if rank == LOUDEST:
        broadcast = "Broadcasting flight-recorder dump signal to other processes via TCPStore."
        said.insert(3, (fired + 4 * MS, 1858, f"{group} {broadcast}"))
    if saw_other:
        observed = "Observed flight recorder dump signal from another rank via TCPStore."
        said.insert(3, (dump - 70 * US, 1870, f"{group} {observed}"))
    tee = f"[default{rank % GPUS}]:"
    lines: Lines = [(at, tee + c10(node, at, rank, code, text)) for at, code, text in said]
    lines[3:3] = [(fired + 90 * US, tee + text) for text in FAILED_STACK]
    what = (
        f"terminate called after throwing an instance of 'c10::DistBackendError'\n{tee}  what():  "
    )
    lines.append((end + 2 * MS, f"{tee}{what}{group} Process group watchdog thread terminated"))
    return lines


FAILED_STACK = (
    "#0 all_reduce from /opt/venv/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py:2930",
    "#1 wrapper from /opt/venv/lib/python3.12/site-packages/torch/distributed/c10d_logger.py:81",
    "#2 clip_grad_norm_ from /opt/train/torchtitan/distributed/utils.py:391",
    "#3 train_step from /opt/train/torchtitan/train.py:508",
    "#4 train from /opt/train/torchtitan/train.py:566",
)


def agent_lines(node: Node) -> Lines:
    """The pod's torchrun agent: a child ended, so it ends the rest."""
    at = LAST_STEP_NS + 612_139 * MS + node.within(20 * MS, 120 * MS)
    failed = next(r for r in node.ranks if r != CULPRIT)
    api = "multiprocessing/api.py"
    lines: Lines = []
    if CULPRIT in node.ranks:  # the only child that did not end by itself; the agent waits for it
        text = f"Sending process {pid_of(CULPRIT)} closing signal SIGTERM"
        lines.append((at, python_glog(node, at, "W", f"{api}:900", text)))
        return lines
    text = (
        f"failed (exitcode: -6) local_rank: {failed % GPUS} (pid: {pid_of(failed)}) "
        "of binary: /opt/venv/bin/python3"
    )
    lines.append((at, python_glog(node, at, "E", f"{api}:874", text)))
    block = (
        "=" * 60,
        "/opt/train/torchtitan/train.py FAILED",
        "-" * 60,
        "Root Cause (first observed failure):",
        "[0]:",
        f"  time      : {moment(at + node.offset_ns):%Y-%m-%d_%H:%M:%S}",
        f"  host      : {node.pod}",
        f"  rank      : {failed} (local_rank: {failed % GPUS})",
        f"  exitcode  : -6 (pid: {pid_of(failed)})",
        "  error_file: <N/A>",
        f"  traceback : Signal 6 (SIGABRT) received by PID {pid_of(failed)}",
        "=" * 60,
    )
    return lines + [(at + 2 * MS, text) for text in block]


def pod_log(node: Node, loss_of: Callable[[int], float]) -> str:
    lines = start_lines(node) + step_lines(node, loss_of)
    for rank in node.ranks:
        if rank != CULPRIT:
            lines += witness_lines(node, rank)
    lines += agent_lines(node)
    ordered = sorted(range(len(lines)), key=lambda i: (lines[i][0], i))
    text, got = [], 0
    for i in ordered:
        at, line = lines[i]
        last_words = at == LAST_STEP_NS + 6 * MS and CULPRIT in node.ranks
        delay = 0 if last_words else node.within(12 * US, 70 * US)
        for part in line.split("\n"):  # one stream: a later line never has an earlier stamp
            got = max(at + node.offset_ns + delay, got + 2 * US)
            text.append(f"{rfc3339(got)} {part}\n")
    return "".join(text)
