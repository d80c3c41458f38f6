"""The write-up in a real browser: nothing scrolls sideways, on a telephone or a desk. Skipped without chromium."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gpufleet_cli.cli import main

ROOT = Path(__file__).parents[2]
BROWSER = next(
    (
        found
        for name in ("chromium", "chromium-browser", "google-chrome")
        if (found := shutil.which(name))
    ),
    None,
)
WIDTHS = (400, 700, 1000, 1280)
NAME = "a-very-long-name-of-a-node-that-nobody-would-type-by-hand-0417.compute.internal.example"
LOOK = """<script>onload = () => { document.title = [...document.querySelectorAll("iframe")].map(
  frame => frame.width + ":" + frame.contentDocument.documentElement.scrollWidth).join(" "); }</script>"""


@pytest.mark.skipif(BROWSER is None, reason="no chromium here")
@pytest.mark.parametrize("case", ["fr/fr-04-tp-cascade-16", "logs/rank0-only-log-undecidable"])
def test_nothing_scrolls_sideways(case: str, tmp_path: Path) -> None:
    """At 400 px as at 1,280, with names as long as clouds make them."""
    place = tmp_path / "evidence"
    shutil.copytree(ROOT / "fixtures/cases" / case, place)
    topology = place / "topology.json"
    topology.write_text(re.sub(r'"node": "[^"]*-', f'"node": "{NAME}-', topology.read_text()))
    assert main(["postmortem", str(place), "--to", str(tmp_path / "report.html")]) == 0
    page = html.escape((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert NAME in page
    frames = "".join(f'<iframe width="{w}" height="900" srcdoc="{page}"></iframe>' for w in WIDTHS)
    host = tmp_path / "host.html"
    host.write_text(f"<!doctype html><title>-</title>{frames}{LOOK}", encoding="utf-8")
    assert BROWSER is not None
    done = subprocess.run(
        [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
         f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1600,1200", "--dump-dom", f"file://{host}"],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    title = re.search(r"<title>([^<]*)</title>", done.stdout)
    assert title is not None, done.stderr[-2000:]
    told = [tuple(map(int, one.split(":"))) for one in title[1].split()]
    assert [width for width, _ in told] == list(WIDTHS)
    assert all(scrolled <= width for width, scrolled in told), title[1]
