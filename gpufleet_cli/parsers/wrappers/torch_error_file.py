"""torchrun's `error.json`: the exception of one process, written by `@record` as it ended.

    {"message": {"message": "KeyError: 'text'", "extraInfo": {"py_callstack": "Traceback ...", "timestamp": "1687284359"}}}

Which process it was stands in the path (`attempt_K/LOCALRANK/error.json`).
"""

from __future__ import annotations

from gpufleet_cli.parsers.wrappers.layer import NOBODY, Entry
from gpufleet_cli.parsers.wrappers.objects import text_of, time_of


def of_document(doc: object) -> tuple[list[Entry], list[str]] | None:
    """The call stack line by line, or the message where there is none."""
    outer = doc.get("message") if isinstance(doc, dict) and len(doc) == 1 else None
    if isinstance(outer, str):
        return [Entry(line, None, False, NOBODY) for line in outer.splitlines()], []
    if not isinstance(outer, dict):
        return None
    extra = outer.get("extraInfo")
    info = extra if isinstance(extra, dict) else {}
    text = text_of(info.get("py_callstack")) or text_of(outer.get("message"))
    if text is None:
        return None
    ns, stated = time_of(info.get("timestamp"))
    return [Entry(line, ns, stated, NOBODY) for line in text.splitlines()], []
