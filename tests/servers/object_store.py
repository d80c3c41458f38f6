"""An S3 store on loopback (moto), in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import urllib3

from servers import programs, running


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectStore:
    """A store with one bucket. Objects are private; signatures are not checked: any key and secret will do."""

    url: str
    bucket: str
    region: str = "us-east-1"

    def put(self, key: str, content: bytes) -> None:
        """Store an object."""
        _put(f"{self.url}/{self.bucket}/{quote(key)}", content)

    def hold(self, objects: Mapping[str, bytes]) -> None:
        """These objects in the bucket, and nothing else anywhere."""
        answer = urllib3.request("POST", f"{self.url}/moto-api/reset", retries=False)
        if answer.status != 200:
            raise RuntimeError(f"{self.url}: {answer.status} {answer.data!r}")
        _put(f"{self.url}/{self.bucket}", b"")
        for key, content in objects.items():
            self.put(key, content)


@contextmanager
def running_object_store(folder: Path, *, bucket: str = "dumps") -> Iterator[ObjectStore]:
    """A store that knows no bucket yet."""
    program = programs.find("moto_server")
    folder.mkdir(parents=True, exist_ok=True)
    (port,) = running.free_ports(1)
    made = ObjectStore(url=f"http://127.0.0.1:{port}", bucket=bucket)
    try:
        running.launch(folder, "moto_server", [program, "-H", "127.0.0.1", "-p", str(port)])
        running.wait_ready(folder, "moto_server", lambda: _answers(made.url))
        yield made
    finally:
        running.stop(folder, "moto_server")


def _answers(url: str) -> bool:
    """Whether it takes requests."""
    try:
        return urllib3.request("GET", url, retries=False).status < 500
    except urllib3.exceptions.HTTPError:
        return False


def _put(url: str, content: bytes) -> None:
    """One upload."""
    answer = urllib3.request("PUT", url, body=content, retries=False)
    if answer.status != 200:
        raise RuntimeError(f"{url}: {answer.status} {answer.data!r}")
