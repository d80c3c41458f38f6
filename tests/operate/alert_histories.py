"""Four hours of metrics around a job, as promtool takes them: a healthy job, and what may happen to it.

The job has two pods of two GPUs on `node-a` and `node-b`; `node-c` and `other-run-worker-0` are somebody else's.
Time begins at 0 and is in seconds. A value of None is a sample that nobody scraped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

At = Callable[[float], float | None]
Mapping = Literal["exported", "own", "none"]
HOURS_S = 4 * 3600.0
PODS = {"train-run-7-worker-0": "node-a", "train-run-7-worker-1": "node-b"}
OTHERS = {"other-run-worker-0": "node-c"}
STALE = float("inf")
"""As a value: the scrape succeeded, and the series was not in it any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """How the job and its monitoring are."""

    step_s: float = 0.4
    interval_s: float = 1800.0
    watchdog_s: float = 600.0
    scrape_s: float = 15.0
    labels: Mapping = "exported"
    host: str = "Hostname"
    marks: bool = True
    """A series that ends has a mark of its end; else lookback keeps its last value for five minutes."""
    kube_pods: bool = True
    """Somebody scrapes kube-state-metrics for pods; else DCGM's labels alone tell which nodes hold the job."""
    scrape_node: str = ""
    """A label of the scrape that has the node's name; then the exporter's own host is another name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """What happens to the job itself: when it makes steps, how long they take, when it saves, when it is gone.
    `pauses` are (from, to) without a step. After `ends_at` nothing is scraped of it."""

    begins_at: float = 0.0
    ends_at: float = HOURS_S + 1
    pauses: tuple[tuple[float, float], ...] = ()
    slower: tuple[tuple[float, float, float], ...] = ()
    saves_until: float = HOURS_S + 1
    frozen: bool = False
    """A gateway goes on with the last values after the end."""
    gauge_at_zero: bool = False
    """Before its first step the job exports 0."""

    def last_step(self, job: Job, t: float) -> float | None:
        if t < self.begins_at:
            return 0.0 if self.gauge_at_zero else None
        seen = min(t, self.ends_at)
        if t > self.ends_at and not self.frozen:
            return STALE
        for start, end in self.pauses:
            if start <= seen < end:
                seen = start
        return self.begins_at + (seen - self.begins_at) // job.step_s * job.step_s

    def step(self, job: Job, t: float) -> float | None:
        last = self.last_step(job, t)
        if not last or last == STALE:
            return last
        factor = next((f for start, end, f in self.slower if start <= t < end), 1.0)
        jitter = 1 + 0.04 * ((t // job.scrape_s * 7) % 5 - 2) / 2
        return job.step_s * factor * jitter

    def checkpoint(self, job: Job, t: float) -> float | None:
        last = self.last_step(job, t)
        if last is None or last == STALE:
            return last
        seen = min(last, self.saves_until)
        return max(0.0, (seen - self.begins_at) // job.interval_s * job.interval_s + self.begins_at)


Gpu = tuple[str, int]
"""A pod and the index of a GPU on its node."""


@dataclass(slots=True, kw_only=True)
class History:
    """Series by name and labels. What a story does to it is done to the healthy one."""

    job: Job
    course: Course = Course()
    readings: dict[tuple[str, Gpu], At] = field(default_factory=dict)
    """Fields of DCGM by GPU, beside those that every GPU has or in their place."""
    gone: dict[Gpu, float] = field(default_factory=dict)
    unready: dict[str, float] = field(default_factory=dict)
    extra: dict[str, At] = field(default_factory=dict)

    def series(self) -> dict[str, At]:
        """Everything, by its name with labels."""
        found: dict[str, At] = {}
        found.update(self._own())
        found.update(self._kube())
        for pod in (*PODS, *OTHERS):
            for index in (0, 1):
                found.update(self._gpu((pod, index)))
        found.update(self.extra)
        return found

    def _own(self) -> dict[str, At]:
        job, course = self.job, self.course
        found: dict[str, At] = {}
        for rank, pod in enumerate(PODS):
            labels = f'{{job_id="run7", pod="{pod}", namespace="train", rank="{rank}"}}'
            found[f"training_step_seconds{labels}"] = lambda t: course.step(job, t)
            found[f"training_last_step_timestamp_seconds{labels}"] = lambda t: course.last_step(
                job, t
            )
            found[f"training_last_checkpoint_timestamp_seconds{labels}"] = lambda t: (
                course.checkpoint(job, t)
            )
        return found

    def _kube(self) -> dict[str, At]:
        found: dict[str, At] = {}
        for pod, node in (PODS | OTHERS).items():
            space = "train" if pod in PODS else "other"
            end = self.course.ends_at if pod in PODS else HOURS_S + 1
            labels = f'namespace="{space}", pod="{pod}", uid="{pod}-1"'
            if not self.job.kube_pods:
                continue
            found[f'kube_pod_info{{{labels}, node="{node}"}}'] = until(1.0, end)
            for phase in ("Running", "Succeeded"):
                value = 1.0 if phase == "Running" else 0.0
                name = f'kube_pod_status_phase{{{labels}, phase="{phase}"}}'
                found[name] = until(value, end)
        for node in sorted({*PODS.values(), *OTHERS.values()}):
            since = self.unready.get(node, HOURS_S + 1)
            for status in ("true", "false", "unknown"):
                name = f'kube_node_status_condition{{node="{node}", condition="Ready", status="{status}"}}'
                before = 1.0 if status == "true" else 0.0
                after = 1.0 if status == "unknown" else 0.0
                found[name] = changes(before, since, after)
        return found

    def _gpu(self, gpu: Gpu) -> dict[str, At]:
        usual: dict[str, At] = {
            "DCGM_FI_DEV_GPU_TEMP": steady(61.0),
            "DCGM_FI_DEV_GPU_UTIL": steady(100.0),
            "DCGM_FI_DEV_XID_ERRORS": steady(0.0),
        }
        own = {name: at for (name, whose), at in self.readings.items() if whose == gpu}
        dead = self.gone.get(gpu)
        node_dead = self.unready.get((PODS | OTHERS)[gpu[0]])
        end = min(x for x in (dead, node_dead, HOURS_S + 1) if x is not None)
        return {self.gpu_series(name, gpu): _ending(at, end) for name, at in (usual | own).items()}

    def gpu_series(self, name: str, gpu: Gpu) -> str:
        """`NAME{labels}` as the exporter and the scrape make it; NAME may have labels of its own."""
        pod, index = gpu
        node, space = (PODS | OTHERS)[pod], "train" if pod in PODS else "other"
        name, _, rest = name.removesuffix("}").partition("{")
        scraped = self.job.scrape_node
        labels = [f'{scraped}="{node}"'] if scraped else []
        labels += [
            f'{self.job.host}="{f"dcgm-{node}.example" if scraped else node}"',
            f'gpu="{index}"',
            f'UUID="GPU-{node}-{index}"',
            f'instance="{"10.0.0.7" if scraped else node}:9400"',
        ]
        if self.job.labels == "exported":
            labels += [
                f'exported_pod="{pod}"',
                f'exported_namespace="{space}"',
                'exported_container="main"',
            ]
        if self.job.labels == "own":
            labels += [f'pod="{pod}"', f'namespace="{space}"', 'container="main"']
        else:
            labels += [
                f'pod="dcgm-exporter-{node}"',
                'namespace="gpu-operator"',
                'container="exporter"',
            ]
        return f"{name}{{{', '.join(labels)}{', ' + rest if rest else ''}}}"


def steady(value: float) -> At:
    return lambda _t: value


def until(value: float, end: float) -> At:
    return lambda t: value if t <= end else STALE


def changes(before: float, at: float, after: float) -> At:
    return lambda t: before if t < at else after


def begins(at: float, value: float) -> At:
    return lambda t: value if t >= at else None


def grows(at: float, per_second: float) -> At:
    """A counter that stands still and then grows."""
    return lambda t: 5e9 + max(0.0, t - at) * per_second


def _ending(at: At, end: float) -> At:
    return lambda t: at(t) if t < end else STALE


def written(history: History) -> list[dict[str, str]]:
    """As `input_series` has it."""
    step = history.job.scrape_s
    times = [k * step for k in range(int(HOURS_S / step) + 1)]
    found = []
    for name, at in history.series().items():
        values = [at(t) for t in times]
        if not history.job.marks:
            values = [None if value == STALE else value for value in values]
        found.append({"series": name, "values": _values(values)})
    return found


def _values(values: Sequence[float | None]) -> str:
    """Runs of one value are written short."""
    words: list[str] = []
    at = 0
    while at < len(values):
        run = at
        while run + 1 < len(values) and values[run + 1] == values[at]:
            run += 1
        words.append(_run(values[at], run - at))
        at = run + 1
    return " ".join(words)


def _run(value: float | None, more: int) -> str:
    if value is None:
        return f"_x{more + 1}"
    if value == STALE:  # once, and nothing after it
        return "stale" + (f" _x{more}" if more else "")
    return f"{value:.6f}+0x{more}" if more else f"{value:.6f}"
