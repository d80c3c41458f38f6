"""The five kinds of job of the matrix: how each is made, which pods hold which ranks, and how its containers print.

Each prints in a form of its own, so that the same incident is read in five ways: plain `[rankN]:`, a launcher's role
with the LOCAL rank (the same `[rank0]:` in each pod), torchrun's `--tee`, JSON lines, and Ray's driver.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from servers import jobs, other_jobs, pods
from servers.jobs import Shape
from servers.namespaces import Namespace
from servers.pods import Line

from live.rank_words import Said

RANKS_A_POD = 2
ARGS = (f"--nproc-per-node={RANKS_A_POD}", "train.py")
BY_INDEX = (ARGS[0], "--node-rank=$(JOB_COMPLETION_INDEX)", ARGS[1])
BY_C10D = (ARGS[0], "--rdzv-backend=c10d", ARGS[1])
Voice = Callable[[Said], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobForm:
    """One kind of job. `pods`: names in the order of their ranks. `writes_in`: the one pod that prints for all."""

    kind: str
    make: Callable[[Namespace, str, Shape], object]
    selector: str
    pods: Callable[[str], Sequence[str]]
    voice: Voice
    container: str = "trainer"
    target: Callable[[str], Sequence[str]] = lambda name: [name]
    writes_in: Callable[[str], str] | None = None
    tags: Literal["ray", "mpi"] = "ray"  # how that one says whose line it is
    writer_container: str = ""
    aborts: bool = True  # whether the innocent have ended already, or their watchdogs just spoke
    pods_a_job: int = 3
    others: int = 0  # pods without ranks
    args: tuple[str, ...] = ARGS
    is_static: bool = True  # the pod spec fixes its ranks

    def shape(self, nodes: Sequence[str] = (), *, hold: bool = False) -> Shape:
        """The head of a Ray cluster shares a node with the first worker, so that the victim's is known."""
        placed = nodes if self.writes_in is not None else ()
        return Shape(
            pods=self.pods_a_job, gpus=RANKS_A_POD, args=self.args, hold=hold, nodes=placed
        )


def _local(said: Said) -> int:
    return said.rank % RANKS_A_POD


def _step(said: Said) -> str:
    return f"step {said.text} loss 2.3100 lr 1.0e-04"


def _plain(said: Said) -> str:
    """Python and c10 both know the global rank."""
    if said.by == "agent":
        return said.text
    if said.by == "c10":
        return f"[rank{said.rank}]:{said.text}"
    return f"[rank{said.rank}]: {_step(said) if said.by == 'step' else said.text}"


def _titan(said: Said) -> str:
    """TorchTitan's launcher: `--role rank --tee 3`, so each pod says `[rank0]:` and `[rank1]:`."""
    if said.by == "agent":
        return said.text
    outer = f"[rank{_local(said)}]:"
    if said.by == "step":
        stamp = f"{said.at:%Y-%m-%d %H:%M:%S},{said.at.microsecond // 1000:03d}"
        return (
            f"{outer}[titan] {stamp} - root - INFO - step: {said.text}  loss:  2.3100  grad_norm:  1.0213"
            "  memory: 61.24GiB(77.31%)  tps: 5,123  tflops: 301.22  mfu: 38.10%"
        )
    return f"{outer}[rank{said.rank}]:{'' if said.by == 'c10' else ' '}{said.text}"


def _tee(said: Said) -> str:
    """torchrun `--tee 3`: role and local rank outside, the global rank where c10 or Python's hook wrote it."""
    if said.by == "agent":
        return said.text
    outer = f"[default{_local(said)}]:"
    if said.by == "step":
        return f"{outer}{_step(said)}"
    return f"{outer}[rank{said.rank}]:{'' if said.by == 'c10' else ' '}{said.text}"


def _json(said: Said) -> str:
    """The program logs JSON; what it does not log itself stays as it is."""
    if said.by == "step":
        return json.dumps(
            {
                "time": f"{said.at:%Y-%m-%dT%H:%M:%S.%f}Z",
                "level": "info",
                "rank": said.rank,
                "msg": _step(said),
            }
        )
    return _plain(said)


def _driver(said: Said) -> str:
    """Ray's driver prints for all; without torchrun there is no agent."""
    body = _step(said) if said.by == "step" else said.text
    return f"[rank{said.rank}]:{body}" if said.by == "c10" else body


def _rotated(name: str) -> list[str]:
    """Ray gives ranks to workers as it likes."""
    return [f"{name}-gpu-group-worker-{index}" for index in (1, 2, 0)]


FORMS: Mapping[str, JobForm] = {
    form.kind: form
    for form in (
        JobForm(
            kind="indexed-job",
            make=jobs.indexed_job,
            selector="batch.kubernetes.io/job-name={}",
            pods=lambda name: [f"{name}-{index}-" for index in range(3)],
            voice=_plain,
            args=BY_INDEX,
        ),
        JobForm(
            kind="jobset",
            make=lambda space, name, shape: jobs.jobset(space, name, shape, replicas=2),
            selector="jobset.sigs.k8s.io/jobset-name={}",
            pods=lambda name: [f"{name}-workers-{job}-{index}-" for job in (0, 1) for index in (0, 1)],
            voice=_titan,
            target=lambda name: [f"jobset/{name}"],
            pods_a_job=2,
            aborts=False,
            args=BY_C10D,
            is_static=False,
        ),
        JobForm(
            kind="pytorchjob",
            make=jobs.pytorchjob,
            selector="training.kubeflow.org/job-name={}",
            pods=lambda name: [f"{name}-master-0", f"{name}-worker-0", f"{name}-worker-1"],
            voice=_tee,
            container="pytorch",
        ),
        JobForm(
            kind="plain-pods",
            make=jobs.plain_pods,
            selector="job-id={}",
            pods=lambda name: [f"{name}-{index}" for index in range(3)],
            voice=_json,
            target=lambda name: ["-l", f"job-id={name}"],
            aborts=False,
        ),
        JobForm(
            kind="raycluster",
            make=other_jobs.raycluster,
            selector="ray.io/cluster={}",
            pods=_rotated,
            voice=_driver,
            container="ray-worker",
            writes_in=lambda name: f"{name}-head",
            writer_container="ray-head",
            others=1,
            is_static=False,
        ),
    )
}  # fmt: skip


OTHER_FORMS: Mapping[str, JobForm] = {
    form.kind: form
    for form in (
        JobForm(
            kind="trainjob",
            make=jobs.trainjob,
            selector="jobset.sigs.k8s.io/jobset-name={}",
            pods=lambda name: [f"{name}-node-0-{index}-" for index in range(3)],
            voice=_tee,
            container="node",
        ),
        JobForm(
            kind="volcano-job",
            make=other_jobs.volcano_job,
            selector="volcano.sh/job-name={}",
            pods=lambda name: [f"{name}-worker-{index}" for index in range(3)],
            voice=_plain,
            target=lambda name: [f"vcjob/{name}"],
            is_static=False,
            aborts=False,
        ),
        JobForm(
            kind="mpijob",
            make=other_jobs.mpijob,
            selector="training.kubeflow.org/job-name={}",
            pods=lambda name: [f"{name}-worker-{index}" for index in range(3)],
            voice=_driver,
            container="worker",
            writes_in=lambda name: f"{name}-launcher-",
            writer_container="launcher",
            tags="mpi",
            others=1,
            args=(),
        ),
        JobForm(
            kind="mpijob-launcher-works",
            make=lambda space, name, shape: other_jobs.mpijob(
                space, name, replace(shape, pods=2), launcher_works=True
            ),
            selector="training.kubeflow.org/job-name={}",
            pods=lambda name: [f"{name}-launcher-", f"{name}-worker-0", f"{name}-worker-1"],
            voice=_driver,
            container="worker",
            writes_in=lambda name: f"{name}-launcher-",
            writer_container="launcher",
            tags="mpi",
            args=(),
        ),
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeJob:
    """A job on the cluster, with its pods in the order of their ranks."""

    namespace: Namespace
    name: str
    form: JobForm
    pods: tuple[str, ...]

    @property
    def ranks(self) -> range:
        return range(len(self.pods) * RANKS_A_POD)

    def ranks_of(self, index: int) -> range:
        return range(index * RANKS_A_POD, (index + 1) * RANKS_A_POD)

    def node_of(self, index: int) -> str | None:
        node: str | None = pods.read(self.namespace, self.pods[index])["spec"].get("nodeName")
        return node

    def host_of(self, index: int) -> str:
        """What the container calls its host."""
        pod = self.pods[index]
        return str(pods.read(self.namespace, pod)["spec"].get("hostname", pod))

    def write(self, lines: Iterable[Said], *, without: Sequence[int] = ()) -> None:
        """Lay the lines down as the logs of the containers; none for the pods `without` a container."""
        ordered = sorted(lines, key=lambda said: said.at)
        if self.form.writes_in is not None:
            self._write_for_all(ordered, without)
            return
        logs: dict[str, list[Line]] = defaultdict(list)
        for said in ordered:
            pod = self.pods[said.rank // RANKS_A_POD]
            logs[pod].append((said.at, self.form.voice(said)))
        missing = {self.pods[index] for index in without}
        chosen = {pod: logs.get(pod, []) for pod in self.pods if pod not in missing}
        pods.give_logs(self.namespace, chosen, container=self.form.container)

    def _write_for_all(self, ordered: Sequence[Said], without: Sequence[int]) -> None:
        """The driver on Ray's head and mpirun in the launcher print for every worker; the workers' own containers
        say next to nothing."""
        ip = {
            index: pods.read(self.namespace, pod)["status"].get("podIP")
            for index, pod in enumerate(self.pods)
        }
        began = min((said.at for said in ordered), default=None)
        head: list[Line] = []
        if began is not None and self.form.tags == "ray":
            head += [(began, self._placed(rank, ip)) for rank in self.ranks]
        for said in ordered:
            if said.by != "agent":
                head.append((said.at, self._tag(said, ip) + self.form.voice(said)))
        writer = self.writer
        pods.give_logs(self.namespace, {writer: head}, container=self.form.writer_container)
        words = {"ray": "Ray runtime started.", "mpi": "Server listening on 0.0.0.0 port 2222."}
        started = [] if began is None else [(began, words[self.form.tags])]
        running = {
            pod: started
            for index, pod in enumerate(self.pods)
            if index not in without and pod != writer
        }
        pods.give_logs(self.namespace, running, container=self.form.container)

    @property
    def writer(self) -> str:
        """The pod that prints for all."""
        assert self.form.writes_in is not None
        stem = self.form.writes_in(self.name)
        there = [pod["metadata"]["name"] for pod in pods.found(self.namespace)]
        return next(pod for pod in there if is_pod(pod, stem))

    def _tag(self, said: Said, ip: Mapping[int, str | None]) -> str:
        if self.form.tags == "mpi":
            return f"[1,{said.rank}]<std{'out' if said.by == 'step' else 'err'}>:"
        return f"(RayTrainWorker pid={900 + said.rank}, ip={ip[said.rank // RANKS_A_POD]}) "

    def _placed(self, rank: int, ip: Mapping[int, str | None]) -> str:
        node, local = divmod(rank, RANKS_A_POD)
        return (
            f"(TorchTrainer pid=611) - (node_id=c0de{node:04d}, ip={ip[node]}, pid={900 + rank})"
            f" world_rank={rank}, local_rank={local}, node_rank={node}"
        )


def make(
    namespace: Namespace, form: JobForm, name: str, nodes: Sequence[str], *, hold: bool = False
) -> MadeJob:
    """Make the job and wait until its pods run; with `hold`, until they are there."""
    form.make(namespace, name, form.shape(nodes, hold=hold))
    wanted = form.pods(name)
    count = len(wanted) + form.others
    selector = form.selector.format(name)
    phase = "Pending" if hold else "Running"
    there = [pod["metadata"]["name"] for pod in pods.wait(namespace, selector, count, phase=phase)]
    return found(namespace, form, name, there)


def found(namespace: Namespace, form: JobForm, name: str, there: Sequence[str]) -> MadeJob:
    """The job whose pods are among these."""
    wanted = form.pods(name)
    return MadeJob(
        namespace=namespace,
        name=name,
        form=form,
        pods=tuple(next(one for one in there if is_pod(one, stem)) for stem in wanted),
    )


def is_pod(pod: str, stem: str) -> bool:
    """A Job's controller ends names with five letters of its own."""
    return pod.startswith(stem) if stem.endswith("-") else pod == stem
