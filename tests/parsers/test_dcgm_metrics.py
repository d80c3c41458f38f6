"""DCGM metrics: transitions are events, values are none; labels, readings and series that end."""

from __future__ import annotations

import json

import pytest
from builders import evidence

from gpufleet_cli.errors import ParseError
from gpufleet_cli.facts import (
    Fact,
    GpuReading,
    IdentityLink,
    NodeBoot,
    SeriesEnd,
    SxidEvent,
    XidEvent,
)
from gpufleet_cli.parsers import dcgm_labels, dcgm_metrics, metric_series

T = 1_772_939_400
GAUGE = "DCGM_FI_DEV_XID_ERRORS"
Samples = list[tuple[float, object]]


def series(samples: Samples, name: str = GAUGE, **labels: str) -> dict[str, object]:
    metric = {"__name__": name, "Hostname": "gpu-1", "gpu": "0", "UUID": "GPU-a", **labels}
    return {"metric": metric, "values": [[at, str(value)] for at, value in samples]}


def steps(*values: object, start: int = T, step: int = 30) -> Samples:
    return [(start + step * i, value) for i, value in enumerate(values)]


def answer(*found: dict[str, object], kind: str = "matrix") -> bytes:
    data = {"resultType": kind, "result": list(found)}
    return json.dumps({"status": "success", "data": data}).encode()


def parse(data: bytes) -> list[Fact]:
    return list(dcgm_metrics.parse(evidence(data, "metrics/xid.json")))


def xids(*found: dict[str, object]) -> list[tuple[int, int | None, float]]:
    """(code, seconds after T or None, resolution) of every event."""
    return [
        (f.xid, None if f.at_ns is None else f.at_ns // 10**9 - T, f.resolution_s)
        for f in parse(answer(*found))
        if isinstance(f, XidEvent)
    ]


# --- Transitions ----------------------------------------------------------------------------------


def test_a_step_from_zero_is_an_event() -> None:
    """Dated to the sample that shows it, wrong by the distance to the one before."""
    assert [(62, 60, 30.0)] == xids(series(steps(0, 0, 62, 62)))


def test_45_hides_the_code_before_it() -> None:
    """Both are events, in their order."""
    assert [(62, 30, 30.0), (45, 60, 30.0)] == xids(series(steps(0, 62, 45, 45)))


def test_a_flat_series_is_no_event() -> None:
    """74 for hours happened before what we can see."""
    found = [
        f for f in parse(answer(series(steps(*[74] * 7, step=3600)))) if isinstance(f, XidEvent)
    ]
    assert [(74, None, T * 10**9)] == [(f.xid, f.at_ns, f.seen_ns) for f in found]


def test_a_code_that_comes_back_is_another_event() -> None:
    """79, reset, 79."""
    assert [(79, 30, 30.0), (79, 90, 30.0)] == xids(series(steps(0, 79, 0, 79)))


def test_codes_in_turn_within_one_series() -> None:
    """62, 45, 62: the second 62 is new, whatever the usual step."""
    assert [62, 45, 62] == [code for code, _, _ in xids(series(steps(0, 62, 45, 62)))]


def test_a_new_series_by_code_label_is_an_event() -> None:
    """Newer exporters put the code into a label: the old series ends, another begins."""
    found = xids(
        series(steps(0, 0), err_code="0"), series(steps(79, 79, start=T + 60), err_code="79")
    )
    assert [(79, 60, 30.0)] == found


def test_the_old_code_may_linger_beside_the_new() -> None:
    """Without a staleness marker the old value stays for five minutes."""
    found = xids(
        series(steps(*[0] * 8), err_code="0"), series(steps(79, 79, start=T + 60), err_code="79")
    )
    assert [(79, 60, 30.0)] == found


def test_a_code_labelled_series_alone_is_dated_by_its_neighbours() -> None:
    """The exporter shows no series before the first code; the other GPUs show when samples began."""
    found = xids(
        series(steps(*[0] * 8), UUID="GPU-b", gpu="1", err_code="0"),
        series(steps(79, 79, 79, 79, 79, start=T + 90), err_code="79"),
    )
    assert [(79, 90, 30.0)] == found


def test_a_new_pod_label_is_no_event() -> None:
    """The same value under the next pod's name is the same old value."""
    found = xids(
        series(steps(74, 74, 74), exported_pod="a-0"),
        series(steps(74, 74, start=T + 90), exported_pod="b-0"),
    )
    assert [(74, None, 30.0)] == found


def test_an_exporter_restart_is_no_event() -> None:
    """The gauge falls to 0 or blank; what rises after that counts."""
    blank = 9223372036854775794
    assert [(74, None, 30.0)] == xids(series(steps(74, 0, 0, blank)))


def test_a_mig_instance_has_its_own_story() -> None:
    """Xids of an instance sit on the instance."""
    found = parse(answer(series(steps(0, 13), GPU_I_ID="5"), series(steps(0, 0), GPU_I_ID="6")))
    assert [(13, 5)] == [(f.xid, f.gpu_instance) for f in found if isinstance(f, XidEvent)]


def test_the_new_name_of_the_gauge() -> None:
    """DCGM 4.6 dropped the plural."""
    assert [(79, 30, 30.0)] == xids(series(steps(0, 79), "DCGM_FI_DEV_XID_ERROR"))


def test_an_instant_value_has_no_date() -> None:
    """A vector says that it happened, not when."""
    metric = {"__name__": GAUGE, "gpu": "0", "UUID": "GPU-a", "Hostname": "gpu-1"}
    found = parse(answer({"metric": metric, "value": [T, "79"]}, kind="vector"))
    assert [(79, None)] == [(f.xid, f.at_ns) for f in found if isinstance(f, XidEvent)]
    zero = parse(answer({"metric": metric, "value": [T, "0"]}, kind="vector"))
    assert [] == [f for f in zero if isinstance(f, XidEvent)]


# --- The windowed count ---------------------------------------------------------------------------

COUNT = "DCGM_EXP_XID_ERRORS_COUNT"


def test_a_rising_count_tells_repeats() -> None:
    """From 1 to 3 is two more; falling is the window moving on."""
    found = parse(
        answer(
            series(steps(0, 0), COUNT),
            series(steps(1, 3, 1, start=T + 60), COUNT, xid="63", window_size_in_ms="300000"),
        )
    )
    events = [f for f in found if isinstance(f, XidEvent)]
    assert [(63, T + 60, 0), (63, T + 90, 1)] == [
        (f.xid, (f.at_ns or 0) // 10**9, f.repeats) for f in events
    ]


def test_a_count_at_the_first_sample_is_within_its_window() -> None:
    """Five minutes, not days."""
    found = xids(series(steps(2, 2), COUNT, xid="63", window_size_in_ms="300000"))
    assert [(63, 0, 300.0)] == found


def test_count_and_gauge_of_one_event_are_one() -> None:
    """Where both are exported the count, which tells repeats, stands for both."""
    found = xids(
        series(steps(0, 0, 63)),
        series(steps(0, 0), COUNT),
        series(steps(1, start=T + 60), COUNT, xid="63", window_size_in_ms="300000"),
    )
    assert [(63, 60)] == [(code, at) for code, at, _ in found]


# --- Replicas -------------------------------------------------------------------------------------

ONE, TWO = {"prometheus_replica": "a"}, {"prometheus_replica": "b"}


def test_two_replicas_tell_of_one_transition() -> None:
    """Thanos hands over both: scraped 13 s apart, also where one of them began in between."""
    for late in (0, 2):
        found = xids(
            series(steps(0, 0, 0, 79, 0, 79, 79), **ONE),
            series(steps(*[0, 0, 0, 79, 0, 79, 79][late:], start=T + 13 + 30 * late), **TWO),
        )
        assert [(79, 90, 30.0), (79, 150, 30.0)] == found


def test_two_replicas_count_a_rise_once() -> None:
    """A repeat is an event of its own in each; what only one of them saw is told."""
    more = {"xid": "63", "window_size_in_ms": "300000"}
    found = xids(
        series(steps(*[0] * 20), COUNT, **ONE),
        series(steps(1, 2, 2, 0, 0, 0, 0, 1, start=T + 60), COUNT, **more, **ONE),
        series(steps(1, 2, 2, start=T + 73), COUNT, **more, **TWO),
    )
    assert [(63, 60, 30.0), (63, 90, 30.0), (63, 270, 30.0)] == found


def test_two_replicas_tell_of_one_switch_error() -> None:
    """And of two switches each its own."""
    name = "DCGM_FI_DEV_NVSWITCH_FATAL_ERRORS"
    found = parse(
        answer(
            series(steps(0, 20034), name, nvswitch="nvswitch3", **ONE),
            series(steps(0, 20034, start=T + 13), name, nvswitch="nvswitch3", **TWO),
            series(steps(0, 20034), name, nvswitch="nvswitch4", **ONE),
        )
    )
    assert [(20034, T + 30)] * 2 == [
        (f.sxid, (f.at_ns or 0) // 10**9) for f in found if isinstance(f, SxidEvent)
    ]


def test_the_newest_sample_is_the_last_whatever_the_order_of_series() -> None:
    """A replica that died early, and a GPU whose next pod's name comes first, have no last word."""
    field = "DCGM_FI_DEV_ROW_REMAP_PENDING"
    early = series(steps(0, 0, start=T + 13), field, **TWO)
    later = series(steps(0, 0, 0, 1, 1), field, **ONE)
    pods = (
        series(steps(1, 1, start=T + 90), field, exported_pod="a-0"),
        series(steps(0, 0, 0), field, exported_pod="b-0"),
    )
    for told in ((later, early), (early, later), pods):
        (reading,) = [f for f in parse(answer(*told)) if isinstance(f, GpuReading)]
        assert (0.0, 1.0, T + 90) == (
            reading.first,
            reading.last,
            (reading.changed_ns or 0) // 10**9,
        )


# --- Labels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "node"),
    [
        ({"Hostname": "gpu-1"}, "gpu-1"),
        ({"hostname": "gpu-1"}, "gpu-1"),
        ({"Hostname": "dcgm-exporter-x7k2p", "node": "gpu-1"}, "gpu-1"),
        ({"Hostname": "dcgm-exporter-x7k2p", "instance": "10.0.0.5:9400"}, "10.0.0.5"),
        ({"kubernetes_node": "gpu-1", "instance": "10.0.0.5:9400"}, "gpu-1"),
        ({}, None),
    ],
)
def test_which_node(labels: dict[str, str], node: str | None) -> None:
    """The host's label may be the exporter's pod name."""
    assert node == dcgm_labels.node_of(labels)


@pytest.mark.parametrize(
    ("labels", "pod"),
    [
        ({"pod": "train-0", "namespace": "ml", "container": "pytorch"}, "train-0"),
        (
            {"pod": "dcgm-exporter-x", "exported_pod": "train-0", "exported_namespace": "ml"},
            "train-0",
        ),
        ({"pod": "dcgm-exporter-x", "namespace": "gpu-operator"}, None),
        ({"pod": "x7k2p", "container": "nvidia-dcgm-exporter"}, None),
        ({"pod_name": "train-0", "pod_namespace": "ml"}, "train-0"),
        ({}, None),
    ],
)
def test_which_pod(labels: dict[str, str], pod: str | None) -> None:
    """`pod` is the exporter's own unless honor_labels is set."""
    assert pod == dcgm_labels.pod_of(labels)[0]


def test_a_series_ties_gpu_node_and_pod() -> None:
    """One link for all fields of a GPU; index 0 is an index."""
    labels = {"pci_bus_id": "00000000:3B:00.0", "exported_pod": "train-0", "pod": "dcgm-exporter-1"}
    found = parse(
        answer(series(steps(0, 0), **labels), series(steps(1), "DCGM_FI_DEV_GPU_TEMP", **labels))
    )
    links = [f for f in found if isinstance(f, IdentityLink)]
    assert 1 == len(links)
    assert ("gpu-1", "train-0", 0, "GPU-a", "00000000:3B:00.0") == (
        links[0].node,
        links[0].pod,
        links[0].gpu_index,
        links[0].gpu_uuid,
        links[0].pci_bus_id,
    )


# --- Readings, ends, other exporters --------------------------------------------------------------


def test_a_reading_is_a_summary() -> None:
    """First, last, range, median and when it last changed; blanks and NaN are left out."""
    samples = steps(16, 16, "NaN", 8, 8, "9223372036854775794", "+Inf")
    found = parse(answer(series(samples, "DCGM_FI_DEV_PCIE_LINK_WIDTH")))
    reading = next(f for f in found if isinstance(f, GpuReading))
    assert ("DCGM_FI_DEV_PCIE_LINK_WIDTH", 16.0, 8.0, 8.0, 16.0, 4) == (
        reading.field, reading.first, reading.last, reading.low, reading.high, reading.samples,
    )  # fmt: skip
    assert (T + 90) * 10**9 == reading.changed_ns


def test_a_renamed_field_keeps_its_old_name() -> None:
    """Rules know one name."""
    found = parse(answer(series(steps(1), "DCGM_FI_DEV_ROW_REMAP_FAILED")))
    assert ["DCGM_FI_DEV_ROW_REMAP_FAILURE"] == [
        f.field for f in found if isinstance(f, GpuReading)
    ]


def test_a_series_that_ends_early() -> None:
    """The GPU fell off the bus while its neighbours went on."""
    found = parse(answer(series(steps(*[0] * 4)), series(steps(*[0] * 20), UUID="GPU-b", gpu="1")))
    ends = [f for f in found if isinstance(f, SeriesEnd)]
    assert [("GPU-a", T + 90, T + 570)] == [
        (f.gpu_uuid, f.last_ns // 10**9, f.others_last_ns // 10**9) for f in ends
    ]


def test_series_that_all_end_together_end_nothing() -> None:
    """That is the end of the query."""
    found = parse(answer(series(steps(*[0] * 20)), series(steps(*[0] * 19), UUID="GPU-b", gpu="1")))
    assert [] == [f for f in found if isinstance(f, SeriesEnd)]


def test_the_switchs_gauge() -> None:
    """A switch entity, no GPU."""
    found = parse(
        answer(series(steps(0, 20034), "DCGM_FI_DEV_NVSWITCH_FATAL_ERRORS", nvswitch="nvswitch3"))
    )
    assert [(20034, True, "gpu-1")] == [
        (f.sxid, f.fatal, f.node) for f in found if isinstance(f, SxidEvent)
    ]


def test_pods_that_are_gone_and_boots() -> None:
    """kube_pod_info knows node and uid, node-exporter the boot."""
    info = {"__name__": "kube_pod_info", "pod": "kube-state-metrics-0", "exported_pod": "train-3",
            "exported_namespace": "ml", "node": "gpu-9", "uid": "u-1", "pod_ip": "10.1.1.1"}  # fmt: skip
    boot = {"__name__": "node_boot_time_seconds", "instance": "gpu-9:9100"}
    found = parse(
        answer({"metric": info, "value": [T, "1"]}, {"metric": boot, "value": [T, "1762750770"]})
    )
    link = next(f for f in found if isinstance(f, IdentityLink))
    assert ("train-3", "gpu-9", "u-1", "ml") == (link.pod, link.node, link.pod_uid, link.namespace)
    assert [("gpu-9", 1_762_750_770_000_000_000)] == [
        (f.node, f.boot_ns) for f in found if isinstance(f, NodeBoot)
    ]


# --- Forms ----------------------------------------------------------------------------------------


def test_exporter_text_has_no_history() -> None:
    """What curl shows on port 9400: values of now."""
    found = parse(
        b"# HELP DCGM_FI_DEV_XID_ERRORS Value of the last XID error encountered.\n"
        b"# TYPE DCGM_FI_DEV_XID_ERRORS gauge\n"
        b'DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-1",Hostname="gpu-1",pod="a\\"}b"} 79\n'
        b'DCGM_FI_DEV_XID_ERRORS{gpu="1",UUID="GPU-2",Hostname="gpu-1"} 0\n'
        b'DCGM_FI_DEV_ROW_REMAP_PENDING{gpu="0",UUID="GPU-1",Hostname="gpu-1"} 1\n'
    )
    assert [(79, "GPU-1", None)] == [
        (f.xid, f.gpu_uuid, f.at_ns) for f in found if isinstance(f, XidEvent)
    ]
    assert [1.0] == [f.last for f in found if isinstance(f, GpuReading)]


@pytest.mark.parametrize("form", ["result", "data", "lines", "ndjson"])
def test_other_wrappings_of_the_same_answer(form: str) -> None:
    """The bare result, the bare data, VictoriaMetrics' export, answers in a row."""
    one = series(steps(0, 79))
    exported = {
        "metric": one["metric"],
        "values": [0, 79],
        "timestamps": [T * 1000, (T + 30) * 1000],
    }
    data = {
        "result": json.dumps([one]).encode(),
        "data": json.dumps({"resultType": "matrix", "result": [one]}).encode(),
        "lines": (json.dumps(exported) + "\n").encode() * 1,
        "ndjson": answer(one) + b"\n" + answer(series(steps(0, 0), UUID="GPU-b")),
    }[form]
    found = [f for f in parse(data) if isinstance(f, XidEvent)]
    assert [(79, (T + 30) * 10**9)] == [(f.xid, f.at_ns) for f in found]


def test_an_error_answer_is_said() -> None:
    """The server's reason is the gap's reason."""
    data = b'{"status":"error","errorType":"bad_data","error":"exceeded maximum resolution"}'
    assert dcgm_metrics.matches("m.json", data)
    with pytest.raises(ParseError, match="exceeded maximum resolution"):
        parse(data)


def test_a_cut_answer_gives_its_whole_series() -> None:
    """The last series is lost, the others are not."""
    data = answer(series(steps(0, 79)), series(steps(0, 62), UUID="GPU-b"))
    found = [f for f in parse(data[:-60]) if isinstance(f, XidEvent)]
    assert [79] == [f.xid for f in found]


@pytest.mark.parametrize(
    "data", [b"{", b'{"status":"success"', b"[" * 100_000, b'{"data":{"result":[}', b"\xff{"]
)
def test_scraps_are_refused_or_empty(data: bytes) -> None:
    """Nothing but ParseError leaves the parser."""
    try:
        assert [] == parse(data)
    except ParseError as exc:
        assert exc.message


def test_values_that_are_no_samples() -> None:
    """Wrong shapes cost themselves."""
    metric = {"__name__": GAUGE, "UUID": "GPU-a", "gpu": "0"}
    odd: list[object] = [
        [T, "0"], "x", [T], [None, "79"], [T + 1, None], [T + 2, {}], [1e300, "62"], [T + 30, 79],
    ]  # fmt: skip
    found = parse(answer({"metric": metric, "values": odd}, {"metric": 5}, {"metric": metric}))
    assert [79] == [f.xid for f in found if isinstance(f, XidEvent)]


def test_alternating_codes_cost_no_more_than_their_number() -> None:
    """A hostile gauge that changes at each sample neither stalls nor floods."""
    samples = [(T + i, 62 + i % 2) for i in range(30_000)]
    found = [f for f in parse(answer(series(samples))) if isinstance(f, XidEvent)]
    assert 10_000 == len(found)


def test_what_is_ours() -> None:
    """Loki's streams look alike and are logs."""
    assert dcgm_metrics.matches("a.json", answer(series(steps(0))))
    assert dcgm_metrics.matches("a.txt", b'DCGM_FI_DEV_GPU_TEMP{gpu="0"} 30\n')
    loki = (
        b'{"status":"success","data":{"resultType":"streams","result":[{"stream":{},"values":[]}]}}'
    )
    assert not dcgm_metrics.matches("a.json", loki)
    assert not dcgm_metrics.matches("a.log", b"2025-02-18 step 1\n")


def test_the_usual_step() -> None:
    """The median, so that one gap does not widen everything."""
    assert 30.0 == metric_series.median_step_s((0, 30 * 10**9, 60 * 10**9, 6000 * 10**9))
    assert metric_series.median_step_s((None, 5)) is None
