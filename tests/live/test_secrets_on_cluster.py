"""Secrets planted all over a real cluster: no command lets one out, in any form, and each place is listed."""

from __future__ import annotations

import gzip
import json
import re
import tarfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import zstandard
from servers import jobs, nodes, pods
from servers.jobs import Shape
from servers.metrics import Series, held, xid_series
from servers.namespaces import Namespace

from gpufleet_cli.cli import main
from gpufleet_cli.live import http_source
from live import cluster_stories as stories
from live import planted
from live.planted import b64, bodies, key_lines, word

FORMATS = ("text", "json", "yaml", "markdown", "html")
PLAIN_KEY, STAMPED_KEY = key_lines("plain", "PRIVATE KEY"), key_lines("stamped")
ESCAPED_KEY, ENDED_KEY = key_lines("escaped", "EC PRIVATE KEY"), key_lines("ended")
ACCOUNT_KEY = key_lines("account", "PRIVATE KEY")
AWS_ID = "AKIA" + word("aws id", 16, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")
AWS_KEY = word("aws key", 40)
JWT = ".".join(
    b64(part).rstrip("=") for part in ('{"alg":"HS256"}', '{"sub":"' + word("sub") + '"}')
)
JWT += "." + word("jwt", 43)

SECRETS: dict[str, str] = {
    **{
        name: word(name)
        for name in (
            "env of an unknown name", "env of a secret name", "env in JSON", "value of a header",
            "argument", "argument with =", "argument behind -p", "argument in a line",
            "annotation", "applied configuration", "Secret in an annotation", "dockercfg",
            "volume attribute", "node annotation", "event", "event of a node", "termination message",
            "bearer", "postgres", "redis", "mongodb", "sql server", "slash in a password",
            "account key", "shared access signature", "client secret", "wandb", "session cookie",
            "URL in a URL", "JSON in JSON", "environment in a log", "printed arguments",
            "curl", "label of a metric", "metrics password", "metrics header", "log store password",
            "failing password", "echoed password", "exception",
        )
    },
    "amqp": word("amqp", 10) + "@" + word("amqp2", 12),
    "spaced password": f"{word('one', 12)} {word('two', 12)}",
    "basic": b64("jane:" + word("basic password")),
    "basic password": word("basic password"),
    "connection in base64": word("in base64"),
    "AWS id": AWS_ID,
    "AWS key": AWS_KEY,
    "Google signature": word("google signature", 64, "0123456789abcdef"),
    "S3 signature": word("s3 signature", 64, "0123456789abcdef"),
    "hub token": "hf_" + word("hub", 34),
    "GitHub token": "ghp_" + word("github", 36),
    "OpenAI key": "sk-proj-" + word("openai", 44),
    "JWT": JWT,
    **{
        f"{kind} key, line {line}": text
        for kind, key in (
            ("plain", PLAIN_KEY), ("stamped", STAMPED_KEY), ("escaped", ESCAPED_KEY),
            ("ended", ENDED_KEY[1:]), ("account", ACCOUNT_KEY),
        )
        for line, text in enumerate(bodies(key))
    },
}  # fmt: skip
INNOCENT = {
    "NCCL_DEBUG": "INFO",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
    "PET_MAX_RESTARTS": "3",
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
}
S = SECRETS

LOG = [
    f"curl -H 'Authorization: Bearer {S['bearer']}' https://api.example/v1",
    f"proxy said Authorization: Basic {S['basic']}",
    f"headers [(b'Authorization', b'Basic {S['basic']}')]",
    f"connecting to postgresql://train:{S['postgres']}@db.example:5432/runs",
    f"cache redis://:{S['redis']}@cache.example:6379/0",
    f"runs mongodb+srv://train:{S['mongodb']}@c0.example.net/runs?retryWrites=true",
    f"queue amqp://train:{S['amqp']}@mq.example:5672/v",
    f"queue amqps://train:pa/{S['slash in a password']}@mq.example:5671/v",
    f"Server=tcp:sql.example,1433;User ID=train;Password={S['sql server']};Encrypt=yes",
    f"DefaultEndpointsProtocol=https;AccountName=x;AccountKey={S['account key']};EndpointSuffix=y",
    f"GET https://blob.example/ckpt?sv=2024&sig={S['shared access signature']}&se=2026",
    f"GET https://s3.example/b?X-Amz-Credential=x&X-Amz-Signature={S['S3 signature']}&X-Amz-Expires=9",
    f"GET https://storage.example/b?X-Goog-Expires=9\\u0026X-Goog-Signature={S['Google signature']}",
    f"redirect=https%3A%2F%2Ftrain%3A{S['URL in a URL']}%40git.example%2Frepo",
    f"aws says {AWS_ID} / {AWS_KEY} is valid",
    f"logged in to the hub with {S['hub token']}",
    f"cloned with {S['GitHub token']}",
    f"openai: using {S['OpenAI key']}",
    f"session {S['JWT']} began",
    f"wandb: WANDB_API_KEY={S['wandb']}",
    f"Set-Cookie: session={S['session cookie']}; Path=/",
    'config {"body": "{\\"password\\": \\"' + S["JSON in JSON"] + '\\"}"}',
    f'config {{"password": "{S["spaced password"]}", "x": 1}}',
    f"environ({{'LOGGING_AUTH': '{S['environment in a log']}', 'RANK': '0'}})",
    f"started with {S['env of a secret name']} as it was given",
    f"Namespace(lr=0.1, run_secret='{S['printed arguments']}')",
    f"arguments: ['--api-key', '{S['argument']}']",
    f"curl -u train:{S['curl']} https://git.example/x",
    f"AADSTS: client_secret={S['client secret']} is expired",
    f"url64={b64('postgres://train:' + S['connection in base64'] + '@db.example/runs')}",
    f"in64={b64('it is ' + S['env of a secret name'])}",
    json.dumps({"key": "\n".join(ESCAPED_KEY)}),
]
PLAIN = "[rank0]: step 1001 loss 2.31 tokens/s 4096"
ACCOUNT = {
    "type": "service_account",
    "project_id": "train-prod",
    "private_key": "\n".join([*ACCOUNT_KEY, ""]),
    "client_email": "train@train-prod.example",
}


def log_lines(at: datetime) -> list[tuple[datetime, str]]:
    """One rank's log: a key under its prefix with other ranks' lines in between, one that lost its beginning."""
    lines = list(ENDED_KEY[2:])
    lines += LOG
    for line in STAMPED_KEY:
        lines += [f"[rank0]: {line}", f"[rank1]: step {1001 + len(lines)} loss 2.31 lr 1.0e-04"]
    lines += [*PLAIN_KEY, PLAIN]
    return [(at + timedelta(milliseconds=20 * number), line) for number, line in enumerate(lines)]


def shape(made: list[str]) -> Shape:
    """Pods that carry secrets wherever a pod's spec can."""
    applied = {"spec": {"env": [{"name": "ANY", "value": S["applied configuration"]}]}}
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "data": {"any": b64(S["Secret in an annotation"])},
    }
    dockercfg = {
        "auths": {"registry.example": {"auth": b64("me:" + S["dockercfg"]), "username": "me"}}
    }
    side = {
        "name": "side",
        "image": "registry.example/side:1",
        "command": ["sh", "-c", f"run --hub_token {S['argument in a line']} --x 1"],
        "env": [
            {"name": "FROM", "valueFrom": {"secretKeyRef": {"name": "train-login", "key": "any"}}},
            {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        ],
        "livenessProbe": {
            "httpGet": {
                "port": 80,
                "httpHeaders": [{"name": "X-Api-Token", "value": S["value of a header"]}],
            }
        },
    }
    volume = {
        "name": "data",
        "csi": {
            "driver": "blob.example",
            "volumeAttributes": {"accountKey": S["volume attribute"], "container": "ckpt"},
        },
    }
    return Shape(
        pods=2,
        gpus=2,
        nodes=made,
        env={
            **INNOCENT,
            "SITE_SETTING": S["env of an unknown name"],
            "TRAIN_LOGIN": S["env of a secret name"],
            "GOOGLE_JSON": json.dumps(ACCOUNT),
            "SETTINGS": json.dumps({"any": S["env in JSON"]}),
        },
        args=(
            "train.py", "--api-key", S["argument"], f"--hub-token={S['argument with =']}",
            "-p", S["argument behind -p"], "--nproc-per-node=2",
        ),
        annotations={
            "example.com/api-token": S["annotation"],
            "kubectl.kubernetes.io/last-applied-configuration": json.dumps(applied),
            "example.com/copied": json.dumps(secret),
            "example.com/registry": json.dumps(dockercfg),
            "example.com/account": json.dumps(ACCOUNT),
        },
        others=(side,),
        volumes=(volume,),
    )  # fmt: skip


def plant(namespace: Namespace, job: str) -> list[str]:
    """Two pods on two nodes, one of which ended by an exception; the pods' names."""
    made = nodes.make(namespace, 2, gpus=2)
    jobs.pytorchjob(namespace, job, shape(made))
    names = [f"{job}-master-0", f"{job}-worker-0"]
    pods.wait(namespace, f"training.kubeflow.org/job-name={job}", 2)
    at = stories.began(15)
    raised = [
        "[rank2]: Traceback (most recent call last):",
        '[rank2]:   File "/app/train.py", line 12, in <module>',
        f"[rank2]: ConnectionError: postgres://train:{S['exception']}@db.example refused the connection",
    ]
    end = at + timedelta(seconds=60)
    lines = [*log_lines(at - timedelta(minutes=2)), *stories.steps(0, 2, at, 60)]
    lines += stories.timeouts(0, 2, end + timedelta(seconds=600))
    other = [*stories.steps(2, 2, at, 60), *((end, line) for line in raised)]
    logs = {names[0]: lines, names[1]: other}
    pods.give_logs(namespace, logs, container="pytorch")
    message = f"exit 1: mysql -h db -u train -p{S['termination message']} runs"
    pods.terminate(namespace, names[1], container="pytorch", message=message)
    pod = pods.read(namespace, names[0])
    said = f"pull failed: https://train:{S['event']}@registry.example/v2"
    pods.report_event(namespace, pod, reason="Failed", message=said)
    node = nodes.read(namespace.cluster, made[0])
    said = f"join failed --token {S['event of a node']} kubeadm"
    pods.report_event(namespace, {**node, "kind": "Node"}, reason="JoinFailed", message=said)
    marks = {"example.com/join-token": S["node annotation"]}
    namespace.api.patch(f"/api/v1/nodes/{made[0]}", {"metadata": {"annotations": marks}})
    return names


@contextmanager
def echoing() -> Iterator[str]:
    """A server that refuses all and tells in its answer what it was asked with."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            said = f"refused {self.path}; {self.headers.as_string()}".encode()
            self.send_response(403)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_POST = do_GET

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


def unpacked(place: Path) -> Iterator[bytes]:
    """Every byte of a bundle: of its files, and of members that are packed themselves."""
    if place.is_dir():
        files = [one.read_bytes() for one in sorted(place.rglob("*")) if one.is_file()]
    elif place.is_file():
        files = [place.read_bytes()]
    else:
        files = []
    for data in files:
        yield data
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        elif data[:4] == b"\x28\xb5\x2f\xfd":
            data = zstandard.ZstdDecompressor().stream_reader(data).read()
        else:
            continue
        yield data


class Night:
    """Everything that a person runs in one night, and all that came of it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys
        self.told: dict[str, bytes] = {}

    def run(self, *arguments: str) -> str:
        code = main(list(arguments))
        said = self._capsys.readouterr()
        self.told[" ".join(arguments)] = said.out.encode() + said.err.encode()
        assert code != 1, said.err
        return said.out


def api_bytes(namespace: Namespace, names: Iterable[str]) -> bytes:
    """What the API server itself gives of all this."""
    api = namespace.api
    paths = [
        namespace.path("pods"), namespace.path("events"), "/api/v1/nodes",
        "/api/v1/namespaces/default/events",
    ]  # fmt: skip
    found = [json.dumps(api.items(path)).encode() for path in paths]
    found += [
        api.send("GET", namespace.path(f"pods/{name}/log"), container="pytorch") for name in names
    ]
    return b"\n".join(found)


def settings(folder: Path, context: str, prometheus: str, log_store: str) -> None:
    """The settings file of a careless person."""
    place = folder / "gpufleet" / "config.toml"
    place.parent.mkdir(parents=True)
    place.write_text(
        f'[contexts."{context}"]\nprometheus = "{prometheus}"\nlog_store = "{log_store}"\n'
        f'headers = {{ "X-Key" = "{S["metrics header"]}" }}\n',
        encoding="utf-8",
    )


@pytest.fixture
def night(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Night:
    """State and cache are kept, in folders of the test's own. Services that refuse are asked again at once."""
    monkeypatch.setattr(http_source, "FIRST_PAUSE_S", 0.01)
    monkeypatch.delenv("GPUFLEET_NO_STATE")
    for name in ("CACHE", "STATE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    return Night(tmp_path, capsys)


def test_no_secret_comes_to_light(
    namespace: Namespace,
    kubeconfig: Path,
    prometheus: Callable[[Iterable[Series]], str],
    night: Night,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In bundles, reports, standard error, cache and state; every place is listed once; settings stay."""
    job, folder = f"train-{namespace.name}", night.folder
    names = plant(namespace, job)
    node = pods.read(namespace, names[0])["spec"]["nodeName"]
    now = datetime.now(UTC)
    more = {"scrape_url": f"http://exporter:{S['label of a metric']}@{node}:9400"}
    samples = held(now - timedelta(hours=2), now)
    url = prometheus([xid_series(node, 0, samples, more=more)]).removeprefix("http://")
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    context = re.findall(r"current-context: *\"?([^\s\",]+)", kubeconfig.read_text())
    settings(
        folder / "config",
        context[0] if context else json.loads(kubeconfig.read_text())["current-context"],
        f"http://prom:{S['metrics password']}@{url}",
        f"loki+http://loki:{S['log store password']}@127.0.0.1:9",
    )

    raw = api_bytes(namespace, names) + json.dumps(more).encode()
    raw += (folder / "config" / "gpufleet" / "config.toml").read_bytes()
    unasked = {"failing password", "echoed password"}  # stand in a command line alone
    assert set(S) - unasked == planted.found_in(
        raw, {k: v for k, v in S.items() if k not in unasked}
    )

    bundles = [folder / name for name in ("bundle", "b.tar.gz", "b.tar.zst")]
    for place in bundles:
        night.run("collect", job, "--to", str(place))
    for output in FORMATS:
        bundles.append(folder / f"saved-{output}")
        night.run("triage", job, "-o", output, "-v", "--save", str(bundles[-1]))
        night.run("triage", str(bundles[0]), "-o", output, "-v")
    night.run("triage", job, "--brief")
    night.run("ranks", str(bundles[0]), "-v")
    night.run("explain", str(bundles[0]), "--rank", "2", "-v")
    for output in ("text", "json"):
        night.run("node", node, "-o", output, "-v")
        night.run("nodes", "-o", output, "-v")
    night.run("cache", "refresh")
    bundles += [folder / name for name in ("failing", "echoed")]
    failing = f"http://prom:{S['failing password']}@127.0.0.1:9/x"
    night.run("collect", job, "--to", str(folder / "failing"), "--prometheus", failing)
    with echoing() as place:
        asked = f"http://prom:{S['echoed password']}@{place}"
        night.run("collect", job, "--to", str(folder / "echoed"), "--prometheus", asked)
    examined(night, job, failing)
    night.run("triage", job, "--dumps", f"s3://me:{S['failing password']}@bucket/x")
    night.run("triage", str(folder / "echoed"), "-v")

    for command, said in night.told.items():
        assert set() == planted.found_in(said, S), command
    for bundle in bundles:
        data = b"\n".join(unpacked(bundle))
        assert len(data) > 1000, bundle
        assert set() == planted.found_in(data, S), bundle
    for kept in ("cache", "state", "tmp"):
        data = b"\n".join(unpacked(folder / kept))
        assert set() == planted.found_in(data, S), kept
    with tarfile.open(folder / "b.tar.gz") as archive:
        assert "kubernetes/pods.json" in archive.getnames()

    manifest = json.loads((bundles[0] / "manifest.json").read_text(encoding="utf-8"))
    listed_whole(manifest, bundles[0], names, namespace)
    shown = (bundles[0] / "kubernetes/pods.json").read_text(encoding="utf-8")
    for name, value in {**INNOCENT, "RANK": "0", "WORLD_SIZE": "4"}.items():
        assert f'{{"name":"{name}","value":"{value}"}}' in shown
    assert '"secretKeyRef":{"key":"any","name":"train-login"}' in shown or "train-login" in shown
    log = log_of(bundles[0], names[0], namespace).read_text(encoding="utf-8")
    assert PLAIN in log
    assert log.count("[rank1]: step") >= len(STAMPED_KEY) + 60


def examined(night: Night, job: str, failing: str) -> None:
    """`doctor`, which shows a sample of what it finds, and the words of what refuses it."""
    store = failing.removesuffix("/x")
    for output in ("text", "json", "yaml"):
        night.run("doctor", "-o", output, "-v")
        told = night.run("doctor", job, "-o", output, "-v")
        if output == "json":
            sources = {one["source"]: one for one in json.loads(told)["sources"]}
            assert "XID series such as" in sources["metrics"]["what"], sources["metrics"]
            assert sources["job"]["ok"], sources["job"]
        night.run("doctor", job, "-o", output, "--prometheus", failing)
        night.run("doctor", job, "-o", output, "--log-store", f"loki+{store}")
        dumps = f"s3://me:{S['failing password']}@bucket/x"
        told = night.run("doctor", job, "-o", output, "--dumps", dumps)
        assert "credentials do not belong" in " ".join(told.split())
        with echoing() as place:
            asked = f"http://prom:{S['echoed password']}@{place}"
            told = night.run("doctor", job, "-o", output, "--prometheus", asked)
            assert place in " ".join(told.split())
            night.run("doctor", job, "-o", output, "--log-store", f"victorialogs+{asked}")


def log_of(bundle: Path, pod: str, namespace: Namespace) -> Path:
    folder = f"namespaces/{namespace.name}/pods/{pod}/pytorch/pytorch/logs/current.log"
    return bundle / folder


def listed_whole(
    manifest: dict[str, Any], bundle: Path, names: list[str], namespace: Namespace
) -> None:
    """One entry for each place where something is gone, and for no other."""
    hidden = [(one["file"], one["where"]) for one in manifest["hidden"]]
    assert len(hidden) == len(set(hidden)) == manifest["hidden_count"]
    listed = {f"{file} {where}" for file, where in hidden}
    expected = (
        r"pods\.json .*env\.SITE_SETTING", r"pods\.json .*env\.TRAIN_LOGIN",
        r"pods\.json .*env\.GOOGLE_JSON", r"pods\.json .*env\.SETTINGS",
        r"pods\.json .*args\[2\]", r"pods\.json .*args\[3\]", r"pods\.json .*args\[5\]",
        r"pods\.json .*command\[2\]", r"pods\.json .*httpHeaders\[0\]\.value",
        r"pods\.json .*annotations\.example\.com/api-token",
        r"pods\.json .*last-applied-configuration\.spec\.env\.ANY",
        r"pods\.json .*annotations\.example\.com/copied\.data\.any",
        r"pods\.json .*annotations\.example\.com/registry\.auths\.registry\.example\.auth",
        r"pods\.json .*annotations\.example\.com/account\.private_key",
        r"pods\.json .*volumeAttributes\.accountKey",
        r"pods\.json .*state\.terminated\.message",
        r"nodes\.json .*annotations\.example\.com/join-token",
        r"events\.json .*message", r"metrics/xid.*json .*scrape_url",
    )  # fmt: skip
    for pattern in expected:
        assert any(re.search(pattern, one) for one in listed), pattern
    path = log_of(bundle, names[0], namespace)
    name = str(path.relative_to(bundle))
    lines = path.read_text(encoding="utf-8").split("\n")
    gone = {number for number, line in enumerate(lines, 1) if "[hidden]" in line}
    told = {int(where.split()[1]) for file, where in hidden if file == name}
    body = {n for n in gone if _is_of_a_key(lines, n)}
    assert gone - body <= told, sorted(gone - body - told)
    first = len(ENDED_KEY[2:]) + 1
    assert set(range(first, first + len(LOG))) <= told
    assert 3 == len(
        [n for n in told if "PRIVATE KEY" in lines[n - 1] and '"key"' not in lines[n - 1]]
    )


def _is_of_a_key(lines: list[str], number: int) -> bool:
    """A line that held nothing else: listed with the one on which its key begins or ends."""
    return lines[number - 1].endswith(("Z [hidden]", "[rank0]: [hidden]"))
