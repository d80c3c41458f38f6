"""Secrets hidden as evidence is written: in logs by line, in Kubernetes objects by place.

Of environment values only known settings stay (`TORCH_*`, `NCCL_*`, `PET_*`, ranks and sizes); what a
value is cannot be told from its look. Everything else goes through `redact`, JSON inside strings
(annotations) as the objects that it is.

>>> hide_in_log(b"step 1\\n2026-01-01T00:00:00Z Authorization: Bearer abc.def-12345\\n")[0]
b'step 1\\n2026-01-01T00:00:00Z Authorization: Bearer [hidden]\\n'
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from gpufleet_cli.redact import HIDDEN, PATTERNS, redact_and_tell

_KNOWN_ENV = re.compile(
    r"(?:TORCH|NCCL|PET|TORCHELASTIC|LWS|OMPI_COMM|PMI|FI|UCX|GLOO|RCCL|CUDA|NVIDIA|OMP|RAY_ADDRESS|FLIGHT_RECORDER)_\w{1,80}"
    r"|(?:LOCAL_|GROUP_|ROLE_|NODE_|GLOBAL_)?(?:RANK|WORLD_SIZE)|NODE_?RANK|NNODES|NUM_NODES|NPROC_PER_NODE"
    r"|NUM_PROCESSES|MASTER_(?:ADDR|PORT)|JOB_COMPLETION_INDEX|V[CK]_TASK_INDEX|SLURM_(?:JOB_?ID|PROCID|NODEID|LOCALID|NTASKS|NNODES|JOB_NUM_NODES)"
    r"|PYTHON(?:UNBUFFERED|FAULTHANDLER)|RENDEZVOUS_(?:ID|BACKEND|ENDPOINT)|HOSTNAME|POD_NAME|POD_NAMESPACE|NODE_NAME|POD_IP"
)
_SECRET_KEY = re.compile(
    r"(?:[\w.-]{0,64}?(?:password|passwd|passphrase|secret[_-]?key|secret[_-]?access[_-]?key|client[_-]?secret"
    r"|api[_-]?key|access[_-]?key|private[_-]?key|account[_-]?key|[_-]token|authorization|credentials?)|secret|token|pwd)",
    re.IGNORECASE,
)
_SECRET_OPTION = re.compile(
    r"--?(?:[\w-]{0,40}[-_])?(?:password|passwd|passphrase|secret|key|token|credentials?|auth|pwd)",
    re.IGNORECASE,
)
_PEM = next(pattern for pattern in PATTERNS if pattern.name == "private key")
_ENV_WHY = "value of an environment variable"
_LEAST_CHARS = 8
_MOST_DEPTH = 60


class Hidden(NamedTuple):
    """One place whose text is not in the bundle, and what it looked like."""

    where: str
    what: str


# --- Logs -----------------------------------------------------------------------------------------

# Words of which one is in every line that a pattern of `redact` can match; in lower case, digits as 0.
_WORDS = tuple(
    word.encode()
    for word in (
        "private key", "bearer", "cookie", "hooks.slack.com", "webhook", "akia", "asia", "abia", "acca",
        "hf_", "api_org_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "gldt-",
        "glrt-", "glptt-", "glft-", "glsoat-", "glcbt-", "glc_", "glsa_", "xox", "xapp-", "sk_live",
        "sk_test", "rk_live", "rk_test", "lsv0_", "npm_", "pypi-", "ya00.", "aiza", "dop_v0_", "sg.",
        "dapi", "hvs.", "hvb.", "sha000~", "nvapi-", "wandb", "tskey-", "eyj", "passw", "passp",
        "secret", "api_key", "api-key", "apikey", "access_key", "access-key", "accesskey", "private_key",
        "private-key", "privatekey", "account_key", "account-key", "accountkey", "client-key", "pwd",
        "credential", "authorization", "sig=", "signature=", "key=", "?code=", "&code=",
    )
)  # fmt: skip
# Words that training logs are full of, and what they are there: `tokens/s`, `author`, `task-3`.
_COMMON = ((b"token", (b"tokens",)), (b"auth", (b"autho",)), (b"sk-", (b"ask-", b"isk-", b"usk-")))
_LONG = b"x" * 62
_SHAPE = bytes(
    48 if c in b"123456789" else ord(chr(c).lower()) if c < 128 else c for c in range(256)
)
_RUN = bytes(120 if c < 128 and (chr(c).isalnum() or chr(c) in "+/") else 32 for c in range(256))
_MOST_SHAPES = 200_000
_shapes: dict[bytes, bool] = {}


def hide_in_log(data: bytes) -> tuple[bytes, list[Hidden]]:
    """The log without its secrets, and a line number for each. Only lines whose shape holds a word
    that tells are looked at closely: all patterns cost half a second a megabyte."""
    hidden: list[Hidden] = []
    data = _without_keys(data, hidden)
    shapes = data.translate(_SHAPE).split(b"\n")
    suspects = [index for index, shape in enumerate(shapes) if _is_suspect(shape)]
    if not suspects:
        return data, hidden
    lines = data.split(b"\n")
    for index in suspects:
        text, kinds = redact_and_tell(lines[index].decode("utf-8", "surrogateescape"))
        if kinds:
            lines[index] = text.encode("utf-8", "surrogateescape")
            hidden.extend(Hidden(f"line {index + 1}", kind) for kind in kinds)
    return b"\n".join(lines), hidden


def _is_suspect(shape: bytes) -> bool:
    known = _shapes.get(shape)
    if known is None:
        known = _tells(shape)
        if len(shape) <= 2048 and len(_shapes) < _MOST_SHAPES:
            _shapes[shape] = known
    return known


def _tells(shape: bytes) -> bool:
    if any(word in shape for word in _WORDS):
        return True
    for word, common in _COMMON:
        if word in shape and shape.count(word) > sum(shape.count(other) for other in common):
            return True
    if b"://" in shape and b"@" in shape:
        return True
    return _LONG in shape.translate(_RUN)


def _without_keys(data: bytes, hidden: list[Hidden]) -> bytes:
    """Private keys that stand over several lines, each with its own stamp."""
    if b"PRIVATE KEY-----" not in data:
        return data
    text = data.decode("utf-8", "surrogateescape")

    def hide(match: re.Match[str]) -> str:
        line = text.count("\n", 0, match.start()) + 1
        hidden.append(Hidden(f"line {line}", _PEM.name))
        kept = match.group()
        start, end = match.start("secret") - match.start(), match.end("secret") - match.start()
        lines = "\n" * match["secret"].count("\n")  # so that numbers of later lines stay true
        return f"{kept[:start]}{HIDDEN}{lines}{kept[end:]}"

    return _PEM.regex.sub(hide, text).encode("utf-8", "surrogateescape")


# --- Objects --------------------------------------------------------------------------------------


class Hider:
    """Walks objects; remembers texts that it has seen, since the pods of a gang are alike."""

    def __init__(self) -> None:
        self.hidden: list[Hidden] = []
        self._seen: dict[str, tuple[str, tuple[str, ...]]] = {}

    def cleaned(self, value: object, where: str) -> object:
        """The value with its secrets hidden; dicts and lists are new ones."""
        return self._walk(value, where, 0)

    def _walk(self, value: object, where: str, depth: int) -> object:
        if isinstance(value, str):
            return self._text(value, where, depth)
        if depth > _MOST_DEPTH:
            return None
        if isinstance(value, dict):
            return {
                key: self._entry(key, one, f"{where}.{key}", depth) for key, one in value.items()
            }
        if isinstance(value, list):
            return self._list(value, where, depth)
        return value

    def _entry(self, key: object, value: object, where: str, depth: int) -> object:
        if key == "managedFields":
            return value  # names of fields, no values
        if key == "env" and isinstance(value, list):
            return [self._variable(one, where, depth) for one in value]
        if key == "env" and isinstance(value, dict):
            return {
                name: self._value(str(name), one, f"{where}.{name}", depth)
                for name, one in value.items()
            }
        if isinstance(value, str) and len(value) >= 4 and _SECRET_KEY.fullmatch(str(key)):
            return self._hide(where, f"value of {key}")
        return self._walk(value, where, depth + 1)

    def _variable(self, entry: object, where: str, depth: int) -> object:
        if not isinstance(entry, dict):
            return self._walk(entry, where, depth + 1)
        name = str(entry.get("name"))
        return {
            key: self._value(name, one, f"{where}.{name}", depth)
            if key == "value"
            else self._walk(one, f"{where}.{name}.{key}", depth + 1)
            for key, one in entry.items()
        }

    def _value(self, name: str, value: object, where: str, depth: int) -> object:
        if not isinstance(value, str) or not value:
            return value
        if _KNOWN_ENV.fullmatch(name) and not _SECRET_KEY.fullmatch(name):
            return self._text(value, where, depth)
        return self._hide(where, _ENV_WHY)

    def _list(self, values: list[object], where: str, depth: int) -> list[object]:
        """Also arguments: `--api-key` hides what stands behind it."""
        found: list[object] = []
        is_secret = False
        for index, one in enumerate(values):
            place = f"{where}[{index}]"
            if is_secret and isinstance(one, str) and not one.startswith("--"):
                found.append(self._hide(place, "argument of an option that takes a secret"))
                is_secret = False
                continue
            found.append(self._walk(one, place, depth + 1))
            is_secret = isinstance(one, str) and _SECRET_OPTION.fullmatch(one) is not None
        return found

    def _text(self, text: str, where: str, depth: int) -> str:
        if len(text) < _LEAST_CHARS:
            return text
        if text[0] in "{[" and text.rstrip()[-1] in "}]" and depth <= _MOST_DEPTH:
            inner = _document(text)
            if inner is not None:
                before = len(self.hidden)
                cleaned = self._walk(inner, where, depth + 1)
                if len(self.hidden) == before:
                    return text
                return json.dumps(cleaned, separators=(",", ":"), ensure_ascii=False)
        known = self._seen.get(text)
        if known is None:
            known = self._seen[text] = redact_and_tell(text)
        self.hidden.extend(Hidden(where, kind) for kind in known[1])
        return known[0]

    def _hide(self, where: str, what: str) -> str:
        self.hidden.append(Hidden(where, what))
        return HIDDEN


def _document(text: str) -> dict[str, object] | list[object] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict | list) else None
