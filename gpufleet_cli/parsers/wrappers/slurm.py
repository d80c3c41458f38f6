"""`srun --label`: the task's number before each line, right aligned.

    12: text
     0: text

The number is a rank only with one task per GPU; with one torchrun per node it is the node's index.
"5: text" is also ordinary text, so the form counts only where nearly every line has it.

>>> peel(" 3: iter 4").who
(('task', 3),)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from gpufleet_cli.parsers.wrappers.layer import Layer, Who, majority, who_of

STARTS = " 0123456789"

_LABEL = re.compile(r" {0,6}(\d{1,6}): ?")


@lru_cache(maxsize=65_536)
def _task(number: str) -> Who:
    return who_of({"task": int(number)})


def fits(sample: Sequence[str]) -> bool:
    """Nearly all lines carry a label; what slurmstepd and srun say themselves does not."""
    labelled = [line for line in sample if not line.startswith(("slurmstepd:", "srun:"))]
    return majority(_LABEL.match, labelled)


def peel(text: str) -> Layer | None:
    """Take off the label."""
    found = _LABEL.match(text)
    return found and Layer(text[found.end() :], who=_task(found[1]))
