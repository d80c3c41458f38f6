"""The alerts of one watch: which last, what was posted, and when to try again. A post that fails costs no look."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from gpufleet_cli.errors import SourceError
from gpufleet_cli.operate import notify
from gpufleet_cli.operate.notify import Alert
from gpufleet_cli.watch_card import PROBLEMS, Event, Kind

NS = 1_000_000_000
RESEND_S = 60.0
LASTS_S = 300.0
AFTER_END_S = 900.0
"""An alert about a job that failed ends so long after we do."""
MOST_PAUSE_S = 60.0
NAMES: Mapping[Kind, tuple[str, str]] = {
    Kind.STALLED: ("GpufleetJobStalled", "critical"),
    Kind.FAILED: ("GpufleetJobFailed", "critical"),
    Kind.SLOWER: ("GpufleetStepTimeUp", "warning"),
    Kind.CHECKPOINT_LATE: ("GpufleetCheckpointLate", "warning"),
    Kind.CANNOT_SEE: ("GpufleetWatchCannotSee", "warning"),
}
ENDS: Mapping[Kind, tuple[Kind, ...]] = {
    Kind.MOVES: (Kind.STALLED, Kind.FAILED),
    Kind.STEPS: (Kind.STALLED, Kind.FAILED),
    Kind.PACE: (Kind.SLOWER,),
    Kind.CHECKPOINT: (Kind.CHECKPOINT_LATE,),
    Kind.SEES: (Kind.CANNOT_SEE,),
    Kind.ATTEMPT: (Kind.SLOWER, Kind.CHECKPOINT_LATE),
    Kind.ENDED: tuple(PROBLEMS),
}
"""What each event resolves."""


@dataclass(slots=True, kw_only=True)
class Outbox:
    """Alerts by name. `url` None: nobody is told, and what lasts is kept all the same."""

    url: str | None
    labels: Mapping[str, str]
    generator: str
    command: str
    budget_s: float = 0.0
    lasting: dict[str, Alert] = field(default_factory=dict)
    over: dict[str, Alert] = field(default_factory=dict)
    is_dirty: bool = False
    failures: int = 0
    next_s: float = 0.0
    sent_s: float | None = None
    told: str = ""
    """What was said of the last post: the same is not said again."""

    @property
    def began(self) -> dict[str, int]:
        """Name to begin of what lasts, for the file of the state."""
        return {name: one.starts_ns for name, one in self.lasting.items()}

    def go_on(self, began: Mapping[str, int], lasting: frozenset[Kind], at_ns: int) -> None:
        """What an earlier watch of this job had posted: what still lasts goes on, the rest is over."""
        for kind, (name, severity) in NAMES.items():
            if name not in began:
                continue
            alert = self._alert(
                name, severity, f"since an earlier watch: {kind.value}", began[name]
            )
            self.is_dirty = True
            if kind in lasting:
                self.lasting[name] = alert
            else:
                self.over[name] = replace(alert, ends_ns=at_ns)

    def note(self, event: Event, starts_ns: int | None = None) -> None:
        """What an event begins or ends."""
        for kind in ENDS.get(event.kind, ()):
            name = NAMES[kind][0]
            if name in self.lasting:
                self.over[name] = replace(self.lasting.pop(name), ends_ns=event.at_ns)
                self.is_dirty = True
        if event.kind in NAMES:
            name, severity = NAMES[event.kind]
            starts = event.at_ns if starts_ns is None else starts_ns
            known = self.lasting.get(name)
            starts = starts if known is None else known.starts_ns
            self.over.pop(name, None)
            self.lasting[name] = self._alert(name, severity, event.text, starts)
            self.is_dirty = True

    def add(self, kinds: Iterable[Kind], annotations: Mapping[str, str]) -> None:
        """More about what lasts: where the evidence lies, what its triage says."""
        for kind in kinds:
            name = NAMES[kind][0]
            if name in self.lasting:
                one = self.lasting[name]
                self.lasting[name] = replace(one, annotations={**one.annotations, **annotations})
                self.is_dirty = True

    def _alert(self, name: str, severity: str, text: str, starts_ns: int) -> Alert:
        labels = {"alertname": name, "severity": severity, **self.labels}
        job = f"{self.labels['namespace']}/{self.labels['job_name']}"
        return Alert(
            labels=labels,
            annotations={"summary": f"{job}: {text}", "command": self.command},
            starts_ns=starts_ns,
            ends_ns=0,
            generator=self.generator,
        )

    def flush(self, now_s: float, at_ns: int, *, lasts_s: float = LASTS_S) -> list[Event]:
        """Post what is due; what a person should hear of it."""
        if self.url is None or now_s < self.next_s:
            return []
        is_old = self.sent_s is not None and now_s - self.sent_s >= RESEND_S
        if not self.is_dirty and not (self.lasting and is_old):
            return []
        ends_ns = at_ns + round((lasts_s + self.budget_s) * NS)
        posted = [replace(one, ends_ns=ends_ns) for one in self.lasting.values()]
        posted += self.over.values()
        if not posted:
            self.is_dirty = False
            return []
        try:
            notify.post(self.url, posted)
        except SourceError as exc:
            return self._failed(exc, now_s, at_ns)
        shown = self._shown()
        told = shown if shown != self.told or self.failures else ""
        self.told = shown
        self.over.clear()
        self.is_dirty, self.failures, self.sent_s, self.next_s = False, 0, now_s, now_s
        return [Event(kind=Kind.POSTED, at_ns=at_ns, text=told)] if told else []

    def _failed(self, exc: SourceError, now_s: float, at_ns: int) -> list[Event]:
        self.failures += 1
        pause = min(MOST_PAUSE_S, 0.5 * 2.0**self.failures)
        self.next_s = now_s + pause
        if self.failures > 1:
            return []
        text = f"not posted: {exc.message}; tried again in {pause:.0f} s, then less often"
        return [Event(kind=Kind.NOT_POSTED, at_ns=at_ns, text=text)]

    def _shown(self) -> str:
        parts = [f"{name} resolved" for name in sorted(self.over)]
        parts += [f"{name} lasts" for name in sorted(self.lasting)]
        return f"posted to Alertmanager: {', '.join(parts)}"
