"""The settings file: what it may say, who wins, and one clear line for what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpufleet_cli import settings_file
from gpufleet_cli.errors import UsageError
from gpufleet_cli.settings_file import Chosen, choose, load

FULL = """
[contexts."prod"]
prometheus = "https://metrics.example/prometheus"
matchers = 'cluster="prod-a"'
log_store = "loki+https://logs.example"
log_store_fields = { pod = "kubernetes.pod_name" }
dumps = "s3://traces/rank_"
owner = "ml-platform"
tenant = "ml"
headers = { "X-Team" = "ml" }
token_command = "print-token --for 'a b'"
ca_file = "ca.pem"
client_cert = ["me.pem", "~/me.key"]
checkpoint_interval = "30m"
step_seconds = 0.4
world_size = 1024
log_store_access = { bearer_token_file = "/run/token" }

[contexts."arn:aws:eks:eu-1:1:cluster/x"]
dumps = "exec:/tmp/nccl_"
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "config.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_everything_it_may_say(tmp_path: Path) -> None:
    """Durations in seconds, paths beside the file or at home, a command split without a shell."""
    found = load(written(tmp_path, FULL))
    prod = found.of("prod")
    assert ("https://metrics.example/prometheus", 'cluster="prod-a"') == (
        prod.prometheus,
        prod.matchers,
    )
    assert (1800.0, 0.4, None, 1024) == (
        prod.checkpoint_interval_s,
        prod.step_s,
        prod.restart_s,
        prod.world_size,
    )
    assert ("print-token", "--for", "a b") == prod.access.token_command
    assert (tmp_path / "ca.pem", "ml") == (prod.access.ca_file, prod.access.tenant)
    assert (tmp_path / "me.pem", Path.home() / "me.key") == prod.access.client_cert
    assert Path("/run/token") == prod.store_access.bearer_token_file
    assert prod.store_access.token_command is None  # its own access, nothing of the other
    other = found.of("arn:aws:eks:eu-1:1:cluster/x")
    assert ("exec:/tmp/nccl_", None) == (other.dumps, other.prometheus)
    assert other.access == other.store_access
    assert "X-Team" not in repr(prod)  # a header may be a secret


def test_flag_over_environment_over_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And who won is said."""
    file = load(written(tmp_path, FULL))
    assert Chosen("https://metrics.example/prometheus", str(file.path)) == choose(
        "prometheus", flag=None, file=file, context="prod"
    )
    monkeypatch.setenv("GPUFLEET_PROMETHEUS", "http://env")
    assert Chosen("http://env", "GPUFLEET_PROMETHEUS") == choose(
        "prometheus", flag=None, file=file, context="prod"
    )
    assert Chosen("http://flag", "--prometheus") == choose(
        "prometheus", flag="http://flag", file=file, context="prod"
    )
    monkeypatch.setenv("GPUFLEET_LOG_STORE", "")
    stored = choose("log_store", flag=None, file=file, context="prod")
    assert stored is not None
    assert "loki+https://logs.example" == stored.value
    assert choose("dumps", flag=None, file=file, context="elsewhere") is None
    assert choose("dumps", flag=None, file=file, context=None) is None


def test_no_file_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It lies in the configuration folder, where XDG puts it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert tmp_path / "gpufleet" / "config.toml" == settings_file.config_path() == load().path
    assert {} == load().contexts
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    assert settings_file.config_path().is_relative_to(Path.home())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("prometheus = 'x'", "prometheus is not known"),
        ("[contexts.p]\npromethues = 'x'", "contexts.p.promethues is not known"),
        ("[contexts.p]\nprometheus = 3", "contexts.p.prometheus is no text"),
        ("[contexts.p]\nprometheus = ''", "contexts.p.prometheus is no text"),
        ("contexts = 3", 'write [contexts."NAME"]'),
        ("contexts.p = 3", "contexts.p is no table"),
        ("[contexts.p]\nx = = 3", "line 2"),
        ("[contexts.p]\nworld_size = true", "no whole number above 0"),
        ("[contexts.p]\nworld_size = 0", "no whole number above 0"),
        ("[contexts.p]\nstep = 'soon'", "contexts.p.step is no duration; write 90s"),
        ("[contexts.p]\nstep = inf", "no time above 0"),
        ("[contexts.p]\nstep = nan", "no time above 0"),
        ("[contexts.p]\nstep = true", "no number of seconds"),
        ("[contexts.p]\nstep_seconds = '3s'", "no number of seconds"),
        ("[contexts.p]\nstep = 1\nstep_seconds = 1", "stands beside step_seconds"),
        ("[contexts.p]\nheaders = 'a'", "contexts.p.headers is no table"),
        ("[contexts.p.headers]\n\"a b\" = 'x'", "no header that can be set"),
        ("[contexts.p.headers]\nHost = 'x'", "no header that can be set"),
        ('[contexts.p.headers]\nx = "a\\nb"', "no header can carry"),
        ("[contexts.p.log_store_fields]\npods = 'x'", "log_store_fields.pods is not known"),
        ("[contexts.p]\ntoken_command = []", "no list of words"),
        ('[contexts.p]\ntoken_command = "a \'b"', "cannot be split"),
        ("[contexts.p]\ntoken_command = 'a'\nbearer_token_file = 'b'", "keep one of them"),
        ("[contexts.p]\nclient_cert = ['a', 'b', 'c']", "neither"),
        ("[contexts.p]\nca_file = '~nobody-of-that-name/x'", "not known"),
        ('[contexts.p]\nowner = "a\\u001b[31m"', "cannot be printed"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    """With the file and the place in it."""
    file = written(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        load(file)
    assert words in caught.value.message
    assert caught.value.message.startswith(str(file))
    assert "\n" not in caught.value.message


def test_a_near_name_is_proposed(tmp_path: Path) -> None:
    """A typing error is not a setting that is silently ignored."""
    with pytest.raises(UsageError) as caught:
        load(written(tmp_path, "[contexts.p]\nlogstore = 'x'"))
    assert "did you mean log_store?" == caught.value.hint


def test_what_is_no_file_of_text(tmp_path: Path) -> None:
    """A folder, bytes."""
    with pytest.raises(UsageError, match="cannot be read"):
        load(tmp_path)
    (tmp_path / "config.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="UTF-8"):
        load(tmp_path / "config.toml")
