"""The systemd journal as `journalctl -o json`, `json-pretty`, `json-seq` or `export` writes it.

    {"__REALTIME_TIMESTAMP":"1739848307123456","_TRANSPORT":"kernel","MESSAGE":"NVRM: ...",...}

    __REALTIME_TIMESTAMP=1739848307123456        (export: a blank line ends an entry)
    _HOSTNAME=gpu-1
    MESSAGE=NVRM: Xid ...

`MESSAGE` is an array of bytes where it is not UTF-8. Times are microseconds.
Format: https://systemd.io/JOURNAL_EXPORT_FORMATS/

>>> read(b'{"__REALTIME_TIMESTAMP":"1739848307123456","_HOSTNAME":"g1","MESSAGE":"NVRM: x"}')[4:6]
('g1', 'NVRM: x')
"""

from __future__ import annotations

import re

import msgspec

from gpufleet_cli.parsers.kernel_prefix import KernelLine

NS_PER_US = 1_000
_EXPORT_FIELD = re.compile(rb"^([A-Z_][A-Z0-9_]{0,63})=(.*)$", re.MULTILINE)
_decode = msgspec.json.Decoder()


def is_export(head: bytes) -> bool:
    """`journalctl -o export`: fields one a line."""
    starts = (b"__CURSOR=", b"__REALTIME_TIMESTAMP=")
    return head.startswith(starts) or b"\n__REALTIME_TIMESTAMP=" in head


def read(line: bytes) -> KernelLine | None:
    """One JSON entry, None when the line is none or no kernel entry."""
    start = line.find(b"{")
    if start < 0:
        return None
    try:
        entry = _decode.decode(line[start:].rstrip(b",\r\n \x1e"))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    if not isinstance(entry, dict):
        return None
    return _entry({key: value for key, value in entry.items() if isinstance(key, str)})


def read_export(block: bytes) -> KernelLine | None:
    """One entry of the export format."""
    fields = {
        name.decode("ascii"): value.decode("utf-8", "replace")
        for name, value in _EXPORT_FIELD.findall(block)
    }
    return _entry(dict(fields)) if fields else None


def _entry(entry: dict[str, object]) -> KernelLine | None:
    message = _text(entry.get("MESSAGE"))
    if message is None or not _is_kernel(entry):
        return None
    at_us = _number(entry.get("_SOURCE_REALTIME_TIMESTAMP"))
    if at_us is None:
        at_us = _number(entry.get("__REALTIME_TIMESTAMP"))
    boot_us = _number(entry.get("_SOURCE_MONOTONIC_TIMESTAMP"))
    return KernelLine(
        None if at_us is None else at_us * NS_PER_US,
        True,
        True,
        None if boot_us is None else boot_us / 1_000_000,
        _text(entry.get("_HOSTNAME")),
        message,
    )


def _is_kernel(entry: dict[str, object]) -> bool:
    """Where neither field stands, somebody cut the entry down to what mattered."""
    transport, name = entry.get("_TRANSPORT"), entry.get("SYSLOG_IDENTIFIER")
    if transport is None and name is None:
        return True
    return transport == "kernel" or name == "kernel"


def _text(value: object) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and len(value) <= 65_536:
        numbers = [n for n in value if isinstance(n, int) and 0 <= n < 256]
        return bytes(numbers).decode("utf-8", "replace") if len(numbers) == len(value) else None
    return None


def _number(value: object) -> int | None:
    """Whole microseconds within what a clock can show."""
    if isinstance(value, str) and value.isdecimal() and value.isascii() and len(value) <= 17:
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**17:
        return value
    return None
