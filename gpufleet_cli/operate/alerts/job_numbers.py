"""The numbers that rules are made from: those that were given, else those that a triage of the job found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile

from gpufleet_cli.alert_card import Known
from gpufleet_cli.errors import UsageError
from gpufleet_cli.live.metric_queries import Matcher, literal
from gpufleet_cli.operate.alerts.numbers import Numbers
from gpufleet_cli.operate.alerts.promql import number
from gpufleet_cli.verdict import Triage

MOST_NAMES = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One number of the job: how it is asked for, what a person calls it, and its usual value."""

    option: str
    words: str
    usual: str


STEP = Asked(option="--step-seconds", words="step time", usual="0.4")
INTERVAL = Asked(option="--checkpoint-interval", words="checkpoint interval", usual="30m")
WATCHDOG = Asked(
    option="--watchdog-timeout", words="watchdog timeout", usual="10m, PyTorch's default for NCCL"
)
ALL = (STEP, INTERVAL, WATCHDOG)
Given = dict[Asked, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A number and where it came from."""

    value: float
    source: str


def given_alone(given: Given) -> dict[Asked, Told] | None:
    """The numbers where every one was given; None where the job has to be looked at."""
    told = {
        one: Told(value=value, source="flag") for one, value in given.items() if value is not None
    }
    return told if len(told) == len(given) else None


def with_triage(given: Given, triage: Triage, job: str) -> dict[Asked, Told]:
    """The numbers with what the job's evidence tells in place of what was not given."""
    sources = {one.name: str(one.source) for one in triage.recommendation.inputs}
    found = {
        STEP: (triage.job.step_s, "evidence"),
        INTERVAL: (
            triage.job.checkpoint_interval_s,
            sources.get("checkpoint_interval", "evidence"),
        ),
        WATCHDOG: (triage.job.watchdog_timeout_s, sources.get("watchdog_timeout", "evidence")),
    }
    told: dict[Asked, Told] = {}
    lacking: list[Asked] = []
    for one, value in given.items():
        seen, source = found[one]
        if value is not None:
            told[one] = Told(value=value, source="flag")
        elif seen is None or seen <= 0:
            lacking.append(one)
        else:
            told[one] = Told(value=seen, source=_source(source))
    if lacking:
        words = " and ".join(f"the {one.words}" for one in lacking)
        raise UsageError(
            f"{words} of {job} cannot be told from its evidence",
            hint="give " + " and ".join(f"{one.option} ({one.usual})" for one in lacking),
        )
    return told


def _source(word: str) -> str:
    return {"evidence": "the job's own logs and settings", "file": "settings file"}.get(word, word)


def own_pods(namespace: str | None, pods: str) -> tuple[Matcher, ...]:
    """The labels that a PodMonitor gives to what a pod exports."""
    space = [] if namespace is None else [Matcher("namespace", "=", namespace)]
    return (*space, Matcher("pod", "=~", pods))


def known(
    told: dict[Asked, Told], numbers: Numbers, *, match_given: bool, pods_source: str
) -> tuple[Known, ...]:
    """As the file says them."""
    found = [
        Known(words=one.words, value=f"{number(told[one].value)} s", source=told[one].source)
        for one in ALL
    ]
    match = ", ".join(str(one) for one in numbers.match)
    source = "flag" if match_given else "default, the labels of the job's pods"
    found.append(Known(words="its own metrics", value=match, source=source))
    found.append(Known(words="its pods", value=numbers.pods, source=pods_source))
    return tuple(found)


def pods_of(job: str, names: Iterable[str]) -> tuple[str, str]:
    """A regular expression of the job's pods, of later attempts too, and where it came from. Controllers name
    pods after their job; plain pods have what their names share."""
    usual = f"{literal(job)}-.+"
    seen = sorted(set(names))
    if not seen:
        return usual, "default, the job's name and a dash"
    if all(name.startswith(f"{job}-") and len(name) > len(job) + 1 for name in seen):
        return usual, "the job's pods"
    if len(seen) <= MOST_NAMES:
        return "|".join(literal(name) for name in seen), "the job's pods, by name"
    pairs = zip(seen[0], seen[-1], strict=False)  # sorted: what these two share, all do
    shared = "".join(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return f"{literal(shared)}.+", "what the names of the job's pods begin with"
