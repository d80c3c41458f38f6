"""What happens to a job of the matrix, as a real API server and the job's own logs show it afterwards.

Each incident strikes one pod, the victim; the ranks of all others are innocent, and shout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from servers import nodes, pods
from servers.jobs import Shape
from servers.metrics import Series, held, xid_series
from servers.namespaces import Namespace
from servers.running import wait_until

from live import job_voices, rank_words
from live.job_voices import RANKS_A_POD, JobForm, MadeJob
from live.rank_words import ABORT_S, STEPS, WATCHDOG_S, Said

StartPrometheus = Callable[[Iterable[Series]], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A job that something happened to. `fell`: when; `more`: options that triage is given."""

    job: MadeJob
    victim: int
    fell: datetime | None
    more: tuple[str, ...] = ()
    action: str | None = None  # where it differs from the incident's

    @property
    def pod(self) -> str:
        return self.job.pods[self.victim]

    @property
    def node(self) -> str | None:
        return self.job.node_of(self.victim)

    @property
    def ranks(self) -> range:
        return self.job.ranks_of(self.victim)

    @property
    def innocent_pods(self) -> list[str]:
        return [pod for pod in self.job.pods if pod != self.pod]


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """`ranks`: which of the victim's ranks are named, by local rank; empty where nothing tells the rank."""

    name: str
    happen: Callable[[Namespace, JobForm, StartPrometheus], Scene]
    kind: str
    action: str
    ranks: tuple[int, ...] = ()
    evicts: bool = False
    waited: bool = True  # whether the innocent waited in a collective and say so


def with_environment(
    namespace: Namespace, form: JobForm, name: str, shape: Shape, env: Mapping[str, str]
) -> MadeJob:
    """A job whose containers have these variables; it runs when this returns."""
    form.make(namespace, name, replace(shape, env=env))
    there = pods.wait(namespace, form.selector.format(name), shape.pods)
    return job_voices.found(namespace, form, name, [pod["metadata"]["name"] for pod in there])


# --- A job that ran ------------------------------------------------------------------------------


def _ran(namespace: Namespace, form: JobForm) -> Scene:
    """A job whose ranks have stepped for a minute; the watchdogs of those that wait have spoken by now."""
    count = len(form.pods("x"))
    made = nodes.make(namespace, count, gpus=RANKS_A_POD)
    job = job_voices.make(namespace, form, f"run-{namespace.name.removeprefix('test-')}", made)
    ago = WATCHDOG_S + (ABORT_S + 120 if form.aborts else 30)
    fell = datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=ago)
    return Scene(job=job, victim=count - 2, fell=fell)


def _story(scene: Scene, silent: Sequence[int], own: Iterable[Said] = ()) -> list[Said]:
    """All step; the silent ranks have only their own words after that, all others wait and shout."""
    assert scene.fell is not None
    lines: list[Said] = [*own]
    aborts = scene.job.form.aborts
    noticed = scene.fell + timedelta(seconds=WATCHDOG_S)
    for rank in scene.job.ranks:
        lines += rank_words.steps(rank, scene.fell - timedelta(seconds=STEPS))
        if rank not in silent:
            lines += rank_words.storm(rank, noticed, aborts=aborts)
    if aborts:
        gone = noticed + timedelta(seconds=ABORT_S + 1)
        for index in range(len(scene.job.pods)):
            if index != scene.victim:
                first = scene.job.ranks_of(index)[0]
                lines += rank_words.agent_saw(
                    first, first, gone, code=-6, host=scene.job.host_of(index)
                )
    return lines


def _end_the_innocent(scene: Scene) -> None:
    """Torchrun ends with 1 after its ranks aborted; the actors of Ray die inside containers that live on."""
    assert scene.fell is not None
    if not scene.job.form.aborts or scene.job.form.writes_in is not None:
        return
    gone = scene.fell + timedelta(seconds=WATCHDOG_S + ABORT_S + 2)
    for pod in scene.innocent_pods:
        pods.terminate(scene.job.namespace, pod, exit_code=1, at=gone)


def _xid(namespace: Namespace, form: JobForm, start: StartPrometheus) -> Scene:
    """A GPU fell off the bus; its rank says nothing, the rank beside it waits like all others."""
    scene = _ran(namespace, form)
    assert scene.fell is not None and scene.node is not None
    scene.job.write(_story(scene, silent=scene.ranks[:1]))
    _end_the_innocent(scene)
    now = datetime.now(UTC)
    begin, old = now - timedelta(hours=3), now - timedelta(hours=2, minutes=40)
    others = sorted({node for i in range(len(scene.job.pods)) if (node := scene.job.node_of(i))})
    series = [xid_series(scene.node, 0, held(begin, now, [(scene.fell, 79)]))]
    # The others' GPUs: one with an old code that stayed, one whose process was ended by the abort.
    for node in others:
        for gpu in range(RANKS_A_POD):
            if (node, gpu) != (scene.node, 0):
                stale = [(old, 43.0)] if gpu else [(scene.fell + timedelta(seconds=670), 45.0)]
                series.append(xid_series(node, gpu, held(begin, now, stale)))
    url = start(series)
    return replace(scene, more=("--prometheus", url))


def _node_dies(namespace: Namespace, form: JobForm, _: StartPrometheus) -> Scene:
    """Lease and status stop, the controllers say Unknown and taint it, its kubelet answers nobody."""
    scene = _ran(namespace, form)
    assert scene.fell is not None and scene.node is not None
    scene.job.write(_story(scene, silent=scene.ranks))
    _end_the_innocent(scene)
    cluster = namespace.cluster
    nodes.stop_kubelet(cluster, scene.node)
    nodes.kill_at(cluster, scene.node, scene.fell)
    nodes.wait_for_taint(cluster, scene.node)
    return scene


def _node_dead_for_long(namespace: Namespace, form: JobForm, _: StartPrometheus) -> Scene:
    """Five minutes later the controllers delete its pods, which no kubelet ever ends: Terminating for ever."""
    scene = _node_dies(namespace, form, _)
    assert scene.fell is not None
    for pod in pods.found(namespace):
        if pod["spec"].get("nodeName") == scene.node:
            name = pod["metadata"]["name"]
            pods.take_off_dead_node(namespace, name, at=scene.fell + timedelta(seconds=340))
    return scene


def _killed_for_memory(namespace: Namespace, form: JobForm, _: StartPrometheus) -> Scene:
    """The container with both ranks is OOMKilled."""
    scene = _ran(namespace, form)
    assert scene.fell is not None
    scene.job.write(_story(scene, silent=scene.ranks, own=_ray_lost(scene)))
    _end_the_innocent(scene)
    pods.kill_for_memory(namespace, scene.pod, at=scene.fell)
    return scene


def _ray_lost(scene: Scene) -> Iterator[Said]:
    """What Ray says of a pod that went: to Ray a pod is a node."""
    if scene.job.form.writes_in is None or scene.job.form.tags != "ray":
        return
    assert scene.fell is not None
    ip = pods.read(scene.job.namespace, scene.pod)["status"]["podIP"]
    yield Said(
        at=scene.fell + timedelta(seconds=40),
        rank=0,
        text=f"The node with node id: c0de{scene.victim:04d} and address: {ip} and node name: {ip} has been marked"
        " dead because the detector has missed too many heartbeats from it. This can happen when a raylet crashes"
        " unexpectedly (OOM, preempted node, etc.) or the raylet has lagging heartbeats due to slow network.",
    )


def _evicted(namespace: Namespace, form: JobForm, _: StartPrometheus) -> Scene:
    """Somebody drained a node: the real Eviction API took the pod."""
    scene = _ran(namespace, form)
    assert scene.fell is not None
    told = rank_words.agent_told(scene.ranks[0], scene.fell)
    scene.job.write(_story(scene, silent=scene.ranks, own=[*told, *_ray_lost(scene)]))
    _end_the_innocent(scene)
    pods.evict_by_api(namespace, scene.pod, at=scene.fell)
    return scene


def _raised(namespace: Namespace, form: JobForm, _: StartPrometheus) -> Scene:
    """The program of one rank raised; its agent ended the rank beside it."""
    scene = _ran(namespace, form)
    assert scene.fell is not None
    guilty, sibling = scene.ranks
    words = [
        *rank_words.traceback(guilty, scene.fell),
        *rank_words.agent_saw(
            guilty,
            guilty,
            scene.fell,
            code=1,
            host=scene.job.host_of(scene.victim),
            siblings=[sibling],
        ),
    ]
    scene.job.write(_story(scene, silent=scene.ranks, own=words))
    _end_the_innocent(scene)
    if form.writes_in is None:
        at = scene.fell + timedelta(seconds=2)
        pods.terminate(namespace, scene.pod, exit_code=1, at=at)
    return scene


def _starved(namespace: Namespace, form: JobForm, _: StartPrometheus) -> Scene:
    """The loader of one rank tries its reads again and again while all others wait for it."""
    scene = _ran(namespace, form)
    assert scene.fell is not None
    guilty = scene.ranks[0]
    noticed = scene.fell + timedelta(seconds=WATCHDOG_S + 5)
    words = [
        *rank_words.retries(guilty, scene.fell),
        rank_words.told_to_dump(guilty, noticed),
    ]
    scene.job.write(_story(scene, silent=[guilty], own=words))
    _end_the_innocent(scene)
    return scene


def _gave_up_loading(namespace: Namespace, form: JobForm, _: StartPrometheus) -> Scene:
    """The loader of one rank gave up after five minutes, and its program raised."""
    scene = _ran(namespace, form)
    assert scene.fell is not None
    guilty, sibling = scene.ranks
    at = scene.fell + timedelta(seconds=300)
    host = scene.job.host_of(scene.victim)
    words = [
        *rank_words.loader_timed_out(guilty, at),
        *rank_words.agent_saw(guilty, guilty, at, code=1, host=host, siblings=[sibling]),
    ]
    scene.job.write(_story(scene, silent=scene.ranks, own=words))
    _end_the_innocent(scene)
    if form.writes_in is None:
        pods.terminate(namespace, scene.pod, exit_code=1, at=at + timedelta(seconds=2))
    return scene


# --- A gang that never began ---------------------------------------------------------------------


def _no_image(namespace: Namespace, form: JobForm, _: StartPrometheus) -> Scene:
    """One node cannot pull the image; all other pods run and wait at the rendezvous."""
    count = len(form.pods("x"))
    made = nodes.make(namespace, count, gpus=RANKS_A_POD)
    name = f"run-{namespace.name.removeprefix('test-')}"
    job = job_voices.make(namespace, form, name, made, hold=True)
    scene = Scene(job=job, victim=count - 2, fell=None)
    heads = [] if form.writes_in is None else [form.writes_in(name)]
    for pod in (*scene.innocent_pods, *heads):
        pods.let_start(namespace, pod)
    pods.wait(namespace, form.selector.format(name), count - 1 + form.others)
    pods.hold_back(namespace, scene.pod)
    about = pods.read(namespace, scene.pod)
    why = 'Failed to pull image "registry.example/train:1": not found'
    pods.report_event(namespace, about, reason="Failed", message=why)
    pods.report_event(
        namespace,
        about,
        reason="BackOff",
        message='Back-off pulling image "registry.example/train:1"',
    )
    return _wait_at_rendezvous(scene)


def _no_room(namespace: Namespace, form: JobForm, _: StartPrometheus) -> Scene:
    """The scheduler has no node for one pod of the gang; the others hold their GPUs and wait."""
    count = len(form.pods("x"))
    nodes.make(namespace, count - 1, gpus=RANKS_A_POD)
    name = f"run-{namespace.name.removeprefix('test-')}"
    form.make(namespace, name, form.shape())
    selector = form.selector.format(name)
    pods.wait(namespace, selector, count - 1 + form.others)
    wait_until(lambda: _unplaced(namespace, selector), "the scheduler said no")
    there = [pod["metadata"]["name"] for pod in pods.found(namespace, selector)]
    job = job_voices.found(namespace, form, name, there)
    victim = job.pods.index(_unplaced(namespace, selector)[0])
    scene = Scene(job=job, victim=victim, fell=None)
    return _wait_at_rendezvous(scene)


def _unplaced(namespace: Namespace, selector: str) -> list[str]:
    """Pods that the scheduler looked at and could not place."""
    return [
        pod["metadata"]["name"]
        for pod in pods.found(namespace, selector)
        for condition in pod["status"].get("conditions", ())
        if condition["type"] == "PodScheduled" and condition["status"] == "False"
    ]


def _wait_at_rendezvous(scene: Scene) -> Scene:
    """The master of some gives up after ten minutes and ends the job; in jobs that are younger all just wait."""
    job = scene.job
    gives_up = job.form.aborts and scene.victim != 0 and job.form.writes_in is None
    count = len(job.pods)
    at = datetime.now(UTC) - timedelta(minutes=1)
    lines = rank_words.not_all_came(count - 1, count, at) if gives_up else ()
    job.write(lines, without=[scene.victim])
    return replace(scene, action="restart-job" if gives_up else None)


INCIDENTS = (
    Incident(
        name="gpu-off-the-bus", happen=_xid, kind="hardware", action="evict-now", ranks=(0,), evicts=True,
    ),
    Incident(name="node-dead", happen=_node_dies, kind="hardware", action="evict-now", evicts=True),
    Incident(
        name="node-dead-for-long", happen=_node_dead_for_long, kind="hardware", action="evict-now",
        evicts=True,
    ),
    Incident(name="oom-killed", happen=_killed_for_memory, kind="host-oom", action="fix-code"),
    Incident(
        name="evicted", happen=_evicted, kind="rank-crashed", action="restart-job", ranks=(0, 1),
    ),
    Incident(
        name="image-pull", happen=_no_image, kind="rendezvous-failure", action="watch", ranks=(0, 1),
        waited=False,
    ),
    Incident(
        name="unschedulable", happen=_no_room, kind="rendezvous-failure", action="watch", ranks=(0, 1),
        waited=False,
    ),
    Incident(
        name="user-exception", happen=_raised, kind="rank-crashed", action="fix-code", ranks=(0,),
    ),
    Incident(
        name="data-stall", happen=_starved, kind="data-stall", action="fix-code", ranks=(0,),
    ),
    Incident(
        name="loader-timed-out", happen=_gave_up_loading, kind="data-stall", action="fix-code",
        ranks=(0,),
    ),
)  # fmt: skip
