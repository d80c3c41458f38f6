"""One recorded watch: a long checkpoint that pages nobody, a stall that is noticed at half the timeout, an abort.

    python benchmarks/watch.py --folder FOLDER [--watchdog 120] [--save 66] [--scrape 5] [--poll 5] [--json FILE]

Starts the control plane of `tests/servers`, a Prometheus that scrapes the job's own exporter, and an Alertmanager where
that is installed. The job (`tests/live/training.py`) has a past of twenty minutes with a checkpoint at times, each longer
than half the timeout. Then `gpufleet watch` is started, and the job steps, makes such a checkpoint, steps, stalls, and
aborts when its watchdog has waited its time. Prints what happened when, in seconds after the last step, and how many
requests a look took, by the API server's audit log and by Prometheus' own count. Ends with 1 where the stall was noticed
later than half the timeout plus one scrape and one poll, where anything was paged before it, or where the evidence was
not there before the abort.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tests"), str(HERE)]

from live import training as trainings  # noqa: E402 - of the tests
from live.training import Rhythm, Training  # noqa: E402
from servers import alertmanager, namespaces, prometheus  # noqa: E402
from servers.cluster import running_cluster  # noqa: E402

PAGES = ("stalled", "failed", "slower", "checkpoint-late", "cannot-see")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What was measured; seconds after the last step but for `requests_a_look`."""

    watchdog_s: float
    save_s: float
    scrape_s: float
    poll_s: float
    half_s: float
    noticed_s: float
    late_by_s: float
    posted_s: float | None
    evidence_s: float
    triage_s: float
    aborted_s: float
    failed_s: float
    pages_before: int
    excused_s: float | None
    looks: int
    requests_a_look: dict[str, float]

    @property
    def holds(self) -> bool:
        return (
            self.late_by_s <= self.scrape_s + self.poll_s
            and self.pages_before == 0
            and self.evidence_s < self.aborted_s
        )


def _listen(process: subprocess.Popen[str], events: list[dict[str, Any]]) -> None:
    assert process.stdout is not None
    with process.stdout as lines:
        for line in lines:
            events.append({**json.loads(line), "heard": time.time()})
            print(f"  {events[-1]['event']:<10} {events[-1]['text'][:110]}", flush=True)


def _environment(folder: Path) -> dict[str, str]:
    """No settings and no state of whoever runs this."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GPUFLEET_")}
    return {
        **kept,
        "GPUFLEET_NO_STATE": "1",
        "XDG_CONFIG_HOME": str(folder / "none"),
        "PYTHONPATH": str(HERE.parent),
    }


def _lived(training: Training, events: list[dict[str, Any]], rhythm: Rhythm) -> float:
    """What the job does while it is watched; when it aborted."""
    while not any(one["event"] == "steps" for one in events):
        training.steps(1)
    training.steps(6)
    training.save(rhythm.save_s)
    training.steps(12)
    training.stall()
    assert training.stalled_at is not None
    time.sleep(max(0.0, training.stalled_at + rhythm.watchdog_s - time.time()))
    return training.abort()


def recorded(folder: Path, rhythm: Rhythm, scrape_s: int, poll_s: float) -> Record:
    """The run itself."""
    events: list[dict[str, Any]] = []
    with ExitStack() as stack:
        cluster = stack.enter_context(running_cluster(folder / "cluster"))
        namespace = namespaces.make(cluster)
        training = trainings.made(namespace, rhythm)
        target = stack.enter_context(trainings.exporting(training))
        training.live_through(time.time())
        training.write_past()
        server = prometheus.running_prometheus(
            folder / "prometheus", training.series(), targets=(target,), scrape_s=scrape_s
        )
        url = stack.enter_context(server)
        words = ["--prometheus", url, "--poll", f"{poll_s:g}s", "--save", str(folder / "kept")]
        words += ["--watchdog-timeout", f"{rhythm.watchdog_s}s", "-o", "json"]
        if shutil.which("prometheus-alertmanager"):
            manager = stack.enter_context(alertmanager.running_alertmanager(folder / "manager"))
            words += ["--alertmanager", manager]
        config = cluster.write_kubeconfig(folder / "kubeconfig", namespace=namespace.name)
        begun = len(cluster.audit())
        process = subprocess.Popen(
            [sys.executable, "-m", "gpufleet_cli", "watch", training.name, "-n", namespace.name,
             "--kubeconfig", str(config), *words],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=folder,
            env=_environment(folder),
        )  # fmt: skip
        reader = threading.Thread(target=_listen, args=(process, events), daemon=True)
        reader.start()
        aborted = _lived(training, events, rhythm)
        process.wait(300)
        reader.join()
        asked = cluster.audit()[begun:]
    return _record(training, events, asked, aborted, rhythm, scrape_s, poll_s)


def _record(
    training: Training,
    events: list[dict[str, Any]],
    asked: list[dict[str, Any]],
    aborted: float,
    rhythm: Rhythm,
    scrape_s: float,
    poll_s: float,
) -> Record:
    last = training.stalled_at or 0.0
    begin = next(one["heard"] for one in events if one["event"] == "steps")

    def after(kind: str) -> float | None:
        found = next((one["heard"] for one in events if one["event"] == kind), None)
        return None if found is None else round(found - last, 1)

    noticed = after("stalled") or float("inf")
    excused = next((one["quiet_seconds"] for one in events if one["event"] == "excused"), None)
    before = [one for one in events if one["event"] in PAGES and one["heard"] < last + 1]
    quiet = [
        one
        for one in asked
        if "gpufleet" in one.get("userAgent", "")
        and begin + 2 < _seconds(one["requestReceivedTimestamp"]) < last + noticed - 1
    ]
    looks = max(1, round((last + noticed - begin - 3) / poll_s))
    counts = Counter(_kind(one["requestURI"]) for one in quiet)
    return Record(
        watchdog_s=rhythm.watchdog_s,
        save_s=rhythm.save_s,
        scrape_s=scrape_s,
        poll_s=poll_s,
        half_s=rhythm.watchdog_s / 2,
        noticed_s=noticed,
        late_by_s=round(noticed - rhythm.watchdog_s / 2, 1),
        posted_s=after("posted"),
        evidence_s=after("evidence") or float("inf"),
        triage_s=after("triage") or float("inf"),
        aborted_s=round(aborted - last, 1),
        failed_s=after("failed") or float("inf"),
        pages_before=len(before),
        excused_s=excused,
        looks=looks,
        requests_a_look={kind: round(count / looks, 2) for kind, count in counts.items()},
    )


def _kind(uri: str) -> str:
    path = uri.partition("?")[0]
    if path.endswith("/log"):
        return "log"
    if "/pods/" in path:
        return "pod"
    return "list of pods" if path.endswith("/pods") else "the job, discovery"


def _seconds(stamp: str) -> float:
    from gpufleet_cli.timestamps import parse_rfc3339

    found = parse_rfc3339(stamp)
    assert found is not None
    return found[0] / 1e9


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--watchdog", type=int, default=120)
    parser.add_argument("--save", type=int, default=66)
    parser.add_argument("--scrape", type=int, default=5)
    parser.add_argument("--poll", type=float, default=5.0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    rhythm = Rhythm(every_s=240, save_s=given.save, watchdog_s=given.watchdog)
    found = recorded(given.folder.resolve(), rhythm, given.scrape, given.poll)
    for name, value in asdict(found).items():
        print(f"{name:<16} {value}")
    if given.json is not None:
        given.json.write_text(json.dumps(asdict(found), indent=1) + "\n")
    print("holds" if found.holds else "DOES NOT HOLD")
    return 0 if found.holds else 1


if __name__ == "__main__":
    sys.exit(main())
