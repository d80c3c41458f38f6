"""An incident in an object store on Dask workers, against the same incident in a folder of this machine.

    python benchmarks/fleet.py --folder FOLDER [--ranks 1024,4096,16384] [--workers 4]

Makes the incidents of `scale.py` (7.4 GB for 16,384 ranks, kept in the folder; as much memory while it runs, for the store),
puts each into a real S3 server on loopback, starts a real Dask scheduler and workers
of one thread, and runs as a person would

1. `gpufleet triage FOLDER -o json`,
2. `gpufleet triage s3://... --scheduler tcp://... -o json`,
3. the same while two of the workers are killed in the middle of it.

The three reports must be the same byte for byte but for `target`, or it ends with 1. Prints for each size wall time,
bytes that came to the client and to the workers, and cost per rank; then what 100,000 ranks would take on 64 workers, by these rates.
All of it shares this machine with the S3 server, which is no fast one: its own part, every object read once and nothing done with it,
is printed too.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [
    str(HERE.parent),
    str(HERE),
    str(HERE.parent / "tests"),
    str(HERE.parent / "scripts"),
]

import urllib3  # noqa: E402 - beside this file
from dumps import Watch  # noqa: E402
from scale import make  # noqa: E402
from servers.dask import Dask, running_dask  # noqa: E402
from servers.object_store import ObjectStore, running_object_store  # noqa: E402

MOVED = re.compile(r"([\d,]+) files in ([\d,]+) shards; ([\d,]+) bytes came here")


@dataclass(frozen=True, slots=True)
class Run:
    """One run: its report without the target, its time, and what was said beside it."""

    report: str
    wall_s: float
    client_cpu_s: float
    all_cpu_s: float
    """Of everything below this script: client, workers, their children, the store."""
    said: str


def triage(*words: str) -> Run:
    """As a person would."""
    begun = time.perf_counter()
    before = os.times()
    with Watch(every_s=1.0) as watch:
        done = subprocess.run(
            [sys.executable, "-m", "gpufleet_cli", "triage", *words, "-o", "json", "-v"],
            env={**os.environ, "GPUFLEET_NO_STATE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    after = os.times()
    if not done.stdout:
        raise SystemExit(f"triage {' '.join(words)}: {done.returncode} {done.stderr}")
    found = json.loads(done.stdout)
    del found["target"]
    cpu = sum(after[2:4]) - sum(before[2:4])
    return Run(json.dumps(found), time.perf_counter() - begun, cpu, watch.cpu_s, done.stderr)


@contextmanager
def store_of(folder: Path, place: Path) -> Iterator[tuple[ObjectStore, int]]:
    """The files of a folder as objects, and their bytes. The server keeps them in its memory."""
    with running_object_store(place / "server", bucket="incident") as store:
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        pool = urllib3.PoolManager(maxsize=4)

        def put(path: Path) -> int:
            content = path.read_bytes()
            url = f"{store.url}/incident/run/{path.relative_to(folder).as_posix()}"
            assert pool.request("PUT", url, body=content, retries=3).status == 200
            return len(content)

        with ThreadPoolExecutor(4) as threads:
            size = sum(threads.map(put, files))
        os.environ.update(
            AWS_ENDPOINT_URL=store.url,
            AWS_ACCESS_KEY_ID="any",
            AWS_SECRET_ACCESS_KEY="any",
            AWS_REGION=store.region,
        )
        yield store, size


def read_all(folder: Path, store: ObjectStore) -> float:
    """Every object once, by four threads that do nothing with it: what the server alone costs."""
    pool = urllib3.PoolManager(maxsize=4)
    urls = [
        f"{store.url}/incident/run/{path.relative_to(folder).as_posix()}"
        for path in folder.rglob("*")
        if path.is_file()
    ]
    begun = time.perf_counter()
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda url: len(pool.request("GET", url).data), urls))
    return time.perf_counter() - begun


def killing(cluster: Dask, after_s: float) -> Callable[[], list[int]]:
    """Ends two workers after a while; what it returns waits for that."""
    killed: list[int] = []

    def kill() -> None:
        time.sleep(after_s)
        for number in (0, 1):
            cluster.kill(number)
            killed.append(number)

    thread = threading.Thread(target=kill)
    thread.start()

    def wait() -> list[int]:
        thread.join()
        return killed

    return wait


def wait_for(cluster: Dask, workers: int) -> None:
    """Until all of them have come: their start is no part of what is measured."""
    from distributed import Client

    with Client(cluster.url, set_as_default=False, timeout=60) as client:
        client.wait_for_workers(workers, timeout=120)


def measure(root: Path, ranks: int, workers: int, *, with_store: bool) -> dict[str, float]:
    """One size; what it found."""
    folder = root / str(ranks)
    make(folder, ranks)
    here = triage(str(folder))
    print(
        f"{ranks:6,} ranks: folder {here.wall_s:6.1f} s, processor {here.all_cpu_s:,.0f} s",
        flush=True,
    )
    with ExitStack() as stack:
        begun = time.perf_counter()
        store, size = stack.enter_context(store_of(folder, root / f"store-{ranks}"))
        print(
            f"        {size / 1e6:,.0f} MB put in {time.perf_counter() - begun:.0f} s", flush=True
        )
        with Watch(every_s=1.0) as watch:
            bare = read_all(folder, store) if with_store else 0.0
        print(
            f"        the store alone, every object once: {bare:6.1f} s, processor {watch.cpu_s:,.0f} s",
            flush=True,
        )
        cluster = stack.enter_context(running_dask(root / f"dask-{ranks}", 0))
        cluster.add(workers, nanny=False)
        wait_for(cluster, workers)
        place = ("s3://incident/run/", "--scheduler", cluster.url)
        there = triage(*place)
        moved = MOVED.search(there.said)
        assert moved is not None, there.said
        files, shards, came = (int(one.replace(",", "")) for one in moved.groups())
        same = "the same report" if there.report == here.report else "ANOTHER REPORT"
        print(
            f"        {workers} workers {there.wall_s:6.1f} s, processor {there.all_cpu_s:,.0f} s | {shards} shards of {files:,} files, {came:,} bytes"
            f" came to the client ({came / size:.2%}) | {same}",
            flush=True,
        )
        wait = killing(cluster, there.wall_s / 3)
        hurt = triage(*place)
        killed = wait()
        also = "the same report" if hurt.report == here.report else "ANOTHER REPORT"
        print(
            f"        two of them killed after {there.wall_s / 3:.1f} s: {hurt.wall_s:6.1f} s"
            f" ({len(killed)} killed) | {also}",
            flush=True,
        )
        if not here.report == there.report == hurt.report:
            raise SystemExit("the reports differ")
    return {
        "ranks": ranks,
        "folder_s": here.wall_s,
        "folder_cpu_s": here.all_cpu_s,
        "store_cpu_s": watch.cpu_s,
        "fleet_s": there.wall_s,
        "fleet_cpu_s": there.all_cpu_s,
        "moved": came,
        "size": size,
        "client_cpu_s": there.client_cpu_s,
    }


def table(found: list[dict[str, float]]) -> None:
    """Processor time of one rank, which other work of the machine distorts least, and what the large one takes."""
    names = ("folder_cpu_s", "store_cpu_s", "fleet_cpu_s", "client_cpu_s")
    print(
        "\nprocessor time of a rank, ms: in a folder | the store alone | fleet, store included | its client"
    )
    for one in found:
        told = " | ".join(f"{1000 * one[name] / one['ranks']:6.2f}" for name in names)
        print(
            f"{one['ranks']:6,}  {told}  | {one['moved'] / one['ranks']:,.0f} bytes to the client"
        )
    last = found[-1]
    each = {name: 100_000 * last[name] / last["ranks"] for name in names}
    work = each["fleet_cpu_s"] - each["client_cpu_s"] - each["store_cpu_s"]
    print(
        f"\n100,000 ranks on 64 workers of two processors, by the rates of {last['ranks']:,}: {work / 128:,.0f} s on"
        f" the workers, {each['client_cpu_s']:,.0f} s on the client,"
        f" {100_000 * last['moved'] / last['ranks'] / 1e6:,.0f} MB to it; the store has to give"
        f" {100_000 * last['size'] / last['ranks'] / 1e9:,.0f} GB meanwhile"
    )


def main() -> None:
    """Measure each size."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--ranks", default="1024", help="multiples of 32")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--no-store", action="store_true", help="leave out reading the store alone")
    options = parser.parse_args()
    sizes = [int(size) for size in options.ranks.split(",")]
    table(
        [
            measure(options.folder, ranks, options.workers, with_store=not options.no_store)
            for ranks in sizes
        ]
    )


if __name__ == "__main__":
    main()
