"""Whether a gang may be torn down now. Pure: facts that were just read go in, a ruling comes out.

An eviction is right where the job has stopped on positive evidence, where the fault slows it now and the rule
or the arithmetic says so, where its state may be corrupt, or right after a durable checkpoint. Everything
else is refused, with its price and with what its own controller offers: there is no way round. A state that
is not known counts as running.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpufleet_cli import cost
from gpufleet_cli.operate.rulings import Ruling, done, go, no
from gpufleet_cli.render.layout import duration
from gpufleet_cli.verdict import Ground, JobState, Proof, Recommendation

Owner = Literal["known", "slinky", "other"]
"""Who made the pods: a kind whose means we know (or nobody), Slurm's operator, some other controller."""
Second = Literal["still", "idle", "moves", "open", "early", "unseen"]
"""What a second look at the progress found: no step where one was due; nobody left who could step; it goes on; work in
which no step is missed; too early to tell; nothing that tells (the logs cannot be read, or hold no steps)."""
Boundary = Literal["not-asked", "waiting", "reached"]

_WORDS = {
    JobState.ABORTED: "it has aborted",
    JobState.STALLED: "it has stalled",
    JobState.EXITED: "it has exited",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictFacts:
    """What is known at the moment of acting.

    `token` is that of the pods that are there, `wanted_token` the one that was asked for; `changed` says which
    pods are new. `strangers` are pods that were not there when the job was looked at, `restarted` those whose
    containers began anew since. `doubt` is why the evidence of a fault is not enough to stop a job. `holds` is False where no
    pod of it holds a node any more. `by_default` names the numbers of the price that nobody knew. `means` is its own controller's way, as a command. `blocked` is why its
    means would not work.
    """

    state: JobState
    state_why: str = ""
    proof: Proof | None = None
    second: Second = "unseen"
    second_why: str = ""
    ground: Ground | None = None
    ground_why: str = ""
    owner: Owner = "known"
    owner_name: str = ""
    may: bool | None = True
    right: str = ""
    token: str | None = None
    wanted_token: str | None = None
    changed: str = ""
    strangers: tuple[str, ...] = ()
    restarted: tuple[str, ...] = ()
    doubt: str = ""
    holds: bool = True
    boundary: Boundary = "not-asked"
    gpu_hours: float | None = None
    by_default: str = ""
    means: str = ""
    at_boundary: str = ""
    blocked: str | None = None


def rule(facts: EvictFacts) -> Ruling:
    """The ruling; of several reasons to refuse, the first that no waiting mends."""
    settled = _settled(facts)
    if settled is not None:
        return settled
    if facts.boundary == "reached":
        return go("a durable checkpoint was just made")
    if is_stopped(facts):
        return go(f"{_WORDS[facts.state]}: {facts.state_why}", gpu_hours=0.0)
    if facts.ground in ("corrupt", "slowed", "arithmetic"):
        return go(facts.ground_why, gpu_hours=facts.gpu_hours)
    return no(_runs(facts), gpu_hours=facts.gpu_hours, instead=_instead(facts))


def may_wait(facts: EvictFacts) -> Ruling:
    """Whether it is right to wait for the next checkpoint: where nothing but the moment is wrong."""
    settled = _settled(facts)
    return settled if settled is not None else go("the next durable checkpoint is waited for")


def is_stopped(facts: EvictFacts) -> bool:
    """On positive evidence alone. A step after it, wherever it is seen, means that the job goes on; and whatever
    a log or a dump says needs a second look in which a step was due and none came."""
    if facts.state not in _WORDS or facts.second == "moves":
        return False
    if facts.proof == "terminated":
        return True
    if facts.proof in ("own-lines", "recorder"):
        return facts.second in ("still", "idle")
    return facts.proof == "hint" and facts.second == "still"


def price(advice: Recommendation) -> float | None:
    """What stopping a running job now costs: the work since the checkpoint and a restart, in GPU-hours."""
    stated = next((one.gpu_hours for one in advice.options if one.option == "evict-now"), None)
    if stated:
        return stated
    known = {one.name: one.value for one in advice.inputs}
    gpus, since, restart = (known.get(name) for name in ("gpus", "since_checkpoint", "restart"))
    if not isinstance(gpus, int) or not isinstance(since, float | int):
        return None
    more = float(restart) if isinstance(restart, float | int) else cost.DEFAULT_RESTART_S
    return round(cost.gpu_hours(gpus, float(since) + more), 2)


def price_defaults(advice: Recommendation) -> str:
    """Which numbers of the price nobody knew: `a restart of 8m, 15m since the last checkpoint`."""
    known = {one.name: one.value for one in advice.inputs if one.source == "default"}
    words = (("restart", "a restart of {}"), ("since_checkpoint", "{} since the last checkpoint"))
    return ", ".join(
        told.format(duration(float(value)))
        for name, told in words
        if isinstance(value := known.get(name), float | int)
    )


def _settled(facts: EvictFacts) -> Ruling | None:
    """What its state has no say in. Where there is nothing to take down, no token is asked for either."""
    refusal = _never(facts)
    if refusal is None and not facts.holds:
        return done("no pod of it holds a node any more")
    return refusal or _another_run(facts)


# --- Reasons to refuse ----------------------------------------------------------------------------


def _never(facts: EvictFacts) -> Ruling | None:
    """What no state of the job makes right."""
    if facts.owner == "slinky":
        why = "its pods are Slurm nodes (Slinky): evicting one kills every Slurm job on it"
        return no(
            why, instead="in Slurm: scancel JOBID, or scontrol update nodename=... state=drain"
        )
    if facts.owner == "other":
        why = f"{facts.owner_name} makes its pods anew as soon as they go"
        return no(why, instead=facts.means)
    if facts.may is False:
        return no(f"no right to {facts.right}", instead="gpufleet-operator has it (deploy/rbac)")
    if facts.blocked is not None:
        return no(facts.blocked, gpu_hours=facts.gpu_hours, instead=facts.means)
    return None


def _another_run(facts: EvictFacts) -> Ruling | None:
    """A pasted command must not hit a run that its writer never saw."""
    again = "look again: gpufleet triage prints a fresh command"
    if facts.wanted_token is not None and facts.wanted_token != facts.token:
        told = f": {facts.changed}" if facts.changed else ""
        why = (
            f"the job or its pods are others than those that {facts.wanted_token} stands for{told}"
        )
        return no(why, instead=again)
    if facts.strangers:
        return no(f"new pods since it was looked at: {_few(facts.strangers)}", instead=again)
    if facts.restarted:
        shown = _few(facts.restarted)
        return no(f"restarted in place since it was looked at: {shown}", instead=again)
    return None


def _few(names: tuple[str, ...]) -> str:
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")


def _runs(facts: EvictFacts) -> str:
    if facts.second == "moves":
        return f"the job runs: {facts.second_why or 'it made a step while it was looked at'}"
    if facts.proof == "older-attempt":
        return "an attempt stopped and another began in the same pods, which nothing shows to be stopped"
    doubt = f"; {facts.doubt}" if facts.doubt else ""
    if facts.state is JobState.RUNNING:
        why = f": {facts.state_why}" if facts.state_why else ""
        return f"the job runs{why}{doubt}"
    if facts.state in _WORDS:
        what = f"'{facts.state_why}'" if facts.state_why else "a line"
        more = f": {facts.second_why}" if facts.second_why else ""
        return f"{what} does not prove that it has stopped{more}{doubt}"
    return f"nothing shows that it has stopped, and that counts as running{doubt}"


def _instead(facts: EvictFacts) -> str | None:
    offers = [one for one in (facts.at_boundary, facts.means) if one]
    return "; at its price, by its own means: ".join(offers) if offers else None
