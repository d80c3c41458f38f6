"""VictoriaLogs query answers: one object a line, in no order unless the query sorted them.

{"_time": "2025-05-12T09:57:45Z", "_msg": "text", "_stream": "{pod=\\"sft-0\\"}", "kubernetes.pod_name": "sft-0"}
"""

from __future__ import annotations

import re

from gpufleet_cli.parsers.wrappers import labels
from gpufleet_cli.parsers.wrappers.layer import Layer
from gpufleet_cli.parsers.wrappers.objects import Json, time_of

_PAIR = re.compile(r"([\w.]{1,128})=\"((?:[^\"\\]|\\.){0,1024})\"")


def of_object(obj: Json) -> Layer | None:
    """The line in one object; fields of the record count before those of its stream."""
    text = obj.get("_msg")
    if not isinstance(text, str):
        return None
    ns, stated = time_of(obj.get("_time"))
    stream = obj.get("_stream")
    names = dict(_PAIR.findall(stream)) if isinstance(stream, str) else {}
    own = {name: value for name, value in obj.items() if not name.startswith("_")}
    return Layer(text.rstrip("\r\n"), ns, stated, labels.of({**names, **own}))
