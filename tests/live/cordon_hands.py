"""What tests of cordons on the real cluster do again and again: run a command, read a node, a user's kubeconfig."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from servers import namespaces, nodes
from servers.cluster import kubeconfig_context, write_kubeconfig
from servers.namespaces import Namespace

from gpufleet_cli.cli import main

KEYS = (
    "gpufleet/cordoned-by",
    "gpufleet/cordoned-at",
    "gpufleet/reason",
    "gpufleet/incident",
)
RBAC = Path(__file__).parents[2] / "deploy" / "rbac"
EVENTS = "/api/v1/namespaces/default/events"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How one command ended."""

    code: int
    out: str
    err: str

    @property
    def answers(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.out)["nodes"]
        return found


@dataclass(frozen=True, slots=True)
class Hands:
    """The namespace of the test, and where its output comes out."""

    namespace: Namespace
    capsys: pytest.CaptureFixture[str]

    def run(self, *arguments: str) -> Ran:
        self.capsys.readouterr()
        code = main(list(arguments))
        told = self.capsys.readouterr()
        assert "Traceback" not in told.err
        if "json" not in arguments:
            long = [line for line in told.out.splitlines() if len(line) > 80]
            assert [] == [line for line in long if not line.startswith("  next ")]
        return Ran(code=code, out=told.out, err=told.err)

    def node(self, name: str) -> dict[str, Any]:
        return nodes.read(self.namespace.cluster, name)

    def marks(self, name: str) -> dict[str, str]:
        """Our annotations of the node."""
        found = self.node(name)["metadata"].get("annotations", {})
        return {key: value for key, value in found.items() if key.startswith("gpufleet/")}

    def is_cordoned(self, name: str) -> bool:
        return self.node(name)["spec"].get("unschedulable") is True

    def events(self, name: str) -> list[str]:
        """Reasons of our Events on the node, oldest first."""
        every = self.namespace.api.items(EVENTS, fieldSelector=f"involvedObject.name={name}")
        own = [one for one in every if one["reason"].startswith("Gpufleet")]
        own.sort(key=lambda one: int(one["metadata"]["resourceVersion"]))
        return [one["reason"] for one in own]

    def patch(self, name: str, change: dict[str, Any], manager: str) -> None:
        """As somebody else."""
        self.namespace.api.patch(f"/api/v1/nodes/{name}", change, fieldManager=manager)


def kubectl(kubeconfig: Path, *arguments: str) -> str | None:
    """What kubectl says; None where there is none."""
    program = shutil.which("kubectl")
    if program is None:
        return None
    command = [program, "--kubeconfig", str(kubeconfig), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def user_of(namespace: Namespace, role: str, to: Path, *, url: str | None = None) -> Path:
    """A kubeconfig of a user with one of the roles of `deploy/rbac`, and no other right."""
    import yaml

    (document,) = yaml.safe_load_all((RBAC / f"{role}.yaml").read_text(encoding="utf-8"))
    token = namespaces.make_user(namespace, role, document["rules"], whole_cluster=True)
    context = kubeconfig_context(
        namespace.cluster, role, token=token, url=url, namespace=namespace.name
    )
    return write_kubeconfig(to, {role: context}, current=role)
