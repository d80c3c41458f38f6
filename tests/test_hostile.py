"""Hostile and broken input through the whole program: it costs its own part, is named, and is harmless.

Most runs are in this process (`cli.main`), which is what the installed command calls; what depends on
processes, signals or streams runs as one.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import shlex
import signal
import socket
import struct
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from gpufleet_cli import cli
from gpufleet_cli.facts import MOST_RANKS

ROOT = Path(__file__).parents[1]
SCHEMA = Draft202012Validator(
    json.loads((ROOT / "gpufleet_cli/schema/triage-v1.schema.json").read_text(encoding="utf-8"))
)
CASE = ROOT / "fixtures/cases/fr/fr-03-size-mismatch-dp-8"
EVIL = (
    "\x1b[31m\x1b]0;t\x07\x9b2J\u202e\u2066[red]x[/red]<script>alert(1)</script>"
    "`reboot`$(reboot)|a|*b*\x85\u2028"
)
FORMATS = (["-o", "text"], ["-v"], ["-o", "json"], ["-o", "yaml"], ["-o", "markdown"],
           ["-o", "html"], ["--brief"])  # fmt: skip
SECRETS = (
    "AKIAIOSFODNN7EXAMPLE",
    "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "hf_abcdefghijklmnopqrstuvwxyz",
    "hunter2secret",
    "MIIEpAIBAAKCAQEA0Z3VS5JJcds3xfnygeDZKZWu7rWbRYmLhGTeYpmAnWgYBqQs",
)


def log(ranks: int = 4, seconds: int = 30) -> str:
    """A job that trains."""
    return "".join(
        f"2026-03-11T03:41:{second:02}.000Z [rank{rank}]: step: {100 + second} loss: 2.31\n"
        for second in range(seconds)
        for rank in range(ranks)
    )


def timeout_of(rank: int) -> str:
    return (
        f"2026-03-11T03:51:19Z [rank{rank}]:[E311 03:51:19.100000000 ProcessGroupNCCL.cpp:607]"
        f" [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9,"
        " OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600100"
        " milliseconds before timing out.\n"
    )


def shown(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """(exit status, standard output) of a command that may find anything but a fault of ours."""
    code = cli.main([str(one) for one in arguments])
    out, err = capsys.readouterr()
    assert "fault in gpufleet" not in out + err
    assert not [char for char in out + err if not char.isprintable() and char != "\n"]
    assert err.count("\n") <= 1
    if code in (2, 4):
        assert out == ""
    return code, out


def report_of(capsys: pytest.CaptureFixture[str], target: Path, *more: str) -> dict[str, Any]:
    """The JSON report, strict and by the schema."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    code, out = shown(capsys, "triage", target, "-o", "json", *more)
    report: dict[str, Any] = json.loads(out, parse_constant=refuse)
    assert [error.message for error in SCHEMA.iter_errors(report)] == []
    assert code == (3 if report["verdict"]["kind"] == "undecidable" else 0)
    return report


def missing(report: dict[str, Any]) -> str:
    return json.dumps(report["missing_evidence"])


def incident(folder: Path) -> Path:
    """Eight ranks with dumps, logs and a topology; rank 3 is the odd one."""
    for source in sorted(CASE.rglob("*")):
        if source.is_file() and source.name != "case.json":
            copy = folder / source.relative_to(CASE)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(source.read_bytes())
    return folder


# --- Pickles --------------------------------------------------------------------------------------


def two(body: bytes) -> bytes:
    return b"\x80\x02" + body


def shared(depth: int) -> bytes:
    """Lists that hold the one before twice: two to the power of depth when walked."""
    body = b"]q\x00"
    for level in range(depth):
        body += b"]q%c(h%ch%ce" % (level + 1, level, level)
    return body


PICKLES = {
    "global-reduce": b"cos\nsystem\n(S'touch pwned'\ntR.",
    "stack-global": b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x0btouch pwned\x85R.",
    "inst": b"(S'touch pwned'\nios\nsystem\n.",
    "obj": b"(cos\nsystem\nS'touch pwned'\no.",
    "build": two(b"}}X\x01\x00\x00\x00aK\x01sb."),
    "newobj": two(b"cbuiltins\nobject\n)\x81."),
    "extension": two(b"\x82\x01."),
    "persistent-id": two(b"K\x01Q."),
    "memo-index": two(b"Nr" + struct.pack("<I", 500_000_000) + b"."),
    "memo-text": b"Np500000000\n.",
    "nested-lists": b"(" * 300_000 + b"l" * 300_000 + b".",
    "nested-tuples": two(b"N" + b"\x85" * 500_000 + b"."),
    "nested-in-a-field": two(
        b"}X\x07\x00\x00\x00entries]}X\x0e\x00\x00\x00profiling_name" + b"N" + b"\x85" * 99_999 + b"sas."
    ),
    "large-int": two(b"\x8b" + struct.pack("<i", 1_000_000) + b"\x7f" * 1_000_000 + b"."),
    "int-text": b"I" + b"9" * 500_000 + b"\n.",
    "length-lie": b"\x80\x04\x8e" + struct.pack("<Q", 1 << 62) + b"abc.",
    "frame-lie": b"\x80\x04\x95" + struct.pack("<Q", 1 << 60) + b"N.",
    "exponential": two(shared(60) + b"."),
    "holds-itself": two(b"}q\x00X\x07\x00\x00\x00entries]h\x00as."),
    "no-entries": two(b"}X\x07\x00\x00\x00entriesK\x05s."),
    "empty": b"",
    "cut": b"\x80\x02}q\x00(X\x07\x00\x00\x00entri",
    "junk": bytes(range(256)) * 40,
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(PICKLES))
def test_hostile_dump_costs_itself(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named, nothing is run, and the other seven still say what happened."""
    folder = incident(tmp_path / "incident")
    (folder / "dumps/nccl_trace_rank_0").write_bytes(PICKLES[name])
    monkeypatch.chdir(tmp_path)
    report = report_of(capsys, folder)
    assert "nccl_trace_rank_0" in missing(report)
    assert [culprit["rank"] for culprit in report["verdict"]["culprits"]] == [3]
    assert not (tmp_path / "pwned").exists()


def test_hostile_dumps_among_many(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In worker processes the same: each is named, the rest is read, nothing goes to stderr."""
    sound = pickle.loads((CASE / "dumps/nccl_trace_rank_1").read_bytes())
    for config in sound["pg_config"].values():
        config["ranks"] = str(list(range(80)))
    for rank in range(80):
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(sound, protocol=2))
    bad = {5: "memo-index", 20: "global-reduce", 40: "large-int", 60: "exponential", 79: "junk"}
    for rank, name in bad.items():
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(PICKLES[name])
    report = report_of(capsys, tmp_path)
    assert {rank for rank in range(80) if f'dumps of rank {rank}"' in missing(report)} == set()
    assert all(f"nccl_trace_rank_{rank}" in missing(report) for rank in bad)
    assert report["job"]["world_size"] == 80


def test_values_of_wrong_types_in_every_field(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A field that is bent costs its dump or nothing, never the run."""
    loop: list[object] = []
    loop.append(loop)
    values = [None, -1, 10**30, float("nan"), [1], {"a": 1}, b"\xff", EVIL, True, loop]
    first = pickle.loads((CASE / "dumps/nccl_trace_rank_0").read_bytes())
    folder = incident(tmp_path / "incident")
    for key in first["entries"][0]:
        for rank, value in enumerate(values):
            bent = {**first, "entries": [{**entry, key: value} for entry in first["entries"]]}
            (folder / f"dumps/nccl_trace_rank_{rank}").write_bytes(pickle.dumps(bent, protocol=2))
        report_of(capsys, folder)
    shown(capsys, "dumps", folder)
    shown(capsys, "explain", folder, "--rank", 1)


def test_ranks_that_no_job_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A million members, or one rank of 10**12 in a name, make no report of a million rows."""
    sound = pickle.loads((CASE / "dumps/nccl_trace_rank_1").read_bytes())
    (tmp_path / "nccl_trace_rank_1000000000000").write_bytes(pickle.dumps(sound, protocol=2))
    (tmp_path / "nccl_trace_rank_9999999").write_bytes(pickle.dumps(sound["entries"], protocol=2))
    for config in sound["pg_config"].values():
        config["ranks"] = str(list(range(1_000_000)))
    (tmp_path / "nccl_trace_rank_2").write_bytes(pickle.dumps(sound, protocol=2))
    (tmp_path / "job.log").write_text(
        log() + "2026-03-11T03:41:40Z [rank100000]: step: 1 loss: 1\n"
        "h:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 999999999 cudaDev 0 busId 1000 - Init COMPLETE\n",
        encoding="utf-8",
    )
    report = report_of(capsys, tmp_path)
    assert len(report["ranks"]) <= 16
    assert all(name in missing(report) for name in ("nccl_trace_rank_9999999", "nccl_trace_rank_2"))


def test_nobody_is_healthy_by_a_few_dumps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where most dumps cannot be read, the few that can prove no health."""
    calm = ROOT / "fixtures/cases/fr/fr-05-healthy-midflight-8/dumps"
    for dump in sorted(calm.iterdir()):
        (tmp_path / dump.name).write_bytes(dump.read_bytes() if dump.name[-1] in "01" else b"\0")
    assert report_of(capsys, tmp_path)["verdict"]["kind"] == "undecidable"


def test_nobody_is_blamed_for_a_dump_that_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rank 1 is innocent: that others wait where its dump is broken proves nothing against it. Rank 3,
    which waits there too, called another size than all others of its role."""
    for dump in sorted((CASE / "dumps").iterdir()):
        content = dump.read_bytes()
        (tmp_path / dump.name).write_bytes(content[:99] if dump.name[-1] == "1" else content)
    verdict = report_of(capsys, tmp_path)["verdict"]
    assert "collective-mismatch" == verdict["kind"]
    assert [3] == [culprit["rank"] for culprit in verdict["culprits"]]


# --- Archives, folders, targets -------------------------------------------------------------------


def tar_of(*members: tuple[str, bytes] | tarfile.TarInfo, mode: str = "w") -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode=mode) as archive:  # type: ignore[call-overload]
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                archive.addfile(info, io.BytesIO(member[1]))
    return held.getvalue()


def special(name: str, kind: bytes, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def test_archive_that_climbs_links_and_nests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every member that is refused is named, and the sound one is read."""
    line = log().encode()
    content = tar_of(
        ("../../up.log", line), ("/abs.log", line), (f"{EVIL}.log", line), ("ok.log", line),
        special("soft", tarfile.SYMTYPE, "/etc/passwd"), special("hard", tarfile.LNKTYPE, "../x"),
        special("device", tarfile.CHRTYPE), special("pipe", tarfile.FIFOTYPE),
        ("inner.tar", tar_of(("x.log", line))), ("ok.log", line),
        mode="w:gz",
    )  # fmt: skip
    (tmp_path / "a.tar.gz").write_bytes(content)
    (tmp_path / "cut.tar.gz").write_bytes(content[: len(content) // 2])
    report = report_of(capsys, tmp_path)
    for name in ("up.log", "abs.log", "soft", "hard", "device", "pipe", "inner.tar", "ok.log"):
        assert f"a.tar.gz/{name}" in missing(report) or name in ("up.log", "abs.log")
        assert name in missing(report)
    assert "cut.tar.gz" in missing(report)
    assert report["job"]["last_step"] == 129


def test_bombs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Kilobytes that unpack to gigabytes are named and cost neither time nor memory."""
    (tmp_path / "job.log").write_text(log(), encoding="utf-8")
    (tmp_path / "b.log.gz").write_bytes(gzip.compress(bytes(200 << 20), compresslevel=9))
    with zipfile.ZipFile(tmp_path / "b.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("z.log", bytes(200 << 20))
    report = report_of(capsys, tmp_path)
    assert "b.log" in missing(report)
    assert "z.log" in missing(report)
    assert report["job"]["last_step"] == 129


def test_damaged_beginnings_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A packed file of which nothing can be unpacked looks empty, and is not the same."""
    heads = {"a.gz": b"\x1f\x8b\x08", "b.zst": b"\x28\xb5\x2f\xfd", "c.xz": b"\xfd7zXZ\x00"}
    for name, head in heads.items():
        (tmp_path / name).write_bytes(head + b"\xff" * 100)
    (tmp_path / "empty.log").write_bytes(b"")
    said = missing(report_of(capsys, tmp_path))
    assert all(name in said for name in (*heads, "empty.log"))
    assert said.count("corrupt") + said.count("cut short") == 3


def test_folder_of_special_files_and_evil_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pipes, sockets and links out are named and not opened; names do no harm in any format."""
    folder = tmp_path / "x\x1b[31m\n$(id)<b>"
    folder.mkdir()
    os.mkfifo(folder / "pipe.log")
    (folder / "loop").symlink_to("loop")
    (folder / "self").symlink_to(".")
    (folder / "out.log").symlink_to("/etc/passwd")
    names = (
        EVIL.replace("/", ""),
        "a;reboot",
        "$(reboot)",
        "--help",
        "-rf",
        "[red]x",
        "<img src=x>",
    )
    for name in names:
        (folder / f"{name}.log").write_text(log(), encoding="utf-8")
    Path(os.fsdecode(os.fsencode(folder) + b"/bad\xff\xfe.log")).write_text(log(), encoding="utf-8")
    with socket.socket(socket.AF_UNIX) as server:
        (tmp_path / "s").symlink_to(folder)  # a socket's path may have 108 bytes at most
        server.bind(os.path.relpath(tmp_path / "s" / "sock"))
        said = missing(report_of(capsys, folder))
    assert all(name in said for name in ("pipe.log", "sock", "loop", "out.log"))
    for more in FORMATS:
        code, out = shown(capsys, "triage", folder, *more)
        assert code in (0, 3)
        assert "<script" not in out if more[-1] in ("html", "markdown") else True
        assert "<img" not in out if more[-1] == "html" else True


@pytest.mark.parametrize(
    "target", ["./nowhere", "/dev/null", "/dev/zero", "./a\nb\x1b[31m", "./" + "x" * 5000, ""]
)
def test_target_that_cannot_be_read(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line, exit 4, from every command."""
    for command in (["triage"], ["ranks"], ["dumps"], ["explain", "--rank", "1"]):
        assert shown(capsys, *command, target)[0] == 4


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_target_without_read_rights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder is no better than a file."""
    (tmp_path / "a.log").write_text(log(), encoding="utf-8")
    tmp_path.chmod(0)
    assert shown(capsys, "triage", tmp_path)[0] == 4
    tmp_path.chmod(0o700)


def test_file_of_the_kernel_does_not_block(capsys: pytest.CaptureFixture[str]) -> None:
    """/proc/kmsg has no size, waits for the next message, and forgets the ones that were read."""
    if not Path("/proc/kmsg").exists() or not os.access("/proc/kmsg", os.R_OK):
        pytest.skip("no /proc/kmsg here")
    assert shown(capsys, "triage", "/proc/kmsg")[0] in (3, 4)


# --- Text -----------------------------------------------------------------------------------------

TEXTS = {
    "escapes": log().replace("loss", f"{EVIL} loss").encode(),
    "binary": bytes(range(256)) * 400,
    "nul": bytes(1_000_000),
    "nul-between": log().replace(" ", "\0").encode(),
    "utf-16": log().encode("utf-16"),
    "latin-1": log().replace("loss", "l\xe4ss").encode("latin-1"),
    "crlf": log().replace("\n", "\r\n").encode(),
    "one-line": b"(" * 3_000_000,
    "blanks": b"\n" * 300_000,
    "year-0": log().replace("2026", "0000").encode(),
    "year-9999": log().replace("2026-03-11", "9999-12-31").encode(),
    "numbers": f"2026-03-11T03:41:00Z [rank1]: step: {'9' * 400} loss: 1e400\n[rank{'9' * 400}]: x\n".encode()
    + timeout_of(1).replace("600000", "9" * 400).replace("SeqNum=9", f"SeqNum={'9' * 400}").encode(),
    "json-depth": b'{"log":' + b"[" * 50_000 + b"]" * 50_000 + b"}\n",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_broken_text(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In every format, beside a sound log that is still read."""
    (tmp_path / "bad.log").write_bytes(TEXTS[name])
    (tmp_path / "good.log").write_text(log(), encoding="utf-8")
    report = report_of(capsys, tmp_path)
    assert report["files"]["read"] + report["files"]["not_understood_count"] == 2
    if name in ("binary", "nul", "one-line", "blanks"):
        assert "bad.log" in missing(report)
    for more in FORMATS:
        assert shown(capsys, "triage", tmp_path, *more)[0] in (0, 3)


DOCUMENTS = {
    "pods.json": b'{"kind":"PodList","apiVersion":"v1","items":null}',
    "deep.json": b'{"kind":"List","items":' + b"[" * 200_000,
    "digits.json": b'{"kind":"PodList","apiVersion":"v1","items":[{"kind":"Pod","metadata":{"name":"p"},'
    b'"status":{"containerStatuses":[{"restartCount":' + b"9" * 5000 + b"}]}}]}",
    "nan.json": b'{"kind":"PodList","apiVersion":"v1","items":[null,1,"x",{"kind":"Pod","metadata":'
    b'{"name":"p","creationTimestamp":NaN},"status":null,"spec":{"containers":[null]}}]}',
    "xid.json": b'{"status":"success","data":{"resultType":"matrix","result":[null,{"metric":null},'
    b'{"metric":{"__name__":"DCGM_FI_DEV_XID_ERRORS","gpu":"0"},"values":[null,[1],["x","y"],'
    b'[1e308,"NaN"],[-1,"79"],[1773200000,"+Inf"]]}]}}',
    "bomb.yaml": b"apiVersion: v1\nkind: List\nitems:\n- &a [x,x,x,x,x,x,x,x,x]\n"
    + b"".join(b"- &%c [%s]\n" % (at + 1, b",".join([b"*%c" % at] * 9)) for at in range(97, 110)),
    "tag.yaml": b"kind: Pod\napiVersion: v1\nmetadata: !!python/object/apply:os.system ['touch pwned']\n",
    "topology.json": json.dumps(
        {"world_size": 10**18, "dmesg_boot_epoch": {EVIL: [1]},
         "ranks": [None, 1, {"rank": "x"}, {"rank": -1}, {"rank": 10**12}, {"rank": True},
                   {"rank": "2", "pod": 5, "node": EVIL}, {"rank": 0}, {"rank": 0, "pod": "b"}]}
    ).encode(),
    "job.json": json.dumps(dict.fromkeys(
        ("name", "namespace", "world_size", "state", "checkpoint_interval_seconds", "step_seconds",
         "last_checkpoint_at", "watchdog_timeout_seconds", "restart_seconds"), float("inf")
    )).encode(),
}  # fmt: skip


def test_broken_documents(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them in one folder: each is listed, and what is wrong in it is said."""
    monkeypatch.chdir(tmp_path)
    for name, content in DOCUMENTS.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "good.log").write_text(log(), encoding="utf-8")
    report = report_of(capsys, tmp_path)
    assert report["files"]["read"] == len(DOCUMENTS) + 1
    assert report["job"]["last_step"] == 129
    assert report["job"]["world_size"] == 4
    said = missing(report)
    for name in ("deep.json", "digits.json", "bomb.yaml", "topology.json", "job.json"):
        assert name in said
    assert not (tmp_path / "pwned").exists()
    for more in FORMATS:
        shown(capsys, "triage", tmp_path, *more)


def test_one_file_that_breaks_a_batch_costs_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug of ours in a parser that takes all logs at once leaves the other logs their facts."""
    from gpufleet_cli.parsers import log_workers, training_log

    def breaks(files: Any, *, near_ns: int | None = None) -> Any:
        if files[-1].path == "bad.log":
            raise IndexError("a bug")
        return read(files, near_ns=near_ns)

    read = training_log.parse_stream
    monkeypatch.setattr(log_workers.training_log, "parse_stream", breaks)
    for name in ("bad.log", "good.log"):
        (tmp_path / name).write_text(log(), encoding="utf-8")
    assert cli.main(["triage", str(tmp_path), "-o", "json"]) in (0, 3)
    report = json.loads(capsys.readouterr().out)
    assert report["job"]["last_step"] == 129
    assert "a fault in gpufleet (IndexError" in missing(report)


def test_file_that_needs_too_much_memory(tmp_path: Path) -> None:
    """It costs itself: three bytes of JSON take seventy in memory. In a process of its own: what a long
    test run has freed would serve as memory that the limit does not see."""
    (tmp_path / "pods.json").write_bytes(
        b'{"kind":"PodList","apiVersion":"v1","items":[' + b"[]," * 3_000_000 + b"[]]}"
    )
    (tmp_path / "good.log").write_text(log(), encoding="utf-8")
    program = (
        "import sys; from gpufleet_cli import cli; from gpufleet_cli.reason import summary;"
        " summary.FILE_MEMORY = 64 << 20; sys.exit(cli.main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "triage", str(tmp_path), "-o", "json"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "GPUFLEET_NO_STATE": "1"},
        capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    report = json.loads(done.stdout)
    assert [error.message for error in SCHEMA.iter_errors(report)] == []
    assert done.returncode == (3 if report["verdict"]["kind"] == "undecidable" else 0)
    assert "memory" in missing(report)
    assert report["job"]["last_step"] == 129


def test_long_line_of_json_takes_little_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pattern that keeps a way back for each character takes a hundred times the line."""
    from gpufleet_cli.parsers import log_workers

    monkeypatch.setattr(log_workers, "MEMORY_BYTES", 200 << 20)
    entry = {"log": "x" * 5_000_000 + "\n", "stream": "stdout", "time": "2026-03-11T03:41:00Z"}
    (tmp_path / "job.log").write_text(f"{json.dumps(entry)}\n" * 3, encoding="utf-8")
    assert "memory" not in missing(report_of(capsys, tmp_path))


def test_secrets_are_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In lines, in the middle of a private key, in names of pods and files; in every output."""
    access, secret, github, hub, password, body = SECRETS
    lines = (
        f"aws_access_key_id={access} aws_secret_access_key={secret}",
        f"git clone https://x:{github}@example.com/a HF_TOKEN={hub} password={password}",
        "-----BEGIN RSA PRIVATE KEY-----",
        body,
    )
    text = log() + "".join(
        f"2026-03-11T03:42:{second:02}Z [rank1]: RuntimeError: CUDA error: {line}\n"
        for second, line in enumerate(lines[:3])
    )
    text += f"2026-03-11T03:42:30Z [rank3]: {body}\n"
    text += "".join(timeout_of(rank) for rank in (0, 2))
    (tmp_path / "job.log").write_text(text, encoding="utf-8")
    (tmp_path / f"password={password}.bin").write_bytes(b"\0\1\2" * 99)
    (tmp_path / "topology.json").write_text(
        json.dumps({"ranks": [{"rank": rank, "pod": f"p token={hub}"} for rank in range(4)]}),
        encoding="utf-8",
    )
    commands = [["triage", *more] for more in FORMATS]
    commands += [["ranks"], ["ranks", "-o", "json"], ["explain", "--rank", "3", "-o", "json"]]
    for command in commands:
        _, out = shown(capsys, command[0], tmp_path, *command[1:])
        assert [one for one in SECRETS if one in out] == []


@pytest.mark.parametrize(
    "name",
    ["$(reboot)", "`id`", "a;reboot", "a'b", "a b", "--help", "-oProxyCommand=id", "*", EVIL],
)
def test_names_in_commands_mean_nothing_to_a_shell(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Quoting does not help against a name that is an option: such a command is not printed."""
    (tmp_path / "job.json").write_text(
        json.dumps({"name": name, "namespace": name, "state": "aborted"}), encoding="utf-8"
    )
    ranks = [
        {"rank": rank, "pod": f"{name}-{rank}", "node": name, "pci_bus_id": f"0000:{rank}e:00.0"}
        for rank in range(4)
    ]
    (tmp_path / "topology.json").write_text(json.dumps({"ranks": ranks}), encoding="utf-8")
    text = log() + "".join(timeout_of(rank) for rank in (0, 2, 3))
    (tmp_path / "job.log").write_text(text, encoding="utf-8")
    report = report_of(capsys, tmp_path)
    for command in report["recommendation"]["commands"]:
        words = shlex.split(command["run"])
        assert not {"$(reboot)", "`id`", "a;reboot", "-oProxyCommand=id"} & set(words)
        assert name not in words or not name.startswith("-")
    for more in FORMATS:
        shown(capsys, "triage", tmp_path, *more)


# --- The process ----------------------------------------------------------------------------------


def command(*arguments: object, **more: Any) -> subprocess.Popen[bytes]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "GPUFLEET_NO_STATE": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "gpufleet_cli", *map(str, arguments)], env=env,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more},
    )  # fmt: skip


def test_interrupt_while_workers_read(tmp_path: Path) -> None:
    """Ctrl-C reaches every process of the terminal: one line, no traceback of any of them."""
    for name in range(400):
        (tmp_path / f"rank_{name}.log").write_text(log() * 300, encoding="utf-8")
    process = command(
        "triage", tmp_path, start_new_session=True,
        # A shell starts what runs in its background with the signal ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    if not children.exists():
        process.kill()
        pytest.skip("no /proc/PID/task/TID/children here")
    while process.poll() is None and not children.read_text(encoding="ascii").split():
        time.sleep(0.01)
    time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, b"", b"gpufleet: interrupted\n")


@pytest.mark.parametrize(
    ("shell", "code"),
    [("triage {} >&-", 3), ("triage - <&-", 4), ("triage {} -o json | head -1", 3),
     ("triage {} >/dev/full", 4), ("triage ./nowhere 2>/dev/full", 4), ("triage ./nowhere 2>&-", 4)],
)  # fmt: skip
def test_streams_that_are_closed_or_full(tmp_path: Path, shell: str, code: int) -> None:
    """No fault of ours: the exit status says what there is to say."""
    if "/dev/full" in shell and not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    (tmp_path / "a.log").write_text(log(), encoding="utf-8")
    line = (
        f"{shlex.quote(sys.executable)} -m gpufleet_cli {shell.format(shlex.quote(str(tmp_path)))}"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT), "GPUFLEET_NO_STATE": "1"}
    done = subprocess.run(
        ["bash", "-c", f"{line}; exit ${{PIPESTATUS[0]}}"], capture_output=True, env=env,
        check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert b"fault in gpufleet" not in done.stderr
    assert b"Traceback" not in done.stderr


def test_numbers_of_the_command_line_are_bounded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A world of 10**18 ranks is a slip of the finger, not a report of so many rows."""
    (tmp_path / "a.log").write_text(log(), encoding="utf-8")
    assert shown(capsys, "triage", tmp_path, "--world-size", MOST_RANKS + 1)[0] == 2
    assert shown(capsys, "triage", tmp_path, "--world-size", "9" * 400)[0] == 2
    for moment in ("1973-03-04T00:00:00Z", "9999-12-31T23:59:59.999999999Z", "99999999999"):
        report_of(capsys, tmp_path, "--as-of", moment)
