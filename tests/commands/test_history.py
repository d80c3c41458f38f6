"""`gpufleet history`, what is kept by a triage, and that no report depends on it."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from pathlib import Path

import pytest
from incident_makers import NOW_NS, changed, incident

from gpufleet_cli.cli import main
from gpufleet_cli.commands import past
from gpufleet_cli.history import folder
from gpufleet_cli.history.folder import keep
from gpufleet_cli.history.record import DAY_NS, HOUR_NS, Incident
from gpufleet_cli.settings import state_folder

ROOT = Path(__file__).parents[2]
CASE = ROOT / "fixtures" / "cases" / "logs" / "xid79-busid-torchrun-logdir"
LAST_NS = 1_739_848_310_000_000_000  # when the incident of the case was, about
NOW = "2026-02-16T00:00:00Z"


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """State is kept, in the test's own folder."""
    monkeypatch.delenv("GPUFLEET_NO_STATE")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "no-kubeconfig"))
    return state_folder() / "history"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A bundle as `collect` writes it, of a node whose GPU fell off the bus."""
    place = tmp_path / "bundle"
    shutil.copytree(CASE, place)
    truth = json.loads((place / "case.json").read_text())
    manifest = {
        "schema": "gpufleet.bundle/v1",
        "captured_at": truth.get("captured_at") or truth["as_of"],
        "job": "train",
        "namespace": "ml",
        "uid": "u-1",
        "context": "prod",
        "server": "https://prod.example",
    }
    (place / "manifest.json").write_text(json.dumps(manifest))
    return place


def run(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> tuple[str, str]:
    assert code == main([str(one) for one in arguments])
    told = capsys.readouterr()
    return told.out, told.err


def page(capsys: pytest.CaptureFixture[str], *more: object) -> str:
    out, _ = run(capsys, "history", "--as-of", NOW, *more)
    assert all(len(line) <= 80 for line in out.splitlines()), out
    return out


def earlier(one: Incident, *days: float) -> list[Incident]:
    """The same node ill so many days before."""
    assert one.at_ns is not None
    return [
        incident(at_ns=one.at_ns - round(ago * DAY_NS), node=one.nodes[0], context="prod")
        for ago in days
    ]


def test_the_same_bundle_gives_the_same_bytes_whatever_is_kept(
    bundle: Path, state: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every format, with a history that accuses the node and without; it speaks on standard error alone."""
    formats = ("text", "json", "yaml", "markdown", "html")
    monkeypatch.setenv("GPUFLEET_NO_STATE", "1")
    without = [run(capsys, "triage", bundle, "-o", output)[0] for output in formats]
    assert not state.exists()
    monkeypatch.delenv("GPUFLEET_NO_STATE")
    _, err = run(capsys, "triage", bundle)
    assert "history" not in err
    (own,) = folder.read(state).incidents
    for one in earlier(own, 3, 9):
        keep(state, one, is_own=True)
    for expected, output in zip(without, formats, strict=True):
        out, err = run(capsys, "triage", bundle, "-o", output)
        assert expected == out
        assert f"history: {own.nodes[0]}: 3 faults in 28 d, by luck 1 in 1,140 healthy nodes" in err
    for command in ("ranks", "dumps"):
        assert "history:" not in run(capsys, command, bundle)[1]
    assert 3 == len(folder.read(state).incidents)
    assert 3 == len(list(state.iterdir()))


def test_who_waited_for_the_answer(
    bundle: Path, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Months later, and on import, nobody did: then nothing is said of how long it took."""
    run(capsys, "triage", bundle)
    (late,) = folder.read(state).incidents
    assert (None, None) == (late.looked_ns, late.diagnosed_ns)
    manifest = json.loads((bundle / "manifest.json").read_text())
    manifest["captured_at"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    (bundle / "manifest.json").write_text(json.dumps(manifest))
    run(capsys, "triage", bundle)
    (fresh,) = folder.read(state).incidents
    assert fresh.looked_ns is not None
    assert abs(time.time_ns() - fresh.looked_ns) < HOUR_NS
    assert fresh.looked_ns == fresh.diagnosed_ns


def test_a_healthy_job_and_loose_files_leave_nothing(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder that does not say which job it is of is kept only where it is asked for."""
    run(capsys, "triage", CASE)
    assert not state.exists()
    out, _ = run(capsys, "history", "add", CASE)
    assert "kept as" in out
    assert 1 == len(folder.read(state).incidents)


@pytest.mark.parametrize(("known", "kept"), [("running", 0), ("unknown", 0), ("stalled", 1)])
def test_a_look_in_vain_is_no_incident(
    known: str, kept: int, tmp_path: Path, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Undecidable counts where the job is known to have stopped; asked for or not."""
    place = tmp_path / "job"
    place.mkdir()
    (place / "job.json").write_text(json.dumps({"name": "train-run-7", "state": known}))
    out, _ = run(capsys, "triage", place, code=3)
    assert "undecidable" in out.lower()
    run(capsys, "history", "add", place)
    assert kept == len(folder.read(state).incidents)


def test_a_drill_is_no_incident_of_the_fleet(
    tmp_path: Path, state: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the name of its folder, which spoils nothing; the same files elsewhere are an incident."""
    monkeypatch.chdir(tmp_path)
    out, _ = run(capsys, "drill", "--class", "xid-79", "--seed", "3", "--make-only")
    place = Path(out.splitlines()[0])
    (place / "job.json").write_text('{"name": "train-run-7"}')
    run(capsys, "triage", place)
    assert not state.exists()
    place.rename("real")
    run(capsys, "triage", "real")
    assert 1 == len(folder.read(state).incidents)


def test_a_folder_that_names_its_job_is_kept(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a bundle or a job is; a second look at it is no second incident."""
    for _ in range(2):
        run(capsys, "triage", ROOT / "fixtures" / "train-run-7")
    (kept,) = folder.read(state).incidents
    assert ("train-run-7", ("gpu-node-0417",)) == (kept.job, kept.nodes)


@pytest.mark.parametrize("year", ["1960", "2900"])
def test_a_log_of_an_absurd_year_leaves_a_record_that_can_be_read(
    year: str, tmp_path: Path, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Times that no record holds are not known."""
    told = (
        f"{year}-02-18T03:21:50Z [rank3]: torch.cuda.OutOfMemoryError: CUDA out of memory. "
        "Tried to allocate 2.00 GiB.\n"
    )
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "rank_3.log").write_text(told * 3)
    run(capsys, "history", "add", tmp_path / "job")
    kept = folder.read(state)
    assert (1, ()) == (len(kept.incidents), kept.not_read)
    page(capsys)


def test_two_people_share_a_folder(
    bundle: Path, tmp_path: Path, state: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """By flag, variable or settings file, in this order; their incident is one."""
    team = tmp_path / "team"
    run(capsys, "--history", team, "triage", bundle)
    run(capsys, "triage", bundle, "--history", team)
    assert 1 == len(list(team.iterdir()))
    assert not state.exists()

    file = tmp_path / "config" / "gpufleet" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text('[contexts."prod"]\nhistory = "of-file"\n')
    run(capsys, "triage", bundle)
    assert 1 == len(list((file.parent / "of-file").iterdir()))
    out, _ = run(capsys, "history", "--context", "prod", "-o", "json")
    assert str(file) == json.loads(out)["history"]["folder_source"]
    monkeypatch.setenv("GPUFLEET_HISTORY", str(tmp_path / "of-variable"))
    run(capsys, "triage", bundle)
    assert 1 == len(list((tmp_path / "of-variable").iterdir()))
    out, _ = run(capsys, "history", "-o", "json", "--history", team)
    assert ("--history", 1) == (
        json.loads(out)["history"]["folder_source"], json.loads(out)["history"]["kept"],
    )  # fmt: skip


def test_what_cannot_be_kept_costs_a_line_and_no_report(
    bundle: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No such share, no right, a settings file with a mistake, a share that does not answer."""
    out, err = run(capsys, "triage", bundle, "--history", tmp_path / "not" / "mounted")
    assert "no such file" in err
    assert "not kept in the history" in err
    (tmp_path / "file").write_text("x")
    assert out == run(capsys, "triage", bundle, "--history", tmp_path / "file")[0]

    file = tmp_path / "config" / "gpufleet" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text('[contexts."prod"]\nhistory = 7\n')
    again, err = run(capsys, "triage", bundle)
    assert (out, True) == (again, "contexts.prod.history is no text" in err)
    file.unlink()

    for one in earlier(incident(node="gpu-b08", at_ns=LAST_NS), 3, 9):
        keep(tmp_path / "read-only", one, is_own=False)

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as barred:
        barred.setattr(folder, "_write", refused)
        again, err = run(capsys, "triage", bundle, "--history", tmp_path / "read-only")
    assert (out, True) == (again, "read-only: permission denied" in err)
    assert "history: gpu-b08: 3 faults in 28 d" in err

    ended = threading.Event()
    monkeypatch.setattr(folder, "keep", lambda *_, **__: ended.wait(60))
    monkeypatch.setattr(past, "WAIT_S", 0.2)
    again, err = run(capsys, "triage", bundle)
    ended.set()
    assert (out, True) == (again, "no answer in 0.2 s" in err)


def test_the_page_and_its_filters(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Newest first, offenders before all others, what is not known said so; a screen of 24 lines."""
    for days in range(1, 13):
        keep(state, incident(days, f"gpu-{days}", uid=str(days)), is_own=True)
    for days in (2, 6, 25):
        keep(state, incident(days, "gpu-node-0417", uid=f"x{days}", xids=(79,)), is_own=True)
    out = page(capsys)
    assert len(out.splitlines()) <= 22, out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "15 incidents since the first on 2026-01-22, 25 days" == lines[0]
    assert "2026-02-15 00:00 gpu-1 hardware: evict-now, ml/train" in lines
    more = next(line for line in lines if line.endswith("more: -v, --since, --node, --job, --kind"))
    assert 15 - int(more.split()[1]) == sum(line.startswith("2026-") for line in lines)
    whole = " ".join(lines)
    assert "offender gpu-node-0417: 3 faults in 28 d, by luck 1 in 1,140 nodes" in whole
    assert (
        "1.7 of 1,000 healthy nodes would be named, at 0.0065 faults a node-day, a default" in whole
    )
    assert "node faults 14, one in 42h51m (90 %: 27h25m to 2d23h)" in whole
    assert "per GPU-hour not known: --gpus N" in whole
    assert "to diagnose not known: none of 15 incidents tells" in whole
    assert 1 == page(capsys, "--node", "gpu-3").count("hardware")
    assert "none that was asked for" in page(capsys, "--job", "other")
    assert 3 == page(capsys, "--since", "2d12h").count("hardware:") + page(
        capsys, "--since", "2d12h"
    ).count("hardware (")
    shown = page(capsys, "-v", "--nodes", "256", "--gpus", "2048")
    assert 15 == shown.count("evict-now")
    flat = " ".join(shown.split())
    assert "as seen here" in flat
    assert "GPU-h each (" in flat


def test_json_has_every_field(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Times in RFC 3339, durations in seconds, null for what is not known."""
    keep(state, incident(1, server="https://a", xids=(79,)), is_own=True)
    keep(state, incident(3, uid="x", looked_ns=NOW_NS - 3 * DAY_NS + 60 * 10**9), is_own=True)
    out, _ = run(capsys, "history", "-o", "json", "--as-of", NOW, "--nodes", 100, "--gpus", 800)
    told = json.loads(out)["history"]
    assert ("2026-02-15T00:00:00Z", [79], True, None) == tuple(
        told["incidents"][0][key] for key in ("at", "xids", "node_fault", "diagnosed_at")
    )
    assert {"detect": (60.0, 1, 2), "diagnose": (None, 0, 2)} == {
        name: tuple(one.values()) for name, one in told["times"].items()
    }
    assert told["expected_innocents"] == pytest.approx(100 * told["chance_flagged"])
    assert ("first-incident", 1) == (
        told["counted_since_source"], told["mtbf"]["stopped_jobs"]["seen"],
    )  # fmt: skip
    assert 57_600.0 == told["mtbf"]["stopped_jobs"]["gpu_hours_each"]


def test_an_empty_history_is_no_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is one that is read where no state is kept; nothing is written for it."""
    assert "No incident is kept." in page(capsys)
    monkeypatch.setenv("GPUFLEET_NO_STATE", "1")
    out, _ = run(capsys, "history", "-o", "json")
    told = json.loads(out)["history"]
    assert ([], [], None) == (told["incidents"], told["offenders"], told["counted_since"])
    assert not state_folder().exists()
    run(capsys, "history", "add", CASE, code=2)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("forget",), "not known"),
        (("add",), "not known"),
        (("--since", "soon"), "not a time"),
        (("--kind", "bad-luck"), "one of rank-missing"),
        (("--node-failures-per-day", "0"), "no number of failures"),
        (("--nodes", "0"), "--nodes"),
        (("--history", ""), "is no folder"),
        (("-o", "html"), "not available"),
    ],
)
def test_a_question_that_cannot_be_asked(
    arguments: tuple[str, ...], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, exit 2, nothing on standard output."""
    out, err = run(capsys, "history", *arguments, code=2)
    assert ("", True) == (out, word in err), err


def test_a_history_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 4; a bundle among others that cannot be read costs itself."""
    (tmp_path / "file").write_text("x")
    out, err = run(capsys, "history", "--history", tmp_path / "file", code=4)
    assert ("", True) == (out, "cannot be read" in err)
    out, err = run(capsys, "history", "add", tmp_path / "nothing", CASE, "-o", "json", code=4)
    assert "no such file" in err
    assert [str(CASE)] == [one["bundle"] for one in json.loads(out)["added"]]


def test_a_share_that_hangs_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 4 when the deadline is over; a program that hangs is worse than one that fails."""
    ended = threading.Event()
    monkeypatch.setattr(folder, "read", lambda *_, **__: ended.wait(60))
    out, err = run(capsys, "history", "--history", tmp_path, "--deadline", "0.2", code=4)
    ended.set()
    assert ("", True) == (out, "did not answer in 0.2 s" in err)


def test_hostile_text_is_inert_and_bad_files_are_named(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A job's name can move no cursor, and hides no secret."""
    bad = changed(
        incident(), job="\x1b[2Jx\u202e", nodes=("n" * 300,), summary="token=abcdefgh12345678 \x07"
    )
    keep(state, bad, is_own=True)
    (state / "torn.json").write_bytes(b"{")
    os.mkfifo(state / "pipe.json")
    out = page(capsys, "-v")
    assert out.isprintable() or set(out) - {"\n"} == {c for c in out if c.isprintable()}
    assert "abcdefgh12345678" not in out
    assert "Not read: 2: torn.json" in out
    told = json.loads(run(capsys, "history", "-o", "json")[0])["history"]["not_read"]
    assert ["torn.json", "pipe.json"] == [one["what"] for one in told]


def test_mtbf_of_a_fleet_from_the_history(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its source is named, in text and JSON; without a history there is no guess."""
    asked = ("cost", "mtbf", "--gpus", 8192, "--fleet-gpus", 16384)
    _, err = run(capsys, *asked, code=2)
    assert "no incident is kept in" in err
    now = time.time_ns()
    for days in (10, 6, 2):
        one = incident(uid=str(days), at_ns=now - days * DAY_NS)
        keep(state, one, is_own=True)
    told = json.loads(run(capsys, *asked, "-o", "json")[0])
    assert told["inputs"]["interruptions"] == {"value": 2, "unit": "", "source": "history"}
    assert told["inputs"]["history"]["value"] == str(state)
    assert told["inputs"]["observed_gpu_hours"]["value"] == pytest.approx(16384 * 240, rel=1e-4)
    assert told["result"]["mtti_seconds"] == pytest.approx(240 * 3600, rel=1e-4)
    text, _ = run(capsys, *asked)
    assert "by history" in text
    assert "2 stops of jobs in" in " ".join(text.split())
    run(capsys, *asked, "--interruptions", 3, code=2)


def test_each_bundle_of_a_folder_is_an_incident(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bundles that lie together are not one incident that nobody had; a folder beside them that is none is left."""
    older = tmp_path / "older"
    (older / "notes").mkdir(parents=True)
    (older / "notes" / "todo.txt").write_text("call the vendor")
    (older / "notes" / "manifest.json").write_text('{"kind": "List"}')
    shutil.copytree(bundle, older / "first")
    manifest = json.loads((bundle / "manifest.json").read_text())
    (bundle / "manifest.json").write_text(json.dumps(manifest | {"job": "other", "uid": "u-2"}))
    shutil.make_archive(str(older / "second"), "gztar", bundle)
    out, _ = run(capsys, "history", "add", older, "-o", "json")
    added = json.loads(out)["added"]
    assert [Path(one["bundle"]).name for one in added] == ["first", "second.tar.gz"]
    assert {one["kind"] for one in added} == {"hardware"}
    assert len({one["id"] for one in added}) == 2


def test_an_archive_in_the_folder_of_one_incident_is_evidence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Dumps in an archive beside logs make no bundle of it."""
    out, _ = run(capsys, "history", "add", ROOT / "fixtures/train-run-7", "-o", "json")
    assert [one["kind"] for one in json.loads(out)["added"]] == ["hardware"]
