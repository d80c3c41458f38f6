"""Ranks that ran different collectives, as torch, NCCL, DDP and gloo say it.

torch with TORCH_DISTRIBUTED_DEBUG=DETAIL (1.12 and later) prints two fingerprints; the second may
lack fields or their commas. Two ranks that differ do not tell which one is wrong.

>>> from gpufleet_cli.parsers.lines.pasted import read
>>> fact, = read(recognise, "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is "
...     "running collective: CollectiveFingerPrint(SequenceNumber=31, OpType=ALLREDUCE, "
...     "TensorShape=[512], TensorDtypes=BFloat16, TensorDeviceTypes=x), but Rank 1 is running "
...     "collective: CollectiveFingerPrint(SequenceNumber=31, OpType=ALLREDUCE, TensorShape=[1957], "
...     "TensorDtypes=BFloat16, TensorDeviceTypes=x).Collectives differ in the following aspects: "
...     "\\t Tensor Tensor shapes: 512vs 1957")
>>> fact.named_ranks
(0, 1)
>>> fact.detail
'Tensor shapes: 512 vs 1957; rank 0: ALLREDUCE seq 31 [512] BFloat16; rank 1: ALLREDUCE seq 31 [1957] BFloat16'
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpufleet_cli.facts import Fact, Sign
from gpufleet_cli.parsers.lines.signs import Rule, by_literal, cut, make_sign, patterns_of
from gpufleet_cli.parsers.log_line import Following, LogLine

_RUNNING = re.compile(
    r"[Rr]ank (?P<rank>\d{1,7}) is running (?:inconsistent )?collective: (?P<print>[^\n]{0,1200}?)"
    r"(?=, ?but [Rr]ank|\.? ?Collectives differ|$)"
)
_OP = re.compile(r"OpType=(?P<op>[A-Z_0-9]{1,64})")
_SEQ = re.compile(r"SequenceNumber=(?P<seq>\d{1,20}?)(?=\D|$)")
_SHAPE = re.compile(r"TensorShape=(?P<shape>\[[\d, ]{0,200}\])")
_DTYPE = re.compile(r"TensorDtypes?=(?P<dtype>\w{1,64})")
_ASPECTS = re.compile(r"differ in the following aspects: ?(?P<aspects>[^\n]{0,600})")
_AROUND = re.compile(r"calls at and around rank (?P<rank>\d{1,7})")
_DDP = re.compile(
    r"DDP expects same model across all ranks, but Rank (?P<a>\d{1,7}) has (?P<na>\d{1,9}) params, "
    r"(?:while|whereas) rank (?P<b>\d{1,7}) has inconsistent (?P<nb>\d{1,9})"
)
_TRUNCATED = re.compile(
    r"Message truncated ?: received (?P<got>\d{1,12}) bytes instead of (?P<wanted>\d{1,12})"
)
_NBYTES = re.compile(
    r"op\.preamble\.length <= op\.nbytes\. (?P<got>\d{1,15}) vs (?P<wanted>\d{1,15})"
)


def _fingerprints(line: LogLine, following: Following) -> Iterator[Fact]:
    runs = [(int(f["rank"]), _short(f["print"])) for f in _RUNNING.finditer(line.text)][:2]
    aspects = _ASPECTS.search(line.text)
    parts = [_spaced(aspects["aspects"])] if aspects is not None else []
    parts += [f"rank {rank}: {text}" for rank, text in runs]
    yield make_sign(
        Sign.MISMATCH,
        line,
        named_ranks=tuple(rank for rank, _ in runs),
        ranks_are_group_local=True,
        detail="; ".join(parts) if parts else "fingerprints differ",
    )


def _short(fingerprint: str) -> str:
    """Operation, sequence number, shape and type of a fingerprint, as far as it has them."""
    seq = _SEQ.search(fingerprint)
    found = (_OP.search(fingerprint), _SHAPE.search(fingerprint), _DTYPE.search(fingerprint))
    words = [match.group(1) for match in found if match is not None]
    if seq is not None:
        words.insert(1 if found[0] is not None else 0, f"seq {seq['seq']}")
    return " ".join(words) if words else cut(fingerprint, 60)


def _spaced(aspects: str) -> str:
    """The aspects without the doubled word and with room around "vs"."""
    text = re.sub(r"\bTensor Tensor\b", "Tensor", cut(aspects, 120))
    return re.sub(r"(?<=[\w\]])vs ", " vs ", text)


def _nccl(line: LogLine, following: Following) -> Iterator[Fact]:
    found = _AROUND.search(line.text)
    yield make_sign(
        Sign.MISMATCH,
        line,
        named_ranks=(int(found["rank"]),) if found is not None else (),
        ranks_are_group_local=True,
        detail="NCCL: mismatched collective at and around the rank",
    )


def _ddp(line: LogLine, following: Following) -> Iterator[Fact]:
    found = _DDP.search(line.text)
    if found is not None:
        yield make_sign(
            Sign.MISMATCH,
            line,
            named_ranks=(int(found["a"]), int(found["b"])),
            ranks_are_group_local=True,
            detail=f"model parameters: {found['na']} vs {found['nb']}",
        )


def _sizes(line: LogLine, following: Following) -> Iterator[Fact]:
    for pattern, what in ((_TRUNCATED, "bootstrap message"), (_NBYTES, "gloo message")):
        found = pattern.search(line.text)
        if found is not None:
            detail = f"{what}: {found['got']} bytes received, {found['wanted']} expected"
            yield make_sign(Sign.MISMATCH, line, detail=detail)


_RULES: tuple[Rule, ...] = (
    (("Detected mismatch between collectives on ranks",), _fingerprints),
    (("Mismatched collective detected",), _nccl),
    (("DDP expects same model across all ranks",), _ddp),
    (("Message truncated", "op.preamble.length"), _sizes),
)
PATTERNS: tuple[str, ...] = patterns_of(_RULES)


def recognise(line: LogLine, following: Following) -> Iterator[Fact]:
    """Collectives, models or messages that differ between ranks."""
    return by_literal(_RULES, line, following)
