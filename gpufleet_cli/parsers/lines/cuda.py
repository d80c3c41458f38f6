"""CUDA and HIP errors as torch, NCCL, cuBLAS and JAX print them.

`CUDA error: WORDS`, `Cuda failure 'WORDS'`, `Cuda failure 999 'WORDS'`, `HIP error: WORDS`,
`CUDA_ERROR_NAME`, and the allocator's `CUDA out of memory. Tried to allocate ...`. The device number is the
one inside the process, often 0. An error about uncorrectable memory is hardware; an illegal access is
mostly code, sometimes a fabric fault on all GPUs of a node; a launch failure may be anything: the
kernel log decides. "more than 1EB memory" after a timeout is garbage of an aborted broadcast (nccl #1284).

>>> from gpufleet_cli.parsers.lines.pasted import read
>>> fact, = read(recognise, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has "
...     "a total capacity of 79.15 GiB of which 1.20 GiB is free.")
>>> fact.sign.value, fact.device, fact.detail
('cuda-oom', 'cuda:3', 'tried to allocate 2.00 GiB')
>>> [fact] = read(recognise, "RuntimeError: CUDA error: uncorrectable ECC error encountered")
>>> fact.sign.value
'ecc-error'
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpufleet_cli.facts import Fact, Sign
from gpufleet_cli.parsers.lines.effects import EFFECT
from gpufleet_cli.parsers.lines.nccl_prefix import nccl_speaker
from gpufleet_cli.parsers.lines.signs import Rule, by_literal, make_sign, patterns_of
from gpufleet_cli.parsers.log_line import Following, LogLine

_WORDS = re.compile(
    r"(?:CUDA error|CUDA driver error|HIP error|Cuda failure|CUDA failure|HIP failure)"
    r"(?: \d{1,4})?:? ?'?(?P<words>[^'\n]{1,160})"
)
_NAMES = re.compile(r"\b(?P<name>CUDA_ERROR_[A-Z_]{3,60}|hipError[A-Za-z]{3,60})\b")
_LIBRARY = re.compile(r"\b(?P<name>CU(?:BLAS|DNN|SOLVER|FFT)_STATUS_[A-Z_]{3,60})")
_TRIED = re.compile(r"Tried to allocate (?P<size>more than 1EB|[\d.]{1,12} ?[KMGTPE]?i?B)")
_OOM_DEVICE = re.compile(r"\(?GPU (?P<device>\d{1,3})\b")
_ASSERT = re.compile(
    r"(?P<place>[\w./-]{1,300}:\d{1,6}): [^\n]{0,300}?block: \[\d{1,9},\d{1,9},\d{1,9}\], "
    r"thread: \[(?P<thread>\d{1,5}),\d{1,5},\d{1,5}\] Assertion [`'\"]?(?P<what>[^\n]{0,200}?)[`'\"]? failed"
)
_KINDS: tuple[tuple[Sign, tuple[str, ...]], ...] = (
    (
        Sign.CUDA_PEER_ERROR,
        (
            "peer gpu memory over nvlink",
            "nvlink error",
            "nvlink_uncorrectable",
            "error_contained",
            "peer access",
            "peer_access",
        ),
    ),
    (Sign.ECC_ERROR, ("uncorrectable ecc", "ecc_uncorrectable")),
    (Sign.DEVICE_ASSERT, ("device-side assert", "error_assert")),
    (
        Sign.ILLEGAL_ACCESS,
        (
            "illegal memory access",
            "illegal_address",
            "misaligned address",
            "misaligned_address",
            "illegal instruction",
            "invalid program counter",
            "illegaladdress",
        ),
    ),
    (Sign.CUDA_OOM, ("out of memory", "out_of_memory", "outofmemory")),
)


def cuda_sign(words: str) -> Sign:
    """The sign of an error's words or symbolic name.

    >>> cuda_sign("Invalid access of peer GPU memory over nvlink or a hardware error").value
    'cuda-peer-error'
    >>> cuda_sign("unspecified launch failure").value
    'cuda-error'
    """
    low = words.lower()
    for sign, marks in _KINDS:
        if any(mark in low for mark in marks):
            return sign
    return Sign.CUDA_ERROR


def _error(line: LogLine, following: Following) -> Iterator[Fact]:
    if "(NVLS)" in line.text or "CUDA out of memory" in line.text:
        return
    found = _WORDS.search(line.text)
    words = found["words"] if found is not None else None
    if words is None:
        name = _NAMES.search(line.text)
        words = name["name"] if name is not None else None
    if words is not None:
        effect = EFFECT if "driver shutting down" in words else ""
        yield make_sign(
            cuda_sign(words), line, speaker=nccl_speaker(line), detail=f"{effect}{words}"
        )


def _named(line: LogLine, following: Following) -> Iterator[Fact]:
    """A symbolic name, where the line does not spell the error out as well."""
    if _WORDS.search(line.text) is None:
        yield from _error(line, following)


def _library(line: LogLine, following: Following) -> Iterator[Fact]:
    found = _LIBRARY.search(line.text) if "CUDA error: " not in line.text else None
    if found is not None and found["name"].endswith(
        ("EXECUTION_FAILED", "INTERNAL_ERROR", "MAPPING_ERROR", "NOT_INITIALIZED", "ALLOC_FAILED")
    ):
        yield make_sign(Sign.CUDA_ERROR, line, detail=found["name"])


def _out_of_memory(line: LogLine, following: Following) -> Iterator[Fact]:
    tried, device = _TRIED.search(line.text), _OOM_DEVICE.search(line.text)
    is_garbage = "more than 1EB" in line.text
    size = f"tried to allocate {tried['size']}" if tried is not None else "out of memory"
    yield make_sign(
        Sign.CUDA_OOM,
        line,
        device=f"cuda:{device['device']}" if device is not None else None,
        detail=f"{EFFECT}{size}: garbage of an aborted broadcast" if is_garbage else size,
    )


def _assertion(line: LogLine, following: Following) -> Iterator[Fact]:
    """An assertion inside a kernel. Every thread prints it: one of each warp is enough."""
    found = _ASSERT.search(line.text)
    if found is not None and int(found["thread"]) % 32 == 0:
        yield make_sign(Sign.DEVICE_ASSERT, line, detail=f"{found['place']}: {found['what']}")


_RULES: tuple[Rule, ...] = (
    (
        (
            "CUDA error: ",
            "CUDA driver error: ",
            "HIP error: ",
            "Cuda failure ",
            "CUDA failure ",
            "HIP failure ",
        ),
        _error,
    ),
    (("CUDA_ERROR_", "hipError"), _named),
    (("CUBLAS_STATUS_", "CUDNN_STATUS_", "CUSOLVER_STATUS_", "CUFFT_STATUS_"), _library),
    (
        (
            "CUDA out of memory",
            "HIP out of memory",
            "RESOURCE_EXHAUSTED: Out of memory while trying to allocate",
            "Tried to allocate more than 1EB",
        ),
        _out_of_memory,
    ),
    ((",0,0] Assertion ",), _assertion),
)
PATTERNS: tuple[str, ...] = patterns_of(_RULES)


def recognise(line: LogLine, following: Following) -> Iterator[Fact]:
    """Errors that a GPU or its driver reported to this process."""
    return by_literal(_RULES, line, following)
