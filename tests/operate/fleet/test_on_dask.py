"""A real Dask scheduler with real workers over a real S3 server: the report is that of the folder."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from operate.fleet.test_places import Start, a_few_shards, objects_of, s3, small, triage
from servers.dask import Dask, running_dask

from gpufleet_cli.bundle import read_target

distributed = pytest.importorskip("distributed", reason="pip install '.[fleet]'")
pytest.importorskip("fsspec", reason="pip install '.[fleet]'")
pytest.importorskip("obstore", reason="pip install '.[fleet]'")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings(
        "ignore::ResourceWarning"
    ),  # sockets that Dask's client leaves to the collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
__all__ = ["s3", "triage"]
RUN_7 = Path(__file__).parents[3] / "fixtures" / "train-run-7"


_TOLD: list[tuple[int, str]] = []


def of_run_7(triage: Any) -> tuple[int, str]:
    """Exit status and report of the folder, read here; once for all tests."""
    if not _TOLD:
        _TOLD.append(triage(RUN_7)[:2])
    return _TOLD[0]


@pytest.fixture
def dask(tmp_path: Path) -> Iterator[Callable[..., Dask]]:
    """`dask(workers)` starts a scheduler with so many; after the store, whose variables they inherit."""
    from contextlib import ExitStack

    with ExitStack() as stack:
        yield lambda workers=2: stack.enter_context(running_dask(tmp_path / "dask", workers))


def test_the_report_is_that_of_the_folder(
    s3: Start, dask: Callable[..., Dask], triage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1,024 ranks in shards of a megabyte; a hostile dump beside them, read within a worker that may have
    no child of multiprocessing."""
    s3(objects_of(RUN_7))
    cluster = dask()
    a_few_shards(monkeypatch, 1 << 20)
    code, report, said = triage("s3://dumps/run7/", "--scheduler", cluster.url, "-v")
    assert of_run_7(triage) == (code, report)
    assert " shards; " in said
    assert " in 1 shards" not in said


def test_hostile_dumps_cost_themselves(
    s3: Start, dask: Callable[..., Dask], triage: Any, tmp_path: Path
) -> None:
    folder = small(tmp_path)
    bomb = b"\x80\x02}r\xff\xff\xff\x7fU\x01a." + b"x" * 64
    s3({**objects_of(folder), "run7/dumps/nccl_trace_rank_1": bomb})
    code, report, _ = triage("s3://dumps/run7/", "--scheduler", dask().url)
    assert code in (0, 3)
    missing = {one["what"] for one in json.loads(report)["missing_evidence"]}
    assert "file dumps/nccl_trace_rank_1" in missing


def test_two_workers_die_in_the_middle(
    s3: Start, dask: Callable[..., Dask], triage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their shards, those that were done too, are made again by the others; nothing is missing."""
    s3(objects_of(RUN_7))
    a_few_shards(monkeypatch, 300_000)
    cluster = dask(0)
    cluster.add(4, nanny=False)
    _until(lambda: _workers(cluster) == 4)
    killed: list[int] = []

    def kill() -> None:
        _until(lambda: _in_memory(cluster) > 2)
        for number in (0, 1):
            cluster.kill(number)
            killed.append(number)

    thread = threading.Thread(target=kill)
    thread.start()
    found = triage("s3://dumps/run7/", "--scheduler", cluster.url)
    thread.join()
    assert [0, 1] == killed
    assert of_run_7(triage) == found[:2]


def test_who_does_not_fit_is_refused_in_one_line(
    dask: Callable[..., Dask], triage: Any, tmp_path: Path
) -> None:
    """No scheduler, no worker, a worker of another version, one without gpufleet."""
    place = f"file://{small(tmp_path)}"
    found = triage(place, "--scheduler", "nothing")
    assert found[0] in (2, 4)
    cluster = dask(0)
    for before, needle in (
        ("", "no worker at the Dask scheduler"),
        ("import gpufleet_cli; gpufleet_cli.__version__ = '9.9'", "has gpufleet 9.9"),
        (
            "import sys; sys.modules['gpufleet_cli.operate.fleet'] = None",
            "has no gpufleet that fits",
        ),
    ):
        if before:
            cluster.add(1, nanny=False, before=before)
            _until(lambda: _workers(cluster) == 1)
        code, report, said = triage(place, "--scheduler", cluster.url)
        assert (4, "", 1) == (code, report, said.count("\n")), said
        assert needle in said
        for number, worker in enumerate(cluster.workers):
            if worker.poll() is None:
                cluster.kill(number)
        _until(lambda: _workers(cluster) == 0)


def test_a_folder_that_all_have(dask: Callable[..., Dask], triage: Any, tmp_path: Path) -> None:
    """A path instead of a URL: the workers are told the same."""
    folder = small(tmp_path)
    assert triage(folder)[:2] == triage(folder, "--scheduler", dask(1).url)[:2]
    assert read_target(folder).evidences


def _until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.2)


def _asked(cluster: Dask, what: Callable[[Any], int]) -> int:
    with distributed.Client(cluster.url, set_as_default=False, timeout=30) as client:
        found: int = what(client)
        return found


def _workers(cluster: Dask) -> int:
    return _asked(cluster, lambda client: len(client.nthreads()))


def _in_memory(cluster: Dask) -> int:
    """Results that lie with workers."""
    return _asked(cluster, lambda client: sum(map(len, client.has_what().values())))
