"""The settings file `gpufleet/config.toml`: a table per context, so that a tired person types nothing but the job.

    [contexts."prod"]
    prometheus = "https://metrics.example/prometheus"       # or "svc:monitoring/prometheus-k8s:9090"
    matchers = 'cluster="prod-a"'                           # added to every metrics query
    log_store = "loki+https://logs.example"                 # or "victorialogs+http://..."
    log_store_fields = { pod = "kubernetes.pod_name" }
    dumps = "s3://traces/nccl_trace_rank_"
    owner = "ml-platform"
    tenant = "ml"                                           # X-Scope-OrgID
    headers = { "X-Team" = "ml" }
    bearer_token_file = "~/.metrics-token"                  # read again for each request
    token_command = ["gcloud", "auth", "print-access-token"]
    ca_file = "ca.pem"
    client_cert = ["me.pem", "me.key"]                      # or one file that holds both
    checkpoint_interval = "30m"                             # the numbers of job.json
    watchdog_timeout = "10m"
    node_failures_per_day = 0.004                           # of a healthy node: the test of repeat offenders
    history = "/mnt/team/gpufleet-history"                  # past incidents, where a team shares them

The log store is asked with the same credentials, unless `log_store_access = { ... }` holds others. Paths
are relative to the file. Flag over environment over file; `choose` says which of them won.
"""

from __future__ import annotations

import difflib
import math
import os
import re
import shlex
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from gpufleet_cli.errors import UsageError
from gpufleet_cli.plain_text import visible
from gpufleet_cli.settings import parse_duration

Value = Literal["prometheus", "log_store", "dumps"]

ENVIRONMENT: Mapping[Value, str] = {
    "prometheus": "GPUFLEET_PROMETHEUS",
    "log_store": "GPUFLEET_LOG_STORE",
    "dumps": "GPUFLEET_DUMPS",
}
FLAGS: Mapping[Value, str] = {
    "prometheus": "--prometheus",
    "log_store": "--log-store",
    "dumps": "--dumps",
}
STORE_FIELDS = ("pod", "namespace", "container", "node")
_DURATIONS = (
    "checkpoint_interval",
    "step",
    "watchdog_timeout",
    "restart",
)
_SIZES = ("world_size", "gpus_per_node")
_ACCESS = (
    "headers", "bearer_token_file", "token_command", "ca_file", "client_cert", "tenant",
)  # fmt: skip
_TEXTS = ("prometheus", "log_store", "dumps", "owner", "matchers")
_LIMIT = 1 << 20
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_HIDDEN_HEADERS = frozenset({"host", "content-length", "transfer-encoding", "connection"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How a service lets us in. Paths are absolute. The token itself stands in no settings.

    `token_command` is run without a shell; its first line of output is the token. `client_cert` is
    (certificate, key); the key is None where one file holds both.
    """

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    bearer_token_file: Path | None = None
    token_command: tuple[str, ...] | None = None
    ca_file: Path | None = None
    client_cert: tuple[Path, Path | None] | None = None
    tenant: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextSettings:
    """One table of the file. None means not set. Durations are seconds."""

    prometheus: str | None = None
    log_store: str | None = None
    dumps: str | None = None
    owner: str | None = None
    matchers: str | None = None
    access: Access = Access()
    log_store_access: Access | None = None
    log_store_fields: Mapping[str, str] = field(default_factory=dict)
    world_size: int | None = None
    gpus_per_node: int | None = None
    checkpoint_interval_s: float | None = None
    step_s: float | None = None
    watchdog_timeout_s: float | None = None
    restart_s: float | None = None
    node_failures_per_day: float | None = None
    history: Path | None = None

    @property
    def store_access(self) -> Access:
        """How the log store lets us in: its own access, else that of the metrics."""
        return self.access if self.log_store_access is None else self.log_store_access


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsFile:
    """The file as read. `path` is where it is, or would be."""

    path: Path
    contexts: Mapping[str, ContextSettings]

    def of(self, context: str | None) -> ContextSettings:
        """The settings of a context; empty ones where the file has none for it."""
        return self.contexts.get(context or "", ContextSettings())


class Chosen(NamedTuple):
    """A setting and who set it, as the report says it: `--prometheus`, a variable's name or the file's path."""

    value: str
    source: str


def config_path() -> Path:
    """`gpufleet/config.toml` in the user's configuration folder, as the platform and XDG name it."""
    stated = os.environ.get("XDG_CONFIG_HOME")
    if stated and Path(stated).is_absolute():
        return Path(stated) / "gpufleet" / "config.toml"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "gpufleet" / "config.toml"
    return Path.home() / ".config" / "gpufleet" / "config.toml"


def load(path: Path | None = None) -> SettingsFile:
    """The settings file, empty where there is none. UsageError in one line for one that is wrong."""
    file = config_path() if path is None else path
    try:
        if not file.exists():
            return SettingsFile(path=file, contexts={})
        if file.stat().st_size > _LIMIT:
            raise UsageError(f"{file}: larger than {_LIMIT >> 20} MiB: not a settings file")
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as exc:
        raise UsageError(f"{file}: cannot be read: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise UsageError(f"{file}: is no UTF-8 text") from exc
    except (tomllib.TOMLDecodeError, RecursionError) as exc:
        raise UsageError(f"{file}: {visible(str(exc)) or 'nested too deep'}") from exc
    return SettingsFile(path=file, contexts=_contexts(document, file))


def choose(
    name: Value, *, flag: str | None, file: SettingsFile, context: str | None
) -> Chosen | None:
    """Flag over environment over file; None where nobody set it. An empty variable sets nothing."""
    if flag:
        return Chosen(flag, FLAGS[name])
    variable = ENVIRONMENT[name]
    if stated := os.environ.get(variable):
        return Chosen(stated, variable)
    settings = file.of(context)
    match name:
        case "prometheus":
            value = settings.prometheus
        case "log_store":
            value = settings.log_store
        case "dumps":
            value = settings.dumps
    return None if value is None else Chosen(value, str(file.path))


MOST_A_DAY = 24
"""Faults within an hour are one."""
NO_RATE = f"no number of failures a day above 0 and up to {MOST_A_DAY}"


def is_rate(value: float) -> bool:
    """Whether a node can fail so often in a day."""
    return math.isfinite(value) and 0 < value <= MOST_A_DAY


# --- Reading the document -------------------------------------------------------------------------


def _contexts(document: Mapping[str, object], file: Path) -> dict[str, ContextSettings]:
    for key in document:
        if key != "contexts":
            raise _unknown(file, "", key, ("contexts",))
    tables = document.get("contexts", {})
    if not isinstance(tables, dict):
        raise UsageError(f'{file}: contexts is no table; write [contexts."NAME"]')
    found = {}
    for name, table in tables.items():
        place = f"contexts.{visible(name)}"
        if not isinstance(table, dict):
            raise UsageError(f'{file}: {place} is no table; write [contexts."NAME"]')
        found[name] = _Table(file, place, table).settings()
    return found


class _Table:
    """One table with its place in the file, for messages."""

    def __init__(self, file: Path, place: str, table: Mapping[str, object]) -> None:
        self.file = file
        self.place = place
        self.table = table

    def settings(self) -> ContextSettings:
        known = (
            *(*_TEXTS, *_ACCESS, *_SIZES),
            *("log_store_fields", "log_store_access", "node_failures_per_day", "history"),
        )
        self._only((*known, *(name for base in _DURATIONS for name in (base, f"{base}_seconds"))))
        texts = {name: self._text(name) for name in _TEXTS}
        return ContextSettings(
            **texts,
            access=self.access(),
            log_store_access=self._inner_access(),
            log_store_fields=self._store_fields(),
            world_size=self._size("world_size"),
            gpus_per_node=self._size("gpus_per_node"),
            checkpoint_interval_s=self._duration("checkpoint_interval"),
            step_s=self._duration("step"),
            watchdog_timeout_s=self._duration("watchdog_timeout"),
            restart_s=self._duration("restart"),
            node_failures_per_day=self._rate("node_failures_per_day"),
            history=self._path("history"),
        )

    def access(self) -> Access:
        if "bearer_token_file" in self.table and "token_command" in self.table:
            raise self._error("bearer_token_file", "stands beside token_command; keep one of them")
        return Access(
            headers=self._headers(),
            bearer_token_file=self._path("bearer_token_file"),
            token_command=self._command(),
            ca_file=self._path("ca_file"),
            client_cert=self._client_cert(),
            tenant=self._text("tenant"),
        )

    def _inner_access(self) -> Access | None:
        table = self._mapping("log_store_access")
        if table is None:
            return None
        inner = _Table(self.file, f"{self.place}.log_store_access", table)
        inner._only(_ACCESS)
        return inner.access()

    def _only(self, known: tuple[str, ...]) -> None:
        for key in self.table:
            if key not in known:
                raise _unknown(self.file, f"{self.place}.", key, known)

    def _error(self, key: str, why: str) -> UsageError:
        return UsageError(f"{self.file}: {self.place}.{key} {why}")

    def _text(self, key: str) -> str | None:
        value = self.table.get(key)
        if value is None:
            return None
        if not isinstance(value, str) or not value.strip():
            raise self._error(key, "is no text")
        if not value.isprintable():
            raise self._error(key, "holds characters that cannot be printed")
        return value.strip()

    def _mapping(self, key: str) -> Mapping[str, object] | None:
        value = self.table.get(key)
        if value is None or isinstance(value, dict):
            return value
        raise self._error(key, "is no table")

    def _texts(self, key: str) -> dict[str, str]:
        found = {}
        for name, value in (self._mapping(key) or {}).items():
            if not isinstance(value, str):
                raise self._error(f"{key}.{visible(name)}", "is no text")
            found[name] = value
        return found

    def _headers(self) -> dict[str, str]:
        found = self._texts("headers")
        for name, value in found.items():
            if not _HEADER_NAME.fullmatch(name) or name.lower() in _HIDDEN_HEADERS:
                raise self._error(f"headers.{visible(name)}", "is no header that can be set")
            if not value.isascii() or not value.isprintable():
                raise self._error(f"headers.{name}", "has a value that no header can carry")
        return found

    def _store_fields(self) -> dict[str, str]:
        found = self._texts("log_store_fields")
        for name in found:
            if name not in STORE_FIELDS:
                raise _unknown(self.file, f"{self.place}.log_store_fields.", name, STORE_FIELDS)
        return found

    def _path(self, key: str) -> Path | None:
        text = self._text(key)
        return None if text is None else self._resolved(key, text)

    def _resolved(self, key: str, text: str) -> Path:
        try:
            return self.file.parent / Path(text).expanduser()
        except RuntimeError as exc:
            raise self._error(key, "begins with ~ of a user that is not known") from exc

    def _command(self) -> tuple[str, ...] | None:
        value = self.table.get("token_command")
        if value is None:
            return None
        words = value if isinstance(value, list) else [value]
        if not words or not all(isinstance(word, str) and word for word in words):
            raise self._error("token_command", 'is no list of words, such as ["gcloud", "auth"]')
        if isinstance(value, str):
            try:
                words = shlex.split(value)
            except ValueError as exc:
                raise self._error("token_command", f"cannot be split into words: {exc}") from exc
        return tuple(words)

    def _client_cert(self) -> tuple[Path, Path | None] | None:
        value = self.table.get("client_cert")
        if value is None:
            return None
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, list) or not 1 <= len(names) <= 2:
            raise self._error("client_cert", 'is neither "FILE" nor ["CERTIFICATE", "KEY"]')
        if not all(isinstance(name, str) and name for name in names):
            raise self._error("client_cert", 'is neither "FILE" nor ["CERTIFICATE", "KEY"]')
        files = [self._resolved("client_cert", name) for name in names]
        return files[0], files[1] if len(files) == 2 else None

    def _size(self, key: str) -> int | None:
        value = self.table.get(key)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= 10**7:
            raise self._error(key, "is no whole number above 0")
        return value

    def _rate(self, key: str) -> float | None:
        value = self.table.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not is_rate(value):
            raise self._error(key, f"is {NO_RATE}")
        return float(value)

    def _duration(self, key: str) -> float | None:
        """Seconds under `KEY_seconds`, as job.json has it, or a duration under `KEY`."""
        seconds, text = self.table.get(f"{key}_seconds"), self.table.get(key)
        if seconds is not None and text is not None:
            raise self._error(key, f"stands beside {key}_seconds; keep one of them")
        name = key if seconds is None else f"{key}_seconds"
        value = text if seconds is None else seconds
        if value is None:
            return None
        if isinstance(value, str) and seconds is None:
            try:
                value = parse_duration(value, name)
            except UsageError as exc:
                raise self._error(name, f"is no duration; {exc.hint}") from exc
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._error(name, "is no number of seconds")
        if not math.isfinite(value) or value <= 0:
            raise self._error(name, "is no time above 0")
        return float(value)


def _unknown(file: Path, place: str, key: str, known: tuple[str, ...]) -> UsageError:
    near = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
    return UsageError(f"{file}: {place}{visible(key)} is not known", hint=hint)
