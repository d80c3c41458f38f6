"""A namespace per test, the nodes that are its own, and users with the rights that a test gives them."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from servers.api import Api, ApiError, Json
from servers.cluster import Cluster
from servers.running import wait_until

OWNER = "test.gpufleet.dev/namespace"  # label of nodes and cluster roles: whose they are


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """Where one test makes its objects."""

    cluster: Cluster
    name: str

    @property
    def api(self) -> Api:
        """The admin's client."""
        return self.cluster.api

    def path(self, what: str, root: str = "/api/v1") -> str:
        """The path of `pods/NAME` and the like in this namespace."""
        return f"{root}/namespaces/{self.name}/{what}"


def make(cluster: Cluster) -> Namespace:
    """A new namespace with a name of its own."""
    name = f"test-{secrets.token_hex(3)}"
    cluster.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return Namespace(cluster=cluster, name=name)


def remove(namespace: Namespace) -> None:
    """Delete all that the test made; the namespace itself goes on its own, and nobody waits for it."""
    api, owned = namespace.api, f"{OWNER}={namespace.name}"
    api.delete(f"/api/v1/namespaces/{namespace.name}")
    # Pods of a dead node would stay for ever.
    api.send("DELETE", namespace.path("pods"), {"gracePeriodSeconds": 0})
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    for plural in ("/api/v1/nodes", f"{rbac}/clusterroles", f"{rbac}/clusterrolebindings"):
        api.send("DELETE", plural, labelSelector=owned)


def make_user(
    namespace: Namespace,
    name: str,
    rules: Sequence[Json] = (),
    *,
    cluster_role: str | None = None,
    whole_cluster: bool = False,
    expires_s: int = 3600,
) -> str:
    """A service account with these RBAC rules, or the rules of a ClusterRole that is there; its token.

    The rights hold in the namespace, or in the `whole_cluster`. The API server signs no token for less than 600 s.
    """
    api = namespace.api
    meta: Json = {"name": name, "namespace": namespace.name}
    api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
    if cluster_role is None:
        cluster_role = f"{namespace.name}-{name}"
        api.create(_rbac("ClusterRole", namespace, cluster_role) | {"rules": list(rules)})
    kind = "ClusterRoleBinding" if whole_cluster else "RoleBinding"
    binding = _rbac(kind, namespace, f"{namespace.name}-{name}")
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": cluster_role}
    subject = {"kind": "ServiceAccount"} | meta
    api.create(binding | {"roleRef": role, "subjects": [subject]})
    wait_until(lambda: _may_bind(namespace), "bindings are in force", within_s=5)
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": expires_s},
    }
    path = namespace.path(f"serviceaccounts/{name}/token")
    return str(api.post(path, request)["status"]["token"])


def _may_bind(namespace: Namespace) -> bool:
    """Whether the API server's own view of roles has caught up; it watches them like any client."""
    try:
        namespace.api.items(namespace.path("rolebindings", "/apis/rbac.authorization.k8s.io/v1"))
    except ApiError:
        return False
    return True


def _rbac(kind: str, namespace: Namespace, name: str) -> Json:
    """The head of a role or binding that `remove` finds again."""
    meta: Json = {"name": name, "labels": {OWNER: namespace.name}}
    if kind == "RoleBinding":
        meta["namespace"] = namespace.name
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": meta}
