"""A real Prometheus with a history that a test gives it, and where a test says so with targets that it scrapes.

Ask with an explicit time where nothing is scraped: the history ends where its samples end.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import urllib3

from servers import programs, running
from servers.api import Json
from servers.metrics import Series, open_metrics


@contextmanager
def running_prometheus(
    folder: Path,
    series: Iterable[Series] = (),
    *,
    prefix: str = "",
    web_config: Json | None = None,
    targets: tuple[str, ...] = (),
    scrape_s: int = 30,
    more: tuple[str, ...] = (),
) -> Iterator[str]:
    """The URL of a Prometheus (under a path prefix such as `/prometheus`) that knows these series.

    `web_config` is Prometheus' own file: basic auth, TLS. `targets` are HOST:PORT, scraped each `scrape_s`. `more` are further flags, such as
    `--query.max-samples=1000`.
    """
    program = programs.find("prometheus")
    folder.mkdir(parents=True, exist_ok=True)
    series = list(series)
    if series:
        _write_blocks(folder, series)
    scraped = [{"job_name": "test", "static_configs": [{"targets": list(targets)}]}]
    settings = {"global": {"scrape_interval": f"{scrape_s}s"}, "scrape_configs": scraped}
    (folder / "prometheus.yml").write_text(
        json.dumps(settings if targets else {"global": settings["global"]})
    )
    (port,) = running.free_ports(1)
    command = [
        program,
        *("--config.file=prometheus.yml", "--storage.tsdb.path=data"),
        *("--storage.tsdb.retention.time=3650d", f"--web.listen-address=127.0.0.1:{port}"),
        *((f"--web.route-prefix={prefix}",) if prefix else ()),
        *more,
    ]
    if web_config is not None:
        (folder / "web.yml").write_text(json.dumps(web_config))
        command.append("--web.config.file=web.yml")
    secure = bool(web_config and "tls_server_config" in web_config)
    url = f"{'https' if secure else 'http'}://127.0.0.1:{port}{prefix}"
    try:
        running.launch(folder, "prometheus", command)
        running.wait_ready(folder, "prometheus", lambda: _answers(f"{url}/-/ready"))
        yield url
    finally:
        running.stop(folder, "prometheus")


def _write_blocks(folder: Path, series: Iterable[Series]) -> None:
    """Lay the history down as blocks; few and long ones, since each costs time to write and to open."""
    file = folder / "history.om"
    with file.open("w") as lines:
        lines.writelines(open_metrics(series))
    run = subprocess.run(
        [
            programs.find("promtool"),
            *("tsdb", "create-blocks-from", "--max-block-duration=240h"),
            *("openmetrics", str(file), str(folder / "data")),
        ],
        capture_output=True,
        text=True,
    )
    if run.returncode != 0:
        raise running.StartFailed(f"promtool: {run.stdout[-2000:]}{run.stderr[-2000:]}")


def _answers(url: str) -> bool:
    """Ready; with basic auth on, a 401 says as much."""
    try:
        with urllib3.PoolManager(cert_reqs="CERT_NONE", retries=False) as pool:
            return pool.request("GET", url).status in (200, 401)
    except urllib3.exceptions.HTTPError:
        return False
