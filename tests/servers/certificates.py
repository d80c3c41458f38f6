"""A certificate authority of the tests and what it signs, by the `openssl` program."""

from __future__ import annotations

import subprocess
from pathlib import Path

_NAMES = "subjectAltName=IP:127.0.0.1,DNS:localhost,DNS:kubernetes.default.svc"


def _openssl(*words: str, folder: Path, stdin: str | None = None) -> None:
    """Run openssl in the folder."""
    subprocess.run(
        ["openssl", *words], cwd=folder, check=True, capture_output=True, text=True, input=stdin
    )


def make_authority(folder: Path) -> None:
    """`ca.crt` and `ca.key`."""
    _openssl(
        *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=tests"),
        *("-keyout", "ca.key", "-out", "ca.crt"),
        folder=folder,
    )


def make_certificate(
    folder: Path,
    name: str,
    *,
    user: str,
    groups: tuple[str, ...] = (),
    days: int = 30,
    bits: int = 2048,
) -> None:
    """`NAME.crt` and `NAME.key`, for loopback as a server and for `user` (of `groups`) as a client.

    Negative days make one that has ended; 1024 bits one that OpenSSL takes for too weak, and Go does not.
    """
    subject = "".join(f"/O={group}" for group in groups) + f"/CN={user}"
    _openssl(
        *("req", "-newkey", f"rsa:{bits}", "-nodes", "-subj", subject),
        *("-keyout", f"{name}.key", "-out", f"{name}.csr"),
        folder=folder,
    )
    usage = "extendedKeyUsage=serverAuth,clientAuth"
    (folder / f"{name}.ext").write_text(f"{_NAMES}\n{usage}\n")
    _openssl(
        *("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key"),
        *("-CAcreateserial", "-days", str(days), "-extfile", f"{name}.ext", "-out", f"{name}.crt"),
        folder=folder,
    )


def make_key(folder: Path, name: str) -> None:
    """A private key alone, for signing service account tokens."""
    _openssl("genrsa", "-out", name, "2048", folder=folder)
