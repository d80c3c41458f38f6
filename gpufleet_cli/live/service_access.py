"""How a metrics or log store lets us in: TLS, headers of tenants, Basic, and tokens that are fetched anew."""

from __future__ import annotations

import ssl
import subprocess
import threading
from base64 import b64encode
from collections.abc import Callable, Sequence
from urllib.parse import unquote, urlsplit

import gpufleet_cli
from gpufleet_cli.errors import SourceError
from gpufleet_cli.live.service_words import one_line
from gpufleet_cli.settings_file import Access

COMMAND_S = 30.0


def trust(access: Access, usual: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
    """The TLS settings: our CA instead of the usual ones, and who we are."""
    try:
        if access.ca_file is not None:
            context = ssl.create_default_context(cafile=str(access.ca_file))
        else:
            context = usual()
        if access.client_cert is not None:
            certificate, key = access.client_cert
            context.load_cert_chain(
                str(certificate), None if key is None else str(key), password=""
            )
    except OSError as exc:  # ssl.SSLError is one
        files = [access.ca_file, *(access.client_cert or ())]
        named = ", ".join(str(file) for file in files if file is not None) or "certificates"
        raise SourceError(f"{named}: cannot be used for TLS: {one_line(str(exc))}") from exc
    return context


def headers_of(access: Access, base: str) -> dict[str, str]:
    """What goes with each request but the token. Names of tenants: Mimir, Cortex and Loki; Thanos; VictoriaLogs.

    User and password of the URL `base` become Basic authentication.
    """
    own = {"Accept": "application/json", "User-Agent": f"gpufleet/{gpufleet_cli.__version__}"}
    if access.tenant is not None:
        own |= {"X-Scope-OrgID": access.tenant, "THANOS-TENANT": access.tenant}
        account, _, project = access.tenant.partition(":")
        if account.isdecimal() and (not project or project.isdecimal()):  # VictoriaLogs
            own |= {"AccountID": account, "ProjectID": project or "0"}
    parts = urlsplit(base)
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        own["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
    return own | dict(access.headers)


def secrets_of(access: Access, base: str) -> list[str]:
    """What a careless server could tell again in its answers: the URL's password, values of headers."""
    password = urlsplit(base).password
    return [*([unquote(password)] if password else []), *access.headers.values()]


class Tokens:
    """The bearer token of a file or a command."""

    def __init__(self, access: Access) -> None:
        self._file = access.bearer_token_file
        self._command = access.token_command
        self._lock = threading.Lock()
        self._token: str | None = None

    def header(self) -> dict[str, str]:
        """Authorization, or nothing where there is no token."""
        if self._file is not None:
            try:
                token = self._file.read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as exc:
                raise SourceError(f"bearer_token_file {self._file}: {_why(exc)}") from exc
            return _bearer(token, f"bearer_token_file {self._file}")
        if self._command is None:
            return {}
        with self._lock:
            if self._token is None:
                self._token = _output(self._command)
            return _bearer(self._token, f"token_command {self._command[0]}")

    def renew(self) -> bool:
        """Forget the token; whether another may be had."""
        with self._lock:
            had, self._token = self._token, None
        return had is not None or self._file is not None


def _bearer(token: str, whence: str) -> dict[str, str]:
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise SourceError(f"{whence}: gives no token of one word")
    return {"Authorization": f"Bearer {token}"}


def _output(command: Sequence[str]) -> str:
    try:
        run = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=COMMAND_S, check=False
        )
    except subprocess.TimeoutExpired as exc:
        raise SourceError(f"token_command {command[0]}: no token within {COMMAND_S:.0f} s") from exc
    except OSError as exc:
        raise SourceError(f"token_command {command[0]}: {_why(exc)}") from exc
    if run.returncode != 0:
        said = one_line(run.stderr.decode("utf-8", "replace"))
        raise SourceError(f"token_command {command[0]}: exit status {run.returncode}: {said}")
    return run.stdout.decode("utf-8", "replace").partition("\n")[0].strip()


def _why(exc: OSError | UnicodeDecodeError) -> str:
    return exc.strerror or "cannot be used" if isinstance(exc, OSError) else "is no text"
