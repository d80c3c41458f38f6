"""Logs as whole documents: JSON answers and exports of every collector, in time order."""

from __future__ import annotations

import json
from typing import Any

import pytest
from parsers.log_reading import Line, evidence_of, facts_of, lines, log_lines, writes

from gpufleet_cli.facts import Gap
from gpufleet_cli.parsers import log_documents, training_log

LOKI: dict[str, Any] = {
    "status": "success",
    "data": {
        "resultType": "streams",
        "result": [
            {
                "stream": {"pod": "sft-0", "container": "t", "namespace": "ml", "node_name": "n0"},
                "values": [
                    ["1754032178000000003", "third"],
                    ["1754032178000000002", "second b"],
                    ["1754032178000000002", "second a"],
                    ["1754032178000000001", "[rank0]: first"],
                ],
            },
            {
                "stream": {
                    "filename": "/var/log/pods/ml_sft-1_8c1f77d0-5b10-4d2e-9f60-1a2b3c4d5e60/t/3.log"
                },
                "values": [["1754032178000000002", "other", {"node": "n1"}]],
            },
        ],
    },
}


def texts(content: object, path: str = "x.json") -> list[str]:
    data = content if isinstance(content, str | bytes) else json.dumps(content)
    return [line.text for line in lines(data, path=path)]


def test_loki_is_sorted_and_its_labels_read() -> None:
    """Newest first, one list per label set: one stream of lines in time, equal times in order."""
    found = lines(json.dumps(LOKI), path="x.json")
    assert [line.text for line in found] == ["first", "second a", "second b", "other", "third"]
    assert found[0].who == {
        "pod": "sft-0",
        "container": "t",
        "namespace": "ml",
        "node": "n0",
        "prefix_rank": 0,
    }
    assert found[0].at == "2025-08-01T07:09:38.000000001Z"
    other = found[3].who
    assert (other["pod"], other["attempt"], other["node"]) == ("sft-1", 3, "n1")
    assert [line.line for line in found] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("indent", [None, 1])
def test_loki_on_one_line_or_on_many(indent: int | None) -> None:
    """The same answer, pretty or not."""
    assert texts(json.dumps(LOKI, indent=indent))[0] == "first"


def test_a_loki_limit_leaves_a_gap() -> None:
    """Exactly 1000 lines: the old end may be missing."""
    values = [[str(1754032178000000000 + n), f"line {n}"] for n in range(1000, 0, -1)]
    doc = {
        "data": {"resultType": "streams", "result": [{"stream": {"pod": "a-0"}, "values": values}]}
    }
    gaps = [fact for fact in facts_of(json.dumps(doc)) if isinstance(fact, Gap)]
    assert any("1000 lines" in gap.why for gap in gaps)
    doc["data"]["result"][0]["values"] = values[:-1]  # type: ignore[index]
    assert not any(isinstance(fact, Gap) for fact in facts_of(json.dumps(doc)))


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_a_cut_document_keeps_what_is_whole(share: float) -> None:
    """Half a Loki answer: its whole entries count, and the cut is a gap."""
    text = json.dumps(LOKI, indent=1)
    cut = text[: int(len(text) * share)]
    found = texts(cut)
    assert set(found) <= set(texts(LOKI))
    if share > 0.5:
        assert found and any(
            isinstance(fact, Gap) and "cut off" in fact.why for fact in facts_of(cut, path="x.json")
        )


def test_elasticsearch_hits_and_their_missing_rest() -> None:
    """`_source` with Kubernetes names; a total above the hits is a gap."""
    hits = [
        {"_index": "x", "_id": str(n), "_source": {
            "@timestamp": f"2025-03-03T21:41:0{n}.5Z", "log": f"line {n}\n", "stream": "stderr",
            "kubernetes": {"pod_name": "sft-0", "host": "n1", "container_name": "t", "namespace_name": "ml", "labels": {"app": "x"}}}}
        for n in (3, 2, 1)
    ]  # fmt: skip
    doc = {"took": 1, "hits": {"total": {"value": 25_000, "relation": "eq"}, "hits": hits}}
    found = lines(json.dumps(doc))
    assert [line.text for line in found] == ["line 1", "line 2", "line 3"]
    assert found[0].who == {"pod": "sft-0", "node": "n1", "container": "t", "namespace": "ml"}
    assert any("3 of 25000" in f.why for f in facts_of(json.dumps(doc)) if isinstance(f, Gap))


def test_fluent_bit_lines_with_float_seconds_and_parts() -> None:
    """One object a line; `date` is float seconds, `logtag` P goes on in the next."""
    names = {"pod_name": "sft-0", "host": "n1", "container_name": "t"}
    rows = [
        {
            "date": 1741038060.012,
            "log": "one ",
            "stream": "stderr",
            "logtag": "P",
            "kubernetes": names,
        },
        {
            "date": 1741038060.013,
            "log": "two",
            "stream": "stderr",
            "logtag": "F",
            "kubernetes": names,
        },
        {
            "date": 1741038061,
            "log": "[rank2]: three\n",
            "stream": "stderr",
            "logtag": "F",
            "kubernetes": names,
        },
    ]
    found = lines("\n".join(map(json.dumps, rows)) + "\n", path="x.ndjson")
    assert [(line.text, line.at) for line in found] == [
        ("one two", "2025-03-03T21:41:00.012Z"),
        ("three", "2025-03-03T21:41:01Z"),
    ]
    assert found[1].who == {"pod": "sft-0", "node": "n1", "container": "t", "prefix_rank": 2}


def test_victorialogs_lines_are_sorted() -> None:
    """The answer has no order; flat field names with dots name the pod."""
    rows = [
        {
            "_time": "2025-05-12T09:57:46Z",
            "_msg": "b",
            "_stream": '{pod="sft-0"}',
            "kubernetes.pod_node_name": "n1",
        },
        {
            "_time": "2025-05-12T09:57:45.5Z",
            "_msg": "a",
            "_stream": '{pod="sft-0"}',
            "kubernetes.container_name": "t",
        },
        {
            "_time": "2025-05-12T09:57:47Z",
            "_msg": "c",
            "_stream": "{}",
            "kubernetes.pod_name": "sft-1",
        },
    ]
    found = lines("\n".join(map(json.dumps, rows)))
    assert [line.text for line in found] == ["a", "b", "c"]
    assert [line.who for line in found] == [
        {"pod": "sft-0", "container": "t"},
        {"pod": "sft-0", "node": "n1"},
        {"pod": "sft-1"},
    ]


def test_logcli_jsonl() -> None:
    """Newest first by default."""
    rows = [
        {"labels": {"pod": "sft-0"}, "line": "b", "timestamp": "2025-05-12T11:57:46+02:00"},
        {"labels": {"pod": "sft-0"}, "line": "a", "timestamp": "2025-05-12T11:57:45+02:00"},
    ]
    found = lines("\n".join(map(json.dumps, rows)))
    assert found == [
        Line("a", "2025-05-12T09:57:45Z", {"pod": "sft-0"}, 1),
        Line("b", "2025-05-12T09:57:46Z", {"pod": "sft-0"}, 2),
    ]


def test_grafana_explore_download() -> None:
    """A list of objects with nanoseconds as text."""
    rows = [{"line": "b", "timestamp": "1754032178000000002", "date": "x", "fields": {"pod": "p-0"}},
            {"line": "a", "timestamp": "1754032178000000001", "date": "x", "fields": {"pod": "p-0"}}]  # fmt: skip
    assert texts(rows) == ["a", "b"]


CLOUDWATCH = {
    "events": [
        {"logStreamName": "train/sft-0/algo-1", "timestamp": 1628785200600, "message": "a", "ingestionTime": 1},
        {"logStreamName": "train/sft-0/algo-1", "timestamp": 1628785200600, "message": "b\n", "ingestionTime": 1},
        {"logStreamName": "ip-10-0-1-2.ec2.internal-application.var.log.containers."
         "sft-1_ml_t-" + "0" * 64 + ".log", "timestamp": 1628785200700, "message": "c"},
    ],
    "searchedLogStreams": [],
}  # fmt: skip


def test_cloudwatch_events_keep_the_order_of_equal_times() -> None:
    """Milliseconds; a stream's name tells the pod, each stream is one of its own."""
    found = log_lines(json.dumps(CLOUDWATCH), path="x.json")
    assert [line.text for line in found] == ["a", "b", "c"]
    assert [line.speaker.pod for line in found] == ["sft-0", "sft-0", "sft-1"]
    assert (found[2].speaker.namespace, found[2].speaker.container) == ("ml", "t")
    assert found[0].speaker.stream == "x.json#train/sft-0/algo-1"
    assert found[0].zone_stated


def test_cloudwatch_next_page_is_a_gap() -> None:
    """`nextToken`: there was more."""
    facts = facts_of(json.dumps({**CLOUDWATCH, "nextToken": "x"}))
    assert any(isinstance(fact, Gap) and "next page" in fact.why for fact in facts)


def test_cloudwatch_insights_rows() -> None:
    """Rows of fields."""
    rows = [[{"field": "@timestamp", "value": f"2025-05-12 09:57:4{n}.000"}, {"field": "@message", "value": f"m{n}"}]
            for n in (2, 1)]  # fmt: skip
    assert texts({"results": rows, "status": "Complete"}) == ["m1", "m2"]


def test_datadog_answer_and_table() -> None:
    """Tags name the pod; the CSV is newest first, with quoted commas and newlines."""
    doc = {"data": [{"id": "1", "type": "log", "attributes": {
        "timestamp": "2025-05-12T09:57:45.5Z", "host": "n1", "service": "x", "message": "[rank1]: hi",
        "tags": ["pod_name:sft-0", "kube_namespace:ml", "kube_container_name:t"]}}]}  # fmt: skip
    assert lines(json.dumps(doc))[0].who == {
        "pod": "sft-0",
        "namespace": "ml",
        "container": "t",
        "node": "n1",
        "prefix_rank": 1,
    }
    table = 'Date,Host,Service,Message\n2025-05-12T09:57:46Z,n1,x,"b, ""quoted""\nmore"\n2025-05-12T09:57:45Z,n2,x,a\n'
    found = lines(table, path="extract.csv")
    assert [(line.text, line.line, line.who["node"]) for line in found] == [
        ("a", 1, "n2"),
        ('b, "quoted"', 2, "n1"),
        ("more", 2, "n1"),
    ]


def test_journal_json() -> None:
    """Microseconds, host and process; kernel messages are not ours; bytes that are no UTF-8."""
    rows: list[dict[str, Any]] = [
        {
            "__REALTIME_TIMESTAMP": "1741038060012000",
            "_HOSTNAME": "n1",
            "_PID": "42",
            "MESSAGE": "a",
        },
        {
            "__REALTIME_TIMESTAMP": "1741038060013000",
            "_HOSTNAME": "n1",
            "_TRANSPORT": "kernel",
            "MESSAGE": "NVRM: Xid",
        },
        {"__REALTIME_TIMESTAMP": "1741038060014000", "_HOSTNAME": "n1", "MESSAGE": [104, 105, 255]},
    ]
    found = lines("\n".join(map(json.dumps, rows)))
    assert [line.text for line in found] == ["a", "hi\ufffd"]
    assert found[0] == Line("a", "2025-03-03T21:41:00.012Z", {"node": "n1", "pid": 42}, 1)


def test_stern_json_and_cloud_logging() -> None:
    """Two further shapes of one object a line."""
    row = {
        "message": "2025-05-12T09:57:45Z hi",
        "nodeName": "n1",
        "namespace": "ml",
        "podName": "sft-0",
        "containerName": "t",
    }
    assert lines(json.dumps(row) + "\n" + json.dumps(row))[0] == Line(
        "hi",
        "2025-05-12T09:57:45Z",
        {"namespace": "ml", "pod": "sft-0", "container": "t", "node": "n1"},
        1,
    )
    entry = {"timestamp": "2025-05-12T09:57:45.1Z", "textPayload": "hi\n", "resource": {"labels": {"pod_name": "sft-0", "container_name": "t"}},
             "labels": {"compute.googleapis.com/resource_name": "gke-n1"}}  # fmt: skip
    assert lines(json.dumps([entry]))[0].who == {"pod": "sft-0", "container": "t", "node": "gke-n1"}


def test_torchrun_error_file_speaks_for_its_process() -> None:
    """The path gives attempt and local rank, the file the traceback and its second."""
    trace = "Traceback (most recent call last):\n  File \"/app/train.py\", line 3, in main\n    x['text']\nKeyError: 'text'\n"
    doc = {
        "message": {
            "message": "KeyError: 'text'",
            "extraInfo": {"py_callstack": trace, "timestamp": "1687284359"},
        }
    }
    path = "gpu-b07/none_x/attempt_1/3/error.json"
    found = lines(json.dumps(doc), path=path)
    assert [line.text for line in found] == trace.splitlines()
    assert found[0].at == "2023-06-20T18:05:59Z"
    assert found[0].who == {"attempt": 1, "local_rank": 3, "node": "gpu-b07"}
    assert training_log.matches(path, json.dumps(doc).encode())


@pytest.mark.parametrize(
    "head",
    [
        '{"apiVersion": "v1", "kind": "PodList", "items": []}',
        '{\n "kind": "List",\n "items": []\n}',
        '{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1,"79"]]}]}}',
        '{"version": "2.9", "pg_config": {}, "entries": []}',
        '{"world_size": 16, "ranks": []}',
        '{"name": "x", "checkpoint_interval_seconds": 5}',
        "\x80\x02}q\x00.",
        "",
        "\n \n",
        "LAST SEEN   TYPE      REASON   OBJECT   MESSAGE\n16m Normal Scheduled pod/a x\n",
        "JobID|JobName|State\n1|x|FAILED\n",
        "JobID           JobName  Partition      State\n------------ ----------\n1  x  gpu  FAILED\n",
        "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\ngpu up 1-00 1 down n1\n",
        "REASON               USER      TIMESTAMP           NODELIST\nx root 2025 n1\n",
        "Name:             sft-0\nNamespace:        ml\n",
        "# HELP DCGM_FI_DEV_XID_ERRORS x\n# TYPE DCGM_FI_DEV_XID_ERRORS gauge\n",
        "[1235733.431527] NVRM: Xid (PCI:0000:4e:00): 79, GPU has fallen off the bus.\n",
        "Feb 18 04:11:47 n1 kernel: [812345.101] NVRM: x\n",
        "2025-02-18T04:11:47+0100 n1 kernel: NVRM: x\n",
        "[Tue Feb 18 04:11:47 2025] NVRM: x\n",
    ],
)
def test_other_formats_are_not_claimed(head: str) -> None:
    """Kernel logs, lists, tables, metrics, dumps and our own files are other parsers'."""
    assert not training_log.matches("logs/x.txt", head.encode("latin-1"))


@pytest.mark.parametrize(
    "head",
    [
        "[rank0]: hello\n",
        "{'loss': 1.9}\n",
        "hello",
        "  1%|x| 3/600 [00:09<30:00,  3.01s/it]\r",
        '{"log":"x\\n","stream":"stderr","time":"2023-06-20T18:00:09Z"}\n',
        '{"level":"info","msg":"x"}\n',
        json.dumps(LOKI),
        json.dumps(LOKI, indent=1),
        json.dumps(CLOUDWATCH),
        "Date,Host,Service,Message\n",
        "\ufeffhello there, this is text\n".encode("utf-16-le").decode("latin-1"),
        "unable to retrieve container logs for containerd://3f9c",
        "[2024-07-24 13:00:10,400] [INFO] x\n",
    ],
)
def test_logs_are_claimed(head: str) -> None:
    """Any text that is no other format."""
    assert training_log.matches("logs/x.txt", head.encode("latin-1", "replace"))


def test_a_foreign_document_gives_nothing() -> None:
    """A JSON document without log lines has no writes, and raises nothing."""
    assert facts_of('{"a": {"b": [1, 2]}}', path="x.json") == []


def test_text_that_only_begins_like_json_is_text() -> None:
    """A Python dict, a bracketed prefix, a broken object: lines, not documents."""
    for text in ("{'loss': 1}\nnext\n", "[rank0]: a\nnext\n", '{"log": "torn\nnext\n'):
        file = evidence_of("a.log", text)
        assert log_documents.read_document(file.head, file.read, file.size_bytes) is None
        assert [w.lines for w in writes(text)][-1] >= 1
