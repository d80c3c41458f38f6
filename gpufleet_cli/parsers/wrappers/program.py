"""What a program puts before its own message: time, rank, process. Nothing is taken off.

    [rank4]:[E321 02:07:08.414640780 ProcessGroupNCCL.cpp:607] text   c10: month 3, day 21, no year
    E0325 20:57:27.620000 2606 site-packages/torch/...py:869] text    glog of Python, absl
    2023-06-20 18:00:09,123 - name - INFO - text                      logging
    [2024-07-24 13:21:33,260] [INFO] [logging.py:96:log_dist] [Rank 0] text   DeepSpeed: a global rank
    2024-05-12 10:00:00,123: rank0[4242][MainThread]: INFO: text      Composer: global rank and pid
    06/20/2023 18:00:09 - INFO - text                                 logging of Hugging Face
    [NeMo I 2025-04-21 20:55:48 nemo_logging:393] text
    INFO 05-12 10:00:00 [core.py:58] text                             vLLM: no year
    Feb 18 04:11:47 text                                              syslog: no year
    [2026-01-01 12:08:32] gpu-n01:4100:4800 [0] file.cc:46 NCCL WARN  host and process id

>>> read("2026-11-29 14:40:04.811 [rank3] INFO trainer: x", near_ns=None).who
(('prefix_rank', 3),)
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from gpufleet_cli.parsers.wrappers.layer import NOBODY, Who, who_of
from gpufleet_cli.timestamps import (
    fraction_ns,
    from_c10,
    from_parts,
    match_ctime,
    match_iso,
    match_syslog,
    match_us,
)


class Own(NamedTuple):
    """A program's own time (None where it has no year and none is known) and who it says it is.

    `yearless` tells that only the year was missing.
    """

    ns: int | None
    zone_stated: bool
    who: Who
    yearless: bool = False


_GLOG = re.compile(r"\s{0,8}\[?[VIWEF](\d{1,2})(\d\d) (\d\d:\d\d:\d\d)\.(\d{1,9})")
_LEVEL = r"(?:DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL|NOTICE|TRACE)"
_LEAD = re.compile(
    rf"\s{{0,8}}(?:\[NeMo [A-Z] |(?:(?:\[[A-Za-z][^\]\[\n]{{0,60}}\]|{_LEVEL})[ :|-]{{0,4}}){{0,2}}[\[(<]?)"
)
_MONTH_DAY = re.compile(r"(\d\d)-(\d\d) (\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(?=[\s\]])")
_RANK = re.compile(
    rf"[\])>]?[ |:-]{{0,4}}(?:\[?{_LEVEL}\]?[ |:-]{{0,3}})?(?:\[[^\]\n]{{1,80}}\] )?"
    r"(?:\[(?P<lower>rank|r)[ =:]?(?P<one>\d{1,6})\](?!:)|\[(?:Rank|RANK) (?P<two>\d{1,6})\]"
    r"|rank(?P<three>\d{1,6})\[(?P<pid>\d{1,10})\]\[)"
)
_NCCL = re.compile(
    r"(?:\[[\d -]{10,11}[\d:.]{8,18}\] )?([A-Za-z0-9][\w.-]{0,254}):(\d{1,10}):(\d{1,10}) \[(\d{1,3})\] "
)


@lru_cache(maxsize=65_536)
def _rank(prefix: str | None, stated: str | None, pid: str | None) -> Who:
    return who_of(
        {
            "prefix_rank": None if prefix is None else int(prefix),
            "rank": None if stated is None else int(stated),
            "pid": None if pid is None else int(pid),
        }
    )


@lru_cache(maxsize=65_536)
def _process(host: str, pid: str) -> Who:
    return who_of({"host": host, "pid": int(pid)})


def read(text: str, *, near_ns: int | None) -> Own | None:
    """Time and speaker of a line without wrappers, None when it states neither."""
    found = _GLOG.match(text)
    if found is not None:
        month, day, hms, fraction = found.groups()
        ns = from_c10(int(month), int(day), hms, fraction_ns(fraction), near_ns=near_ns)
        return Own(ns, False, NOBODY, True)
    lead = _LEAD.match(text)
    pos = 0 if lead is None else lead.end()
    head = text[pos : pos + 1]
    if head.isdigit():
        return _dated(text, pos, near_ns)
    process = _NCCL.match(text)
    if process is not None:
        return Own(None, False, _process(process[1], process[2]))
    return _named_month(text, pos, near_ns) if head.isalpha() else None


def _dated(text: str, pos: int, near_ns: int | None) -> Own | None:
    stamp = match_iso(text, pos) or match_us(text, pos)
    if stamp is None:
        return _month_day(text, pos, near_ns)
    who = NOBODY
    if "ank" in text[stamp.end : stamp.end + 128]:
        found = _RANK.match(text, stamp.end)
        if found is not None:
            who = _rank(found["one"], found["two"] or found["three"], found["pid"])
    else:
        process = _NCCL.match(text)
        if process is not None:
            who = _process(process[1], process[2])
    return Own(stamp.ns, stamp.zone_stated, who)


def _month_day(text: str, pos: int, near_ns: int | None) -> Own | None:
    found = _MONTH_DAY.match(text, pos)
    if found is None or not "01" <= found[1] <= "12":
        process = _NCCL.match(text)
        return None if process is None else Own(None, False, _process(process[1], process[2]))
    ns = from_c10(int(found[1]), int(found[2]), found[3], fraction_ns(found[4]), near_ns=near_ns)
    return Own(ns, False, NOBODY, True)


def _named_month(text: str, pos: int, near_ns: int | None) -> Own | None:
    stamp = match_ctime(text, pos)
    if stamp is not None:
        return Own(stamp.ns, stamp.zone_stated, NOBODY)
    stamp = match_syslog(text, pos, near_ns=near_ns)
    if stamp is not None:
        return Own(stamp.ns, False, NOBODY, True)
    probe = match_syslog(text, pos, near_ns=0)
    return None if probe is None else Own(None, False, NOBODY, True)


def yearless_start(text: str) -> int | None:
    """A stand-in for "near": the stamp of this line in the year 2000, where nothing has a year."""
    return (read(text, near_ns=_IN_2000) or Own(None, False, NOBODY)).ns


_IN_2000 = from_parts(7, 1, 0, near_ns=962_409_600_000_000_000)
