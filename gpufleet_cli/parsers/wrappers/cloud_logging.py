"""Google Cloud Logging entries, as `gcloud logging read --format json` and the export page give them.

{"timestamp": "...", "textPayload": "text", "resource": {"labels": {"pod_name": "..."}}}
"""

from __future__ import annotations

from gpufleet_cli.parsers.wrappers import application_json, labels
from gpufleet_cli.parsers.wrappers.layer import Layer, who_of
from gpufleet_cli.parsers.wrappers.objects import Json, text_of, time_of

_NODE = "compute.googleapis.com/resource_name"


def of_object(obj: Json) -> Layer | None:
    """The line in one entry."""
    if "textPayload" not in obj and "jsonPayload" not in obj:
        return None
    ns, stated = time_of(obj.get("timestamp"))
    payload = obj.get("jsonPayload")
    inner = application_json.of_object(payload) if isinstance(payload, dict) else None
    text = text_of(obj.get("textPayload")) if inner is None else inner.rest
    if text is None:
        return None
    resource, own = obj.get("resource"), obj.get("labels")
    names = dict(labels.of(resource)) if isinstance(resource, dict) else {}
    if isinstance(own, dict) and isinstance(own.get(_NODE), str):
        names["node"] = own[_NODE]
    if inner is not None:
        names.update(inner.who)
    return Layer(text.rstrip("\r\n"), ns, stated, who_of(names))
