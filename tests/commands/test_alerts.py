"""`gpufleet alerts` from its options alone: the file, its two forms, where numbers came from, and bad input."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from servers import programs
from servers.fixtures import require

from gpufleet_cli import xid_catalog
from gpufleet_cli.cli import main
from gpufleet_cli.operate.alerts import xid

Output = pytest.CaptureFixture[str]
NUMBERS = ("--step-seconds", "0.418", "--checkpoint-interval", "30m", "--watchdog-timeout", "10m")
GIVEN = ("alerts", "train-run-7", "-n", "train", "--match", 'job_id="run7"', "--pods", "train-run-7-.+", *NUMBERS)  # fmt: skip
NOT_BY_DEFAULT = ("PCIE_LINK_WIDTH", "ROW_REMAP_PENDING", "THERMAL_VIOLATION", "POWER_VIOLATION", "CLOCKS_EVENT_REASONS")  # fmt: skip


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing here may find one."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))


def printed(capsys: Output, *arguments: str) -> str:
    assert main(list(arguments)) == 0
    return capsys.readouterr().out


def rules_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [rule for group in document["groups"] for rule in group["rules"]]


def checked(folder: Path, text: str) -> None:
    """promtool takes the file."""
    require("promtool")
    promtool = str(programs.find("promtool"))
    path = folder / "rules.yaml"
    path.write_text(text, encoding="utf-8")
    run = subprocess.run([promtool, "check", "rules", str(path)], capture_output=True, text=True, check=False)  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    assert "duplicate" not in run.stdout + run.stderr


def test_promtool_takes_the_file(capsys: Output, tmp_path: Path) -> None:
    """As YAML and as JSON, which is YAML, and both say the same."""
    as_yaml = printed(capsys, *GIVEN)
    as_json = printed(capsys, *GIVEN, "-o", "json")
    checked(tmp_path, as_yaml)
    checked(tmp_path, as_json)
    assert yaml.safe_load(as_yaml) == json.loads(as_json)
    assert as_yaml.startswith("# Alert rules of train-run-7 in train, by gpufleet ")
    assert "#   step time 0.418 s (flag)\n" in as_yaml


def test_every_rule_says_what_to_do(capsys: Output) -> None:
    """A severity, a command, plain words, what it was made from; and what it needs where that is no default."""
    for rule in rules_of(json.loads(printed(capsys, *GIVEN, "-o", "json"))):
        told = rule["annotations"]
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["labels"]["gpufleet_job"] == "train-run-7"
        assert told["command"].startswith("gpufleet ")
        assert "train-run-7" in told["summary"]
        assert "step time 0.418 s (flag)" in told["made_from"]
        needs = any(field in rule["expr"] for field in NOT_BY_DEFAULT)
        assert needs == ("needs" in told), rule["alert"]


def test_the_operators_object(capsys: Output, tmp_path: Path) -> None:
    """A name that the API server takes, the job's namespace, the same groups."""
    text = printed(capsys, *GIVEN, "--kind", "PrometheusRule")
    told = yaml.safe_load(text)
    assert ("monitoring.coreos.com/v1", "PrometheusRule") == (told["apiVersion"], told["kind"])
    assert {"name": "gpufleet-train-run-7", "namespace": "train"}.items() <= told[
        "metadata"
    ].items()
    assert told["spec"] == yaml.safe_load(printed(capsys, *GIVEN))
    checked(tmp_path, yaml.safe_dump(told["spec"]))
    long = printed(capsys, "alerts", "jobset/A" + "b._" * 50, *NUMBERS, "--kind", "PrometheusRule")
    assert re.fullmatch(r"[a-z0-9-]{1,63}", yaml.safe_load(long)["metadata"]["name"])


def test_every_code_has_its_disposition(capsys: Output) -> None:
    """A code of the catalogue is in the rule of its disposition and in no other; `watch` takes what is left."""
    by_disposition = {
        rule["labels"]["disposition"]: set(
            re.findall(r'"xid", "([0-9|]+)"', rule["expr"])[0].split("|")
        )
        for rule in rules_of(json.loads(printed(capsys, *GIVEN, "-o", "json")))
        if rule["alert"] == "GpufleetXid"
    }
    kept_out = by_disposition.pop("watch")
    assert set(by_disposition) == {"evict-now", "cordon-at-checkpoint", "fix-app"}
    assert "79" in by_disposition["evict-now"]
    for code in xid_catalog.codes():
        disposition = xid_catalog.xid(code).disposition
        for name, listed in by_disposition.items():
            assert (str(code) in listed) == (name == disposition)
        assert (str(code) in kept_out) == (disposition != "watch")
    assert {row[0] for row in xid.TOLD} == {*by_disposition, "watch"}


def test_what_was_not_given_is_said(capsys: Output) -> None:
    """Pods and labels that go by the job's name are named as such, in the file and on standard error."""
    assert main(["alerts", "jobset/train-run-7", *NUMBERS]) == 0
    told = capsys.readouterr()
    assert '#   its own metrics pod=~"train-run-7-.+" (default' in told.out
    assert "its pods train-run-7-.+: default" in told.err
    assert "in every namespace" in told.err
    assert [] == [line for line in told.err.splitlines() if line.count(": ") > 2], (
        "one colon a line"
    )
    assert "gpufleet triage jobset/train-run-7" in told.out


@pytest.mark.parametrize(
    "missing", ["--step-seconds", "--checkpoint-interval", "--watchdog-timeout"]
)
def test_a_number_that_is_left_out_asks_the_cluster(missing: str, capsys: Output) -> None:
    """And where there is none, that is one line and 4."""
    at = GIVEN.index(missing)
    assert main([*GIVEN[:at], *GIVEN[at + 2 :]]) == 4
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines()[-1].endswith(f"give {missing}, and no cluster is asked)")


@pytest.mark.parametrize(
    "arguments",
    [
        ("alerts",),
        ("alerts", "x;y", *NUMBERS),
        ("alerts", "{{ .Value }}", *NUMBERS),
        ("alerts", "a/b/c", *NUMBERS),
        ("alerts", "x", "-l", "a=b", *NUMBERS),
        ("alerts", "x", "-n", 'a"b', *NUMBERS),
        (*GIVEN, "-o", "text"),
        (*GIVEN, "--kind", "ConfigMap"),
        (*GIVEN, "--step-seconds", "0"),
        (*GIVEN, "--step-seconds", "-1"),
        (*GIVEN, "--watchdog-timeout", "soon"),
        (*GIVEN, "--checkpoint-interval", "400d"),
        (*GIVEN, "--match", "job_id=run7"),
        (*GIVEN, "--match", 'a="b"} or vector(1) or up{x="y"'),
        (*GIVEN, "--pods", ".*"),
        (*GIVEN, "--pods", "("),
        (*GIVEN, "--last-step-metric", "a-b"),
        (*GIVEN, "--step-seconds-metric", "x{"),
    ],
)
def test_what_cannot_be_asked(arguments: tuple[str, ...], capsys: Output) -> None:
    """Exit 2, one line, nothing on standard output."""
    assert main(list(arguments)) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1, told.err


def test_hostile_words_stay_words(capsys: Output, tmp_path: Path) -> None:
    """Quotes, templates, comments and line ends of YAML in a matcher and a context reach nothing but their place."""
    evil = 'x"}) or vector(1) # {{ .Labels }} \\\\ : - & *'
    typed = "job_id=" + json.dumps(evil)
    context = "a b'; rm -rf / {{ $value }}\n- alert: x"
    text = printed(capsys, *GIVEN[:4], "--match", typed, *NUMBERS, "--context", context)
    checked(tmp_path, text)
    found = rules_of(yaml.safe_load(text))
    assert {rule["alert"] for rule in found} == {
        rule["alert"] for rule in rules_of(yaml.safe_load(printed(capsys, *GIVEN)))
    }
    for rule in found:
        for word in rule["annotations"].values():
            assert "{{ .Labels" not in word
            assert "{{ $value }}\n" not in word


def test_milliseconds_are_read_as_such(capsys: Output) -> None:
    """A metric whose name says so has its limit in them."""
    text = printed(capsys, *GIVEN, "--step-seconds-metric", "megatron_training_step_duration_ms")
    assert "> 493.24\n" in text
    assert "> 0.49324\n" in printed(capsys, *GIVEN)
