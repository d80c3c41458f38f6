"""Whether a wheel and an sdist hold what they must, and nothing else.

python packaging/check_dist.py dist/gpufleet-0.1.0-py3-none-any.whl [dist/gpufleet-0.1.0.tar.gz]
"""

from __future__ import annotations

import configparser
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
PACKAGE = "gpufleet_cli"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
IN_SDIST = (
    "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md",
    "constraints.txt", "pyproject.toml", "deploy", "docs", "packaging", "scripts", "fixtures/train-run-7",
)  # fmt: skip


def package() -> set[str]:
    """Every file of the package as it lies in the tree."""
    files = (path for path in (ROOT / PACKAGE).rglob("*") if path.is_file())
    return {str(path.relative_to(ROOT)) for path in files if "__pycache__" not in path.parts}


def shared() -> dict[str, str]:
    """What the wheel puts beside the package: place in the environment to file of the tree."""
    found = {}
    for folder, patterns in PROJECT["tool"]["setuptools"]["data-files"].items():
        for path in (path for pattern in patterns for path in sorted(ROOT.glob(pattern))):
            found[f"{folder}/{path.name}"] = str(path.relative_to(ROOT))
    return found


def wheel(path: Path) -> Iterator[str]:
    """What is wrong with a wheel, a line each."""
    with zipfile.ZipFile(path) as packed:
        held = set(packed.namelist())
        data = {
            PurePosixPath(*PurePosixPath(name).parts[2:]): name
            for name in held
            if ".data/data/" in name
        }
        ours = {name for name in held if name.startswith(f"{PACKAGE}/")}
        yield from (f"lacks {name}" for name in sorted(package() - ours))
        yield from (f"holds {name}, which is not in the tree" for name in sorted(ours - package()))
        for place, source in shared().items():
            name = data.get(PurePosixPath(place))
            if name is None or packed.read(name) != (ROOT / source).read_bytes():
                yield f"lacks {place}, or holds another one than {source}"
        info = next(name for name in held if name.endswith(".dist-info/entry_points.txt"))
        points = configparser.ConfigParser()
        points.read_string(packed.read(info).decode())
        if dict(points["console_scripts"]) != PROJECT["project"]["scripts"]:
            yield "starts other programs than pyproject.toml says"
        if not any(name.endswith("/licenses/LICENSE") for name in held):
            yield "lacks the licence"
        others = held - ours - set(data.values())
        yield from (f"holds {n}" for n in sorted(others) if ".dist-info/" not in n)


def sdist(path: Path) -> Iterator[str]:
    """What is wrong with an sdist, a line each."""
    with tarfile.open(path) as packed:
        held = {str(PurePosixPath(*PurePosixPath(one).parts[1:])) for one in packed.getnames()}
    wanted = package() | set(shared().values())
    for name in IN_SDIST:
        files = [one for one in (ROOT / name).rglob("*") if one.is_file()] or [ROOT / name]
        kept = (one for one in files if not _is_cache(one.relative_to(ROOT)))
        wanted |= {str(one.relative_to(ROOT)) for one in kept}
    yield from (f"lacks {name}" for name in sorted(wanted - held))
    yield from (f"holds {name}" for name in sorted(held) if name.startswith("tests/"))


def _is_cache(path: Path) -> bool:
    """What tools leave beside the sources."""
    return any(part == "__pycache__" or part.startswith(".") for part in path.parts)


def main() -> int:
    wrong = []
    for name in sys.argv[1:]:
        check = wheel if name.endswith(".whl") else sdist
        wrong += [f"{name}: {line}" for line in check(Path(name))]
    sys.stderr.write("".join(f"{line}\n" for line in wrong))
    return 1 if wrong or len(sys.argv) < 2 else 0


if __name__ == "__main__":
    raise SystemExit(main())
