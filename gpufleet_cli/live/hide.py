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
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from gpufleet_cli.live import hide_keys, hide_yaml_env, known_secrets
from gpufleet_cli.live.known_secrets import KnownSecrets
from gpufleet_cli.redact import HIDDEN, redact_and_tell, redact_encoded

_KNOWN_ENV = re.compile(
    r"(?:TORCH|NCCL|PET|TORCHELASTIC|LWS|OMPI_COMM|PMI|FI|UCX|GLOO|RCCL|CUDA|NVIDIA|OMP|RAY_ADDRESS|FLIGHT_RECORDER)_\w{1,80}"
    r"|(?:LOCAL_|GROUP_|ROLE_|NODE_|GLOBAL_)?(?:RANK|WORLD_SIZE)|NODE_?RANK|NNODES|NUM_NODES|NPROC_PER_NODE"
    r"|NUM_PROCESSES|MASTER_(?:ADDR|PORT)|JOB_COMPLETION_INDEX|V[CK]_TASK_INDEX|SLURM_(?:JOB_?ID|PROCID|NODEID|LOCALID|NTASKS|NNODES|JOB_NUM_NODES)"
    r"|(?:WANDB|MLFLOW|NEPTUNE|SWANLAB)_RUN_ID|WANDB_RUN_GROUP|CLEARML_TASK_ID|AIM_RUN_HASH|DVC_EXP_NAME|GIT_(?:COMMIT|SHA)|COMMIT_SHA"
    r"|PYTHON(?:UNBUFFERED|FAULTHANDLER)|RENDEZVOUS_(?:ID|BACKEND|ENDPOINT)|HOSTNAME|POD_NAME|POD_NAMESPACE|NODE_NAME|POD_IP"
)
_SECRET_KEY = re.compile(
    r"(?:[\w./-]{0,253}?(?:password|passwd|passphrase|secret[_-]?key|secret[_-]?access[_-]?key|client[_-]?secret"
    r"|api[_-]?key|access[_-]?key|private[_-]?key|account[_-]?key|connection[_-]?string|[_-]token|authorization|credentials?"
    r"|(?:auth|access|refresh|session|id|bearer|hub|api|sas|bot)token|[_/-](?:dsn|jwt|secret|auth))"
    r"|secret|token|pwd|auth|dsn|jwt|cookie)",
    re.IGNORECASE,
)
# Words of a variable's name by which its value is looked for elsewhere too.
_SECRET_WORD = re.compile(
    r"(?:^|_)(?:PASS|PASSWD|PASSWORD|SECRET|TOKEN|KEY|CREDENTIALS?|AUTH|PWD|LOGIN|DSN|PAT)(?:_|$)",
    re.IGNORECASE,
)
_SECRET_OPTION = re.compile(
    r"--?(?:[\w-]{0,40}[-_])?(?:password|passwd|passphrase|pass|secret|key|token|credentials?|auth|pwd)",
    re.IGNORECASE,
)
# `-p 29500` is a port, `mkdir -p /ckpt` a folder; `-u me:secret` has a colon.
_SHORT_OPTIONS = {"-p": re.compile(r"(?!\d{1,5}$|[-/.~$]).{1,512}"), "-u": re.compile(r"[^/:]+:.+")}
_SECRET_ARGUMENT = "argument of an option that takes a secret"
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
        "basic ", "%0a%0f%0f", "%0d", "_auth", "_pass", "-pass", "_key", "_dsn", "_pat", "_login", "0//0",
        "gocspx-", "dckr_pat_", "q~", "age-secret", "redis-cli", "mysql", "mariadb", "mongo", "cqlsh",
        "sqlcmd", "sshpass", "login ", "-u ", "-u\t", "-u=", "-user", "connection_string", "connection-string",
        "connectionstring",
    )
)  # fmt: skip
# Words that training logs are full of, and what they are there: `tokens/s`, `author`, `task-3`.
_COMMON = ((b"token", (b"tokens",)), (b"auth", (b"autho",)), (b"sk-", (b"ask-", b"isk-", b"usk-")))
_LONG = b"x" * 62
_MEDIUM = b"x" * 20
_SHAPE = bytes(
    48 if c in b"123456789" else ord(chr(c).lower()) if c < 128 else c for c in range(256)
)
_RUN = bytes(120 if c < 128 and (chr(c).isalnum() or chr(c) in "+/") else 32 for c in range(256))
_WORD_RUN = bytes(120 if c < 128 and (chr(c).isalnum() or c == 43) else 32 for c in range(256))
_MOST_SHAPES = 200_000
_NOTHING, _ENCODED, _ALL = 0, 1, 2
_shapes: dict[bytes, int] = {}


def hide_in_log(data: bytes, known: KnownSecrets | None = None) -> tuple[bytes, list[Hidden]]:
    """The log without its secrets, and a line number for each. Only lines whose shape holds a word
    that tells are looked at closely: all patterns cost half a second a megabyte."""
    hidden: list[Hidden] = []
    data, at = hide_keys.without_keys(data)
    hidden += [Hidden(f"line {line}", hide_keys.WHAT) for line in at]
    if known:
        data, at = known.in_bytes(data)
        hidden += [Hidden(f"line {line}", known_secrets.WHAT) for line in at]
    shapes = data.translate(_SHAPE).split(b"\n")
    depths = {shape: depth for shape in set(shapes) if (depth := _depth(shape))}
    if not depths:
        return data, hidden
    lines = data.split(b"\n")
    for index, shape in enumerate(shapes):
        depth = depths.get(shape, _NOTHING)
        if depth == _NOTHING:
            continue
        raw = lines[index] if not known else known.in_line(lines[index])
        if raw is not lines[index]:
            hidden.append(Hidden(f"line {index + 1}", f"{known_secrets.WHAT} in base64"))
        look = redact_and_tell if depth == _ALL else redact_encoded
        text, kinds = look(raw.decode("utf-8", "surrogateescape"))
        lines[index] = text.encode("utf-8", "surrogateescape") if kinds else raw
        hidden.extend(Hidden(f"line {index + 1}", kind) for kind in kinds)
    return b"\n".join(lines), hidden


def _depth(shape: bytes) -> int:
    """How closely a line of this shape is looked at."""
    known = _shapes.get(shape)
    if known is None:
        known = _tells(shape)
        if len(shape) <= 2048 and len(_shapes) < _MOST_SHAPES:
            _shapes[shape] = known
    return known


def _tells(shape: bytes) -> int:
    if any(word in shape for word in _WORDS):
        return _ALL
    for word, common in _COMMON:
        if word in shape and shape.count(word) > sum(shape.count(other) for other in common):
            return _ALL
    if (b"://" in shape and b"@" in shape) or _LONG in shape.translate(_RUN):
        return _ALL
    return _ENCODED if _MEDIUM in shape.translate(_WORD_RUN) else _NOTHING


# --- Objects --------------------------------------------------------------------------------------

_Place: TypeAlias = "str | tuple[_Place, object]"
"""Where a value stands, part by part from its end: nearly none is ever shown, so none is written out before."""


class Hider:
    """Walks objects; remembers texts that it has seen, since the pods of a gang are alike."""

    def __init__(self, known: KnownSecrets | None = None) -> None:
        self.hidden: list[Hidden] = []
        self.known = KnownSecrets() if known is None else known
        self._seen: dict[str, tuple[str, tuple[str, ...]]] = {}

    def cleaned(self, value: object, where: str) -> object:
        """The value with its secrets hidden; dicts and lists are new ones."""
        return self._walk(value, where, 0)

    def _walk(self, value: object, where: _Place, depth: int) -> object:
        if isinstance(value, str):
            return self._text(value, where, depth)
        if depth > _MOST_DEPTH:
            return None
        if isinstance(value, dict):
            if value.get("kind") == "Secret":
                return self._secret(value, where)
            if _is_named_secret(value):
                return {**value, "value": self._hide((where, "value"), "value of a secret name")}
            return {key: self._entry(key, one, (where, key), depth) for key, one in value.items()}
        if isinstance(value, list):
            return self._list(value, where, depth)
        return value

    def _entry(self, key: object, value: object, where: _Place, depth: int) -> object:
        if key == "managedFields":
            return value  # names of fields, no values
        if key == "env" and isinstance(value, list):
            return [self._variable(one, where, depth) for one in value]
        if key == "runtimeEnvYAML" and isinstance(value, str):
            value, names = hide_yaml_env.without_values(value, _may_stay)
            self.hidden.extend(
                Hidden(_shown(((where, "env_vars"), name)), _ENV_WHY) for name in names
            )
        if key in ("env", "env_vars") and isinstance(value, dict):
            return {
                name: self._value(str(name), one, (where, name), depth)
                for name, one in value.items()
            }
        if _is_secret(str(key), value):
            assert isinstance(value, str)
            self.known.learn(value, is_named=True)
            return self._hide(where, f"value of {key}")
        return self._walk(value, where, depth + 1)

    def _secret(self, value: dict[object, object], where: _Place) -> object:
        """A Secret, as an annotation may hold one: names stay."""
        return {
            key: {name: self._hide(((where, key), name), "data of a Secret") for name in one}
            if key in ("data", "stringData") and isinstance(one, dict)
            else self._walk(one, (where, key), 1)
            for key, one in value.items()
        }

    def _variable(self, entry: object, where: _Place, depth: int) -> object:
        if not isinstance(entry, dict):
            return self._walk(entry, where, depth + 1)
        name = str(entry.get("name"))
        return {
            key: self._value(name, one, (where, name), depth)
            if key == "value"
            else self._walk(one, ((where, name), key), depth + 1)
            for key, one in entry.items()
        }

    def _value(self, name: str, value: object, where: _Place, depth: int) -> object:
        if not isinstance(value, str) or not value or value == HIDDEN:
            return value
        if _may_stay(name):
            return self._text(value, where, depth)
        is_named = _names_a_secret(name) or _SECRET_WORD.search(name) is not None
        self.known.learn(value, is_named=is_named)
        return self._hide(where, _ENV_WHY)

    def _list(self, values: list[object], where: _Place, depth: int) -> list[object]:
        """Also arguments: `--api-key` hides what stands behind it."""
        found: list[object] = []
        option = ""
        for index, one in enumerate(values):
            place = (where, index)
            if option and isinstance(one, str) and _is_secret_behind(option, one):
                self.known.learn(one.rpartition(":")[2] if option == "-u" else one, is_named=True)
                found.append(self._hide(place, _SECRET_ARGUMENT))
            else:
                found.append(self._walk(one, place, depth + 1))
            option = one if isinstance(one, str) else ""
        return found

    def _text(self, text: str, where: _Place, depth: int) -> str:
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
        done = self._seen.get(text)
        if done is None:
            done = self._seen[text] = self._redacted(text)
        if done[1]:
            self.hidden.extend(Hidden(_shown(where), kind) for kind in done[1])
        return done[0]

    def _redacted(self, text: str) -> tuple[str, tuple[str, ...]]:
        cleaned = self.known.in_text(text) if self.known else text
        told = () if cleaned is text else (known_secrets.WHAT,)
        shown, kinds = redact_and_tell(cleaned)
        return shown, (*told, *kinds)

    def _hide(self, where: _Place, what: str) -> str:
        self.hidden.append(Hidden(_shown(where), what))
        return HIDDEN


def _shown(place: _Place) -> str:
    """`items[3].spec.containers[0]`."""
    parts: list[str] = []
    while not isinstance(place, str):
        place, part = place
        parts.append(f"[{part}]" if isinstance(part, int) else f".{part}")
    return "".join((place, *reversed(parts)))


def _may_stay(name: str) -> bool:
    """Whether the value of this environment variable is evidence."""
    return _KNOWN_ENV.fullmatch(name) is not None and not _names_a_secret(name)


def _is_named_secret(value: dict[object, object]) -> bool:
    """`{"name": "Authorization", "value": ...}`: headers of a probe, parameters of a volume."""
    name = value.get("name", value.get("key"))
    told = value.get("value")
    return isinstance(name, str) and _is_secret(name, told)


def _is_secret(name: str, value: object) -> bool:
    if not isinstance(value, str) or len(value) < 4 or value == HIDDEN:
        return False
    return _names_a_secret(name)


@lru_cache(maxsize=4096)
def _names_a_secret(name: str) -> bool:
    """Objects of a cluster have few different keys, and this is asked for each of their texts."""
    return _SECRET_KEY.fullmatch(name) is not None


def _is_secret_behind(option: str, value: str) -> bool:
    if value == HIDDEN:
        return False
    short = _SHORT_OPTIONS.get(option)
    if short is not None:
        return short.fullmatch(value) is not None
    return not value.startswith("--") and _SECRET_OPTION.fullmatch(option) is not None


def _document(text: str) -> dict[str, object] | list[object] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict | list) else None
