"""Checkpoints: a save that started, was staged, or is durable.

Only a finished, finalised save counts as durable. Scheduled, staged, queued, or one rank's own part of a
checkpoint is staged. torchtitan prints the same words for a finished save and, with async checkpoints, for
one that is only staged (from the first version to the newest), so its line is never durable; its last
step's is. A checkpoint that was loaded was durable before: its sign has a step and no time.

    Megatron-LM   saving checkpoint at iteration    4050 to DIR in torch_dist format
                    successfully saved checkpoint from iteration    4050 to DIR [ t 1/2, p 1/1 ]
                  scheduled an async checkpoint save at iteration    4050 to DIR
    torchtitan    Saving the checkpoint (or staging if async is enabled).
                  Finished saving the checkpoint (or staging if async is enabled)in 5.53 seconds.
    DeepSpeed     [Torch] Checkpoint global_step600 is about to be saved! / [Torch] Saved F. / is ready now!
    NeMo          Scheduled async checkpoint save for F / Async checkpoint save for step 10 (F) finalized successfully.
    HF Trainer    Saving model checkpoint to DIR/checkpoint-500
    fairseq       Saved checkpoint F (epoch 2 @ 1000 updates, score 3.2) (writing took 3.2 seconds)
    orbax         Finished saving checkpoint (finalized tmp dir) to `DIR/1000`.

>>> from gpufleet_cli.parsers.lines.pasted import read
>>> fact, = read(recognise, "  successfully saved checkpoint from iteration    4050 to /ckpt/run7")
>>> fact.sign.value, fact.step, fact.detail
('save-durable', 4050, '/ckpt/run7')
>>> fact, = read(recognise, "Async checkpoint save for step 10 (/ckpt/s10) finalized successfully.")
>>> fact.sign.value, fact.step
('save-durable', 10)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpufleet_cli.facts import Fact, LogSign, Sign
from gpufleet_cli.parsers.lines.signs import Handler, Rule, by_literal, make_sign, patterns_of
from gpufleet_cli.parsers.log_line import Following, LogLine

_STEPS = (
    re.compile(r"Global Checkpoint Save : Rank: \d{1,7} : Iteration: (?P<step>\d{1,12})"),
    re.compile(r"global[ _-]?step[ =_:-]{0,3}(?P<step>\d{1,12})"),
    re.compile(r"(?:iteration|\biter|\bstep|Iteration|\bStep)s?[ =_:#\t-]{0,8}(?P<step>\d{1,12})"),
    re.compile(r"@ (?P<step>\d{1,12}) updates"),
    re.compile(r"(?:checkpoint|ckpt|step|iter|ba)[-_/](?P<step>\d{1,12})\b"),
    re.compile(r"(?:batch[= ]|\bba)(?P<step>\d{1,12})\b"),
    re.compile(r"tmp dir\) to \S{0,400}/(?P<step>\d{1,12})\b"),
)
_PATH = re.compile(r"(?P<path>(?:[a-z][a-z0-9]{1,8}:/)?/[^\s'\"`),\[\]]{2,400})")
_SECONDS = re.compile(
    r"(?:in|took|duration:|Save duration:) {0,4}(?P<seconds>\d{1,7}(?:\.\d{1,6})?) ?s(?:ec|econds?)?\b"
)
_NOT_A_SAVE = re.compile(
    r"\b(?:will be|would|every|not|no|never|unable|cannot|could|fail(?:ed|ure)?|skip(?:ped|ping)?|if|"
    r"disabled?|interval|frequency|deleted?|removed?|config\w*|should|last saved|last checkpoint|without|error|"
    r"ago|previous(?:ly)?|resum(?:e|ed|ing)|load(?:ed|ing)|callbacks?)\b",
    re.IGNORECASE,
)
_PART = re.compile(
    r"\b(?:shards?|partitions?|part|in[- ]memory|RAM|ramdisk|tmpfs)\b|/dev/shm/|\blocal (?:disk|nvme|ssd|copy)\b",
    re.I,
)
"""One rank's piece, or a copy that dies with the node."""
_ASYNC = re.compile(
    r"\b(?:stag(?:ed|ing)|schedul(?:ed|ing)|queued|enqueued|background|upload(?:ing)?|asynchronously)\b",
    re.I,
)


def _save(sign: Sign, line: LogLine, note: str = "") -> LogSign:
    path, seconds = _PATH.search(line.text), _SECONDS.search(line.text)
    where = path["path"].rstrip(".") if path is not None else None
    return make_sign(
        sign,
        line,
        step=step_of(line.text),
        value=float(seconds["seconds"]) if seconds is not None else None,
        detail=": ".join(word for word in (note, where) if word) or None,
    )


def step_of(text: str) -> int | None:
    """The step that a save's line speaks of: stated, or inside the checkpoint's name.

    >>> step_of("Saving model checkpoint to out/checkpoint-500"), step_of("[Torch] Saved a/global_step600/x.pt.")
    (500, 600)
    """
    for pattern in _STEPS:
        found = pattern.search(text)
        if found is not None:
            return int(found["step"])
    return None


def _plain(sign: Sign, note: str = "") -> Handler:
    def handler(line: LogLine, following: Following) -> Iterator[Fact]:
        yield _save(sign, line, note)

    return handler


def _torch_part(line: LogLine, following: Following) -> Iterator[Fact]:
    """One rank's file of a DeepSpeed checkpoint: it starts, or it is there; never the whole.

    A part that is there has no step: the save of that step is still open.
    """
    if "[Torch] Saved " in line.text or "zero checkpoint saved" in line.text:
        yield replace(_save(Sign.SAVE_STAGED, line, "part"), step=None)
    else:
        yield _save(Sign.SAVE_STARTED, line, "part")


def _titan(line: LogLine, following: Following) -> Iterator[Fact]:
    yield _save(Sign.SAVE_STAGED, line, "staged, or finished if saving is not async")


def _generic(line: LogLine, following: Following) -> Iterator[Fact]:
    """In-house words around "checkpoint": the verb's form decides; denials and plans say nothing, and neither a piece nor
    a copy on the node is the whole."""
    text = line.text
    if any(literal in text for literal in _SPECIFIC) or _NOT_A_SAVE.search(text) is not None:
        return
    if _ASYNC.search(text) is not None or _PART.search(text) is not None or "async" in text.lower():
        yield _save(Sign.SAVE_STAGED, line)
    elif _STARTS.search(text) is not None and _ENDS.search(text) is None:
        yield _save(Sign.SAVE_STARTED, line)
    else:
        yield _save(Sign.SAVE_DURABLE, line)


_STARTS = re.compile(
    r"(?:saving|writing|storing|creating|preparing to save|start\w{0,4} sav)", re.IGNORECASE
)
_ENDS = re.compile(
    r"(?:finish|complete|done|success|\btook\b|saved|written|wrote|finali[sz]ed|commit)",
    re.IGNORECASE,
)


def _loaded(line: LogLine, following: Following) -> Iterator[Fact]:
    """A checkpoint that could be read again was durable, at a time that this line does not know."""
    sign = _save(Sign.SAVE_DURABLE, line, "loaded")
    if sign.step is not None and _LOADED_NOT.search(line.text) is None:
        yield replace(sign, at_ns=None, value=None)


_LOADED_NOT = re.compile(r"\b(?:not|no|failed|unable|cannot|could)\b", re.IGNORECASE)
_SPECIFIC_RULES: tuple[Rule, ...] = (
    (("saving checkpoint at iteration",), _plain(Sign.SAVE_STARTED)),
    (("uccessfully saved checkpoint from iteration",), _plain(Sign.SAVE_DURABLE)),
    (("scheduled an async checkpoint save",), _plain(Sign.SAVE_STAGED, "scheduled")),
    (("Saved async checkpoint",), _plain(Sign.SAVE_DURABLE)),
    (("Saving async checkpoint",), _plain(Sign.SAVE_STAGED, "scheduled")),
    (
        (
            "Saving the checkpoint",
            "Saving a full checkpoint",
            "Saving a model only checkpoint",
            "Saving a model weights only checkpoint",
        ),
        _plain(Sign.SAVE_STARTED),
    ),
    (("Finished saving the checkpoint",), _titan),
    (("Last step checkpoint completed",), _plain(Sign.SAVE_DURABLE, "last step")),
    (("is about to be saved!",), _plain(Sign.SAVE_STARTED)),
    (("[Torch] Saving ", "[Torch] Saved ", "zero checkpoint saved"), _torch_part),
    (("is ready now!",), _plain(Sign.SAVE_DURABLE)),
    (("Global Checkpoint Save : Rank",), _plain(Sign.SAVE_STAGED, "save returned")),
    (("Scheduled async checkpoint save",), _plain(Sign.SAVE_STAGED, "scheduled")),
    (("finalized successfully",), _plain(Sign.SAVE_DURABLE, "finalised")),
    (("Saving model checkpoint to", "Saving current state to"), _plain(Sign.SAVE_STARTED)),
    (
        (
            "Model weights saved in ",
            "Optimizer state saved in ",
            "Random states saved in ",
            "tokenizer config file saved in ",
            "Special tokens file saved in ",
        ),
        _plain(Sign.SAVE_STAGED, "part"),
    ),
    (("saving model to ", "reparing to save checkpoint"), _plain(Sign.SAVE_STARTED)),
    (("finalized tmp dir",), _plain(Sign.SAVE_DURABLE, "finalised")),
)
_SPECIFIC = tuple(literal for literals, _ in _SPECIFIC_RULES for literal in literals)
_GENERIC = (
    tuple(
        f"{verb} {noun}"
        for verb in (
            "aved",
            "aving",
            "rote",
            "riting",
            "aved the",
            "aving the",
            "aved a",
            "aving a",
        )
        for noun in ("checkpoint", "ckpt", "model checkpoint", "full checkpoint")
    )
    + tuple(
        f"heckpoint {words}"
        for words in (
            "saved",
            "written",
            "complete",
            "finished",
            "finalized",
            "committed",
            "save complete",
            "save finished",
            "save done",
            "was saved",
            "was written",
            "has been saved",
            "successfully saved",
            "save started",
            "upload",
            "for step",
            "for iteration",
            "at step",
            "at iteration",
        )
    )
    + (
        "kpt saved",
        "kpt written",
    )
)
_RULES: tuple[Rule, ...] = (
    *_SPECIFIC_RULES,
    (_GENERIC, _generic),
    (
        (
            "successfully loaded checkpoint from",
            "Loading the checkpoint at step",
            "Loading the checkpoint from",
            "Finished loading the checkpoint",
            "Continuing training from global step",
            "Resuming training from step",
            "Resuming from step",
            "Resuming from checkpoint",
            "resumed from step",
            "Loaded checkpoint",
            "loaded checkpoint",
        ),
        _loaded,
    ),
)
PATTERNS: tuple[str, ...] = patterns_of(_RULES)


def recognise(line: LogLine, following: Following) -> Iterator[Fact]:
    """Saves and loads of checkpoints."""
    return by_literal(_RULES, line, following)
