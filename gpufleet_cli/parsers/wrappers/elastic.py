"""Fluent Bit, Fluentd, Vector and Filebeat records, and Elasticsearch's answers that hold them.

    {"@timestamp": "...", "log": "text", "stream": "stderr", "logtag": "F", "kubernetes": {...}}
    {"date": 1741038060.012, "log": "...", "kubernetes": {"pod_name": "...", "host": "..."}}
    {"hits": {"total": {"value": 25000}, "hits": [{"_source": {...}}, ...]}}

`date` may be a float of seconds. `hits.total` above the number of hits means a limit cut the answer.
"""

from __future__ import annotations

from gpufleet_cli.parsers.wrappers import labels
from gpufleet_cli.parsers.wrappers.layer import Entry, Layer
from gpufleet_cli.parsers.wrappers.objects import Json, first, text_of, time_of

_TEXT = ("log", "message", "msg", "_msg", "body", "event.original", "log.original")
_TIME = ("@timestamp", "date", "timestamp", "time", "_time")


def of_object(obj: Json) -> Layer | None:
    """The line in one record or hit."""
    for inside in ("_source", "fields"):
        inner = obj.get(inside)
        if isinstance(inner, dict) and ("_index" in obj or "_id" in obj or inside == "_source"):
            return _record(inner)
    shipped = "kubernetes" in obj or "logtag" in obj or "@timestamp" in obj or "k8s" in obj
    if shipped or any(name.startswith(("kubernetes.", "kubernetes_", "k8s.")) for name in obj):
        return _record(obj)
    return None


def _record(obj: Json) -> Layer | None:
    found = first(obj, *_TEXT)
    text = text_of(found)
    if text is None and isinstance(found, dict):
        text = text_of(first(found, "stringValue", "original", "message"))
    if text is None:
        return None
    ns, stated = time_of(first(obj, *_TIME))
    partial = obj.get("logtag") == "P" or obj.get("_p") == "P"
    return Layer(text.rstrip("\r\n"), ns, stated, labels.of(obj), False, partial)


def of_document(doc: object) -> tuple[list[Entry], list[str]] | None:
    """All hits of a search answer, with what it says was left out."""
    hits = doc.get("hits") if isinstance(doc, dict) else None
    if not isinstance(hits, dict) or not isinstance(hits.get("hits"), list):
        return None
    entries = []
    for hit in hits["hits"]:
        layer = of_object(hit) if isinstance(hit, dict) else None
        if layer is not None and layer.rest is not None:
            entries.append(Entry(layer.rest, layer.ns, layer.zone_stated, layer.who, layer.partial))
    total = hits.get("total")
    count = total.get("value") if isinstance(total, dict) else total
    why = []
    if isinstance(count, int) and count > len(hits["hits"]):
        why.append(f"the answer holds {len(hits['hits'])} of {count} hits")
    return entries, why
