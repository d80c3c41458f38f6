"""Secrets hidden in anything that is shown or kept: tokens, keys, passwords, signed URLs.

Two kinds of pattern: shapes that are secret by themselves (the issuers publish their prefixes so
that scanners can find them), and values behind a name such as `password`. Better to hide a word
too many than to paste a token into a chat; but the words of training logs (`tokens`, `pad_token`,
`tokens_per_second`) must stay readable, so a bare `token` counts only with a value that looks made
by a machine. Every quantifier is bounded.

What is in base64 is looked at as what it says: a Basic header without its name, a connection string in
a variable. JSON inside JSON and URLs inside URLs are read through their escapes.

Prefixes: docs.github.com (token formats), docs.gitlab.com (token overview), docs.aws.amazon.com
(unique identifiers of IAM), huggingface.co/docs/hub/security-tokens, api.slack.com/authentication,
RFC 7519 (JWT), RFC 7468 (PEM).

>>> redact("GET https://me:hunter2@example.com/x Authorization: Bearer abc.def-123")
'GET https://me:[hidden]@example.com/x Authorization: Bearer [hidden]'
>>> redact("tokens: 4096 pad_token=<pad> token_count=12")
'tokens: 4096 pad_token=<pad> token_count=12'
"""

from __future__ import annotations

import base64
import binascii
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
# A comma or bracket ends a value where something else follows it; within a password it is part of it.
_BARE = r"(?:[^\s,;&\"'\])}>\\]|\\(?!\\{0,6}[\"'])|[,\])}>](?=[^\s,;&\])}>\"'\\])){1,4096}"
# Behind a quote that JSON inside JSON escapes, all up to the next one.
_OPEN = r"(?P<escaped>\\{1,7}[\"'])?"
_VALUE = (
    rf"(?P<secret>(?(escaped)(?:[^\"'\n\\]|\\(?!\\{{0,6}}[\"'])){{1,4096}}|(?:{_QUOTED}|{_BARE})))"
)
_QUOTE = r"(?:\\{0,7}[\"'])?"

_SECRET_NAME = (
    r"(?:[\w.-]{0,64}?(?:password|passwd|passphrase|secret[_-]?key|secret[_-]?access[_-]?key"
    r"|client[_-]?secret|api[_-]?key|apikey|access[_-]?key|private[_-]?key|account[_-]?key"
    r"|(?:auth|access|refresh|session|id|bearer|hub|hf|api|sas|bot|vault|github|gitlab)[_-]?token"
    r"|client-key-data|_authtoken|connection[_-]?string|(?<![a-z])secret|(?<![a-z])pwd))"
)

_SIGNED = (
    r"(?:x-amz-signature|x-amz-security-token|x-amz-credential|x-goog-signature|x-goog-credential"
    r"|signature|sig|awsaccesskeyid|access_token|token|auth|api_?key|key)"
)
# Tokens of a vocabulary, which are no secrets: `--pad-token X`.
_VOCABULARY = (
    r"(?:pad|eos|bos|unk|mask|sep|cls|stop|end|start|eod|eot|image|special|max|num|tokens?)"
)

PATTERNS = (
    _pattern(
        "private key",
        ("private key",),
        r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?P<secret>[\s\S]{1,20000}?)"
        r"(?:-----END [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
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
        r"\b(?:proxy-)?authorization(?:[\"']\s{0,4},|\\{0,7}[\"']?\s{0,4}[:=])\s{0,4}(?:b(?=[\"']))?\\{0,7}[\"']?"
        r"(?:(?:bearer|basic|token|digest|aws4-hmac-sha256|apikey|negotiate)\s{1,4})?"
        r"(?P<secret>(?!\s)[^\"'\n]{4,4096}?)(?=\\{0,7}[\"'\n]|\s|\Z)",
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
        r"\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@\"'<>?#]{0,256}:(?P<secret>[^\s/\"'<>?#]{1,512})@",
        re.IGNORECASE,
    ),
    _pattern(  # stores whose passwords are often pasted unquoted, `/` and `#` with them
        "password in a URL",
        ("://",),
        r"\b(?:postgres(?:ql)?|mysql|mariadb|mongodb|rediss?|amqps?|mssql|clickhouse|ldaps?|s?ftp|smtps?)"
        r"(?:\+[a-z0-9]{1,16})?://[^\s/:@\"'<>?#]{0,256}:(?P<secret>[^\s\"'<>]{1,512})@(?=[\w.-])",
        re.IGNORECASE,
    ),
    _pattern(
        "password in a URL inside a URL",
        ("%3a%2f%2f",),
        r"[a-z][a-z0-9+.-]{1,20}%3a%2f%2f(?:(?!%3a|%2f)[^\s&\"']){0,256}%3a"
        r"(?P<secret>(?:(?!%2f)[^\s&\"']){1,512})%40",
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
        rf"(?:[?&;]|\\u0026){_SIGNED}=(?P<secret>[^\s&;\"'<>#\\]{{4,4096}})",
        re.IGNORECASE,
    ),
    _pattern(
        "signed URL inside a URL",
        ("%3d",),
        rf"%(?:26|3f){_SIGNED}%3d(?P<secret>(?:(?!%26)[^\s&;\"'<>#\\]){{4,4096}})",
        re.IGNORECASE,
    ),
    _pattern(
        "signature",
        ("sig=", "signature="),
        r"(?<![\w?&;-])(?:signature|sig)=(?P<secret>[\w%+/=-]{20,4096})",
        re.IGNORECASE,
    ),
    _pattern(
        "webhook",
        ("hooks.slack.com", "webhook"),
        r"(?:hooks\.slack\.com/(?:services|workflows)/|discord(?:app)?\.com/api/webhooks/"
        r"|/webhookb?2?/)(?P<secret>[\w/@.-]{8,512})",
        re.IGNORECASE,
    ),
    _pattern(  # beside its id the key needs no name
        "AWS secret key",
        ("akia", "asia", "abia", "acca"),
        r"(?<![A-Za-z0-9])A(?:KIA|SIA|BIA|CCA)[A-Z0-9]{16}[^A-Za-z0-9+\n]{1,8}?"
        r"(?P<secret>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])",
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
            "1//0", "gocspx-", "dckr_pat_", "q~", "age-secret-key",
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
        r"|1//0[\w-]{20,256}|GOCSPX-[\w-]{20,64}|dckr_pat_[\w-]{20,64}"
        r"|[A-Za-z0-9_.~-]{3}\dQ~[A-Za-z0-9_.~-]{31,40}|AGE-SECRET-KEY-1[A-Z0-9]{40,80}"
        r")(?![A-Za-z0-9])",
    ),
    _pattern(
        "named secret",
        ("pass", "secret", "key", "token", "pwd", "connection"),
        rf"(?<![\w-])(?:--)?{_QUOTE}{_SECRET_NAME}{_QUOTE}\s{{0,4}}(?:[:=]|=>)\s{{0,4}}{_OPEN}{_VALUE}",
        re.IGNORECASE,
    ),
    _pattern(
        "secret in a variable",
        ("_pass", "_pwd", "_auth", "_token", "_key", "_secret", "_cred", "_pat", "_dsn", "_login"),
        rf"(?<![\w-])(?![A-Z0-9_]{{0,64}}(?i:{_VOCABULARY})_TOKEN)[A-Z][A-Z0-9_]{{0,64}}"
        r"_(?:PASS|PWD|AUTH|TOKEN|KEY|SECRET|CREDENTIALS?|PAT|DSN|LOGIN)"
        rf"{_QUOTE}\s{{0,4}}[:=]\s{{0,4}}{_OPEN}{_VALUE}",
    ),
    _pattern(
        "secret option",
        ("--",),
        rf"--(?!(?:[a-z0-9_-]{{0,32}}[_-])?{_VOCABULARY}[_-]token)(?:[a-z0-9_-]{{0,32}}[_-])?"
        r"(?:pass|password|passwd|passphrase|pwd|secret|secret[_-]key|access[_-]key|api[_-]?key|token)"
        rf"(?:\s{{1,4}}|=)(?P<secret>(?!-){_QUOTED}|(?!-){_BARE})",
        re.IGNORECASE,
    ),
    _pattern(  # `mysql -u me -pX`, `docker login -p X`, `redis-cli -a X`; not `docker run -p 80:80`
        "secret option",
        ("mysql", "mariadb", "sshpass", "mongo", "cqlsh", "sqlcmd", "login", "redis-cli"),
        r"\b(?:(?:mysql|mariadb|sshpass|mongo|cqlsh|sqlcmd)[a-z]{0,12}\b[^\n|;]{0,200}?\s-[pP]"
        r"|login\b[^\n|;]{0,200}?\s-p|redis-cli\b[^\n|;]{0,200}?\s-a)"
        rf"\s?(?P<secret>(?![\d-]){_QUOTED}|(?!\d{{1,5}}(?:\s|$))(?!-){_BARE})",
    ),
    _pattern(
        "user and password",
        ("-u", "--user", "--proxy-user"),
        r"(?<!\S)(?:-u|--user|--proxy-user)[\s=]{1,4}[\"']?[^\s:\"'/]{1,128}:(?P<secret>[^\s\"'/]{1,256})",
    ),
    _pattern(
        "password after its word",
        ("passw",),
        r"\bpassw(?:or)?d\s{1,4}(?:(?:is|was)\s{1,4})?(?P<secret>\"[^\"\n]{1,256}\"|'[^'\n]{1,256}')",
        re.IGNORECASE,
    ),
    _pattern(
        "line of a netrc file",
        ("password",),
        r"\blogin\s{1,4}\S{1,128}\s{1,4}password\s{1,4}(?P<secret>\S{1,256})",
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
    hidden: list[str] = []
    text = _by_patterns(text, hidden)
    return Redacted(_encoded(text, hidden), tuple(hidden))


def redact_encoded(text: str) -> Redacted:
    """Only what hides in base64: for lines that can hold nothing else."""
    hidden: list[str] = []
    return Redacted(_encoded(text, hidden), tuple(hidden))


def _by_patterns(text: str, hidden: list[str]) -> str:
    lowered = text.lower()
    for pattern in PATTERNS:
        for hint in pattern.hints:  # any() would take most of the time of all redacting
            if hint in lowered:
                text = pattern.regex.sub(_hider(pattern.name, hidden), text)
                break
    return text


def _hider(name: str, hidden: list[str]) -> Callable[[re.Match[str]], str]:
    def hide(match: re.Match[str]) -> str:
        whole, secret = match.group(), match["secret"]
        if secret.startswith(HIDDEN[:-1]):
            return whole  # another pattern was here before
        hidden.append(name)
        start, end = match.start("secret") - match.start(), match.end("secret") - match.start()
        quote = secret[0] if secret[0] in "\"'" and secret[-1] == secret[0] else ""
        return f"{whole[:start]}{quote}{HIDDEN}{quote}{whole[end:]}"

    return hide


# --- Base64 ---------------------------------------------------------------------------------------

_BASIC = re.compile(r"\bbasic\s{1,4}(?P<secret>[A-Za-z0-9+/_-]{6,4096}={0,2})", re.IGNORECASE)
_RUN = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{24,16384}={0,2}")


def _encoded(text: str, hidden: list[str]) -> str:
    if len(text) < 12:
        return text
    if "asic " in text or "ASIC " in text:
        text = _BASIC.sub(lambda match: _basic(match, hidden), text)
    return _RUN.sub(lambda match: _run(match, hidden), text) if len(text) >= 24 else text


def _basic(match: re.Match[str], hidden: list[str]) -> str:
    """The credentials of a Basic header say `user:password`."""
    if ":" not in (_decoded(match["secret"]) or ""):
        return match.group()
    hidden.append("basic credentials")
    return match.group()[: match.start("secret") - match.start()] + HIDDEN


def _run(match: re.Match[str], hidden: list[str]) -> str:
    plain = _decoded(match.group())
    inner: list[str] = []
    if plain is None or (_by_patterns(plain, inner) == plain):
        return match.group()
    hidden.append(f"{inner[0]} in base64")
    return HIDDEN


def _decoded(run: str) -> str | None:
    """What a run of base64 says; None where it is no text."""
    bare = run.rstrip("=").translate(_STANDARD)
    try:
        plain = base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None
    if not plain.isascii():
        return None
    text = plain.decode("ascii")
    return text if text.isprintable() or "".join(text.split()).isprintable() else None


_STANDARD = str.maketrans("-_", "+/")
