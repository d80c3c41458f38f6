"""The numbers that a watch goes by, and who said each: flag, settings file, the pods, a log, what was seen, a default."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gpufleet_cli.live.log_depth import DEFAULT_TIMEOUT_S
from gpufleet_cli.live.pods import Pod
from gpufleet_cli.operate.preflight.ranks import timeouts_in
from gpufleet_cli.operate.watch.habits import usual_step_s
from gpufleet_cli.operate.watch.model import Plan, State
from gpufleet_cli.parsers import json_documents as js
from gpufleet_cli.render.layout import duration
from gpufleet_cli.settings_file import ContextSettings


class Stated(NamedTuple):
    """A number and who said it."""

    value: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """What the command line says. None: not given."""

    timeout_s: float | None = None
    checkpoint_interval_s: float | None = None
    step_s: float | None = None
    warn_at: float = 0.5
    poll_s: float = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """The plan and its sources."""

    plan: Plan
    timeout: Stated
    checkpoint: Stated | None
    step: Stated | None

    def lines(self, state: State) -> Iterator[str]:
        """Each number with its source, what was only seen so far as well."""
        timeout = self.timeout
        yield f"watchdog {duration(timeout.value)} ({timeout.source})"
        yield f"a stall is told at {duration(self.plan.notice_s)}"
        seen = state.habit.save_every_s
        every = self.checkpoint or (None if seen is None else Stated(seen, "seen"))
        yield "checkpoint interval " + _shown(every)
        usual = usual_step_s(state.habit, self.plan.step_s)
        step = self.step or (None if usual is None else Stated(usual, "seen"))
        yield "step " + _shown(step)


def _shown(stated: Stated | None) -> str:
    return "not known yet" if stated is None else f"{duration(stated.value)} ({stated.source})"


def numbers(
    flags: Flags, file: ContextSettings, path: str, pods: Sequence[Pod], logged_s: float | None
) -> Numbers:
    """Flag over settings file over what the job says of itself."""
    timeout = (
        _first(flags.timeout_s, "--watchdog-timeout", file.watchdog_timeout_s, path)
        or _of_pods(pods)
        or (None if logged_s is None else Stated(logged_s, "its log"))
        or Stated(DEFAULT_TIMEOUT_S, "torch's default")
    )
    checkpoint = _first(
        flags.checkpoint_interval_s, "--checkpoint-interval", file.checkpoint_interval_s, path
    )
    step = _first(flags.step_s, "--step-seconds", file.step_s, path)
    plan = Plan(
        timeout_s=timeout.value,
        warn_at=flags.warn_at,
        poll_s=flags.poll_s,
        step_s=None if step is None else step.value,
        checkpoint_interval_s=None if checkpoint is None else checkpoint.value,
    )
    return Numbers(plan=plan, timeout=timeout, checkpoint=checkpoint, step=step)


def _first(flag: float | None, option: str, file: float | None, path: str) -> Stated | None:
    if flag is not None:
        return Stated(flag, option)
    return None if file is None else Stated(file, path)


def _of_pods(pods: Sequence[Pod]) -> Stated | None:
    """A timeout on the command line of a rank's container."""
    for pod in pods[:1]:
        for one in js.items(js.at(pod.raw, "spec", "containers")):
            if js.text_at(one, "name") != pod.state.rank_container:
                continue
            words = [*js.items(js.at(one, "command")), *js.items(js.at(one, "args"))]
            text = " ".join(word for word in words if isinstance(word, str))
            for seconds in timeouts_in(text[:65_536]):
                if seconds > 0:
                    return Stated(float(seconds), f"the command line of {pod.name}")
    return None
