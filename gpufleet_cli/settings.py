"""What a person set for this run, and where our own files live.

Flag over environment over file; the file (`config.toml`) comes with the live cluster.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from gpufleet_cli import completion
from gpufleet_cli.errors import UsageError

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION = re.compile(r"(?:\d{1,12}(?:\.\d{1,9})?(?:ms|s|m|h|d)){1,5}", re.ASCII)
_PART = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)(ms|s|m|h|d)", re.ASCII)
_NUMBER = re.compile(r"\d{1,12}(?:\.\d{1,9})?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The global options. None means not given."""

    output: str | None = None
    no_color: bool = False
    verbose: bool = False
    deadline_s: float | None = None
    context: str | None = None
    kubeconfig: str | None = None
    namespace: str | None = None
    history: str | None = None


def parse_duration(text: str, option: str) -> float:
    """Seconds: `90s`, `30m`, `0.5m`, `5h`, `2d`, `1h30m`, `250ms`, or plain seconds.

    >>> parse_duration("0.5m", "--restart"), parse_duration("60", "--deadline")
    (30.0, 60.0)
    """
    trimmed = text.strip()
    if _NUMBER.fullmatch(trimmed):
        return float(trimmed)
    if _DURATION.fullmatch(trimmed):
        return sum(float(number) * _UNITS_S[unit] for number, unit in _PART.findall(trimmed))
    raise UsageError(
        f"{option} {text!r} is not a duration", hint="write 90s, 30m, 0.5m, 5h, 2d or plain seconds"
    )


def keeps_state() -> bool:
    """Whether we may write our cache and history."""
    return os.environ.get("GPUFLEET_NO_STATE") != "1"


def cache_folder() -> Path:
    """`gpufleet/` under the user's cache folder, as the platform and XDG name it."""
    return Path(completion.cache_folder(dict(os.environ)))


def state_folder() -> Path:
    """`gpufleet/` under the user's state folder, as the platform and XDG name it."""
    stated = os.environ.get("XDG_STATE_HOME", "")
    if stated.startswith("/"):
        return Path(stated) / "gpufleet"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "gpufleet"
    return Path.home() / ".local" / "state" / "gpufleet"


def wants_color(settings: Settings, *, is_terminal: bool) -> bool:
    """Colour on a terminal only, and never against NO_COLOR (no-color.org) or a dumb terminal."""
    if settings.no_color or os.environ.get("NO_COLOR"):
        return False
    return is_terminal and os.environ.get("TERM", "") not in ("", "dumb")


def wants_unicode(encoding: str | None) -> bool:
    """Whether box and block symbols will survive: TERM, the stream's encoding and the locale say.

    In the C locale Python speaks UTF-8 all the same (PEP 538 sets LC_CTYPE, PEP 540), but the
    terminal then does not; a locale that says nothing at all is taken at Python's word.
    """
    if os.environ.get("TERM") == "dumb":
        return False
    if (encoding or "").lower().replace("-", "").replace("_", "") != "utf8":
        return False
    stated = os.environ.get("LC_ALL") or os.environ.get("LC_CTYPE")
    if not os.environ.get("LC_ALL") and stated == "C.UTF-8" and os.environ.get("LANG"):
        stated = os.environ["LANG"]  # LC_CTYPE may be the one that Python set for itself
    stated = stated or os.environ.get("LANG") or "UTF-8"
    return "utf8" in stated.lower().replace("-", "")
