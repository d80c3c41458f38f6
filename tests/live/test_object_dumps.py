"""`--dumps s3://...`: read from a real S3 server, and from places that fsspec knows; what is not there is a gap."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from servers.object_store import ObjectStore

from gpufleet_cli.errors import UsageError
from gpufleet_cli.live import object_dumps, shared_files
from live.fake_api import FakeApi
from live.test_collect import job

fsspec = pytest.importorskip("fsspec", reason="pip install '.[object-store]'")
pytest.importorskip("obstore", reason="pip install '.[object-store]'")

Start = Callable[[Mapping[str, bytes]], ObjectStore]
SECRET = "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY"


def dump(rank: int) -> bytes:
    """A dump as torch writes it in JSON."""
    group = {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}
    return json.dumps({"version": "2.10", "pg_config": {"0": group}, "rank_here": rank}).encode()


@pytest.fixture
def s3(object_store: Start, monkeypatch: pytest.MonkeyPatch) -> Start:
    """`s3(objects)` starts a store, to which the usual variables lead."""

    def start(objects: Mapping[str, bytes]) -> ObjectStore:
        made = object_store(objects)
        monkeypatch.setenv("AWS_ENDPOINT_URL", made.url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        monkeypatch.setenv("AWS_REGION", made.region)
        return made

    return start


@pytest.fixture
def collect(
    fake: FakeApi, fake_kubeconfig: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Any:
    """`collect(location, *options)`: exit status, what is missing and why, the bundle, all that was said."""
    from gpufleet_cli.cli import main

    def run(location: str, *options: str) -> tuple[int, dict[str, str], Path, str]:
        place = tmp_path / "bundle"
        told = ["--to", str(place), "--kubeconfig", str(fake_kubeconfig), *options]
        code = main(["collect", "train", "--dumps", location, *told])
        said = capsys.readouterr()
        manifest = place / "manifest.json"
        missing = json.loads(manifest.read_text())["missing"] if manifest.exists() else ()
        return code, {one["what"]: one["why"] for one in missing}, place, said.out + said.err

    return run


def kept(place: Path) -> list[str]:
    return sorted(path.name for path in (place / "dumps").rglob("*"))


def test_the_dumps_of_the_jobs_ranks_alone(s3: Start, fake: FakeApi, collect: Any) -> None:
    """Prefix and number, as torch names them; another job's, a leftover and a rank too many stay there."""
    job(fake, 3)
    s3(
        {
            **{f"run7/rank_{rank}": dump(rank) for rank in (0, 2, 3, 10)},
            "run7/rank_1.tmp": b"half",
            "run7/rank_2_of_another": dump(2),
            "run7/older/rank_1": dump(1),
            "run8/rank_1": dump(1),
            "run7/aaa": b"",
            "run7/zzz": b"",
        }
    )
    code, missing, place, said = collect("s3://dumps/run7/rank_")
    assert 3 == code
    assert ["nccl_trace_rank_0", "nccl_trace_rank_2"] == kept(place)
    assert dump(2) == (place / "dumps/nccl_trace_rank_2").read_bytes()
    assert "not in s3://dumps/run7/rank_" == missing["Flight Recorder dump of rank 1"]
    assert not [what for what in missing if what.endswith(("rank 0", "rank 3", "rank 10"))]
    assert SECRET not in said + "".join(path.read_text("latin-1") for path in place.rglob("*.json"))


def test_a_folder_and_packed_files(s3: Start, fake: FakeApi, collect: Any) -> None:
    """A location that ends in `/`: the names tell the ranks; suffixes stay."""
    job(fake, 2)
    s3(
        {
            "run7/nccl_trace_rank_0.json": dump(0),
            "run7/comm_lib_trace_rank_1.json.gz": gzip.compress(dump(1)),
            "run7/config.yaml": b"a: 1",
        }
    )
    _, missing, place, _ = collect("s3://dumps/run7/")
    assert ["nccl_trace_rank_0.json", "nccl_trace_rank_1.json.gz"] == kept(place)
    assert not [what for what in missing if "Flight Recorder" in what]


def test_more_than_a_page(s3: Start, fake: FakeApi, collect: Any) -> None:
    """A store lists a thousand at a time."""
    job(fake, 2)
    others = {f"run7/rank_0-{n:04}": b"" for n in range(1100)}
    s3({**others, "run7/rank_0": dump(0), "run7/rank_1": dump(1)})
    _, _, place, _ = collect("s3://dumps/run7/rank_")
    assert ["nccl_trace_rank_0", "nccl_trace_rank_1"] == kept(place)


def test_nothing_there_is_one_line(s3: Start, fake: FakeApi, collect: Any) -> None:
    """A prefix that fits nothing is told once, not once a rank."""
    job(fake, 3)
    s3({"run7/rank_0": dump(0)})
    _, missing, _, _ = collect("s3://dumps/run8/rank_")
    assert (
        "nothing there begins so: s3://dumps/run8/rank_"
        == missing["Flight Recorder dumps of all ranks"]
    )
    assert not [what for what in missing if "of rank" in what]


def test_no_such_bucket(s3: Start, fake: FakeApi, collect: Any) -> None:
    """The store's own code, in one line."""
    job(fake, 2)
    s3({})
    _, missing, _, _ = collect("s3://elsewhere/rank_")
    assert "404 Not Found: NoSuchBucket" == missing["Flight Recorder dumps in s3://elsewhere/rank_"]


def test_an_endpoint_that_refuses(s3: Start, fake: FakeApi, collect: Any, monkeypatch: Any) -> None:
    """Named, without a traceback, and the rest is there."""
    job(fake, 2)
    s3({})
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    code, missing, place, _ = collect("s3://dumps/rank_")
    assert 3 == code
    assert "127.0.0.1:1" in missing["Flight Recorder dumps in s3://dumps/rank_"]
    assert list(place.rglob("current.log"))


def test_without_credentials(
    s3: Start, fake: FakeApi, collect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a machine of the cloud would be told any: what to set is said."""
    job(fake, 2)
    s3({})
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1")
    _, missing, _, _ = collect("s3://dumps/rank_")
    why = missing["Flight Recorder dumps in s3://dumps/rank_"]
    assert why.startswith("no credentials: set AWS_ACCESS_KEY_ID"), why


def test_files_of_an_earlier_attempt_are_left(
    s3: Start, fake: FakeApi, collect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing removes last week's: a file that was there before the pods were is not theirs."""
    job(fake, 2)
    began = datetime.now(UTC) + timedelta(hours=1)  # as if the files had lain there an hour
    for pod in fake.collections["/api/v1/namespaces/ml/pods"]:
        pod["metadata"]["creationTimestamp"] = f"{began:%Y-%m-%dT%H:%M:%SZ}"
    s3({"rank_0": dump(0), "rank_1": dump(1)})
    _, missing, place, _ = collect("s3://dumps/rank_")
    why = missing["Flight Recorder dump of rank 1"]
    assert f"put there before this one began at {began:%Y-%m-%dT%H:%M}" in why
    assert [] == kept(place)


def test_what_is_too_large_is_left(
    s3: Start, fake: FakeApi, collect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One file, and all of them together."""
    job(fake, 3)
    monkeypatch.setattr(object_dumps, "MOST_BYTES", 1 << 20)
    monkeypatch.setattr(object_dumps, "MOST_TOTAL", 1 << 20)
    s3({"rank_0": b"x" * (1 << 20), "rank_1": b"x", "rank_2": b"x" * (2 << 20)})
    _, missing, place, _ = collect("s3://dumps/rank_")
    assert ["nccl_trace_rank_0"] == kept(place)
    assert "all dumps together are over" in missing["Flight Recorder dump of rank 1"]
    assert "over 1 MB: not read" == missing["Flight Recorder dump of rank 2"]


def test_a_bundle_is_taken_up_again(fake: FakeApi, collect: Any, tmp_path: Path) -> None:
    """What is there is not read twice; what came since is."""
    job(fake, 2)
    store = fsspec.filesystem("memory")
    where = f"/{tmp_path.name}/rank_"
    store.pipe_file(f"{where}0", dump(0))
    collect(f"memory://{where}")
    store.pipe_file(f"{where}0", b"overwritten")
    store.pipe_file(f"{where}1", dump(1))
    _, missing, place, _ = collect(f"memory://{where}")
    assert dump(0) == (place / "dumps/nccl_trace_rank_0").read_bytes()
    assert dump(1) == (place / "dumps/nccl_trace_rank_1").read_bytes()
    assert not [what for what in missing if "Flight Recorder" in what]


def test_where_nothing_may_be_listed_each_rank_is_asked_for(
    fake: FakeApi, collect: Any, tmp_path: Path
) -> None:
    """Plain HTTP has no listing: the names of a job's ranks are certain all the same."""
    from http.server import BaseHTTPRequestHandler

    job(fake, 2)

    class Files(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path == "/run7/rank_1"
            body = dump(1) if found else b"<html>not here</html>"
            self.send_response(200 if found else 404)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Last-Modified", f"{datetime.now(UTC):%a, %d %b %Y %H:%M:%S GMT}")
            self.send_header("ETag", '"1"')
            self.end_headers()
            self.wfile.write(body)

        def do_PROPFIND(self) -> None:
            self.send_response(403)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with serving(Files) as url:
        _, missing, place, _ = collect(f"{url}/run7/rank_")
    assert ["nccl_trace_rank_1"] == kept(place), missing
    assert "no such file in the store" == missing["Flight Recorder dump of rank 0"]


def test_a_store_that_hangs_holds_nobody_up(fake: FakeApi, collect: Any) -> None:
    """What is not there by the deadline is named."""
    import time
    from http.server import BaseHTTPRequestHandler

    job(fake, 2)

    class Hangs(BaseHTTPRequestHandler):
        def do_PROPFIND(self) -> None:
            time.sleep(30)

        def log_message(self, *_: object) -> None:
            pass

    with serving(Hangs) as url:
        began = time.monotonic()
        _, missing, _, _ = collect(f"{url}/run7/rank_", "--deadline", "3s")
    assert time.monotonic() - began < 20
    assert "not listed by the deadline" == missing[f"Flight Recorder dumps in {url}/run7/rank_"]


def serving(handler: type) -> Any:
    """An HTTP server on loopback; its URL."""
    import threading
    from contextlib import contextmanager
    from http.server import ThreadingHTTPServer

    @contextmanager
    def running() -> Iterator[str]:
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        server.block_on_close = False
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            server.server_close()

    return running()


@pytest.mark.parametrize("scheme", ["memory", "file"])
def test_other_places_that_fsspec_knows(
    fake: FakeApi, collect: Any, tmp_path: Path, scheme: str
) -> None:
    """Memory and files, in the same way."""
    job(fake, 3)
    folder = f"{tmp_path}/store" if scheme == "file" else f"/{tmp_path.name}"
    system = fsspec.filesystem(scheme)
    system.makedirs(folder)
    for rank in (0, 2):
        system.pipe_file(f"{folder}/rank_{rank}", dump(rank))
    _, missing, place, _ = collect(f"{scheme}://{folder}/rank_")
    assert ["nccl_trace_rank_0", "nccl_trace_rank_2"] == kept(place), missing
    assert f"not in {scheme}://{folder}/rank_" == missing["Flight Recorder dump of rank 1"]


@pytest.mark.parametrize(
    ("location", "said"),
    [
        ("s3://dumps/rank_?X-Amz-Signature=abcdef", "a signed URL opens one file"),
        ("https://store.example/rank_?sig=abcdef", "a signed URL opens one file"),
        ("s3://AKIAIOSFODNN7EXAMPLE:abcdef@dumps/rank_", "credentials do not belong into"),
        ("nosuch://dumps/rank_", "nosuch"),
    ],
)
def test_what_can_be_no_location(fake: FakeApi, collect: Any, location: str, said: str) -> None:
    """Exit 2, one line that says what to do, and never the secret."""
    job(fake)
    code, _, _, told = collect(location)
    assert (2, True) == (code, said in told), told
    assert "abcdef" not in told
    assert "Traceback" not in told


def test_without_the_extra_one_line_says_what_to_install(
    fake: FakeApi, collect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who typed the location learns it at once; from the environment the rest is gathered."""
    job(fake)
    monkeypatch.setattr(shared_files, "lacking", lambda _: "obstore")
    code, _, _, told = collect("s3://dumps/rank_")
    assert 2 == code
    assert "obstore is not installed: pip install 'gpufleet[object-store]'" in told
    monkeypatch.setenv("GPUFLEET_DUMPS", "s3://dumps/rank_")
    code, missing, place, _ = collect("")
    assert 3 == code
    assert "pip install" in missing["Flight Recorder dumps in s3://dumps/rank_"]
    assert list(place.rglob("current.log"))


def test_a_bucket_alone_is_a_folder() -> None:
    """`s3://dumps` has no prefix that a rank could follow."""
    assert ("s3://dumps", "") == (
        (found := shared_files.place_of("s3://dumps")).folder,
        found.stem,
    )
    assert ("s3://dumps", "rank_") == (
        (found := shared_files.place_of("s3://dumps/rank_")).folder,
        found.stem,
    )
    with pytest.raises(UsageError):
        shared_files.place_of("s3://dumps/rank_#part")
