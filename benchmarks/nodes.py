"""The list of all nodes of a large fleet with the XIDs of its GPUs, beside kubectl and curl on the same.

    python benchmarks/nodes.py --folder FOLDER [--nodes 10000] [--rounds 3] [--json FILE]

A real API server with so many nodes of 8 GPUs (conditions, labels and images as kubelets tell them), a lease and a pod
with all GPUs for each, written into its store, since nobody has to place or to run them. A real Prometheus with
DCGM_FI_DEV_XID_ERRORS of every GPU for 30 days: a sample a day of most, one every ten minutes of one GPU of every 40th
node, which shows a code. In each round, in another order each time:

1. `gpufleet nodes --prometheus URL -o json` as a process of its own: seconds, processor time, most memory, what it
   asked of the API server (its audit log) and of Prometheus (its own counters);
2. `kubectl get nodes -o json`, which has no pods, no leases and no XIDs;
3. `curl -Z` of the three lists that the first one reads, whole.

It checks that each node with a code is told with it and every other one with none, and ends with 1 where not.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

import urllib3

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE), str(HERE.parent / "tests")]

from live_world import clock  # noqa: E402 - beside this file
from servers import cluster, metrics, namespaces, prometheus, store  # noqa: E402 - of the tests
from servers.cluster import Cluster  # noqa: E402

GPUS = 8
DAYS = 30
CODED_EVERY = 40
NODES_OF_A_GANG = 64
CODES = (79, 48, 94, 31)
LISTS = (
    "/api/v1/nodes",
    "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
    "/api/v1/pods?fieldSelector=status.phase!=Succeeded,status.phase!=Failed",
)
RATIO_LIMIT = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What was made. `codes`: the XID that GPU 3 of a node shows since some days ago."""

    cluster: Cluster
    kubeconfig: Path
    prometheus: str
    codes: dict[str, int]
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What was measured side by side."""

    wall_s: float
    cpu_s: float
    peak_mib: float
    api_requests: int
    metric_requests: int
    kubectl_s: float
    kubectl_bytes: int
    curl_s: float
    curl_bytes: int


# --- The fleet ------------------------------------------------------------------------------------


def names_of(count: int) -> list[str]:
    return [f"gpu-node-{index:05}" for index in range(count)]


def objects(count: int, namespace: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Keys and objects of the store: nodes, leases, pods."""
    now = datetime.now(UTC)
    made = f"{now - timedelta(days=90):%Y-%m-%dT%H:%M:%SZ}"
    # Leases are not renewed here: they are so young that they stay fresh for all rounds.
    renewed = f"{now + timedelta(hours=6):%Y-%m-%dT%H:%M:%S.000000Z}"
    for index, name in enumerate(names_of(count)):
        yield f"/registry/minions/{name}", _node(index, name, made)
        yield f"/registry/leases/kube-node-lease/{name}", _lease(index, name, made, renewed)
        pod = f"train-{index // NODES_OF_A_GANG}-{index % NODES_OF_A_GANG}"
        yield f"/registry/pods/{namespace}/{pod}", _pod(index, pod, namespace, name, made)


def _meta(kind: int, index: int, name: str, made: str, **more: object) -> dict[str, Any]:
    uid = f"{kind:08x}-0000-4000-8000-{index:012x}"
    return {"name": name, "uid": uid, "creationTimestamp": made, **more}


def _node(index: int, name: str, made: str) -> dict[str, Any]:
    size = {"cpu": "192", "memory": "2000Gi", "pods": "110", "nvidia.com/gpu": str(GPUS)}
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        "topology.kubernetes.io/zone": f"zone-{index // 1000}",
        **{f"nvidia.com/gpu.feature-{number}": "true" for number in range(24)},
    }
    kinds = {"Ready": "True", "MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False"}  # fmt: skip
    conditions = [
        {"type": kind, "status": status, "lastHeartbeatTime": made, "lastTransitionTime": made,
         "reason": f"Kubelet{kind}", "message": f"kubelet tells {kind} {status}"}
        for kind, status in kinds.items()
    ]  # fmt: skip
    images = [
        {
            "names": [f"registry.example/team-{number}/image@sha256:{number:064x}"],
            "sizeBytes": 10**9,
        }
        for number in range(30)
    ]
    info = {"architecture": "amd64", "bootID": f"boot-{index}", "containerRuntimeVersion": "containerd://2.1.4",
            "kernelVersion": "6.8.0-1029-nvidia", "kubeProxyVersion": "v1.34.4", "kubeletVersion": "v1.34.4",
            "machineID": f"{index:032x}", "operatingSystem": "linux", "osImage": "Ubuntu 24.04.3 LTS",
            "systemUUID": f"{index:032x}"}  # fmt: skip
    address = f"10.{index // 62_500}.{index // 250 % 250}.{index % 250 + 1}"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": _meta(1, index, name, made, labels=labels),
        "spec": {"providerID": f"cloud:///zone/{name}"},
        "status": {
            "capacity": size,
            "allocatable": size,
            "conditions": conditions,
            "addresses": [
                {"type": "InternalIP", "address": address},
                {"type": "Hostname", "address": name},
            ],
            "nodeInfo": info,
            "images": images,
        },
    }


def _lease(index: int, name: str, made: str, renewed: str) -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": _meta(2, index, name, made, namespace="kube-node-lease"),
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": renewed},
    }


def _pod(index: int, name: str, namespace: str, node: str, made: str) -> dict[str, Any]:
    job = name.rpartition("-")[0]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "controller": True,
             "uid": f"{4:08x}-0000-4000-8000-{index // NODES_OF_A_GANG:012x}"}  # fmt: skip
    labels = {"batch.kubernetes.io/job-name": job}
    size = {"limits": {"nvidia.com/gpu": str(GPUS)}, "requests": {"nvidia.com/gpu": str(GPUS)}}
    container = {"name": "trainer", "image": "registry.example/train:1", "resources": size}
    meta = _meta(3, index, name, made, namespace=namespace, labels=labels, ownerReferences=[owner])
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"nodeName": node, "restartPolicy": "Never", "containers": [container]},
        "status": {"phase": "Running", "startTime": made, "podIP": "10.200.0.1"},
    }


def xid_series(count: int, codes: dict[str, int]) -> Iterator[metrics.Series]:
    """The gauge of every GPU. Those of most nodes share one list of samples."""
    end = datetime.now(UTC).replace(microsecond=0)
    begin = end - timedelta(days=DAYS) + timedelta(hours=1)
    daily = metrics.held(end - timedelta(days=DAYS - 1), end, every_s=86_400)
    ill = {
        code: metrics.held(begin, end, [(end - timedelta(days=3 + turn), code)], every_s=600)
        for turn, code in enumerate(CODES)
    }
    for name in names_of(count):
        code = codes.get(name)
        for gpu in range(GPUS):
            yield metrics.xid_series(name, gpu, ill[code] if code and gpu == 3 else daily)


@contextmanager
def made(folder: Path, count: int) -> Iterator[World]:
    """The fleet on servers of its own, until the block ends."""
    told = clock()
    names = names_of(count)
    codes = {name: CODES[turn % len(CODES)] for turn, name in enumerate(names[7::CODED_EVERY])}
    with cluster.running_api_server(folder / "cluster") as it:
        namespace = namespaces.make(it)
        store.put_all(it, objects(count, namespace.name))
        told(f"{count:,} nodes with lease and pod")
        with prometheus.running_prometheus(
            folder / "prometheus", xid_series(count, codes), scrape_s=3600
        ) as url:
            told(f"Prometheus is up with {count * GPUS:,} series")
            kubeconfig = it.write_kubeconfig(folder / "kubeconfig", namespace=namespace.name)
            yield World(cluster=it, kubeconfig=kubeconfig, prometheus=url, codes=codes, count=count)


# --- What is run ----------------------------------------------------------------------------------


def list_nodes(world: World, folder: Path) -> dict[str, Any]:
    """`gpufleet nodes`, and whether it is right."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GPUFLEET_")}
    environment = {
        **kept,
        "GPUFLEET_NO_STATE": "1",
        "XDG_CONFIG_HOME": str(folder / "none"),
        "PYTHONPATH": str(HERE.parent),
    }
    command = [
        *(sys.executable, "-m", "gpufleet_cli", "nodes", "-o", "json", "--deadline", "600s"),
        *("--kubeconfig", str(world.kubeconfig), "--prometheus", world.prometheus),
    ]
    audit = world.cluster.folder / "audit.log"
    offset, asked = audit.stat().st_size, _asked_of(world.prometheus)
    out = folder / "nodes.json"
    began = time.perf_counter()
    with out.open("wb") as stdout, (folder / "nodes.err").open("wb") as stderr:
        process = subprocess.Popen(command, stdout=stdout, stderr=stderr, env=environment)
        _, status, used = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit((folder / "nodes.err").read_text()[-2000:])
    faults = list(faults_of(world, json.loads(out.read_bytes())))
    if faults:
        raise SystemExit("wrong: " + "; ".join(faults))
    with audit.open("rb") as file:
        file.seek(offset)
        ours = sum(b'"gpufleet/' in line for line in file)
    return {
        "wall_s": wall_s,
        "cpu_s": used.ru_utime + used.ru_stime,
        "peak_mib": used.ru_maxrss / 1024,
        "api_requests": ours,
        "metric_requests": _asked_of(world.prometheus) - asked,
    }


def faults_of(world: World, document: dict[str, Any]) -> Iterator[str]:
    """What is wrong with a list of these nodes."""
    told = {one["name"]: one for one in document["nodes"]}
    if len(told) != world.count:
        yield f"{len(told):,} nodes of {world.count:,}"
    missing = [one for one in document["missing"] if "between steps" not in one["what"]]
    if missing:
        yield f"missing: {missing}"
    wrong = [
        name
        for name, one in told.items()
        if [(xid["xid"], xid["gpu_index"]) for xid in one["xids"] or ()]
        != ([(world.codes[name], 3)] if name in world.codes else [])
        or one["xids"] is None
    ]
    if wrong:
        yield f"{len(wrong):,} nodes with wrong XIDs, such as {wrong[0]}: {told[wrong[0]]['xids']}"
    states = Counter(len(one["gangs"]) for one in told.values())
    if states != {1: world.count}:
        yield f"gangs a node: {dict(states)}"


def _asked_of(url: str) -> int:
    """What Prometheus was asked through its API so far, by its own word."""
    text = urllib3.request("GET", f"{url}/metrics").data.decode()
    lines = (
        line for line in text.splitlines() if line.startswith("prometheus_http_requests_total")
    )
    return round(sum(float(line.rpartition(" ")[2]) for line in lines if '"/api/v1/' in line))


def kubectl(world: World, folder: Path) -> tuple[float, int]:
    """Seconds and bytes of `kubectl get nodes -o json`."""
    out = folder / "kubectl.json"
    began = time.perf_counter()
    with out.open("wb") as stdout:
        command = ["kubectl", "--kubeconfig", str(world.kubeconfig), "get", "nodes", "-o", "json"]
        subprocess.run(command, check=True, stdout=stdout)
    return time.perf_counter() - began, out.stat().st_size


def curl(world: World, folder: Path) -> tuple[float, int]:
    """Seconds and bytes of the three lists side by side."""
    config = folder / "curl.config"
    files = [folder / f"list-{index}.json" for index in range(len(LISTS))]
    config.write_text(
        "".join(
            f'url = "{world.cluster.url}{path}"\noutput = "{file}"\n'
            for path, file in zip(LISTS, files, strict=True)
        )
    )
    command = [
        *("curl", "-sS", "--fail", "-Z", "-g", "--compressed"),
        *("--cacert", str(world.cluster.ca), "-K", str(config)),
        *("-H", f"Authorization: Bearer {world.cluster.token('admin')}"),
    ]
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began, sum(file.stat().st_size for file in files)


def measure(world: World, folder: Path, number: int) -> Round:
    """One round."""
    others: dict[str, tuple[float, int]] = {}
    if number % 2:
        others = {"kubectl": kubectl(world, folder), "curl": curl(world, folder)}
    ours = list_nodes(world, folder)
    others = others or {"kubectl": kubectl(world, folder), "curl": curl(world, folder)}
    found = Round(
        **ours,
        kubectl_s=others["kubectl"][0],
        kubectl_bytes=others["kubectl"][1],
        curl_s=others["curl"][0],
        curl_bytes=others["curl"][1],
    )
    print(
        f"round {number + 1}: {found.wall_s:.1f} s, processor {found.cpu_s:.1f} s, peak {found.peak_mib:.0f} MiB,"
        f" {found.api_requests} + {found.metric_requests} requests | kubectl {found.kubectl_s:.1f} s,"
        f" {found.kubectl_bytes / 1e6:.0f} MB | curl {found.curl_s:.1f} s, {found.curl_bytes / 1e6:.0f} MB",
        flush=True,
    )
    return found


def main() -> None:
    """Make the fleet, then measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--folder", type=Path, required=True, help="all is made here")
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="the numbers, for another program")
    options = parser.parse_args()
    folder: Path = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if shutil.which("kubectl") is None:
        raise SystemExit("kubectl is not on PATH")
    with made(folder, options.nodes) as world:
        rounds: Sequence[Round] = [measure(world, folder, n) for n in range(options.rounds)]
    medians = {key: median(asdict(one)[key] for one in rounds) for key in asdict(rounds[0])}
    for key, value in medians.items():
        print(f"{key:16} {value:>14,.1f}")
    ratio = median(one.wall_s / one.kubectl_s for one in rounds)
    word = "kept" if ratio <= RATIO_LIMIT else "NOT KEPT"
    print(f"of kubectl get nodes -o json: {ratio:.2f} (target {RATIO_LIMIT:g}): {word}")
    if options.json is not None:
        document = {"medians": medians, "rounds": [asdict(one) for one in rounds]}
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
