"""A Kubernetes cluster on loopback: real API server, controllers and scheduler; kwok is the kubelet of every node.

    with cluster.running_cluster(folder) as it:
        it.api.get("/api/v1/nodes")

Not containers: pods run as far as their status says. Logs are files, exec runs on this machine.
"""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import yaml

from servers import certificates, crds, programs, running, stages
from servers.api import Api, Json

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")

# Static tokens never expire. All but the admin may do nothing until a test binds a role to them.
USERS = ("admin", "reader", "capture", "operator", "nobody")

_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "Metadata"}],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A cluster that runs: where it is, and an admin's hands."""

    folder: Path
    url: str
    etcd_url: str
    kubelet_port: int
    api: Api
    kubelet: Api  # kwok, asked without the API server between

    @property
    def ca(self) -> Path:
        """The certificate that its own is signed by."""
        return self.folder / "ca.crt"

    def token(self, user: str) -> str:
        """The static token of one of `USERS`."""
        return f"token-of-{user}"

    def write_kubeconfig(
        self, to: Path, *, user: str = "admin", namespace: str = "default"
    ) -> Path:
        """A kubeconfig with one context, named after the user."""
        context = kubeconfig_context(self, user, namespace=namespace)
        return write_kubeconfig(to, {user: context}, current=user)

    def audit(self, *, user: str | None = None) -> list[Json]:
        """What was asked of the API server so far (by `user`), oldest first, with code and path.

        The server may be in the middle of a line about somebody else: only whole lines count.
        """
        whole, _, _ = (self.folder / "audit.log").read_bytes().rpartition(b"\n")
        events = [json.loads(line) for line in whole.splitlines()]
        return [one for one in events if user is None or one["user"]["username"] == user]

    def kill_api_server(self) -> None:
        """SIGKILL, as a machine that is lost."""
        running.stop(self.folder, "kube-apiserver", how=signal.SIGKILL)

    def start_api_server(self) -> None:
        """Start it again where it was; ready when this returns."""
        running.launch(self.folder, "kube-apiserver")
        running.wait_ready(self.folder, "kube-apiserver", lambda: _serves(self.api))


def kubeconfig_context(
    cluster: Cluster,
    user: str,
    *,
    url: str | None = None,
    token: str | None = None,
    namespace: str = "default",
) -> Json:
    """Cluster, user and context of a kubeconfig; `url` for a proxy in front, `token` for another than the user's."""
    return {
        "cluster": {"server": url or cluster.url, "certificate-authority": str(cluster.ca)},
        "user": {"token": token or cluster.token(user)},
        "namespace": namespace,
    }


def write_kubeconfig(to: Path, contexts: Mapping[str, Json], *, current: str) -> Path:
    """A kubeconfig of several contexts; each has a cluster and a user of its own name."""
    made = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": one["cluster"]} for name, one in contexts.items()],
        "users": [{"name": name, "user": one["user"]} for name, one in contexts.items()],
        "contexts": [
            {
                "name": name,
                "context": {"cluster": name, "user": name, "namespace": one["namespace"]},
            }
            for name, one in contexts.items()
        ],
        "current-context": current,
    }
    to.write_text(yaml.safe_dump(made))
    return to


@contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    """A cluster of one's own, for tests that break it; ready in some seconds."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        it = start(folder)
        yield it
        disconnect(it)
    finally:
        stop(folder)


@contextmanager
def running_api_server(folder: Path) -> Iterator[Cluster]:
    """The API server and its store alone: objects stay as they are made, nobody judges nodes or places pods."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        it = _served(folder)
        yield it
        disconnect(it)
    finally:
        stop(folder)


def start(folder: Path) -> Cluster:
    """Start all parts; when this returns, nodes that are made become Ready and pods run."""
    cluster = _served(folder)
    ports = json.loads((folder / "ports.json").read_text())
    cluster.write_kubeconfig(folder / "admin.yaml")
    _define_kinds(cluster.api)
    _start_controllers(folder, ports)
    _start_kwok(folder, ports)
    running.wait_ready(folder, "kwok", lambda: cluster.kubelet.answers("/healthz"))
    return cluster


def _served(folder: Path) -> Cluster:
    """Certificates, store and API server."""
    ports = running.free_ports(6)
    (folder / "ports.json").write_text(json.dumps(ports))
    _write_files(folder)
    _start_etcd(folder, ports)
    _start_api_server(folder, ports)
    cluster = connect(folder)
    running.wait_ready(folder, "kube-apiserver", lambda: _serves(cluster.api))
    return cluster


def connect(folder: Path) -> Cluster:
    """The cluster that was started in this folder."""
    ports = json.loads((folder / "ports.json").read_text())
    url = f"https://127.0.0.1:{ports[2]}"
    return Cluster(
        folder=folder,
        url=url,
        etcd_url=f"http://127.0.0.1:{ports[0]}",
        kubelet_port=ports[5],
        api=Api(url, ca=str(folder / "ca.crt"), token="token-of-admin"),
        kubelet=Api(f"https://127.0.0.1:{ports[5]}", ca=str(folder / "ca.crt"), token=""),
    )


def disconnect(cluster: Cluster) -> None:
    """Close the connections; the cluster runs on."""
    cluster.api.close()
    cluster.kubelet.close()


def stop(folder: Path) -> None:
    """End all parts, those first that would complain about the others' end."""
    for name in reversed(PROGRAMS):
        running.stop(folder, name)
    shutil.rmtree(folder / "etcd-data", ignore_errors=True)


def _serves(api: Api) -> bool:
    """Ready for work: `/readyz` alone says so before the first namespace is there."""
    return all(
        api.answers(path)
        for path in (
            "/readyz",
            "/api/v1/namespaces/default",
            "/api/v1/namespaces/kube-node-lease",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:basic-user",
        )
    )


def _write_files(folder: Path) -> None:
    """Certificates, tokens, policies."""
    certificates.make_authority(folder)
    certificates.make_certificate(folder, "server", user="kube-apiserver")
    certificates.make_certificate(folder, "kubelet", user="kubelet", groups=("system:masters",))
    certificates.make_key(folder, "sa.key")
    rows = [
        f'token-of-{user},{user},{user},"{"system:masters" if user == "admin" else "people"}"\n'
        for user in USERS
    ]
    (folder / "tokens.csv").write_text("".join(rows))
    (folder / "audit-policy.yaml").write_text(json.dumps(_AUDIT_POLICY))
    (folder / "kwok.yaml").write_text(stages.kwok_config())


def _start_etcd(folder: Path, ports: Sequence[int]) -> None:
    """The store of the API server, in the folder, without waiting for the disk."""
    client, peer = (f"http://127.0.0.1:{port}" for port in ports[:2])
    command = [
        str(programs.find("etcd")),
        *("--data-dir", "etcd-data", "--unsafe-no-fsync", "--log-level", "error"),
        *("--listen-client-urls", client, "--advertise-client-urls", client),
        *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
        *("--initial-cluster", f"default={peer}"),
    ]
    running.launch(folder, "etcd", command)


def _start_api_server(folder: Path, ports: Sequence[int]) -> None:
    """RBAC, audit, and objects stored as JSON so that a test can change what no client may."""
    command = [
        str(programs.find("kube-apiserver")),
        f"--etcd-servers=http://127.0.0.1:{ports[0]}",
        *(f"--secure-port={ports[2]}", "--bind-address=127.0.0.1"),
        *("--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none"),
        *("--tls-cert-file=server.crt", "--tls-private-key-file=server.key"),
        *("--client-ca-file=ca.crt", "--token-auth-file=tokens.csv", "--authorization-mode=RBAC"),
        "--service-account-issuer=https://kubernetes.default.svc",
        *("--service-account-key-file=sa.key", "--service-account-signing-key-file=sa.key"),
        "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
        *("--kubelet-client-certificate=kubelet.crt", "--kubelet-client-key=kubelet.key"),
        "--kubelet-certificate-authority=ca.crt",
        "--kubelet-preferred-address-types=InternalIP",
        *("--storage-media-type=application/json", "--service-cluster-ip-range=10.96.0.0/16"),
        *("--audit-policy-file=audit-policy.yaml", "--audit-log-path=audit.log"),
        "--audit-log-mode=blocking",
    ]
    running.launch(folder, "kube-apiserver", command)


def _define_kinds(api: Api) -> None:
    """The custom resources, served when this returns."""
    for kind in crds.KINDS:
        api.create(crds.definition(*kind))
    for group, version, _, plural in crds.KINDS:
        path = f"/apis/{group}/{version}/{plural}"
        running.wait_until(partial(api.answers, path), f"{path} is served")


def _start_controllers(folder: Path, ports: Sequence[int]) -> None:
    """Controllers that find a dead node in 20 s and taint at once, however few nodes there are; the scheduler."""
    command = [
        str(programs.find("kube-controller-manager")),
        *("--kubeconfig", "admin.yaml", "--bind-address", "127.0.0.1"),
        *("--secure-port", str(ports[3]), "--tls-cert-file", "server.crt"),
        *("--tls-private-key-file", "server.key", "--client-ca-file", "ca.crt"),
        *("--use-service-account-credentials=false", "--leader-elect=false"),
        *("--service-account-private-key-file", "sa.key", "--root-ca-file", "ca.crt"),
        *("--node-monitor-grace-period=20s", "--node-monitor-period=2s"),
        *("--node-eviction-rate=100", "--secondary-node-eviction-rate=100"),
        "--large-cluster-size-threshold=0",
        *("--kube-api-qps=400", "--kube-api-burst=800", "--concurrent-job-syncs=10"),
        "--controllers=*,-nodeipam,-service-lb-controller,-node-route-controller,-cloud-node-lifecycle",
    ]
    running.launch(folder, "kube-controller-manager", command)
    command = [
        str(programs.find("kube-scheduler")),
        *("--kubeconfig", "admin.yaml", "--bind-address", "127.0.0.1"),
        *("--secure-port", str(ports[4]), "--leader-elect=false"),
        *("--kube-api-qps=400", "--kube-api-burst=800"),
    ]
    running.launch(folder, "kube-scheduler", command)


def _start_kwok(folder: Path, ports: Sequence[int]) -> None:
    """The kubelets. Never start it again: it cannot take its leases back for 40 s, and every node goes NotReady."""
    command = [
        str(programs.find("kwok")),
        *("--kubeconfig", "admin.yaml", "-c", "kwok.yaml", "--enable-crds", "Logs,Exec"),
        *("--manage-nodes-with-label-selector", f"{stages.MANAGED}=on"),
        *("--node-ip", "127.0.0.1", "--node-port", str(ports[5]), "--cidr", "10.64.0.1/16"),
        *("--server-address", f"127.0.0.1:{ports[5]}", "--node-lease-duration-seconds", "40"),
        *("--tls-cert-file", "kubelet.crt", "--tls-private-key-file", "kubelet.key"),
    ]
    running.launch(folder, "kwok", command)
