"""A live triage of a thousand pods, beside curl and kubectl on the same logs.

    python benchmarks/live.py --folder FOLDER [--pods 1024] [--steps 30] [--rounds 3] [--apart] [--round-trip MS]

Starts the control plane of `tests/servers` (real API server, etcd, controllers, scheduler; kwok is the kubelet of
every node), makes an Indexed Job of so many pods of 8 ranks that stopped (`live_world.py`), and in each round runs,
one after the other and in another order each time:

1. `gpufleet triage JOB --save BUNDLE -o json`, as a process of its own on a terminal: seconds to the first facts, to
   the last log, to the whole bundle and to the verdict; what it asked of the API server, by the server's audit log;
   the most memory of all its processes (PSS: shared pages once);
2. `curl -Z --parallel-max 64` of the logs that are in the bundle, each once, by the URL that gave it;
3. `kubectl logs --tail=1`, one after the other, on 32 pods, scaled to all.

Then `gpufleet triage BUNDLE -o json`: the JSON but `target` has to be the same to the byte. It checks the verdict, and
the pod and node of every rank, and ends with 1 where something is wrong (a target that is missed is no error).
With `--apart` the servers have one half of the cores and whoever asks them the other, as where the API server is
another machine; without it all of them share the cores, and what a client computes the server has to wait for.
With `--round-trip` whoever asks is so many milliseconds away (`round_trip.py`), as on-call is from the cluster: over
loopback `kubectl` needs none of the five round trips that it makes for a log.
Prints medians and whether the targets hold: the gathering at most 1.5 times curl's wall, and a twentieth of the loop.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from dumps import family, pss_kib, ticks  # noqa: E402 - beside this file
from live_world import GPUS, JOB, World, clock, made  # noqa: E402

PARALLEL = 64
PROBED = 32
RATIO_LIMIT, LOOP_LIMIT, JSON_LIMIT = 1.5, 0.05, 5_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Triaged:
    """One live triage; seconds since its process began."""

    first_facts_s: float
    logs_s: float
    gathered_s: float
    verdict_s: float
    cpu_s: float
    peak_mib: float
    requests: int
    has_progress: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What was measured side by side. `read_s`: the same bundle triaged again."""

    triage: Triaged
    curl_s: float
    curl_bytes: int
    loop_s: float
    read_s: float

    @property
    def ratio(self) -> float:
        return self.triage.gathered_s / self.curl_s

    @property
    def logs_ratio(self) -> float:
        """The logs alone: without finding the job and its nodes, with all that is done to a log."""
        return (self.triage.logs_s - self.triage.first_facts_s) / self.curl_s

    @property
    def of_loop(self) -> float:
        return self.triage.gathered_s / self.loop_s


# --- gpufleet -------------------------------------------------------------------------------------


def _environment(folder: Path) -> dict[str, str]:
    """No settings and no history of whoever runs this."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GPUFLEET_")}
    return {
        **kept,
        "GPUFLEET_NO_STATE": "1",
        "XDG_CONFIG_HOME": str(folder / "none"),
        "PYTHONPATH": str(HERE.parent),
    }


def triage_live(world: World, folder: Path, bundle: Path) -> tuple[Triaged, bytes]:
    """Run it with standard error on a terminal; what it measured of itself is in the manifest."""
    offset = _audit_file(world).stat().st_size
    command = [
        *(sys.executable, "-m", "gpufleet_cli", "triage", JOB, "-n", world.namespace.name),
        *("--kubeconfig", str(world.kubeconfig), "--prometheus", world.prometheus),
        *("--save", str(bundle), "-o", "json"),
    ]
    ours, theirs = pty.openpty()
    out = folder / "live.json"
    began = time.perf_counter()
    with out.open("wb") as stdout:
        process = subprocess.Popen(
            command, stdout=stdout, stderr=theirs, env=_environment(folder), cwd=folder
        )
    os.close(theirs)
    watch = _Watch(process.pid)
    heard = _Terminal(ours, began)
    process.wait()
    wall = time.perf_counter() - began
    watch.stop()
    text = heard.text()
    if process.returncode != 0:
        raise SystemExit(f"triage ended with {process.returncode}:\n{text[-2000:]}")
    took = json.loads((bundle / "manifest.json").read_bytes())["seconds"]
    before = heard.first_s - took["first_facts"]  # the start of Python, before its own clock
    found = Triaged(
        first_facts_s=heard.first_s,
        logs_s=before + took["logs"],
        gathered_s=before + took["all"],
        verdict_s=wall,
        cpu_s=watch.cpu_s,
        peak_mib=watch.peak_kib / 1024,
        requests=len(list(_asked(world, offset))),
        has_progress="logs" in text and "reading:" in text,
    )
    return found, out.read_bytes()


def triage_again(folder: Path, bundle: Path) -> tuple[float, bytes]:
    """The same from the bundle."""
    command = [sys.executable, "-m", "gpufleet_cli", "triage", str(bundle), "-o", "json"]
    began = time.perf_counter()
    run = subprocess.run(command, capture_output=True, env=_environment(folder), cwd=folder)
    if run.returncode != 0:
        raise SystemExit(run.stderr.decode(errors="replace")[-2000:])
    return time.perf_counter() - began, run.stdout


class _Terminal:
    """What was written to a terminal, and when the first line of certain facts stood there."""

    def __init__(self, fd: int, began: float) -> None:
        self.first_s = float("nan")
        self._pieces: list[bytes] = []
        self._thread = threading.Thread(target=self._read, args=(fd, began), daemon=True)
        self._thread.start()

    def _read(self, fd: int, began: float) -> None:
        while True:
            try:
                piece = os.read(fd, 65_536)
            except OSError:  # nobody holds the other end
                break
            if not piece:
                break
            self._pieces.append(piece)
            if b"provisional:" in piece and self.first_s != self.first_s:
                self.first_s = time.perf_counter() - began
        os.close(fd)

    def text(self) -> str:
        self._thread.join()
        return b"".join(self._pieces).decode(errors="replace")


class _Watch:
    """Memory and processor time of a process and its children, looked at ten times a second."""

    def __init__(self, pid: int) -> None:
        self.peak_kib = 0
        self._ticks: dict[int, int] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, args=(pid,), daemon=True)
        self._thread.start()

    def _look(self, pid: int) -> None:
        while not self._over.wait(0.1):
            members = family(pid)
            for one in members:
                self._ticks[one] = max(self._ticks.get(one, 0), ticks(one))
            self.peak_kib = max(self.peak_kib, sum(map(pss_kib, members)))

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    @property
    def cpu_s(self) -> float:
        return sum(self._ticks.values()) / os.sysconf("SC_CLK_TCK")


# --- The same logs by others ----------------------------------------------------------------------


def _audit_file(world: World) -> Path:
    return world.cluster.folder / "audit.log"


def _asked(world: World, offset: int) -> Iterator[dict[str, Any]]:
    """What gpufleet asked of the API server since its audit log was so long."""
    with _audit_file(world).open("rb") as file:
        file.seek(offset)
        whole, _, _ = file.read().rpartition(b"\n")
    for line in whole.splitlines():
        if b'"gpufleet/' in line:
            yield json.loads(line)


def log_urls(world: World, offset: int) -> list[str]:
    """The URL that gave each log of the bundle: the last one, where it was read again, deeper."""
    found = {}
    for event in _asked(world, offset):
        about = event.get("objectRef", {})
        if about.get("subresource") == "log" and event["responseStatus"]["code"] == 200:
            found[about["name"]] = event["requestURI"]
    if len(found) != len(world.pods):
        raise SystemExit(f"{len(found)} logs of {len(world.pods)} were read")
    return [f"{world.server}{path}" for path in found.values()]


def curl(world: World, folder: Path, urls: Sequence[str]) -> tuple[float, int]:
    """Seconds and bytes of `curl -Z` of these URLs, each into a file."""
    into = folder / "curl"
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir()
    config = folder / "curl.config"
    config.write_text(
        "".join(
            f'url = "{url}"\noutput = "{into / str(index)}"\n' for index, url in enumerate(urls)
        )
    )
    command = [
        *("curl", "-sS", "--fail", "-Z", "--parallel-max", str(PARALLEL)),
        *("--cacert", str(world.cluster.ca), "-K", str(config)),
        *("-H", f"Authorization: Bearer {world.cluster.token('admin')}"),
    ]
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wall = time.perf_counter() - began
    return wall, sum(file.stat().st_size for file in into.iterdir())


def kubectl_loop(world: World) -> float:
    """Seconds of a shell's loop over all pods, from some of them."""
    names = " ".join(world.pods[:: max(1, len(world.pods) // PROBED)][:PROBED])
    loop = f'for pod in {names}; do kubectl logs "$pod" --tail=1 >/dev/null || exit 1; done'
    environment = {**os.environ, "KUBECONFIG": str(world.kubeconfig)}
    began = time.perf_counter()
    subprocess.run(["bash", "-c", loop], check=True, env=environment)
    probed = min(PROBED, len(world.pods))
    return (time.perf_counter() - began) * len(world.pods) / probed


# --- Is it right? ---------------------------------------------------------------------------------


def without_target(report: bytes) -> bytes:
    """The whole JSON but `target`, its keys in their order."""
    document = json.loads(report)
    del document["target"]
    return json.dumps(document).encode()


def faults_of(world: World, report: bytes) -> Iterator[str]:
    """What is wrong with a report of this incident."""
    document = json.loads(report)
    named = [one["rank"] for one in document["verdict"]["culprits"]]
    if (document["verdict"]["kind"], named) != ("hardware", [world.culprit]):
        yield f"the verdict is {document['verdict']['kind']} {named}, not hardware [{world.culprit}]"
    told = {one["rank"]: (one["pod"], one["node"]) for one in document["ranks"]}
    wrong = [
        rank
        for rank in range(len(world.pods) * GPUS)
        if told.get(rank) != (world.pods[rank // GPUS], world.place[rank // GPUS])
    ]
    if wrong or len(told) != len(world.pods) * GPUS:
        yield f"{len(wrong)} of {len(told)} ranks have a wrong pod or node, such as rank {wrong[:3]}"
    if len(report) > JSON_LIMIT:
        yield f"the JSON has {len(report):,} bytes"


# --- Rounds ---------------------------------------------------------------------------------------


def measure(world: World, folder: Path, number: int) -> Round:
    """One round. The logs' URLs are those of its own triage, or of one before where curl is first."""
    bundle = folder / "bundle"
    shutil.rmtree(bundle, ignore_errors=True)
    offset = _audit_file(world).stat().st_size
    loop_s = kubectl_loop(world) if number % 2 else 0.0
    triaged, report = triage_live(world, folder, bundle)
    urls = log_urls(world, offset)
    curl_s, size = curl(world, folder, urls)
    loop_s = loop_s or kubectl_loop(world)
    read_s, again = triage_again(folder, bundle)
    faults = list(faults_of(world, report))
    if without_target(report) != without_target(again):
        faults.append("the bundle does not give the same JSON")
    if not triaged.has_progress and triaged.logs_s - triaged.first_facts_s > 2:
        faults.append("no progress was shown on the terminal")
    if faults:
        raise SystemExit("wrong: " + "; ".join(faults))
    kinds = Counter(one["objectRef"].get("subresource") or one["objectRef"]["resource"]
                    for one in _asked(world, offset) if "objectRef" in one)  # fmt: skip
    found = Round(triage=triaged, curl_s=curl_s, curl_bytes=size, loop_s=loop_s, read_s=read_s)
    print(
        f"round {number + 1}: first facts {triaged.first_facts_s:.1f} s, logs {triaged.logs_s:.1f}, bundle"
        f" {triaged.gathered_s:.1f}, verdict {triaged.verdict_s:.1f}; processor {triaged.cpu_s:.1f} s, peak"
        f" {triaged.peak_mib:.0f} MiB; {triaged.requests:,} requests ({dict(kinds.most_common(4))}) | curl"
        f" {curl_s:.1f} s, {size / 1e6:.0f} MB | kubectl {loop_s:.0f} s | bundle again {read_s:.1f} s"
        f" | JSON {len(report):,} bytes, the same",
        flush=True,
    )
    return found


def table(rounds: Sequence[Round]) -> dict[str, Any]:
    """Medians, and what they say about the targets."""

    def mid(of: Callable[[Round], float]) -> float:
        return round(median(map(of, rounds)), 3)

    found = {
        "first_facts_s": mid(lambda one: one.triage.first_facts_s),
        "logs_s": mid(lambda one: one.triage.logs_s),
        "gathered_s": mid(lambda one: one.triage.gathered_s),
        "verdict_s": mid(lambda one: one.triage.verdict_s),
        "requests": mid(lambda one: one.triage.requests),
        "cpu_s": mid(lambda one: one.triage.cpu_s),
        "peak_mib": mid(lambda one: one.triage.peak_mib),
        "curl_s": mid(lambda one: one.curl_s),
        "kubectl_loop_s": mid(lambda one: one.loop_s),
        "logs_of_curl": mid(lambda one: one.logs_ratio),
        "gathered_of_curl": mid(lambda one: one.ratio),
        "gathered_of_loop": mid(lambda one: one.of_loop),
    }
    print()
    for name, value in found.items():
        print(f"{name:18} {value:>12,.3f}")
    for name, limit in (("gathered_of_curl", RATIO_LIMIT), ("gathered_of_loop", LOOP_LIMIT)):
        word = "kept" if found[name] <= limit else "NOT KEPT"
        print(f"{name}: {found[name]:.3f} (target {limit}): {word}")
    return found


@contextmanager
def _as_from_afar(world: World, folder: Path, milliseconds: float) -> Iterator[World]:
    """The same world with a round trip between it and whoever asks it."""
    if not milliseconds:
        yield world
        return
    relays = []
    urls = []
    for url in (world.server, world.prometheus):
        port = url.rpartition(":")[2].strip("/")
        command = [sys.executable, str(HERE / "round_trip.py"), port, str(milliseconds)]
        relay = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert relay.stdout is not None
        urls.append(url.replace(f":{port}", f":{relay.stdout.readline().strip()}"))
        relays.append(relay)
    kubeconfig = folder / "kubeconfig-from-afar"
    kubeconfig.write_text(world.kubeconfig.read_text().replace(world.server, urls[0]))
    try:
        yield replace(world, server=urls[0], prometheus=urls[1], kubeconfig=kubeconfig)
    finally:
        for relay in relays:
            relay.terminate()
            relay.wait()


def _apart() -> None:
    """The servers to the first half of the cores; ourselves, and whom we start from here on, to the other."""
    cores = sorted(os.sched_getaffinity(0))
    half = max(1, len(cores) // 2)
    for process in family(os.getpid()):
        for thread in Path(f"/proc/{process}/task").iterdir():
            mine = process == os.getpid()
            os.sched_setaffinity(int(thread.name), cores[half:] if mine else cores[:half])


def main() -> None:
    """Make the cluster and the incident, then measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--folder", type=Path, required=True, help="all is made here")
    parser.add_argument("--pods", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=30, help="lines of each rank before the stall")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--apart", action="store_true", help="servers and clients on cores of their own"
    )
    parser.add_argument("--round-trip", type=float, default=0.0, help="milliseconds")
    parser.add_argument("--json", type=Path, help="the numbers, for another program")
    options = parser.parse_args()
    folder: Path = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    told = clock()
    with made(folder, options.pods, told, steps=options.steps) as world:
        print(
            f"{options.pods:,} pods, {options.pods * GPUS:,} ranks, {world.lines:,} lines of logs"
        )
        if options.apart:
            _apart()
        with _as_from_afar(world, folder, options.round_trip) as seen:
            rounds = [measure(seen, folder, number) for number in range(options.rounds)]
        found = table(rounds)
    if options.json is not None:
        document = {"medians": found, "rounds": [asdict(one) for one in rounds]}
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
