"""Which of the codes that the evidence shows is called the cause: the one that the verdict speaks of, no other."""

from __future__ import annotations

import json

from gpufleet_cli.evidence import Evidence, Target
from gpufleet_cli.facts import Fact, XidEvent
from gpufleet_cli.parsers import dcgm_metrics
from gpufleet_cli.triage import decide
from gpufleet_cli.verdict import Kind, Triage
from rules.stories import STOPPED, S, hang

STEP_S = 30
GPU_OF_RANK_3 = {"Hostname": "node-0", "gpu": "3", "pci_bus_id": "0000:13:00.0", "UUID": "GPU-3"}


def gauge(codes: list[tuple[int, int]], of: dict[str, str] | None = None) -> list[Fact]:
    """What the parser makes of a gauge that ends five minutes after the stop: (code, samples) in turn."""
    values = [code for code, count in codes for _ in range(count)]
    end_s = STOPPED // S + 300
    times = [end_s - STEP_S * back for back in range(len(values) - 1, -1, -1)]
    labels = {"__name__": "DCGM_FI_DEV_XID_ERRORS", **(of or GPU_OF_RANK_3)}
    samples = [[at, str(value)] for at, value in zip(times, values, strict=True)]
    result = [{"metric": labels, "values": samples}]
    document = {"status": "success", "data": {"resultType": "matrix", "result": result}}
    raw = json.dumps(document).encode()
    return list(
        dcgm_metrics.parse(Evidence(path="metrics/xid.json", size_bytes=len(raw), content=raw))
    )


def decided(facts: list[Fact]) -> Triage:
    target = Target(kind="directory", name="night", evidences=(), gaps=())
    return decide(target, hang(*facts), (), as_of_ns=None, strict=True)


def roles(triage: Triage) -> list[tuple[int | None, bool, str]]:
    return sorted((e.xid, e.at_ns is not None, e.role) for e in triage.hardware)


def test_a_value_that_stood_there_is_not_the_cause_beside_the_code_that_came() -> None:
    """31 from the first sample on, then 79 when the job stopped: one series, and only 79 is the cause."""
    facts = gauge([(31, 20), (79, 11)])
    events = [fact for fact in facts if isinstance(fact, XidEvent)]
    assert 1 == len(
        {one.origin for one in events}
    )  # the trap: both have the origin of their series
    found = decided(facts)
    assert Kind.HARDWARE is found.verdict.kind
    assert [(31, False, "unrelated"), (79, True, "cause")] == roles(found)


def test_an_earlier_change_of_the_same_gauge_is_not_the_cause() -> None:
    """13 rose four hours before 79 did."""
    found = decided(gauge([(0, 5), (13, 480), (79, 11)]))
    assert [(13, True, "unrelated"), (79, True, "cause")] == roles(found)


def test_a_value_that_never_changed_is_no_cause_at_all() -> None:
    """Any code: it may be weeks old, and the silence of the rank has no cause in the evidence."""
    for code in (31, 79):
        found = decided(gauge([(code, 31)]))
        assert Kind.RANK_MISSING is found.verdict.kind
        assert [(code, False, "unrelated")] == roles(found)
