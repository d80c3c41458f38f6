"""One watch from end to end: look, judge, tell, gather evidence of a stall in time, go on. Nothing acts on the cluster."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from gpufleet_cli import settings_file
from gpufleet_cli.errors import ExitCode, GpufleetError, SourceError
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.find_job import Wanted
from gpufleet_cli.operate.watch import eyes, habits, machine, memory
from gpufleet_cli.operate.watch.budget import BUDGET_S, of_failure, of_stall
from gpufleet_cli.operate.watch.job_eyes import JobEyes
from gpufleet_cli.operate.watch.metric_eyes import Names
from gpufleet_cli.operate.watch.model import Look, State
from gpufleet_cli.operate.watch.numbers import Flags, Numbers, Stated, numbers
from gpufleet_cli.operate.watch.outbox import AFTER_END_S, Outbox
from gpufleet_cli.render.layout import duration
from gpufleet_cli.watch_card import Event, Glance, Kind

NS = 1_000_000_000
MOST_BACKOFF_S = 60.0
NEXT_S = 600.0
"""So long a failed run is waited after for another one, where its controller does not say that there will be none."""
POST_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What the command line says. `budget_s`: for the evidence, where it is stated."""

    wanted: Wanted
    group: int | None
    names: Names
    flags: Flags
    prometheus: str | None
    alertmanager: str | None
    lookback_s: float
    budget_s: float | None
    folder: Path | None
    once: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Evidence that was gathered and what its triage says; `report` as JSON. `code`: how `triage` would end."""

    place: str
    files: int
    missing: int
    seconds: float
    interrupted: bool
    headline: str
    is_healthy: bool
    command: str
    report: str
    code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Inquiry:
    """What is to be gathered, and where to. `known`: what the bundle should know and no log says."""

    place: Path
    attempt: int | None
    budget_s: float
    timeout: Stated
    known: Mapping[str, object]


class Hands(Protocol):
    """What is done with what was seen."""

    def meet(self, job: str, namespace: str) -> None: ...
    def tell(self, event: Event) -> None: ...
    def show(self, glance: Glance, name: str) -> None: ...
    def report(self, found: Found) -> None: ...
    def investigate(self, inquiry: Inquiry) -> Found: ...
    def pause(self, seconds: float) -> None: ...


def watch(api: Api, order: Order, hands: Hands) -> int:
    """Watch until the job ends; the exit status. What cannot be read at first is raised, later it is an event."""
    return _Watch(api, order, hands).run()


class _Watch:
    """The state of a watch that goes on; methods change it."""

    def __init__(self, api: Api, order: Order, hands: Hands) -> None:
        self.api, self.order, self.hands = api, order, hands
        job = JobEyes(wanted=order.wanted, group=order.group)
        self.eyes = eyes.opened(api, job, order.names, order.prometheus, time.monotonic)
        assert job.job is not None
        self.found = job.job
        hands.meet(self.found.name, self.found.namespace)
        kind = "pods" if self.found.kind is None else self.found.kind.kind
        context = api.access.context
        self.path = memory.place(context, self.found.namespace, kind, self.found.name)
        self.bundle: str | None = None
        self.kept_note = ""
        self.state: State = machine.begun(time.monotonic())
        self.outbox = self._outbox()
        self._remembered()
        self.worst = 0
        self.unread: frozenset[str] = frozenset()
        self.is_told_unkept = False
        self.numbers = self._numbers()

    # --- Before the first look --------------------------------------------------------------------

    def _outbox(self) -> Outbox:
        job, access = self.found, self.api.access
        labels = {"namespace": job.namespace, "job_name": job.name}
        if access.context:
            labels["context"] = access.context
        target = f"-l {shlex.quote(job.selector)}" if job.selector else shlex.quote(job.name)
        kind = "pods" if job.kind is None else job.kind.plural
        return Outbox(
            url=self.order.alertmanager,
            labels=labels,
            generator=f"{access.server.rstrip('/')}/namespaces/{job.namespace}/{kind}/{job.name}",
            command=f"gpufleet triage {target} -n {shlex.quote(job.namespace)}",
            budget_s=self.order.budget_s or BUDGET_S,
        )

    def _remembered(self) -> None:
        loaded = memory.load(self.path)
        self.kept_note = loaded.note
        if loaded.kept is not None:
            at_ns = time.time_ns()
            self.state = memory.state_of(loaded.kept, self.state, time.monotonic(), at_ns)
            self.bundle = loaded.kept.bundle
            self.eyes.logs.timeout_s = loaded.kept.timeout_s
            self.eyes.is_new = not self.state.marks or loaded.kept.token != self.eyes.token
            self.outbox.go_on(loaded.kept.alerts, _lasting(self.state), at_ns)

    def _numbers(self) -> Numbers:
        file = settings_file.load()
        own = file.of(self.api.access.context)
        return numbers(
            self.order.flags, own, str(file.path), self.eyes.job.pods, self.eyes.logs.timeout_s
        )

    def look(self) -> Look:
        """One look; what a first one shows of a run's past goes into the habit."""
        found = self.eyes.look(self.numbers.plan, self.order.lookback_s)
        if self.eyes.learnt is not None:
            habit = habits.together(self.state.habit, self.eyes.learnt)
            self.state = replace(self.state, habit=habit)
            self.numbers = self._numbers()
        return found

    # --- What is told -----------------------------------------------------------------------------

    def _tell(self, kind: Kind, text: str, *, bundle: str | None = None, report: str = "") -> None:
        self.hands.tell(
            Event(kind=kind, at_ns=time.time_ns(), text=text, bundle=bundle, report=report or None)
        )

    def _begin(self) -> None:
        """What is watched, and by what numbers."""
        metrics, logs = self.eyes.metrics, self.eyes.logs
        told = [", ".join(self.numbers.lines(self.state))]
        if metrics is not None and metrics.conditions is not None:
            told.append(f"metrics of {metrics.whose} ({metrics.place.source})")
        if logs.tellers:
            told.append(f"logs of {', '.join(one.pod for one in logs.tellers)}")
        if self.kept_note:
            told.append(self.kept_note)
        if self.state.mode == "stalled":
            kept = f"; its evidence is in {self.bundle}" if self.bundle else ""
            told.append(f"it was stalled when it was watched last{kept}")
        shown = f"{self.found.shown}, {len(self.eyes.job.pods)} pods"
        self._tell(Kind.WATCHING, f"{shown}: {'; '.join(told)}")

    def _say_unread(self, look: Look) -> None:
        """Each source that is not read, once."""
        for note in self.eyes.notes:
            self._tell(Kind.UNREAD, note)
        self.eyes.notes.clear()
        heads = {why.partition(":")[0]: why for why in look.unread}
        for head, why in heads.items():
            if head not in self.unread:
                self._tell(Kind.UNREAD, why)
        self.unread = frozenset(heads)

    # --- The run ----------------------------------------------------------------------------------

    def run(self) -> int:
        """Until the job ends, or once; Ctrl-C leaves a last line."""
        try:
            return self._once() if self.order.once else self._forever()
        except KeyboardInterrupt:
            self._keep()
            glance = machine.glance(self.state, time.monotonic())
            lasting = ", ".join(sorted(self.outbox.lasting))
            alerts = f"; {lasting} ends by itself in minutes" if lasting and self.outbox.url else ""
            self._tell(Kind.STOPPED, f"no longer watched: {glance.mode}, {_ago(glance)}{alerts}")
            raise

    def _forever(self) -> int:
        failures, is_first = 0, True
        while True:
            look = self.look()
            if is_first:
                self._begin()
                is_first = False
            code = self._judged(look)
            if code is not None:
                self._flush(lasts_s=AFTER_END_S)
                return code
            failures = 0 if look.subject is not None or look.signs else failures + 1
            self.hands.pause(self._pause_s(failures))

    def _pause_s(self, failures: int) -> float:
        """The poll; longer where nothing at all can be read, up to a minute."""
        poll = self.numbers.plan.poll_s
        return min(max(poll, MOST_BACKOFF_S), poll * 2.0 ** min(failures, 6))

    def _once(self) -> int:
        """One look; a second one where the first may be a stall that our own clock has not seen yet."""
        look = self.look()
        if look.subject is None and not look.signs:
            raise SourceError(f"nothing of {self.found.name} can be read: {'; '.join(look.unread)}")
        self._judged(look)
        quiet = self.state.quiet_s(look.now_s) or 0.0
        if self.state.mode in ("stepping", "paused") and quiet >= self.numbers.plan.notice_s:
            self.hands.pause(machine.confirm_s(self.state, self.numbers.plan) + 0.1)
            look = self.look()
            self._judged(look)
        self._flush()
        glance = machine.glance(self.state, time.monotonic())
        self.hands.tell(self._seen(glance))
        return self._once_code(glance)

    def _seen(self, glance: Glance) -> Event:
        return Event(
            kind=Kind.LOOK,
            at_ns=time.time_ns(),
            text=f"{glance.mode}, {_ago(glance)}",
            step=glance.step,
            quiet_s=glance.quiet_s,
            step_s=glance.step_s,
            checkpoint_age_s=glance.checkpoint_age_s,
        )

    def _once_code(self, glance: Glance) -> int:
        failed = self.state.failed_s is not None and not self.state.goes_on
        if self.state.mode == "stalled" or failed:
            return max(self.worst, ExitCode.FIX_OR_WATCH)
        if glance.quiet_s is None and self.state.mode != "over":
            return ExitCode.UNDECIDABLE
        return ExitCode.OK

    def _judged(self, look: Look) -> int | None:
        """One look into the state, and all that follows; the exit status where the watch is over."""
        self._say_unread(look)
        self.state, events = machine.step(self.state, look, self.numbers.plan)
        for event in events:
            self.hands.tell(event)
            self.outbox.note(event, self.state.stalled_ns if event.kind is Kind.STALLED else None)
            if event.kind in (Kind.STALLED, Kind.FAILED, Kind.CANNOT_SEE):
                self._post_now()
            if event.kind in (Kind.STALLED, Kind.FAILED) or self._may_be_ill(event, look):
                self._evidence(event, look)
        self._flush()
        self.hands.show(machine.glance(self.state, time.monotonic()), self.found.name)
        self._keep()
        return self._over(look)

    def _over(self, look: Look) -> int | None:
        if self.state.mode == "over":
            return ExitCode.OK
        subject, failed_s = self.state.subject, self.state.failed_s
        if subject is None or failed_s is None or subject.state != "failed":
            return None
        if subject.is_over:
            return max(self.worst, ExitCode.FIX_OR_WATCH)
        if look.now_s - failed_s < NEXT_S or self.state.goes_on:
            return None
        self._tell(Kind.ENDED, f"no other run came within {duration(NEXT_S)} of the failure")
        return max(self.worst, ExitCode.FIX_OR_WATCH)

    # --- Evidence ---------------------------------------------------------------------------------

    def _evidence(self, event: Event, look: Look) -> None:
        """Gather while it lasts, triage, and tell."""
        stated = self.order.budget_s
        quiet = self.state.quiet_s(time.monotonic()) or 0.0
        budget, left = (
            of_stall(self.numbers.plan.timeout_s, quiet, stated)
            if event.kind is not Kind.FAILED
            else of_failure(stated)
        )
        inquiry = Inquiry(
            place=self._place(event),
            attempt=None if self.state.subject is None else self.state.subject.number,
            budget_s=budget,
            timeout=self.numbers.timeout,
            known=self._known(event),
        )
        try:
            found = self.hands.investigate(inquiry)
        except GpufleetError as exc:
            self._tell(Kind.EVIDENCE, f"no evidence could be gathered: {exc.message}")
            return
        self.bundle = found.place
        self.worst = max(self.worst, found.code)
        after = "" if left is None else self._before_watchdog(left, found.seconds)
        text = (
            f"{found.files:,} files in {duration(found.seconds)} of {duration(budget)}"
            f"{f', {found.missing} things missing' if found.missing else ''}{after}: {found.place}"
        )
        self._tell(Kind.EVIDENCE, text, bundle=found.place)
        triage = f"triage of it: {found.headline}"
        if found.is_healthy and event.kind is Kind.STALLED:
            triage += " It sees the logs alone: the watch holds on to its stall."
        self._tell(Kind.TRIAGE, triage, bundle=found.place, report=found.report)
        self.hands.report(found)
        told = {"bundle": found.place, "triage": found.headline, "command": found.command}
        self.outbox.add((event.kind,), told)
        if found.interrupted:
            raise KeyboardInterrupt

    def _may_be_ill(self, event: Event, look: Look) -> bool:
        """A job that stepped, whose node or exporter is gone while the API server answers, is looked at too."""
        is_lost = event.kind is Kind.CANNOT_SEE and self.state.moved_s is not None
        return is_lost and look.subject is not None

    def _known(self, event: Event) -> dict[str, object]:
        """What the bundle should know and no log says. That progress stands still is proof where a log that was read
        since shows that nothing is open, no save is due, and the job has no such habit."""
        told: dict[str, object] = {"name": self.found.name, "namespace": self.found.namespace}
        told["watchdog_timeout_seconds"] = self.numbers.timeout.value
        every = self.numbers.plan.checkpoint_interval_s or self.state.habit.save_every_s
        if every is not None:
            told["checkpoint_interval_seconds"] = every
        unexplained = habits.is_unexplained(self.state, self.numbers.plan)
        if event.kind is Kind.STALLED and unexplained:
            told["state"] = "stalled"
        return told

    def _before_watchdog(self, left_s: float, took_s: float) -> str:
        rest = left_s - took_s
        if rest <= 0:
            return ", and the watchdog may have fired meanwhile"
        return f", {duration(rest)} before the watchdog fires"

    def _place(self, event: Event) -> Path:
        """A name of its own for each piece of evidence."""
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(event.at_ns / NS))
        job = re.sub(r"[^A-Za-z0-9.-]+", "-", self.found.name).strip("-.") or "job"
        name = f"{job}-{event.kind}-{stamp}"
        if self.order.folder is None:
            return Path(f"gpufleet-watch-{name}")
        return self.order.folder / name

    # --- Alerts and state -------------------------------------------------------------------------

    def _flush(self, *, lasts_s: float | None = None) -> None:
        lasts = {} if lasts_s is None else {"lasts_s": lasts_s}
        if lasts_s is not None and self.outbox.lasting:
            self.outbox.is_dirty, self.outbox.next_s = True, 0.0
        for event in self.outbox.flush(time.monotonic(), time.time_ns(), **lasts):
            self.hands.tell(event)

    def _post_now(self) -> None:
        """A page goes out before the evidence is gathered: a few tries, a few seconds."""
        for turn in range(POST_TRIES):
            self.outbox.next_s = 0.0
            self._flush()
            if not self.outbox.is_dirty or self.outbox.url is None:
                return
            self.hands.pause(0.5 * 2**turn)

    def _keep(self) -> None:
        kept = memory.kept_of(
            self.state, time.monotonic(), time.time_ns(),
            alerts=self.outbox.began, bundle=self.bundle, timeout_s=self.eyes.logs.timeout_s,
        )  # fmt: skip
        if kept is None:
            return
        try:
            memory.store(self.path, kept)
        except OSError as exc:
            if not self.is_told_unkept:
                self.is_told_unkept = True
                why = (exc.strerror or "").lower()
                self._tell(Kind.UNREAD, f"the state of the watch is not kept: {self.path}: {why}")


def _lasting(state: State) -> frozenset[Kind]:
    """What still holds of a job that is gone on with; whether it can be seen, the first look tells."""
    holds = {
        Kind.STALLED: state.mode == "stalled",
        Kind.FAILED: state.failed_s is not None,
        Kind.SLOWER: state.is_slow,
        Kind.CHECKPOINT_LATE: state.is_late,
    }
    return frozenset(kind for kind, is_so in holds.items() if is_so)


def _ago(glance: Glance) -> str:
    if glance.quiet_s is None:
        return "no step was seen"
    return f"last step {duration(glance.quiet_s)} ago"
