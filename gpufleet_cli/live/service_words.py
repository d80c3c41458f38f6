"""What a metrics or log store answered when it was no success, in one line that is safe to show."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from urllib.parse import urlsplit, urlunsplit

import msgspec

from gpufleet_cli.errors import SourceError
from gpufleet_cli.plain_text import visible
from gpufleet_cli.redact import redact

Response = tuple[int, Mapping[str, str], bytes]
"""Status, headers, body."""
REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SHOWN = 200


def header(headers: Mapping[str, str], name: str) -> str | None:
    """A header, however it is capitalised."""
    return next((value for key, value in headers.items() if key.lower() == name), None)


def shown_url(url: str) -> str:
    """A URL as it may stand in a report: no user, password, query or fragment."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return visible(urlunsplit((parts.scheme, host, parts.path, "", "")))


def one_line(text: str) -> str:
    """Words of a server or a program, safe to show: one short line without secrets or controls."""
    return visible(redact(" ".join(text[:8192].split())))[:_SHOWN]


def words_of(body: bytes) -> str:
    """What an answer that is no success says, in one line."""
    text = body[:65_536].decode("utf-8", "replace")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if isinstance(document, dict):
        for key in ("error", "message", "msg"):
            if isinstance(document.get(key), str):
                return one_line(document[key])
    if text.lstrip()[:1] == "<":
        text = re.sub(r"<[^>]{0,500}>", " ", text[:4096])
    return one_line(text)


def refusal(name: str, response: Response) -> SourceError:
    """The error that a status other than 200 means, with what to do about it."""
    status, headers, body = response
    said = words_of(body)
    told = f": {said}" if said else ""
    match status:
        case 401 if "no org id" in said:
            return SourceError(
                f"{name} wants the name of a tenant (401: no org id)",
                hint="tenant of the context in the settings file",
            )
        case 401:
            return SourceError(
                f"{name} does not know us (401){told}",
                hint="bearer_token_file or token_command in the settings file; or an expired token",
            )
        case 403:
            return SourceError(f"{name} does not allow it (403){told}")
        case 404:
            return SourceError(
                f"{name} has no such page (404){told}",
                hint="a path is missing in its URL, or too much",
            )
        case 429:
            return SourceError(f"{name} throttles us (429){told}")
        case _ if status in REDIRECTS:
            to = header(headers, "location") or "?"
            return SourceError(
                f"{name} sends us elsewhere ({status} to {shown_url(to)[:_SHOWN]})",
                hint="a login page, or a URL that has moved",
            )
        case _ if status >= 500:
            return SourceError(f"{name} is in trouble ({status}){told}")
        case _:
            return SourceError(f"{name} refused ({status}){told}")


def document_of(name: str, response: Response) -> object:
    """The JSON of a 200 answer. SourceError for another status, a page, or a body that is no JSON."""
    status, _, body = response
    if status != 200:
        raise refusal(name, response)
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as exc:
        if body.lstrip()[:1] == b"<":
            raise SourceError(
                f"{name} answered with a web page: {words_of(body)[:80]}",
                hint="a login page, or a URL without its API path",
            ) from exc
        raise SourceError(f"{name} answered with what is no JSON: {words_of(body)[:80]}") from exc
