"""A Service that is reached through the Kubernetes API server: `svc:NAMESPACE/NAME:PORT`."""

from __future__ import annotations

import re
from typing import NamedTuple

from gpufleet_cli.errors import SourceError
from gpufleet_cli.plain_text import visible


class ServiceRef(NamedTuple):
    """A Service reached through the API server: `svc:NAMESPACE/[https:]NAME:PORT[/PATH]`. `port` may be a name."""

    namespace: str
    name: str
    port: str
    scheme: str = ""
    path: str = ""

    @property
    def target(self) -> str:
        """Its name in the API server's path, and in a Role."""
        return (
            f"{self.scheme}:{self.name}:{self.port}" if self.scheme else f"{self.name}:{self.port}"
        )

    @property
    def proxy_path(self) -> str:
        """Where the API server serves it, without a slash at the end."""
        return f"/api/v1/namespaces/{self.namespace}/services/{self.target}/proxy{self.path}"

    def __str__(self) -> str:
        scheme = f"{self.scheme}:" if self.scheme else ""
        return f"svc:{self.namespace}/{scheme}{self.name}:{self.port}{self.path}"


_SERVICE = re.compile(
    r"svc:(?P<namespace>[a-z0-9][-a-z0-9]{0,62})/(?:(?P<scheme>https?):)?(?P<name>[a-z0-9][-a-z0-9]{0,62})"
    r":(?P<port>\d{1,5}|[a-z0-9][-a-z0-9]{0,62})(?P<path>(?:/[\w.~%-]{1,128}){0,16})/?",
    re.ASCII,
)


def service_ref(text: str) -> ServiceRef | None:
    """The Service that `svc:...` names; None for what is no such text; SourceError for a wrong one.

    >>> str(service_ref("svc:monitoring/prometheus-k8s:9090"))
    'svc:monitoring/prometheus-k8s:9090'
    """
    if not text.startswith("svc:"):
        return None
    found = _SERVICE.fullmatch(text)
    if found is None:
        raise SourceError(f"{visible(text)} names no service", hint="write svc:NAMESPACE/NAME:PORT")
    return ServiceRef(
        found["namespace"], found["name"], found["port"], found["scheme"] or "", found["path"]
    )
