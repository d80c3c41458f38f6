"""A Service of the cluster whose pod is a server of this machine, for the API server's service proxy.

The API server refuses loopback addresses and reads Endpoints, not slices, and only those that point to a pod of the
same address: both are written behind its back.
"""

from __future__ import annotations

from servers import jobs, store
from servers.api import Json
from servers.jobs import Shape
from servers.namespaces import Namespace
from servers.running import wait_until

_ELSEWHERE = "10.64.255.254"  # what validation takes, until it is changed


def expose(namespace: Namespace, name: str, port: int, *, port_name: str = "web") -> str:
    """Make Service and pod `name` for a local port; the path of its proxy, answering when this returns."""
    jobs.bare_pods(namespace, Shape(gpus=0, hold=True), [name])
    meta: Json = {"name": name, "namespace": namespace.name}
    ports = [{"name": port_name, "port": port}]
    service = {"apiVersion": "v1", "kind": "Service", "metadata": meta}
    namespace.api.create(service | {"spec": {"ports": ports}})
    target = {"kind": "Pod", "name": name, "namespace": namespace.name}
    subset = {"addresses": [{"ip": _ELSEWHERE, "targetRef": target}], "ports": ports}
    endpoints = {"apiVersion": "v1", "kind": "Endpoints", "metadata": meta, "subsets": [subset]}
    namespace.api.create(endpoints)

    def point(stored: Json) -> None:
        stored["subsets"][0]["addresses"][0]["ip"] = "127.0.0.1"

    def settle(stored: Json) -> None:
        here = {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}], "phase": "Running"}
        stored["status"].update(here)

    cluster = namespace.cluster
    store.change(cluster, f"/registry/services/endpoints/{namespace.name}/{name}", point)
    store.change(cluster, f"/registry/pods/{namespace.name}/{name}", settle)
    proxied = namespace.path(f"services/{name}:{port}/proxy")
    wait_until(lambda: namespace.api.answers(f"{proxied}/"), f"{proxied} answers")
    return proxied
