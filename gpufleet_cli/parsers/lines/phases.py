"""Phases that are not steps: evaluation, compilation, and the end of training.

Evaluation and compilation explain a pause of some ranks. Markers of the end (torchtitan, HF Trainer,
Lightning, Megatron-LM, fairseq, in-house) make what follows teardown and no incident.

>>> from gpufleet_cli.parsers.lines.pasted import read
>>> [fact.sign.value for fact in read(recognise, "[titan] 2025-04-01 00:25:41 - root - INFO - Training completed")]
['finished']
>>> for line in (
...     "Validation DataLoader 0:  12%|#2 | 6/50 [00:10<01:15,  3.40s/it]",  # Lightning
...     "Validation: iteration 3/50",  # NeMo 2
...     "AUTOTUNE mm(8192x4096, 4096x14336)",  # TorchInductor
...     "V1103 02:48:08.805986 34281 torch/_dynamo/guards.py:2813] [0/1] [__recompiles] Recompiling function forward in model.py:502",
...     "Validation DataLoader 0: 100%|##########| 50/50 [02:50<00:00,  3.40s/it]",
... ):
...     print([fact.sign.value for fact in read(recognise, line)])
['eval-started']
['eval-started']
['compile-started']
['compile-started']
[]
>>> [fact.sign.value for fact in read(recognise, "11/28/2025 21:00:29 - INFO - train -   Running validation...")]
['eval-started']
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpufleet_cli.facts import Fact, Sign
from gpufleet_cli.parsers.lines.signs import Rule, by_literal, cut, make_sign, patterns_of
from gpufleet_cli.parsers.log_line import Following, LogLine

_STEP = re.compile(r"(?:step|iteration|max_steps=)s?[ =:]{0,3}(?P<step>\d{1,12})", re.IGNORECASE)
_DENIED = re.compile(
    r"\b(?:not|never|before|until|will|when|if|after|unless|expected|fail(?:ed)?|error)\b", re.I
)
_BATCH = re.compile(
    r"Validation(?: DataLoader \d{1,3})?: (?:iteration \d{1,9}/\d|\s{0,3}\d{1,3}%\|)"
)
_DONE = re.compile(r"\b(?:done|finished|took|complete[d]?|compilation time)\b", re.IGNORECASE)


def _finished(line: LogLine, following: Following) -> Iterator[Fact]:
    mark = next((words for words in _END_MARKS if words in line.text), "")
    around = line.text[: line.text.find(mark)][-40:]
    if _DENIED.search(around) is not None or "SIGTERM" in line.text:
        return
    found = _STEP.search(line.text)
    yield make_sign(
        Sign.FINISHED,
        line,
        step=int(found["step"]) if found is not None else None,
        detail=cut(line.text[_word_start(line.text, line.text.find(mark)) :], 120),
    )


def _word_start(text: str, position: int) -> int:
    return text.rfind(" ", 0, position) + 1


def _evaluation(line: LogLine, following: Following) -> Iterator[Fact]:
    if _DENIED.search(line.text) is None and _DONE.search(line.text) is None:
        found = _STEP.search(line.text)
        step = int(found["step"]) if found is not None else None
        yield make_sign(Sign.EVAL_STARTED, line, step=step)


def _progress_of_evaluation(line: LogLine, following: Following) -> Iterator[Fact]:
    """Lightning's bar and NeMo's counter: written all the time that it lasts, but for its end."""
    if _BATCH.search(line.text) is not None and "100%" not in line.text:
        yield make_sign(Sign.EVAL_STARTED, line)


def _compilation(line: LogLine, following: Following) -> Iterator[Fact]:
    if _DONE.search(line.text) is None:
        yield make_sign(Sign.COMPILE_STARTED, line)


_END_MARKS = (
    "Training completed",
    "Training complete",
    "training completed",
    "training complete",
    "Training finished",
    "training finished",
    "Training is finished",
    "Finished training",
    "finished training",
    "Training done",
    "Training is done",
    "after training is done",
    "done training in ",
    "raining loop finished",
    "raining loop completed",
    "Trainer.fit` stopped",
    "train_runtime",
    "exiting program at iteration",
    "exiting program after ",
    "Reached max steps",
    "All epochs completed",
    "Process group destroyed",
)
_RULES: tuple[Rule, ...] = (
    (_END_MARKS, _finished),
    (
        (
            "unning validation",
            "unning evaluation",
            "unning Evaluation",
            "unning Prediction",
            "unning eval ",
            "unning eval.",
            "unning sanity",
            "tarting validation",
            "tarting evaluation",
            "tarting eval ",
            "egin validation",
            "egin evaluation",
            "eginning validation",
            "eginning evaluation",
            "Evaluating on ",
            "Evaluating iter ",
            "Evaluating model",
            "Evaluating perplexity",
            "valuation started",
            "alidation started",
        ),
        _evaluation,
    ),
    (("Validation DataLoader ", "Validation: "), _progress_of_evaluation),
    (
        (
            "ompiling each TransformerBlock",
            "ompiling the ",
            "ompiling model",
            "ompiling module",
            "ompiling graph",
            "ompiling and loading fused kernels",
            "ompiling dataset index builder",
            "ompiling with ",
            "with torch.compile",
            "Building extension module",
            "AUTOTUNE mm(",
            "AUTOTUNE addmm(",
            "AUTOTUNE bmm(",
            "AUTOTUNE bias_addmm(",
            "AUTOTUNE convolution(",
            "AUTOTUNE flex_attention(",
            "[__recompiles] Recompiling function ",
        ),
        _compilation,
    ),
)
PATTERNS: tuple[str, ...] = patterns_of(_RULES)


def recognise(line: LogLine, following: Following) -> Iterator[Fact]:
    """Beginnings of evaluation and compilation, and the end of training."""
    return by_literal(_RULES, line, following)
