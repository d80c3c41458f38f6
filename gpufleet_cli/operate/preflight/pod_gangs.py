"""Plain pods that meet at one address are one gang, though no object says so."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace

from gpufleet_cli.operate.preflight.model import Role
from gpufleet_cli.operate.preflight.shell import is_open
from gpufleet_cli.parsers import json_documents as js

_ADDRESSES = ("MASTER_ADDR", "PET_MASTER_ADDR", "PET_RDZV_ENDPOINT", "RDZV_ENDPOINT")
_OPTIONS = ("rdzv-endpoint", "master-addr", "main-process-ip")
_ALONE = re.compile(r"(?:localhost|127\.[\d.]+|\[?::1\]?)(?::\d*)?")
_OWN = re.compile(r"(?:\w*_)?(?:RANK|INDEX|HOSTNAME|POD_NAME|POD_IP|NODE_NAME|HOST_IP)")
"""Variables by which pods of one gang differ as they should."""
_OWN_NUMBER = re.compile(r'(--(?:node|machine)[_-]rank(?:=|", "|\s+))\d+')


def address(role: Role) -> str | None:
    """Where the ranks of a pod meet those of others; None where that is not known, or is the pod itself."""
    launcher = role.main.launcher
    told = [role.main.env.get(name) for name in _ADDRESSES]
    told += [launcher.option(name) for name in _OPTIONS] if launcher is not None else []
    found = next((one for one in told if one), None)
    if found is None or is_open(found) or _ALONE.fullmatch(found):
        return None
    return found.rpartition(":")[0] or found


def roles_of(pods: Sequence[Role]) -> list[Role]:
    """Pods that are alike are one role, named after the first: 1,024 of them are looked at once."""
    alike: dict[str, list[Role]] = {}
    for pod in pods:
        alike.setdefault(_shape(pod), []).append(pod)
    return [replace(group[0], pods=len(group), in_world=len(group)) for group in alike.values()]


def _shape(role: Role) -> str:
    """All of a pod that the rules read, without what is each pod's own."""
    spec = {key: value for key, value in role.pod.items() if key not in ("nodeName", "hostname")}
    spec["containers"] = [_container(one.raw) for one in role.containers]
    text = json.dumps([spec, dict(role.annotations)], sort_keys=True, default=str)
    return _OWN_NUMBER.sub(r"\1", text)


def _container(raw: object) -> dict[str, object]:
    env = [
        one
        for one in js.items(js.at(raw, "env"))
        if not _OWN.fullmatch(js.text_at(one, "name") or "")
    ]
    return {**js.mapping(raw), "env": env}
