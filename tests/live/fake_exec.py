"""Exec of the small API server: `cat` of files that a test gives, in the frames of v4.channel.k8s.io.

Nothing is run. Any program but `cat` is missing in the image, as in a distroless one.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha1
from http.server import BaseHTTPRequestHandler

PROTOCOL = "v4.channel.k8s.io"
_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3
_PIECE = 32_768
_BINARY, _CLOSE = 0x82, 0x88
_STDOUT, _STDERR, _STATUS = b"\x01", b"\x02", b"\x03"


def speak(
    handler: BaseHTTPRequestHandler, command: Sequence[str], files: Mapping[str, bytes]
) -> None:
    """The handshake, what the command says, and how it ended."""
    key = handler.headers["Sec-WebSocket-Key"] + _GUID
    handler.send_response(101)
    handler.send_header("Upgrade", "websocket")
    handler.send_header("Connection", "Upgrade")
    accepted = base64.b64encode(sha1(key.encode(), usedforsecurity=False).digest()).decode()
    handler.send_header("Sec-WebSocket-Accept", accepted)
    handler.send_header("Sec-WebSocket-Protocol", PROTOCOL)
    handler.end_headers()
    for payload in _said(command, files):
        handler.wfile.write(_frame(_BINARY, payload))
    handler.wfile.write(_frame(_CLOSE, b"\x03\xe8"))
    handler.wfile.flush()
    handler.close_connection = True
    handler.connection.settimeout(5)
    try:
        while handler.connection.recv(4096):  # its own close, or bytes are lost to a reset
            pass
    except OSError:
        pass


def _said(command: Sequence[str], files: Mapping[str, bytes]) -> Iterator[bytes]:
    program, *paths = command
    if program != "cat":
        said = f'exec: "{program}": executable file not found in $PATH'
        yield _STATUS + json.dumps({"status": "Failure", "message": said}).encode()
        return
    failed = False
    for path in paths:
        data = b"" if path == "/dev/null" else files.get(path)
        if data is None:
            failed = True
            yield _STDERR + f"cat: {path}: No such file or directory\n".encode()
            continue
        for at in range(0, len(data), _PIECE):
            yield _STDOUT + data[at : at + _PIECE]
    status = {"status": "Failure", "reason": "NonZeroExitCode"} if failed else {"status": "Success"}
    yield _STATUS + json.dumps(status).encode()


def _frame(head: int, payload: bytes) -> bytes:
    size = len(payload)
    length = bytes([size]) if size < 126 else b"\x7e" + size.to_bytes(2, "big")
    return bytes([head]) + length + payload
