"""What stands before a kernel message: time, host and tag, in every form that tools print.

    [1235733.431527] MSG                              dmesg: seconds since boot
    <4>[  123.456789] MSG                             dmesg --raw, also `kern  :err   : [...]` of -x
    [Mon Feb 18 04:11:47 2025] MSG                    dmesg -T: local time, any language, drifts
    [Feb18 04:11] MSG / [  +0.000316] MSG             dmesg -H: a minute, then deltas
    2025-02-18T04:11:47,123456+01:00 MSG              dmesg --time-format iso
    Feb 18 04:11:47 HOST kernel: [812345.101] MSG     syslog and journalctl: no year, no zone
    2025-02-18T04:11:47+0100 HOST kernel: MSG         journalctl -o short-iso, short-iso-precise
    2025-02-18T04:11:47.123456+00:00 HOST kernel: MSG rsyslog
    Tue 2025-02-18 04:11:47 CET HOST kernel: MSG      journalctl -o short-full
    1739848307.123456 HOST kernel: MSG                journalctl -o short-unix
    [812345.101773] HOST kernel: MSG                  journalctl -o short-monotonic
    <4>1 2025-02-18T04:11:47Z HOST kernel - - - MSG   RFC 5424
    NODE: kern:     err: [2025-02-18T04:11:47.5Z]: MSG  talosctl dmesg
    2025-02-18T04:11:47.1Z stdout F [123.4] MSG       any of them in a container's log

Forms: util-linux dmesg(1), systemd journalctl(1), RFC 3164, RFC 5424, Talos.

>>> read("Feb 18 04:11:47 gpu-1 kernel: [812345.101773] NVRM: hello")[3:6]
(812345.101773, 'gpu-1', 'NVRM: hello')
"""

from __future__ import annotations

import re
from typing import NamedTuple

from gpufleet_cli import timestamps

YEARLESS_NS = 962_409_600_000_000_000
"""1 July 2000: where a stamp without a year is put until a year is known (a leap year)."""

MINUTE_S = 60.0


class KernelLine(NamedTuple):
    """A kernel message and what its prefix says. `resolution_s` is 60 where only minutes stand."""

    ns: int | None
    zone_stated: bool
    year_stated: bool
    boot_s: float | None
    host: str | None
    message: str
    resolution_s: float = 0.0
    is_kernel: bool = True


_PRIORITY = re.compile(r"<\d{1,3}>(?:1 )?")
_FACILITY = re.compile(
    r"(?:(?P<node>[\w.:-]{1,253}): )?(?:kern|user|daemon|auth|syslog)\s{0,8}:\s{0,8}\w{3,7}\s{0,5}:\s{1,5}"
)
_CRI = re.compile(r"(?:stdout|stderr) [FP] ")
_POD = re.compile(r"\[pod/[^\]\s]{1,300}\] ")
_BOOT = re.compile(
    r"\[\s{0,12}(\d{1,10}\.\d{1,9})(?:\s{0,3}<\s{0,8}\d{1,9}\.\d{1,9}>)?\]"
    r"(?:\s?\[\s{0,6}[TC]\d{1,9}\])? ?"
)
_BRACKET_ISO = re.compile(r"\[(?=\d{4}-\d\d-\d\dT)([^\]]{19,40})\]:? ?")
_DELTA = re.compile(r"\[\s{0,10}\+\d{1,9}\.\d{1,9}\] ?")
_MINUTE = re.compile(r"\[([A-Z][a-z]{2}) ?(\d{1,2}) (\d\d):(\d\d)\] ?")
_LOCAL_DATE = re.compile(
    r"\[(?:[^\[\]\d:]{1,16}?[\s,]{1,3})?(\d{1,2}[월月]|[^\W\d]{2,9})\.?\s{1,3}(\d{1,2})"
    r"\s{1,2}(\d\d:\d\d:\d\d)(?:[.,]\d{1,9})?\s(\d{4})(?:\s{0,3}<[^>\]]{1,20}>)?\] ?"
)
_LOCAL_SYSLOG = re.compile(
    r"(\d{1,2}[월月]|[^\W\d]{2,9})\.?\s{1,2}(\d{1,2}) (\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))? "
)
_UNIX = re.compile(r"(\d{10}\.\d{3,9}) ")
_WEEKDAY = re.compile(r"[^\W\d]{1,9}\.?,? (?=\d{4}-\d\d-\d\d )")
_ZONE_NAME = re.compile(r" (?:[A-Z]{2,5}|[+-]\d{2,4})(?= )")
_HOST_TAG = re.compile(
    r"(?P<host>[^\s:\[\]][^\s\[\]]{0,251}[^\s:\[\]]|[^\s:\[\]]) "
    r"(?:[a-z0-7]{3,8}\.[a-z]{3,7} )?"
    r"(?P<tag>[A-Za-z_][\w./@-]{0,63})(?P<pid>\[\d{1,10}\])?(?P<colon>: ?| - - (?:-|\[[^\]]{0,200}\]) )"
)

_MONTHS_ELSEWHERE = {
    name: number
    for number, names in enumerate(
        (
            "janv ene gen янв sty",
            "févr fév fev фев lut",
            "mär märz mars mrt мар marz",
            "avr avril abr апр kwi",
            "mai mei mag maj мая май",
            "juin giu июн cze",
            "juil lug июл lip",
            "août ago авг sie",
            "sept set сен wrz",
            "okt ott out окт paź",
            "ноя lis",
            "dez déc dic дек gru",
        ),
        1,
    )
    for name in names.split()
}
_ENGLISH = {number: name.capitalize() for name, number in timestamps.MONTHS.items()}


def _month(text: str) -> int | None:
    name = text.lower()
    if name[-1] in "月월":
        return int(name[:-1])
    return timestamps.MONTHS.get(name[:3]) or _MONTHS_ELSEWHERE.get(name)


def read(line: str, *, near_ns: int | None = None, depth: int = 0) -> KernelLine:
    """Take the prefix off. `near_ns` is a time known to be close, for stamps without a year;
    without it they land in the year 2000 with `year_stated` False. `depth` counts stamps inside
    stamps, of which two are real and more are a trap."""
    first = _PRIORITY.match(line) or _POD.match(line)
    at = first.end() if first else 0
    facility = _FACILITY.match(line, at)
    node = facility["node"] if facility else None
    if facility:
        at = facility.end()
    found = _stamp(line, at, near_ns)
    if found is None:
        return _tagged(KernelLine(None, True, True, None, node, line[at:]), with_host=False)
    stamp, at = found
    cri = _CRI.match(line, at) if depth < 2 else None
    if cri or (
        depth < 2 and stamp.zone_stated and stamp.ns is not None and _starts_with_stamp(line, at)
    ):
        inner = read(line[cri.end() if cri else at :], near_ns=stamp.ns, depth=depth + 1)
        if inner.ns is not None:
            return inner
        return inner._replace(ns=stamp.ns, zone_stated=stamp.zone_stated)
    return _tagged(stamp._replace(host=node, message=line[at:]), with_host=not stamp.year_stated)


def _starts_with_stamp(line: str, at: int) -> bool:
    """A collector's stamp may stand before the line's own: `kubectl logs --timestamps`."""
    return bool(
        _LOCAL_DATE.match(line, at)
        or _LOCAL_SYSLOG.match(line, at)
        or timestamps.ISO.match(line, at)
        or _PRIORITY.match(line, at)
        or _FACILITY.match(line, at)
    )


def _stamp(line: str, at: int, near_ns: int | None) -> tuple[KernelLine, int] | None:
    """The time at the start and where the rest begins."""
    if line.startswith("[", at):
        return _bracket(line, at, near_ns)
    weekday = _WEEKDAY.match(line, at)
    iso = timestamps.match_iso(line, weekday.end() if weekday else at)
    if iso is not None:
        zone = _ZONE_NAME.match(line, iso.end) if weekday and not iso.zone_stated else None
        end = zone.end() if zone else iso.end
        blank = 1 if line.startswith(" ", end) else 0
        return KernelLine(iso.ns, iso.zone_stated, True, None, None, ""), end + blank
    unix = _UNIX.match(line, at)
    if unix:
        return KernelLine(timestamps.from_epoch(unix[1]), True, True, None, None, ""), unix.end()
    return _syslog(line, at, near_ns)


def _syslog(line: str, at: int, near_ns: int | None) -> tuple[KernelLine, int] | None:
    found = _LOCAL_SYSLOG.match(line, at)
    month = _month(found[1]) if found else None
    if found is None or month is None:
        return None
    text = f"{_ENGLISH.get(month, '')} {found[2]:>2} {found[3]}:{found[4]}:{found[5]}"
    text += f".{found[6]}" if found[6] else ""
    near = YEARLESS_NS if near_ns is None else near_ns
    stamp = timestamps.match_syslog(text, near_ns=near)
    if stamp is None:
        return None
    return KernelLine(stamp.ns, False, near_ns is not None, None, None, ""), found.end()


def _bracket(line: str, at: int, near_ns: int | None) -> tuple[KernelLine, int] | None:
    boot = _BOOT.match(line, at)
    if boot:
        return KernelLine(None, True, True, float(boot[1]), None, ""), boot.end()
    iso = _BRACKET_ISO.match(line, at)
    if iso:
        read_iso = timestamps.parse_rfc3339(iso[1])
        ns, zone = read_iso if read_iso else (None, True)
        return KernelLine(ns, zone, True, None, None, ""), iso.end()
    local = _LOCAL_DATE.match(line, at)
    if local:
        month = _ENGLISH.get(_month(local[1]) or 0)
        stamp = timestamps.match_ctime(f"{month} {local[2]:>2} {local[3]} {local[4]}")
        return KernelLine(stamp.ns if stamp else None, False, True, None, None, ""), local.end()
    minute = _MINUTE.match(line, at)
    if minute:
        return _minute(minute, near_ns), minute.end()
    delta = _DELTA.match(line, at)
    return (KernelLine(None, False, True, None, None, ""), delta.end()) if delta else None


def _minute(found: re.Match[str], near_ns: int | None) -> KernelLine:
    near = YEARLESS_NS if near_ns is None else near_ns
    text = f"{found[1]} {found[2]:>2} {found[3]}:{found[4]}:00"
    stamp = timestamps.match_syslog(text, near_ns=near)
    ns = stamp.ns if stamp else None
    return KernelLine(ns, False, near_ns is not None, None, None, "", MINUTE_S)


def _tagged(line: KernelLine, *, with_host: bool) -> KernelLine:
    """Take `HOST kernel: ` and a second stamp off. In syslog form a host always stands there, so
    that another tag marks a daemon's line; elsewhere only a tag with a pid is sure to be one."""
    found = _HOST_TAG.match(line.message)
    host, message, is_kernel = line.host, line.message, True
    if found and (found["tag"] in ("kernel", "kern") or with_host or found["pid"]):
        host, message = found["host"], line.message[found.end() :]
        is_kernel = found["tag"] in ("kernel", "kern")
    elif message.startswith("kernel: "):
        message = message[8:]
    boot = _BOOT.match(message)
    if boot:
        message = message[boot.end() :]
    boot_s = float(boot[1]) if boot else line.boot_s
    return line._replace(host=host, message=message, boot_s=boot_s, is_kernel=is_kernel)
