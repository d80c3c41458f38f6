"""The command line: exit codes, streams, options on either side, and what is not imported."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpufleet_cli import cli
from gpufleet_cli.commands.options import merged, one_of
from gpufleet_cli.errors import ExitCode, UsageError
from gpufleet_cli.settings import Settings, parse_duration, wants_color, wants_unicode

ROOT = Path(__file__).parents[1]
HEAVY = ("kubernetes", "httpx", "yaml", "fsspec", "msgspec", "re2", "zstandard", "dateutil", "rich")


def run(
    *arguments: str, stdin: bytes = b"", **environment: str
) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "gpufleet_cli", *arguments]
    env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(
        command, input=stdin, capture_output=True, env=env, check=False, timeout=120
    )


def log_lines(ranks: int = 2) -> str:
    """A job that trains: enough for any command to have something to say."""
    return "".join(
        f"2026-03-11T03:41:{second:02}.000Z [rank{rank}]: step: {100 + second} loss: 2.31\n"
        for second in range(30)
        for rank in range(ranks)
    )


@pytest.fixture
def incident(tmp_path: Path) -> Path:
    folder = tmp_path / "incident"
    folder.mkdir()
    (folder / "job.log").write_text(log_lines(), encoding="utf-8")
    return folder


AS_A_SCRIPT = "from gpufleet_cli.entry import main\nmain()\n"


def test_code_in_the_working_folder_is_not_run(tmp_path: Path) -> None:
    """Who stands in the evidence and triages `.` runs nothing of it, in no process of ours."""
    folder, ran = tmp_path / "incident", tmp_path / "ran"
    shutil.copytree(ROOT / "fixtures" / "cases" / "fr" / "fr-01-dataloader-stall-8", folder)
    for module in ("struct", "signal", "multiprocessing"):
        (folder / f"{module}.py").write_text(f"open({str(ran)!r}, 'a').write('x')\n")
    script = tmp_path / "script" / "gpufleet.py"
    script.parent.mkdir()
    script.write_text(AS_A_SCRIPT, encoding="utf-8")
    env = {k: v for k, v in os.environ.items() if k != "PYTHONSAFEPATH"}
    done = subprocess.run(
        [sys.executable, script, "triage", "."],
        cwd=folder,
        env={**env, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert b"rank-missing" in done.stdout
    assert not ran.exists()


# --- Exit codes and streams -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [["nonsense"], ["triage"], ["triage", "--nonsense"], ["triage", ".", "-o", "toml"],
     ["ranks", ".", "-o", "yaml"], ["triage", ".", "--brief", "-o", "json"],
     ["triage", ".", "--world-size", "many"], ["triage", ".", "--world-size", "0"],
     ["triage", ".", "--restart", "soon"], ["triage", ".", "--as-of", "yesterday-ish"],
     ["triage", ".", "--state", "tired"], ["explain", "."], ["explain", ".", "--rank", "-1"],
     ["--deadline", "never", "triage", "."], ["xid"], ["xid", "no such thing"]],
)  # fmt: skip
def test_usage_is_two(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """One line on stderr, nothing on stdout."""
    assert cli.main(arguments) == ExitCode.USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("gpufleet: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("output", ["text", "json", "yaml", "markdown", "html"])
@pytest.mark.parametrize("target", ["./nowhere", "/dev/null", "no-such-job", "job/no-such-job"])
def test_unreadable_target_is_four(
    target: str, output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line on stderr, nothing on stdout, whatever the format."""
    assert cli.main(["triage", target, "-o", output]) == ExitCode.UNREADABLE
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert target in err


def test_name_that_is_no_path_names_both_looks(capsys: pytest.CaptureFixture[str]) -> None:
    """A job is looked for on disk and in the cluster."""
    cli.main(["triage", "train-run-7"])
    err = capsys.readouterr().err
    assert "no such file or folder" in err
    assert "no kubeconfig" in err


def test_selector_means_a_live_job(capsys: pytest.CaptureFixture[str], incident: Path) -> None:
    """With -l the target is never on disk."""
    assert cli.main(["triage", "-l", "app=train", str(incident)]) == ExitCode.UNREADABLE
    assert "no kubeconfig" in capsys.readouterr().err


def test_hostile_target_is_shown_harmlessly(capsys: pytest.CaptureFixture[str]) -> None:
    """What somebody typed reaches stderr without its escapes."""
    cli.main(["triage", "./x\x1b[31m\n\u202e"])
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert not [char for char in err if not char.isprintable() and char != "\n"]


def test_secret_in_a_target_is_hidden(capsys: pytest.CaptureFixture[str]) -> None:
    """Errors are pasted into chats."""
    cli.main(["triage", "./https://me:hunter2@example.com/x"])
    assert "hunter2" not in capsys.readouterr().err


def test_interrupt_is_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C ends in one line, without a traceback."""
    _break_xid(monkeypatch, KeyboardInterrupt())
    assert cli.main(["xid"]) == ExitCode.INTERRUPTED
    assert capsys.readouterr().err.count("\n") == 1


def _break_xid(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Make the look-up fail in a way that only a bug of ours or a person can."""

    def xid(*, code: str = "", settings: Settings) -> None:
        raise error

    monkeypatch.setattr(cli, "COMMANDS", (xid,))


def test_fault_of_ours_is_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line that says what and where; without state no log is written."""
    _break_xid(monkeypatch, KeyError("x\x1b[31m"))
    assert cli.main(["xid"]) == ExitCode.INTERNAL
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "a fault in gpufleet itself: KeyError" in err
    assert "\x1b" not in err
    assert not list(Path(os.environ["XDG_CACHE_HOME"]).rglob("*"))


def test_fault_leaves_a_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With versions and traceback, ready to be pasted, without secrets."""
    monkeypatch.delenv("GPUFLEET_NO_STATE")
    _break_xid(monkeypatch, ValueError("password=hunter2"))
    assert cli.main(["xid"]) == ExitCode.INTERNAL
    (log,) = (Path(os.environ["XDG_CACHE_HOME"]) / "gpufleet").iterdir()
    text = log.read_text(encoding="utf-8")
    assert str(log) in capsys.readouterr().err
    assert "Traceback" in text
    assert "typer" in text
    assert "hunter2" not in text


def test_closed_pipe_is_no_error(incident: Path) -> None:
    """`gpufleet ranks x | head -1`."""
    command = (
        f"{sys.executable} -m gpufleet_cli xid 79 | head -c 1 >/dev/null; echo ${{PIPESTATUS[0]}}"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, env=env, check=False, timeout=60
    )
    assert done.stdout == b"0\n"
    assert done.stderr == b""


# --- Reading targets ------------------------------------------------------------------------------


def test_commands_answer_in_text_and_json(
    incident: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each of them, with one document on stdout."""
    for command in (["triage"], ["ranks"], ["dumps"], ["explain", "--rank", "0"]):
        assert cli.main([*command, str(incident)]) in (0, 3)
        assert capsys.readouterr().out
        assert cli.main([*command, str(incident), "-o", "json"]) in (0, 3)
        assert json.loads(capsys.readouterr().out)["schema"].startswith("gpufleet.")


def test_a_rank_that_the_job_does_not_have(
    incident: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the size of the world is known: one line, and no card of nobody."""
    assert cli.main(["explain", str(incident), "--rank", "24", "--world-size", "24"]) == 2
    told = capsys.readouterr()
    assert "" == told.out
    assert "--rank 24: the ranks of this job are 0 to 23" in told.err
    assert cli.main(["explain", str(incident), "--rank", "23", "--world-size", "24"]) == 0


def test_pasted_text_is_a_target(incident: Path) -> None:
    """Read from standard input, with the verdict of the same text on disk."""
    done = run("triage", "-", "-o", "json", stdin=log_lines().encode())
    assert done.returncode in (0, 3)
    assert json.loads(done.stdout)["target"]["name"] == "standard-input"


def test_empty_folder_is_undecidable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing singles anybody out: exit 3, with a report that says what is missing."""
    assert cli.main(["triage", str(tmp_path), "-o", "json"]) == ExitCode.UNDECIDABLE
    report = json.loads(capsys.readouterr().out)
    assert report["verdict"]["kind"] == "undecidable"
    assert report["verdict"]["culprits"] == []


def test_same_input_same_bytes(incident: Path) -> None:
    """In another process, with another hash seed, in another zone."""
    one = run("triage", str(incident), "-o", "json", PYTHONHASHSEED="1", TZ="UTC")
    two = run("triage", str(incident), "-o", "json", PYTHONHASHSEED="2", TZ="America/St_Johns")
    assert one.stdout == two.stdout != b""


def test_flags_reach_the_report(incident: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A flag wins, and the report says that it was one."""
    cli.main(
        [
            "triage",
            str(incident),
            "-o",
            "json",
            "--world-size",
            "16",
            "--checkpoint-interval",
            "30m",
        ]
    )
    job = json.loads(capsys.readouterr().out)["job"]
    assert (job["world_size"], job["world_size_source"]) == (16, "flag")
    assert job["checkpoint_interval_seconds"] == 1800.0


def test_time_without_zone_is_said(incident: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Never guess silently."""
    cli.main(["triage", str(incident), "--as-of", "2026-03-11 04:00:00", "-o", "json"])
    out, err = capsys.readouterr()
    assert "taken as UTC" in err
    assert json.loads(out)["as_of"] == "2026-03-11T04:00:00Z"


def test_reading_writes_nothing(incident: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not beside the evidence, and with GPUFLEET_NO_STATE=1 nowhere."""
    before = {path: path.stat().st_mtime_ns for path in incident.rglob("*")}
    cli.main(["triage", str(incident)])
    capsys.readouterr()
    assert before == {path: path.stat().st_mtime_ns for path in incident.rglob("*")}
    assert not list(Path(os.environ["XDG_CACHE_HOME"]).rglob("*"))


# --- Options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments", [["-o", "json", "xid", "79"], ["xid", "79", "-o", "json"], ["xid", "-ojson", "79"],
                  ["--output=json", "xid", "79"], ["-o", "text", "xid", "79", "-o", "json"]],
)  # fmt: skip
def test_global_options_stand_on_either_side(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """What stands behind the command wins."""
    assert cli.main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["xid"] == 79


@pytest.mark.parametrize("arguments", [["--version"], ["triage", "--version"]])
def test_version(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Before or behind the command."""
    assert cli.main(arguments) == 0
    assert capsys.readouterr().out == "gpufleet 0.1.0\n"


@pytest.mark.parametrize("arguments", [[], ["-n", "ml"], ["-o", "json"]])
def test_no_command_and_no_cluster(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing typed and no kubeconfig: one line that says what can be done without one."""
    assert cli.main(arguments) == ExitCode.UNREADABLE
    out, err = capsys.readouterr()
    assert ("", 1) == (out, err.count("\n"))
    assert "no kubeconfig" in err
    assert "gpufleet triage FOLDER" in err
    assert cli.main(["--help"]) == 0
    assert "Usage: gpufleet" in capsys.readouterr().out


def test_the_page_of_commands_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """Every command says what it does in one line of an 80 column terminal, with nothing cut off."""
    assert cli.main(["--help"]) == 0
    page = capsys.readouterr().out
    listed = page.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    assert len(listed) == len(cli.COMMANDS) + len(cli.GROUPS)
    assert [] == [line for line in listed if line.endswith("...") or len(line) > 80]


@pytest.mark.parametrize("command", [*cli.COMMANDS, *cli.GROUPS])
def test_arguments_are_shown_as_they_are_typed(
    command: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """One pair of brackets where something may be left out, and no type of Python."""
    assert cli.main([cli.name_of(command), "--help"]) == 0
    page = capsys.readouterr().out
    usage = page.partition("\n\n")[0]
    assert not any(odd in usage for odd in ("[[", "]]", "]...", "{"))
    assert "<str>" not in page
    assert "<list[" not in page


def test_later_options_win() -> None:
    """And what was not said later stays."""
    before = Settings(output="json", namespace="a", deadline_s=5.0)
    after = Settings(output="text", verbose=True, deadline_s=0.0)
    assert merged(before, after) == Settings(
        output="text", namespace="a", verbose=True, deadline_s=0.0
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90s", 90), ("30m", 1800), ("0.5m", 30), ("5h", 18_000), ("2d", 172_800), ("1h30m", 5400),
     ("60", 60), ("0.418", 0.418), ("250ms", 0.25), (" 5m ", 300)],
)  # fmt: skip
def test_durations(text: str, expected: float) -> None:
    """As people write them."""
    assert parse_duration(text, "--x") == pytest.approx(expected)


@pytest.mark.parametrize(
    "text", ["", "m", "5x", "-5s", "1e9", "5 m", "nan", "inf", "5m5", "\u0665s"]
)
def test_odd_durations_are_refused(text: str) -> None:
    """Never guessed."""
    with pytest.raises(UsageError, match="--x"):
        parse_duration(text, "--x")


def test_one_of_names_what_there_is() -> None:
    """The hint lists the choices."""
    with pytest.raises(UsageError) as caught:
        one_of("toml", ("text", "json"))
    assert "text, json" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_color(
    environment: dict[str, str], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal that can show it, unless NO_COLOR or --no-color says otherwise."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert wants_color(Settings(), is_terminal=True) is expected
    assert not wants_color(Settings(), is_terminal=False)
    assert not wants_color(Settings(no_color=True), is_terminal=True)


@pytest.mark.parametrize(
    ("environment", "encoding", "expected"),
    [({"LANG": "en_US.UTF-8"}, "utf-8", True), ({"LANG": "C.UTF-8"}, "UTF-8", True),
     ({"LANG": "C"}, "utf-8", False), ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, "utf-8", False),
     ({"LC_ALL": "POSIX"}, "utf-8", False), ({"LC_ALL": "de_DE.utf8"}, "utf-8", True),
     ({"LANG": "de_DE.UTF-8@euro"}, "utf-8", True),
     ({"LANG": "en_US.ISO-8859-1"}, "iso-8859-1", False), ({"TERM": "dumb"}, "utf-8", False),
     ({"LANG": "C.UTF-8"}, "ascii", False), ({"LANG": "C.UTF-8"}, None, False)],
)  # fmt: skip
def test_symbols_go_by_the_locale(
    environment: dict[str, str],
    encoding: str | None,
    expected: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A plain terminal gets ASCII."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert wants_unicode(encoding) is expected


@pytest.mark.parametrize(
    "environment", [{"LC_ALL": "C"}, {"TERM": "dumb"}, {"PYTHONIOENCODING": "ascii"}, {"LANG": "C"}],
)  # fmt: skip
def test_plain_terminal_gets_ascii(incident: Path, environment: dict[str, str]) -> None:
    """All the way through."""
    done = run("triage", str(incident), **environment)
    assert done.returncode in (0, 3)
    assert done.stdout.isascii()


# --- What is imported -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments", [["--help"], ["xid", "79"], ["triage", "--help"], ["--version"]]
)
def test_quick_answers_import_nothing_heavy(arguments: list[str]) -> None:
    """No client library, and none of our parsers and rules."""
    code = (
        "import json, sys\n"
        "from gpufleet_cli.entry import main\n"
        f"sys.argv[1:] = {arguments!r}\n"
        "main()\n"
        "json.dump(sorted(sys.modules), sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, cwd=ROOT, check=True, timeout=60
    )
    loaded = json.loads(done.stderr)
    assert not [name for name in loaded if name.split(".")[0] in HEAVY]
    inside = (
        "parsers",
        "reason",
        "rules",
        "bundle",
        "triage",
        "weigh",
        "facts",
        "sources",
        "operate",
    )
    assert not [
        name for name in loaded if name.startswith(tuple(f"gpufleet_cli.{part}" for part in inside))
    ]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["xid", "79"], "xid"),
        (["-n", "triage", "node", "x"], "node"),
        (["--history", "cost", "-v", "cost", "mtbf"], "cost"),
        (["--namespace=train", "xid"], None),
        (["--help", "xid"], None),
        (["-h"], None),
        (["--nothing", "xid"], None),
        (["xidd"], None),
        (["-n"], None),
        ([], None),
    ],
)
def test_one_command_is_built_only_where_it_is_certain(
    arguments: list[str], expected: str | None
) -> None:
    """A value that is called as a command is a value; whatever is unclear is for Typer to say."""
    assert expected == cli.meant(arguments)


def test_entry_script_imports_nothing_at_its_top() -> None:
    """Completion will be answered there before anything else is loaded."""
    text = (ROOT / "gpufleet_cli" / "entry.py").read_text(encoding="utf-8")
    assert not [line for line in text.splitlines() if line.startswith(("import", "from"))]


def test_kubectl_plugin_says_its_name(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """`kubectl gpufleet --help` shows what to type."""
    monkeypatch.setattr(sys, "argv", ["/usr/local/bin/kubectl-gpufleet"])
    assert cli.main(["--help"]) == 0
    assert "Usage: kubectl gpufleet" in capsys.readouterr().out


@pytest.mark.parametrize("output", ["text", "json", "yaml", "markdown", "html"])
def test_hostile_evidence_comes_out_harmless(tmp_path: Path, output: str) -> None:
    """Escapes, markup, direction marks and secrets in lines and names, through the whole program."""
    bad = "\x1b[31m\x1b]0;t\x07\x9b2J\u202e[red]<script>alert(1)</script>`id` token=hf_abcdefghijklmnopqrstuv"
    lines = log_lines().splitlines()
    lines += [
        f"2026-03-11T03:51:{rank:02}Z [rank{rank}]: RuntimeError: CUDA error: {bad}"
        for rank in range(2)
    ]
    folder = tmp_path / "x\x1b[31m\n"
    folder.mkdir()
    (folder / "pod-\x1b[2J\n\u202e<b>.log").write_text("\n".join(lines), encoding="utf-8")
    (folder / "\x07junk").write_bytes(b"\x00\x01\x02" + bad.encode())
    for extra in ([], ["-v"] if output == "text" else []):
        done = run("triage", str(folder), "-o", output, *extra)
        assert done.returncode in (0, 3), done.stderr
        for text in (done.stdout.decode(), done.stderr.decode()):
            assert not [char for char in text if not char.isprintable() and char != "\n"]
            assert "hf_abcdefghijklmnop" not in text
        if output in ("html", "markdown"):
            assert b"<script" not in done.stdout
