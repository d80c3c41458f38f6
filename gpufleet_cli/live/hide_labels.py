"""Secrets in the labels of a metrics server's answer: a scrape address with its password, a token as a label.

Millions of samples are left as they came; only where a label had something to hide is the answer written anew.
"""

from __future__ import annotations

import msgspec

from gpufleet_cli.live.hide import Hidden, Hider
from gpufleet_cli.live.known_secrets import KnownSecrets


class _One(msgspec.Struct, omit_defaults=True):
    metric: dict[str, str] = {}
    values: msgspec.Raw = msgspec.Raw()
    value: msgspec.Raw = msgspec.Raw()


class _Data(msgspec.Struct):
    resultType: str = "matrix"
    result: list[_One] = []


class _Answer(msgspec.Struct):
    status: str = "success"
    data: _Data = msgspec.field(default_factory=_Data)


def hide_in_labels(data: bytes, known: KnownSecrets) -> tuple[bytes, list[Hidden]]:
    """The answer and one entry for each label that was hidden; the same bytes where there was none."""
    try:
        answer = msgspec.json.decode(data, type=_Answer)
    except (msgspec.DecodeError, ValueError):
        hider = Hider(known)
        text = hider.cleaned(data.decode("utf-8", "replace"), "text")
        return (str(text).encode(), hider.hidden) if hider.hidden else (data, [])
    pairs = {pair for one in answer.data.result for pair in one.metric.items()}
    changed = {}
    for name, value in sorted(pairs):
        cleaned = Hider(known).cleaned({name: value}, "")
        if isinstance(cleaned, dict) and cleaned[name] != value:
            changed[name, value] = str(cleaned[name])
    if not changed:
        return data, []
    hidden = []
    for index, one in enumerate(answer.data.result):
        for name, value in one.metric.items():
            if (name, value) in changed:
                one.metric[name] = changed[name, value]
                hidden.append(Hidden(f"result[{index}].metric.{name}", "label of a metric"))
    result = [
        {"metric": one.metric}
        | ({"values": one.values} if memoryview(one.values) else {"value": one.value})
        for one in answer.data.result
    ]
    document = {"resultType": answer.data.resultType, "result": result}
    return msgspec.json.encode({"status": answer.status, "data": document}) + b"\n", hidden
