"""Manifests as people write them: YAML or JSON, several documents, Helm output, lists, anchors.

Anchors are common in manifests written by hand, so unlike evidence they are read here, within a limit on
what they expand to. A document that is no YAML costs itself and those behind it, and is told.

>>> found, _ = read_text("a.yaml", b"# Source: x\\n---\\n---\\nkind: Job\\nmetadata: {name: j}\\n")
>>> [(one.kind, one.name, one.where(("metadata", "name"))) for one in found]
[('Job', 'j', 'a.yaml:5 Job/j metadata.name')]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpufleet_cli.errors import ParseError
from gpufleet_cli.parsers import json_documents as js
from gpufleet_cli.parsers.kubernetes_yaml import plain_loader

MOST_BYTES = 16_000_000
MOST_NODES = 400_000
MOST_DEPTH = 4

Step = str | int
Path = tuple[Step, ...]
Object = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One object of one source. `node` is its YAML, for line numbers; None for JSON and the cluster."""

    source: str
    raw: Object
    node: Any = None

    @property
    def kind(self) -> str:
        return js.text_at(self.raw, "kind") or ""

    @property
    def group(self) -> str:
        return (js.text_at(self.raw, "apiVersion") or "").rpartition("/")[0]

    @property
    def version(self) -> str:
        return (js.text_at(self.raw, "apiVersion") or "").rpartition("/")[2]

    @property
    def name(self) -> str:
        found = js.text_at(self.raw, "metadata", "name")
        return found or js.text_at(self.raw, "metadata", "generateName") or "?"

    @property
    def namespace(self) -> str | None:
        return js.text_at(self.raw, "metadata", "namespace")

    def where(self, path: Path) -> str:
        """`a.yaml:12 JobSet/llama spec.suspend`: the line of the deepest part that is there."""
        line = _line(self.node, path)
        at = f"{self.source}:{line}" if line else self.source
        return " ".join(part for part in (at, f"{self.kind}/{self.name}", shown(path)) if part)


def shown(path: Path) -> str:
    """`spec.tasks[0].replicas`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """What could not be read, and why. `is_beside`: not the job itself, but what may bear on it."""

    source: str
    why: str
    is_beside: bool = False


def read_text(source: str, data: bytes) -> tuple[list[Document], list[Unread]]:
    """Every object of one file."""
    if len(data) > MOST_BYTES:
        return [], [Unread(source=source, why=f"over {MOST_BYTES:,} bytes")]
    found: list[Document] = []
    reader = _json if data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[") else _yaml
    try:
        for value, node in reader(data):
            found.extend(_flat(source, value, node))
    except ParseError as exc:
        return found, [Unread(source=source, why=exc.message)]
    return found, []


def yaml_value(text: str) -> object:
    """A YAML text that stands inside a manifest (`runtimeEnvYAML`); None where it is none."""
    try:
        return next((value for value, _ in _yaml(text.encode())), None)
    except ParseError:
        return None


def _json(data: bytes) -> Iterator[tuple[object, Any]]:
    for value in js.documents(data):
        yield value, None


def _yaml(data: bytes) -> Iterator[tuple[object, Any]]:
    import yaml

    try:
        text = data.decode("utf-8-sig", "strict")
        loader = plain_loader()(text)
    except (UnicodeDecodeError, yaml.YAMLError) as exc:
        raise ParseError(f"no YAML: {exc}") from exc
    try:
        while loader.check_node():
            node = loader.get_node()
            _measure(node)
            yield loader.construct_document(node), node
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError, AttributeError) as exc:
        raise ParseError(_said(exc, text)) from exc
    finally:
        loader.dispose()


def _said(exc: Exception, text: str) -> str:
    mark = getattr(exc, "problem_mark", None)
    problem = getattr(exc, "problem", None) or str(exc)
    at = f", line {mark.line + 1}" if mark is not None else ""
    more = "; run `helm template` and give its output" if "{{" in text else ""
    return f"no YAML: {' '.join(str(problem).split())[:120]}{at}{more}"


def _measure(root: Any) -> None:  # noqa: ANN401  a node of PyYAML
    """Refuse what anchors blow up: the size that the document has once they are put in."""
    sizes: dict[int, int] = {}
    open_now: set[int] = set()

    def size(node: Any) -> int:  # noqa: ANN401
        key = id(node)
        if key in sizes:
            return sizes[key]
        if key in open_now:
            raise ParseError("an anchor that holds itself")
        total = 1
        if isinstance(node.value, list):
            open_now.add(key)
            for part in node.value:
                total += sum(map(size, part)) if isinstance(part, tuple) else size(part)
            open_now.discard(key)
        if total > MOST_NODES:
            raise ParseError(f"anchors expand to over {MOST_NODES:,} values")
        sizes[key] = total
        return total

    if root is not None:
        size(root)


def _flat(source: str, value: object, node: Any, depth: int = 0) -> Iterator[Document]:  # noqa: ANN401
    """Lists (`kind: List`, a JSON array) taken apart; empty documents and plain values left out."""
    if depth > MOST_DEPTH:
        return
    if isinstance(value, list):
        for index, one in enumerate(value):
            yield from _flat(source, one, _below(node, index), depth + 1)
    elif isinstance(value, dict):
        kind = js.text_at(value, "kind") or ""
        if isinstance(value.get("items"), list) and (kind == "" or kind.endswith("List")):
            listed = kind.removesuffix("List")
            inside = _below(node, "items")
            for index, one in enumerate(js.items(value["items"])):
                if isinstance(one, dict) and "kind" not in one and listed:
                    one = {"kind": listed, "apiVersion": value.get("apiVersion"), **one}
                yield from _flat(source, one, _below(inside, index), depth + 1)
        elif kind:
            yield Document(source=source, raw=value, node=node)


def _below(node: Any, step: Step) -> Any:  # noqa: ANN401
    """The node under a key or an index; None where there is none."""
    value = getattr(node, "value", None)
    if not isinstance(value, list):
        return None
    if isinstance(step, int):
        inside = value[step] if step < len(value) else None
        return None if isinstance(inside, tuple) else inside
    for pair in value:
        if isinstance(pair, tuple) and getattr(pair[0], "value", None) == step:
            return pair[1]
    return None


def _line(node: Any, path: Path) -> int | None:  # noqa: ANN401
    """The line on which the deepest part of the path stands, from 1."""
    if node is None:
        return None
    line = int(node.start_mark.line) + 1
    for step in path:
        if isinstance(step, str):
            keys = [k for k, _ in _pairs(node) if getattr(k, "value", None) == step]
            line = int(keys[0].start_mark.line) + 1 if keys else line
        node = _below(node, step)
        if node is None:
            break
        if isinstance(step, int):
            line = int(node.start_mark.line) + 1
    return line


def _pairs(node: Any) -> list[tuple[Any, Any]]:  # noqa: ANN401
    value = getattr(node, "value", None)
    return [one for one in value if isinstance(one, tuple)] if isinstance(value, list) else []
