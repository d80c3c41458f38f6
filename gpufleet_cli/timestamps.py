"""Text and numbers to Unix nanoseconds UTC, and back.

Every reader here answers None for what it cannot read, and says with `zone_stated` whether a zone
stood in the text; without one the digits are taken as UTC. Nothing guesses a year: forms without
one (`E321` of c10, syslog) take it from `near_ns`, a time known to be close.

A datetime holds microseconds only, so times are integers. Only `parse_any` uses dateutil, and
only when no faster form fits, because it costs some hundred microseconds a call.

>>> parse_rfc3339("2025-05-12T09:57:45.01404004Z")
(1747043865014040040, True)
>>> parse_rfc3339("2025-05-12 09:57:45,014")
(1747043865014000000, False)
>>> format_ns(1747043865014040040)
'2025-05-12T09:57:45.01404004Z'
>>> from_c10(1, 1, "00:00:01", 5, near_ns=parse_rfc3339("2024-12-31T23:59:59Z")[0])
1735689601000000005
"""

from __future__ import annotations

import datetime
import re
from functools import lru_cache
from typing import NamedTuple

NS_PER_S = 1_000_000_000
NS_PER_DAY = 86_400 * NS_PER_S

MONTHS = {
    name: number
    for number, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), 1
    )
}


class Stamp(NamedTuple):
    """A time found in text. `end` is the index just behind it."""

    ns: int
    zone_stated: bool
    end: int


ISO = re.compile(
    r"(\d{4}[-/]\d\d[-/]\d\d)[T _]"
    r"(\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,12}))?)?"
    r"(?: ?(Z(?![\w])|UTC(?!\w)|GMT(?!\w)|[+-]\d\d:?\d\d(?!\d)|(?<=\d)[+-]\d\d(?![\d:])))?"
)
_US = re.compile(r"(\d\d)/(\d\d)/(\d{4})[ T,]{1,2}(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?( ?[AP]M)?")
_CTIME = re.compile(
    r"(?:[^\W\d]{1,9},? )?([A-Z][a-z]{2}) {1,2}(\d{1,2}) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?"
    r"(?: (UTC|GMT|[A-Z]{2,5}))? (\d{4})(?!\d)"
)
_SYSLOG = re.compile(r"([A-Z][a-z]{2}) {1,2}(\d{1,2}) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?!\d)")
_PAGE = re.compile(
    r"([A-Z][a-z]{2}) (\d{1,2}), (\d{4})(?: @|,)? (\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?()"
)
_CLF = re.compile(
    r"(\d{1,2})[/ -]([A-Z][a-z]{2})[/ -](\d{4})[: T](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?"
    r"(?: (Z|UTC|GMT|[+-]\d\d:?\d\d))?"
)
_EPOCH = re.compile(r"(-?\d{1,20})(?:\.(\d{1,12}))?")


# --- Calendar arithmetic ------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _day_ns(year: int, month: int, day: int) -> int | None:
    """Nanoseconds from the epoch to the start of a day, None when there is no such day."""
    try:
        return (datetime.date(year, month, day).toordinal() - 719_163) * NS_PER_DAY
    except ValueError:
        return None


@lru_cache(maxsize=4096)
def _date_ns(text: str) -> int | None:
    """`2025-05-12` or `2025/05/12`, which a log repeats on every line."""
    return _day_ns(int(text[:4]), int(text[5:7]), int(text[8:10]))


def _clock_ns(hour: str, minute: str, second: str | None, fraction: str | None) -> int | None:
    """Nanoseconds since midnight; second 60 is a leap second and runs into the next minute."""
    h, m, s = int(hour), int(minute), int(second) if second else 0
    if h > 23 or m > 59 or s > 60:
        return None
    return ((h * 60 + m) * 60 + s) * NS_PER_S + fraction_ns(fraction)


def fraction_ns(digits: str | None) -> int:
    """Nanoseconds of a decimal fraction, cut after nine digits: `014` is 14 ms."""
    return int(digits[:9].ljust(9, "0")) if digits else 0


@lru_cache(maxsize=256)
def _zone_ns(zone: str) -> int | None:
    """What to subtract from local time: `Z`, `UTC`, `+07:00`, `+0700`, `-05`."""
    if zone[0] not in "+-":
        return 0
    digits = zone[1:].replace(":", "")
    hours, minutes = int(digits[:2]), int(digits[2:] or 0)
    if hours > 15 or minutes > 59:
        return None
    total = (hours * 60 + minutes) * 60 * NS_PER_S
    return -total if zone[0] == "-" else total


# --- Text with a year ---------------------------------------------------------------------------


def match_iso(text: str, pos: int = 0) -> Stamp | None:
    """An ISO-like time at `pos`: `T`, blank or `_` between, `.` or `,` fraction, any length of it,
    seconds may lack, zone `Z`, `UTC`, `+07:00`, ` +08:00`, `+0700`, or none."""
    found = ISO.match(text, pos)
    if found is None:
        return None
    date, hour, minute, second, fraction, zone = found.groups()
    day = _date_ns(date)
    clock = _clock_ns(hour, minute, second, fraction)
    offset = _zone_ns(zone) if zone else 0
    if day is None or clock is None or offset is None:
        return None
    return Stamp(day + clock - offset, zone is not None, found.end())


def match_us(text: str, pos: int = 0) -> Stamp | None:
    """`06/20/2023 18:00:09`, month first, as `logging.basicConfig` calls of Hugging Face write it;
    day first only where month first is no date."""
    found = _US.match(text, pos)
    if found is None:
        return None
    first, second, year, hour, minute, secs, fraction, half = found.groups()
    if half:
        hour = f"{int(hour) % 12 + (12 if half.strip() == 'PM' else 0):02}"
    day = _day_ns(int(year), int(first), int(second))
    if day is None:
        day = _day_ns(int(year), int(second), int(first))
    clock = _clock_ns(hour, minute, secs, fraction)
    return None if day is None or clock is None else Stamp(day + clock, False, found.end())


def match_ctime(text: str, pos: int = 0) -> Stamp | None:
    """`Mon Feb 18 04:11:47 2025` of dmesg -T and ctime; the weekday may be in any language."""
    found = _CTIME.match(text, pos)
    if found is None:
        return None
    month, day, hour, minute, second, fraction, zone, year = found.groups()
    start = _day_ns(int(year), MONTHS.get(month.lower(), 0), int(day))
    clock = _clock_ns(hour, minute, second, fraction)
    if start is None or clock is None:
        return None
    return Stamp(start + clock, zone in ("UTC", "GMT"), found.end())


def match_named(text: str, pos: int = 0) -> Stamp | None:
    """`May 12, 2025 @ 09:57:45.014` of Kibana, `12/May/2025:09:57:45 +0200` of web servers."""
    found = _PAGE.match(text, pos)
    if found is not None:
        month, day, year, hour, minute, second, fraction, zone = found.groups()
    else:
        found = _CLF.match(text, pos)
        if found is None:
            return None
        day, month, year, hour, minute, second, fraction, zone = found.groups()
    start = _day_ns(int(year), MONTHS.get(month.lower(), 0), int(day))
    clock = _clock_ns(hour, minute, second, fraction)
    offset = _zone_ns(zone) if zone else 0
    if start is None or clock is None or offset is None:
        return None
    return Stamp(start + clock - offset, bool(zone), found.end())


def parse_rfc3339(text: str) -> tuple[int, bool] | None:
    """(ns, zone_stated) of a whole text in ISO 8601 or RFC 3339 form, see `match_iso`."""
    found = match_iso(text)
    return (found.ns, found.zone_stated) if found and found.end == len(text) else None


def parse_local(text: str) -> tuple[int, bool] | None:
    """(ns, zone_stated) of a whole text in any form that carries a year: ISO, US, ctime, named."""
    for match in (match_iso, match_us, match_ctime, match_named):
        found = match(text)
        if found and found.end == len(text):
            return found.ns, found.zone_stated
    return None


def parse_any(text: str) -> tuple[int, bool] | None:
    """(ns, zone_stated) of a time in whatever form: fast forms, epoch numbers, then dateutil.

    dateutil fills what is missing from a default date; two different defaults must agree, so that
    a text without a full date is None instead of a guess.
    """
    text = text.strip()[:64]
    if not text:
        return None
    quick = parse_local(text)
    if quick is not None:
        return quick
    number = from_epoch(text)
    return (number, True) if number is not None else _parse_slowly(text)


def _parse_slowly(text: str) -> tuple[int, bool] | None:
    from dateutil import parser as dateutil_parser

    def zone(_name: str | None, offset: int | None) -> int | None:
        return offset  # a name alone (`CST`) means several zones: not stated

    seen: list[datetime.datetime] = []
    for year, month, day in ((2001, 1, 2), (2002, 3, 5)):
        filler = datetime.datetime(year, month, day)  # noqa: DTZ001 - only fills what is missing
        try:
            seen.append(dateutil_parser.parse(text, default=filler, tzinfos=zone))
        except (ValueError, ArithmeticError, TypeError, AttributeError, IndexError):
            return None
    try:
        if seen[0] != seen[1]:
            return None
        stated = seen[0].tzinfo is not None
        aware = seen[0] if stated else seen[0].replace(tzinfo=datetime.UTC)
        return from_datetime(aware), stated
    except (ValueError, OverflowError):  # an offset of 36 hours is found out only here
        return None


# --- Text without a year ------------------------------------------------------------------------


def from_parts(month: int, day: int, clock_ns: int, *, near_ns: int | None) -> int | None:
    """The time with this month, day and clock in the year that brings it closest to `near_ns`,
    so that a line of 1 January beside one of 31 December is a day apart and not a year."""
    if near_ns is None:
        return None
    year = year_of(near_ns)
    best: int | None = None
    for candidate in (year - 1, year, year + 1):
        start = _day_ns(candidate, month, day)
        if start is None:
            continue
        if best is None or abs(start + clock_ns - near_ns) < abs(best - near_ns):
            best = start + clock_ns
    return best


def from_c10(month: int, day: int, hms: str, ns: int, *, near_ns: int | None) -> int | None:
    """A glog stamp of PyTorch: `E321 02:07:08.414640780` is month 3, day 21, ns 414640780."""
    clock = _clock_ns(hms[:2], hms[3:5], hms[6:8], None)
    return None if clock is None else from_parts(month, day, clock + ns, near_ns=near_ns)


def match_syslog(text: str, pos: int = 0, *, near_ns: int | None) -> Stamp | None:
    """`Feb 18 04:11:47` of syslog: no year, no zone."""
    found = _SYSLOG.match(text, pos)
    if found is None:
        return None
    month, day, hour, minute, second, fraction = found.groups()
    clock = _clock_ns(hour, minute, second, fraction)
    number = MONTHS.get(month.lower())
    if clock is None or number is None:
        return None
    at = from_parts(number, int(day), clock, near_ns=near_ns)
    return None if at is None else Stamp(at, False, found.end())


# --- Numbers ------------------------------------------------------------------------------------


def from_epoch(value: int | float | str) -> int | None:
    """A Unix time whose unit is told by its size: seconds below 1e11 (year 5138), then milli-,
    micro- and nanoseconds. Under 1e8 (1973) it is no time of ours: None. Text keeps all digits,
    a float those it has."""
    if isinstance(value, bool):
        return None
    found = _EPOCH.fullmatch(value if isinstance(value, str) else repr(value))
    if found is None:
        return None
    whole, fraction = int(found[1]), found[2]
    for limit, unit in ((10**11, 10**9), (10**14, 10**6), (10**17, 10**3), (10**20, 1)):
        if whole < limit:
            part = fraction_ns(fraction) * unit // NS_PER_S
            return whole * unit + part if whole >= 10**8 else None
    return None


def from_seconds(seconds: float) -> int:
    """Unix seconds to nanoseconds, rounded to the microsecond that a float of that size holds."""
    return round(seconds * 1_000_000) * 1_000


def from_datetime(at: datetime.datetime) -> int:
    """An aware datetime to nanoseconds, without going through a float."""
    delta = at - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return (delta.days * 86_400 + delta.seconds) * NS_PER_S + delta.microseconds * 1_000


# --- Back to text -------------------------------------------------------------------------------


def _utc(seconds: int) -> datetime.datetime:
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    try:
        return epoch + datetime.timedelta(seconds=seconds)
    except OverflowError:
        return datetime.datetime(9999 if seconds > 0 else 1, 1, 1, tzinfo=datetime.UTC)


def year_of(ns: int) -> int:
    """The UTC year of a time."""
    return _utc(ns // NS_PER_S).year


def format_ns(ns: int) -> str:
    """RFC 3339 in UTC with as many digits as the time has, nine at most."""
    seconds, rest = divmod(ns, NS_PER_S)
    fraction = f".{rest:09}".rstrip("0") if rest else ""
    return f"{_utc(seconds):%Y-%m-%dT%H:%M:%S}{fraction}Z".rjust(20 + len(fraction), "0")


def format_clock(ns: int, *, digits: int = 0) -> str:
    """`03:41:07`, or with `digits` of the second, cut and not rounded."""
    seconds, rest = divmod(ns, NS_PER_S)
    fraction = f".{rest:09}"[: digits + 1] if digits else ""
    return f"{_utc(seconds):%H:%M:%S}{fraction}"
