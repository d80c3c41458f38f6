"""What launchers say: torchrun's agent of each node, or srun for tasks without one."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from gpufleet_cli.operate.simulate import identities
from gpufleet_cli.operate.simulate import log_lines as ll
from gpufleet_cli.operate.simulate.log_endings import exit_code, fault_of
from gpufleet_cli.operate.simulate.log_lines import Line, Says
from gpufleet_cli.operate.simulate.story import Class, Ending, Story

SIGNALS = {-6: "SIGABRT", -9: "SIGKILL", -11: "SIGSEGV", -15: "SIGTERM"}
FAILED = frozenset(
    {"exception", "segfault", "oom-kill", "cuda-error", "network-error", "watchdog-abort"}
)
# Ends that are the rank's own; whose exit code says what the cause is.
OWN = frozenset({"exception", "segfault", "oom-kill", "cuda-error"})
TELLING = frozenset({"segfault"})
BINARY = "/opt/conda/bin/python"
LAUNCHER = (
    "Traceback (most recent call last):",
    '  File "/opt/conda/bin/torchrun", line 8, in <module>',
    "    sys.exit(main())",
    '  File "/opt/conda/lib/python3.11/site-packages/torch/distributed/run.py", line 909, in run',
    "    elastic_launch(",
    '  File "/opt/conda/lib/python3.11/site-packages/torch/distributed/launcher/api.py", line 269, in launch_agent',
    "    raise ChildFailedError(",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
)


def start_lines(story: Story, began_s: float, rng: Random) -> Iterator[Line]:
    """The block of each agent that maps its local ranks to global ones, where its level shows it."""
    layout = story.layout
    shows = story.style.identity == "logs" and rng.random() < 0.6
    if not shows or story.style.wrapper == "srun-label" or _never_met(story):
        return
    for index in range(len(layout.nodes)):
        ranks = list(layout.ranks_of(index))
        ns = story.wall_ns(began_s + index % 16 * 0.01, index)
        writer = ll.agent_of(index)
        head = ll.agent_prefix(story, index, ns, "I", "agent/server/api.py:525")
        size = layout.size
        for text in (
            f"{head}[default] Rendezvous complete for workers. Result:",
            "  restart_count=0",
            f"  master_addr={identities.host(story, 0)}",
            "  master_port=29500",
            f"  group_rank={index}",
            f"  group_world_size={len(layout.nodes)}",
            f"  local_ranks={list(range(len(ranks)))}",
            f"  role_ranks={ranks}",
            f"  global_ranks={ranks}",
            f"  role_world_sizes={[size] * len(ranks)}",
            f"  global_world_sizes={[size] * len(ranks)}",
            "",
        ):
            yield Line(ns, writer, True, text)


def _never_met(story: Story) -> bool:
    return any(f.cls is Class.RENDEZVOUS for f in story.faults)


def end_lines(story: Story, rng: Random) -> Iterator[Line]:
    """What the launchers say of the ends of their processes."""
    layout = story.layout
    of = {ending.rank: ending for ending in story.endings}
    for index in range(len(layout.nodes)):
        ends = [of[rank] for rank in layout.ranks_of(index) if rank in of]
        if story.style.wrapper == "srun-label":
            yield from _srun(story, index, ends)
        elif not any(ending.how == "vanished" for ending in ends):
            yield from _agent(story, index, ends, rng)


def _agent(story: Story, index: int, ends: list[Ending], rng: Random) -> Iterator[Line]:
    failed = sorted(
        ((e.at_s, e.rank, e) for e in ends if e.how in FAILED and e.at_s is not None),
        key=lambda one: one[:2],
    )
    told = [e for e in ends if e.how in ("agent-sigterm", "frozen") and e.at_s is not None]
    if not failed:
        if told:
            yield from _told_to_stop(story, index, told)
        return
    first_at, _rank, first = failed[0]
    later = [at for e in told if (at := e.at_s) is not None]
    seen = max(first_at, min(later) - 0.05) if later else first_at + rng.uniform(0.3, 2.0)
    gone = max([seen, *later]) + 0.2
    also = [e for at, _r, e in failed[1:] if at <= seen]
    writer = ll.agent_of(index)
    yield from _closing(story, index, seen, [e for e in ends if e is not first and e not in also])
    ns = story.wall_ns(gone, index)
    local, pid = story.layout.local_rank(first.rank), identities.pid(story, first.rank)
    code = exit_code(story, first)
    words = f"failed (exitcode: {code}) local_rank: {local} (pid: {pid})"
    head = ll.agent_prefix(story, index, ns, "E", "multiprocessing/api.py:869")
    yield Line(ns, writer, True, f"{head}{words} of binary: {BINARY}", _says(story, first, words))
    for text in LAUNCHER:
        ns += 100_000
        yield Line(ns, writer, True, text)
    yield from _block(story, index, ns + 100_000, first, first_at, also)


def _says(story: Story, ending: Ending, text: str) -> Says | None:
    fault = fault_of(story, ending.rank)
    if fault is None or ending.how not in OWN:
        return None
    return Says((ending.rank,), fault.kinds, loud=ending.how in TELLING, text=text)


def _closing(story: Story, index: int, at_s: float, ends: list[Ending]) -> Iterator[Line]:
    writer = ll.agent_of(index)
    for n, ending in enumerate(ends):
        ns = story.wall_ns(at_s, index) + n * 1000
        pid = identities.pid(story, ending.rank)
        head = ll.agent_prefix(story, index, ns, "W", "multiprocessing/api.py:897")
        yield Line(ns, writer, True, f"{head}Sending process {pid} closing signal SIGTERM")
        if ending.how == "frozen" and ending.at_s is not None:
            ns = story.wall_ns(max(at_s, ending.at_s), index)
            head = ll.agent_prefix(story, index, ns, "W", "multiprocessing/api.py:916")
            text = f"Unable to shutdown process {pid} via Signals.SIGTERM, forcefully exiting via Signals.SIGKILL"
            yield Line(ns, writer, True, head + text)


def _told_to_stop(story: Story, index: int, told: list[Ending]) -> Iterator[Line]:
    at = min(e.at_s for e in told if e.at_s is not None) - 0.1
    ns, writer = story.wall_ns(at, index), ll.agent_of(index)
    head = ll.agent_prefix(story, index, ns, "W", "agent/server/api.py:741")
    text = "Received Signals.SIGTERM death signal, shutting down workers"
    yield Line(ns, writer, True, head + text)
    yield from _closing(story, index, at + 0.01, told)


def _block(
    story: Story, index: int, ns: int, first: Ending, first_at: float, also: list[Ending]
) -> Iterator[Line]:
    """The block of failures: others of the same moment, and the first observed."""
    writer = ll.agent_of(index)
    found = ["=" * 60, "train.py FAILED", "-" * 60, "Failures:"]
    for n, ending in enumerate(also, start=1):
        assert ending.at_s is not None
        found += _failure(story, index, n, ending, ending.at_s)
    if not also:
        found.append("  <NO_OTHER_FAILURES>")
    found += ["-" * 60, "Root Cause (first observed failure):"]
    for text in found:
        yield Line(ns, writer, True, text)
    rank = f"  rank      : {first.rank} (local_rank: {story.layout.local_rank(first.rank)})"
    for text in _failure(story, index, 0, first, first_at):
        says = _says(story, first, rank) if text == rank else None
        yield Line(ns, writer, True, text, says)
    yield Line(ns, writer, True, "=" * 60)


def _failure(story: Story, index: int, number: int, ending: Ending, at_s: float) -> list[str]:
    pid, code = identities.pid(story, ending.rank), exit_code(story, ending) or 1
    signal = SIGNALS.get(code)
    newer = f"  ({signal})" if signal and story.style.torch in ("2.8", "2.10") else ""
    why = (
        f"Signal {-code} ({signal}) received by PID {pid}"
        if signal
        else "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"
    )
    return [
        f"[{number}]:",
        f"  time      : {ll.day(story.wall_ns(at_s + 0.05, index)).replace(' ', '_')}",
        f"  host      : {identities.host(story, index)}",
        f"  rank      : {ending.rank} (local_rank: {story.layout.local_rank(ending.rank)})",
        f"  exitcode  : {code} (pid: {pid}){newer}",
        "  error_file: <N/A>",
        f"  traceback : {why}",
    ]


def _srun(story: Story, index: int, ends: list[Ending]) -> Iterator[Line]:
    """srun names node and task of each process that ends badly; a lost node it names as such."""
    node = story.layout.nodes[index]
    gone = [e for e in ends if e.how == "vanished" and e.at_s is not None]
    if gone:
        at = max(e.at_s for e in gone if e.at_s is not None) + 30
        faults = [f for f in story.faults if index in f.node_indexes]
        kinds = faults[0].kinds if faults else ()
        text = f"srun: error: Node failure on {node}"
        says = Says(tuple(story.layout.ranks_of(index)), kinds, text=text) if faults else None
        yield Line(story.wall_ns(at, 0), ll.SRUN, True, text, says)
        return
    for ending in ends:
        code = exit_code(story, ending)
        if ending.at_s is None or code is None:
            continue
        words = {
            -9: "Killed",
            -11: "Segmentation fault (core dumped)",
        }.get(code, f"Exited with exit code {code if code > 0 else 128 - code}")
        text = f"srun: error: {node}: task {ending.rank}: {words}"
        yield Line(
            story.wall_ns(ending.at_s + 0.2, 0), ll.SRUN, True, text, _says(story, ending, text)
        )
