"""Alerts as Alertmanager's API takes them: begun, posted again, resolved, and posts that fail."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx
import pytest
import respx
from servers import alertmanager as managers
from servers.running import wait_until

from gpufleet_cli.errors import SourceError, UsageError
from gpufleet_cli.operate import notify
from gpufleet_cli.operate.watch.outbox import LASTS_S, Outbox
from gpufleet_cli.timestamps import parse_rfc3339
from gpufleet_cli.watch_card import Event, Kind

NS = 1_000_000_000
AT = 1_790_000_000 * NS
URL = "https://me:secret@alerts.example/prefix/"
POSTED = "https://alerts.example/prefix/api/v2/alerts"


def outbox(url: str | None = URL) -> Outbox:
    return Outbox(
        url=url, labels={"namespace": "ml", "job_name": "run-7"}, generator="https://api.example/run-7",
        command="gpufleet triage run-7 -n ml",
    )  # fmt: skip


def event(kind: Kind, text: str = "no step for 5m", at_ns: int = AT) -> Event:
    return Event(kind=kind, at_ns=at_ns, text=text)


def bodies(route: respx.Route) -> list[list[dict[str, Any]]]:
    return [json.loads(call.request.content) for call in route.calls]


def at(text: str) -> int:
    found = parse_rfc3339(text)
    assert found is not None
    return found[0]


@respx.mock
def test_an_alert_has_the_form_of_the_api() -> None:
    """`postableAlerts` of version 2: labels and annotations of text, times, an address; Basic from the URL."""
    route = respx.post(POSTED).respond(200)
    box = outbox()
    box.note(event(Kind.STALLED), AT - 300 * NS)
    assert [Kind.POSTED] == [one.kind for one in box.flush(0.0, AT)]
    ((one,),) = bodies(route)
    assert {"labels", "annotations", "startsAt", "endsAt", "generatorURL"} == set(one)
    assert {
        "alertname": "GpufleetJobStalled", "severity": "critical", "namespace": "ml", "job_name": "run-7",
    } == one["labels"]  # fmt: skip
    assert all(
        isinstance(value, str) for value in (*one["labels"].values(), *one["annotations"].values())
    )
    assert "gpufleet triage run-7 -n ml" == one["annotations"]["command"]
    assert AT - 300 * NS == at(one["startsAt"])
    assert AT + LASTS_S * NS == at(one["endsAt"])
    assert route.calls[0].request.headers["authorization"].startswith("Basic ")


@respx.mock
def test_what_lasts_is_posted_again_and_then_resolved() -> None:
    """Each minute with a later end; when the job moves, with an end that is now; then no more."""
    route = respx.post(POSTED).respond(200)
    box = outbox()
    box.note(event(Kind.STALLED))
    box.flush(0.0, AT)
    assert [] == box.flush(30.0, AT + 30 * NS)
    assert [] == box.flush(61.0, AT + 61 * NS)  # posted, and no news
    box.note(event(Kind.MOVES, at_ns=AT + 90 * NS))
    (told,) = box.flush(90.0, AT + 90 * NS)
    assert "GpufleetJobStalled resolved" in told.text
    assert [] == box.flush(300.0, AT + 300 * NS)
    first, again, last = (one[0] for one in bodies(route))
    assert first["startsAt"] == again["startsAt"] == last["startsAt"]
    assert at(first["endsAt"]) < at(again["endsAt"])
    assert AT + 90 * NS == at(last["endsAt"])


@respx.mock
@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(400, json={"code": 400, "message": "bad"}),
        httpx.Response(500, text="oh"),
        httpx.Response(302, headers={"location": "https://login.example/"}),
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("slow"),
    ],
)
def test_a_post_that_fails_is_said_once_and_tried_again(answer: httpx.Response | Exception) -> None:
    """With longer and longer pauses; no look is lost to it, and no password told."""
    route = respx.post(POSTED).mock(side_effect=[answer, answer, httpx.Response(200)])
    box = outbox()
    box.note(event(Kind.STALLED))
    (said,) = box.flush(0.0, AT)
    assert Kind.NOT_POSTED is said.kind
    assert "secret" not in said.text and "alerts.example" in said.text
    assert [] == box.flush(0.5, AT)
    assert 1 == route.call_count
    assert [] == box.flush(2.0, AT)
    assert [] == box.flush(3.0, AT)
    assert 2 == route.call_count
    assert [Kind.POSTED] == [one.kind for one in box.flush(10.0, AT)]


@respx.mock
def test_an_alert_goes_on_after_a_restart_of_the_watch() -> None:
    """With the begin that it had; what no longer holds is over."""
    route = respx.post(POSTED).respond(200)
    box = outbox()
    began = {
        "GpufleetJobStalled": AT - 900 * NS,
        "GpufleetWatchCannotSee": AT - 60 * NS,
        "Foreign": 5,
    }
    box.go_on(began, frozenset({Kind.STALLED}), AT)
    box.flush(0.0, AT)
    ((one, gone),) = bodies(route)
    assert AT - 900 * NS == at(one["startsAt"])
    assert "GpufleetWatchCannotSee" == gone["labels"]["alertname"] and AT == at(gone["endsAt"])
    box.note(event(Kind.STALLED), AT)
    assert {"GpufleetJobStalled": AT - 900 * NS} == box.began


@respx.mock
def test_evidence_is_added_to_the_page() -> None:
    route = respx.post(POSTED).respond(200)
    box = outbox()
    box.note(event(Kind.STALLED))
    box.flush(0.0, AT)
    box.add(
        (Kind.STALLED,), {"bundle": "kept/run-7", "triage": "evict-now \x1b[31m password=hunter22"}
    )
    box.flush(1.0, AT)
    annotations = bodies(route)[1][0]["annotations"]
    assert "kept/run-7" == annotations["bundle"]
    assert "hunter22" not in annotations["triage"] and "\x1b" not in annotations["triage"]


def test_without_an_alertmanager_nobody_is_told_and_nothing_forgotten() -> None:
    box = outbox(None)
    box.note(event(Kind.STALLED))
    assert [] == box.flush(0.0, AT)
    assert ["GpufleetJobStalled"] == list(box.began)


@pytest.mark.parametrize(
    ("url", "posted"),
    [
        ("http://a:9093", "http://a:9093/api/v2/alerts"),
        ("http://a/x/", "http://a/x/api/v2/alerts"),
        ("http://a/x/api/v2/alerts", "http://a/x/api/v2/alerts"),
    ],
)
def test_where_it_is_posted(url: str, posted: str) -> None:
    assert posted == notify.address(url)


@pytest.mark.parametrize("url", ["", "alerts:9093", "svc:ml/a:9093", "ftp://a", "http://"])
def test_what_is_no_url_is_a_matter_of_usage(url: str) -> None:
    with pytest.raises(UsageError, match="--alertmanager"):
        notify.address(url)


def test_nobody_listens() -> None:
    """One line."""
    with pytest.raises(SourceError, match=r"127\.0\.0\.1"):
        notify.post("http://127.0.0.1:9", [], timeout_s=1.0)


def test_a_real_alertmanager_takes_an_alert_and_its_end(alertmanager: str) -> None:
    """As its own API tells them: there with labels and begin, then gone."""
    now_ns = time.time_ns()
    box = outbox(f"{alertmanager}/")
    box.note(event(Kind.STALLED, at_ns=now_ns), now_ns - 300 * NS)
    assert [Kind.POSTED] == [one.kind for one in box.flush(0.0, now_ns)]
    (alert,) = managers.alerts(alertmanager)
    assert "GpufleetJobStalled" == alert["labels"]["alertname"]
    assert "https://api.example/run-7" == alert["generatorURL"]
    assert abs(at(alert["startsAt"]) - (now_ns - 300 * NS)) < NS
    box.note(event(Kind.MOVES, at_ns=time.time_ns()))
    box.flush(1.0, time.time_ns())
    wait_until(lambda: not managers.alerts(alertmanager), "the alert is over")
