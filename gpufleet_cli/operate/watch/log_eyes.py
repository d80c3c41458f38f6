"""The job's logs: a few pods, whose ranks print steps, and of each what is new since it was read.

Frameworks let rank 0 print, or the last one, or a launcher for all. So a few of those are read first; who prints steps is
followed from then on, at most `FOLLOWED`. "New" goes by the log's own stamps; a log that is quiet is read by its last
lines instead, so that a node whose clock was set back is not taken for silent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from gpufleet_cli.evidence import Evidence
from gpufleet_cli.facts import LogSign, Progress, Sign
from gpufleet_cli.live import log_depth, pod_logs, threads
from gpufleet_cli.live.answers import LogRead, read_log
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.bundle_writer import stamp
from gpufleet_cli.live.log_tasks import LogTask, tasks_of
from gpufleet_cli.live.pods import Pod
from gpufleet_cli.operate import progress_look
from gpufleet_cli.operate.progress_look import Heard
from gpufleet_cli.operate.watch import habits
from gpufleet_cli.operate.watch.habits import Stretch
from gpufleet_cli.operate.watch.model import Habit, Mark, PauseKind, Signs
from gpufleet_cli.parsers import training_log
from gpufleet_cli.reason.pauses import BEFORE_ITS_STEP_S

NS = 1_000_000_000
FOLLOWED = 3
ASKED = 8
"""So many pods are read at a look until one is found whose ranks print steps."""
TAIL_LINES = 400
HISTORY_LINES = 2_000
QUIET_S = 30.0
MOST_KEPT = 6
_KINDS: dict[Sign, PauseKind] = {
    Sign.SAVE_STARTED: "save",
    Sign.SAVE_STAGED: "save",
    Sign.SAVE_DURABLE: "save",
    Sign.EVAL_STARTED: "evaluation",
    Sign.COMPILE_STARTED: "compilation",
}
_TIMEOUT = re.compile(
    rb"ProcessGroupNCCL initialization options:[^\n]{0,200}TIMEOUT\(ms\): (\d{1,12})"
)


@dataclass(slots=True)
class Voice:
    """What one pod's log said so far, by its own stamps. `newest_s`: when we read something new in it."""

    step: int | None = None
    step_ns: int = 0
    opened_ns: int = 0
    opened: PauseKind | None = None
    saved_ns: int | None = None
    cursor_ns: int | None = None
    newest_s: float = 0.0
    points: list[Mark] = field(default_factory=list)

    def add(self, heard: Heard, body: bytes, now_s: float) -> None:
        """The words of one read."""
        newest = log_depth.told_by(body).newest_ns
        if newest is not None and newest != self.cursor_ns:
            self.cursor_ns, self.newest_s = newest, now_s
        if heard.last_step is not None:
            at_ns = heard.last_step_ns or 0
            mark = Mark(heard.last_step, at_ns)
            if at_ns > self.step_ns or (self.step is not None and heard.last_step > self.step):
                self.points = [*self.points, mark][-MOST_KEPT:]
            self.step, self.step_ns = heard.last_step, max(at_ns, self.step_ns)
        if heard.opened_ns is not None and heard.opened_ns >= self.opened_ns:
            assert heard.opened is not None
            self.opened_ns, self.opened = heard.opened_ns, _KINDS[heard.opened]
        for save in heard.saves:
            self.saved_ns = max(save.at_ns, self.saved_ns or 0)

    @property
    def opens(self) -> PauseKind | None:
        """What began since the last step and is not over; some trainers print a step later than they make it."""
        if self.opened is None or self.opened_ns < self.step_ns - BEFORE_ITS_STEP_S * NS:
            return None
        if self.opened == "save" and (self.saved_ns or 0) >= self.opened_ns:
            return None
        return self.opened

    @property
    def pace_s(self) -> float | None:
        """Seconds a step over the last few looks."""
        if len(self.points) < 2:
            return None
        first, last = self.points[0], self.points[-1]
        steps, seconds = last.step - first.step, (last.at_ns - first.at_ns) / NS
        return seconds / steps if steps > 0 and seconds > 0 else None


@dataclass(slots=True, kw_only=True)
class LogEyes:
    """The logs of one run. `turn` moves on over its pods until somebody is found who tells steps."""

    pods: tuple[Pod, ...]
    voices: dict[str, Voice] = field(default_factory=dict)
    turn: int = 0
    timeout_s: float | None = None
    """The watchdog's, where a log says it."""
    tasks: list[LogTask] = field(init=False)

    def __post_init__(self) -> None:
        self.take(self.pods)

    def take(self, pods: tuple[Pod, ...]) -> None:
        """The pods of the run as they were just listed; what was heard of those that are still there stays."""
        self.pods = pods
        ranks = {pod.name: pod.state.rank_container for pod in pods}
        self.tasks = [
            one
            for one in tasks_of(pods, frozenset())
            if not one.previous and one.container == ranks[one.pod]
        ]

    @property
    def tellers(self) -> list[LogTask]:
        return [t for t in self.tasks if self._tells(t.pod)][:FOLLOWED]

    def _tells(self, pod: str) -> bool:
        voice = self.voices.get(pod)
        return voice is not None and voice.step is not None

    def _wanted(self) -> list[LogTask]:
        if self.tellers:
            return self.tellers
        launchers = {pod.name for pod in self.pods if not pod.state.gpus}
        first = [one for one in self.tasks if one.pod in launchers][:2]
        others = [one for one in self.tasks if one.pod not in launchers]
        own = [others[0], others[-1]] if len(others) > 1 else others
        begin = self.turn * (ASKED - len(first) - len(own))
        rest = [one for one in others if one not in own]
        self.turn = self.turn + 1 if begin + ASKED < len(rest) else 0
        return [*first, *own, *rest[begin:]][:ASKED]

    def look(self, api: Api, now_s: float) -> tuple[Signs | None, str | None]:
        """What the logs tell now, and why one of those that are followed was not read."""
        wanted = self._wanted()
        failed: list[str] = []
        had: set[str] = set()
        asked = threads.each(
            lambda task: pod_logs.ask(api, task, self._params(task, now_s)),
            wanted, threads=ASKED, deadline=api.deadline,
        )  # fmt: skip
        for task, answer in asked:
            what, why = read_log(answer)
            if what not in (LogRead.HAD, LogRead.EMPTY):
                failed.append(f"log of {task.pod}: {why}")
                continue
            had.add(task.pod)
            body = answer.body if what is LogRead.HAD else b""
            self._note_timeout(body)
            voice = self.voices.setdefault(task.pod, Voice())
            voice.add(progress_look.heard_in(task.pod, body), body, now_s)
        late = [one.pod for one in wanted if one.pod not in had and not failed]
        failed += [f"log of {pod}: not there in time" for pod in late[:1]]
        return self._signs(had, api.now_ns()), failed[0] if failed else None

    def _params(self, task: LogTask, now_s: float) -> dict[str, str | int]:
        voice = self.voices.get(task.pod)
        if voice is None or voice.cursor_ns is None or now_s - voice.newest_s > QUIET_S:
            return {"tailLines": TAIL_LINES}
        since = stamp(voice.cursor_ns // NS * NS)
        assert since is not None
        return {"sinceTime": since}

    def _note_timeout(self, body: bytes) -> None:
        found = _TIMEOUT.search(body)
        told = int(found[1]) / 1000 if found else log_depth.told_by(body).timeout_s
        if told:
            self.timeout_s = told

    def _signs(self, had: Iterable[str], now_ns: int) -> Signs | None:
        """Of those that were read; None where none of them tells steps."""
        read = {pod: self.voices[pod] for pod in sorted(had) if self._tells(pod)}
        if not read:
            return None
        newest = max(read.values(), key=lambda voice: (voice.step_ns, voice.step or 0))
        saved = max((v.saved_ns for v in read.values() if v.saved_ns is not None), default=None)
        own = next((v for v in read.values() if v.saved_ns == saved), newest)
        return Signs(
            source="logs",
            marks={pod: Mark(voice.step or 0, voice.step_ns) for pod, voice in read.items()},
            step=newest.step,
            age_s=(now_ns - newest.step_ns) / NS if newest.step_ns else None,
            pace_s=newest.pace_s,
            saved_ns=saved,
            saved_before_s=None if saved is None else (own.step_ns - saved) / NS,
            opens=next((v.opens for v in read.values() if v.opens is not None), None),
        )

    def history(self, api: Api) -> Habit:
        """The habit that the last lines of one who tells steps show."""
        for task in self.tellers[:1]:
            answer = pod_logs.ask(api, task, {"tailLines": HISTORY_LINES})
            if read_log(answer)[0] is LogRead.HAD:
                self._note_timeout(answer.body)
                return habit_of(answer.body)
        return Habit()


def habit_of(body: bytes) -> Habit:
    """The habit that the lines of one log show, each pause with what was announced in it."""
    log = Evidence(path="pods/history.log", size_bytes=len(body), content=body)
    points: dict[int, tuple[int, float | None]] = {}
    signs: list[tuple[int, Sign]] = []
    for fact in training_log.parse_stream([log]):
        if isinstance(fact, Progress) and fact.series == "train":
            for one in fact.points:
                if one.at_ns is not None and one.at_ns < points.get(one.step, (one.at_ns + 1,))[0]:
                    points[one.step] = (one.at_ns, one.step_s)
        elif isinstance(fact, LogSign) and fact.at_ns is not None and fact.sign in _KINDS:
            signs.append((fact.at_ns, fact.sign))
    made = sorted((at_ns, step, pace) for step, (at_ns, pace) in points.items())
    usual = sorted(after[1] - before[1] for before, after in pairwise(made))
    often = usual[len(usual) // 2] if usual else 1
    stretches = [
        Stretch(before[0] / NS, after[0] / NS, _announced(before[0], after[0], signs))
        for before, after in pairwise(made)
        if 0 < after[1] - before[1] <= 2 * max(often, 1)  # else steps between them were not read
    ]
    paces = [pace for _, _, pace in made if pace is not None and pace > 0] or [
        (after[0] - before[0]) / NS / (after[1] - before[1])
        for before, after in pairwise(made)
        if after[1] > before[1] and after[0] > before[0]
    ]
    saves = [at / NS for at, sign in signs if sign is Sign.SAVE_DURABLE]
    return habits.of_stretches(stretches, saves, paces=paces)


def _announced(from_ns: int, to_ns: int, signs: Sequence[tuple[int, Sign]]) -> PauseKind | None:
    slack = round(BEFORE_ITS_STEP_S * NS)
    pause = to_ns - from_ns
    within = [sign for at, sign in signs if from_ns - min(slack, pause // 2) <= at <= to_ns]
    return _KINDS[within[-1]] if within else None
