"""`gpufleet doctor --dumps s3://...`: the place is listed once, and what is there is told from what is the job's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gpufleet_cli.cli import main
from live.fake_api import FakeApi
from live.test_collect import job
from live.test_object_dumps import SECRET, Start, dump, s3, serving  # noqa: F401  s3 is a fixture

fsspec = pytest.importorskip("fsspec", reason="pip install '.[object-store]'")

FOUR = {f"run7/rank_{rank}": dump(rank) for rank in (0, 1, 5, 7)}


@pytest.fixture
def doctor(fake_kubeconfig: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """`doctor(location, *arguments)`: what is said of the dumps."""

    def run(location: str, *arguments: str) -> dict[str, Any]:
        way = ["--kubeconfig", str(fake_kubeconfig), "--dumps", location, "-o", "json"]
        main(["doctor", *arguments, *way])
        said = capsys.readouterr()
        assert SECRET not in said.out + said.err
        every = json.loads(said.out)["sources"]
        found: dict[str, Any] = next(one for one in every if one["source"] == "dumps")
        return found

    return run


def test_which_files_are_the_jobs(s3: Start, fake: FakeApi, doctor: Any) -> None:  # noqa: F811
    """Below its number of ranks, and written since its attempt began; without a job by names alone."""
    job(fake, 3)
    s3({**FOUR, "run7/rank_1.tmp": b"", "run8/rank_0": b""})
    found = doctor("s3://dumps/run7/rank_", "train")
    told = "s3://dumps/run7/rank_ (--dumps): reachable; 2 of 3 ranks have a dump of this attempt"
    assert (True, told, "") == (found["ok"], found["what"], found["would_lack"])
    found = doctor("s3://dumps/run7/rank_")
    assert found["what"].startswith(
        "s3://dumps/run7/rank_ (--dumps): reachable; dumps of 4 ranks by their names, the newest of 20"
    )
    began = datetime.now(UTC) + timedelta(hours=1)  # as if the files had lain there an hour
    for pod in fake.collections["/api/v1/namespaces/ml/pods"]:
        pod["metadata"]["creationTimestamp"] = f"{began:%Y-%m-%dT%H:%M:%SZ}"
    found = doctor("s3://dumps/run7/rank_", "train")
    assert "0 of 3 ranks have a dump of this attempt, 2 only an older one" in found["what"]


def test_nothing_there_by_daylight_is_well(s3: Start, fake: FakeApi, doctor: Any) -> None:  # noqa: F811
    """No dump is written before a timeout; the place answers, and that is said."""
    job(fake, 2)
    s3({})
    found = doctor("s3://dumps/run7/rank_", "train")
    assert (True, "") == (found["ok"], found["would_lack"])
    assert "reachable; nothing there begins so now" in found["what"]


def test_without_credentials(s3: Start, doctor: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """What to set is said, and what tonight would lack."""
    s3({})
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1")
    found = doctor("s3://dumps/run7/rank_")
    assert (False, "s3://dumps/run7/rank_ (--dumps): no credentials") == (
        found["ok"],
        found["what"],
    )
    assert found["action"].startswith("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
    assert found["would_lack"].startswith("Flight Recorder dumps")


@pytest.mark.parametrize(
    ("location", "more", "said"),
    [
        ("s3://elsewhere/rank_", {}, "404 Not Found: NoSuchBucket"),
        ("s3://dumps/rank_", {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, "127.0.0.1:1"),
        ("s3://me:" + SECRET + "@dumps/rank_", {}, "credentials do not belong into the location"),
        ("nowhere://dumps/rank_", {}, "nowhere"),
    ],
)  # fmt: skip
def test_what_does_not_answer(
    s3: Start,  # noqa: F811
    doctor: Any,
    monkeypatch: pytest.MonkeyPatch,
    location: str,
    more: Mapping[str, str],
    said: str,
) -> None:
    """In the store's own words, and never with the secret."""
    s3({})
    for name, value in more.items():
        monkeypatch.setenv(name, value)
    found = doctor(location)
    assert not found["ok"]
    assert said in found["what"], found


def test_a_place_that_cannot_be_listed(fake: FakeApi, doctor: Any) -> None:
    """Behind a prefix the names are certain, and it may be well; a folder is lost. It is asked once."""
    from http.server import BaseHTTPRequestHandler

    job(fake, 2)
    asked: list[str] = []

    class Closed(BaseHTTPRequestHandler):
        def do_PROPFIND(self) -> None:
            asked.append(self.path)
            self.send_response(403)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with serving(Closed) as url:
        found = doctor(f"{url}/run7/rank_", "train")
        assert 1 == len(asked)
        folder = doctor(f"{url}/run7/", "train")
    assert (True, True) == (found["ok"], found["would_lack"].startswith("perhaps Flight Recorder"))
    assert "it cannot be listed" in found["what"]
    assert "each rank's file is asked for by its name" in found["what"]
    assert (False, True) == (folder["ok"], "prefix before the rank's number" in folder["action"])


def test_another_place_that_fsspec_knows(fake: FakeApi, doctor: Any, tmp_path: Path) -> None:
    """A folder by URL."""
    job(fake, 2)
    (tmp_path / "rank_0").write_bytes(dump(0))
    found = doctor(f"file://{tmp_path}/rank_", "train")
    assert found["what"].endswith("reachable; 1 of 2 ranks have a dump of this attempt")
