"""XIDs in the list of all nodes, from a real Prometheus: whose they are, how few questions, what is not known."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from servers.metrics import Series, held, xid_series

from gpufleet_cli.cli import main
from gpufleet_cli.live import metric_fleet
from gpufleet_cli.live.http_source import Connection, Params, Patient
from gpufleet_cli.live.metric_fleet import Found
from gpufleet_cli.live.service_words import Response
from gpufleet_cli.settings_file import Access
from gpufleet_cli.timestamps import from_datetime
from live import fake_api
from live.fake_api import FakeApi

from .until import Until

NOW = datetime.now(UTC).replace(microsecond=0)
BEGIN = NOW - timedelta(days=10)
FALL = NOW - timedelta(days=3)
EVERY_S = 1800.0


def gauge(node: str, gpu: int, *codes: tuple[datetime, float], **more: str) -> Series:
    return xid_series(node, gpu, held(BEGIN, NOW, codes, every_s=EVERY_S), more=more)


def by_address(series: Series, address: str) -> Series:
    """The same as an exporter without host network has it, scraped by the node's address."""
    labels = {**series.labels, "Hostname": "dcgm-exporter-x7", "instance": f"{address}:9400"}
    return Series(name=series.name, labels=labels, samples=series.samples)


def asked_of(url: str, days: float = 10, matchers: str | None = None) -> tuple[Found, list[str]]:
    """What the metrics give, and the questions that it took."""
    queries: list[str] = []
    until = Until()
    with Connection(url, Access(), until) as connection:

        def fetch(path: str, params: Params) -> Response:
            queries.extend([str(params["query"])] if "query" in params else [])
            return Patient(connection.fetch, until)(path, params)

        end_ns = from_datetime(NOW)
        found = metric_fleet.history(
            fetch,
            "metrics",
            start_ns=end_ns - round(days * 86_400 * 1e9),
            end_ns=end_ns,
            matchers=matchers,
        )
    return found, queries


def listed(fake_kubeconfig: Path, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    assert 0 == main(["nodes", "-o", "json", "--kubeconfig", str(fake_kubeconfig), *more])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return {one["name"]: one for one in found["nodes"]} | {"missing": found["missing"]}


def nodes_of(fake: FakeApi, *names: str) -> None:
    for index, name in enumerate(names):
        node = fake_api.node(name)
        node["status"]["addresses"] = [{"type": "InternalIP", "address": f"10.0.0.{index + 1}"}]
        node["status"]["capacity"] = node["status"]["allocatable"] = {"nvidia.com/gpu": "2"}
        fake.add("/api/v1/nodes", node)


def test_the_list_of_nodes_tells_xids(
    fake: FakeApi,
    fake_kubeconfig: Path,
    prometheus: Callable[[Iterable[Series]], str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each node its own with their times, by name or address; none and unknown told apart; nothing unasked."""
    nodes_of(fake, "gpu-1", "gpu-2", "gpu-3", "gpu-4")
    early = FALL - timedelta(days=2)
    url = prometheus(
        [
            gauge("gpu-1", 0),
            by_address(gauge("other", 1, (early, 48), (FALL, 79)), "10.0.0.2"),
            gauge("gpu-3", 0, (FALL, 31)),
            gauge("stranger", 0, (FALL, 79)),
        ]
    )
    every = listed(fake_kubeconfig, capsys, "--prometheus", url)
    told = {
        name: one["xids"] and [(xid["xid"], xid["gpu_index"]) for xid in one["xids"]]
        for name, one in every.items()
        if name != "missing"
    }
    assert {"gpu-1": [], "gpu-2": [(48, 1), (79, 1)], "gpu-3": [(31, 0)], "gpu-4": None} == told
    times = [datetime.fromisoformat(xid["at"]) for xid in every["gpu-2"]["xids"]]
    for expected, at in zip((early, FALL), times, strict=True):
        assert timedelta() <= at - expected <= timedelta(seconds=EVERY_S)
    before, lost = (one["what"] for one in every["missing"])
    assert "XID history of gpu-4" == lost
    assert before.startswith("XID history before ")
    began = datetime.fromisoformat(before.removeprefix("XID history before "))
    assert timedelta() <= began - BEGIN <= timedelta(minutes=1), "ten days of thirty"

    monkeypatch.setenv("GPUFLEET_PROMETHEUS", url)
    assert 0 == main(["nodes", "--kubeconfig", str(fake_kubeconfig)])
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert lines[1].startswith("gpu-2 "), "a node fault before what looks well"
    assert lines[2].startswith("    XID 79 GPU 1 20"), lines[2]
    assert ", XID 48 GPU 1 20" in lines[2]

    monkeypatch.delenv("GPUFLEET_PROMETHEUS")
    every = listed(fake_kubeconfig, capsys)
    assert [[], None, None] == [every["missing"], every["gpu-1"]["xids"], every["gpu-2"]["xids"]]


def test_a_server_that_is_down_costs_the_xids_alone(
    fake: FakeApi, fake_kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The nodes are listed all the same, and why there is no history is said."""
    nodes_of(fake, "gpu-1")
    more = ("--prometheus", "http://127.0.0.1:9", "--deadline", "5s")
    every = listed(fake_kubeconfig, capsys, *more)
    assert every["gpu-1"]["xids"] is None
    assert ["XID history"] == [one["what"] for one in every["missing"]]


def test_questions_do_not_grow_with_the_nodes(
    prometheus: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four for 300 nodes, and none bears a node's name; where much is to be scanned, pieces of time."""
    series = [gauge(f"gpu-{n:03}", 0, *[(FALL, 79.0)] * (n == 7)) for n in range(300)]
    short = [Series(name=s.name, labels=s.labels, samples=s.samples[-200:]) for s in series]
    url = prometheus(short)
    found, queries = asked_of(url, days=4)
    assert 4 == len(queries)
    assert not [text for text in queries if "gpu-0" in text.replace("GPU-gpu-007", "")]
    assert {"gpu-007"} == {one.metric["Hostname"] for one in found.series}
    assert () == found.gaps
    nodes = {f"gpu-{n:03}": () for n in range(300)}
    owned = metric_fleet.by_node(found, nodes)
    assert set(nodes) == set(owned.files)
    assert ["gpu-007"] == [node for node, files in owned.files.items() if files]

    monkeypatch.setattr(metric_fleet, "MOST_SCANNED", 1_200_000)
    again, queries = asked_of(url, days=4)
    assert 6 == len(queries), "a day and a third at once"
    assert found.series == again.series


def test_limits_of_the_server_and_ours(
    prometheus: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that refuses long questions gets shorter ones; too many samples are had at steps, and said."""
    series = [gauge(f"gpu-{n}", 0, (FALL, 79)) for n in range(3)]
    found, _ = asked_of(prometheus(series, more=("--query.max-samples=500",)))
    assert () == found.gaps
    assert 3 == len(found.series)
    monkeypatch.setattr(metric_fleet, "MOST_SAMPLES", 20_000)
    found, _ = asked_of(prometheus(series))
    assert ["XIDs of 3 GPUs between steps of 130 s"] == [gap.what for gap in found.gaps]
    assert 3 == len(found.series)


def test_a_node_of_another_place_lends_no_xid(prometheus: Callable[..., str]) -> None:
    """Two clusters have a gpu-1, and one of them a code: it is nobody's until matchers choose."""
    url = prometheus(
        [gauge("gpu-1", 0, cluster="a"), gauge("gpu-1", 0, (FALL, 79), cluster="b", UUID="GPU-b")]
    )
    nodes = {"gpu-1": ()}
    found, _ = asked_of(url)
    owned = metric_fleet.by_node(found, nodes)
    assert {} == owned.files
    assert ["metrics of node gpu-1"] == [gap.what for gap in owned.gaps]
    found, _ = asked_of(url, matchers='cluster="a"')
    assert {"gpu-1": ()} == metric_fleet.by_node(found, nodes).files
    found, _ = asked_of(url, matchers='cluster="b"')
    assert 1 == len(metric_fleet.by_node(found, nodes).files["gpu-1"])
