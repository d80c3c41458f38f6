"""A real Alertmanager, alone and with a receiver that tells nobody."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import urllib3

from servers import programs, running


@contextmanager
def running_alertmanager(folder: Path) -> Iterator[str]:
    """Its URL."""
    program = programs.find("prometheus-alertmanager")
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"route": {"receiver": "nobody"}, "receivers": [{"name": "nobody"}]}
    (folder / "alertmanager.yml").write_text(json.dumps(settings))
    (port,) = running.free_ports(1)
    command = [
        program,
        *("--config.file=alertmanager.yml", "--storage.path=data", "--cluster.listen-address="),
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    url = f"http://127.0.0.1:{port}"
    try:
        running.launch(folder, "alertmanager", command)
        running.wait_ready(folder, "alertmanager", lambda: _answers(f"{url}/-/ready"))
        yield url
    finally:
        running.stop(folder, "alertmanager")


def alerts(url: str) -> list[dict[str, Any]]:
    """The alerts that it holds, resolved ones left out, as its own API tells them."""
    with urllib3.PoolManager() as pool:
        found: list[dict[str, Any]] = pool.request("GET", f"{url}/api/v2/alerts").json()
    return found


def _answers(url: str) -> bool:
    try:
        with urllib3.PoolManager(retries=False) as pool:
            return pool.request("GET", url).status == 200
    except urllib3.exceptions.HTTPError:
        return False
