"""Secrets planted wherever evidence carries them: none in the bundle or in a report, each listed as hidden."""

from __future__ import annotations

import base64
import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import pytest

from gpufleet_cli.cli import main
from gpufleet_cli.live.hide import Hider, hide_in_log
from gpufleet_cli.live.known_secrets import KnownSecrets
from gpufleet_cli.redact import redact
from live import fake_api, planted
from live.fake_api import FakeApi

PODS = "/api/v1/namespaces/ml/pods"
AT = datetime(2026, 8, 20, 3, 10, 0, tzinfo=UTC)
KEY_LINES = [
    "-----BEGIN RSA PRIVATE KEY-----",
    "MIIEowIBAAKCAQEAx4UbaDzY5xjW6hc9jwN0mX33XpTDVJR7fDmTqYx0zQ8w5m1K",
    "qYl9a8s7d6f5g4h3j2k1LzXcVbNmQwErTyUiOpAsDfGhJkLzXcVbNmQwErTyUiOp",
    "c2hvcnQ9PT0",
    "-----END RSA PRIVATE KEY-----",
]
PLANTED = {
    "env": "env-Value-9f8e7d",
    "json in an annotation": "annot-S3cret-11aa",
    "argument": "arg-K3y-77bb66",
    "argument with =": "arg-Eq-55cc44",
    "bearer": "eyBearer.tok-123456",
    "basic": base64.b64encode(b"jane:hunter2-abc").decode(),
    "connection string": "dbPassw0rd-xyz",
    "account key": "Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5MDEyMzQ1Njc4OTA=",
    "cloud key": "AKIAIOSFODNN7EXAMPLE",
    "signature": "Sg7aHd83kLmQ0vXz9Plo",
    "event": "ev-t0ken-5566778899aabb",
    "hub": "hf_abcdefghijklmnopqrstuvwx",
    "private key": KEY_LINES[1],
    "short end of a private key": KEY_LINES[3],
}
LOG = [
    f"curl -H 'Authorization: Bearer {PLANTED['bearer']}' https://api.example/v1",
    f"proxy said Authorization: Basic {PLANTED['basic']}",
    f"connecting to postgresql://train:{PLANTED['connection string']}@db.example:5432/runs",
    f"DefaultEndpointsProtocol=https;AccountName=x;AccountKey={PLANTED['account key']};EndpointSuffix=y",
    f"using key {PLANTED['cloud key']}",
    f"GET https://blob.example/ckpt?sv=2024&sig={PLANTED['signature']}&se=2026",
    f"logged in to the hub with {PLANTED['hub']}",
    *KEY_LINES,
    "step 1 loss 2.0 tokens/s 4096",
]


def plant(fake: FakeApi) -> None:
    """One pod that carries all of them."""
    applied = {
        "spec": {
            "containers": [{"env": [{"name": "X", "value": PLANTED["json in an annotation"]}]}]
        }
    }
    made = fake_api.pod(
        "run9-0",
        labels={"job-id": "run9"},
        env={
            "DB_LOGIN": PLANTED["env"],
            "NCCL_DEBUG": "INFO",
            "PET_NODE_RANK": "0",
            "WANDB_RUN_ID": "3k2j1h",
            "WORLD_SIZE": "1",
        },
        args=[
            "train.py",
            "--api-key",
            PLANTED["argument"],
            f"--hub-token={PLANTED['argument with =']}",
        ],
        annotations={"kubectl.kubernetes.io/last-applied-configuration": json.dumps(applied)},
    )
    fake.add(PODS, made)
    fake.add("/api/v1/nodes", fake_api.node("gpu-1"))
    event = {
        "metadata": {"name": "e", "namespace": "ml"},
        "involvedObject": {"kind": "Pod", "name": "run9-0", "namespace": "ml"},
        "reason": "Failed",
        "message": f"pull failed: token={PLANTED['event']}",
    }
    fake.add("/api/v1/namespaces/ml/events", event)
    lines = [
        f"{AT + timedelta(seconds=n):%Y-%m-%dT%H:%M:%SZ} {line}\n" for n, line in enumerate(LOG)
    ]
    fake.logs["run9-0", "trainer"] = "".join(lines).encode()


def found_in(data: bytes) -> set[str]:
    """Which secrets stand in these bytes: as they are, URL-encoded or in base64."""
    forms = {
        name: (text, quote(text, safe=""), base64.b64encode(text.encode()).decode().rstrip("="))
        for name, text in PLANTED.items()
    }
    return {name for name, texts in forms.items() if any(t.encode() in data for t in texts)}


def test_the_search_finds_what_was_planted(fake: FakeApi) -> None:
    """Or it would prove nothing."""
    plant(fake)
    everything = (
        json.dumps(list(fake.collections.values())).encode() + fake.logs["run9-0", "trainer"]
    )
    assert set(PLANTED) == found_in(everything)


def test_no_secret_is_in_the_bundle_or_in_a_report(
    fake: FakeApi, fake_kubeconfig: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each place is listed with what it looked like; known settings stay."""
    plant(fake)
    to = tmp_path / "bundle"
    main(["collect", "-l", "job-id=run9", "--to", str(to), "--kubeconfig", str(fake_kubeconfig)])
    told = capsys.readouterr()
    kept = b"".join(path.read_bytes() for path in to.rglob("*") if path.is_file())
    assert set() == found_in(kept + told.out.encode() + told.err.encode())
    manifest = json.loads((to / "manifest.json").read_text())
    assert json.loads(told.out)["hidden"] == len(manifest["hidden"]) >= len(PLANTED) - 1
    assert b'{"name":"NCCL_DEBUG","value":"INFO"}' in kept
    assert b'{"name":"PET_NODE_RANK","value":"0"}' in kept
    assert b'{"name":"WANDB_RUN_ID","value":"3k2j1h"}' in kept
    assert b"tokens/s 4096" in kept
    for output in ("text", "json", "yaml", "markdown", "html"):
        main(["triage", str(to), "-o", output, "-v"])
        assert set() == found_in(capsys.readouterr().out.encode())


def test_an_old_bundle_is_redacted_again(
    fake: FakeApi, fake_kubeconfig: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Into a new one; the old one stays as it is."""
    plant(fake)
    old, new = tmp_path / "old", tmp_path / "new.tar.zst"
    main(["collect", "-l", "job-id=run9", "--to", str(old), "--kubeconfig", str(fake_kubeconfig)])
    capsys.readouterr()
    log = next(old.rglob("current.log"))
    log.write_bytes(fake.logs["run9-0", "trainer"])
    assert 0 == main(["collect", "--redact-again", str(old), "--to", str(new)])
    assert str(new) == json.loads(capsys.readouterr().out)["bundle"]
    import zstandard

    with new.open("rb") as packed:
        data = zstandard.ZstdDecompressor().stream_reader(packed).read()
    assert set() == found_in(data)
    assert log.read_bytes() == fake.logs["run9-0", "trainer"]
    assert 0 <= main(["triage", str(new)]) <= 3
    whole = new.read_bytes()
    assert 4 == main(["collect", "--redact-again", str(old), "--to", str(new)])
    assert whole == new.read_bytes(), "what is there is not overwritten"


@pytest.mark.parametrize(
    "line",
    [b"tokens: 4096", b"author: someone", b"task-3 done", b"[rank0]: pad_token=<pad>", b"a://b c"],
)
def test_ordinary_lines_stay(line: bytes) -> None:
    """Words of training logs that look a little like ours."""
    assert (line, []) == hide_in_log(line)


@pytest.mark.parametrize(
    "line",
    [
        "run --pass hunter2-abc",
        "run --db-pass=hunter2-abc",
        "curl --proxy-user me:hunter2-abc",
        "curl\t-u\tme:hunter2-abc",
        "curl -u=me:hunter2-abc",
        "mariadb -p hunter2-abc",
        "mongosh -p hunter2-abc",
        "cqlsh -p hunter2-abc",
        "sqlcmd -P hunter2-abc",
        "connection-string = hunter2-abc",
        "refresh 1//03hunter2-abcdefghijk",
    ],
)
def test_a_log_hides_what_any_text_hides(line: str) -> None:
    """The words by which lines are chosen for a close look let none of these by."""
    assert redact(line) != line
    assert redact(line).encode() == hide_in_log(line.encode())[0]


def test_bytes_that_are_no_text_stay() -> None:
    """A torn glyph beside a secret."""
    cleaned, hidden = hide_in_log(b"\xe2\x82 password=hunter2-abc\n\xff\n")
    assert b"\xe2\x82 password=[hidden]\n\xff\n" == cleaned
    assert [("line 1", "named secret")] == [tuple(one) for one in hidden]


def test_a_deep_object_ends() -> None:
    """Hostile nesting is cut, not followed for ever."""
    deep: object = "x" * 20
    for _ in range(200):
        deep = [deep]
    assert "x" * 20 not in json.dumps(Hider().cleaned(deep, "$"))


@pytest.mark.parametrize(
    "data",
    [
        b"x -----END PRIVATE KEY-----\n" * 20_000,
        b"x -----BEGIN PRIVATE KEY-----\n" * 20_000,
        b"-----BEGIN PRIVATE KEY-----\n" + (b"a" * 76 + b"\n") * 50_000,
        b"login mysql -u a -p" * 10_000,
        b"postgres://a:" * 10_000,
        b"A_KEY_" * 30_000 + b"=",
        b"password=" + b",a" * 50_000,
        b"Ab1" * 60_000,
    ],
    ids=["ends", "begins", "a long body", "options", "URLs", "names", "values", "base64"],
)
def test_hostile_logs_take_no_time(data: bytes) -> None:
    """Nothing in a log makes the looking closely long."""
    start = time.process_time()
    hide_in_log(data)
    assert time.process_time() - start < 3


def test_keys_of_two_ranks_that_mix() -> None:
    """Lines of each hidden to its own end, other lines kept, also where the beginning or the end is lost."""
    one, two = planted.key_lines("one"), planted.key_lines("two")
    mixed = [
        f"[rank{rank}]: {line}"
        for pair in zip(one, two, strict=True)
        for rank, line in enumerate(pair)
    ]
    said = "[rank2]: step 7 loss 2.1"
    for lines in (mixed, mixed[3:], mixed[:-3]):
        text = "\n".join([said, *lines, said]).encode()
        cleaned, hidden = hide_in_log(text)
        assert not [line for line in (*one[1:-1], *two[1:-1]) if line.encode() in cleaned]
        assert 2 == cleaned.count(said.encode())
        assert hidden


def test_what_a_spec_names_as_a_secret_is_found_elsewhere() -> None:
    """As it is, for a URL, and in base64 wherever it begins; a word of everyday is not."""
    known = KnownSecrets()
    hider = Hider(known)
    env = [
        {"name": "DB_LOGIN", "value": "s3cr+t/of the=db"},
        {"name": "A_TOKEN", "value": "training"},
        {"name": "RUN_NAME", "value": "Meta-Llama-3-70B"},
    ]
    hider.cleaned({"env": env}, "pod")
    for text in ("s3cr+t/of the=db", "s3cr%2Bt%2Fof%20the%3Ddb", "s3cr%2Bt%2Fof+the%3Ddb"):
        assert [b"said [hidden] ok"] == [hide_in_log(f"said {text} ok".encode(), known)[0]]
    for before in ("", "a", "ab"):
        inside = planted.b64(f"{before}s3cr+t/of the=db!").encode()
        assert inside[4:16] not in hide_in_log(b"blob " + inside + b" ok", known)[0]
    line = b"training of Meta-Llama-3-70B"
    assert (line, []) == hide_in_log(line, known)


def test_variables_of_a_runtime_environment() -> None:
    """A RayJob has its variables in YAML text, or as an object; each is one place, and known settings stay."""
    text = (
        "pip: [torch]\nenv_vars:\n  NCCL_DEBUG: INFO\n  MINE: planted-one\n  KEYS: |\n    planted-two\n"
        "    planted-three\n\n  'QUOTED': \"planted-four\"\nworking_dir: s3://bucket/x\n"
    )
    hider = Hider()
    spec = {
        "runtimeEnvYAML": text,
        "runtime_env": {"env_vars": {"A": "planted-five", "NCCL_DEBUG": "WARN"}},
    }
    shown = json.dumps(hider.cleaned({"spec": spec}, "job"))
    assert "planted" not in shown
    assert ("NCCL_DEBUG: INFO" in shown, "s3://bucket/x" in shown, "WARN" in shown) == (True,) * 3
    assert {
        "job.spec.runtimeEnvYAML.env_vars.MINE", "job.spec.runtimeEnvYAML.env_vars.KEYS",
        "job.spec.runtimeEnvYAML.env_vars.QUOTED", "job.spec.runtime_env.env_vars.A",
    } == {one.where for one in hider.hidden}  # fmt: skip
    inline = Hider().cleaned({"runtimeEnvYAML": "env_vars: {A: planted-six, B: x}"}, "job")
    assert {"runtimeEnvYAML": "env_vars: [hidden]"} == inline
