"""`gpufleet preflight`: exit status, JSON, the page, silence."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import preflight_mistakes as mistakes
import pytest

from gpufleet_cli.cli import main
from gpufleet_cli.render.layout import cell_width

GOOD = str(mistakes.GOOD / "jobset.yaml")


@pytest.fixture
def bad(tmp_path: Path) -> str:
    """A JobSet whose ranks restart alone."""
    documents = mistakes.good("jobset")
    mistakes.in_pod(restartPolicy="OnFailure")(documents)
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(documents), encoding="utf-8")
    return str(path)


def test_exit_status_and_json(bad: str, capsys: pytest.CaptureFixture[str]) -> None:
    """10 for a finding, 0 for none; no value of the document is empty."""
    assert main(["preflight", bad, GOOD, "-o", "json"]) == 10
    document = json.loads(capsys.readouterr().out)
    assert document["findings"][0]["id"] == "restart-policy"
    assert document["findings"][0]["severity"] == "warning"
    for one in document["findings"]:
        assert {"id", "severity", "message", "fix", "where"} <= set(one)
        assert all(one.values())
    assert [one["gpus"] for one in document["read"]] == [32, 32]
    assert main(["preflight", GOOD, "-o", "json"]) == 0


def test_silenced_with_a_reason(bad: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The gate opens, and the report counts and repeats it."""
    given = ["preflight", bad, "--ignore", "restart-policy=an experiment of two hours"]
    assert main([*given, "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["silenced_count"] == 1
    assert document["silenced"][0]["reason"] == "an experiment of two hours"
    assert main(given) == 0
    assert "1 silenced" in capsys.readouterr().out


def test_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What Helm prints."""
    data = io.BytesIO(Path(GOOD).read_bytes())
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=data, isatty=lambda: False))
    assert main(["preflight", "-", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["read"][0]["source"] == "stdin"


def test_nothing_to_read_is_4_and_bad_use_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Standard output stays empty, and one line says why."""
    other = tmp_path / "map.yaml"
    other.write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\n", encoding="utf-8")
    broken = tmp_path / "broken.yaml"
    broken.write_text("a: [", encoding="utf-8")
    for status, arguments in (
        (4, [str(other)]), (4, [str(broken)]), (4, ["./no-such.yaml"]), (4, [str(tmp_path / "none")]),
        (2, []), (2, [GOOD, "--ignore", "rdma"]), (2, [GOOD, "--ignore", "nonsense=x"]),
        (2, [GOOD, "-o", "html"]), (2, [GOOD, "-l", "app=x"]),
    ):  # fmt: skip
        assert main(["preflight", *arguments]) == status, arguments
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("\n") == 1


def test_a_file_that_cannot_be_read_beside_one_that_can_stands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A gate must not open because a template is broken; a folder gives its manifests."""
    (tmp_path / "a.yaml").write_text(Path(GOOD).read_text(encoding="utf-8"), encoding="utf-8")
    assert main(["preflight", str(tmp_path)]) == 0
    (tmp_path / "b.yaml").write_text("a: [", encoding="utf-8")
    assert main(["preflight", str(tmp_path)]) == 10
    assert "not-read" in capsys.readouterr().out


def test_the_page_fits_eighty_columns_worst_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With why, price, fix and place; values of secrets never."""
    documents = mistakes.good("job")
    for edit in (
        mistakes.replaced("--nnodes", None),
        mistakes.without_mount("/dev/shm"),
        mistakes.with_env("HF_TOKEN", "hf_AbCdEfGhIjKlMnOpQrStUvWxYz01234567"),
    ):
        edit(documents)
    path = tmp_path / ("long-name-" * 12 + ".json")
    path.write_text(json.dumps(documents), encoding="utf-8")
    assert main(["preflight", str(path), "-v"]) == 10
    page = capsys.readouterr().out
    assert max(map(cell_width, page.splitlines())) <= 80
    assert page.index("separate-worlds") < page.index("shared-memory") < page.index("recorder-pipe")
    for word in ("why ", "costs", "fix ", "at "):
        assert word in page
    assert "hf_AbC" not in page
