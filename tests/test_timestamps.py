"""Times of every form the evidence writes."""

from __future__ import annotations

import datetime
import random
import warnings

import pytest

from gpufleet_cli import timestamps
from gpufleet_cli.timestamps import (
    format_clock,
    format_ns,
    from_c10,
    from_datetime,
    from_epoch,
    match_ctime,
    match_iso,
    match_syslog,
    match_us,
    parse_any,
    parse_local,
    parse_rfc3339,
)


def ns(text: str) -> int:
    """An independent reading by the standard library, which knows microseconds."""
    at = datetime.datetime.fromisoformat(text)
    return from_datetime(at if at.tzinfo else at.replace(tzinfo=datetime.UTC))


@pytest.mark.parametrize(
    ("text", "expected", "stated"),
    [
        ("2025-05-12T09:57:45Z", ns("2025-05-12T09:57:45Z"), True),
        ("2025-05-12T09:57:45.1Z", ns("2025-05-12T09:57:45.1Z"), True),
        ("2025-05-12T09:57:45.123456789Z", ns("2025-05-12T09:57:45.123456Z") + 789, True),
        ("2025-05-12T09:57:45.123456789+07:00", ns("2025-05-12T02:57:45.123456Z") + 789, True),
        ("2025-11-09 15:39:31.043 +08:00", ns("2025-11-09T07:39:31.043Z"), True),
        ("2025-02-18T04:11:47+0100", ns("2025-02-18T03:11:47Z"), True),
        ("2025-02-18T04:11:47-05", ns("2025-02-18T09:11:47Z"), True),
        ("2025-02-18 04:11:47 UTC", ns("2025-02-18T04:11:47Z"), True),
        ("2023-06-20 18:00:09,123", ns("2023-06-20T18:00:09.123"), False),
        ("2024-01-10_12:00:00", ns("2024-01-10T12:00:00"), False),
        ("2025-02-18 12:54", ns("2025-02-18T12:54:00"), False),
        ("2025/02/18 12:54:01", ns("2025-02-18T12:54:01"), False),
        ("2016-12-31T23:59:60Z", ns("2017-01-01T00:00:00Z"), True),
    ],
)
def test_iso_forms_keep_every_digit_and_their_zone(text: str, expected: int, stated: bool) -> None:
    """All ISO-like forms of the facts read exactly, and say whether a zone stood there."""
    assert parse_rfc3339(text) == (expected, stated)


@pytest.mark.parametrize(
    "text",
    ["", "2025-13-12T09:57:45Z", "2025-02-30 00:00:00", "2025-05-12T24:00:00Z",
     "2025-05-12T09:57:45Zulu", "yesterday", "2025-05-12", "2025-05-12T09:57:45+99:00"],
)  # fmt: skip
def test_what_is_no_time_is_none(text: str) -> None:
    """Broken dates are None and never the nearest valid one."""
    assert parse_rfc3339(text) is None


def test_a_match_ends_where_the_stamp_ends() -> None:
    """The text behind a stamp stays, and an offset is not taken from it."""
    line = "2025-05-12T09:57:45.014Z step: 10"
    found = match_iso(line)
    assert found is not None and line[found.end :] == " step: 10"
    line = "2025-05-12 09:57:45 -12 files"
    found = match_iso(line)
    assert found is not None and (line[found.end :], found.zone_stated) == (" -12 files", False)


def test_month_first_and_ctime() -> None:
    """Two further forms with a year; the weekday of dmesg -T may be in any language."""
    assert parse_local("06/20/2023 18:00:09") == (ns("2023-06-20T18:00:09"), False)
    assert parse_local("20/06/2023 18:00:09") == (ns("2023-06-20T18:00:09"), False)
    assert parse_local("Tue Feb 18 04:11:47 2025") == (ns("2025-02-18T04:11:47"), False)
    found = match_ctime("二 Feb 18 04:11:47 2025] NVRM")
    assert found is not None and found.ns == ns("2025-02-18T04:11:47")
    found = match_us("06/20/2023 01:00:09 PM - INFO")
    assert found is not None and found.ns == ns("2023-06-20T13:00:09")


def test_months_by_name() -> None:
    """Kibana's page, web servers' logs."""
    at = ns("2025-05-12T09:57:45.014Z")
    assert parse_local("May 12, 2025 @ 09:57:45.014") == (at, False)
    assert parse_local("12/May/2025:09:57:45.014") == (at, False)
    assert parse_local("12/May/2025:11:57:45.014 +0200") == (at, True)
    assert parse_local("12 May 2025 09:57:45.014 UTC") == (at, True)
    assert parse_local("32/May/2025:09:57:45") is None
    assert parse_local("12/Mai/2025:09:57:45") is None


@pytest.mark.parametrize(
    ("month", "day", "hms", "near", "expected"),
    [
        (3, 21, "02:07:08", "2024-03-21T09:00:00Z", "2024-03-21T02:07:08Z"),
        (12, 31, "23:59:59", "2025-01-01T00:10:00Z", "2024-12-31T23:59:59Z"),
        (1, 1, "00:00:01", "2024-12-31T23:50:00Z", "2025-01-01T00:00:01Z"),
        (2, 29, "12:00:00", "2025-01-05T00:00:00Z", "2024-02-29T12:00:00Z"),
    ],
)
def test_a_stamp_without_year_takes_the_nearest(
    month: int, day: int, hms: str, near: str, expected: str
) -> None:
    """New Year and leap days: the year that brings the stamp closest to its context."""
    assert from_c10(month, day, hms, 7, near_ns=ns(near)) == ns(expected) + 7


def test_no_year_is_guessed() -> None:
    """Without context there is no time, and an impossible day has none in any year."""
    assert from_c10(3, 21, "02:07:08", 0, near_ns=None) is None
    assert from_c10(13, 40, "02:07:08", 0, near_ns=ns("2024-01-01T00:00:00Z")) is None
    assert match_syslog("Feb 18 04:11:47 host", near_ns=None) is None


def test_syslog_stamp() -> None:
    """A blank pads the day of a syslog stamp."""
    found = match_syslog("Feb  8 04:11:47 host kernel:", near_ns=ns("2025-02-08T00:00:00Z"))
    assert found is not None
    assert (found.ns, found.zone_stated) == (ns("2025-02-08T04:11:47"), False)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1745268948, 1745268948 * 10**9),
        ("1745268948.958", 1745268948958 * 10**6),
        (1745268948.958, 1745268948958 * 10**6),
        (1745268948958, 1745268948958 * 10**6),
        ("1745268948958123", 1745268948958123 * 10**3),
        ("1745268948958123456", 1745268948958123456),
        (12345, None),
        (-5, None),
        (True, None),
        (float("nan"), None),
        ("9" * 30, None),
    ],
)
def test_the_unit_of_an_epoch_number_is_told_by_its_size(
    value: int | float | str, expected: int | None
) -> None:
    """Seconds, milli-, micro-, nanoseconds; small numbers are no times."""
    assert from_epoch(value) == expected


def test_parse_any_takes_dateutil_last_and_fills_nothing() -> None:
    """A form of its own is read; a text without a full date is None, not today."""
    assert parse_any("12 May 2025 09:57:45 +0200") == (ns("2025-05-12T07:57:45Z"), True)
    assert parse_any("May 12, 2025 9:57:45 AM") == (ns("2025-05-12T09:57:45"), False)
    assert parse_any("09:57:45") is None
    assert parse_any("May 12") is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert parse_any("12 May 2025 09:57:45 CST") == (ns("2025-05-12T09:57:45"), False)


def test_text_comes_back() -> None:
    """Formatting keeps nine digits at most and drops trailing zeros."""
    assert format_ns(ns("2026-03-11T03:41:07Z")) == "2026-03-11T03:41:07Z"
    assert format_ns(ns("2026-03-11T03:41:07.118Z")) == "2026-03-11T03:41:07.118Z"
    assert format_ns(1) == "1970-01-01T00:00:00.000000001Z"
    assert format_clock(ns("2026-03-11T03:41:07.118Z")) == "03:41:07"
    assert format_clock(ns("2026-03-11T03:41:07.118Z"), digits=2) == "03:41:07.11"
    rng = random.Random(1)
    for _ in range(500):
        at = rng.randrange(0, 4_000_000_000 * 10**9)
        assert parse_rfc3339(format_ns(at)) == (at, True)


def test_no_text_raises() -> None:
    """Noise of every kind is answered, never raised."""
    rng = random.Random(2)
    seeds = ["2025-05-12T09:57:45.123Z", "Feb 18 04:11:47", "06/20/2023 18:00:09", "1745268948.9"]
    for _ in range(3000):
        chars = list(rng.choice(seeds))
        for _ in range(rng.randrange(4)):
            chars[rng.randrange(len(chars))] = rng.choice("0123456789:-+TZ ,./\x00é")
        text = "".join(chars)
        for read in (parse_rfc3339, parse_local, parse_any):
            assert read(text) is None or isinstance(read(text), tuple)


def test_extreme_years_format() -> None:
    """Times outside the calendar are clamped and do not raise."""
    assert format_ns(10**22).startswith("9999")
    assert timestamps.year_of(-(10**22)) == 1
