"""A container of a manifest as the rules see it: environment resolved, launcher found, GPUs counted.

A variable from a Secret, the downward API or a ConfigMap that was not read is set to something unknown. A
script's own exports win over the spec, as they do when it runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from gpufleet_cli.operate.preflight.documents import Path
from gpufleet_cli.operate.preflight.launcher import launcher_of
from gpufleet_cli.operate.preflight.model import Container
from gpufleet_cli.operate.preflight.shell import MOST_TEXT, Env, commands_of, expanded
from gpufleet_cli.parsers import json_documents as js

_GPU = re.compile(
    r"(?:nvidia\.com/(?:gpu(?:\.shared)?|mig-[\w.]+)|amd\.com/gpu|gpu\.intel\.com/(?:i915|xe)|habana\.ai/gaudi)"
)

ConfigMaps = Mapping[str, Mapping[str, object]]


def gpus_of(raw: object) -> int | None:
    """GPUs of one container: its limits, else its requests; None for those of a resource claim."""
    found = 0
    for field in ("limits", "requests"):
        named = js.mapping(js.at(raw, "resources", field))
        counts = [js.integer(value) for key, value in named.items() if _GPU.fullmatch(key)]
        if counts:
            known = [one for one in counts if one is not None]
            return sum(known) if len(known) == len(counts) else None
    if js.items(js.at(raw, "resources", "claims")):
        return None
    return found


def container_of(
    raw: object,
    path: Path,
    maps: ConfigMaps,
    *,
    given: Env | None = None,
    runs: Sequence[str] | None = None,
) -> Container:
    """`given`: what a controller or launcher sets besides. `runs`: what is run in place of its own command."""
    env, is_open = _environment(raw, maps)
    env = {**env, **(given or {})}
    words = [w for key in ("command", "args") for w in map(_word, js.items(js.at(raw, key)))]
    told = commands_of(words if runs is None else runs, env)
    return Container(
        name=js.text_at(raw, "name") or "?",
        image=js.text_at(raw, "image") or "",
        env={**env, **told.exports},
        env_open=is_open,
        commands=told.commands,
        text=told.text,
        launcher=launcher_of(told.commands),
        gpus=gpus_of(raw),
        raw=js.mapping(raw),
        path=path,
    )


def _word(value: object) -> str:
    return value if isinstance(value, str) else str(value)


def _environment(raw: object, maps: ConfigMaps) -> tuple[dict[str, str | None], bool]:
    env: dict[str, str | None] = {}
    is_open = False
    for source in js.items(js.at(raw, "envFrom")):
        name = js.text_at(source, "configMapRef", "name")
        if name is not None and name in maps:
            prefix = js.text_at(source, "prefix") or ""
            env.update({prefix + key: _word(value) for key, value in maps[name].items()})
        else:
            is_open = True
    left = MOST_TEXT
    for entry in js.items(js.at(raw, "env")):
        name = js.text_at(entry, "name")
        if name is not None:
            value = _value(entry, env, maps) if left > 0 else None
            left -= len(value or "")
            env[name] = value
    return env, is_open


def _value(entry: object, env: Env, maps: ConfigMaps) -> str | None:
    ref = js.mapping(js.at(entry, "valueFrom", "configMapKeyRef"))
    key = js.text_at(ref, "key")
    if key is not None and key in maps.get(js.text_at(ref, "name") or "", {}):
        return _word(maps[js.text_at(ref, "name") or ""][key])
    if isinstance(js.at(entry, "valueFrom"), dict):
        return None
    value = js.at(entry, "value")
    if value is None:
        return ""
    text = {True: "true", False: "false"}[value] if isinstance(value, bool) else _word(value)
    return expanded(text, env, in_shell=False)
