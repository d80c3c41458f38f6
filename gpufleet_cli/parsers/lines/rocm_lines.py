"""AMD's ROCm runtime in a job's own log. (Lines of the kernel's driver are read by `kernel_lines`.)

`HW Exception by GPU node-9` has no rank and no stamp, may be glued to a progress bar, and EVERY process of
the node prints it: the number is the KFD node, it points at that GPU and not at the printer (legacy-rocm-build
#4021). `device` is the number alone.

>>> from gpufleet_cli.parsers.lines.pasted import read
>>> fact, = read(recognise, " 12%|# | 60/500 [03:01<22:00, 3.01s/it]HW Exception by GPU node-9 (Agent handle: 0x5) "
...     "reason :GPU Hang")
>>> fact.sign.value, fact.device
('rocm-gpu-hang', '9')
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpufleet_cli.facts import Fact, Sign
from gpufleet_cli.parsers.lines.signs import Rule, by_literal, fixed, make_sign, patterns_of
from gpufleet_cli.parsers.log_line import Following, LogLine

_HANG = re.compile(
    r"HW Exception by GPU node-(?P<node>\d{1,3})[^\n]{0,80}?reason ?: ?(?P<why>[^\n]{1,80})"
)
_FAULT = re.compile(r"Memory access fault by GPU node-(?P<node>\d{1,3})")


def _hang(line: LogLine, following: Following) -> Iterator[Fact]:
    found = _HANG.search(line.text)
    if found is not None:
        why = found["why"].strip()
        yield make_sign(Sign.ROCM_GPU_HANG, line, device=found["node"], detail=why)


def _fault(line: LogLine, following: Following) -> Iterator[Fact]:
    found = _FAULT.search(line.text)
    if found is not None:
        detail = "ROCm: memory access fault"
        yield make_sign(Sign.ILLEGAL_ACCESS, line, device=found["node"], detail=detail)


_RULES: tuple[Rule, ...] = (
    (("HW Exception by GPU node-",), _hang),
    (("Memory access fault by GPU node-",), _fault),
    (("aborting with error : HSA_STATUS_ERROR",), fixed(Sign.CUDA_ERROR)),
)
PATTERNS: tuple[str, ...] = patterns_of(_RULES)


def recognise(line: LogLine, following: Following) -> Iterator[Fact]:
    """Errors that the ROCm runtime reports."""
    return by_literal(_RULES, line, following)
