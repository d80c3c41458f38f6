"""Metrics from real servers, through our own parser: what is told of a job's GPUs is what happened to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from builders import evidence
from servers import services
from servers.metrics import Series, held, xid_series
from servers.namespaces import Namespace

from gpufleet_cli import timestamps
from gpufleet_cli.errors import SourceError
from gpufleet_cli.facts import Fact, GpuReading, IdentityLink, SeriesEnd, XidEvent
from gpufleet_cli.live import known_services, metric_probe, metrics
from gpufleet_cli.live.gathered import Gathered
from gpufleet_cli.live.http_source import Connection, Fetch, Patient, through_api_server
from gpufleet_cli.live.metric_server import recognised
from gpufleet_cli.live.metrics import Wanted
from gpufleet_cli.live.service_ref import service_ref
from gpufleet_cli.parsers import dcgm_metrics
from gpufleet_cli.settings_file import Access

from .until import Until

END = datetime(2026, 8, 20, 3, 50, tzinfo=UTC)
FALL = END - timedelta(minutes=12)
BEGIN = END - timedelta(hours=3)
OLD = END - timedelta(days=2)


def ns(at: datetime) -> int:
    return timestamps.from_datetime(at)


def window(*nodes: str, hours: float = 1, **more: object) -> Wanted:
    return Wanted(
        nodes=dict.fromkeys(nodes, ()),
        start_ns=ns(END - timedelta(hours=hours)),
        end_ns=ns(END),
        **more,  # type: ignore[arg-type]
    )


@contextmanager
def connected(url: str) -> Iterator[Fetch]:
    until = Until()
    with Connection(url, Access(), until) as connection:
        yield Patient(connection.fetch, until)


def gathered(url: str, wanted: Wanted, matchers: str | None = None) -> Gathered:
    with connected(url) as fetch:
        return metrics.gather(fetch, "metrics", wanted, matchers=matchers)


def facts(found: Gathered) -> list[Fact]:
    """What the real parser reads in the files."""
    told: list[Fact] = []
    for path, data in found.files:
        assert dcgm_metrics.matches(path, data[:4096]), path
        told += dcgm_metrics.parse(evidence(data, path))
    return told


def xids(found: Gathered) -> list[tuple[str | None, int | None, int, int | None]]:
    """(node, GPU, code, ns or None) of each event."""
    return [(f.node, f.gpu_index, f.xid, f.at_ns) for f in facts(found) if isinstance(f, XidEvent)]


def reading(name: str, node: str, gpu: int, value: float) -> Series:
    """One field of one GPU, steady."""
    like = xid_series(node, gpu, held(BEGIN, END, first=value))
    return Series(name=name, labels=like.labels, samples=like.samples)


def relabelled(series: Series, **labels: str | None) -> Series:
    """The same samples under other labels; None takes one away."""
    kept = {**series.labels, **{k: v for k, v in labels.items() if v is not None}}
    kept = {k: v for k, v in kept.items() if labels.get(k, "") is not None}
    return Series(name=series.name, labels=kept, samples=series.samples)


def story() -> list[Series]:
    """Two nodes of ours and one of others: a fall, a sticky code, a flap, a repeat, a late series, one that ends."""
    flap = [
        (FALL, 94.0),
        (FALL + timedelta(seconds=30), 0.0),
        (FALL + timedelta(seconds=60), 94.0),
    ]
    gone = FALL + timedelta(minutes=1)
    return [
        xid_series("gpu-1", 0, held(BEGIN, END, [(FALL, 79)]), pod="train-0", namespace="ml"),
        xid_series("gpu-1", 1, held(BEGIN, END, first=31)),  # of days ago: sticky
        xid_series("gpu-1", 2, held(BEGIN, END, flap)),
        xid_series("gpu-1", 3, held(BEGIN, gone)),  # ends
        xid_series("gpu-2", 0, held(FALL, END)),  # begins in the window, at zero
        xid_series("gpu-2", 1, held(FALL, END, first=13)),  # begins in the window, with a code
        xid_series("gpu-9", 0, held(BEGIN, END, [(FALL, 48)])),  # not the job's
        reading("DCGM_FI_DEV_POWER_USAGE", "gpu-1", 0, 120),
        reading("DCGM_FI_DEV_ROW_REMAP_PENDING", "gpu-1", 2, 1),
        reading("DCGM_FI_DEV_POWER_USAGE", "gpu-9", 0, 700),
        Series(
            name="kube_pod_info",
            labels={"pod": "train-0", "namespace": "ml", "node": "gpu-1", "uid": "u-0"},
            samples=held(BEGIN, FALL),
        ),
    ]


@pytest.fixture(params=["prometheus", "victoria_metrics"])
def store(request: pytest.FixtureRequest) -> Callable[[Iterable[Series]], str]:
    """Each server in turn: the same answers are expected of both."""
    start: Callable[[Iterable[Series]], str] = request.getfixturevalue(request.param)
    return start


def test_what_happened_is_what_is_told(store: Callable[[Iterable[Series]], str]) -> None:
    """Transitions at their time; a sticky code and a series that merely begins are none; a flap is two."""
    url = store(story())
    found = gathered(url, window("gpu-1", "gpu-2", pods=("train-0",), namespace="ml"))
    assert () == found.gaps
    assert 30.0 == found.step_s
    assert {"metrics/xid.json", "metrics/readings.json", "metrics/pods.json"} == {
        p for p, _ in found.files
    }
    told = xids(found)
    assert ("gpu-1", 0, 79, ns(FALL)) in told
    assert ("gpu-1", 1, 31, None) in told  # undated: before the window
    flap = [(code, at) for node, gpu, code, at in told if (node, gpu) == ("gpu-1", 2)]
    assert [(94, ns(FALL)), (94, ns(FALL) + 60 * 10**9)] == flap
    assert ("gpu-2", 1, 13, None) in told  # VictoriaMetrics' changes() would call it a change
    assert not [one for one in told if one[:2] in (("gpu-2", 0), ("gpu-1", 3))]
    assert {"gpu-1", "gpu-2"} == {one[0] for one in told}
    ends = [f for f in facts(found) if isinstance(f, SeriesEnd)]
    assert ("gpu-1", 3) in {(f.node, f.gpu_index) for f in ends}
    (end,) = [f for f in ends if f.gpu_index == 3]
    assert ns(FALL) + 60 * 10**9 == end.last_ns
    values = {(f.field, f.gpu_index): f.last for f in facts(found) if isinstance(f, GpuReading)}
    assert 120 == values["DCGM_FI_DEV_POWER_USAGE", 0]
    assert 1 == values["DCGM_FI_DEV_ROW_REMAP_PENDING", 2]
    links = [f for f in facts(found) if isinstance(f, IdentityLink) and f.pod == "train-0"]
    assert {("gpu-1", None), ("gpu-1", "u-0")} == {(f.node, f.pod_uid) for f in links}


def test_two_clusters_are_never_joined(store: Callable[[Iterable[Series]], str]) -> None:
    """Nodes of one name in two clusters: none without a matcher, ours with it."""
    ours = [relabelled(xid_series("gpu-1", 0, held(BEGIN, END)), cluster="prod-a")]
    ours += [relabelled(xid_series("gpu-2", 0, held(BEGIN, END, [(FALL, 79)])), cluster="prod-a")]
    other = [relabelled(xid_series("gpu-1", 0, held(BEGIN, END, [(FALL, 48)])), cluster="prod-b")]
    url = store([*ours, *other])
    found = gathered(url, window("gpu-1", "gpu-2"))
    assert [("gpu-2", 0, 79, ns(FALL))] == xids(found)
    (gap,) = found.gaps
    assert "metrics of node gpu-1" == gap.what
    assert "cluster prod-a and prod-b" in gap.why
    chosen = gathered(url, window("gpu-1", "gpu-2"), 'cluster="prod-a"')
    assert () == chosen.gaps
    assert [("gpu-2", 0, 79, ns(FALL))] == xids(chosen)
    assert 2 == chosen.files[0][1].count(b'"metric"')
    with connected(url) as fetch:
        told = metric_probe.probe(fetch, "metrics", now_ns=ns(END))
    assert not told.ok
    assert told.would_lack.startswith("metrics of gpu-1: other clusters have the same names")


def test_the_dead_node_is_not_taken_from_another_cluster(
    store: Callable[[Iterable[Series]], str],
) -> None:
    """gpu-3 of our cluster has no series; one of its name in another has."""
    ours = [relabelled(xid_series(f"gpu-{n}", 0, held(BEGIN, END)), cluster="a") for n in (1, 2)]
    other = relabelled(xid_series("gpu-3", 0, held(BEGIN, END, [(FALL, 79)])), cluster="b")
    found = gathered(store([*ours, other]), window("gpu-1", "gpu-2", "gpu-3"))
    assert [] == xids(found)
    assert ["metrics of node gpu-3"] == [gap.what for gap in found.gaps]


def test_every_way_to_name_a_node(store: Callable[[Iterable[Series]], str]) -> None:
    """Hostname, hostname, node, a full name, an address with a port; a pod where the exporter has its own name."""
    made = [xid_series("x", 0, held(BEGIN, END, [(FALL, code)])) for code in (1, 2, 3, 4, 5, 6)]
    labels: list[dict[str, str | None]] = [
        {"Hostname": "gpu-1", "UUID": "a"},
        {"Hostname": None, "hostname": "gpu-2", "UUID": "b"},
        {"Hostname": "dcgm-exporter-x7", "node": "gpu-3", "UUID": "c"},
        {"Hostname": "gpu-4.rack.local", "UUID": "d"},
        {"Hostname": None, "instance": "10.1.1.5:9400", "UUID": "e"},
        {
            "Hostname": "dcgm-exporter-q2",
            "instance": "10.9.9.9:9400",
            "UUID": "f",
            "exported_pod": "train-6",
        }
        | {"exported_namespace": "ml", "pod": "dcgm-exporter-q2", "namespace": "gpu-operator"},
    ]
    series = [relabelled(one, **more) for one, more in zip(made, labels, strict=True)]
    wanted = Wanted(
        nodes={
            **{f"gpu-{n}": () for n in range(1, 5)},
            "gpu-5": ("10.1.1.5",),
            "gpu-6": ("10.1.1.6",),
        },
        start_ns=ns(END - timedelta(hours=1)),
        end_ns=ns(END),
        pods=("train-6", 'odd"name\\(.*'),
        namespace="ml",
    )
    url = store(series)
    found = gathered(url, wanted)
    assert () == found.gaps
    assert {1, 2, 3, 4, 5, 6} == {one[2] for one in xids(found)}
    # A pod on a node that is known already does not stand for one that is not.
    on_known = relabelled(
        made[1], Hostname="gpu-1", exported_pod="train-1", exported_namespace="ml"
    )
    one_lost = gathered(
        store([on_known]), window("gpu-1", "gpu-7", pods=("train-1",), namespace="ml")
    )
    assert ["XID history of gpu-7"] == [gap.what for gap in one_lost.gaps]
    alone = gathered(url, window("gpu-1", "gpu-7"))
    assert ["XID history of gpu-7"] == [gap.what for gap in alone.gaps]
    assert {1} == {one[2] for one in xids(alone)}


def test_a_month_of_xids_is_asked_of_marked_gpus_alone(
    store: Callable[[Iterable[Series]], str],
) -> None:
    """Also one whose code came up as a series of its own, as newer exporters have it."""
    plain = xid_series("gpu-1", 0, held(OLD, END, every_s=60))
    coded = relabelled(xid_series("gpu-1", 0, held(FALL, END, first=79, every_s=60)), err_code="79")
    quiet = xid_series("gpu-1", 1, held(OLD, END, every_s=60))
    with connected(store([plain, coded, quiet])) as fetch:
        found = metrics.history(fetch, "metrics", window("gpu-1", hours=72))
    assert [("gpu-1", 0, 79, ns(FALL))] == xids(found)
    assert b'"gpu":"1"' not in found.files[0][1]
    (gap,) = found.gaps
    assert f"XID history before {timestamps.format_ns(ns(OLD))}" == gap.what, "of three days two"


def test_a_server_that_finds_it_too_much_is_asked_for_less(prometheus: Callable[..., str]) -> None:
    """Prometheus with a low limit of samples answers 422; halves of nodes and time pass."""
    series = [
        xid_series(f"gpu-{n}", 0, held(BEGIN, END, [(FALL, 79)] * (n == 3))) for n in range(6)
    ]
    url = prometheus(series, more=("--query.max-samples=700",))
    found = gathered(url, window(*(f"gpu-{n}" for n in range(6))))
    assert () == found.gaps
    assert [("gpu-3", 0, 79, ns(FALL))] == xids(found)
    tiny = prometheus(series, more=("--query.max-samples=1",))
    lost = gathered(tiny, window("gpu-3"))
    assert [] == xids(lost)
    assert any("too many samples" in gap.why for gap in lost.gaps)


def test_who_answers_is_recognised(
    prometheus: Callable[..., str], victoria_metrics: Callable[[Iterable[Series]], str]
) -> None:
    """By its build information; also below a path."""
    for url, name in (
        (prometheus(prefix="/metrics/a"), "Prometheus"),
        (victoria_metrics([]), "VictoriaMetrics"),
    ):
        with connected(url) as fetch:
            assert name == recognised(fetch, "metrics").flavour
        nothing = gathered(url, window("gpu-1"))
        assert ["XID history and readings of the GPUs"] == [gap.what for gap in nothing.gaps]


def test_a_probe_by_daylight(store: Callable[[Iterable[Series]], str]) -> None:
    """A sample series, the nodes that are found, the fields that are not exported."""
    url = store(story())
    with connected(url) as fetch:
        told = metric_probe.probe(
            fetch, "metrics", now_ns=ns(END), nodes={"gpu-1": (), "gpu-2": (), "gpu-8": ()}
        )
        empty = metric_probe.probe(fetch, "metrics", now_ns=ns(END), matchers='cluster="x"')
    assert told.ok
    assert "7 XID series such as DCGM_FI_DEV_XID_ERRORS{" in told.what
    assert "2 of 3 nodes by Hostname" in told.what
    assert "XID history of gpu-8" in told.would_lack
    assert "DCGM_FI_DEV_ROW_REMAP_FAILURE is not exported" in told.would_lack
    assert "DCGM_FI_DEV_ROW_REMAP_PENDING" not in told.would_lack
    assert (False, "XID history: dcgm-exporter, or matchers that fit") == (
        empty.ok,
        empty.would_lack,
    )


def test_through_the_api_server(
    namespace: Namespace, prometheus: Callable[..., str], tmp_path: Path
) -> None:
    """`svc:NAMESPACE/NAME:PORT`, with the cluster's own authority and a token out of a file."""
    port = int(prometheus(story()).rsplit(":", 1)[1])
    services.expose(namespace, "prometheus", port)
    token = tmp_path / "token"
    token.write_text(namespace.cluster.token("admin"))
    access = Access(ca_file=namespace.cluster.ca, bearer_token_file=token)
    service = service_ref(f"svc:{namespace.name}/prometheus:{port}")
    assert service is not None
    until = Until()
    with Connection(namespace.cluster.url, access, until) as api_server:
        fetch = Patient(through_api_server(service, api_server.fetch), until)
        found = metrics.gather(fetch, str(service), window("gpu-1", "gpu-2"))
    with (
        Connection(namespace.cluster.url, Access(), until) as stranger,
        pytest.raises(SourceError, match="certificate is not trusted"),
    ):
        stranger.fetch("/version", {})
    assert ("gpu-1", 0, 79, ns(FALL)) in xids(found)
    listed = namespace.api.get("/api/v1/services")["items"]
    ours = [
        one for one in known_services.candidates(listed) if one.service.namespace == namespace.name
    ]
    assert [str(service)] == [str(one) for one in ours]
