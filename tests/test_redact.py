"""Secrets are hidden; the words of training logs are not."""

from __future__ import annotations

import time

import pytest

from gpufleet_cli.redact import HIDDEN, redact, redact_and_tell

KEY = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"

SECRETS = [
    ("Authorization: Bearer abc123.def-456_XYZ", "abc123.def-456_XYZ"),
    ('{"authorization": "Basic dXNlcjpwYXNz"}', "dXNlcjpwYXNz"),
    ("curl -H 'Authorization: token abcd1234efgh5678' x", "abcd1234efgh5678"),
    ("using bearer eyabcdef0123456789", "eyabcdef0123456789"),
    ("aws_access_key_id=AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE"),
    (f"aws_secret_access_key = {KEY}", KEY),
    (f"AWS_SECRET_ACCESS_KEY: '{KEY}'", KEY),
    ("redis://:hunter2@cache:6379/0", "hunter2"),
    ("https://me:hunter2@example.com/repo.git", "hunter2"),
    ("https://0123456789abcdef0123456789abcdef@sentry.example.com/1", "0123456789abcdef0123456789"),
    ("s3://bucket/x?X-Amz-Signature=abcdef0123&X-Amz-Expires=3", "abcdef0123"),
    ("https://x.blob.core.windows.net/c?sv=2024&sig=aB%2Bc%3D1234", "aB%2Bc%3D1234"),
    ("AccountKey=abcdEFGH1234==;EndpointSuffix=core", "abcdEFGH1234=="),
    ("export HF_TOKEN=hf_abcdefghijklmnopqrstuvwx", "hf_abcdefghijklmnopqrstuvwx"),
    ("token hf_abcdefghijklmnopqrstuvwx is invalid", "hf_abcdefghijklmnopqrstuvwx"),
    ("clone with ghp_abcdefghijklmnopqrstuvwxyz0123456789", "ghp_abcdefghijklmnopqrstuvwxyz"),
    ("WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567", "0123456789abcdef0123456789"),
    ("wandb: using key 0123456789abcdef0123456789abcdef01234567", "0123456789abcdef0123456789"),
    ("OPENAI_API_KEY=sk-proj-abcdefghijklmnopqrst", "sk-proj-abcdefghijklmnopqrst"),
    ("slack xoxb-123456789012-abcdefghijkl", "xoxb-123456789012-abcdefghijkl"),
    ("https://hooks.slack.com/services/T000/B000/XXXXYYYY", "T000/B000/XXXXYYYY"),
    ("jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-DEF_123", "eyJzdWIiOiIxMjM0In0"),
    ("nvapi-abcdefghijklmnopqrstuvwxyz012345", "nvapi-abcdefghijklmnopqrstuvwxyz012345"),
    ('{"password": "correct horse battery", "x": 1}', "correct horse battery"),
    ("db_password=hunter2", "hunter2"),
    ("--password hunter2 --rank 3", "hunter2"),
    ("login --token abcdef --rank 3", "abcdef"),
    ("registry auth: ZG9ja2VyOnBhc3N3b3JkMTIz", "ZG9ja2VyOnBhc3N3b3JkMTIz"),
    ("client-key-data: LS0tLS1CRUdJTg==", "LS0tLS1CRUdJTg=="),
    ("Set-Cookie: session=abcdef123456; Path=/", "abcdef123456"),
    ("-----BEGIN RSA PRIVATE KEY-----\nMIIEabc\n-----END RSA PRIVATE KEY-----", "MIIEabc"),
    ("-----BEGIN PRIVATE KEY----- MIIEcut", "MIIEcut"),
    ("{'Authorization': b'Basic dXNlcjpwYXNz'}", "dXNlcjpwYXNz"),
    ("[(b'Authorization', b'Basic dXNlcjpwYXNz')]", "dXNlcjpwYXNz"),
    (r'{"body": "{\"authorization\": \"Basic dXNlcjpwYXNz\"}"}', "dXNlcjpwYXNz"),
    ("proxy header: Basic dXNlcjpodW50ZXIyLWFiYw==", "dXNlcjpodW50ZXIyLWFiYw"),
    ("Credential=x/aws4_request, SignedHeaders=host, Signature=" + "0a1b2c3d" * 8, "0a1b2c3d"),
    ("postgres://train:p@ss@db.example/runs", "ss@"),
    ("amqp://train:pa/ss#w0rd@mq.example:5672/v", "ss#w0rd"),
    ("mongodb+srv://train:hunter2-x@c0.example.net/db", "hunter2-x"),
    ("next=https%3A%2F%2Fme%3Ahunter2-x%40example.com%2Fa", "hunter2-x"),
    ("next=https%3A%2F%2Fb.example%2Fc%3Fsv%3D1%26sig%3DaBcD1234567890%26se%3D2", "aBcD1234567890"),
    (r"{\"url\":\"https://b.example/c?sv=1\u0026sig=aBcD1234\u0026se=2\"}", "aBcD1234"),
    (r'args={"config": "{\"password\": \"hunt,er 2\"}"}', "er 2"),
    ("Server=db;Pwd=ab,cd;Timeout=3", "cd"),
    (f"keys: AKIAIOSFODNN7EXAMPLE / {KEY}", KEY),
    ("export DB_PASS=hunter2x", "hunter2x"),
    ("environ({'REDISCLI_AUTH': 'hunter2x', 'RANK': '0'})", "hunter2x"),
    ("train.py --hf_token abcdef12 --x", "abcdef12"),
    ("train.py --token=abcdef12 --x", "abcdef12"),
    ("mysql -h db -u me -phunter2x runs", "hunter2x"),
    ("docker login -u me -p hunter2x registry.example", "hunter2x"),
    ("redis-cli -h cache -a hunter2x ping", "hunter2x"),
    ("curl -u me:hunter2x https://example.com", "hunter2x"),
    ("tried the password 'hunter2x' for me", "hunter2x"),
    ("machine api.wandb.ai login user password hunter2x", "hunter2x"),
    ("accessToken: hunter2x", "hunter2x"),
    (
        "url64=cG9zdGdyZXM6Ly90cmFpbjpodW50ZXIyLXhAZGIuZXhhbXBsZS9ydW5z ok",
        "cG9zdGdyZXM6Ly90cmFpbjpo",
    ),
    ("refresh 1//0gAbCdEfGhIjKlMnOpQrStUvWx done", "gAbCdEfGhIjKlMnOpQrStUvWx"),
    (
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\nlQdGBGabc\n-----END PGP PRIVATE KEY BLOCK-----",
        "lQdGB",
    ),
]

HARMLESS = [
    "tokens: 4096, tokens_per_second=181234.5 max_tokens=8192",
    "pad_token='<|endoftext|>' eos_token_id=128001 bos_token: '<s>'",
    "rank=3 key=value store_key 'default_pg/0//cpu//0'",
    "error: password authentication failed for user postgres",
    "secretName: nccl-env configmap",
    "tcp://10.0.0.1:29500 s3://bucket/path https://example.com:8443/x?rank=3",
    "ncclUniqueId via store->get('0') key: default_pg/0//cuda//0",
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=88214, OpType=ALLREDUCE)",
    "monkey: banana, author=joe, unauthorized: no",
    "mkdir -p /ckpt; docker run -p 8080:80 image; torchrun -p 29500",
    "forward_pass=12.5 backward pass: 0.4 PAD_TOKEN=<pad> --pad-token <pad> --eos_token=</s>",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL in /usr/local/lib/python3/dist/torch/nn/modules/module",
    "basic settings: Basic_Block 3, sig=(int, int)",
    "NVRM: Xid (PCI:0000:4e:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
]


@pytest.mark.parametrize(("line", "secret"), SECRETS)
def test_secret_is_hidden(line: str, secret: str) -> None:
    """No part of the secret is left, and the reader sees that something was there."""
    shown = redact(line)
    assert secret not in shown
    assert HIDDEN in shown


@pytest.mark.parametrize(("line", "secret"), SECRETS)
def test_secret_is_hidden_in_the_middle_of_a_log_line(line: str, secret: str) -> None:
    """What stands around the secret stays readable."""
    shown = redact(f"2026-03-11T03:41:07Z [rank3] {line} step 12")
    assert secret not in shown
    assert shown.startswith("2026-03-11T03:41:07Z [rank3]")


@pytest.mark.parametrize("line", HARMLESS)
def test_words_of_training_logs_stay(line: str) -> None:
    """A report that hides numbers and names is of no use."""
    assert line == redact(line)


def test_hiding_twice_changes_nothing() -> None:
    """What is hidden once is not hidden again."""
    for line, _ in SECRETS:
        assert redact(line) == redact(redact(line))


def test_hidden_kinds_are_told() -> None:
    """The list of what was hidden names each kind."""
    told = redact_and_tell("AKIAIOSFODNN7EXAMPLE and https://me:hunter2@example.com")
    assert set(told.hidden) == {"AWS access key id", "password in a URL"}


@pytest.mark.parametrize(
    "text",
    ["token=" * 20_000, "eyJ" * 50_000, "://" + "a" * 100_000, "authorization:" * 3_000,
     "-----BEGIN PRIVATE KEY-----" * 1_000, "x-" * 50_000 + "token", "a_" * 50_000 + "secret="],
)  # fmt: skip
def test_hostile_text_takes_no_time(text: str) -> None:
    """No pattern backtracks without bound."""
    start = time.process_time()
    redact(text)
    assert time.process_time() - start < 3


def test_line_of_a_private_key_without_its_frame() -> None:
    """The last line that a rank wrote is shown alone: BEGIN stood lines above it."""
    body = "MIIEpAIBAAKCAQEA0Z3VS5JJcds3xfnygeDZKZWu7rWbRYmLhGTeYpmAnWgYBqQs"
    assert redact(f"2026-03-11T03:42:00Z [rank1]: {body}") == (
        "2026-03-11T03:42:00Z [rank1]: [hidden]"
    )
    digest = f"sha256 {'0a1b2c3d' * 8}"
    path = "/mnt/nfs/Checkpoints/run7/iteration48000/model/weights/Layer12/x1"
    assert [redact(digest), redact(path)] == [digest, path]
