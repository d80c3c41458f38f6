"""The network between ranks: RDMA or plain TCP, names that resolve, policies that let NCCL through."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from gpufleet_cli.operate.preflight import price
from gpufleet_cli.operate.preflight.model import Container, Hit, Role, Rule, Spec
from gpufleet_cli.operate.preflight.selectors import selects
from gpufleet_cli.parsers import json_documents as js

MANY_GPUS = 8
_RDMA = re.compile(
    r"rdma/.+|.*(?:rdma|roce|infiniband|/ib|_ib|hca|efa|nic|sriov|mlnx|mellanox).*", re.IGNORECASE
)
_ELSEWHERE = (
    "k8s.v1.cni.cncf.io/networks",
    "networking.gke.io/interfaces",
    "v1.multus-cni.io/default-network",
)
_HCA_ONE = re.compile(r"[a-z]+\d*_1")
IB_TIMEOUT, IB_TRIES = 20, 7
"""NCCL's own since 2.23."""
FLAP_S = 10.0
_LEFT_OVER = ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "CUDA_LAUNCH_BLOCKING")


def has_rdma(role: Role) -> bool:
    """A resource for it, or a way besides that the manifest cannot tell from one."""
    if role.pod.get("hostNetwork") is True or js.items(role.pod.get("resourceClaims")):
        return True
    if any(name in role.annotations for name in _ELSEWHERE):
        return True
    for one in role.containers:
        for field in ("limits", "requests"):
            names = js.mapping(js.at(one.raw, "resources", field))
            if any(_RDMA.fullmatch(name) for name in names if name != "nvidia.com/gpu"):
                return True
        if "NCCL_NET_PLUGIN" in one.env or (one.env.get("NCCL_NET") or "Socket") != "Socket":
            return True
    return False


def _rdma(spec: Spec) -> Iterator[Hit]:
    if not spec.is_gang or not spec.has_gpus or spec.gpus is None:
        return
    for role in spec.ranks:
        if role.gpus and not has_rdma(role):
            yield role.hit(
                f"{spec.pods} pods with {role.gpus} GPUs each and no RDMA device: NCCL falls back to TCP",
                "the cluster's RDMA resource (rdma/ib, vpc.amazonaws.com/efa, ...) or its secondary network",
                "resources", "limits", inside=role.main,
                severity=None if spec.gpus >= MANY_GPUS else "info",
            )  # fmt: skip


def _tcp(spec: Spec) -> Iterator[Hit]:
    for role, one in _ranks(spec):
        if not has_rdma(role):
            continue
        disabled, net = one.setting("NCCL_IB_DISABLE"), one.setting("NCCL_NET")
        if disabled.state == "set" and disabled.value.strip() == "1":
            told = "NCCL_IB_DISABLE=1"
        elif net.state == "set" and net.value.strip().lower() == "socket":
            told = "NCCL_NET=Socket"
        else:
            continue
        yield role.hit(
            f"{told} keeps NCCL on plain TCP although the pod has RDMA",
            f"take {told} out: it is left over from debugging", "env", inside=one,
        )  # fmt: skip


def _left_over(spec: Spec) -> Iterator[Hit]:
    for role, one in _ranks(spec):
        for name in _LEFT_OVER:
            found = one.setting(name)
            if found.state == "set" and found.value.strip() == "1":
                yield role.hit(
                    f"{name}=1 is for debugging and slows every step",
                    f"take {name} out", "env", inside=one,
                )  # fmt: skip


def _loopback(spec: Spec) -> Iterator[Hit]:
    for role, one in _ranks(spec) if spec.is_gang else ():
        for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
            found = one.setting(name)
            if found.state == "set" and found.value.strip().lstrip("=") == "lo":
                yield role.hit(
                    f"{name}={found.value} is the loopback: no rank of another pod is reached over it",
                    "the pod's interface (eth0), or ^lo,docker0", "env", inside=one,
                    costs=price.an_hour(spec.gpus),
                )  # fmt: skip


def _hca_prefix(spec: Spec) -> Iterator[Hit]:
    for role, one in _ranks(spec) if spec.is_gang else ():
        found = one.setting("NCCL_IB_HCA")
        names = found.value.strip().split(",") if found.state == "set" else []
        alike = next((name for name in names if _HCA_ONE.fullmatch(name)), None)
        if alike is not None and not names[0].startswith(("=", "^=")):
            yield role.hit(
                f"NCCL_IB_HCA={found.value} goes by prefix: {alike} is {alike}0 to {alike}9 too",
                f"NCCL_IB_HCA=={found.value.lstrip('^')}, which means these names alone", "env", inside=one,
            )  # fmt: skip


def _ib_patience(spec: Spec) -> Iterator[Hit]:
    """4.096 us x 2^NCCL_IB_TIMEOUT a try (InfiniBand specification, local ACK timeout)."""
    for role, one in _ranks(spec) if spec.is_gang else ():
        found, times = one.setting("NCCL_IB_TIMEOUT"), one.setting("NCCL_IB_RETRY_CNT")
        if found.state != "set" and times.state != "set":
            continue
        power = js.integer(found.value) if found.state == "set" else IB_TIMEOUT
        tries = js.integer(times.value) if times.state == "set" else IB_TRIES
        if power is None or tries is None or not (0 < power < 32 and 0 <= tries < 8):
            continue
        seconds = 4.096e-6 * 2**power * tries
        if seconds < FLAP_S:
            yield role.hit(
                f"InfiniBand gives up after {seconds:.2g} s (NCCL_IB_TIMEOUT {power}, {tries} tries): a link that flaps ends the job",
                f"leave both alone: {IB_TIMEOUT} and {IB_TRIES} wait half a minute", "env", inside=one,
            )  # fmt: skip


def _memlock(spec: Spec) -> Iterator[Hit]:
    for role, one in _ranks(spec) if spec.is_gang else ():
        limits = js.mapping(js.at(one.raw, "resources", "limits"))
        if not any(name.startswith("rdma/") for name in limits):
            continue
        context = js.mapping(one.raw.get("securityContext"))
        added = [str(name) for name in js.items(js.at(context, "capabilities", "add"))]
        if context.get("privileged") is True or {"IPC_LOCK", "ALL"} & set(added):
            continue
        yield role.hit(
            "the ranks have RDMA and no IPC_LOCK: where the runtime limits locked memory, NCCL cannot use it",
            'securityContext.capabilities.add: ["IPC_LOCK"]', "securityContext", inside=one,
        )  # fmt: skip


def _ranks(spec: Spec) -> Iterator[tuple[Role, Container]]:
    if spec.is_training and spec.has_gpus:
        for role in spec.ranks:
            yield role, role.main


def _headless(spec: Spec) -> Iterator[Hit]:
    if not spec.is_gang:
        return
    network = js.mapping(spec.spec.get("network"))
    if spec.kind == "JobSet":
        for key in ("enableDNSHostnames", "publishNotReadyAddresses"):
            if network.get(key) is False:
                yield Hit(
                    message=f"{key}: false: ranks cannot find each other before they are ready",
                    fix=f"{key}: true, its default", path=("spec", "network", key),
                    costs=price.an_hour(spec.gpus),
                )  # fmt: skip
    for role in spec.ranks:
        name = js.text_at(role.pod, "subdomain")
        for one in spec.of_kind("Service"):
            if one.name != name:
                continue
            told = _service_trouble(one.raw)
            if told is not None:
                yield Hit(
                    message=f"Service {name}: {told}",
                    fix="clusterIP: None and publishNotReadyAddresses: true",
                    path=("spec",), document=one, costs=price.an_hour(spec.gpus),
                )  # fmt: skip


def _service_trouble(raw: object) -> str | None:
    if js.at(raw, "spec", "clusterIP") != "None":
        return "it is not headless, so that ranks have no names of their own"
    if js.at(raw, "spec", "publishNotReadyAddresses") is not True:
        return "ranks have no name before they are ready (publishNotReadyAddresses)"
    return None


def _subdomain(spec: Spec) -> Iterator[Hit]:
    """A Job whose ranks meet at one of its own pods' names, which only a subdomain gives it."""
    if spec.kind != "Job" or not spec.is_gang:
        return
    for role in spec.ranks:
        launcher = role.main.launcher
        points = (
            launcher.option("rdzv-endpoint", "master-addr") if launcher else None,
            role.main.env.get("MASTER_ADDR"),
        )
        own = [p for p in points if p and p.startswith(f"{spec.document.name}-0")]
        if own and not js.text_at(role.pod, "subdomain"):
            yield role.hit(
                f"the ranks meet at {own[0]}, and without a subdomain that name does not resolve",
                "subdomain: the name of a headless Service", "spec", "subdomain",
                costs=price.an_hour(spec.gpus),
            )  # fmt: skip


def _policy(spec: Spec) -> Iterator[Hit]:
    if not spec.is_gang:
        return
    for role in spec.ranks:
        labels = spec.labels_of(role)
        chosen = [
            one for one in spec.of_kind("NetworkPolicy")
            if selects(js.at(one.raw, "spec", "podSelector"), labels)
        ]  # fmt: skip
        for way, peers in (("Ingress", "from"), ("Egress", "to")):
            bound = [one for one in chosen if way in _types(one.raw)]
            if bound and not any(_lets(one.raw, way, peers, labels) for one in bound):
                yield Hit(
                    message=f"NetworkPolicy {bound[0].name} does not let the job's pods reach each other on all ports ({way})",
                    fix=f"a rule under {way.lower()} with a podSelector for the job's pods and no ports",
                    path=("spec", way.lower()), document=bound[0], costs=price.a_wait(spec.gpus),
                )  # fmt: skip


def _types(raw: object) -> set[str]:
    stated = js.items(js.at(raw, "spec", "policyTypes"))
    if stated:
        return {str(one) for one in stated}
    return {"Ingress"} | ({"Egress"} if js.at(raw, "spec", "egress") is not None else set())


def _lets(raw: object, way: str, peers: str, labels: Mapping[str, str]) -> bool:
    for rule in js.items(js.at(raw, "spec", way.lower())):
        if js.items(js.at(rule, "ports")):
            continue
        named = js.items(js.at(rule, peers))
        if not named:
            return True
        for peer in named:
            chosen = js.at(peer, "podSelector")
            if chosen is not None and selects(chosen, labels):
                return True
            if chosen is None and js.at(peer, "namespaceSelector") == {}:
                return True
    return False


RULES = (
    Rule(
        id="rdma", severity="warning", check=_rdma,
        looks_for=f"several pods of ranks, {MANY_GPUS} GPUs or more in all, and no RDMA resource, host network, secondary network or network plugin",
        why="slow, not dead: nobody notices, and every step pays",
    ),
    Rule(
        id="nccl-tcp", severity="warning", check=_tcp,
        looks_for="`NCCL_IB_DISABLE=1` or `NCCL_NET=Socket` although the pod has RDMA",
        why="slow, not dead: nobody notices, and every step pays",
    ),
    Rule(
        id="debug-left-over", severity="warning", check=_left_over,
        looks_for="`NCCL_P2P_DISABLE=1`, `NCCL_SHM_DISABLE=1`, `CUDA_LAUNCH_BLOCKING=1`",
        why="a switch of last month's debugging slows the job and hides what it would show",
    ),
    Rule(
        id="loopback", severity="warning", check=_loopback,
        looks_for="`NCCL_SOCKET_IFNAME` or `GLOO_SOCKET_IFNAME` that names the loopback, in a gang of several pods",
        why="the rendezvous succeeds and the first collective hangs",
    ),
    Rule(
        id="hca-prefix", severity="info", check=_hca_prefix,
        looks_for="`NCCL_IB_HCA` without `=` and a name such as `mlx5_1`, which is the beginning of others",
        why="NCCL goes by prefix: ranks use adapters that nobody meant, also those of storage",
    ),
    Rule(
        id="ib-patience", severity="info", check=_ib_patience,
        looks_for=f"`NCCL_IB_TIMEOUT` and `NCCL_IB_RETRY_CNT` that give up before {FLAP_S:g} s",
        why="a link that comes back after seconds would have cost seconds",
    ),
    Rule(
        id="memlock", severity="info", check=_memlock,
        looks_for="a resource `rdma/...` and neither `IPC_LOCK` nor a privileged container",
        why="memory that cannot be locked cannot be registered, and NCCL falls back or fails",
    ),
    Rule(
        id="headless-service", severity="warning", check=_headless,
        looks_for="a Service or JobSet network by which ranks have no names before they are ready",
        why="the rendezvous fails, and the gang waits with its GPUs",
    ),
    Rule(
        id="rank-names", severity="warning", check=_subdomain,
        looks_for="a Job whose ranks meet at its first pod's name, without `subdomain`",
        why="the rendezvous fails, and the gang waits with its GPUs",
    ),
    Rule(
        id="network-policy", severity="warning", check=_policy,
        looks_for="NetworkPolicies that select the ranks and do not let them reach each other on every port",
        why="NCCL and Gloo listen on ports that the kernel chooses",
    ),
)  # fmt: skip
