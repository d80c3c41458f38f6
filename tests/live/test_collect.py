"""`collect` and live `triage` against a small API server: what is in the bundle, and what is said to be missing."""

from __future__ import annotations

import json
import tarfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpufleet_cli.cli import main
from live import cluster_stories as stories
from live import fake_api
from live.fake_api import FakeApi, Said, failure

PODS = "/api/v1/namespaces/ml/pods"
JOBS = "/apis/batch/v1/namespaces/ml/jobs"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
AT = datetime(2026, 8, 20, 3, 10, 0, tzinfo=UTC)
INDEX = "batch.kubernetes.io/job-completion-index"


def text(lines: Any) -> bytes:
    """Lines as the API server gives them with timestamps."""
    return b"".join(f"{at:%Y-%m-%dT%H:%M:%S.%f}000Z {line}\n".encode() for at, line in lines)


def job(fake: FakeApi, count: int = 2, **pod: Any) -> list[str]:
    """An Indexed Job `train` of so many pods on so many nodes, which step and then run on."""
    spec = {"completions": count, "parallelism": count}
    fake.add(
        JOBS, {"metadata": {"name": "train", "namespace": "ml", "uid": "uid-train"}, "spec": spec}
    )
    names = []
    for index in range(count):
        labels = {"batch.kubernetes.io/job-name": "train", INDEX: str(index)}
        name = f"train-{index}"
        fake.add(PODS, fake_api.pod(name, labels=labels, node=f"gpu-{index}", **pod))
        fake.add("/api/v1/nodes", fake_api.node(f"gpu-{index}"))
        now = datetime.now(UTC)
        fake.add(LEASES, fake_api.lease(f"gpu-{index}", f"{now:%Y-%m-%dT%H:%M:%S.%fZ}"))
        fake.logs[name, "trainer"] = text(stories.steps(index, 1, AT, 30))
        names.append(name)
    return names


class Run:
    """One command: exit status, standard output, standard error; and the bundle's manifest."""

    def __init__(self, code: int, out: str, err: str, place: Path) -> None:
        self.code, self.out, self.err, self.place = code, out, err, place

    @property
    def manifest(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.place / "manifest.json").read_text())
        return found

    @property
    def missing(self) -> dict[str, str]:
        return {one["what"]: one["why"] for one in self.manifest["missing"]}

    def log(self, pod: str, which: str = "current", container: str = "trainer") -> bytes:
        folder = self.place / f"namespaces/ml/pods/{pod}/{container}/{container}/logs"
        return (folder / f"{which}.log").read_bytes()


def reads(place: Path) -> dict[str, Any]:
    """What came of asking for logs, as the bundle keeps it."""
    found: dict[str, Any] = json.loads((place / "kubernetes" / "log_reads.json").read_text())
    return found


@pytest.fixture
def collect(fake_kubeconfig: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """`collect(job, *options)` into a folder of the test's own."""

    def run(*arguments: str, to: str = "bundle") -> Run:
        place = tmp_path / to
        config = ["--kubeconfig", str(fake_kubeconfig)]
        code = main(["collect", *arguments, "--to", str(place), *config])
        told = capsys.readouterr()
        return Run(code, told.out, told.err, place)

    return run


def test_one_line_tells_where(fake: FakeApi, collect: Any) -> None:
    """JSON on standard output; 3 when parts are missing, and the manifest names them."""
    job(fake)
    done = collect("train")
    told = json.loads(done.out)
    assert {"bundle", "files", "bytes", "ranks", "missing", "hidden", "seconds"} == set(told)
    assert (str(done.place), 2) == (told["bundle"], told["ranks"])
    assert 3 == done.code
    assert told["missing"] == len(done.manifest["missing"])
    assert ("fake", fake.url) == (done.manifest["context"], done.manifest["server"])
    assert 2 == done.manifest["requests"]["log"]
    assert set(done.manifest["files"]) == {
        str(path.relative_to(done.place)) for path in done.place.rglob("*") if path.is_file()
    } - {"manifest.json"}


def test_the_container_is_always_named(fake: FakeApi, collect: Any) -> None:
    """Pods with sidecars answer 400 without; `stream` and `limitBytes` are never sent (trap 5)."""
    job(fake)
    collect("train")
    asked = [query for path, query in fake.asked if path.endswith("/log")]
    assert {"trainer"} == {query["container"] for query in asked}
    assert not [query for query in asked if {"stream", "limitBytes", "follow"} & set(query)]


def test_an_error_under_200_is_no_line(fake: FakeApi, collect: Any) -> None:
    """Trap 3: missing evidence, never the rank's last line."""
    job(fake)
    fake.logs["train-1", "trainer"] = b"unable to retrieve container logs for containerd://8f2e"
    done = collect("train")
    assert "the container is gone from its node" in done.missing["log of train-1/trainer"]
    assert "unable to retrieve" not in "".join(done.manifest["files"])
    assert not (done.place / "namespaces/ml/pods/train-1").exists()


def test_a_silent_kubelet_is_evidence_about_its_node(fake: FakeApi, collect: Any) -> None:
    """Trap 4: classified, shown, tied to the node; asked once."""
    job(fake, 3)
    said = 'Get "https://10.0.0.1:10250/containerLogs/ml/train-1/trainer": dial tcp 10.0.0.1:10250: i/o timeout'
    fake.odd.append(lambda path, _: failure(500, said) if "train-1/log" in path else None)
    done = collect("train")
    why = done.missing["log of train-1/trainer"]
    assert "the kubelet of its node does not answer" in why
    assert "(node gpu-1: evidence about the node)" in why
    assert 1 == fake.count("train-1/log")
    kept = reads(done.place)
    assert ["gpu-0", "gpu-2"] == kept["replied"]
    assert [("train-1", "gpu-1", "dial tcp 10.0.0.1:10250: i/o timeout")] == [
        (one["pod"], one["node"], one["said"]) for one in kept["silent"]
    ]
    assert "look at it: gpufleet node gpu-1" in done.err


def test_where_no_node_answers_the_way_is_at_fault(fake: FakeApi, collect: Any) -> None:
    """Trap 4, the other half: not all nodes died at once."""
    job(fake, 3)
    said = "dial tcp 10.0.0.1:10250: i/o timeout"
    fake.odd.append(lambda path, _: failure(500, said) if path.endswith("/log") else None)
    done = collect("train")
    why = done.missing["log of train-1/trainer"]
    assert "no node answers: tunnel or firewall, not the nodes" in why
    assert "evidence" not in why
    assert [] == reads(done.place)["replied"]
    assert "no node is to blame" in done.err


def test_a_log_that_one_may_not_read_says_nothing_of_its_node(fake: FakeApi, collect: Any) -> None:
    """403 comes from the API server: no evidence, no word about the node, and the right that is lacking."""
    job(fake, 3)
    said = 'pods "train-1" is forbidden: User "me" cannot get resource "pods/log" in API group ""'
    fake.odd.append(lambda path, _: failure(403, said) if "train-1/log" in path else None)
    done = collect("train")
    assert "not allowed: needs get on pods/log" == done.missing["log of train-1/trainer"]
    assert not (done.place / "kubernetes/log_reads.json").exists()
    assert "ask for the ClusterRole gpufleet-reader" in done.err
    assert "gpufleet node" not in done.err


def test_silence_is_kept_where_a_bundle_is_taken_up_again(fake: FakeApi, collect: Any) -> None:
    """A kubelet that is back has replied; one that was not asked again keeps what was said of it."""
    job(fake, 4)
    silent = ["train-1/log", "train-2/log"]
    fake.odd.append(
        lambda path, _: failure(500, "dial tcp: i/o timeout") if path[-11:] in silent else None
    )
    first = collect("train")
    assert ["gpu-1", "gpu-2"] == [one["node"] for one in reads(first.place)["silent"]]
    del silent[0]
    again = reads(collect("train").place)
    assert (["gpu-0", "gpu-1", "gpu-3"], ["gpu-2"]) == (
        again["replied"],
        [one["node"] for one in again["silent"]],
    )


def test_bytes_stay_as_they_are(fake: FakeApi, collect: Any) -> None:
    """Trap 10: no `b'...'`, no JSON line printed anew, torn glyphs kept, nine digits of a stamp too."""
    job(fake, 1)
    raw = b'2026-08-20T03:10:00.123456789Z {"step": 1, "msg": "it\'s"}\n2026-08-20T03:10:01Z torn \xe2\x82\n'
    fake.logs["train-0", "trainer"] = raw
    assert raw == collect("train").log("train-0")


def test_previous_logs_are_read_where_there_were_restarts(fake: FakeApi, collect: Any) -> None:
    """And only there; none there is normal, no gap."""
    ended = {"exitCode": 1, "finishedAt": "2026-08-20T03:05:00Z"}
    job(fake, 2, restarts=1, last=ended)
    fake.previous["train-0", "trainer"] = text([(AT, "before")])
    done = collect("train")
    assert b"before" in done.log("train-0", "previous")
    assert not [what for what in done.missing if what.startswith("previous log")]


def test_suspects_of_dead_nodes_come_last(fake: FakeApi, collect: Any) -> None:
    """A stale lease is known before any log is asked for; the first facts say so, by the lease's clock."""
    job(fake, 3)
    fake.collections[LEASES][0] = fake_api.lease("gpu-0", "2026-08-20T03:41:30.000000Z")
    done = collect("train")
    asked = [path for path, _ in fake.asked if path.endswith("/log")]
    assert asked[-1].endswith("train-0/log")
    assert "gpu-0 its lease is stale since 03:41:30, holds" in done.err
    assert "provisional" in done.err


def test_a_tail_reaches_back_to_the_beginning_of_the_stall(fake: FakeApi, collect: Any) -> None:
    """Not a count of lines: the first timeout line minus the watchdog's timeout minus two steps."""
    job(fake, 2)
    fake.logs["train-0", "trainer"] = text(loud(0))
    done = collect("train")
    assert b"step 1055 " in done.log("train-0"), "before the watchdog began to count"
    assert not [what for what in done.missing if "beginning" in what]


def loud(rank: int) -> list[Any]:
    """Steps, a watchdog's timeout, and three thousand lines of stacks after it."""
    end = AT + timedelta(seconds=60)
    late = end + timedelta(seconds=605)
    noise = [(late + timedelta(milliseconds=n), f"frame #{n}: c10d::work()") for n in range(3000)]
    return [
        *stories.steps(rank, 1, AT, 60),
        *stories.timeouts(rank, 1, end + timedelta(seconds=600)),
        *noise,
    ]


def asked_for(fake: FakeApi) -> list[str]:
    """What each read of a log asked for."""
    return [query.get("tailLines", "since") for path, query in fake.asked if path.endswith("/log")]


def test_where_all_logs_are_loud_they_are_not_all_read_twice(fake: FakeApi, collect: Any) -> None:
    """The first ones begin too late; the others are asked for more lines at once."""
    job(fake, 60)
    for index in range(60):
        fake.logs[f"train-{index}", "trainer"] = text(loud(index))
    done = collect("train")
    assert all(b"step 1055 " in done.log(f"train-{index}") for index in (0, 30, 59))
    tails = asked_for(fake)
    assert {"2000", "4000", "since"} == set(tails)
    assert tails.count("since") == tails.count("2000") < 60


def test_one_loud_log_does_not_lengthen_the_others(fake: FakeApi, collect: Any) -> None:
    """A log in a gang that begins too late is read again; of long ones that reach back no more is asked."""
    job(fake, 60)
    began = AT - timedelta(seconds=540)
    long = [(began + timedelta(milliseconds=100 * n), "data: one more shard") for n in range(6000)]
    for index in range(1, 60):
        lines = [
            *stories.steps(index, 1, AT, 60),
            *stories.timeouts(index, 1, AT + timedelta(seconds=660)),
        ]
        fake.logs[f"train-{index}", "trainer"] = text([*long, *lines] if index % 2 else lines)
    fake.logs["train-0", "trainer"] = text(loud(0))
    collect("train")
    assert 1 == asked_for(fake).count("since")
    assert 60 == asked_for(fake).count("2000")


def test_a_log_read_again_lists_its_secrets_once(fake: FakeApi, collect: Any) -> None:
    """By the lines that they have in the log that stays, not in the shorter one that it replaced."""
    job(fake, 1)
    last = (AT + timedelta(seconds=674), "Authorization: Bearer abc.def-1234567890")
    fake.logs["train-0", "trainer"] = text([*loud(0), last])
    done = collect("train")
    kept = done.log("train-0").splitlines()
    hidden = [one["where"] for one in done.manifest["hidden"] if one["file"].endswith(".log")]
    assert [f"line {len(kept)}"] == hidden
    assert len(kept) > 2000
    assert b"[hidden]" in kept[-1]
    assert json.loads(done.out)["hidden"] == done.manifest["hidden_count"]


def test_a_log_that_begins_later_is_a_gap(fake: FakeApi, collect: Any) -> None:
    """Rotated: what is left begins after the stall did."""
    job(fake, 2)
    late = AT + timedelta(seconds=660)
    fake.logs["train-0", "trainer"] = text(stories.timeouts(0, 1, late))
    fake.logs["train-1", "trainer"] = text(stories.steps(1, 1, AT, 30))
    done = collect("train")
    why = done.missing["the beginning of the log of train-0/trainer"]
    assert "it begins at 2026-08-20T03:21:00" in why
    assert "rotated away" in why


def test_what_is_not_there_by_the_deadline_is_named(fake: FakeApi, collect: Any) -> None:
    """The rest is kept."""
    job(fake, 3)
    fake.odd.append(lambda path, _: Said(hold_s=20) if "train-2/log" in path else None)
    done = collect("train", "--deadline", "3s")
    assert 3 == done.code
    assert "log of train-2/trainer" in done.missing
    assert b"step" in done.log("train-1")


def test_a_bundle_is_taken_up_again(fake: FakeApi, collect: Any) -> None:
    """What is there with its hash is not fetched twice; what was changed or missing is."""
    job(fake, 3)
    fake.odd.append(lambda path, _: failure(404) if "train-2/log" in path else None)
    first = collect("train")
    assert "log of train-2/trainer" in first.missing
    fake.odd.clear()
    changed = first.place / "namespaces/ml/pods/train-1/trainer/trainer/logs/current.log"
    changed.write_bytes(b"")
    fake.asked.clear()
    second = collect("train")
    assert [f"{PODS}/train-{n}/log" for n in (1, 2)] == sorted(
        path for path, _ in fake.asked if path.endswith("/log")
    )
    assert first.manifest["captured_at"] == second.manifest["captured_at"]
    assert "log of train-2/trainer" not in second.missing
    assert b"step" in second.log("train-1")


def test_a_folder_with_something_else_is_left_alone(
    fake: FakeApi, collect: Any, tmp_path: Path
) -> None:
    """Never written into."""
    job(fake)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("...")
    done = collect("train", to="mine")
    assert 4 == done.code
    assert "is not empty and holds no bundle" in done.err
    assert "" == done.out


@pytest.mark.parametrize("content", [b"my notes\n", b"\x28\xb5\x2f\xfd broken"])
@pytest.mark.parametrize("command", ["collect", "triage"])
def test_a_file_of_somebody_is_not_overwritten(
    fake: FakeApi,
    fake_kubeconfig: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    command: str,
    content: bytes,
) -> None:
    """Text, or an archive that cannot be read: refused as a folder is, and nothing is left beside it."""
    job(fake)
    place = tmp_path / "notes.tar.zst"
    place.write_bytes(content)
    option = "--to" if command == "collect" else "--save"
    assert 4 == main([command, "train", "-n", "ml", option, str(place), "--kubeconfig", str(fake_kubeconfig)])  # fmt: skip
    told = capsys.readouterr()
    assert "is there already and is no bundle of ours" in told.err
    assert "" == told.out
    assert content == place.read_bytes()
    assert [place] == [one for one in tmp_path.iterdir() if "notes" in one.name]


def test_a_packed_bundle_of_another_attempt_is_not_overwritten(fake: FakeApi, collect: Any) -> None:
    """Last night's evidence stays; a second look at the same pods may take its place."""
    job(fake)
    first = collect("train", to="b.tar.gz")
    again = collect("train", to="b.tar.gz")
    assert (first.code, again.code) == (3, 3), again.err
    kept = first.place.read_bytes()
    for listed in fake.collections[PODS]:
        listed["metadata"]["uid"] += "-next"
    other = collect("train", to="b.tar.gz")
    assert 4 == other.code
    assert "holds a bundle of other pods" in other.err
    assert kept == first.place.read_bytes()


def test_an_empty_file_may_be_filled(fake: FakeApi, collect: Any, tmp_path: Path) -> None:
    """As an empty folder: what `mktemp` made holds nothing."""
    job(fake)
    (tmp_path / "made.tar.gz").touch()
    assert 3 == collect("train", to="made.tar.gz").code


@pytest.mark.parametrize("name", ["bundle.tar.gz", "bundle.tar.zst"])
def test_one_file_says_the_same(
    fake: FakeApi, collect: Any, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A packed bundle reads as the folder does."""
    job(fake)
    folder, packed = collect("train"), collect("train", to=name)
    assert packed.place.is_file()
    assert not list(packed.place.parent.glob(".bundle*")), "nothing is left beside it"
    if name.endswith("gz"):
        with tarfile.open(packed.place) as archive:
            assert sorted(archive.getnames()) == archive.getnames()
    found = []
    for place in (folder.place, packed.place):
        main(["triage", str(place), "-o", "json", "--as-of", "2026-08-20T03:11:00Z"])
        found.append(json.loads(capsys.readouterr().out) | {"target": None})
    assert json.dumps(found[0]) == json.dumps(found[1])


def test_live_and_replayed_are_equal_byte_for_byte(
    fake: FakeApi, fake_kubeconfig: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """But for the target; gaps of the gathering among the missing evidence of both."""
    job(fake, 3)
    fake.odd.append(lambda path, _: failure(404) if "train-2/log" in path else None)
    place = tmp_path / "saved.tar.zst"
    config = ["--kubeconfig", str(fake_kubeconfig), "--save", str(place)]
    main(["triage", "train", "-n", "ml", "-o", "json", *config])
    live = capsys.readouterr().out
    main(["triage", str(place), "-o", "json"])
    again = capsys.readouterr().out
    first, second = json.loads(live), json.loads(again)
    assert {"kind": "job", "name": "train", "namespace": "ml"} == first["target"]
    assert {"kind": "bundle", "name": "saved.tar.zst", "namespace": "ml"} == second["target"]
    assert live.replace(
        json.dumps(first["target"], indent=2).replace("\n", "\n  "), "T"
    ) == again.replace(json.dumps(second["target"], indent=2).replace("\n", "\n  "), "T")
    assert "log of train-2/trainer" in {one["what"] for one in first["missing_evidence"]}


def test_numbers_of_the_settings_file_go_into_the_bundle(
    fake: FakeApi,
    fake_kubeconfig: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A tired person types nothing but the job; without the file the bundle tells the same."""
    job(fake, 3)
    context = yaml.safe_load(fake_kubeconfig.read_text())["current-context"]
    file = tmp_path / "config" / "gpufleet" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(f'[contexts."{context}"]\ncheckpoint_interval = "17m"\ngpus_per_node = 1\n')
    place = tmp_path / "saved"
    reports = []
    for folder, target in (
        (file.parents[1], ["train", "-n", "ml"]),
        (tmp_path / "none", [str(place)]),
    ):
        monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))
        live = (
            ["--kubeconfig", str(fake_kubeconfig), "--save", str(place)] if len(target) > 1 else []
        )
        main(["triage", *target, "-o", "json", *live])
        reports.append(json.loads(capsys.readouterr().out) | {"target": None})
    assert reports[0] == reports[1]
    assert 17 * 60 == reports[0]["job"]["checkpoint_interval_seconds"]


def test_interrupted_keeps_what_was_had(
    fake: FakeApi, collect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the middle of the logs: exit 130, a bundle that says so, and can be gone on with."""
    job(fake, 3)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    from gpufleet_cli.live import sources
    from gpufleet_cli.live.gather import Sources

    found = Sources(beside=(), after=(interrupt,))
    monkeypatch.setattr(sources, "sources_for", lambda *_: found)
    done = collect("train")
    assert 130 == done.code
    assert "interrupted" == done.missing["the rest of the evidence"]
    assert not done.manifest["complete"]
    assert b"step" in done.log("train-1")
    assert 1 == done.out.count("\n")


@pytest.mark.parametrize("command", ["triage", "ranks"])
def test_interrupted_look_tells_what_it_has(
    command: str,
    fake: FakeApi,
    fake_kubeconfig: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Ctrl-C while a job is gathered: the report of what there is, then 130, not the verdict's status."""
    job(fake, 3)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    from gpufleet_cli.live import sources
    from gpufleet_cli.live.gather import Sources

    monkeypatch.setattr(sources, "sources_for", lambda *_: Sources(beside=(), after=(interrupt,)))
    status = main(
        [command, "train", "-n", "ml", "-o", "json", "--kubeconfig", str(fake_kubeconfig)]
    )
    out, err = capsys.readouterr()
    assert 130 == status
    assert json.loads(out)
    assert "gpufleet: interrupted" == err.splitlines()[-1]


def test_dumps_of_a_folder_or_a_prefix(
    fake: FakeApi,
    collect: Any,
    fake_kubeconfig: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A mounted place is named as torch's own setting names it, or by its folder, `~` too; doctor agrees."""
    job(fake)
    monkeypatch.setenv("HOME", str(tmp_path))
    kept = tmp_path / "run7"
    kept.mkdir()
    for name in ("rank_0", "rank_1", "other_0"):
        (kept / name).write_bytes(b"\x80\x04}." + name.encode())
    for number, (place, names) in enumerate(
        ((f"{kept}/rank_", {"rank_0", "rank_1"}), ("~/run7", {"rank_0", "rank_1", "other_0"}))
    ):
        done = collect("train", "--dumps", place, to=f"bundle{number}")
        assert {f"dumps/{name}" for name in names} == {
            one for one in done.manifest["files"] if one.startswith("dumps/")
        }
        main(["doctor", "--dumps", place, "-o", "json", "--kubeconfig", str(fake_kubeconfig)])
        assert f"{len(names)} files now" in capsys.readouterr().out
    nothing = collect("train", "--dumps", f"{kept}/none_", to="bundle2")
    assert (4, True) == (nothing.code, "no such folder of Flight Recorder dumps" in nothing.err)


def test_a_root_that_is_read_only_holds_no_dump(fake: FakeApi, collect: Any) -> None:
    """Said as the reason, once the file was looked for; `/dev/shm` may be written all the same."""
    env = {"TORCH_FR_DUMP_TEMP_FILE": "/dumps/rank_", "NODE_RANK": "0"}
    job(fake, 2, env=env)
    for one in fake.collections[PODS]:
        one["spec"]["containers"][0]["securityContext"] = {"readOnlyRootFilesystem": True}
        fake.files[one["metadata"]["name"], "trainer"] = {}
    fake.collections[PODS][1]["spec"]["containers"][0]["env"] = [
        {"name": "TORCH_FR_DUMP_TEMP_FILE", "value": "/dev/shm/rank_"},
        {"name": "NODE_RANK", "value": "1"},
    ]
    missing = collect("train").missing
    assert "read-only by the pod's spec" in missing["Flight Recorder dump of rank 0"]
    assert "no such file" in missing["Flight Recorder dump of rank 1"]


def test_dumps_of_agents_that_sort_themselves(fake: FakeApi, collect: Any) -> None:
    """No log tells a rank: each pod is asked for the files that the order of host names would give it."""
    env = {"TORCH_FR_DUMP_TEMP_FILE": "/dumps/rank_", "PET_RDZV_BACKEND": "c10d"}
    args = ["torchrun", "--nproc-per-node=2", "train.py"]
    for index in (2, 10):
        name = f"t-{index}"
        pod = fake_api.pod(name, labels={"job": "t"}, node=name, gpus=2, env=env, args=args)
        fake.add(PODS, pod)
        fake.logs[name, "trainer"] = b"2026-08-20T03:10:00Z loading\n"
        first = 0 if index == 10 else 2
        fake.files[name, "trainer"] = {
            f"/dumps/rank_{rank}": f"dump of {rank}".encode() for rank in (first, first + 1)
        }
    done = collect("-l", "job=t", "-n", "ml")
    dumps = done.place / "dumps"
    assert [f"dump of {rank}" for rank in range(4)] == [
        (dumps / f"nccl_trace_rank_{rank}").read_text() for rank in range(4)
    ]


@pytest.mark.parametrize("sorts", [False, True])
def test_capture_where_no_log_tells_a_rank(fake: FakeApi, collect: Any, sorts: bool) -> None:
    """Agents that sort themselves are asked by the order of their host names; else it is said whom nobody asked."""
    env = {"TORCH_FR_DUMP_TEMP_FILE": "/d/rank_", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": "/d/pipe_"}
    env |= {"PET_RDZV_BACKEND": "c10d"} if sorts else {}
    now = datetime.now(UTC) - timedelta(seconds=20)
    for name in ("t-0", "t-1"):
        pod = fake_api.pod(name, labels={"job": "t"}, node=name, env=env, args=["train.sh"])
        fake.add(PODS, pod)
        fake.logs[name, "trainer"] = f"{now:%Y-%m-%dT%H:%M:%SZ} loading\n".encode()
    missing = collect("-l", "job=t", "-n", "ml", "--capture").missing
    if sorts:
        assert "the image has no test" in missing["fresh dump of rank 1"]
    else:
        assert "no log or setting tells the ranks" in missing["fresh dumps of t-0, t-1"]
    assert any(what.startswith("Python stacks of t-0") for what in missing)


def test_the_server_is_told_with_its_version(fake: FakeApi, collect: Any) -> None:
    """Which programs made the bundle, and which server it was made from."""
    job(fake)
    manifest = collect("train").manifest
    assert ("v1.34.4", {"gpufleet", "python"}) == (
        manifest["server_version"],
        set(manifest["tools"]),
    )


@pytest.mark.parametrize(
    ("option", "typed", "code", "told"),
    [
        ("--prometheus", "prometheus:9090", 2, "no http or https URL and no service"),
        ("--prometheus", "svc:monitoring", 2, "svc:NAMESPACE/NAME:PORT"),
        ("--log-store", "https://loki", 2, "loki+URL or victorialogs+URL"),
        ("--log-store", "loki+nowhere", 2, "no http or https URL"),
        ("--kernel-logs", "/no/such/folder", 4, "no such folder of kernel logs"),
        ("--dumps", "exec:relative_", 2, "an absolute path in the container"),
        ("--dumps", "ftp2://x/y", 2, "ftp2"),
        ("--dumps", "/no/such/folder", 4, "no such folder of Flight Recorder dumps"),
    ],
)
def test_a_slip_in_a_place_costs_no_look(
    fake: FakeApi, collect: Any, option: str, typed: str, code: int, told: str
) -> None:
    """Said before anything is asked of the cluster; out of the environment it costs its own source alone."""
    job(fake)
    done = collect("train", option, typed)
    assert (code, "") == (done.code, done.out)
    assert told in done.err
    assert [] == fake.asked


def test_a_wrong_place_in_the_environment_is_a_gap(
    fake: FakeApi, collect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is of all jobs: the look goes on without that source."""
    job(fake)
    del fake.logs["train-1", "trainer"]
    for variable in ("GPUFLEET_PROMETHEUS", "GPUFLEET_LOG_STORE", "GPUFLEET_DUMPS"):
        monkeypatch.setenv(variable, "/nowhere")
    done = collect("train")
    assert 3 == done.code, done.err
    missing = done.missing
    assert "no http or https URL" in missing["metrics of the GPUs"]
    assert "names no log store" in missing["logs of 1 pods that the cluster did not give"]
    assert "no such folder" in missing["Flight Recorder dumps in /nowhere"]
    monkeypatch.setenv("GPUFLEET_DUMPS", "exec:relative_")
    assert (
        "no absolute path" in collect("train", to="b").missing["Flight Recorder dumps of all ranks"]
    )
    monkeypatch.setenv("GPUFLEET_DUMPS", "s3://me:secret@bucket/x")
    assert "credentials do not belong" in str(collect("train", to="c").missing)


def test_a_place_that_cannot_be_reached_is_a_gap(fake: FakeApi, collect: Any) -> None:
    """It is no slip: the look goes on without it, and is not held up before it has begun."""
    job(fake)
    done = collect("train", "--dumps", "ftp://127.0.0.1:9/run7/rank_")
    assert 3 == done.code, done.err
    assert any("ftp://127.0.0.1:9/run7/rank_" in what for what in done.missing)


def test_one_file_of_another_kind_is_refused(fake: FakeApi, collect: Any) -> None:
    """A folder called incident.zip would be a surprise."""
    job(fake)
    for name in ("incident.zip", "incident.tar"):
        done = collect("train", to=name)
        assert (2, False) == (done.code, done.place.exists())
        assert "--to" in done.err
        assert "one file is written as .tar.gz or .tar.zst" in done.err
