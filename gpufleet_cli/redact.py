"""Secrets hidden in anything that is shown or kept: tokens, keys, passwords, signed URLs.

Two kinds of pattern: shapes that are secret by themselves (the issuers publish their prefixes so
that scanners can find them), and values behind a name such as `password`. Better to hide a word
too many than to paste a token into a chat; but the words of training logs (`tokens`, `pad_token`,
`tokens_per_second`) must stay readable, so a bare `token` counts only with a value that looks made
by a machine. Every quantifier is bounded.

Prefixes: docs.github.com (token formats), docs.gitlab.com (token overview), docs.aws.amazon.com
(unique identifiers of IAM), huggingface.co/docs/hub/security-tokens, api.slack.com/authentication,
RFC 7519 (JWT), RFC 7468 (PEM).

>>> redact("GET https://me:hunter2@example.com/x Authorization: Bearer abc.def-123")
'GET https://me:[hidden]@example.com/x Authorization: Bearer [hidden]'
>>> redact("tokens: 4096 pad_token=<pad> token_count=12")
'tokens: 4096 pad_token=<pad> token_count=12'
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

HIDDEN = "[hidden]"


class Pattern(NamedTuple):
    """One shape of secret. `hints`: lower-case words of which one must be there (a quick test).
    The group named `secret` is hidden; what stands around it stays."""

    name: str
    hints: tuple[str, ...]
    regex: re.Pattern[str]


def _pattern(name: str, hints: tuple[str, ...], regex: str, flags: int = 0) -> Pattern:
    return Pattern(name, hints, re.compile(regex, flags))


_QUOTED = r"\"[^\"\n]{1,4096}\"|'[^'\n]{1,4096}'"
_BARE = r"[^\s,;&\"'\])}>]{1,4096}"

_SECRET_NAME = (
    r"(?:[\w.-]{0,64}?(?:password|passwd|passphrase|secret[_-]?key|secret[_-]?access[_-]?key"
    r"|client[_-]?secret|api[_-]?key|apikey|access[_-]?key|private[_-]?key|account[_-]?key"
    r"|auth[_-]?token|access[_-]?token|refresh[_-]?token|session[_-]?token|id[_-]?token"
    r"|bearer[_-]?token|hub[_-]?token|hf[_-]?token|client-key-data|_authtoken"
    r"|(?<![a-z])secret|(?<![a-z])pwd))"
)

PATTERNS = (
    _pattern(
        "private key",
        ("private key",),
        r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?P<secret>[\s\S]{1,20000}?)"
        r"(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)",
    ),
    _pattern(  # the lines of RFC 7468 have 64 characters, of OpenSSH 70, of MIME 76
        "line of a private key",
        ("",),
        r"(?:^|(?<=[\s:|]))(?P<secret>(?=\S{0,75}[a-z])(?=\S{0,75}[A-Z])(?=\S{0,75}[0-9])"
        r"(?!\S{0,75}/\S{0,75}/\S{0,75}/\S{0,75}/\S{0,75}/)[A-Za-z0-9+/]{62,76}={0,2})(?=\s{0,8}$)",
        re.MULTILINE,
    ),
    _pattern(
        "authorization header",
        ("authorization",),
        r"\b(?:proxy-)?authorization[\"']?\s{0,4}[:=]\s{0,4}[\"']?"
        r"(?:(?:bearer|basic|token|digest|aws4-hmac-sha256|apikey|negotiate)\s{1,4})?"
        r"(?P<secret>(?!\s)[^\"'\n]{4,4096}?)(?=[\"'\n]|\s|\Z)",
        re.IGNORECASE,
    ),
    _pattern(
        "bearer token",
        ("bearer",),
        r"\bbearer\s{1,4}(?P<secret>(?=[^\s\"']{0,512}[\d._~+/=-])[A-Za-z0-9._~+/=-]{8,4096})",
        re.IGNORECASE,
    ),
    _pattern(
        "cookie",
        ("cookie",),
        r"\b(?:set-)?cookie[\"']?\s{0,4}:\s{0,4}[\"']?(?P<secret>[\w.-]{1,128}=[^\"'\n]{1,4096})",
        re.IGNORECASE,
    ),
    _pattern(
        "password in a URL",
        ("://",),
        r"\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@\"'<>?#]{0,256}:(?P<secret>[^\s/@\"'<>?#]{1,512})@",
        re.IGNORECASE,
    ),
    _pattern(
        "user part of a URL",
        ("://",),
        r"\b[a-z][a-z0-9+.-]{1,20}://(?P<secret>[A-Za-z0-9_-]{20,512})@",
        re.IGNORECASE,
    ),
    _pattern(
        "signed URL",
        ("sig", "token", "key", "credential", "code="),
        r"[?&;](?:x-amz-signature|x-amz-security-token|x-amz-credential|x-goog-signature"
        r"|x-goog-credential|signature|sig|awsaccesskeyid|access_token|token|auth|api_?key|key)"
        r"=(?P<secret>[^\s&;\"'<>#]{4,4096})",
        re.IGNORECASE,
    ),
    _pattern(
        "webhook",
        ("hooks.slack.com", "webhook"),
        r"(?:hooks\.slack\.com/(?:services|workflows)/|discord(?:app)?\.com/api/webhooks/"
        r"|/webhookb?2?/)(?P<secret>[\w/@.-]{8,512})",
        re.IGNORECASE,
    ),
    _pattern(
        "AWS access key id",
        ("akia", "asia", "abia", "acca"),
        r"(?<![A-Za-z0-9])(?P<secret>A(?:KIA|SIA|BIA|CCA)[A-Z0-9]{16})(?![A-Za-z0-9])",
    ),
    _pattern(
        "issued token",
        (
            "hf_", "api_org_", "gh", "github_pat_", "glpat-", "gldt-", "glrt-", "xox", "xapp-",
            "sk-", "sk_", "rk_", "npm_", "pypi-", "ya29.", "aiza", "dop_v1_", "eyj", "sg.",
            "dapi", "hvs.", "sha256~", "nvapi-", "wandb_v1", "tskey-", "glc_", "glsa_", "lsv2_",
        ),
        r"(?<![A-Za-z0-9])(?P<secret>"
        r"(?:hf_|api_org_)[A-Za-z0-9]{16,256}"
        r"|gh[opusr]_[A-Za-z0-9]{20,256}|github_pat_[A-Za-z0-9_]{20,256}"
        r"|gl(?:pat|dt|rt|ptt|ft|soat|cbt)-[\w.-]{16,256}|gl(?:c|sa)_[\w=-]{20,256}"
        r"|xox[a-z]-[\w-]{10,256}|xapp-[\w-]{10,256}"
        r"|sk-[A-Za-z0-9][\w-]{18,256}|[sr]k_(?:live|test)_[A-Za-z0-9]{16,256}"
        r"|lsv2_[A-Za-z0-9_]{20,256}|npm_[A-Za-z0-9]{30,256}|pypi-[\w-]{30,256}"
        r"|ya29\.[\w-]{20,512}|AIza[\w-]{30,64}|dop_v1_[a-f0-9]{40,80}"
        r"|SG\.[\w-]{16,64}\.[\w-]{16,128}|dapi[a-f0-9]{32}|hv[sb]\.[\w-]{20,256}"
        r"|sha256~[\w-]{20,128}|nvapi-[\w-]{20,256}|wandb_v1_[\w-]{20,256}|tskey-[\w-]{16,128}"
        r"|eyJ[\w-]{8,4096}\.eyJ[\w-]{8,8192}\.[\w-]{0,4096}"
        r")(?![A-Za-z0-9])",
    ),
    _pattern(
        "named secret",
        ("pass", "secret", "key", "token", "pwd"),
        rf"(?<![\w-])(?:--)?[\"']?{_SECRET_NAME}[\"']?\s{{0,4}}(?:[:=]|=>)\s{{0,4}}"
        rf"(?P<secret>{_QUOTED}|{_BARE})",
        re.IGNORECASE,
    ),
    _pattern(
        "secret option",
        ("--",),
        r"--(?:[a-z-]{0,32}-)?(?:password|passwd|secret|secret-key|access-key|api-key|token)"
        rf"\s{{1,4}}(?P<secret>(?!-){_QUOTED}|(?!-){_BARE})",
        re.IGNORECASE,
    ),
    _pattern(
        "named token",
        ("token", "credential", "auth"),
        r"(?<![\w-])[\"']?(?:[\w-]{0,64}[_-])?(?:token|credential|credentials|auth)[\"']?"
        r"\s{0,4}[:=]\s{0,4}[\"']?(?P<secret>(?=[^\s\"',;]{0,256}\d)(?=[^\s\"',;]{0,256}[A-Za-z])"
        r"[A-Za-z0-9._~+/=-]{16,4096})",
        re.IGNORECASE,
    ),
    _pattern(
        "W&B key",
        ("wandb",),
        r"wandb[^\n]{0,60}?(?<![0-9a-f])(?P<secret>[0-9a-f]{40})(?![0-9a-f])",
        re.IGNORECASE,
    ),
)  # fmt: skip


class Redacted(NamedTuple):
    """Text without its secrets, and the kinds of secret that it had."""

    text: str
    hidden: tuple[str, ...]


def redact(text: str) -> str:
    """The text with every secret in it replaced by `[hidden]`."""
    return redact_and_tell(text).text


def redact_and_tell(text: str) -> Redacted:
    """As `redact`, with the names of what was hidden, for a list of what a report does not show."""
    if len(text) < 8:
        return Redacted(text, ())
    lowered = text.lower()
    hidden: list[str] = []
    for pattern in PATTERNS:
        if any(hint in lowered for hint in pattern.hints):
            text = pattern.regex.sub(_hider(pattern.name, hidden), text)
    return Redacted(text, tuple(hidden))


def _hider(name: str, hidden: list[str]) -> Callable[[re.Match[str]], str]:
    def hide(match: re.Match[str]) -> str:
        whole, secret = match.group(), match.group("secret")
        if secret.startswith(HIDDEN[:-1]):
            return whole  # another pattern was here before
        hidden.append(name)
        start, end = match.start("secret") - match.start(), match.end("secret") - match.start()
        quote = secret[0] if secret[0] in "\"'" and secret[-1] == secret[0] else ""
        return f"{whole[:start]}{quote}{HIDDEN}{quote}{whole[end:]}"

    return hide
