"""The commands to paste for an action, and those whose answer would settle an open verdict."""

from __future__ import annotations

import shlex

from gpufleet_cli import dump_copy
from gpufleet_cli.plain_text import is_name
from gpufleet_cli.reason import Case
from gpufleet_cli.reason.quiet import quiet
from gpufleet_cli.verdict import Action, Command, Hypothesis, Verdict

MOST_COPIES = 4
"""Above so many suspects a copy by hand settles nothing."""


def commands(
    case: Case,
    verdict: Verdict,
    chosen: Hypothesis | None,
    action: Action,
    nodes: tuple[str, ...],
    token: str | None,
    gathered_as: str | None,
) -> tuple[Command, ...]:
    """In the order in which they are meant to be run."""
    if chosen is None:
        settle = verdict.settle_command or _settling_command(case, verdict)
        own = (
            () if settle is None else (Command(run=settle, stops_job=False, note="stops nothing"),)
        )
        return (*own, *_fresh_look(case, gathered_as), *_copies(case, verdict))
    stops = not case.stop.stopped
    if _is_slurm(case):
        return _slurm_commands(case, chosen, action, nodes, stops)
    name, namespace = _job_name(case)
    if not (is_name(name or "") and is_name(namespace or "default")):
        name = None  # nothing to paste for what cannot be a name: it might be an option
    nodes = tuple(node for node in nodes if is_name(node))
    scope = f" -n {shlex.quote(namespace)}" if namespace is not None else ""
    job = gathered_as if name is None else f"{shlex.quote(name)}{scope}"
    found = [
        Command(
            run=f"gpufleet cordon {shlex.quote(node)} --reason {shlex.quote(chosen.reason_tag or str(chosen.kind))}",
            stops_job=False,
            note="stops nothing",
        )
        for node in nodes
    ]
    bound = "" if token is None else f" --if-attempt {token}"
    if action in (Action.EVICT_NOW, Action.RESTART_JOB) and job is not None:
        found.append(
            Command(
                run=f"gpufleet evict {job}{bound}",
                stops_job=stops,
                note="stops the job" if stops else "the job is down already",
            )
        )
    elif action is Action.EVICT_NOW and nodes:
        found.extend(
            Command(
                run=f"gpufleet evict {shlex.quote('node/' + node)}{bound}",
                stops_job=stops,
                note="stops the job" if stops else "the job is down already",
            )
            for node in nodes
        )
    elif action is Action.CORDON_AT_CHECKPOINT and job is not None:
        found.append(
            Command(
                run=f"gpufleet evict {job} --at-checkpoint{bound}",
                stops_job=True,
                note="waits for the boundary, then stops the job",
            )
        )
    if chosen.settle_command is not None:
        found.append(Command(run=chosen.settle_command, stops_job=False, note="says what holds it"))
    return tuple(found)


def _settling_command(case: Case, verdict: Verdict) -> str | None:
    """The cheapest look that can single somebody out: the log of a suspect's pod that is not at hand,
    else the kernel log of a suspect's node, else the scheduler's reasons."""
    suspects = verdict.alternatives[0].ranks if verdict.alternatives else ()
    places = [case.topology.places[r] for r in suspects if r in case.topology.places]
    heard = {case.topology.places[r].pod for r in case.silence if r in case.topology.places}
    unseen = [p for p in places if is_name(p.pod or "") and p.pod not in heard]
    if unseen and not _is_slurm(case):
        place = unseen[0]
        namespace = place.namespace or _job_name(case)[1]
        scope = f" -n {namespace}" if namespace and is_name(namespace) else ""
        container = f" -c {place.container}" if is_name(place.container or "") else ""
        return f"kubectl logs {shlex.quote(place.pod or '')}{scope}{container} --timestamps"
    if _is_slurm(case):
        return "sinfo -R"
    nodes = sorted({p.node for p in places if p.node is not None and is_name(p.node)})
    if nodes:
        return f"ssh {shlex.quote(nodes[0])} journalctl -k -o short-iso --no-pager"
    return None


def _fresh_look(case: Case, gathered_as: str | None) -> tuple[Command, ...]:
    """Of a job whose ranks all went quiet, while they are there to be asked."""
    name, namespace = _job_name(case)
    is_there = any(c.state == "running" for pod in case.pods for c in pod.containers)
    if quiet(case) is None or not is_there:
        return ()
    scope = f" -n {shlex.quote(namespace)}" if namespace is not None else ""
    job = f"{shlex.quote(name)}{scope}" if name and is_name(name) else gathered_as
    if job is None or not is_name(namespace or "default"):
        return ()
    run = f"gpufleet triage {job} --capture"
    return (Command(run=run, stops_job=False, note="asks the ranks for fresh dumps and stacks"),)


def _copies(case: Case, verdict: Verdict) -> tuple[Command, ...]:
    """The dumps of the few suspects that lack one, off the volumes that they lie on."""
    suspects = verdict.alternatives[0].ranks if verdict.alternatives else ()
    if case.graph is not None:
        suspects = tuple(rank for rank in suspects if rank in case.graph.missing)
    if len(suspects) > MOST_COPIES:
        return ()
    pods = {(pod.name, pod.namespace): pod for pod in case.pods}
    found = []
    for rank in suspects:
        place = case.topology.places.get(rank)
        pod = None if place is None else pods.get((place.pod or "", place.namespace))
        run = None if pod is None else dump_copy.command(pod, rank)
        if run is not None:
            found.append(Command(run=run, stops_job=False, note=dump_copy.NOTE.format(rank=rank)))
    return tuple(found)


def _is_slurm(case: Case) -> bool:
    return bool(case.scheduler_jobs or case.scheduler_nodes) and not case.pods


def _slurm_commands(
    case: Case, chosen: Hypothesis, action: Action, nodes: tuple[str, ...], stops: bool
) -> tuple[Command, ...]:
    """Slurm's drain lets the job finish, so it is our cordon; scancel takes the gang down."""
    reason = shlex.quote(chosen.reason_tag or str(chosen.kind))
    found = [
        Command(
            run=f"scontrol update nodename={shlex.quote(node)} state=drain reason={reason}",
            stops_job=False,
            note="stops nothing",
        )
        for node in nodes
        if is_name(node) and node.upper() != "ALL"  # a list in brackets, or the word for all nodes
    ]
    jobs = sorted({job.job_id.split(".")[0] for job in case.scheduler_jobs})
    if action in (Action.EVICT_NOW, Action.RESTART_JOB) and len(jobs) == 1 and is_name(jobs[0]):
        found.append(
            Command(
                run=f"scancel {shlex.quote(jobs[0])}",
                stops_job=stops,
                note="stops the job" if stops else "the job is down already",
            )
        )
    return tuple(found)


def _job_name(case: Case) -> tuple[str | None, str | None]:
    name = next((n.name for n in case.given if n.name is not None), None)
    namespace = next((n.namespace for n in case.given if n.namespace is not None), None)
    if namespace is None:
        places = case.topology.places.values()
        namespace = next((p.namespace for p in places if p.namespace is not None), None)
    return name, namespace
