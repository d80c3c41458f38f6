"""`gpufleet doctor`: every source tried once by daylight, and what tonight's triage would lack.

Nothing here stops at the first trouble: a source that fails is a finding. With a job its pods are looked
at, and `cat /dev/null` is run in one of its containers, which is what reading a dump would take.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from gpufleet_cli import settings_file
from gpufleet_cli.errors import GpufleetError, UsageError
from gpufleet_cli.live import (
    access,
    doctor_dumps,
    doctor_job,
    doctor_stores,
    find_job,
    groups,
    rights,
    threads,
)
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.deadline import Deadline
from gpufleet_cli.live.doctor_stores import Way
from gpufleet_cli.live.find_job import Job, Wanted
from gpufleet_cli.live.rights import Reviewed, Right
from gpufleet_cli.live.session import LiveOptions
from gpufleet_cli.settings_file import SettingsFile, choose
from gpufleet_cli.source_check import CheckUp, SourceCheck

DEADLINE_S = 30.0


def examine(options: LiveOptions) -> CheckUp:
    """All sources, in the order of a triage."""
    deadline = Deadline(DEADLINE_S if options.deadline_s is None else options.deadline_s)
    file, of_file = _settings()
    api, of_server = _connected(options, deadline)
    context = options.context if api is None else api.access.context
    way = Way(api=api, options=options, file=file, deadline=deadline, context=context)
    job, of_job = _job(way)
    namespace = job.namespace if job else way.namespace
    reviewed = _reviewed(way, namespace)
    may_exec = next((o.allowed for o in reviewed if o.right.resource == "pods/exec"), None)
    tried: list[tuple[str, Callable[[], SourceCheck]]] = [
        ("metrics", lambda: doctor_stores.metrics(way, job)),
        ("log store", lambda: doctor_stores.lost_logs(way, job, namespace)),
        ("dumps", lambda: doctor_dumps.dumps(way, job, may_exec)),
    ]
    asked = threads.each(lambda one: one[1](), tried, threads=len(tried), deadline=deadline)
    found = {name: check for (name, _), check in asked}
    for name, _ in tried:
        late = SourceCheck(
            source=name, ok=False, what="no answer in time", would_lack=f"its {name}"
        )
        found.setdefault(name, late)
    checks = [of_server, *_rights(reviewed, api), *of_job]
    if job is not None:
        pods = job.attempts[-1].pods if job.attempts else job.pods
        checks.append(doctor_job.recorder(doctor_job.with_gpus(pods)))
    checks += [found["dumps"], found["metrics"], found["log store"]]
    checks += [_kernel_logs(options, found["metrics"]), of_file, _kubectl(api)]
    own = ("metrics", "log store", "dumps", "kernel logs")
    return CheckUp(
        context=context,
        server=None if api is None else api.access.server,
        job=None if job is None else job.name,
        namespace=None if job is None else job.namespace,
        checks=tuple(checks),
        was_reached=api is not None or any(
            one.ok and one.source in own and one.what != NO_KERNEL_LOGS for one in checks
        ),
    )  # fmt: skip


# --- The way in -----------------------------------------------------------------------------------


def _settings() -> tuple[SettingsFile, SourceCheck]:
    path = settings_file.config_path()
    try:
        file = settings_file.load()
    except UsageError as exc:
        nothing = SettingsFile(path=path, contexts={})
        return nothing, SourceCheck(
            source="settings file", ok=False, what=exc.message,
            would_lack="everything: a triage stops at this file", action=f"mend {path}",
        )  # fmt: skip
    if not path.exists():
        return file, SourceCheck(source="settings file", ok=True, what=f"none ({path})")
    tables = ", ".join(sorted(file.contexts)) or "no context"
    return file, SourceCheck(source="settings file", ok=True, what=f"{path}: {tables}")


def _connected(options: LiveOptions, deadline: Deadline) -> tuple[Api | None, SourceCheck]:
    try:
        way = access.connect(kubeconfig=options.kubeconfig, context=options.context)
        api = Api(way, deadline=deadline)
        version = api.check()
    except GpufleetError as exc:
        return None, SourceCheck(
            source="API server", ok=False, what=exc.message,
            would_lack="the job, its pods, nodes and logs", action=exc.hint or "",
        )  # fmt: skip
    user = rights.who_am_i(api) or way.user
    where = f"context {way.context}, {way.server}" if way.context else way.server
    what = f"{where} ({version}), user {user or 'not known'}"
    return api, SourceCheck(source="API server", ok=True, what=what)


def _reviewed(way: Way, namespace: str) -> list[Reviewed]:
    if way.api is None:
        return []
    wanted = (
        *rights.to_read_a_job(namespace),
        *rights.to_read_a_job(namespace, many_nodes=True),
        *rights.to_exec(namespace),
        *rights.to_find_services(),
        *_to_reach_stores(way),
    )
    return rights.review(way.api, wanted)


def _to_reach_stores(way: Way) -> Iterator[Right]:
    """Of stores behind the API server's service proxy, where one is set."""
    chosen = partial(choose, file=way.file, context=way.context)
    for found, loses in (
        (chosen("prometheus", flag=way.options.prometheus), doctor_stores.XIDS),
        (chosen("log_store", flag=way.options.log_store), doctor_stores.LOGS),
    ):
        if found is not None:
            yield from rights.to_reach(found.value.rpartition("+")[2], loses)


def _rights(reviewed: Sequence[Reviewed], api: Api | None) -> Iterator[SourceCheck]:
    """One check a right; the first that is missing of a role names the command that grants the role."""
    told: set[str] = set()
    for one in reviewed:
        right = one.right
        source = f"right to {right.shown}"
        if one.allowed:
            yield SourceCheck(source=source, ok=True, what="allowed")
        elif one.allowed is None:
            yield SourceCheck(
                source=source, ok=True, what=f"the server could not tell: {one.why}",
                would_lack=f"perhaps {right.loses}",
            )  # fmt: skip
        else:
            action = "" if right.role in told else _grant(right, api)
            told.add(right.role)
            yield SourceCheck(
                source=source, ok=False, what="not allowed", would_lack=right.loses, action=action
            )


def _grant(right: Right, api: Api | None) -> str:
    """The commands of whoever administers the cluster."""
    user = rights.who_am_i(api) if api is not None else None
    whom = f"--user={shlex.quote(user or 'USER')}"
    parts = (user or "").split(":")
    if parts[:2] == ["system", "serviceaccount"] and len(parts) == 4:
        whom = f"--serviceaccount={parts[2]}:{parts[3]}"
    if right.name is not None and right.namespace is not None:
        return rights.grant_of(right.namespace, right.name, whom)
    role = right.role
    bind = f"kubectl create clusterrolebinding {role} --clusterrole={role} {whom}"
    return f"kubectl apply -R -f deploy/rbac; {bind}"


def _job(way: Way) -> tuple[Job | None, list[SourceCheck]]:
    options = way.options
    if way.api is None or (options.target is None and options.selector is None):
        return None, []
    wanted = Wanted(
        target=options.target,
        selector=options.selector,
        namespace=options.namespace,
        is_whole=True,
    )
    try:
        job = find_job.find(way.api, wanted)
    except GpufleetError as exc:
        lack = "the job, its pods and logs"
        return None, [
            SourceCheck(
                source="job", ok=False, what=exc.message, would_lack=lack, action=exc.hint or ""
            )
        ]
    if options.group is not None:
        job = groups.only(job, options.group)
    size = "" if job.gang is None else f" of {job.gang}"
    state = job.attempts[-1].state if job.attempts else "no pod is there"
    group = "" if options.group is None else f", group {options.group}"
    what = f"{job.shown}{group}: {len(job.pods)}{size} pods, {state}"
    lack = "" if job.pods else "logs and dumps of its pods"
    return job, [SourceCheck(source="job", ok=bool(job.pods), what=what, would_lack=lack)]


# --- Kernel logs, kubectl ------------------------------------------------------------------


NO_KERNEL_LOGS = "none given: XIDs come from the metrics"


def _kernel_logs(options: LiveOptions, metrics: SourceCheck) -> SourceCheck:
    lack = "the driver's own lines, memory kills of the host"
    if options.kernel_logs is not None:
        return doctor_dumps.folder("kernel logs", options.kernel_logs, "--kernel-logs", lack)
    if metrics.ok:
        return SourceCheck(source="kernel logs", ok=True, what=NO_KERNEL_LOGS)
    what = "none given, and no metrics tell XIDs either"
    return SourceCheck(
        source="kernel logs", ok=False, what=what, would_lack=lack, action="--kernel-logs FOLDER"
    )


def _kubectl(api: Api | None) -> SourceCheck:
    place = shutil.which("kubectl")
    if place is not None:
        return SourceCheck(source="kubectl", ok=True, what=place)
    if api is not None:
        return SourceCheck(source="kubectl", ok=True, what="not on PATH, and not needed")
    return SourceCheck(
        source="kubectl", ok=False, what="not on PATH", would_lack="a second way into the cluster"
    )
