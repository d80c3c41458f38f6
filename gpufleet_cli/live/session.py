"""One live look from end to end: connect, find, choose the attempt, gather into a folder or a file."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from gpufleet_cli import settings_file
from gpufleet_cli.bundle import read_target
from gpufleet_cli.errors import GpufleetError, SourceError, TargetError
from gpufleet_cli.live import (
    bundle_writer,
    choose_attempt,
    gone_pods,
    groups,
    name_cache,
    names_met,
    pack,
    pod_logs,
    queues,
    reach,
    rights,
    sources,
    stores,
    troubles,
    typed_places,
)
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.bundle_writer import BundleWriter
from gpufleet_cli.live.choose_attempt import LOOKBACK_S
from gpufleet_cli.live.deadline import Deadline
from gpufleet_cli.live.find_job import Job, Wanted, find
from gpufleet_cli.live.gather import FEW_NODES, Hooks, gather
from gpufleet_cli.live.pods import Attempt

_MOST_YOUNG = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOptions:
    """What the command line says about a job in the cluster."""

    target: str | None
    looked_on_disk: bool = False
    selector: str | None = None
    namespace: str | None = None
    context: str | None = None
    kubeconfig: str | None = None
    deadline_s: float | None = None
    attempt: int | None = None
    group: int | None = None
    at_ns: int | None = None
    lookback_s: float = LOOKBACK_S
    dumps: str | None = None
    prometheus: str | None = None
    log_store: str | None = None
    kernel_logs: str | None = None
    place_option: str = "--to"
    keeps: bool = True
    """The bundle stays where it is, so that a second run can go on with it."""
    capture: bool = False
    watchdog_s: float | None = None
    watchdog_source: str = "--watchdog-timeout"
    known: Mapping[str, object] | None = None
    """What the caller knows of the job and no log says: the bundle's `job.json`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What a look gave, in the words of `collect`'s line."""

    bundle: str
    job: str
    namespace: str
    files: int
    size_bytes: int
    ranks: int | None
    missing: int
    hidden: int
    seconds: float
    interrupted: bool


@contextmanager
def _few_collections() -> Iterator[None]:
    """Objects come in by the million and hardly one is in a ring; by default the collector of rings would
    walk all of them again and again, a tenth of the processor time of a large job."""
    before = gc.get_threshold()
    gc.set_threshold(_MOST_YOUNG, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@_few_collections()
def collect(options: LiveOptions, place: Path, hooks: Hooks) -> Collected:
    """Gather what is asked for into `place`: a folder, or one file by its name."""
    typed_places.check(options)
    pack.refuse_others(place, options.place_option)
    deadline = Deadline(options.deadline_s)
    api, job = _found(options, deadline, hooks.say)
    attempt = _attempt(api, job, options, hooks.say)
    world = groups.one_world(api, job, attempt, options.group)
    job, attempt = world.job, world.attempt
    if world.told is not None:
        hooks.say(world.told)
    is_packed = pack.is_packed(place.name)
    if is_packed:
        _may_replace(place, attempt)
    folder = pack.working_folder(place) if is_packed else place
    sink = bundle_writer.open_folder(folder)
    _same_attempt(sink, attempt, folder)
    sink.about |= world.about
    stated = {**_settings_numbers(api.access.context), **(options.known or {})}
    if stated:
        sink.add_document("job.json", stated)
    nodes = [pod.state.node for pod in attempt.pods]
    met = names_met.of_pods(nodes, job.name, job.namespace)
    name_cache.remember(api.access, options.kubeconfig, met)
    asked = rights.Round(
        api,
        sources.rights_for(
            options, api.access.context, job.namespace, many_nodes=len(set(nodes)) > FEW_NODES
        ),
    )
    found = gather(
        api, job, attempt, sink, hooks,
        sources.sources_for(options, api.access.context), asked,
    )  # fmt: skip
    resumes = f": it goes on from {place}" if options.keeps and not is_packed else ""
    for line in troubles.lines(sink.gaps, resumes=resumes):
        hooks.say(line)
    return finished(
        sink,
        folder,
        place,
        seconds=deadline.elapsed_s(),
        job=job,
        ranks=found.ranks,
        interrupted=found.interrupted,
    )


def _settings_numbers(context: str | None) -> dict[str, object]:
    """The numbers of `job.json` that the settings file states for this context."""
    own = settings_file.load().of(context)
    numbers = {
        "world_size": own.world_size,
        "gpus_per_node": own.gpus_per_node,
        "checkpoint_interval_seconds": own.checkpoint_interval_s,
        "step_seconds": own.step_s,
        "watchdog_timeout_seconds": own.watchdog_timeout_s,
        "restart_seconds": own.restart_s,
    }
    return {name: value for name, value in numbers.items() if value is not None}


def finished(
    sink: BundleWriter,
    folder: Path,
    place: Path,
    *,
    seconds: float,
    job: Job | None = None,
    ranks: int | None = None,
    interrupted: bool = False,
) -> Collected:
    """The bundle packed where it is to be one file, and what it holds."""
    if folder != place:
        pack.pack(folder, place)
        shutil.rmtree(folder, ignore_errors=True)
    about = sink.about.get("world_size")
    return Collected(
        bundle=str(place),
        job=str(sink.about.get("job")) if job is None else job.name,
        namespace=str(sink.about.get("namespace")) if job is None else job.namespace,
        files=len(sink.files),
        size_bytes=sink.size_bytes,
        ranks=about if ranks is None and isinstance(about, int) else ranks,
        missing=len(set(sink.gaps)),
        hidden=sink.hidden_count,
        seconds=round(seconds, 3),
        interrupted=interrupted,
    )


def _found(options: LiveOptions, deadline: Deadline, say: Callable[[str], None]) -> tuple[Api, Job]:
    """The job that is meant; where there is none, both looks are named."""
    wanted = Wanted(
        target=options.target,
        selector=options.selector,
        namespace=options.namespace,
        is_whole=True,
    )
    try:
        api = _connected(options, deadline, say)
        job = find(api, wanted)
    except (SourceError, TargetError) as exc:
        if not options.looked_on_disk:
            raise
        both = f"{options.target}: no such file or folder, and {exc.message}"
        raise type(exc)(both, hint=exc.hint) from exc
    if not job.attempts and queues.is_held(api, job):
        return api, replace(job, attempts=(queues.NONE_YET,))
    if not job.attempts and stores.has_log_store(api, options.log_store):
        say(f"{job.shown} has no pods any more: a log store may have what they wrote")
        return api, replace(job, attempts=(gone_pods.attempt_of(job),))
    if not job.attempts:
        raise TargetError(
            f"{job.shown} has no pods in {api.access.context or api.access.server}",
            hint="gone, or never made: kubectl describe has its events; --log-store what they wrote",
        )
    return api, job


def _connected(options: LiveOptions, deadline: Deadline, say: Callable[[str], None]) -> Api:
    found = reach.reached(
        kubeconfig=options.kubeconfig, context=options.context, deadline=deadline, say=say
    )
    say(found.told)
    return found.api


def _attempt(api: Api, job: Job, options: LiveOptions, say: Callable[[str], None]) -> Attempt:
    now = api.now_ns()
    chosen = choose_attempt.choose(
        job.attempts,
        number=options.attempt,
        at_ns=options.at_ns,
        lookback_s=options.lookback_s,
        now_ns=now,
        is_stalled=len(job.attempts) > 1 and pod_logs.is_stalled(api, job.attempts[-1].pods, now),
    )
    told = choose_attempt.told(job.attempts, chosen, now)
    gang = "" if job.gang is None else f" of {job.gang}"
    say(f"{job.shown}: {len(chosen.pods)}{gang} pods{f'; {told}' if told else ''}")
    return chosen


def _same_attempt(sink: BundleWriter, attempt: Attempt, folder: Path) -> None:
    """A bundle that was begun is gone on with only where it is of the same pods."""
    before = sink.before.get("pods")
    if isinstance(before, list) and before != _pods(attempt):
        raise _of_others(folder)


def _may_replace(place: Path, attempt: Attempt) -> None:
    """A file that is there is replaced only where it is an older bundle of the same pods, or empty."""
    if not os.path.lexists(place):
        return
    try:
        if place.is_file() and not place.stat().st_size:
            return
        read = read_target(place)
    except (OSError, GpufleetError):
        read = None
    if read is None or not place.is_file() or read.kind != "bundle" or read.manifest is None:
        raise TargetError(
            f"{place} is there already and is no bundle of ours",
            hint="give a new place to --to or --save",
        )
    if read.manifest.get("pods") != _pods(attempt):
        raise _of_others(place)


def _pods(attempt: Attempt) -> list[str]:
    return sorted(pod.state.uid or pod.name for pod in attempt.pods)


def _of_others(place: Path) -> TargetError:
    return TargetError(
        f"{place} holds a bundle of other pods (another attempt?)",
        hint="give a new place to --to or --save",
    )
