"""The incidents with known answers, in process: every kind, every culprit, nobody innocent blamed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from case_tools import Answer, Truth, answer_of_triage, cases, copy_evidence, faults, load, store

from gpufleet_cli.bundle import read_target
from gpufleet_cli.facts import JobNumbers
from gpufleet_cli.triage import triage_target
from gpufleet_cli.verdict import Action, Kind, Triage

HERE = Path(__file__).resolve().parent
FIXTURES = HERE.parent / "fixtures"
CASES = cases(FIXTURES / "cases")
BUNDLED = FIXTURES / "train-run-7"
NOTHING_GIVEN = JobNumbers(source="flag")

every_case = pytest.mark.parametrize("truth", CASES, ids=[truth.name for truth in CASES])


def triaged(folder: Path, as_of_ns: int | None = None) -> Triage:
    return triage_target(read_target(folder), NOTHING_GIVEN, as_of_ns=as_of_ns, strict=True)


def named(name: str) -> Truth:
    return next(truth for truth in CASES if truth.name.endswith(name))


def test_every_handed_case_is_here() -> None:
    """16 of logs, 7 of fr, 2 of fr-gpu, 3 of xid: none can get lost without a failure."""
    groups = [truth.name.partition("/")[0] for truth in CASES]
    counts = {group: groups.count(group) for group in sorted(set(groups))}
    assert counts == {"fr": 7, "fr-gpu": 2, "logs": 16, "xid": 3}


@every_case
def test_case_is_answered(truth: Truth, tmp_path: Path) -> None:
    """Kind, culprits, action and what must be reported missing are those of case.json."""
    folder = copy_evidence(truth.folder, tmp_path / "incident")
    answer = answer_of_triage(triaged(folder, truth.captured_ns))
    assert faults(truth, answer) == []


@every_case
def test_case_without_topology_names_nobody_else(truth: Truth, tmp_path: Path) -> None:
    """Where the logs or dumps carry the ranks, topology.json is not needed to name the culprit."""
    folder = copy_evidence(truth.folder, tmp_path / "incident", topology=False)
    answer = answer_of_triage(triaged(folder, truth.captured_ns))
    assert faults(truth, answer, topology=False) == []


def test_case_json_is_never_read(tmp_path: Path) -> None:
    """An answer that lies beside the evidence changes nothing, and is not even listed."""
    truth = named("python-crash-docker-json-torch20")
    files = load(truth.folder)
    lie = b'{"expected": {"verdict": "healthy", "culprit_ranks": [0]}}'
    plain = triaged(store(files, tmp_path / "a" / "incident"), truth.captured_ns)
    lied_to = store(files | {"case.json": lie, "logs/case.json": lie}, tmp_path / "b" / "incident")
    assert plain == triaged(lied_to, truth.captured_ns)


# --- The bundled incident -------------------------------------------------------------------------


def test_bundled_incident_is_what_its_script_makes() -> None:
    """Nobody edited fixtures/train-run-7 by hand, and the script still makes it."""
    script = HERE.parent / "scripts" / "make_train_run_7.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.fixture(scope="module")
def bundled() -> Triage:
    return triaged(BUNDLED)


def test_bundled_incident_names_rank_800(bundled: Triage) -> None:
    """Its GPU fell off the bus; 1,023 loud ranks are witnesses."""
    (culprit,) = bundled.verdict.culprits
    assert (bundled.verdict.kind, culprit.rank) == (Kind.HARDWARE, 800)
    assert (
        culprit.pod,
        culprit.node,
        culprit.local_rank,
    ) == ("train-run-7-worker-100", "gpu-node-0417", 0)
    assert (culprit.gpu.index, culprit.gpu.pci_bus_id) == (0, "0000:4e:00.0")
    assert culprit.silent_since_ns == 1_773_200_467_118_000_000
    assert bundled.verdict.witness_count == 1023
    assert bundled.verdict.confidence >= 0.9


def test_bundled_incident_knows_what_all_waited_in(bundled: Triage) -> None:
    """All witnesses wait in one all-reduce of the default group."""
    collective = bundled.verdict.collective
    assert (collective.group, collective.desc, collective.seq) == ("0", "default_pg", 88214)
    assert collective.op == "ALLREDUCE"


def test_bundled_incident_is_priced(bundled: Triage) -> None:
    """1,024 GPUs for 10m12s are 174 GPU-h; 18m48s since the last checkpoint are 321."""
    recommendation = bundled.recommendation
    assert (recommendation.action, recommendation.nodes) == (Action.EVICT_NOW, ("gpu-node-0417",))
    assert recommendation.lost_waiting_gpu_hours == pytest.approx(174, abs=1)
    assert recommendation.lost_recompute_gpu_hours == pytest.approx(321, abs=2)


def test_bundled_incident_reads_the_job(bundled: Triage) -> None:
    """World size, steps, step time, interval and timeout stand in the evidence."""
    job = bundled.job
    assert (
        job.name,
        job.namespace,
        job.world_size,
        job.nodes,
    ) == ("train-run-7", "train", 1024, 128)
    assert job.last_step == 48211
    assert job.step_s == pytest.approx(0.418, abs=0.002)
    assert (job.checkpoint_interval_s, job.watchdog_timeout_s) == (1800, 600)
    assert job.last_checkpoint_ns is not None
    assert pytest.approx(job.last_checkpoint_ns / 1e9, abs=2) == 1_773_199_339


def test_bundled_incident_says_what_was_not_seen(bundled: Triage) -> None:
    """The silent rank left no dump, and that is said."""
    assert any(gap.rank == 800 and "dump" in gap.what for gap in bundled.missing)


def test_bundled_incident_has_its_hardware_roles(bundled: Triage) -> None:
    """79 is the cause; 43 and 45 after the abort are consequences, old and benign codes neither."""
    causes = {(event.node, event.xid) for event in bundled.hardware if event.role == "cause"}
    assert ("gpu-node-0417", 79) in causes
    assert {"gpu-node-0417"} == {node for node, _ in causes}


# --- The judge itself -----------------------------------------------------------------------------


def answer(kind: str, ranks: tuple[int | None, ...], action: str, node: str = "n") -> Answer:
    return Answer(kind=kind, named=tuple((r, node) for r in ranks), action=action, missing=())


def test_judge_accepts_a_right_answer() -> None:
    """The truth itself has no fault."""
    truth = named("xid79-busid-torchrun-logdir")
    assert faults(truth, answer("hardware", (11,), "evict-now")) == []


@pytest.mark.parametrize(
    ("case", "said", "fault"),
    [
        (
            "xid79-busid-torchrun-logdir",
            answer("hardware", (11, 3), "evict-now"),
            "blamed innocent",
        ),
        ("xid79-busid-torchrun-logdir", answer("hardware", (), "evict-now"), "named nobody"),
        ("xid79-busid-torchrun-logdir", answer("network", (11,), "evict-now"), "kind network"),
        ("xid79-busid-torchrun-logdir", answer("hardware", (11,), "restart-job"), "action"),
        ("xid79-busid-torchrun-logdir", answer("hardware", (None,), "evict-now"), "named"),
        ("host-oom-cri-pidns", answer("host-oom", (5,), "evict-now"), "action evict-now"),
        ("rank0-only-log-undecidable", answer("undecidable", (2,), "collect-more"), "nobody"),
        ("ib-port-error-srun-label", answer("network", (1, 5), "evict-now"), "blamed innocent"),
        ("fr-06-frozen-bad-dumps-8", answer("rank-missing", (2,), "evict-now"), "dump of rank 0"),
    ],
)
def test_judge_finds_what_is_wrong(case: str, said: Answer, fault: str) -> None:
    """A judge that lets a wrong answer pass would make every other test here worthless."""
    assert any(fault in text for text in faults(named(case), said))


def test_judge_accepts_the_node_where_the_node_is_the_answer() -> None:
    """One of the node's ranks, or the node without a rank, names it."""
    truth = named("ib-port-error-srun-label")
    assert faults(truth, answer("network", (1, 2), "cordon-at-checkpoint")) == []
    assert faults(truth, answer("network", (None,), "evict-now", node="gpu-d48")) == []
    assert faults(truth, answer("network", (None,), "evict-now", node="gpu-d51"))
