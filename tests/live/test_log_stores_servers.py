"""Logs of pods that are gone, from a real VictoriaLogs and a server that speaks Loki's API, through our parser."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from builders import evidence
from servers import loki as loki_server
from servers.victoria import Stream

from gpufleet_cli import timestamps
from gpufleet_cli.errors import SourceError
from gpufleet_cli.facts import WatchdogTimeout, Writes
from gpufleet_cli.live import log_store, log_stores
from gpufleet_cli.live.gathered import Gathered
from gpufleet_cli.live.http_source import Connection, Patient
from gpufleet_cli.live.log_store import Store, Wanted
from gpufleet_cli.parsers import training_log
from gpufleet_cli.settings_file import Access

from .until import Until

END = datetime(2026, 8, 20, 3, 51, tzinfo=UTC)
BEGIN = END - timedelta(minutes=30)
Lines = list[tuple[datetime, str]]
Start = Callable[[Iterable[Stream]], str]


def ns(at: datetime) -> int:
    return timestamps.from_datetime(at)


def steps(count: int, *, every_s: float = 1, word: str = "step") -> Lines:
    return [(BEGIN + timedelta(seconds=n * every_s), f"{word}: {n}") for n in range(count)]


def log(pod: str, lines: Lines, **labels: str) -> Stream:
    return Stream(
        labels={"namespace": "ml", "pod": pod, "container": "trainer", **labels}, lines=lines
    )


@pytest.fixture
def loki() -> Iterator[Start]:
    with ExitStack() as stack:
        yield lambda streams: stack.enter_context(loki_server.running(list(streams))).url


@pytest.fixture(params=["loki", "victoria_logs"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def start(kind: str, request: pytest.FixtureRequest) -> Start:
    found: Start = request.getfixturevalue(kind)
    return found


@contextmanager
def opened(kind: str, url: str, *, tenant: str | None = None) -> Iterator[Store]:
    until = Until()
    with Connection(url, Access(tenant=tenant), until) as connection:
        address = "loki" if kind == "loki" else "victorialogs"
        yield log_stores.made(address, Patient(connection.fetch, until), "logs")


def wanted(*pods: str, **more: object) -> Wanted:
    given = {"namespace": "ml", "start_ns": ns(BEGIN), "end_ns": ns(END), "pods": pods, **more}
    return Wanted(**given)  # type: ignore[arg-type]


def gathered(kind: str, url: str, asked: Wanted, fields: dict[str, str] | None = None) -> Gathered:
    with opened(kind, url) as store:
        return log_store.gather(store, asked, fields=fields)


def texts(found: Gathered) -> dict[str, list[str]]:
    """The lines of each file."""
    return {
        path: [one.get("line", one.get("_msg")) for one in map(json.loads, data.splitlines())]
        for path, data in found.files
    }


def test_the_pods_of_a_job_that_is_gone(kind: str, start: Start) -> None:
    """By name and by what its controller calls them; oldest line first; no other pod, namespace or time."""
    late: Lines = [
        (END + timedelta(seconds=1), "too late"),
        (BEGIN - timedelta(seconds=1), "too early"),
    ]
    url = start(
        [
            log("train-0", [*steps(3), *late]),
            log("train-1", steps(2)),
            log("train-10-x", steps(1)),
            log("trained", steps(1)),
            log("train-0", steps(1, word="other"), namespace="dev"),
        ]
    )
    found = gathered(kind, url, wanted("train-0"))
    assert {"log-store/train-0.jsonl": ["step: 0", "step: 1", "step: 2"]} == texts(found)
    assert () == found.gaps
    by_prefix = gathered(kind, url, wanted("train-7", pod_names=re.compile(r"train-\d+(-x)?")))
    assert ["train-0", "train-1", "train-10-x"] == [p[10:-6] for p, _ in by_prefix.files]
    (gap,) = by_prefix.gaps
    assert "logs of train-7 in the log store" == gap.what


def test_more_lines_than_a_page(kind: str, start: Start) -> None:
    """Each line once and in order, also where many have the moment at which a page ends."""
    lines = steps(40, every_s=0.001)
    lines[10:22] = [(lines[10][0], f"step: {n}") for n in range(10, 22)]
    url = start([log("train-0", lines), log("train-1", steps(5))])
    with opened(kind, url) as store:
        store.limit = 15
        found = log_store.gather(store, wanted("train-0"))
        (told,) = texts(found).values()
        assert [f"step: {n}" for n in range(40)] == sorted(told, key=lambda text: int(text[6:]))
        assert ["step: 8", "step: 9"] == told[8:10]
        assert [f"step: {n}" for n in range(22, 40)] == told[22:]
        assert () == found.gaps
        newest = log_store.gather(store, wanted("train-0", most_lines=10))
        (gap,) = newest.gaps
        assert gap.what.startswith("log of train-0 in the log store before 2026-08-20T03:21:00.0")
        store.limit = 8
        torn = log_store.gather(store, wanted("train-0"))
        assert ["more lines at 2026-08-20T03:21:00.01Z than one page has"] == [
            g.why for g in torn.gaps
        ]
        assert 40 - 12 + 8 == sum(map(len, texts(torn).values()))


def test_our_parser_reads_what_is_kept(kind: str, start: Start) -> None:
    """Time, pod and container of a watchdog's line, with exactly as many lines as a limit has."""
    line = (
        "[rank3]:[E820 03:51:07.123456789 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective operation"
        " timeout: WorkNCCL(SeqNum=88214, OpType=ALLREDUCE, NumelIn=4096, NumelOut=4096, Timeout(ms)=600000) ran"
        " for 600004 milliseconds before timing out."
    )
    lines = [*steps(999), (END - timedelta(seconds=1), line)]
    found = gathered(kind, start([log("train-0", lines)]), wanted("train-0"))
    ((path, data),) = found.files
    assert training_log.matches(path, data[:4096])
    told = list(training_log.parse(evidence(data, path)))
    (timeout,) = [f for f in told if isinstance(f, WatchdogTimeout)]
    assert ("train-0", "trainer", "ml") == (
        timeout.speaker.pod,
        timeout.speaker.container,
        timeout.speaker.namespace,
    )
    assert ns(END) - 10**9 == timeout.at_ns
    assert {"train-0"} == {f.speaker.pod for f in told if isinstance(f, Writes)}
    assert not [f for f in told if "limit" in str(getattr(f, "why", ""))]


@pytest.mark.parametrize("spelling", ["kubernetes.pod_name", "k8s.pod.name", "pod_name"])
def test_fields_are_found_by_asking(victoria_logs: Start, spelling: str) -> None:
    """Whatever the collector calls them."""
    labels = {"kubernetes.namespace_name": "ml", spelling: "train-0", "stream": "stderr"}
    url = victoria_logs([Stream(labels=labels, lines=steps(2))])
    found = gathered("victoria_logs", url, wanted("train-0"))
    assert ["step: 0", "step: 1"] == texts(found)["log-store/train-0.jsonl"]
    assert spelling in found.found


def test_a_field_of_that_name_with_other_pods_is_not_taken(kind: str, start: Start) -> None:
    """`pod` is the collector's own here; the job's is in `pod_name`. The settings may say which, too."""
    labels = {"namespace": "ml", "pod": "promtail-x", "pod_name": "train-0"}
    url = start([Stream(labels=labels, lines=steps(1))])
    assert ["log-store/train-0.jsonl"] == [
        p for p, _ in gathered(kind, url, wanted("train-0")).files
    ]
    odd = start([Stream(labels={"app": "train-0", "x": "y"}, lines=steps(1))])
    with pytest.raises(SourceError, match="no field that names pods"):
        gathered(kind, odd, wanted("train-0"))
    assert 1 == len(gathered(kind, odd, wanted("train-0"), {"pod": "app"}).files)


def test_names_with_quotes_stay_names(kind: str, start: Start) -> None:
    """A pod name is text in the query, whatever is in it."""
    url = start([log("train-0", steps(1))])
    found = gathered(kind, url, wanted('train-0" or pod:="', 'x"} or {pod=~".+'))
    assert () == found.files


def test_a_probe_by_daylight(kind: str, start: Start) -> None:
    """The fields, a pod with its newest line, and the pods that have none."""
    url = start([log("train-0", steps(3)), log("web", steps(1))])
    with opened(kind, url) as store:
        told = log_stores.probe(store, now_ns=ns(END), namespace="ml", pods=("train-0", "train-1"))
        assert told.ok
        assert "fields pod, namespace: lines of 1 pods, such as train-0" in told.what
        assert "newest line 2026-08-20T03:21:02Z" in told.what
        assert "logs of train-1 and 0 more pods" == told.would_lack
        nobody = log_stores.probe(store, now_ns=ns(END), namespace="other")
        assert (False, "logs of pods that are gone") == (nobody.ok, nobody.would_lack)


def test_loki_of_several_tenants() -> None:
    """Without a tenant it is a finding; with it, the tenant's lines. A lower limit of the server is kept."""
    tenants = {"ml": [log("train-0", steps(120))], "web": []}
    with loki_server.running(tenants=tenants) as server:
        server.max_entries = 50
        with opened("loki", server.url) as store:
            told = log_stores.probe(store, now_ns=ns(END), namespace="ml")
            assert (False, True) == (told.ok, "no org id" in told.what)
        with opened("loki", server.url, tenant="ml") as store:
            found = log_store.gather(store, wanted("train-0"))
    assert 120 == len(texts(found)["log-store/train-0.jsonl"])
