"""What the ranks wrote just now: steps, saves, phases. Read live by `sinceTime`, parsed by the parser of logs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpufleet_cli.evidence import Evidence
from gpufleet_cli.facts import LogSign, Progress, Sign
from gpufleet_cli.live import log_depth, pod_logs, threads
from gpufleet_cli.live.answers import LogRead, read_log
from gpufleet_cli.live.api import Api, Params
from gpufleet_cli.live.bundle_writer import stamp
from gpufleet_cli.live.log_tasks import LogTask, tasks_of
from gpufleet_cli.live.pods import Pod
from gpufleet_cli.parsers import training_log

NS = 1_000_000_000
MOST_PODS = 64
"""So many pods are read of a larger gang, evenly spread: every rank of a synchronous job makes each step."""
TAIL_LINES = 400
OPENS = (Sign.SAVE_STARTED, Sign.SAVE_STAGED, Sign.EVAL_STARTED, Sign.COMPILE_STARTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """One durable checkpoint, as one pod's log tells of it, by that node's clock."""

    pod: str
    at_ns: int
    step: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What a read found. `opened_ns`: when a save, an evaluation or a compilation last began, `opened`: which of them.
    `answered`: whose logs were read; a kubelet that does not answer tells nothing. `newest_ns`: the newest line of each
    log, by its path."""

    last_step: int | None = None
    last_step_ns: int | None = None
    opened_ns: int | None = None
    opened: Sign | None = None
    saves: tuple[Save, ...] = ()
    answered: frozenset[str] = frozenset()
    newest_ns: Mapping[str, int] = field(default_factory=dict)


def heard_in(pod: str, data: bytes) -> Heard:
    """The words of one log, each line with the runtime's stamp before it.

    >>> line = b"2026-03-11T03:51:19.5Z successfully saved checkpoint from iteration    4050 to /ckpt\\n"
    >>> heard_in("p-0", line).saves[0].step
    4050
    """
    if not data.strip():
        return Heard(answered=frozenset({pod}))
    log = Evidence(path=f"pods/{pod}.log", size_bytes=len(data), content=data)
    steps, saves = [], []
    opens: list[tuple[int, Sign]] = []
    for fact in training_log.parse_stream([log]):
        if isinstance(fact, Progress) and fact.series == "train":
            steps += [(one.at_ns or 0, one.step) for one in fact.points]
        elif isinstance(fact, LogSign) and fact.at_ns is not None:
            if fact.sign is Sign.SAVE_DURABLE:
                saves.append(Save(pod=pod, at_ns=fact.at_ns, step=fact.step))
            elif fact.sign in OPENS:
                opens.append((fact.at_ns, fact.sign))
    opened = max(opens, default=None)
    return Heard(
        last_step=max((step for _, step in steps), default=None),
        last_step_ns=max((at for at, _ in steps if at), default=None),
        opened_ns=None if opened is None else opened[0],
        opened=None if opened is None else opened[1],
        saves=tuple(saves),
        answered=frozenset({pod}),
    )


def joined(parts: Iterable[Heard]) -> Heard:
    """What several logs say together."""
    every = list(parts)

    def last(values: Iterable[int | None]) -> int | None:
        return max((one for one in values if one is not None), default=None)

    opened_ns = last(one.opened_ns for one in every)
    return Heard(
        last_step=last(one.last_step for one in every),
        last_step_ns=last(one.last_step_ns for one in every),
        opened_ns=opened_ns,
        opened=next((one.opened for one in every if one.opened_ns == opened_ns), None),
        saves=tuple(save for one in every for save in one.saves),
        answered=frozenset().union(*(one.answered for one in every)),
        newest_ns={path: at for one in every for path, at in one.newest_ns.items()},
    )


def logs_of(pods: Sequence[Pod]) -> list[LogTask]:
    """The running instance of each rank's container, and of the container that prints for all."""
    ranks = {
        (pod.name, one.name)
        for pod in pods
        for one in pod.state.containers
        if one.has_gpu or one.name == pod.state.rank_container
    }
    every = [one for one in tasks_of(pods, frozenset()) if not one.previous]
    own = [one for one in every if (one.pod, one.container) in ranks]
    if len(own) <= MOST_PODS:
        return own
    without = {
        pod.name for pod in pods if not pod.state.gpus
    }  # a launcher or a driver prints for all
    few = [one for one in own if one.pod in without][:8]
    return few + [own[index * len(own) // MOST_PODS] for index in range(MOST_PODS)]


def listen(api: Api, tasks: Sequence[LogTask], since_ns: Mapping[str, int]) -> Heard:
    """The lines of these logs since the newest that is known of each, by its own clock; of one of which none is known
    the end."""

    def ask(task: LogTask) -> Heard | None:
        known = since_ns.get(task.path)
        params: Params = {"tailLines": TAIL_LINES}
        if known is not None and (since := stamp(known // NS * NS)) is not None:
            params = {"sinceTime": since}
        answer = pod_logs.ask(api, task, params)
        if read_log(answer)[0] not in (LogRead.HAD, LogRead.EMPTY):
            return None
        newest = log_depth.told_by(answer.body).newest_ns
        found = heard_in(task.pod, answer.body)
        return found if newest is None else replace(found, newest_ns={task.path: newest})

    asked = threads.each(ask, tasks, threads=min(api.threads, 16), deadline=api.deadline)
    return joined(heard for _, heard in asked if heard is not None)
