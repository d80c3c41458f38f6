"""Flight Recorder files of every version and shape become one RankDump, or one clear error."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import resource
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from gpufleet_cli.errors import ParseError
from gpufleet_cli.evidence import Evidence
from gpufleet_cli.facts import DumpGroup, Gap, RankDump
from gpufleet_cli.parsers import flight_recorder, recorder_reader, recorder_workers, worker_pool
from gpufleet_cli.parsers.recorder_program import unpack

SAMPLES = Path(__file__).parents[2] / "fixtures" / "samples" / "flight_recorder"
T0 = 1_795_963_169_000_000_000
SECOND = 1_000_000_000
Entry = dict[str, Any]


def entry(seq: int = 1, *, done: bool = True, at_s: float = 0.0, **over: Any) -> Entry:
    """One entry as torch 2.10 writes it."""
    created = T0 + int(at_s * SECOND)
    return {
        "frames": [{"name": "step", "filename": "/w/train.py", "line": 7}],
        "record_id": seq - 1,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "thread_name": "python3",
        "thread_id": "1",
        "collective_seq_id": seq,
        "p2p_seq_id": 0,
        "op_id": seq,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": created,
        "input_sizes": [[64, 64]],
        "input_dtypes": ["Float"],
        "output_sizes": [[64, 64]],
        "output_dtypes": ["Float"],
        "state": "completed" if done else "scheduled",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": created + 1000 if done else None,
        "retired": done,
        "timeout_ms": 600_000,
        "is_p2p": False,
        **over,
    }


def p2p(seq: int, name: str, *, done: bool = True, **over: Any) -> Entry:
    """A send or a receive of group 1, the pipeline."""
    over = {
        "pg_id": 1,
        "process_group": ("9", "mesh_pp"),
        "collective_seq_id": 0,
        "p2p_seq_id": seq,
        "profiling_name": f"nccl:{name}",
        "is_p2p": True,
        **over,
    }
    return entry(seq, done=done, **over)


def document(entries: Sequence[Entry], **over: Any) -> dict[str, Any]:
    return {
        "version": "2.10",
        "pg_config": {
            "0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"},
            "9": {"name": "9", "desc": "mesh_pp", "ranks": "[1, 3]"},
        },
        "pg_status": {},
        "comm_lib_version": "2.27.5",
        "entries": list(entries),
        **over,
    }


def evidence(content: bytes, path: str = "dumps/nccl_trace_rank_1") -> Evidence:
    return Evidence(path=path, size_bytes=len(content), content=content)


def facts(raw: object, path: str = "dumps/nccl_trace_rank_1") -> list[object]:
    return list(flight_recorder.parse(evidence(pickle.dumps(raw, protocol=2), path)))


def dump(raw: object, path: str = "dumps/nccl_trace_rank_1") -> RankDump:
    found = facts(raw, path)[0]
    assert isinstance(found, RankDump)
    return found


def group(found: RankDump, name: str) -> DumpGroup:
    return next(g for g in found.groups if g.name == name)


def error(content: bytes, path: str = "dumps/nccl_trace_rank_1") -> flight_recorder.UnreadableDump:
    with pytest.raises(flight_recorder.UnreadableDump) as caught:
        list(flight_recorder.parse(evidence(content, path)))
    return caught.value


def sample(name: str) -> RankDump:
    content = (SAMPLES / name).read_bytes()
    found = next(iter(flight_recorder.parse(evidence(content, name))))
    assert isinstance(found, RankDump)
    return found


# --- Which files are dumps, and whose -------------------------------------------------------------

PICKLE = pickle.dumps(document([entry()]), protocol=2)
HTML = b"<!DOCTYPE html><html><body><h1>404 Not Found</h1></body></html>"


@pytest.mark.parametrize(
    ("path", "rank"),
    [
        ("nccl_trace_rank_0", 0),
        ("dumps/comm_lib_trace_rank_1023", 1023),
        ("comm_traces/rank_9", 9),
        ("x/_dump_9", 9),
        ("nccl_trace_rank_3.json", 3),
        ("nccl_trace_rank_3.pkl", 3),
        ("nccl_trace_rank_3.json.gz", 3),
        ("gpu-node-0330_nccl_trace_rank_5", 5),
        ("nccl_trace_rank_5_gpu-node-0330", 5),
        ("a.example.com_fr_trace_7", 7),
        ("rank_12/flight_recorder", 12),
    ],
)
def test_the_rank_is_in_the_name(path: str, rank: int) -> None:
    """Prefix, host name, folder and suffix may be anything; the file is taken and the rank found."""
    raw = document([entry()], pg_config={})

    assert flight_recorder.matches(path, PICKLE[:65536])
    assert rank == dump(raw, path).rank


@pytest.mark.parametrize("head", [b"", HTML, b"\x80\x02}q\x00(X\x07", b"\x00\x01\x02" * 20])
@pytest.mark.parametrize("path", ["nccl_trace_rank_7", "dumps/rank_7", "_dump_7.json"])
def test_a_damaged_dump_is_still_a_dump(path: str, head: bytes) -> None:
    """Empty, a web page, cut or binary: under a dump's name it is a dump that cannot be read."""
    assert flight_recorder.matches(path, head)
    assert 7 == error(head, path).rank
    assert "rank 7" in error(head, path).message


@pytest.mark.parametrize(
    ("path", "head"),
    [
        ("dumps/README.txt", b"left here by another tool\n"),
        ("dumps/nccl_trace_rank_3.tmp", PICKLE),
        ("dumps/nccl_trace_rank_3.tmp", b"left here by another tool\n"),
        ("logs/rank_3", b"step 1\nstep 2\nstep 3\n"),
        ("logs/rank_3.log", b"step 1\n"),
        ("dumps/nccl_trace_rank_3.log", b"step 1\nstep 2\n"),
        ("pods/worker-3", b""),
        ("core_dump_17", b"\x7fELF"),
        ("metrics.json", b'{"status": "success", "data": {}}'),
        ("model_3.pkl", pickle.dumps({"weights": [1.0]})),
    ],
)
def test_what_is_no_dump_is_left_alone(path: str, head: bytes) -> None:
    """Leftovers, logs, other pickles and other JSON are somebody else's."""
    assert not flight_recorder.matches(path, head)


@pytest.mark.parametrize("name", ["whatever", "trace.old", "7f3a"])
def test_contents_alone_make_a_dump(name: str) -> None:
    """A pickle or JSON with the recorder's keys is taken under any name."""
    assert flight_recorder.matches(name, PICKLE[:65536])
    assert flight_recorder.matches(name, json.dumps(document([])).encode())


def test_without_a_number_the_groups_tell_the_rank() -> None:
    """The one rank that is in all groups is the file's, where there is only one."""
    raw = document(
        [entry()],
        pg_config={
            "0": {"name": "0", "desc": "", "ranks": "[0, 1, 2, 3]"},
            "1": {"name": "1", "desc": "", "ranks": "[2, 3]"},
            "2": {"name": "2", "desc": "", "ranks": "[0, 2]"},
        },
    )

    assert 2 == dump(raw, "fr_dump").rank


def test_groups_that_contradict_the_name_win_and_it_is_said() -> None:
    """Rank 3's file that was renamed to rank 0 is rank 3's, and a gap tells so."""
    raw = document([entry()], pg_config={"9": {"name": "9", "desc": "", "ranks": "[3]"}})
    found, gap = facts(raw, "nccl_trace_rank_0")

    assert isinstance(found, RankDump)
    assert isinstance(gap, Gap)
    assert (3, 0) == (found.rank, gap.rank)


def test_a_dump_of_another_job_is_an_error() -> None:
    """A rank that is in none of the groups: the file is foreign."""
    content = pickle.dumps(document([entry()]), protocol=2)

    assert "foreign" in error(content, "nccl_trace_rank_17").message


# --- Versions -------------------------------------------------------------------------------------


def old(number: int, name: str = "nccl:all_reduce", **over: Any) -> Entry:
    """An entry of torch 2.2."""
    return {
        "pg_id": 0,
        "seq_id": number,
        "profiling_name": name,
        "time_created_us": T0 // 1000 + number,
        "input_sizes": [[8]],
        "output_sizes": [[8]],
        "frames": [],
        "state": "completed",
        "retired": True,
        **over,
    }


def test_torch_2_2_is_a_bare_list() -> None:
    """No version, no groups, microseconds, one sequence number."""
    found = dump([old(4), old(5, state="scheduled", retired=False)])

    assert "none (torch 2.2)" == found.version
    assert T0 + 5000 == found.newest_ns
    assert (5, 4) == (found.groups[0].last_enqueued, found.groups[0].last_completed)
    assert (None, "0") == (found.groups[0].members, found.groups[0].name)


def test_torch_2_3_names_groups_by_local_number() -> None:
    """`pg_config` is {int: ranks}; the numbers are the process's own, so the ranks identify."""
    raw = {
        "version": "1.4",
        "entries": [old(7, record_id=7, time_created_ns=T0), old(8, "nccl:send 0->1", pg_id=5)],
        "nccl_comm_state": {},
        "pg_config": {0: [0, 1], 5: [0, 1]},
    }
    found = dump(raw)

    assert [("#0", (0, 1)), ("#1", (0, 1))] == [(g.name, g.members) for g in found.groups]
    assert [7, 8] == [g.last_enqueued for g in found.groups]
    assert 8 == group(found, "#1").last_p2p


@pytest.mark.parametrize("version", ["2.1", "2.4", "2.5", "2.9", "2.10", "2.77", "3.0"])
def test_later_minors_are_read_by_their_keys(version: str) -> None:
    """Unknown minors and missing keys of younger versions are no obstacle."""
    lean = {k: v for k, v in entry(2, done=False).items() if k not in LATER}
    found = dump(
        document([{k: v for k, v in entry(1).items() if k not in LATER}, lean], version=version)
    )

    assert version == found.version
    assert (2, 1) == (group(found, "0").last_enqueued, group(found, "0").last_completed)


LATER = {"timeout_ms", "thread_id", "thread_name", "frames"}


@pytest.mark.parametrize("fork", ["hccl", "mccl", "bccl", "rcclx", "xccl", "nccl2"])
def test_forks_are_read(fork: str) -> None:
    """Other vendors' prefixes and state keys."""
    raw = document([entry(1, profiling_name=f"{fork}:all_reduce")], version="2.4")
    raw[f"{fork}_comm_state"] = {}

    assert fork == dump(raw).backend


def test_json_has_zeros_strings_and_lists() -> None:
    """0 is no time, counters are strings, `entries` may be missing."""
    raw = document([entry(1), entry(2, done=False)])
    for each in raw["entries"]:
        each["time_discovered_completed_ns"] = each["time_discovered_completed_ns"] or 0
        each["time_discovered_started_ns"] = 0
    from_json = evidence(json.dumps(raw).encode(), "nccl_trace_rank_1.json")
    found = next(iter(flight_recorder.parse(from_json)))

    assert isinstance(found, RankDump)
    assert dump(raw).groups == found.groups
    assert found.has_start_stamps is False


def test_the_json_sample_is_read() -> None:
    """A real JSON dump: timed, one operation open, started."""
    found = sample("nccl-2.10-rank_1.json")
    op = group(found, "6").open_ops[0]

    assert (1, "2.10", 6, True) == (found.rank, found.version, found.entries, found.wrapped)
    assert (31, "all_reduce", True) == (op.seq, op.op, op.started)
    assert not found.has_frames


@pytest.mark.parametrize("marker", [b"", b"\xef\xbb\xbf", b"\n \n"])
def test_json_may_begin_with_blanks(marker: bytes) -> None:
    """A byte order mark or blank lines before the brace."""
    content = marker + json.dumps(document([entry()])).encode()

    assert flight_recorder.matches("nccl_trace_rank_1.json", content)
    assert next(iter(flight_recorder.parse(evidence(content))))


# --- What is done ---------------------------------------------------------------------------------


def test_gloo_says_done_by_retired_alone() -> None:
    """The real Gloo sample: `scheduled` for ever, `pg_config` empty, one operation open."""
    found = sample("gloo-2.10-rank_3")
    waiting = group(found, "6")

    assert (found.retired_only, found.backend, waiting.members) == (True, "gloo", None)
    assert (30, 29, "all_gather") == (
        waiting.last_enqueued,
        waiting.last_completed,
        waiting.open_ops[0].op,
    )
    assert all(not g.open_ops for g in found.groups if g is not waiting)


def test_a_completion_time_is_done_whatever_the_state() -> None:
    """The second way to say done."""
    found = dump(document([entry(1, state="scheduled"), entry(2, done=False)]))

    assert 1 == group(found, "0").last_completed


def test_retired_and_not_completed_is_a_timeout() -> None:
    """NCCL takes an operation that timed out off its list."""
    found = dump(document([entry(1), entry(2, done=False, retired=True)]))

    assert (1, True) == (found.timed_out, group(found, "0").open_ops[0].gave_up)


def test_a_completion_later_than_the_timeout_is_an_abort() -> None:
    """ncclCommAbort completes a hung kernel minutes later; that is no success."""
    late = entry(2, at_s=1)
    late["time_discovered_completed_ns"] = late["time_created_ns"] + 601 * SECOND
    found = dump(document([entry(1), late]))

    assert (2, 1) == (group(found, "0").last_enqueued, group(found, "0").last_completed)
    assert group(found, "0").open_ops[0].gave_up


def test_an_abort_by_another_groups_shorter_timeout_is_seen() -> None:
    """A burst of completions at the end, after nothing happened for the shortest timeout."""
    short = entry(1, pg_id=1, process_group=("9", "mesh_pp"), timeout_ms=10_000)
    long = entry(2, at_s=1)
    long["time_discovered_completed_ns"] = long["time_created_ns"] + 15 * SECOND
    found = dump(document([short, long]))

    assert 1 == group(found, "0").last_completed


def test_a_long_wait_that_ended_and_went_on_is_done() -> None:
    """Fifteen seconds in a barrier are no abort when the rank enqueues afterwards."""
    short = entry(1, pg_id=1, process_group=("9", "mesh_pp"), timeout_ms=10_000)
    long = entry(2, at_s=1)
    long["time_discovered_completed_ns"] = long["time_created_ns"] + 15 * SECOND
    found = dump(document([short, long, entry(3, at_s=17, done=False)]))

    assert 2 == group(found, "0").last_completed


def test_an_entry_older_than_its_timeout_is_late() -> None:
    """The newest time of the file shows that an open operation has outlived its timeout."""
    found = dump(document([entry(1, done=False), entry(2, at_s=700, done=False)]))

    assert 0 == found.timed_out


def test_completed_and_not_retired_dates_the_dump() -> None:
    """The dump itself stamps what the watchdog had not seen yet."""
    fresh = entry(2, at_s=1, retired=False)

    assert fresh["time_discovered_completed_ns"] == dump(document([entry(1), fresh])).dumped_ns
    assert dump(document([entry(1), entry(2)])).dumped_ns is None


def test_a_finished_batch_has_no_open_parts() -> None:
    """Sends inside a batch stay `scheduled` for ever in healthy jobs."""
    batch = [
        p2p(5, "send 0->1", done=False),
        p2p(5, "recv 0<-1", done=False),
        p2p(5, "coalesced"),
    ]
    found = group(dump(document([*batch, entry(9)])), "9")

    assert (0, ()) == (found.open_count, found.open_ops)


def test_the_last_part_of_a_batch_that_the_ring_evicted_is_done() -> None:
    """Only open entries are kept, so batches have lost their ends; of the oldest one part is left."""
    status = {
        "9": {
            "last_enqueued_collective": 7,
            "last_started_collective": 7,
            "last_completed_collective": 7,
        }
    }

    def part(seq: int, name: str) -> Entry:
        return p2p(seq, name, done=False, pg_id=9, collective_seq_id=seq)

    kept = [part(5, "recv 0<-1"), part(6, "send 0->1"), part(6, "recv 0<-1")]
    found = group(dump(document(kept, pg_status=status)), "9")
    assert 0 == found.open_count
    after = [part(8, "recv 0<-1"), *kept[1:]]
    assert 1 == group(dump(document(after, pg_status=status)), "9").open_count


def test_an_open_batch_is_one_operation_with_all_its_peers() -> None:
    """A batch waits for every other side in it."""
    config = {"9": {"name": "9", "desc": "mesh_pp", "ranks": "[0, 1, 2]"}}
    batch = [
        p2p(5, "send 1->2", done=False),
        p2p(5, "recv 1<-0", done=False),
        p2p(5, "coalesced", done=False),
    ]
    found = group(dump(document(batch, pg_config=config)), "9")

    assert 1 == found.open_count
    assert ((2, True), (0, False)) == found.open_ops[0].peers
    assert "coalesced" == found.open_ops[0].op


def test_plain_sends_are_numbered_by_themselves() -> None:
    """A p2p entry carries the group's current collective number; it is not one."""
    found = group(dump(document([p2p(3, "send 0->1"), p2p(4, "recv 0<-1", done=False)])), "9")

    assert (0, 4) == (found.last_enqueued, found.last_p2p)
    assert (4, ((1, False),)) == (found.open_ops[0].seq, found.open_ops[0].peers)


# --- Dumps that hold little -----------------------------------------------------------------------


def test_a_dump_without_entries_has_its_counters() -> None:
    """The real sample of rank 9: names and local ids pair up in order."""
    found = sample("nvrx-2.9-only-active-rank_9")

    assert (9, 0) == (found.rank, found.entries)
    assert (88683, 88683) == (
        group(found, "37").last_enqueued,
        group(found, "37").last_completed,
    )
    assert 45264 == group(found, "72").last_enqueued


def test_a_dump_without_entries_is_named_among_the_gaps() -> None:
    """What is missing is said, with the rank."""
    found, gap = facts(document([]))

    assert isinstance(found, RankDump)
    assert isinstance(gap, Gap)
    assert 1 == gap.rank


def test_only_active_entries_are_known_as_such() -> None:
    """The real sample of rank 8 holds open operations only; counters tell what came before."""
    found = sample("nvrx-2.9-only-active-rank_8")
    tensor = group(found, "37")

    assert found.only_active
    assert (88688, 88683, 88684) == (
        tensor.last_enqueued,
        tensor.last_completed,
        tensor.open_ops[0].seq,
    )


def test_counters_without_a_clear_owner_are_left_out() -> None:
    """Hashed group names cannot be paired with local numbers."""
    config = {name: {"name": name, "desc": "", "ranks": "[0, 1]"} for name in ("c0ffee", "deadbe")}
    status = {
        str(i): {"last_enqueued_collective": i, "last_completed_collective": i} for i in (3, 4)
    }
    found = dump(document([], pg_config=config, pg_status=status))

    assert [None, None] == [g.last_enqueued for g in found.groups]


def test_the_ring_keeps_its_end_as_a_program() -> None:
    """Kinds once, then order and numbers; a wrapped ring says so."""
    entries = [entry(n, record_id=n + 500) for n in range(1, 301)]
    found = dump(document([*entries, p2p(1, "send 0->1", done=False)]))
    program = unpack(found.program)

    assert found.wrapped
    assert 2 == len(program.kinds)
    assert [299, 300, 1] == list(program.seqs)[-3:]
    assert "64x64" == program.kinds[0].sizes


def test_frames_are_text_and_few() -> None:
    """Eight frames at most, function and place."""
    frames = [{"name": f"f{i}", "filename": "/w/t.py", "line": i} for i in range(20)]
    op = group(dump(document([entry(1, done=False, frames=frames)])), "0").open_ops[0]

    assert ("f0 (/w/t.py:0)", 8) == (op.frames[0], len(op.frames))


# --- Hostile and broken ---------------------------------------------------------------------------


def nested(depth: int) -> list[Any]:
    """A list that holds itself twice, so many times over."""
    found: list[Any] = [1]
    for _ in range(depth):
        found = [found, found]
    return found


@pytest.mark.parametrize(
    "over",
    [
        {"input_sizes": nested(40)},
        {"input_sizes": "many"},
        {"input_sizes": [[2**5000]]},
        {"collective_seq_id": 2**80},
        {"collective_seq_id": "7x"},
        {"time_created_ns": None},
        {"time_created_ns": 2**90},
        {"time_discovered_completed_ns": "late"},
        {"pg_id": []},
        {"process_group": {}},
        {"record_id": {}},
    ],
)
def test_bent_values_cost_their_own_file(over: Mapping[str, Any]) -> None:
    """Values of the wrong kind or size end in the dump's own error, or in data; never in another
    exception, and never in all of the memory."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    content = pickle.dumps(document([entry(1, **over), entry(2, done=False)]), protocol=2)
    try:
        list(flight_recorder.parse(evidence(content)))
    except flight_recorder.UnreadableDump as exc:
        assert 1 == exc.rank

    assert before == resource.getrlimit(resource.RLIMIT_AS)


@pytest.mark.parametrize(
    "raw",
    [
        3,
        "text",
        {},
        {"a": 1},
        [1, 2],
        {"entries": 3},
        {"entries": [1]},
        {"version": "2.10", "entries": [{}], "pg_config": {"0": {"ranks": "[0, x]"}}},
        {"version": "2.10", "pg_config": {"0": {"ranks": "[-1]"}}},
        {"version": "2.10", "pg_config": {"0": {"ranks": [2**70]}}},
    ],
)
def test_other_shapes_are_errors_with_the_rank(raw: object) -> None:
    """What is no dump inside says so, and whose it should have been."""
    assert "rank 1" in error(pickle.dumps(raw, protocol=2)).message


def test_a_hostile_pickle_is_refused() -> None:
    """Nothing is run, and the error names what was wanted."""
    assert "os.system" in error(b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R.").message


def test_every_cut_is_an_error_or_a_dump() -> None:
    """A dump cut at any byte ends in its own error."""
    for end in range(0, len(PICKLE), 7):
        error(PICKLE[:end])


def test_text_of_the_file_is_short() -> None:
    """Names and frames from a file are cut."""
    raw = document([entry(1, profiling_name="nccl:" + "x" * 5000, done=False)])

    assert len(group(dump(raw), "0").open_ops[0].op) <= 60


# --- Many -----------------------------------------------------------------------------------------


def many(tmp_path: Path, content: Callable[[int], bytes], count: int) -> list[Evidence]:
    found = []
    for rank in range(count):
        path = tmp_path / f"nccl_trace_rank_{rank}"
        path.write_bytes(content(rank))
        size = path.stat().st_size
        found.append(Evidence(path=path.name, size_bytes=size, file=path))
    return found


def wide(rank: int) -> dict[str, Any]:
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(200)))}}
    return document([entry(1), entry(2, done=False, at_s=rank)], pg_config=config)


def test_workers_give_what_one_process_gives(tmp_path: Path) -> None:
    """Order, facts and errors are the same above and below the number that starts processes."""
    files = many(tmp_path, lambda rank: pickle.dumps(wide(rank)) if rank % 9 else b"", 70)

    together = [found for _, found in flight_recorder.parse_many(files)]
    alone = [found for one in files for _, found in flight_recorder.parse_many([one])]

    assert [str(found) for found in alone] == [str(found) for found in together]
    assert 8 == sum(isinstance(found, ParseError) for found in together)


def test_members_are_one_object_for_all_ranks(tmp_path: Path) -> None:
    """Ten thousand ranks must not carry ten thousand lists of ten thousand ranks."""
    files = many(tmp_path, lambda rank: pickle.dumps(wide(rank)), 80)
    results = [found for _, found in flight_recorder.parse_many(files)]
    dumps = [fact for found in results if isinstance(found, list) for fact in found]

    members = {id(d.groups[0].members) for d in dumps if isinstance(d, RankDump)}

    assert len(members) <= worker_pool.MAX_WORKERS


def endless() -> bytes:
    """A dict key of tuples that hold themselves twice, forty times over: to hash it takes for ever."""
    return b"\x80\x02}K\x01" + b"2\x86" * 40 + b"Ns."


@pytest.mark.parametrize("is_many", [True, False])
@pytest.mark.parametrize("on_disk", [True, False])
def test_a_file_that_never_ends_costs_itself(tmp_path: Path, on_disk: bool, is_many: bool) -> None:
    """Few files or many, packed or on disk: the one that hangs its reader is named, the rest read."""
    files = many(tmp_path, lambda rank: endless() if rank == 2 else pickle.dumps(wide(rank)), 5)

    def job(turn: int) -> recorder_reader.Job:
        one = files[turn]
        return one.path, one.size_bytes, *((one.file, None) if on_disk else (None, one.read()))

    found = list(recorder_workers.read_all(5, job, is_many=is_many, patience_s=1.5))

    assert [2] == [i for i, result in enumerate(found) if isinstance(result, ParseError)]
    assert "rank 2 cannot be read: it never ends" in str(found[2])


def test_a_worker_that_dies_costs_its_file(tmp_path: Path) -> None:
    """The files at which readers ended are named, and all others are read."""
    files = many(tmp_path, lambda rank: pickle.dumps(wide(rank)), 70)
    killed: list[int] = []

    def job(turn: int) -> recorder_reader.Job:
        if turn == 33 and not killed:
            killed.append(turn)
            for worker in multiprocessing.active_children():
                worker.kill()
                worker.join()
        return files[turn].path, files[turn].size_bytes, files[turn].file, None

    found = list(recorder_workers.read_all(70, job, is_many=True))
    lost = [str(result) for result in found if isinstance(result, ParseError)]

    assert all("ended the reader" in why for why in lost)
    assert len(lost) <= (os.cpu_count() or 1)
    assert 70 - len(lost) == sum(isinstance(result, list) for result in found)


def test_bytes_larger_than_a_pipe_go_through(tmp_path: Path) -> None:
    """Members of a packed archive travel to the worker whole."""
    entries = [entry(n, done=n < 3000) for n in range(1, 3001)]
    content = pickle.dumps(document(entries, pg_config={}), protocol=2)
    files = [evidence(content, f"nccl_trace_rank_{rank % 4}") for rank in range(12)]

    found = [result for _, result in flight_recorder.parse_many(files)]

    assert len(content) > 200_000
    assert all(isinstance(result, list) for result in found)


def test_no_files_no_processes() -> None:
    """Nothing to read starts nothing."""
    assert [] == list(flight_recorder.parse_many([]))
