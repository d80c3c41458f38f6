"""Applications that log one JSON object a line: structlog, python-json-logger, NeMo and in-house.

    {"time": "2025-05-12T09:57:45Z", "level": "info", "rank": 3, "message": "step", "step": 480}

Message in `message|msg|event`, rank in `rank|global_rank|RANK`, time in `time|ts|timestamp|asctime`.
Other plain values follow the message as `name=value`, as a text log would have them, and a
traceback in `exc_info|exception|stack|traceback` follows on lines of its own.

>>> of_object({"event": "train", "step": 480, "rank": "3", "ts": 1747043865.5}).rest
'train step=480'
"""

from __future__ import annotations

from collections.abc import Iterator

from gpufleet_cli.parsers.wrappers.layer import Layer, who_of
from gpufleet_cli.parsers.wrappers.objects import Json, first, number_of, text_of, time_of

_TEXT = ("message", "msg", "event", "text")
_TIME = ("time", "ts", "timestamp", "asctime", "datetime", "@timestamp", "created")
_RANK = ("rank", "global_rank", "RANK", "globalRank", "dp_rank_global")
_LOCAL = ("local_rank", "LOCAL_RANK", "localRank")
_TRACE = ("exc_info", "exception", "exc_text", "stack", "stack_info", "traceback", "error.stack")
_LEVEL = ("level", "levelname", "severity", "log_level", "lvl")
_SILENT = {
    *_TEXT, *_TIME, *_RANK, *_LOCAL, *_TRACE, *_LEVEL, "logger", "name", "filename", "lineno",
    "module", "funcName", "process", "thread", "pathname", "processName", "threadName", "caller",
    "taskName", "func_name", "hostname", "host", "pid", "node", "levelno", "relativeCreated", "msecs",
}  # fmt: skip
_NUMBERS_THAT_TELL = ("step", "global_step", "iteration", "iter", "loss", "epoch")


def of_object(obj: Json) -> Layer | None:
    """The line in one object, None when it is no log record."""
    found = first(obj, *_TEXT)
    text = text_of(found)
    if text is None and found is not None:
        return None
    if text is None and not any(name in obj for name in _NUMBERS_THAT_TELL):
        return None
    level = text_of(first(obj, *_LEVEL))
    head = f"{level.upper()} " if level and level.lower() in ("error", "critical", "fatal") else ""
    words = [*([text] if text else []), *_pairs(obj)]
    trace = text_of(first(obj, *_TRACE))
    rest = head + " ".join(words) + (f"\n{trace}" if trace else "")
    ns, stated = time_of(first(obj, *_TIME))
    host = text_of(first(obj, "hostname", "host", "node"))
    numbers = {
        "rank": number_of(first(obj, *_RANK)),
        "local_rank": number_of(first(obj, *_LOCAL)),
        "pid": number_of(first(obj, "pid", "process")),
    }
    return Layer(rest, ns, stated, who_of({**numbers, "host": host}))


def _pairs(obj: Json) -> Iterator[str]:
    for name, value in obj.items():
        if name in _SILENT or isinstance(value, bool):
            continue
        if isinstance(value, int | float) or (isinstance(value, str) and 0 < len(value) <= 128):
            yield f"{name}={value}"
