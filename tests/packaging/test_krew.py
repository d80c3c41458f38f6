"""The manifest for kubectl's plugin index, filled in for a file."""

from __future__ import annotations

import hashlib
import subprocess
import tarfile
from pathlib import Path

import yaml
from packaging_tools import ROOT

MANIFEST = ROOT / "packaging" / "krew" / "manifest"


def test_manifest_of_a_release(tmp_path: Path) -> None:
    """Every mark is filled in; the sum is that of the archive, whose program stands where it says."""
    program = tmp_path / "gpufleet-linux-amd64"
    program.write_text("#!/bin/sh\necho gpufleet 1.2.3\n", encoding="utf-8")
    program.chmod(0o755)
    uri = "https://releases.invalid/gpufleet.tar.gz"
    subprocess.run(
        (MANIFEST, program, uri, "https://home.invalid"), check=True, capture_output=True
    )
    text = (tmp_path / "gpufleet.yaml").read_text(encoding="utf-8")
    assert "@" not in text
    made = yaml.safe_load(text)
    assert made["kind"] == "Plugin"
    assert made["spec"]["version"] == "v1.2.3"
    assert len(made["spec"]["shortDescription"]) <= 50
    (platform,) = made["spec"]["platforms"]
    archive = tmp_path / "gpufleet-linux-amd64.tar.gz"
    assert platform["uri"] == uri
    assert platform["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    with tarfile.open(archive) as packed:
        names = packed.getnames()
        assert packed.getmember(platform["bin"]).mode == 0o755
    assert names == [one["from"] for one in platform["files"]]
