"""If kubectl works from this shell, gpufleet works: SOCKS proxies, and kubectl's own way where ours fails."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from servers import certificates, jobs, nodes, pods
from servers import cluster as clusters
from servers.fixtures import require
from servers.jobs import Shape
from servers.namespaces import Namespace
from servers.socks import running_socks

from gpufleet_cli.cli import main
from gpufleet_cli.live import access, kubectl_proxy, reach
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.deadline import Deadline
from gpufleet_cli.live.http_source import Connection
from gpufleet_cli.settings_file import Access
from live import cluster_stories as stories
from live import fake_api
from live.fake_api import FakeApi

NAME = "api.behind-the-proxy.example"


def address_of(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    assert parts.hostname is not None and parts.port is not None
    return parts.hostname, parts.port


def changed(kubeconfig: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """The kubeconfig with something else in it; its only cluster and user are the first."""
    document = yaml.safe_load(kubeconfig.read_text())
    change(document)
    kubeconfig.write_text(yaml.safe_dump(document))
    return kubeconfig


# --- SOCKS ----------------------------------------------------------------------------------------


def test_the_socks_proxy_resolves_the_name(fake: FakeApi, tmp_path: Path) -> None:
    """`proxy-url: socks5://`: a name that only the proxy knows."""
    place = fake_api.write_kubeconfig(tmp_path / "k", f"http://{NAME}:6443")
    with running_socks({NAME: address_of(fake.url)}) as proxy:
        kubeconfig = changed(
            place,
            lambda document: document["clusters"][0]["cluster"].update({"proxy-url": proxy.url}),
        )
        assert "v1.34.4" == Api(access.connect(kubeconfig=str(kubeconfig))).check()
    assert [NAME] == proxy.asked


def test_metrics_through_the_socks_proxy_of_the_shell(
    fake: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ALL_PROXY, as httpx reads it."""
    with running_socks({NAME: address_of(fake.url)}) as proxy:
        monkeypatch.setenv("ALL_PROXY", proxy.url)
        with Connection(f"http://{NAME}", Access(), Deadline(10)) as connection:
            status, _, body = connection.fetch("/version", {})
    assert (200, [NAME]) == (status, proxy.asked)
    assert b"gitVersion" in body


def test_logs_and_exec_through_a_socks_proxy(
    namespace: Namespace, kubeconfig: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a real cluster, over TLS: the certificate is that of the name that was asked for."""
    folder, made = job_with_dumps(namespace, tmp_path)
    with running_socks({"kubernetes.default.svc": address_of(namespace.cluster.url)}) as proxy:

        def change(document: dict[str, Any]) -> None:
            document["clusters"][0]["cluster"].update(
                {"proxy-url": proxy.url, "server": "https://kubernetes.default.svc:443"}
            )

        to = tmp_path / "bundle"
        told = ["--to", str(to), "--kubeconfig", str(changed(kubeconfig, change))]
        code = main(["collect", "-l", "job-id=run9", *told])
    said = capsys.readouterr()
    assert 3 == code, said.err
    assert {"kubernetes.default.svc"} == set(proxy.asked)
    assert (folder / "rank_0").read_bytes() == (to / "dumps/nccl_trace_rank_0").read_bytes()
    assert list(to.rglob(f"{made[0]}/**/current.log"))


def job_with_dumps(namespace: Namespace, tmp_path: Path) -> tuple[Path, list[str]]:
    """Plain pods `run9` on one node that step, and their dumps where exec finds them."""
    (node,) = nodes.make(namespace, 1, gpus=8)
    folder = tmp_path / "pod"
    folder.mkdir()
    env = {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{folder}/rank_"}
    shape = Shape(pods=2, gpus=1, nodes=[node], env=env, args=("--nproc-per-node=1", "train.py"))
    made = jobs.plain_pods(namespace, "run9", shape)
    pods.wait(namespace, "job-id=run9", 2)
    stories.stall(namespace, made, silent=1, at=stories.began(), ranks=1)
    (folder / "rank_0").write_bytes(b"\x80\x04}." + bytes(range(256)) * 40)
    for name in made:
        pods.allow_exec(namespace, name, folder)
    return folder, made


# --- kubectl --------------------------------------------------------------------------------------


@pytest.fixture
def kubectl() -> None:
    """The real one."""
    require("kubectl")


@pytest.fixture
def for_kubectl_alone(namespace: Namespace, tmp_path: Path, kubectl: None) -> Path:
    """A kubeconfig whose client certificate OpenSSL takes for too weak, and Go does not."""
    folder = tmp_path / "certificates"
    folder.mkdir()
    for name in ("ca.crt", "ca.key"):
        (folder / name).write_bytes((namespace.cluster.folder / name).read_bytes())
    certificates.make_certificate(
        folder, "weak", user="admin", groups=("system:masters",), bits=1024
    )
    context = clusters.kubeconfig_context(namespace.cluster, "admin", namespace=namespace.name)
    context["user"] = {
        "client-certificate": str(folder / "weak.crt"),
        "client-key": str(folder / "weak.key"),
    }
    return clusters.write_kubeconfig(tmp_path / "weak", {"weak": context}, current="weak")


def children_of(name: str) -> list[int]:
    """Processes that hold this word among their arguments."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = place.read_bytes().split(b"\0")
        except OSError:
            continue
        if any(name.encode() in word for word in words):
            found.append(int(place.parent.name))
    return found


def wait_until(there: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + 60
    while not there():
        assert time.monotonic() < until, what
        time.sleep(0.1)


def test_where_our_way_fails_reads_go_through_kubectl(
    namespace: Namespace,
    for_kubectl_alone: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The output says so; logs are there, exec is a gap, and nothing of the child is left."""
    _, made = job_with_dumps(namespace, tmp_path)
    to = tmp_path / "bundle"
    told = ["--to", str(to), "--kubeconfig", str(for_kubectl_alone)]
    code = main(["collect", "-l", "job-id=run9", *told])
    said = capsys.readouterr()
    assert 3 == code, said.err
    assert "through kubectl proxy, since our own way failed: kubeconfig: a certificate" in said.err
    assert f"context weak at {namespace.cluster.url}" in said.err
    manifest = json.loads((to / "manifest.json").read_text())
    assert ("kubectl proxy", namespace.cluster.url, "weak") == (
        manifest["access"],
        manifest["server"],
        manifest["context"],
    )
    assert {"0", "1"} <= {
        line.split(b"]:")[0].rpartition(b"rank")[2].decode()
        for path in to.rglob("current.log")
        for line in path.read_bytes().splitlines()
    }
    missing = {one["what"]: one["why"] for one in manifest["missing"]}
    assert "exec does not go through kubectl proxy" == missing["Flight Recorder dump of rank 0"]
    wait_until(lambda: not children_of(str(for_kubectl_alone)), "the child has ended")
    assert len(made) == manifest["world_size"]


def test_a_node_is_looked_at_through_kubectl_too(
    namespace: Namespace, for_kubectl_alone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every command comes in by the same door."""
    (node,) = nodes.make(namespace, 1, gpus=8)
    code = main(["node", node, "--kubeconfig", str(for_kubectl_alone)])
    said = capsys.readouterr()
    assert (0, True) == (code, node in said.out), said.err
    assert "through kubectl proxy" in said.err


def test_the_socket_is_ours_alone_and_takes_no_writes(
    namespace: Namespace, for_kubectl_alone: Path
) -> None:
    """A folder with mode 0700; PATCH is refused by kubectl itself."""
    api = reach.reached(kubeconfig=str(for_kubectl_alone), context=None, deadline=Deadline(120)).api
    (pid,) = [pid for pid in children_of(str(for_kubectl_alone)) if b"-I" not in argv(pid)]
    (place,) = [word for word in argv(pid) if word.startswith(b"--unix-socket=")]
    folder = Path(place.partition(b"=")[2].decode()).parent
    assert 0o700 == folder.stat().st_mode & 0o777
    answer = api.access.pool.request(
        "PATCH", api.access.url(f"/api/v1/namespaces/{namespace.name}"), body=b"{}"
    )
    assert 403 == answer.status
    del api, answer
    wait_until(lambda: not children_of(str(for_kubectl_alone)), "the child has ended")
    assert not folder.exists()


def argv(pid: int) -> list[bytes]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")


def test_the_child_ends_with_a_program_that_is_killed(for_kubectl_alone: Path) -> None:
    """SIGKILL leaves nobody time to tidy up: the end of the pipe does it."""
    script = (
        "import sys, time\n"
        "from gpufleet_cli.live import reach\n"
        "from gpufleet_cli.live.deadline import Deadline\n"
        "found = reach.reached(kubeconfig=sys.argv[1], context=None, deadline=Deadline(120))\n"
        "print(found.told, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(for_kubectl_alone)], stdout=subprocess.PIPE
    ) as program:
        assert program.stdout is not None
        assert b"through kubectl proxy" in program.stdout.readline()
        assert len(children_of(str(for_kubectl_alone))) >= 3
        os.kill(program.pid, signal.SIGKILL)
    wait_until(lambda: not children_of(str(for_kubectl_alone)), "the child has ended")


def test_where_kubectl_fails_too_our_own_words_stay(tmp_path: Path, kubectl: None) -> None:
    """They say what to do; a port that refuses starts no child at all."""
    closed = socket.create_server(("127.0.0.1", 0))
    port = closed.getsockname()[1]
    closed.close()
    place = fake_api.write_kubeconfig(tmp_path / "k", f"http://127.0.0.1:{port}")
    with pytest.raises(access.SourceError, match="cannot reach the API server"):
        reach.reached(kubeconfig=str(place), context=None, deadline=Deadline(60))
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(tmp_path / "none")}
    plugin["interactiveMode"] = "Never"
    place = fake_api.write_kubeconfig(tmp_path / "p", f"http://127.0.0.1:{port}", exec=plugin)
    with pytest.raises(access.NotOurWay, match="is not installed"):
        reach.reached(kubeconfig=str(place), context=None, deadline=Deadline(60))


def test_without_kubectl_nothing_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Our own failure, as before."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not kubectl_proxy.is_there()
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-plugin"}
    place = fake_api.write_kubeconfig(tmp_path / "k", "http://127.0.0.1:1", exec=plugin)
    with pytest.raises(access.NotOurWay, match="exec plugin no-such-plugin"):
        reach.reached(kubeconfig=str(place), context=None, deadline=Deadline(60))
