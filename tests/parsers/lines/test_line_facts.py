"""What the sample files cannot show: who speaks, when, where a fact stands, and lines that follow."""

from __future__ import annotations

from gpufleet_cli.facts import (
    GroupStatus,
    IdentityLink,
    LogSign,
    Progress,
    Sign,
    Speaker,
    WatchdogTimeout,
)
from gpufleet_cli.parsers.lines import (
    RECOGNISERS,
    checkpoints,
    elastic_agent,
    elastic_failure,
    identity,
    launchers,
    nccl_init,
    nccl_network,
    nvrx,
    ray_lines,
    slurm_lines,
    steps,
    torchft_steps,
    tracebacks,
    watchdog,
)
from gpufleet_cli.parsers.lines.elastic_failure import observed_ns
from gpufleet_cli.parsers.lines.pasted import read
from gpufleet_cli.parsers.lines.signs import continuation, parse_ranks
from gpufleet_cli.parsers.log_line import LogLine

NS = 10**9
TIMEOUT = (
    "[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, "
    "NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600016 milliseconds before timing out."
)
STATUS = (
    "[PG ID 1 PG GUID {guid}(mesh) Rank {rank}]  failure detected by watchdog at work sequence id: {seq} "
    "PG status: last enqueued work: 9, last completed work: 6"
)
ROOT_CAUSE = """Root Cause (first observed failure):
[0]:
  time      : 2026-11-29_14:40:05
  host      : gpu-node-1621
  rank      : 6 (local_rank: 2)
  exitcode  : -9 (pid: 16713)  (SIGKILL)"""
STATED_NS = 1_795_963_205 * NS  # 2026-11-29 14:40:05 UTC


def _lines(*texts: str, speaker: Speaker | None = None) -> list[LogLine]:
    who = speaker if speaker is not None else Speaker(stream="job.log")
    return [LogLine(text, NS * n, True, who, "job.log", n) for n, text in enumerate(texts, start=1)]


def test_a_timeout_keeps_its_own_time_and_a_copy_has_none() -> None:
    """The abort's copy comes a minute later: line time minus `ran for` would be wrong by that minute."""
    (first,) = read(watchdog.recognise, TIMEOUT.format(rank=3, seq=7), at_ns=5 * NS)
    copy, abort = read(
        watchdog.recognise,
        f"Process group watchdog thread terminated with exception: {TIMEOUT.format(rank=3, seq=7)}",
        at_ns=65 * NS,
    )
    assert isinstance(first, WatchdogTimeout)
    assert isinstance(copy, WatchdogTimeout)
    assert isinstance(abort, LogSign)
    assert (first.at_ns, copy.at_ns, abort.at_ns) == (5 * NS, None, 65 * NS)


def test_a_timeout_takes_the_group_of_its_own_status_line_only() -> None:
    """Two groups of one process time out together: each timeout belongs to the status of its own work."""
    text = "\n".join(
        [
            TIMEOUT.format(rank=0, seq=7),
            STATUS.format(guid=9, rank=0, seq=8),
            STATUS.format(guid=4, rank=0, seq=7),
        ]
    )
    (fact,) = read(watchdog.recognise, text)
    assert isinstance(fact, WatchdogTimeout)
    assert fact.group is not None
    assert fact.group.name == "4"


def test_a_timeout_does_not_take_the_group_of_the_next_timeout() -> None:
    """Lines of two watchdogs alternate: what follows the next timeout is the next one's."""
    text = "\n".join(
        [
            TIMEOUT.format(rank=0, seq=7),
            TIMEOUT.format(rank=0, seq=8),
            STATUS.format(guid=9, rank=0, seq=7),
        ]
    )
    (fact,) = read(watchdog.recognise, text)
    assert isinstance(fact, WatchdogTimeout)
    assert fact.group is None


def test_two_timeouts_glued_into_one_line_are_two_facts() -> None:
    """Eight ranks share one stream: a line may hold two messages."""
    glued = TIMEOUT.format(rank=0, seq=7) + TIMEOUT.format(rank=1, seq=8)
    facts = read(watchdog.recognise, glued)
    assert [7, 8] == [fact.seq for fact in facts if isinstance(fact, WatchdogTimeout)]


def test_minus_one_is_none_so_far_and_the_unsigned_form_is_unknown() -> None:
    """-1 says that nothing was enqueued; 2**64-1 says nothing."""
    text = "[PG 0 Rank 3] Timeout at NCCL work: 1, last enqueued NCCL work: {}, last completed NCCL work: {}."
    (none,) = read(watchdog.recognise, text.format(-1, -1))
    (unknown,) = read(watchdog.recognise, text.format(18446744073709551615, 18446744073709551615))
    assert isinstance(none, GroupStatus)
    assert isinstance(unknown, GroupStatus)
    assert (none.last_enqueued, none.last_completed) == (-1, -1)
    assert (unknown.last_enqueued, unknown.last_completed) == (None, None)


def test_nccl_names_its_process_where_nothing_else_does() -> None:
    """HOST:PID of the prefix joins a line without a rank to the rank's init line."""
    text = "gpu-d48:34050:34121 [0] x.cc:93 NCCL WARN NET/IB : Got async event : port error"
    (bare,) = read(nccl_network.recognise, text)
    (known,) = read(
        nccl_network.recognise, text, speaker=Speaker(stream="a", rank=4, host="node-4", pid=9)
    )
    assert isinstance(bare, LogSign)
    assert isinstance(known, LogSign)
    assert (bare.speaker.host, bare.speaker.pid) == ("gpu-d48", 34050)
    assert (known.speaker.rank, known.speaker.host, known.speaker.pid) == (4, "node-4", 9)


def test_an_init_line_carries_the_pod_and_the_attempt_of_its_speaker() -> None:
    """The link ties the rank to what the wrapper knew of the stream."""
    speaker = Speaker(stream="s", pod="w-1", container="main", node="gpu-1", attempt=2)
    text = (
        "w-1:213:916 [3] NCCL INFO comm 0x5 rank 0 nranks 8 cudaDev 0 busId 1b000 - Init COMPLETE"
    )
    (link,) = read(nccl_init.recognise, text, speaker=speaker)
    assert isinstance(link, IdentityLink)
    assert (link.rank, link.pod, link.node, link.attempt) == (0, "w-1", "gpu-1", 2)
    assert (link.pci_bus_id, link.gpu_index) == ("0000:1b:00.0", None)


def test_the_agents_map_sets_the_attempt_of_its_sign() -> None:
    """restart_count is the attempt from that line on."""
    text = "[default] Rendezvous complete for workers. Result:\n  restart_count=3\n  global_ranks=[4, 5]"
    sign, *links = read(elastic_agent.recognise, text)
    assert isinstance(sign, LogSign)
    assert sign.speaker.attempt == 3
    assert [(4, 0, 3), (5, 1, 3)] == [
        (link.rank, link.local_rank, link.attempt)
        for link in links
        if isinstance(link, IdentityLink)
    ]


def test_a_map_that_is_cut_gives_what_it_has() -> None:
    """A stream that ends inside the block still tells the attempt."""
    facts = read(elastic_agent.recognise, "[default] Rendezvous complete for workers. Result:")
    assert [Sign.RENDEZVOUS_DONE] == [fact.sign for fact in facts if isinstance(fact, LogSign)]


def test_the_failure_report_is_dated_by_its_own_time_in_the_lines_zone() -> None:
    """The agent prints the block after it has ended the siblings, up to minutes later."""
    utc, _ = read(elastic_failure.recognise, ROOT_CAUSE, at_ns=STATED_NS + 42 * NS)
    east, _ = read(elastic_failure.recognise, ROOT_CAUSE, at_ns=STATED_NS - 8 * 3600 * NS + 42 * NS)
    undated, _ = read(elastic_failure.recognise, ROOT_CAUSE)
    assert isinstance(utc, LogSign)
    assert isinstance(east, LogSign)
    assert isinstance(undated, LogSign)
    assert utc.at_ns == STATED_NS
    assert east.at_ns == STATED_NS - 8 * 3600 * NS
    assert undated.at_ns == STATED_NS


def test_a_failure_report_of_another_day_keeps_the_lines_time() -> None:
    """No zone is 60 hours wide: then the block's time is not understood."""
    assert (
        observed_ns("2026-11-29_14:40:05", STATED_NS + 60 * 3600 * NS) == STATED_NS + 60 * 3600 * NS
    )
    assert observed_ns("yesterday", 7) == 7


def test_an_exception_stands_at_its_own_line_with_its_own_time() -> None:
    """The traceback begins earlier; what ended the rank is its last line."""
    lines = _lines(
        "Traceback (most recent call last):", '  File "a.py", line 1, in f', "KeyError: 0"
    )
    (fact,) = tracebacks.recognise(lines[0], lambda count: lines[1 : 1 + count])
    assert isinstance(fact, LogSign)
    assert (fact.origin.line, fact.at_ns, fact.text) == (3, 3 * NS, "KeyError: 0")


def test_a_traceback_inside_a_traceback_is_read_by_its_own_header() -> None:
    """ "During handling of the above exception": two headers, two facts, none of them twice."""
    rows = [
        "Traceback (most recent call last):",
        '  File "a.py", line 1, in f',
        "KeyError: 0",
        "",
        "During handling of the above exception, another exception occurred:",
        "",
        "Traceback (most recent call last):",
        '  File "b.py", line 2, in g',
        "ValueError: no shard",
    ]
    lines = _lines(*rows)
    found = [
        fact.text
        for place, line in enumerate(lines)
        for fact in tracebacks.recognise(
            line, lambda count, at=place: lines[at + 1 : at + 1 + count]
        )
        if isinstance(fact, LogSign)
    ]
    assert ["KeyError: 0", "ValueError: no shard"] == found


def test_srun_speaks_of_tasks_not_of_ranks() -> None:
    """The number after `task` is a task of a host; only the map of tasks tells the rank."""
    facts = read(slurm_lines.recognise, "srun: error: gpu-c07: tasks 8-9,12: Killed")
    signs = [fact for fact in facts if isinstance(fact, LogSign)]
    assert [8, 9, 12] == [sign.speaker.task for sign in signs]
    assert {("gpu-c07", (), -9)} == {(s.speaker.host, s.named_ranks, s.exit_code) for s in signs}


def test_mpirun_speaks_of_tasks_not_of_ranks() -> None:
    """As srun's, mpirun's "process rank" is the number of a task."""
    text = (
        "mpirun noticed that process rank 3 with PID 0 on node gpu-1 exited on signal 9 (Killed)."
    )
    (sign,) = read(launchers.recognise, text)
    assert isinstance(sign, LogSign)
    assert (sign.speaker.task, sign.named_ranks, sign.peer) == (3, (), "gpu-1")


def test_nvrx_exceptions_are_spoken_by_the_rank_they_state() -> None:
    """`rank=N` of the message is the current rank, whatever the logger's bracket says."""
    (sign,) = read(
        nvrx.recognise,
        "rank=5 fn_ex: ValueError('x')",
        speaker=Speaker(stream="s", rank=2, cycle=1),
    )
    assert isinstance(sign, LogSign)
    assert (sign.speaker.rank, sign.speaker.cycle) == (5, 1)


def test_a_start_up_line_without_a_rank_takes_the_speakers() -> None:
    """A proven rank of the prefix is added, an unproven one is not."""
    text = "init: world_size=16 pid=16700 host=gpu-node-1621"
    (proven,) = read(identity.recognise, text, speaker=Speaker(stream="s", rank=0))
    (unproven,) = read(identity.recognise, text, speaker=Speaker(stream="s", prefix_rank=3))
    assert isinstance(proven, IdentityLink)
    assert isinstance(unproven, IdentityLink)
    assert (proven.rank, proven.rank_in, unproven.rank) == (0, 16, None)


def test_a_loaded_checkpoint_has_a_step_and_no_time() -> None:
    """It was durable before this line was written; when, the line does not know."""
    (sign,) = read(
        checkpoints.recognise, "Loading the checkpoint from out/step-4000.", at_ns=5 * NS
    )
    assert isinstance(sign, LogSign)
    assert (sign.sign, sign.step, sign.at_ns) == (Sign.SAVE_DURABLE, 4000, None)


def test_one_ranks_part_of_a_checkpoint_does_not_close_the_save() -> None:
    """A part that is written has no step, so the save of step 600 stays open until it is ready."""
    (part,) = read(
        checkpoints.recognise, "[Torch] Saved /c/global_step600/zero_pp_rank_0_mp_rank_00.pt."
    )
    assert isinstance(part, LogSign)
    assert (part.sign, part.step) == (Sign.SAVE_STAGED, None)


def test_a_ray_actor_that_died_is_named_by_the_rows_under_it() -> None:
    """The rows end where the next actor's error begins."""
    text = "The actor died because its node has died. Node Id: 9f3e\nThe actor died unexpectedly\npid: 7"
    (sign,) = read(ray_lines.recognise, text)
    assert isinstance(sign, LogSign)
    assert (sign.sign, sign.pid) == (Sign.NODE_FAILED, None)


def test_only_step_lines_are_sampled() -> None:
    """What is sampled may be skipped: nothing that explains a failure may be."""
    assert [steps, torchft_steps] == [m for m in RECOGNISERS if getattr(m, "SAMPLED", False)]


def test_bars_that_count_something_else_are_other_series() -> None:
    """A validation bar is never progress; two totals are told apart by `total_steps`."""
    bars = (
        "100%|##| 600/600 [10:00<00:00,  1.00s/it]",
        "Validation: 3%| | 1/32 [00:02<00:31,  2.81s/it]",
        " 12%|# | 4/33 [00:02<00:31,  2.81s/it]",
    )
    facts = [fact for bar in bars for fact in read(steps.recognise, bar)]
    assert [("train", 600), ("validation", 32), ("train", 33)] == [
        (fact.series, fact.total_steps) for fact in facts if isinstance(fact, Progress)
    ]


def test_step_zero_is_a_step() -> None:
    """0 is a value."""
    (fact,) = read(steps.recognise, "step=0 loss=4.0 step_time=0.5s", at_ns=3)
    assert isinstance(fact, Progress)
    assert (fact.points[0].step, fact.points[0].at_ns, fact.points[0].line) == (0, 3, 1)


def test_a_message_of_several_lines_reads_alike_in_one_record_and_in_many() -> None:
    """A JSON log holds the whole message in one line; a text log has one line each."""
    one = _lines("a\nb\nc", "d")
    many = _lines("a", "b", "c", "d")
    assert ["b", "c", "d"] == [
        row.text for row in continuation(one[0], lambda n: one[1 : 1 + n], 9)
    ]
    assert ["b", "c", "d"] == [
        row.text for row in continuation(many[0], lambda n: many[1 : 1 + n], 9)
    ]


def test_lists_of_ranks() -> None:
    """Ranges, gaps, repeats and nonsense."""
    assert (1, 3) == parse_ranks("[1, 3]")
    assert (4, 5, 6, 7) == parse_ranks("4-7")
    assert (2,) == parse_ranks("2, 2")
    assert () == parse_ranks("none")
    assert () == parse_ranks("7-4")


def test_a_stream_that_ends_after_a_traceback_header_says_nothing() -> None:
    """`following` may be empty: a header alone names no exception."""
    line = _lines("Traceback (most recent call last):")[0]
    for module in RECOGNISERS:
        assert [] == list(module.recognise(line, lambda count: ()))


def test_a_ray_worker_speaks_where_the_driver_raises_its_exception_again() -> None:
    """The driver's copy of a traceback belongs to the worker that its text names, not to the driver."""
    driver = Speaker(stream="driver.log", pid=91)
    lines = _lines(
        "Traceback (most recent call last):",
        '  File "/app/driver.py", line 9, in <module>',
        "ray.exceptions.RayTaskError(KeyError): ray::_Worker__execute.get_next() (pid=31, ip=10.0.0.2, actor_id=5b)",
        '  File "/app/loop.py", line 61, in train_loop',
        "KeyError: 'label'",
        speaker=driver,
    )
    (fact,) = tracebacks.recognise(lines[0], lambda count: lines[1 : 1 + count])
    assert isinstance(fact, LogSign)
    assert (fact.speaker.host, fact.speaker.pid) == ("10.0.0.2", 31)
    assert fact.detail == "KeyError: 'label' (at loop.py:61 in train_loop)"


def test_a_ray_rank_is_known_by_the_host_that_its_own_lines_carry() -> None:
    """Worker lines say `ip=`, which is their host: the table of ranks has to call it the same."""
    (line,) = _lines(
        "- (node_id=ab12, ip=10.0.1.5, pid=900) world_rank=3, local_rank=1, node_rank=1"
    )
    (link,) = ray_lines.recognise(line, lambda _count: ())
    assert isinstance(link, IdentityLink)
    assert (link.rank, link.host, link.pid) == (3, "10.0.1.5", 900)


def test_an_init_line_tells_whether_the_communicator_is_ready() -> None:
    """START without COMPLETE is a rank stuck in set-up; only the same communicator can be compared."""
    text = "gpu-1:41:48 [2] NCCL INFO comm 0x55d4 rank 2 nranks 8 cudaDev 2 nvmlDev 6 busId b7000 commId 0x9ab0 - Init "
    links = [
        fact
        for line in _lines(text + "START", text + "COMPLETE")
        for fact in nccl_init.recognise(line, lambda _count: ())
        if isinstance(fact, IdentityLink)
    ]
    assert [("0x9ab0", False), ("0x9ab0", True)] == [(k.comm, k.comm_ready) for k in links]


def test_the_bootstrap_address_belongs_to_the_host_that_prints_it() -> None:
    """Completion errors name a peer by this address, also where no pod or node list is at hand."""
    lines = _lines(
        "gpu-1:41:48 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB bond0:10.51.0.8<0>",
        "gpu-1:41:48 [0] NCCL INFO NET/Socket : Using [0]eth0:fd00::8<0>",
        "gpu-1:41:48 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB ",
    )
    links = [
        fact
        for line in lines
        for fact in nccl_init.recognise(line, lambda _count: ())
        if isinstance(fact, IdentityLink)
    ]
    assert [("gpu-1", "10.51.0.8"), ("gpu-1", "fd00::8")] == [(k.host, k.pod_ip) for k in links]
