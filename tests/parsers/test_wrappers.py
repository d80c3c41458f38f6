"""Every wrapper around a line: what it held, when, and who."""

from __future__ import annotations

import pytest
from parsers.log_reading import Line, lines, log_lines

from gpufleet_cli.parsers import wrappers


def one(content: str, **options: str) -> Line:
    found = lines(content, **options)  # type: ignore[arg-type]
    assert len(found) == 1
    return found[0]


# --- Kubernetes -------------------------------------------------------------------------------


def test_kubectl_timestamps_have_their_zeros_trimmed() -> None:
    """String order is no time order: every length of fraction is read exactly."""
    text = (
        "2025-05-12T09:57:45.9Z a\n"
        "2025-05-12T09:57:45.90000001Z b\n"
        "2025-05-12T09:57:45Z c\n"
        "2025-05-12T16:57:45.014+07:00 d\n"
        "2025-05-12T09:57:46.123456789Z\n"
    )
    assert [(line.text, line.at) for line in lines(text)] == [
        ("a", "2025-05-12T09:57:45.9Z"),
        ("b", "2025-05-12T09:57:45.90000001Z"),
        ("c", "2025-05-12T09:57:45Z"),
        ("d", "2025-05-12T09:57:45.014Z"),
        ("", "2025-05-12T09:57:46.123456789Z"),
    ]


def test_kubectl_prefix_names_pod_and_container() -> None:
    """`--prefix` stands before the stamp, and makes a stream of its own per container."""
    text = "[pod/sft-0/trainer] 2025-05-12T09:57:45.014Z [rank3]: x\n[pod/sft-1/trainer] y\n"
    found = log_lines(text)
    assert [(line.text, line.speaker.pod, line.speaker.container) for line in found] == [
        ("x", "sft-0", "trainer"),
        ("y", "sft-1", "trainer"),
    ]
    assert found[0].speaker.prefix_rank == 3
    assert [line.speaker.stream for line in found] == ["a.log#sft-0/trainer", "a.log#sft-1/trainer"]


CRI = "/var/log/pods/train_sft-0_8c1f77d0-5b10-4d2e-9f60-1a2b3c4d5e60/pytorch/2.log"


def test_cri_parts_are_joined_per_byte_stream() -> None:
    """P goes on until F of the same stream; the other stream's line between is its own."""
    text = (
        "2025-03-03T21:41:00.000000691Z stderr P [rank0]: one \n"
        "2025-03-03T21:41:00.000000700Z stdout F other\n"
        "2025-03-03T21:41:00.000000800Z stderr P two \n"
        "2025-03-03T21:41:00.000000900Z stderr F three\n"
        "2025-03-03T21:41:01.000000000Z stderr F [rank1]: next\n"
    )
    found = lines(text, path=CRI)
    assert [(line.text, line.line) for line in found] == [
        ("one two three", 1),
        ("other", 2),
        ("next", 5),
    ]
    assert found[0].at == "2025-03-03T21:41:00.000000691Z"
    assert found[0].who == {
        "prefix_rank": 0,
        "namespace": "train",
        "pod": "sft-0",
        "pod_uid": "8c1f77d0-5b10-4d2e-9f60-1a2b3c4d5e60",
        "container": "pytorch",
        "attempt": 2,
    }


def test_cri_stamp_may_have_the_offset_of_the_node() -> None:
    """The zone of the node is kept."""
    line = one("2025-03-03T22:41:00.000000691+01:00 stdout F hello\n", path=CRI)
    assert (line.text, line.at) == ("hello", "2025-03-03T21:41:00.000000691Z")


def test_an_unfinished_part_at_the_end_is_still_a_line() -> None:
    """A file cut behind a P line loses nothing of it."""
    assert one("2025-03-03T21:41:00.000000691Z stderr P half a li", path=CRI).text == "half a li"


def test_docker_json_lines_and_their_split_at_16_kib() -> None:
    """`log` without a newline at its end goes on in the next object of the same stream."""
    long = "x" * 16_384
    text = (
        '{"log":"a \\"quoted\\" \\u001b[31mred\\u001b[0m\\n","stream":"stderr","time":"2023-06-20T18:00:09.000000242Z"}\n'
        f'{{"log":"{long}","stream":"stdout","time":"2023-06-20T18:00:10Z"}}\n'
        '{"log":"other\\n","stream":"stderr","time":"2023-06-20T18:00:10.5Z"}\n'
        '{"log":"end\\n","stream":"stdout","time":"2023-06-20T18:00:11Z"}\n'
    )
    found = lines(text)
    assert [line.text for line in found] == ['a "quoted" red', long + "end", "other"]
    assert [line.at for line in found][:2] == [
        "2023-06-20T18:00:09.000000242Z",
        "2023-06-20T18:00:10Z",
    ]


# --- Launchers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "rest", "who"),
    [
        ("[rank7]: x", "x", {"prefix_rank": 7}),
        ("[rank7]:[E321 02:07:08.414640780 P.cpp:1] x", "[E321 02:07:08.414640780 P.cpp:1] x", {"prefix_rank": 7}),
        ("[default0]:x", "x", {"local_rank": 0}),
        ("[default0]:[rank12]: x", "x", {"local_rank": 0, "rank": 12}),
        ("[rank0]:[rank8]: x", "x", {"local_rank": 0, "rank": 8}),
        ("[trainer3]: x", "x", {"local_rank": 3}),
        ("[trainer3]:[rank0]: x", "x", {"local_rank": 3, "rank": 0}),
        ("trainer/2 [default1]:[rank17]: x", "x", {"node_rank": 2, "local_rank": 1, "rank": 17}),
        ("[rank3[]:[E508 torn", "[E508 torn", {"prefix_rank": 3}),
        ("[default3]:2026-11-29 14:40:04.811 [rank11] INFO x", "2026-11-29 14:40:04.811 [rank11] INFO x", {"local_rank": 3, "rank": 11}),
        ("2026-11-29 14:40:04.811 [rank11] INFO x", "2026-11-29 14:40:04.811 [rank11] INFO x", {"prefix_rank": 11}),
        ("[Rank 3] step 4 done", "step 4 done", {"prefix_rank": 3}),
        ("[titan] 2025-05-12 09:14:02,000 - root - INFO - x", "[titan] 2025-05-12 09:14:02,000 - root - INFO - x", {}),
        ("[epoch3]: loss 2", "[epoch3]: loss 2", {}),
        ("[1]:", "[1]:", {}),
        ("[Rank 3] Watchdog caught collective operation timeout", "[Rank 3] Watchdog caught collective operation timeout", {}),
    ],
)  # fmt: skip
def test_rank_prefixes(text: str, rest: str, who: dict[str, object]) -> None:
    """Which number is local, which global, and which nobody can tell (log-formats 0.2)."""
    line = one(text + "\n")
    assert (line.text, line.who) == (rest, who)


def test_srun_label_counts_only_where_all_lines_have_it() -> None:
    """`3: text` is a task in a labelled file, and ordinary text elsewhere."""
    labelled = (
        "".join(f"{n:2}: step {n}\n" for n in (0, 3, 11)) + "srun: error: gpu-n01: task 3: Killed\n"
    )
    assert [(line.text, line.who) for line in lines(labelled)] == [
        ("step 0", {"task": 0}),
        ("step 3", {"task": 3}),
        ("step 11", {"task": 11}),
        ("srun: error: gpu-n01: task 3: Killed", {}),
    ]
    assert lines("hello\n3: three\nworld\nmore\n")[1] == Line("3: three", None, {}, 2)


def test_srun_label_inside_a_stamp_and_around_a_rank() -> None:
    """Wrappers nest in any order."""
    text = "".join(f"2025-05-12T09:57:4{n}Z {n}: [rank{n}]: hi\n" for n in range(5))
    assert lines(text)[4] == Line("hi", "2025-05-12T09:57:44Z", {"task": 4, "prefix_rank": 4}, 5)


@pytest.mark.parametrize(
    "text",
    ["[1,12]<stdout>:x", "[1,12]<stderr>: x", "[prterun-host-123@1,12]<stdout>:x"],
)
def test_mpirun_tag(text: str) -> None:
    """Job and rank of `mpirun --tag-output`."""
    line = one(text + "\n")
    assert (line.text, line.who) == ("x", {"task": 12})


def test_mpirun_timestamp_stands_before_the_tag() -> None:
    """`--timestamp-output` is a ctime without a zone."""
    line = one("Tue Feb 18 04:11:47 2025[1,2]<stdout>:x\n")
    assert (line.text, line.at, line.who) == ("x", "2025-02-18T04:11:47Z", {"task": 2})


def test_torchx_replica_alone_counts_only_where_all_lines_have_it() -> None:
    """`trainer/1 text` on every line, and the same words in an ordinary text."""
    text = "".join(f"trainer/{n % 2} step {n}\n" for n in range(6))
    assert [(line.text, line.who) for line in lines(text)][1] == ("step 1", {"node_rank": 1})
    assert lines("a b c\nfile/3 loaded\nc d e\nx y\n")[1].text == "file/3 loaded"


# --- stern, Ray, agents ---------------------------------------------------------------------------


def test_stern_with_and_without_times_and_colours() -> None:
    """Pod and container, with ANSI colours as on a terminal."""
    coloured = "".join(
        f"\x1b[96mddp-worker-{n % 2}\x1b[0m \x1b[32mpytorch\x1b[0m step {n}\n" for n in range(6)
    )
    assert lines(coloured)[3] == Line(
        "step 3", None, {"pod": "ddp-worker-1", "container": "pytorch"}, 4
    )
    timed = "".join(
        f"ddp-worker-{n % 2} pytorch 2024-03-20T10:00:2{n}.5+01:00 s {n}\n" for n in range(6)
    )
    assert lines(timed)[2].at == "2024-03-20T09:00:22.5Z"


def test_stern_of_all_namespaces_names_them() -> None:
    """Three words with `--all-namespaces`."""
    text = "".join(f"train ddp-worker-{n % 2} pytorch step {n}\n" for n in range(6))
    assert lines(text)[0].who == {
        "namespace": "train",
        "pod": "ddp-worker-0",
        "container": "pytorch",
    }


def test_stern_of_more_pods_than_a_sample_has_lines() -> None:
    """Each pair of names stands once in all that is looked at; the times of `-t` behind them tell."""
    text = "".join(
        f"ddp-worker-{n} pytorch 2024-03-20T10:00:20.{n:03}Z [rank{8 * n}]: s {n}\n"
        for n in range(96)
    )
    found = lines(text)[64]
    assert (found.at, found.who["pod"]) == ("2024-03-20T10:00:20.064Z", "ddp-worker-64")
    assert lines("".join(f"ddp-worker-{n} saw {n} batches\n" for n in range(96)))[5].who == {}


def test_cloudwatch_tail_of_more_streams_than_a_sample_has_lines() -> None:
    """Streams of one job under one prefix, each seen once; names without a prefix are words."""
    stamp = "2025-05-12T09:57:45.014000+00:00"
    text = "".join(f"{stamp} train/ddp-{n}/algo-1 step 3\n" for n in range(96))
    assert (lines(text)[9].text, lines(text)[9].who["pod"]) == ("step 3", "ddp-9")
    assert lines("".join(f"{stamp} pre-{n} loaded\n" for n in range(96)))[9].text == "pre-9 loaded"


def test_ordinary_words_are_no_pod() -> None:
    """A text whose lines begin with words that look alike but do not come back."""
    text = "".join(f"pre-train{n} model{n} loaded\n" for n in range(8))
    assert lines(text)[0].text == "pre-train0 model0 loaded"


@pytest.mark.parametrize(
    ("text", "rest", "who"),
    [
        ("(RayTrainWorker pid=4242, ip=10.0.0.7) hi", "hi", {"pid": 4242, "host": "10.0.0.7"}),
        ("(pid=4242) hi", "hi", {"pid": 4242}),
        ("(MegatronPolicyWorker[rank=3] pid=1, ip=10.0.0.7) hi", "hi", {"rank": 3, "pid": 1, "host": "10.0.0.7"}),
        ("(TorchTrainer pid=9) hi [repeated 7x across cluster]", "hi", {"pid": 9}),
        ("(train_fn pid=9) hi [repeated 2x across cluster] (Ray deduplicates logs by default.)", "hi", {"pid": 9}),
        ("(raylet, ip=10.0.0.7) hi", "hi", {"host": "10.0.0.7"}),
        ("(autoscaler +1m2s) hi", "hi", {}),
        ("(see pid=3 in the notes) hi", "(see pid=3 in the notes) hi", {}),
        ("\x1b[36m(RayTrainWorker pid=4242)\x1b[0m hi", "hi", {"pid": 4242}),
    ],
)  # fmt: skip
def test_ray_driver_lines(text: str, rest: str, who: dict[str, object]) -> None:
    """Process, address and rank of an actor; the note of repetition is no part of the text."""
    line = one(text + "\n")
    assert (line.text, line.who) == (rest, who)


def test_nvrx_logger_line_and_the_rank_of_its_message() -> None:
    """The bracket holds the rank at set-up; `rank=N` in the message is the current one."""
    text = (
        "2025-08-14 10:00:01,123 [INFO] [gpu-n01] [workload:5(5) infra:0(0)] wrap.py:512 hello\n"
        "2025-08-14 10:00:02,123 [INFO] [gpu-n01] [workload:?(?) infra:0(0)] wrap.py:512 rank=4 fn_ex: E\n"
    )
    first, second = lines(text, path="nvrx_log_gpu-n01.log")
    assert (first.text, first.at) == ("hello", "2025-08-14T10:00:01.123Z")
    assert first.who == {"host": "gpu-n01", "rank": 5, "local_rank": 5, "task": 0}
    assert second.who == {"host": "gpu-n01", "rank": 4, "task": 0}


def test_hyperpod_agent_line() -> None:
    """Rank and restart are the agent's: a node and an attempt."""
    line = one(
        "[HyperPodElasticAgent] 2025-06-18 10:00:01,123 [INFO] [rank2-restart1] /opt/a.py:12: Reaped\n"
    )
    assert (line.text, line.who) == ("Reaped", {"node_rank": 2, "attempt": 1})


# --- The program's own stamps -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "at", "who"),
    [
        ("2023-06-20 18:00:09,123 - name - INFO - x", "2023-06-20T18:00:09.123Z", {}),
        (" [2025-05-27 15:23:07] iteration 1/ 2", "2025-05-27T15:23:07Z", {}),
        ("06/20/2023 18:00:09 - INFO - x", "2023-06-20T18:00:09Z", {}),
        ("[2024-07-24 13:21:33,260] [INFO] [logging.py:96:log_dist] [Rank 0] step=10", "2024-07-24T13:21:33.26Z", {"rank": 0}),
        ("2024-05-12 10:00:00,123: rank7[4242][MainThread]: INFO: x", "2024-05-12T10:00:00.123Z", {"rank": 7, "pid": 4242}),
        ("[NeMo I 2025-04-21 20:55:48 nemo_logging:393] x", "2025-04-21T20:55:48Z", {}),
        ("[INFO|trainer.py:2134] 2024-05-12 10:00:00,5 >> x", "2024-05-12T10:00:00.5Z", {}),
        ("INFO 2024-05-12T10:00:00.5Z x", "2024-05-12T10:00:00.5Z", {}),
        ("2025-07-16T13:49:41.512 [INFO] [torchft::lighthouse] - x", "2025-07-16T13:49:41.512Z", {}),
        ("[2026-01-01 12:08:32] gpu-n01:4100:4800 [0] f.cc:46 NCCL WARN x", "2026-01-01T12:08:32Z", {"host": "gpu-n01", "pid": 4100}),
        ("gpu-n01:4100:4800 [0] NCCL INFO x", None, {"host": "gpu-n01", "pid": 4100}),
        ("Loading /ckpt/2024-05-12_10:00:00/model.pt", None, {}),
        ("loss 2.3 at 18:00:09", None, {}),
    ],
)  # fmt: skip
def test_own_times_and_ranks(text: str, at: str | None, who: dict[str, object]) -> None:
    """Times of logging stay in the text; a date inside a sentence is no stamp."""
    line = one(text + "\n")
    assert (line.text, line.at, line.who) == (text, at, who)


def test_a_stamp_without_year_takes_it_from_the_file() -> None:
    """c10 and vLLM stamps near New Year, beside one line with a year."""
    text = (
        "2024-12-31 23:59:50,000 - INFO - x\n"
        "[rank0]:[E101 00:00:01.000000005 ProcessGroupNCCL.cpp:1] y\n"
        "INFO 12-31 23:59:58 [core.py:58] z\n"
        "E1231 23:59:59.620000 2606 site-packages/torch/x.py:869] w\n"
    )
    assert [line.at for line in lines(text)] == [
        "2024-12-31T23:59:50Z",
        "2025-01-01T00:00:01.000000005Z",
        "2024-12-31T23:59:58Z",
        "2024-12-31T23:59:59.62Z",
    ]


def test_a_stamp_without_year_takes_it_from_the_caller() -> None:
    """`near_ns` is what other files of the target say."""
    text = "[rank0]:[E321 02:07:08.414640780 ProcessGroupNCCL.cpp:607] x\n"
    near = 1_740_000_000_000_000_000
    assert lines(text, near_ns=near)[0].at == "2025-03-21T02:07:08.41464078Z"


def test_without_any_year_times_are_relative_and_said_to_be() -> None:
    """Order and distance survive; the year does not, and a gap says so."""
    from parsers.log_reading import facts_of

    from gpufleet_cli.facts import Gap

    text = "[rank0]:[E321 02:07:08.5 P.cpp:607] x\n[rank1]:[E321 02:17:08.5 P.cpp:607] y\n"
    first, second = log_lines(text)
    assert first.at_ns is not None and second.at_ns is not None
    assert second.at_ns - first.at_ns == 600 * 10**9
    gaps = [fact for fact in facts_of(text) if isinstance(fact, Gap)]
    assert any("year" in gap.why for gap in gaps)


def test_a_line_between_two_stamps_of_one_moment_has_their_time() -> None:
    """Five seconds at most; a gap of a minute leaves it undated."""
    text = "2025-05-12 10:00:00,000 a\nterminate called\n2025-05-12 10:00:{n},000 b\n"
    assert lines(text.format(n="03"))[1].at == "2025-05-12T10:00:00Z"
    assert lines(text.format(n="59"))[1].at is None
    assert lines("2025-05-12 10:00:00,000 a\nlast words\n")[1].at is None


# --- Collectors' text -------------------------------------------------------------------------------


def test_collector_time_in_the_viewers_zone() -> None:
    """nccl issue 1905: outer +08:00, inner UTC; the outer one is exact and counts."""
    line = one("2025-11-09 15:39:31.043 +08:00 [2025-11-09 07:39:30] h100-28:1:2 [0] NCCL INFO x\n")
    assert line.at == "2025-11-09T07:39:31.043Z"
    assert line.text.startswith("[2025-11-09 07:39:30] h100-28")


def test_collector_time_of_minutes_gives_way_to_the_inner_one() -> None:
    """nccl issue 1610: 12:54 of the viewer is 04:54 of the process, in 2025."""
    text = (
        "2025-02-18 12:54 [rank14]:[E218 04:54:23.123456789 P.cpp:1] x\n"
        "2025-02-18 12:54 [rank14]: Traceback (most recent call last):\n"
        "2025-02-18 12:55 [rank15]:[E218 04:55:24.123456789 P.cpp:1] y\n"
    )
    found = lines(text)
    assert [line.at for line in found] == [
        "2025-02-18T04:54:23.123456789Z",
        "2025-02-18T04:54:00Z",
        "2025-02-18T04:55:24.123456789Z",
    ]
    assert found[1].who == {"prefix_rank": 14}


def test_journal_text_of_a_service() -> None:
    """Host and process of `journalctl -o short-iso` and of syslog, without its year."""
    iso = "".join(f"2025-02-18T04:11:4{n}+0100 gpu-n01 train[4242]: step {n}\n" for n in range(5))
    assert lines(iso)[1] == Line(
        "step 1", "2025-02-18T03:11:41Z", {"node": "gpu-n01", "pid": 4242}, 2
    )
    old = "".join(f"Feb 18 04:11:4{n} gpu-n01 train[4242]: step {n}\n" for n in range(5))
    found = lines(old, near_ns=1_739_900_000_000_000_000)[1]
    assert (found.at, found.who) == ("2025-02-18T04:11:41Z", {"node": "gpu-n01", "pid": 4242})
    assert found.text.endswith("step 1")


def test_aws_logs_tail() -> None:
    """Time with an offset and the stream's name, on every line."""
    text = "".join(
        f"2025-05-12T09:57:4{n}.014000+00:00 train/sft-{n % 2}/algo-1 step {n}\n" for n in range(6)
    )
    line = lines(text)[3]
    assert (line.text, line.at, line.who) == (
        "step 3",
        "2025-05-12T09:57:43.014Z",
        {"pod": "sft-1"},
    )


def test_a_node_offset_is_no_aws_stream() -> None:
    """`kubectl --timestamps` on a node in +07:00 with a first word that comes back."""
    text = "".join(f"2025-05-12T09:57:4{n}.014+07:00 INFO step {n}\n" for n in range(6))
    assert lines(text)[0].text == "INFO step 0"


def test_logcli_text_is_newest_first() -> None:
    """Labels give pod and node; lines come back in time order, an unstamped one behind its own."""
    text = (
        '2025-05-12T09:57:47Z {pod="sft-0", node_name="n1"} third\n'
        '2025-05-12T09:57:46Z {pod="sft-0", node_name="n1"} second\n'
        "  more of second\n"
        '2025-05-12T09:57:45Z {pod="sft-0", node_name="n1"} first\n'
    )
    found = lines(text)
    assert [line.text for line in found] == ["first", "second", "  more of second", "third"]
    assert found[0].who == {"pod": "sft-0", "node": "n1"}


# --- Application JSON -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "rest", "at", "who"),
    [
        ('{"time":"2025-05-12T09:57:45Z","level":"info","rank":3,"message":"hello"}', "hello", "2025-05-12T09:57:45Z", {"rank": 3}),
        ('{"ts":1747043865.5,"global_rank":0,"msg":"hello"}', "hello", "2025-05-12T09:57:45.5Z", {"rank": 0}),
        ('{"timestamp":1747043865500,"RANK":"7","event":"hello"}', "hello", "2025-05-12T09:57:45.5Z", {"rank": 7}),
        ('{"asctime":"2025-05-12 09:57:45,500","local_rank":1,"message":"hello"}', "hello", "2025-05-12T09:57:45.5Z", {"local_rank": 1}),
        ('{"event":"train","step":480,"step_time":2.1,"ts":1747043865}', "train step=480 step_time=2.1", "2025-05-12T09:57:45Z", {}),
        ('{"severity":"ERROR","message":"bad","hostname":"gpu-n01","time":"2025-05-12T09:57:45Z"}', "ERROR bad", "2025-05-12T09:57:45Z", {"host": "gpu-n01"}),
        ('{"event":"x","exception":"Traceback (most recent call last):\\n  boom"}', "x\nTraceback (most recent call last):\n  boom", None, {}),
        ("{'loss': 1.9, 'epoch': 0.1}", "{'loss': 1.9, 'epoch': 0.1}", None, {}),
        ('{"message":"torn', '{"message":"torn', None, {}),
    ],
)  # fmt: skip
def test_application_json(text: str, rest: str, at: str | None, who: dict[str, object]) -> None:
    """Every spelling of message, rank and time; what is no JSON object stays text."""
    line = one(text + "\n")
    assert (line.text, line.at, line.who) == (rest, at, who)


def test_application_json_inside_cri_inside_a_tee_prefix() -> None:
    """Wrappers nest: runtime stamp, role prefix, object, rank prefix in its message."""
    text = (
        '2025-05-12T09:57:45.5Z stderr F [default2]:{"message":"[rank10]: hello","level":"info"}\n'
    )
    line = one(text)
    assert (line.text, line.at) == ("hello", "2025-05-12T09:57:45.5Z")
    assert line.who == {"local_rank": 2, "rank": 10}


# --- Broken lines ------------------------------------------------------------------------------------


def test_carriage_returns_make_lines_of_one_number() -> None:
    """Updates of a bar are lines of their own; time and prefix are those of the physical line."""
    text = "2025-05-12T09:57:45Z [default0]:  1%|\r  2%|\r  3%|\x1b[A\x07\n2025-05-12T09:57:46Z [default1]:x\n"
    found = lines(text)
    assert [(line.text.strip(), line.line) for line in found] == [
        ("1%|", 1),
        ("2%|", 1),
        ("3%|", 1),
        ("x", 2),
    ]
    assert all(
        line.at == "2025-05-12T09:57:45Z" and line.who == {"local_rank": 0} for line in found[:3]
    )


def test_windows_line_ends_are_line_ends() -> None:
    """CRLF counts as one end of a line."""
    assert [(line.text, line.line) for line in lines("a\r\nb\r\n")] == [("a", 1), ("b", 2)]


def test_a_glued_line_is_split() -> None:
    """Two ranks wrote into one line: each gets its own, with the time of the line."""
    text = "2025-05-12T09:57:45Z [rank1]:[E512 09:57:45.000000001 P.cpp:1] one[rank5]:[E512 09:57:45.000000002 P.cpp:1] two\n"
    first, second = lines(text)
    assert (first.text, first.who) == ("[E512 09:57:45.000000001 P.cpp:1] one", {"prefix_rank": 1})
    assert (second.text, second.who) == (
        "[E512 09:57:45.000000002 P.cpp:1] two",
        {"prefix_rank": 5},
    )
    assert first.at == second.at == "2025-05-12T09:57:45Z"


def test_an_error_glued_to_a_progress_bar_keeps_its_rank() -> None:
    """` 7%|#| 44/600 [..s/it][rank1]: Traceback` is two lines."""
    text = " 7%|#         | 44/600 [02:12<28:48,  3.01s/it][rank1]: Traceback (most recent call last):\n"
    first, second = lines(text)
    assert first.text.endswith("3.01s/it]") and first.who == {}
    assert (second.text, second.who) == ("Traceback (most recent call last):", {"prefix_rank": 1})


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("\ufeff[rank0]: héllo\n".encode("utf-16-le"), "héllo"),
        ("\ufeff[rank0]: héllo\n".encode("utf-16-be"), "héllo"),
        ("[rank0]: hello this is windows\n".encode("utf-16-le"), "hello this is windows"),
        (b"\xef\xbb\xbf[rank0]: hello\n", "hello"),
        (b"[rank0]: h\xe9llo\n", "héllo"),
        (b"[rank0]: \x00he\x00llo\n", "hello"),
        (b"[rank0]: \x1b[1;31mhe\x1b[0mllo\x07\x08\n", "hello"),
        (b"\x1b[32m[rank0]:\x1b[0m hello\n", "hello"),
        ("[rank0]: hel\u202elo\u0085\n".encode(), "hello"),
        (b"\x1b]0;title\x07[rank0]: hello\n", "hello"),
    ],
)
def test_encodings_and_controls(data: bytes, text: str) -> None:
    """UTF-16, marks, Latin-1, NULs, ANSI, C0, C1 and direction marks leave plain text."""
    found = lines(data)
    assert [(line.text, line.who) for line in found] == [(text, {"prefix_rank": 0})]


def test_every_wrapper_module_is_registered() -> None:
    """A module with `peel` that the registry does not know would never be used."""
    import pkgutil

    known = {
        module.__name__.rsplit(".", 1)[1] for module in (*wrappers.WRAPPERS, *wrappers.AMBIGUOUS)
    }  # type: ignore[attr-defined]
    found = set()
    for info in pkgutil.iter_modules(wrappers.__path__):
        module = __import__(f"{wrappers.__name__}.{info.name}", fromlist=["peel"])
        if hasattr(module, "peel"):
            found.add(info.name)
    assert found == known
