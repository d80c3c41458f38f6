"""Credentials that a kubeconfig's `exec` plugin prints (aws, gke-gcloud-auth-plugin, kubelogin).

The client library swallows a plugin's failure and goes on without a token; here its own last words are
the error. Protocol: client.authentication.k8s.io/v1 and v1beta1.
https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from gpufleet_cli.errors import SourceError

TIMEOUT_S = 60.0
_SHOWN_CHARS = 300


def credential(
    plugin: Mapping[str, object],
    *,
    cluster: Mapping[str, object],
    folder: str | None,
    timeout_s: float = TIMEOUT_S,
) -> Mapping[str, str]:
    """The `status` of the ExecCredential that the plugin prints."""
    command = str(plugin.get("command") or "")
    version = str(plugin.get("apiVersion") or "client.authentication.k8s.io/v1")
    arguments = plugin.get("args")
    words = [_place(command, folder)]
    if isinstance(arguments, list):
        words += map(str, arguments)
    finished = _run(words, _environment(plugin, version, cluster), command, timeout_s)
    if finished.returncode != 0:
        said = _last_words(finished.stderr)
        raise SourceError(
            f"exec plugin {command} of the kubeconfig failed ({finished.returncode}): {said}",
            hint="log in again, then try: kubectl get nodes",
        )
    try:
        status = json.loads(finished.stdout)["status"]
    except (ValueError, KeyError, TypeError) as exc:
        raise SourceError(f"exec plugin {command} printed no ExecCredential") from exc
    if not isinstance(status, dict) or not ({"token", "clientCertificateData"} & set(status)):
        raise SourceError(f"exec plugin {command} gave neither a token nor a certificate")
    return {str(k): str(v) for k, v in status.items() if v is not None}


def _place(command: str, folder: str | None) -> str:
    """A command with a `/` in it is relative to its kubeconfig; a bare name is looked up on PATH."""
    if "/" in command and folder is not None and not Path(command).is_absolute():
        return str(Path(folder) / command)
    return command


def _environment(
    plugin: Mapping[str, object], version: str, cluster: Mapping[str, object]
) -> dict[str, str]:
    env = dict(os.environ)
    for entry in plugin.get("env") or ():  # type: ignore[attr-defined]
        env[str(entry["name"])] = str(entry["value"])
    spec: dict[str, object] = {"interactive": sys.stdin is not None and sys.stdin.isatty()}
    if plugin.get("provideClusterInfo"):
        spec["cluster"] = cluster
    env["KUBERNETES_EXEC_INFO"] = json.dumps(
        {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
    )
    return env


def _run(
    words: list[str], env: dict[str, str], command: str, timeout_s: float
) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(  # argv, no shell, as kubectl runs it
            words, env=env, capture_output=True, timeout=timeout_s, check=False
        )
    except FileNotFoundError as exc:
        raise SourceError(
            f"exec plugin {command} of the kubeconfig is not installed", hint="it must be on PATH"
        ) from exc
    except subprocess.TimeoutExpired as exc:
        raise SourceError(
            f"exec plugin {command} of the kubeconfig did not answer in {timeout_s:.0f} s"
        ) from exc
    except OSError as exc:
        raise SourceError(f"exec plugin {command} cannot be run: {exc.strerror}") from exc


def _last_words(stderr: bytes) -> str:
    lines = [line for line in stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    return " / ".join(lines[-3:])[:_SHOWN_CHARS] or "it said nothing"
