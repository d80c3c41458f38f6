"""What single log lines say, by program. `RECOGNISERS` is the order of work.

A module with `SAMPLED = True` knows lines that every step prints: the scanner may hand it only some.
Patterns run over raw bytes, so none holds a character that JSON escapes (quotes, tabs, `<`, `>`, `&`).
"""

from __future__ import annotations

from gpufleet_cli.parsers import kernel_lines
from gpufleet_cli.parsers.lines import (
    checkpoints,
    cuda,
    desync,
    elastic_agent,
    elastic_failure,
    heartbeat,
    identity,
    launchers,
    log_pipeline,
    mismatch,
    nccl_errors,
    nccl_init,
    nccl_network,
    nccl_plugins,
    nccl_ras,
    nccl_sockets,
    nvrx,
    phases,
    process_end,
    ray_lines,
    rendezvous,
    rocm_lines,
    slurm_lines,
    steps,
    storage,
    stragglers,
    torchft,
    torchft_steps,
    tracebacks,
    watchdog,
)
from gpufleet_cli.parsers.log_line import Recogniser

RECOGNISERS: tuple[Recogniser, ...] = (
    watchdog,
    heartbeat,
    desync,
    mismatch,
    nccl_init,
    nccl_network,
    nccl_sockets,
    nccl_plugins,
    nccl_errors,
    nccl_ras,
    elastic_agent,
    elastic_failure,
    rendezvous,
    tracebacks,
    cuda,
    process_end,
    storage,
    kernel_lines,
    rocm_lines,
    slurm_lines,
    launchers,
    ray_lines,
    log_pipeline,
    nvrx,
    torchft,
    identity,
    checkpoints,
    phases,
    stragglers,
    steps,
    torchft_steps,
)
