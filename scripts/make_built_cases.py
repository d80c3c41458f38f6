"""Make fixtures/built/xid: incidents of hardware, kernel, metrics and schedulers with a known truth.

    python scripts/make_built_cases.py           write fixtures/built/xid
    python scripts/make_built_cases.py --check   exit 1 if the committed files differ

The answers follow NVIDIA's Xid catalogue and workflows, the Kubernetes and Slurm documentation, and
the product's rules; the lines have the forms of real programs, everything named in them is invented.
"""

from __future__ import annotations

import argparse
import gzip
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from built_cases import clusters, contests, decoys, gpus, hosts, memory, partial, readings
from built_cases.fleet import Incident

HERE = Path(__file__).resolve().parent.parent / "fixtures" / "built" / "xid"
LONG = 3000


def incidents() -> Iterator[Incident]:
    for family in (memory, gpus, hosts, clusters, partial, decoys, contests, readings):
        yield from family.incidents()


def contents() -> dict[str, str]:
    """Every file by its path below the folder of the cases."""
    files: dict[str, str] = {}
    for one in incidents():
        assert f"{one.name}/case.json" not in files, one.name
        files[f"{one.name}/case.json"] = one.answer()
        files |= {f"{one.name}/{path}": text for path, text in one.files.items()}
    return files


def stored(path: str, text: str) -> tuple[str, bytes]:
    """Long logs are kept compressed, with no time of their own in them."""
    if "/logs/" in path and len(text) > LONG:
        return f"{path}.gz", gzip.compress(text.encode(), mtime=0)
    return path, text.encode()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    options = parser.parse_args()
    wanted = dict(stored(path, text) for path, text in contents().items())
    have = {
        path.relative_to(HERE).as_posix(): path.read_bytes()
        for path in HERE.rglob("*")
        if path.is_file() and path.name != "README.md"
    }
    if options.check:
        odd = sorted(
            path for path in wanted.keys() | have.keys() if wanted.get(path) != have.get(path)
        )
        sys.stdout.write("".join(f"differs: {path}\n" for path in odd))
        return 1 if odd else 0
    for name in {path.partition("/")[0] for path in have}:
        shutil.rmtree(HERE / name)
    for path, data in wanted.items():
        (HERE / path).parent.mkdir(parents=True, exist_ok=True)
        (HERE / path).write_bytes(data)
    count = sum(path.endswith("case.json") for path in wanted)
    sys.stdout.write(f"{count} cases, {sum(map(len, wanted.values())):,} bytes\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
