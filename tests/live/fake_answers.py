"""One answer of the small API server: a document, a Status, or bytes; late or cut where a test wants that."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    503: "ServiceUnavailable",
}


@dataclass(slots=True)
class Said:
    """One answer; `hold_s` comes before it, `cut` ends the body after so many bytes."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    hold_s: float = 0.0
    cut: int | None = None


def answer(document: Json, *, status: int = 200) -> Said:
    """A document."""
    headers = {"Content-Type": "application/json"}
    return Said(status=status, body=json.dumps(document).encode(), headers=headers)


def failure(
    code: int,
    message: str = "",
    *,
    reason: str | None = None,
    details: Json | None = None,
    **headers: str,
) -> Said:
    """A Status of the API server."""
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
    status |= {"reason": reason or _REASONS.get(code, "InternalError")}
    status |= {"message": message or f"failure {code}", "details": details or {}}
    found = answer(status, status=code)
    return Said(status=code, body=found.body, headers={**found.headers, **headers})
