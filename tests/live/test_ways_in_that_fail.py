"""An expired token, a plugin that failed, a wrong context, nobody there: one line each, exit status 4."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from gpufleet_cli.cli import main
from live import fake_api
from live.fake_api import FakeApi
from live.test_access import plugin

COMMANDS = ([], ["nodes"], ["node", "gpu-1"], ["triage", "-l", "app=train"], ["collect", "train"])


def told(capsys: pytest.CaptureFixture[str], command: list[str], *more: str) -> str:
    """What stands on standard error: one line, and nothing on standard output."""
    assert 4 == main([*command, *more])
    out, err = capsys.readouterr()
    assert ("", 1) == (out, err.count("\n"))
    return err


@pytest.mark.parametrize("command", COMMANDS)
def test_an_expired_token(
    fake: FakeApi, fake_kubeconfig: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    """Server and context are named, and what to do."""
    fake.odd.append(lambda *_: fake_api.failure(401))
    line = told(capsys, command, "--kubeconfig", str(fake_kubeconfig))
    assert f"{fake.url} (context fake) does not accept the credentials: expired" in line
    assert "log in again" in line


@pytest.mark.parametrize("command", COMMANDS)
def test_an_exec_plugin_that_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    """With its own last words."""
    user = plugin(tmp_path, "echo 'SSO session has expired' >&2; exit 255")
    kubeconfig = fake_api.write_kubeconfig(tmp_path / "k", "http://127.0.0.1:1", **user)
    line = told(capsys, command, "--kubeconfig", str(kubeconfig))
    assert "failed (255): SSO session has expired" in line


def test_an_exec_plugin_that_fails_the_second_time(
    fake: FakeApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its token is no good any more, and the new one it cannot give: its words, not a bare 401."""
    said = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
    text = json.dumps({**said, "status": {"token": "old"}})
    seen = tmp_path / "seen"
    script = f"[ -e {seen} ] && {{ echo 'refresh token revoked' >&2; exit 1; }}; : > {seen}"
    user = plugin(tmp_path, f"{script}\necho '{text}'")
    kubeconfig = fake_api.write_kubeconfig(tmp_path / "k", fake.url, **user)
    fake.odd.append(lambda *_: fake_api.failure(401))
    line = told(capsys, ["nodes"], "--kubeconfig", str(kubeconfig))
    assert "does not accept the credentials" in line
    assert "refresh token revoked" in line


@pytest.mark.parametrize("command", COMMANDS)
def test_a_wrong_context(
    fake_kubeconfig: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    """Those that there are, before the command and behind it."""
    line = told(capsys, ["--context", "prd", *command], "--kubeconfig", str(fake_kubeconfig))
    assert "no context 'prd' in the kubeconfig; there are: fake" in line


@pytest.mark.parametrize("command", COMMANDS)
def test_connection_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    """Nobody listens there."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        kubeconfig = fake_api.write_kubeconfig(tmp_path / "k", url)
        line = told(capsys, command, "--kubeconfig", str(kubeconfig))
    assert f"cannot reach the API server {url} (context fake)" in line
    assert "refused" in line
    assert "VPN up? right context?" in line


def test_the_token_file_is_gone(
    fake: FakeApi,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Named, without a traceback; without a kubectl, which goes on without the token."""
    monkeypatch.setenv("PATH", str(tmp_path))
    place = tmp_path / "gone"
    kubeconfig = fake_api.write_kubeconfig(tmp_path / "k", fake.url, tokenFile=str(place))
    assert str(place) in told(capsys, ["nodes"], "--kubeconfig", str(kubeconfig))


def test_many_reads_wait_for_one_new_token(fake: FakeApi, tmp_path: Path) -> None:
    """A token that expires in mid-run: it is asked for once, and no read is lost."""
    from gpufleet_cli.live import access, threads
    from gpufleet_cli.live.api import Api
    from gpufleet_cli.live.deadline import Deadline

    token = tmp_path / "token"
    token.write_text("old")
    kubeconfig = fake_api.write_kubeconfig(tmp_path / "k", fake.url, tokenFile=str(token))
    api = Api(access.connect(kubeconfig=str(kubeconfig)), deadline=Deadline(30))

    def expired(path: str, _: object) -> fake_api.Said | None:
        is_new = any(one.get("authorization") == "Bearer new" for one in fake.headers[-1:])
        return None if is_new else fake_api.Said(status=401, hold_s=0.2)

    fake.odd.append(expired)
    token.write_text("new")
    asked = threads.each(
        lambda _: api.get("/version", tries=3), range(8), threads=8, deadline=api.deadline
    )
    assert [200] * 8 == [answer.status for _, answer in asked]
