"""`gpufleet postmortem`: what is written, exit status, the record, and the promises of the page."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from case_tools import cases, copy_evidence
from jsonschema import Draft202012Validator
from page_check import Page, faults

from gpufleet_cli.cli import main
from gpufleet_cli.operate.simulate import world
from gpufleet_cli.operate.simulate.story import Class
from gpufleet_cli.timestamps import parse_rfc3339

ROOT = Path(__file__).parents[2]
BUNDLED = ROOT / "fixtures/train-run-7"
CASCADE = ROOT / "fixtures/cases/fr/fr-04-tp-cascade-16"
ALL_CASES = cases(ROOT / "fixtures/cases")
SCHEMA = Draft202012Validator(
    json.loads((ROOT / "gpufleet_cli/schema/postmortem-v1.schema.json").read_text(encoding="utf-8"))
)
MARKUP = "<img src=x onerror=alert(1)>\"&'</pre></main>"
EVIL = f"\x1b[31m\u202e\u2066{MARKUP}`x`[l](http://evil.example/)|a|"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What one run left."""

    html: str
    record: dict[str, Any]
    markdown: str
    triage: dict[str, Any]

    @property
    def page(self) -> Page:
        return Page(self.html)


def write_up(target: Path, folder: Path, capsys: pytest.CaptureFixture[str], *more: str) -> Written:
    """The page with its record, Markdown, and what triage says of the same."""
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / "report.html"
    assert main(["postmortem", str(target), "--to", str(page), "-o", "markdown", *more]) == 0
    markdown = capsys.readouterr().out
    assert main(["triage", str(target), "-o", "json", *more]) in (0, 3)
    triage = json.loads(capsys.readouterr().out)
    return Written(
        html=page.read_text(encoding="utf-8"),
        record=json.loads((folder / "report.json").read_text(encoding="utf-8")),
        markdown=markdown,
        triage=triage,
    )


def check(found: Written) -> None:
    """What holds of every write-up."""
    assert faults(found.html) == []
    record, triage, page = found.record, found.triage, found.page
    assert list(SCHEMA.iter_errors(record)) == []
    assert record["verdict"] == triage["verdict"]["kind"]
    assert record["culprits"] == triage["verdict"]["culprits"]
    assert record["lost_gpu_hours"] == triage["recommendation"]["lost_gpu_hours"]
    times = {one.attributes["datetime"] for one in page.root.all("time")}
    for name in ("first_cause_at", "detected_at", "recovered_at"):
        if record[name] is not None:
            assert record[name] in page.words, name
            assert record[name] in found.markdown, name
            assert milliseconds(record[name]) in times, name
    for claim in triage["verdict"]["evidence"]:
        place = page.by_id(claim["id"])
        assert place is not None, claim["id"]
        assert claim["source"] is None or claim["source"] in place.words
        assert f"**{claim['id']}**" in found.markdown
    linked = {one.attributes["href"] for one in page.root.all("a")}
    assert {f"#{claim['id']}" for claim in triage["verdict"]["evidence"]} <= linked
    order = [one["at"] for one in record["timeline"]]
    assert order == sorted(order, key=nanoseconds)


def nanoseconds(text: str) -> int:
    found = parse_rfc3339(text)
    assert found is not None
    return found[0]


def milliseconds(text: str) -> str:
    """As `<time datetime>` may have it."""
    whole, _, fraction = text.rstrip("Z").partition(".")
    shown = fraction[:3].rstrip("0")
    return f"{whole}.{shown}Z" if shown else f"{whole}Z"


_BUNDLED: list[Written] = []


@pytest.fixture
def bundled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Written:
    """The write-up of the bundled incident, which several tests look at, made once."""
    if not _BUNDLED:
        _BUNDLED.append(write_up(BUNDLED, tmp_path, capsys))
    return _BUNDLED[0]


# --- The bundled incident of 1,024 ranks ----------------------------------------------------------


def test_the_bundled_incident(bundled: Written) -> None:
    """Everything that the contract names is there, in less than two million bytes."""
    found, record = bundled, bundled.record
    check(found)
    assert len(found.html.encode()) < 2_000_000
    assert record["first_cause_at"] == "2026-03-11T03:41:07.341Z"
    assert record["detected_at"] == "2026-03-11T03:41:07.341Z"
    assert record["recovered_at"] is None
    assert record["why"]["recovered_at"]
    assert [one["rank"] for one in record["culprits"]] == [800]
    words, text = found.page.words, found.markdown
    for expected in ("495 GPU-h", "174.12", "320.82", "gpu-node-0417", "step: 48211",
                     "1,023 ranks wait in all_reduce 88214", "What would have flipped it",
                     "no later attempt is in the evidence"):  # fmt: skip
        assert expected in words, expected
        assert expected.replace("_", "\\_") in text or expected in text, expected


def test_three_lines_for_a_director(bundled: Written) -> None:
    """What happened and who, what it cost and how fast it was seen, what comes next."""
    what, price, after = bundled.record["summary"]
    assert "train-run-7 (1,024 GPUs on 128 nodes) stopped on 2026-03-11" in what
    assert "495 GPU-h" in price
    assert "10m12s" in price
    assert "gpu-node-0417" in after


def test_two_runs_are_equal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By bytes, page and record; also where the first one lies beside the evidence."""
    place = tmp_path / "evidence"
    copy_evidence(CASCADE, place)
    first = write_up(place, tmp_path / "one", capsys)
    inside = write_up(place, place, capsys)
    again = write_up(place, place, capsys)
    assert first == inside == again


def test_two_processes_are_equal(tmp_path: Path) -> None:
    """Whatever the order of their sets: the hash seed changes no byte."""
    pages = []
    for seed in ("1", "2"):
        page = tmp_path / seed / "report.html"
        page.parent.mkdir()
        subprocess.run(
            [sys.executable, "-m", "gpufleet_cli", "postmortem", str(CASCADE), "--to", str(page)],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            check=True,
            capture_output=True,
        )
        pages.append((page.read_bytes(), page.with_suffix(".json").read_bytes()))
    assert pages[0] == pages[1]


# --- Every case with a known answer ---------------------------------------------------------------


@pytest.mark.parametrize("truth", ALL_CASES, ids=lambda truth: truth.name)
def test_every_case(truth: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A write-up for each, undecidable too; where there is a fault, its begin and its first sign are times."""
    place = copy_evidence(truth.folder, tmp_path / truth.folder.name)
    as_of = [] if truth.captured_at is None else ["--as-of", truth.captured_at]
    found = write_up(place, tmp_path / "out", capsys, *as_of)
    check(found)
    record = found.record
    if record["verdict"] == "healthy":
        assert record["first_cause_at"] is None
        return
    if record["verdict"] != "undecidable":
        assert record["first_cause_at"] is not None
    if record["first_cause_at"] is not None:
        assert nanoseconds(record["detected_at"]) >= nanoseconds(record["first_cause_at"])
        assert datetime.fromisoformat(record["first_cause_at"][:10]).year >= 2020


# --- Made incidents -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cls", "size"),
    [
        (Class.LINK_IN_FLIGHT, 64),
        (Class.PYTHON_CRASH, 16),
        (Class.STORAGE, 32),
        (Class.RENDEZVOUS, 32),
        (Class.SLOW_GPU, 32),
        (Class.COMPILE, 16),
    ],
)
def test_made_incidents(
    cls: Class, size: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that is undecidable, one that runs on, one where nothing is wrong: each is written up."""
    made = world.make(cls, seed=3_000_021, size=size)
    made.write(tmp_path / "incident")
    check(write_up(tmp_path / "incident", tmp_path / "out", capsys))


@pytest.mark.slow
def test_a_made_incident_of_1024_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Legible and small, whatever has piled up at so many ranks."""
    made = world.make(Class.LOADER_STALL, seed=5, size=1024, lost=0.3)
    made.write(tmp_path / "incident")
    found = write_up(tmp_path / "incident", tmp_path / "out", capsys)
    check(found)
    assert len(found.html.encode()) < 300_000
    boxes = [
        one for one in found.page.root.all("rect") if "box" in (one.attributes.get("class") or "")
    ]
    assert 2 <= len(boxes) <= 12


# --- Hostile text ---------------------------------------------------------------------------------


def hostile(folder: Path) -> Path:
    """A crash whose names and lines are markup, escapes and direction marks."""
    place = folder / "hostile"
    (place / "logs").mkdir(parents=True)
    for rank in range(4):
        head = f"[rank{rank}]:"
        lines = [
            f"2026-03-11T03:41:{s:02}.000Z {head} step: {100 + s} loss: 2.0" for s in range(20)
        ]
        if rank == 1:
            lines += [
                f"2026-03-11T03:41:20.000Z {head} {EVIL}",
                f"2026-03-11T03:41:20.100Z {head} Traceback (most recent call last):",
                f'2026-03-11T03:41:20.100Z {head}   File "/app/{EVIL}.py", line 9, in <module>',
                f"2026-03-11T03:41:20.100Z {head} ValueError: {EVIL} token=hf_abcdefghijklmnopqrstuvwxyz",
                "2026-03-11T03:41:21.000Z E0311 03:41:21.000000 1 torch/distributed/elastic/multiprocessing/"
                "api.py:882] failed (exitcode: 1) local_rank: 1 (pid: 41) of binary: /usr/bin/python",
            ]
        (place / "logs" / f"rank_{rank}.log").write_text("\n".join(lines) + "\n", encoding="utf-8")
    ranks = [
        {"rank": rank, "pod": f"{MARKUP}{rank}", "node": f"</style>{MARKUP}", "local_rank": rank}
        for rank in range(4)
    ]
    (place / "topology.json").write_text(json.dumps({"world_size": 4, "ranks": ranks}))
    (place / "job.json").write_text(json.dumps({"name": MARKUP, "namespace": EVIL}))
    return place


def test_hostile_text_is_inert(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is shown as text: no element, no attribute, no escape, no secret comes of it."""
    found = write_up(hostile(tmp_path), tmp_path / "out", capsys)
    assert faults(found.html) == []
    assert found.record["verdict"] == "rank-crashed"
    assert "&lt;img src=x onerror=alert(1)&gt;" in found.html
    assert MARKUP.split("</pre>")[0] in found.page.words
    everything = found.html + found.markdown + json.dumps(found.record, ensure_ascii=False)
    for odd in ("\x1b", "\u202e", "\u2066", "hf_abcdefghijklmnopqrstuvwxyz"):
        assert odd not in everything
    outside_fences = "".join(found.markdown.split("```")[::2])
    assert "<img" not in outside_fences
    assert "http://evil" not in outside_fences


def test_a_wall_of_text_stays_small(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line of a megabyte without a blank is cut."""
    place = tmp_path / "wall"
    place.mkdir()
    lines = [f"2026-03-11T03:41:{s:02}.000Z [rank0]: step: {100 + s} loss: 2.0" for s in range(20)]
    lines.append(f"2026-03-11T03:41:21.000Z [rank0]: ValueError: {'x' * 1_000_000}")
    (place / "rank_0.log").write_text("\n".join(lines))
    found = write_up(place, tmp_path / "out", capsys)
    assert len(found.html) < 100_000


# --- Recovery -------------------------------------------------------------------------------------


def restarted(folder: Path) -> Path:
    """Two pods: the first attempt ends by an exception of rank 1, the second one trains."""
    for rank in range(2):
        logs = folder / f"namespaces/ml/pods/train-{rank}/pytorch/pytorch/logs"
        logs.mkdir(parents=True)
        head = f"[rank{rank}]:"
        before = [
            f"2026-03-11T03:41:{s:02}.000Z {head} step: {100 + s} loss: 2.0" for s in range(5)
        ]
        if rank == 1:
            before += [
                f"2026-03-11T03:41:05.500Z {head} Traceback (most recent call last):",
                f'2026-03-11T03:41:05.500Z {head}   File "/app/train.py", line 9, in <module>',
                f"2026-03-11T03:41:05.500Z {head} ValueError: bad sample 17",
                "2026-03-11T03:41:06.000Z E0311 03:41:06.000000 1 torch/distributed/elastic/multiprocessing/"
                "api.py:882] failed (exitcode: 1) local_rank: 0 (pid: 41) of binary: /usr/bin/python",
            ]
        after = [
            f"2026-03-11T03:45:{s:02}.000Z {head} step: {100 + s} loss: 2.0" for s in range(10, 40)
        ]
        (logs / "previous.log").write_text("\n".join(before) + "\n")
        (logs / "current.log").write_text("\n".join(after) + "\n")
    return folder


def test_recovery_is_the_first_step_of_a_later_attempt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its time, its line, and what the time until then cost, which is not in the sum."""
    found = write_up(restarted(tmp_path / "evidence"), tmp_path / "out", capsys)
    check(found)
    assert found.record["recovered_at"] == "2026-03-11T03:45:10Z"
    assert found.record["time_to_recover_seconds"] == 244.5
    assert found.record["timeline"][-1]["part"] == "recovery"
    assert "down until it worked again" in found.page.words


def test_a_bundle_says_when_it_was_gathered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """That is when the verdict could be given; the manifest's attempts are in the timeline."""
    place = copy_evidence(CASCADE, tmp_path / "bundle")
    manifest = {
        "schema": "gpufleet.bundle/v1",
        "job": "llm-pretrain",
        "namespace": "training",
        "captured_at": "2026-11-29T15:02:00Z",
        "attempt": 0,
        "attempts": [
            {
                "attempt": 0,
                "state": "failed",
                "started_at": "2026-11-29T14:50:00Z",
                "ended_at": None,
            },
            {
                "attempt": 1,
                "state": "running",
                "started_at": "2026-11-29T14:58:00Z",
                "ended_at": None,
            },
        ],
    }
    (place / "manifest.json").write_text(json.dumps(manifest))
    found = write_up(place, tmp_path / "out", capsys)
    check(found)
    record = found.record
    assert record["diagnosed_at"] == "2026-11-29T15:02:00Z"
    assert record["time_to_diagnose_seconds"] == pytest.approx(477.9, abs=1)
    assert record["recovered_at"] is None
    assert "attempt 1 began" in record["why"]["recovered_at"]
    assert any(one["what"].startswith("attempt 1 began") for one in record["timeline"])


# --- What stands in the job's objects -------------------------------------------------------------


def pods(*, uid: str = "6d2f1c0a-77aa-4b11-9c3e-0a1b2c3d4e5f") -> dict[str, Any]:
    """Two pods of a PyTorchJob as the API server hands them over, with the names of trackers."""
    made = []
    for index in range(2):
        meta = {
            "name": f"llm-worker-{index}",
            "namespace": "ml",
            "uid": f"pod-{index}",
            "annotations": {"git-commit": "0123abcd"},
            "ownerReferences": [{"kind": "PyTorchJob", "name": "llm", "uid": uid}],
        }
        container = {
            "name": "pytorch",
            "image": "registry/train:v4",
            "command": ["torchrun", "--nnodes=2", "--nproc-per-node=8", "train.py"],
            "env": [
                {"name": "WANDB_RUN_ID", "value": "3k2j1h"},
                {"name": "MLFLOW_RUN_ID", "value": "[hidden]"},
            ],
            "resources": {"limits": {"nvidia.com/gpu": "8"}},
        }
        status = {
            "phase": "Running",
            "containerStatuses": [
                {
                    "name": "pytorch",
                    "image": "registry/train:v4",
                    "imageID": f"registry/train@sha256:{'ab' * 32}",
                    "state": {"running": {"startedAt": "2026-03-11T03:00:00Z"}},
                }
            ],
        }
        spec = {"restartPolicy": "Always", "containers": [container], "nodeName": f"n{index}"}
        made.append(
            {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}
        )
    return {"apiVersion": "v1", "kind": "List", "items": made}


def test_ids_and_preflight(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Run id, uid, digest and commit join it to other systems; a hidden value does not. The pods' spec is
    checked, and each finding stands where it is in the pod."""
    place = tmp_path / "bundle"
    shutil.copytree(restarted(tmp_path / "evidence"), place)
    (place / "pods.json").write_text(json.dumps(pods()))
    found = write_up(place, tmp_path / "out", capsys)
    assert faults(found.html) == []
    ids = found.record["ids"]
    assert [one["value"] for one in ids["run_id"]] == ["3k2j1h"]
    assert [one["value"] for one in ids["job_uid"]] == ["6d2f1c0a-77aa-4b11-9c3e-0a1b2c3d4e5f"]
    assert [one["value"] for one in ids["image_digest"]] == [f"sha256:{'ab' * 32}"]
    assert [one["value"] for one in ids["commit"]] == ["0123abcd"]
    assert "restart-policy" in found.record["preflight"]
    assert "Pod/llm-worker-0 spec.restartPolicy" in found.page.words
    assert "backoff" not in " ".join(found.record["preflight"])


# --- Exit status ----------------------------------------------------------------------------------


def test_exit_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """4 what cannot be read, 2 usage, one line each, and nothing on standard output or on disk."""
    page = str(tmp_path / "report.html")
    for given, status in (
        (["postmortem", str(tmp_path / "nosuch"), "--to", page], 4),
        (["postmortem", "nosuch"], 4),
        (["postmortem"], 2),
        (["postmortem", str(CASCADE), "--to", str(tmp_path / "report.txt")], 2),
        (["postmortem", str(CASCADE), "-o", "yaml"], 2),
        (["postmortem", str(CASCADE), "--as-of", "soon"], 2),
        (["postmortem", str(CASCADE), "--to", str(tmp_path / "no" / "report.html")], 4),
    ):
        assert main(given) == status, given
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_options_of_triage_are_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A number that is given is in the arithmetic of both."""
    more = ("--checkpoint-interval", "20m", "--last-checkpoint-at", "2026-11-29T14:34:02Z")
    found = write_up(CASCADE, tmp_path / "out", capsys, *more)
    check(found)
    assert found.record["lost_recompute_gpu_hours"] == pytest.approx(5.34, abs=0.05)


def test_a_triage_passes_over_a_write_up_beside_the_evidence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It quotes lines of the evidence, and is none."""
    place = copy_evidence(CASCADE, tmp_path / "evidence")
    assert main(["triage", str(place), "-o", "json"]) == 0
    before = capsys.readouterr().out
    for name in ("report.html", "report.md"):
        assert main(["postmortem", str(place), "--to", str(place / name)]) == 0
    capsys.readouterr()
    assert main(["triage", str(place), "-o", "json"]) == 0
    assert capsys.readouterr().out == before


@pytest.mark.parametrize("name", ["job.html", "topology.md"])
def test_evidence_is_not_written_over(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The record beside `job.html` would be `job.json`, which is evidence: refused in one line, nothing changed."""
    place = copy_evidence(CASCADE, tmp_path / "evidence")
    (place / "job.json").write_text("{}", encoding="utf-8")
    (place / "topology.json").write_text("{}", encoding="utf-8")
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    assert main(["postmortem", str(place), "--to", str(place / name)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "would be written over" in said.err
    assert before == {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", ["ras-lists-missing-rank", "ras-lists-minority-ahead"])
def test_a_suspicion_has_its_times(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A snapshot names ranks while the job goes on and nothing dated complains: neither time is null, and what they
    rest on is said to be a bound, no step that went well."""
    found = write_up(ROOT / "fixtures/built/logs" / name, tmp_path / "out", capsys)
    check(found)
    assert found.record["verdict"] == "undecidable"
    assert found.record["first_cause_at"] == found.record["detected_at"] is not None
    assert "not later than" in found.record["why"]["first_cause_at"]
    assert "no line complains" in found.record["why"]["detected_at"]
    assert "perhaps with a fault" in found.markdown
