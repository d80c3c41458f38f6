"""Kubernetes objects in YAML, as `kubectl get -o yaml` prints them.

Only plain data: PyYAML's safe loader, no aliases (a few lines of them can stand for gigabytes), and a
limit on size, since YAML costs some fifty times what JSON costs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, ClassVar

from gpufleet_cli.errors import ParseError

MOST_BYTES = 16_000_000

_HEAD = re.compile(rb"^(?:- )?apiVersion: \S{1,100}\s*$", re.MULTILINE)
_KIND = re.compile(rb"^ {0,4}kind: (?:Pod|Node|Event|Lease|\w{0,20}List)\s*$", re.MULTILINE)
_ALIAS = re.compile(rb"(?:^|[\s\[{,])[&*][\w-]{1,64}(?:[\s,\]}]|$)", re.MULTILINE)


def matches(head: bytes) -> bool:
    """An `apiVersion:` and a `kind:` that we read, as block YAML."""
    start = head[:8192]
    is_object = b"apiVersion: " in start and _HEAD.search(start) is not None
    return is_object and _KIND.search(head) is not None


def documents(data: bytes) -> Iterator[object]:
    """Every document of a file. ParseError for what is no YAML, too big, or holds aliases."""
    if len(data) > MOST_BYTES:
        raise ParseError(f"YAML of over {MOST_BYTES:,} bytes; save it as JSON")
    import yaml

    loader = plain_loader()
    text = data.decode("utf-8", "replace")
    try:
        if _ALIAS.search(data) and any(
            isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=loader)
        ):
            raise ParseError("YAML with aliases is not read")
        yield from yaml.load_all(text, Loader=loader)  # a safe loader: plain data only
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError) as exc:
        raise ParseError(f"no YAML: {str(exc)[:120]}") from exc


def plain_loader() -> Any:  # noqa: ANN401  a loader of PyYAML, which has no type for it
    """The safe loader, with times left as text: a datetime would lose their nanoseconds."""
    import yaml

    class Plain(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        yaml_implicit_resolvers: ClassVar = {
            first: [(tag, rx) for tag, rx in pairs if tag != "tag:yaml.org,2002:timestamp"]
            for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    return Plain
