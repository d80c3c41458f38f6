"""Label selectors of objects beside the job.

>>> selects({"matchLabels": {"app": "x"}}, {"app": "x", "b": "c"}), selects({}, {}), selects(None, {})
(True, True, False)
>>> selects({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["x"]}]}, {"app": "x"})
False
"""

from __future__ import annotations

from collections.abc import Mapping

from gpufleet_cli.parsers import json_documents as js


def selects(selector: object, labels: Mapping[str, str]) -> bool:
    """Whether pods with these labels are chosen; an empty selector chooses all, none at all nothing."""
    if not isinstance(selector, dict):
        return False
    wanted = js.mapping(selector.get("matchLabels"))
    if any(labels.get(key) != str(value) for key, value in wanted.items()):
        return False
    return all(_holds(one, labels) for one in js.items(selector.get("matchExpressions")))


def _holds(one: object, labels: Mapping[str, str]) -> bool:
    key = js.text_at(one, "key") or ""
    values = [str(value) for value in js.items(js.at(one, "values"))]
    match js.text_at(one, "operator"):
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case _:
            return False
