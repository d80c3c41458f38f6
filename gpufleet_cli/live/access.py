"""The way into a cluster: kubeconfig or service account -> server, who we are, and a pool of connections.

"If kubectl works, gpufleet works": several files in KUBECONFIG, contexts, exec plugins, token files that
rotate, client certificates, `proxy-url` (http, https, socks5), HTTPS_PROXY and NO_PROXY, impersonation,
`tls-server-name`. Every failure is one line that says what to do.
"""

from __future__ import annotations

import os
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from gpufleet_cli.errors import SourceError, UsageError
from gpufleet_cli.live import exec_plugin

if TYPE_CHECKING:
    import urllib3

DEFAULT_KUBECONFIG = "~/.kube/config"
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_CONNECT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How requests are made. `headers` carry the credentials and are asked for anew at each request."""

    server: str
    context: str | None
    user: str | None
    namespace: str
    how: str
    pool: urllib3.PoolManager
    headers: Callable[[], Mapping[str, str]]
    refresh: Callable[[], bool]
    tls: Mapping[str, Any] = field(default_factory=dict, repr=False)
    proxy: str | None = None
    base: str | None = None
    """Where requests go, where that is not the server: the socket of a `kubectl proxy`."""

    @property
    def through_kubectl(self) -> bool:
        return self.base is not None

    def url(self, path: str) -> str:
        return (self.base or self.server) + path


class NotOurWay(SourceError):
    """We do not get in where kubectl might: a plugin, a certificate or a proxy that we cannot use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What a kubeconfig says of a context, without anybody having connected."""

    server: str
    context: str
    user: str | None
    namespace: str


def connect(
    *, kubeconfig: str | None = None, context: str | None = None, threads: int = 32
) -> Access:
    """The access that kubectl would have, or a SourceError in one line."""
    files, there = _files(kubeconfig)
    if kubeconfig is not None and not there:
        raise SourceError(f"{kubeconfig}: no such kubeconfig")
    if not there:
        if context is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
            return _in_cluster(threads)
        raise SourceError(
            f"no kubeconfig: {', '.join(files)} does not exist",
            hint="set KUBECONFIG or give --kubeconfig",
        )
    return _from_files(there, context, threads)


def has_a_way(kubeconfig: str | None, context: str | None) -> bool:
    """Whether anything names a cluster: an option, a file that is there, or the pod we run in."""
    if kubeconfig is not None or context is not None or os.environ.get("KUBERNETES_SERVICE_HOST"):
        return True
    chosen = os.environ.get("KUBECONFIG") or DEFAULT_KUBECONFIG
    return any(Path(one).expanduser().exists() for one in chosen.split(os.pathsep) if one)


def described(*, kubeconfig: str | None = None, context: str | None = None) -> Described:
    """The server and the user of a context, as the kubeconfig has them."""
    merged = _merged(_files(kubeconfig)[1])
    name = context or _current_context(merged)
    entry = _context_of(merged, name)
    user = entry.get("user")
    clusters = {}
    for one in merged.config.value.get("clusters") or ():
        value = getattr(one, "value", one)
        clusters[value.get("name")] = value.get("cluster") or {}
    server = clusters.get(entry.get("cluster"), {}).get("server")
    return Described(
        server=str(server or "").rstrip("/"),
        context=name,
        user=str(user) if user else None,
        namespace=str(entry.get("namespace") or "default"),
    )


def _files(kubeconfig: str | None) -> tuple[list[str], list[str]]:
    """The files that are meant, and those of them that are there."""
    chosen = kubeconfig or os.environ.get("KUBECONFIG") or DEFAULT_KUBECONFIG
    files = [str(Path(one).expanduser()) for one in chosen.split(os.pathsep) if one]
    return files, [one for one in files if Path(one).exists()]


# --- kubeconfig -----------------------------------------------------------------------------------


def _from_files(files: list[str], context: str | None, threads: int) -> Access:
    merged = _merged(files)
    name = context or _current_context(merged)
    entry = _context_of(merged, name)
    user = entry.get("user")
    try:
        loader = _loader(merged, name, entry)
        configuration = _configured(loader)
        tls, proxy = _tls(configuration), _proxy_for(str(configuration.host), configuration)
    except (SourceError, UsageError) as exc:
        raise NotOurWay(exc.message, hint=exc.hint) from exc
    credentials = _Credentials(loader, configuration, _impersonation(merged, user))
    return Access(
        server=str(configuration.host).rstrip("/"),
        context=name,
        user=str(user) if user else None,
        namespace=str(entry.get("namespace") or "default"),
        how="kubeconfig",
        pool=pool_for(tls, proxy, threads),
        headers=credentials.headers,
        refresh=credentials.refresh,
        tls=tls,
        proxy=proxy,
    )


def _merged(files: list[str]) -> Any:  # noqa: ANN401  the client library's node
    import yaml
    from kubernetes.config import ConfigException
    from kubernetes.config.kube_config import KubeConfigMerger

    shown = os.pathsep.join(files)
    try:
        return KubeConfigMerger(shown)
    except ConfigException as exc:
        raise SourceError(f"kubeconfig {shown}: {exc}") from exc
    except OSError as exc:
        raise SourceError(f"kubeconfig {shown}: {(exc.strerror or '').lower()}") from exc
    except (ValueError, TypeError, AttributeError, KeyError) as exc:
        raise SourceError(f"kubeconfig {shown} cannot be read: {_first_line(exc)}") from exc
    except yaml.YAMLError as exc:
        raise SourceError(f"kubeconfig {shown} is no YAML: {_first_line(exc)}") from exc


def _first_line(exc: BaseException) -> str:
    return " ".join(str(exc).split())[:160]


def _contexts(merged: Any) -> dict[str, Mapping[str, object]]:  # noqa: ANN401
    found = {}
    for one in merged.config.value.get("contexts") or ():
        value = getattr(one, "value", one)
        found[str(value.get("name"))] = value.get("context") or {}
    return found


def _current_context(merged: Any) -> str:  # noqa: ANN401
    """The first file that names one wins, as with kubectl (the library takes the last)."""
    for document in merged.config_files.values():
        if document.get("current-context"):
            return str(document["current-context"])
    raise SourceError(
        f"no context is chosen in the kubeconfig; there are: {_names(merged)}",
        hint="give --context NAME",
    )


def _names(merged: Any) -> str:  # noqa: ANN401
    names = sorted(_contexts(merged))
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def context_names(kubeconfig: str | None = None) -> list[str]:
    """The contexts of the kubeconfig; none where there is no file."""
    there = _files(kubeconfig)[1]
    return sorted(_contexts(_merged(there))) if there else []


def _context_of(merged: Any, name: str) -> Mapping[str, object]:  # noqa: ANN401
    contexts = _contexts(merged)
    if name not in contexts:
        raise SourceError(
            f"no context {name!r} in the kubeconfig; there are: {_names(merged) or 'none'}",
            hint="give --context NAME",
        )
    return contexts[name]


def _loader(merged: Any, name: str, entry: Mapping[str, object]) -> Any:  # noqa: ANN401
    from kubernetes.config import ConfigException
    from kubernetes.config.kube_config import FileOrData, KubeConfigLoader

    class Loader(KubeConfigLoader):
        """The library's, but an exec plugin that fails is an error, with the plugin's words."""

        def _load_from_exec_plugin(self) -> bool | None:
            user: Any = self._user
            cluster: Any = self._cluster
            if "exec" not in user:
                return None
            base = self._get_base_path(cluster.path)  # type: ignore[no-untyped-call]
            status = exec_plugin.credential(user["exec"].value, cluster=cluster.value, folder=base)
            if status.get("token"):
                self.token = f"Bearer {status['token']}"
            for attribute, key in (
                ("cert_file", "clientCertificateData"),
                ("key_file", "clientKeyData"),
            ):
                if status.get(key):
                    kept = FileOrData(status, None, data_key_name=key, base64_file_content=False)
                    setattr(self, attribute, kept.as_file())
            return True

    try:
        return Loader(  # type: ignore[no-untyped-call]
            config_dict=merged.config, active_context=name, config_base_path=None
        )
    except ConfigException as exc:
        raise SourceError(
            f"context {name!r} of the kubeconfig is not whole: {_first_line(exc)}"
        ) from exc


def _configured(loader: Any) -> Any:  # noqa: ANN401
    from kubernetes.client.configuration import Configuration

    configuration = Configuration()
    _load(loader, configuration)
    return configuration


def _load(loader: Any, configuration: Any) -> None:  # noqa: ANN401
    from kubernetes.config import ConfigException

    try:
        loader.load_and_set(configuration)
    except ConfigException as exc:
        raise SourceError(f"kubeconfig: {_first_line(exc)}") from exc
    except OSError as exc:
        raise SourceError(f"kubeconfig: {exc.filename}: {(exc.strerror or '').lower()}") from exc


def _impersonation(merged: Any, user: object) -> tuple[tuple[str, str], ...]:  # noqa: ANN401
    for one in merged.config.value.get("users") or ():
        value = getattr(one, "value", one)
        if value.get("name") != user:
            continue
        stated = value.get("user") or {}
        found = [("Impersonate-User", str(stated["as"]))] if stated.get("as") else []
        if stated.get("as-uid"):
            found.append(("Impersonate-Uid", str(stated["as-uid"])))
        found += [("Impersonate-Group", str(group)) for group in stated.get("as-groups") or ()]
        return tuple(found)
    return ()


class _Credentials:
    """What goes into the headers; asked for anew once when the server says that it is no good."""

    def __init__(
        self,
        loader: Any,  # noqa: ANN401
        configuration: Any,  # noqa: ANN401
        impersonation: tuple[tuple[str, str], ...],
    ) -> None:
        self._loader = loader
        self._configuration = configuration
        self._impersonation = impersonation
        self._lock = threading.Lock()

    def headers(self) -> Mapping[str, str]:
        from urllib3 import HTTPHeaderDict

        found = HTTPHeaderDict()
        token = self._configuration.api_key.get("BearerToken")
        if token:
            found.add("Authorization", token)
        for name, value in self._impersonation:
            found.add(name, value)
        return found

    def refresh(self) -> bool:
        """Read the token file or run the plugin again; whether that gave other credentials."""
        with self._lock:
            before = self._configuration.api_key.get("BearerToken")
            _load(self._loader, self._configuration)
            return self._configuration.api_key.get("BearerToken") != before  # type: ignore[no-any-return]


# --- In a pod -------------------------------------------------------------------------------------


def _in_cluster(threads: int) -> Access:
    from kubernetes.client.configuration import Configuration
    from kubernetes.config import ConfigException, load_incluster_config

    configuration = Configuration()
    try:
        load_incluster_config(client_configuration=configuration)
    except ConfigException as exc:
        raise SourceError(f"service account of this pod: {_first_line(exc)}") from exc

    def token() -> str:
        try:
            return (_SERVICE_ACCOUNT / "token").read_text(encoding="utf-8").strip()
        except OSError as exc:
            why = (exc.strerror or "").lower()
            raise SourceError(f"service account of this pod: its token: {why}") from exc

    try:
        namespace = (_SERVICE_ACCOUNT / "namespace").read_text(encoding="utf-8").strip()
    except OSError:
        namespace = "default"
    tls, proxy = _tls(configuration), _proxy_for(str(configuration.host), configuration)
    return Access(
        server=str(configuration.host).rstrip("/"),
        context=None,
        user="service account of this pod",
        namespace=namespace or "default",
        how="in-cluster",
        pool=pool_for(tls, proxy, threads),
        headers=lambda: {"Authorization": f"Bearer {token()}"},  # it rotates hourly
        refresh=lambda: False,
        tls=tls,
        proxy=proxy,
    )


# --- Connections ----------------------------------------------------------------------------------


def pool_for(tls: Mapping[str, Any], proxy: str | None, threads: int) -> urllib3.PoolManager:
    """One shared pool, as large as there are threads; no retries of its own, no wait without an end."""
    import urllib3

    how: dict[str, Any] = {
        "num_pools": 4,
        "maxsize": threads,
        "block": True,
        "retries": False,
        "timeout": urllib3.Timeout(connect=_CONNECT_S, read=30.0),
        **tls,
    }
    if proxy is None:
        return urllib3.PoolManager(**how)
    if proxy.startswith("socks"):
        from urllib3.contrib.socks import SOCKSProxyManager

        # socks5h: the proxy resolves the name, as kubectl has it
        scheme, rest = proxy.split("://", 1)
        return SOCKSProxyManager(f"{scheme.removesuffix('h')}h://{rest}", **how)
    shown = urlsplit(proxy)
    basic = f"{shown.username}:{shown.password or ''}" if shown.username else None
    headers = urllib3.make_headers(proxy_basic_auth=basic) if basic else None
    return urllib3.ProxyManager(proxy, proxy_headers=headers, **how)


def _tls(configuration: Any) -> dict[str, Any]:  # noqa: ANN401
    if not str(configuration.host).startswith("https"):
        return {}
    try:
        context = ssl.create_default_context(cafile=configuration.ssl_ca_cert or None)
        # some cluster CAs lack the key usage that Python 3.13 asks for, and kubectl does not
        context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
        if not configuration.verify_ssl:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if configuration.cert_file:
            context.load_cert_chain(configuration.cert_file, configuration.key_file or None)
    except (OSError, ssl.SSLError) as exc:
        raise SourceError(
            f"kubeconfig: a certificate cannot be loaded: {_first_line(exc)}"
        ) from exc
    found: dict[str, Any] = {"ssl_context": context}
    if not configuration.verify_ssl:
        found["cert_reqs"] = "CERT_NONE"
        found["assert_hostname"] = False
    elif configuration.tls_server_name:
        found["server_hostname"] = configuration.tls_server_name
        found["assert_hostname"] = configuration.tls_server_name
    return found


def _proxy_for(host: str, configuration: Any) -> str | None:  # noqa: ANN401
    """`proxy-url` of the kubeconfig, else HTTPS_PROXY unless NO_PROXY names the host."""
    from kubernetes.client.rest import should_bypass_proxies

    proxy = configuration.proxy
    if not proxy:
        return None
    is_stated = not getattr(configuration, "_proxy_from_env", True)
    if not is_stated and should_bypass_proxies(host, configuration.no_proxy or ""):
        return None
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    if proxy.split("://", 1)[0].lower() not in ("http", "https", "socks5", "socks5h", "socks4"):
        raise UsageError(f"proxy-url {proxy!r}: not http, https or socks5")
    return str(proxy)
