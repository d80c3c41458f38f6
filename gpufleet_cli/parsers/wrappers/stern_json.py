"""`stern -o json` and `-o extjson`: one object a line.

{"message": "text", "nodeName": "...", "namespace": "...", "podName": "...", "containerName": "..."}
"""

from __future__ import annotations

from gpufleet_cli.parsers.wrappers.layer import Layer, who_of
from gpufleet_cli.parsers.wrappers.objects import Json, text_of


def of_object(obj: Json) -> Layer | None:
    """The line in one object; its time, if any, is a layer of the message."""
    pod, message = text_of(obj.get("podName", obj.get("pod"))), obj.get("message")
    container = text_of(obj.get("containerName", obj.get("container")))
    if pod is None or container is None:
        return None
    if isinstance(message, dict):
        message = message.get("message", message.get("msg"))
    if not isinstance(message, str):
        return None
    names = {"namespace": text_of(obj.get("namespace")), "node": text_of(obj.get("nodeName"))}
    return Layer(message.rstrip("\r\n"), who=who_of({"pod": pod, "container": container, **names}))
