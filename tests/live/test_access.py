"""The way in that kubectl has; every failure is one line that says what to do."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from gpufleet_cli.errors import SourceError
from gpufleet_cli.live import access
from gpufleet_cli.live.api import Api
from live import fake_api
from live.fake_api import FakeApi


def test_no_kubeconfig() -> None:
    """Where it was looked for."""
    with pytest.raises(SourceError, match=r"no kubeconfig: .*/\.kube/config does not exist"):
        access.connect()


def test_a_wrong_context_names_those_there_are(fake_kubeconfig: Path) -> None:
    """So that nobody has to look them up."""
    with pytest.raises(SourceError, match="no context 'prod' in the kubeconfig; there are: fake"):
        access.connect(kubeconfig=str(fake_kubeconfig), context="prod")


@pytest.mark.parametrize("text", ["", "{", "a: [", "[]", "just words"])
def test_a_broken_kubeconfig(tmp_path: Path, text: str) -> None:
    """No traceback, whatever is in it."""
    place = tmp_path / "config"
    place.write_text(text)
    with pytest.raises(SourceError):
        access.connect(kubeconfig=str(place))


def test_the_first_of_several_files_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """KUBECONFIG with two files: current context of the first, contexts of both."""
    first = fake_api.write_kubeconfig(tmp_path / "a", "http://127.0.0.1:1", namespace="one")
    second = fake_api.write_kubeconfig(tmp_path / "b", "http://127.0.0.1:2", namespace="two")
    second.write_text(second.read_text().replace('"fake"', '"other"'))
    monkeypatch.setenv("KUBECONFIG", f"{first}{os.pathsep}{tmp_path / 'gone'}{os.pathsep}{second}")
    assert ("fake", "one") == ((found := access.connect()).context, found.namespace)
    assert "http://127.0.0.1:2" == access.connect(context="other").server


def test_token_files_rotate(fake: FakeApi, tmp_path: Path) -> None:
    """A 401 makes us read the file again, once."""
    token = tmp_path / "token"
    token.write_text("old")
    kubeconfig = fake_api.write_kubeconfig(tmp_path / "k", fake.url, tokenFile=str(token))
    api = Api(access.connect(kubeconfig=str(kubeconfig)))
    fake.odd.append(
        lambda *_: (
            fake_api.failure(401) if fake.headers[-1]["authorization"] != "Bearer new" else None
        )
    )
    token.write_text("new")
    assert api.get("/version").ok


def test_impersonation_is_passed_on(fake: FakeApi, tmp_path: Path) -> None:
    """`as` and `as-groups` of the user."""
    user: dict[str, Any] = {"token": "t", "as": "jane", "as-groups": ["dev", "ops"]}
    kubeconfig = fake_api.write_kubeconfig(tmp_path / "k", fake.url, **user)
    Api(access.connect(kubeconfig=str(kubeconfig))).check()
    assert "jane" == fake.headers[-1]["impersonate-user"]


def plugin(tmp_path: Path, script: str) -> dict[str, Any]:
    """A user whose credentials a program prints."""
    program = tmp_path / "login-plugin"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    command = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(program)}
    return {"exec": command}


def test_an_exec_plugin_gives_the_token(fake: FakeApi, tmp_path: Path) -> None:
    """As kubectl runs it."""
    said = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
    said |= {"status": {"token": "from-plugin"}}  # type: ignore[dict-item]
    user = plugin(tmp_path, f"echo '{json.dumps(said)}'")
    kubeconfig = fake_api.write_kubeconfig(tmp_path / "k", fake.url, **user)
    Api(access.connect(kubeconfig=str(kubeconfig))).check()
    assert "Bearer from-plugin" == fake.headers[-1]["authorization"]


def test_a_plugin_that_fails_says_so_itself(tmp_path: Path) -> None:
    """Its own last words, not a 401 later on."""
    user = plugin(tmp_path, "echo 'SSO session has expired' >&2; exit 255")
    kubeconfig = fake_api.write_kubeconfig(tmp_path / "k", "http://127.0.0.1:1", **user)
    with pytest.raises(
        SourceError, match=r"login-plugin .*failed \(255\): SSO session has expired"
    ):
        access.connect(kubeconfig=str(kubeconfig))


def test_a_plugin_that_is_not_there(tmp_path: Path) -> None:
    """Named, with what to do."""
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-plugin"}}
    kubeconfig = fake_api.write_kubeconfig(tmp_path / "k", "http://127.0.0.1:1", **user)
    with pytest.raises(SourceError, match=r"exec plugin no-such-plugin .* is not installed"):
        access.connect(kubeconfig=str(kubeconfig))


def test_an_http_proxy_is_used(fake: FakeApi, tmp_path: Path) -> None:
    """`proxy-url` leads; NO_PROXY is for proxies of the environment."""
    kubeconfig = fake_api.write_kubeconfig(tmp_path / "k", "http://api.example:6443")
    document = json.loads(kubeconfig.read_text())
    document["clusters"][0]["cluster"]["proxy-url"] = fake.url
    kubeconfig.write_text(json.dumps(document))
    found = access.connect(kubeconfig=str(kubeconfig))
    assert fake.url == found.proxy
    Api(found).get("/version", tries=1)
    assert "api.example:6443" == fake.headers[-1]["host"]
