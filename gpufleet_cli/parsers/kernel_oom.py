"""Out-of-memory kills as the kernel reports them, over several lines.

    oom-kill:constraint=CONSTRAINT_MEMCG,...,task_memcg=/kubepods.slice/...,task=python,pid=9,uid=0
    Memory cgroup out of memory: Killed process 9 (python) total-vm:1kB, anon-rss:1kB, ...
    Task in /kubepods/burstable/pod8c1f77d0-.../a1b2... killed as a result of limit of ...  (old)

The pid is the host's: a container counts its own. The pod's uid stands in the cgroup path, with
`_` where the systemd driver made it. Wordings: mm/oom_kill.c of Linux 3.10 to 6.12.

>>> read("Memory cgroup out of memory: Killed process 918234 (python) total-vm:1kB").pid
918234
"""

from __future__ import annotations

import re
from typing import NamedTuple

_OOM = re.compile(r"oom-kill:constraint=(?P<constraint>\w{1,40})")
_OOM_PART = re.compile(r"\b(task_memcg|oom_memcg|task|pid|global_oom)=?([^,]{0,1000})")
_OLD_OOM = re.compile(r"Task in (?P<cgroup>\S{1,1000}) killed as a result of limit of")
_KILLED = re.compile(
    r"(?:Memory cgroup out of memory: |Out of memory[^:]{0,40}: )?Killed process "
    r"(?P<pid>\d{1,10}),? (?:UID \d{1,10},? )?\((?P<process>[^)]{1,64})\)"
)
_POD_UID = re.compile(
    r"pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})"
)
_CONTAINER = re.compile(r"(?:^|[/-])([0-9a-f]{64})(?:\.scope)?(?:/|$)")


class OomPart(NamedTuple):
    """One line of an OOM kill: the `oom-kill:` line has the cgroup, `Killed process` the size."""

    pid: int | None
    process: str | None
    pod_uid: str | None
    container_id: str | None
    killed: bool


def read(message: str) -> OomPart | None:
    """The part of an OOM report that this line is; None for every other line."""
    killed = _KILLED.search(message)
    if killed:
        return OomPart(int(killed["pid"]), killed["process"], None, None, True)
    old = _OLD_OOM.search(message)
    if old:
        return OomPart(None, None, pod_uid(old["cgroup"]), container_id(old["cgroup"]), False)
    start = _OOM.search(message)
    if start is None:
        return None
    parts = dict(_OOM_PART.findall(message, start.start()))
    cgroup = parts.get("task_memcg") or parts.get("oom_memcg") or ""
    pid = parts.get("pid", "")
    return OomPart(
        pid=int(pid) if pid.isdecimal() and len(pid) <= 10 else None,
        process=parts.get("task"),
        pod_uid=pod_uid(cgroup),
        container_id=container_id(cgroup),
        killed=False,
    )


def pod_uid(cgroup: str) -> str | None:
    """The pod's uid in a cgroup path, with dashes: the systemd driver writes `_`."""
    found = _POD_UID.search(cgroup)
    return found[1].replace("_", "-") if found else None


def container_id(cgroup: str) -> str | None:
    """The 64 digits of a container in a cgroup path."""
    found = _CONTAINER.search(cgroup)
    return found[1] if found else None
