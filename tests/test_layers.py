"""Imports point down, and the third parties have few doors (style: the house and its layers)."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "gpufleet_cli"

# A module may import from its own rank's ranks below; modules of one rank may not import each
# other, but for the parts of one folder and the pairs of TOGETHER.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("completion_scripts", "completion_words"),
    ("errors", "timestamps", "plain_text", "completion", "whole_file"),
    ("facts",),
    ("guard", "xid_tables", "step_points", "node_card", "dump_copy", "attempt_token"),
    (
        "gang_card",
        "mark_card",
        "drain_card",
        "source_check",
        "cordon_card",
        "spec_check",
        "history_card",
        "watch_card",
        "alert_card",
        "evict_card",
    ),
    ("verdict", "xid_catalog", "redact"),
    ("postmortem_card",),
    ("unpack",),
    ("archive", "evidence"),
    ("manifest",),
    ("bundle", "settings"),
    ("settings_file",),
    ("sources", "parsers"),
    ("spare_facts",),
    ("spares",),
    ("reason",),
    ("rules",),
    ("alike",),
    ("stories",),
    ("weigh",),
    ("chances", "cost_card"),
    ("cost",),
    ("cost_fleet", "repeats"),
    ("cost_topics",),
    ("prices",),
    ("next_commands",),
    ("recommend",),
    ("render",),
    ("history",),
    ("triage", "crash"),
    ("live",),
    ("operate",),
    ("commands",),
    ("cli",),
    ("entry",),
    ("__main__",),
)
TOGETHER = {
    "parsers",
    "reason",
    "rules",
    "render",
    "sources",
    "live",
    "operate",
    "commands",
    "history",
}

DOORS: dict[str, tuple[str, ...]] = {
    "kubernetes": ("live/access", "operate/cluster"),
    "websocket": ("live/exec_socket",),
    "urllib3": ("live/access", "live/api", "live/kubectl_proxy"),
    "httpx": ("live/http_source", "operate/notify"),
    "yaml": (
        "live/access",
        "render/structured",
        "render/alert_rules",
        "operate/preflight",
        "parsers/kubernetes_yaml",
    ),
    "fsspec": ("live/shared_files",),
    "obstore": ("live/shared_files",),
    "distributed": ("operate/fleet/on_dask",),
    "socks": ("live/exec_socket",),
    "dateutil": ("timestamps",),
    "typer": ("cli", "commands/"),
    "rich": ("cli", "commands/", "render/terminal"),
    "zstandard": ("unpack", "archive", "live/pack", "reason/parts"),
}
# Pure: no network, no clock, no environment, no randomness.
PURE = (
    "parsers/",
    "reason/",
    "rules/",
    "weigh",
    "chances",
    "cost",
    "prices",
    "next_commands",
    "recommend",
    "facts",
    "verdict",
    "spares",
    "spare_facts",
    "repeats",
    "history/record",
    "history/tally",
)
MAY: dict[str, set[str]] = {
    # How many processors may be used; no fact depends on it.
    "parsers/worker_pool": {"os"},
}
IMPURE = {"socket", "requests", "httpx", "urllib", "time", "random", "secrets", "os", "subprocess"}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def shown(path: Path) -> str:
    return str(path.relative_to(PACKAGE).with_suffix(""))


def part(name: str) -> str:
    """The first part below the package: `parsers/lines/nccl` belongs to `parsers`."""
    return name.replace(".", "/").split("/")[0]


@cache
def imports(path: Path, *, lazy: bool = True) -> tuple[str, ...]:
    """Absolute names of the modules that a file imports, type checking only left out."""
    return tuple(_imports(path, lazy=lazy))


def _imports(path: Path, *, lazy: bool) -> Iterator[str]:
    for node in _nodes(ast.parse(path.read_text(encoding="utf-8")), lazy=lazy):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                deeper = f"{node.module}.{alias.name}"
                is_module = (PACKAGE.parent / (deeper.replace(".", "/") + ".py")).is_file()
                yield deeper if is_module or node.module == "gpufleet_cli" else node.module


def _nodes(tree: ast.AST, *, lazy: bool) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if not lazy and isinstance(node, ast.FunctionDef):
            continue
        yield node
        yield from _nodes(node, lazy=lazy)


def rank_of(name: str) -> int:
    for rank, layer in enumerate(LAYERS):
        if part(name) in layer:
            return rank
    raise AssertionError(f"{name} stands in no layer: add it to LAYERS and to ARCHITECTURE.md")


@pytest.mark.parametrize("path", modules(), ids=shown)
def test_imports_point_down(path: Path) -> None:
    """A module knows what is below it and nothing else."""
    name = shown(path)
    if name == "__init__":
        return
    for imported in imports(path):
        if not imported.startswith("gpufleet_cli."):
            continue
        below = imported.removeprefix("gpufleet_cli.")
        if below == "__version__":
            continue
        if part(below) == part(name):
            assert part(name) in TOGETHER, f"{name} imports itself"
        else:
            assert rank_of(below) < rank_of(name), f"{name} imports {below}, which is not below it"


@pytest.mark.parametrize("path", modules(), ids=shown)
def test_third_parties_have_few_doors(path: Path) -> None:
    """A library is met in one place, so that it can be replaced there."""
    name = shown(path)
    for imported in imports(path):
        doors = DOORS.get(imported.split(".")[0])
        if doors is not None:
            assert any(name == door or name.startswith(door) for door in doors), (
                f"{name} imports {imported}; its doors are {', '.join(doors)}"
            )


@pytest.mark.parametrize("path", modules(), ids=shown)
def test_the_inside_is_pure(path: Path) -> None:
    """Same bundle, same bytes: no clock, network, environment or randomness in the reasoning."""
    name = shown(path)
    if name.startswith(PURE):
        met = IMPURE & {imported.split(".")[0] for imported in imports(path)}
        assert met <= MAY.get(name, set()), name


@pytest.mark.parametrize("path", modules(), ids=shown)
def test_nothing_foreign_is_imported(path: Path) -> None:
    """Every library that the package imports is declared."""
    declared = {"gpufleet_cli", "msgspec", "re2", *DOORS}
    for imported in imports(path):
        top = imported.split(".")[0]
        assert top in sys.stdlib_module_names or top in declared, (
            f"{shown(path)} imports {imported}"
        )


def test_variants_do_not_import_their_package_file() -> None:
    """A module is the plugin; the registry knows it, not the other way round."""
    for folder in ("parsers", "rules", "sources"):
        for path in sorted((PACKAGE / folder).glob("*.py")):
            if path.name != "__init__.py":
                assert f"gpufleet_cli.{folder}" not in set(imports(path)), shown(path)


def test_modules_stay_short() -> None:
    """About 400 lines; 500 is where a module has to be two."""
    long = {shown(path): len(path.read_text(encoding="utf-8").splitlines()) for path in modules()}
    allowed = {"facts": 1_000}  # one record per kind of fact, in one place
    assert not {name: lines for name, lines in long.items() if lines > allowed.get(name, 500)}


def test_names_say_something() -> None:
    """A module named helpers collects everything."""
    banned = {"utils", "util", "helpers", "helper", "core", "common", "misc"}
    assert not banned & {part for path in modules() for part in path.relative_to(PACKAGE).parts}
    assert not banned & {path.stem for path in modules()}


def test_only_commands_and_actions_reach_the_cluster() -> None:
    """What lies on disk is read without the live part, practice too, and the live part judges nothing."""
    for path in modules():
        name = shown(path)
        reached = {
            part(one.removeprefix("gpufleet_cli."))
            for one in imports(path)
            if one.startswith("gpufleet_cli.")
        }
        acts = part(name) == "operate" and not name.startswith(
            ("operate/simulate", "operate/drill")
        )
        if part(name) not in ("live", "commands") and not acts:
            assert "live" not in reached, name
        if part(name) == "live":
            assert not reached & {"reason", "rules", "render", "weigh", "triage"}, name


def test_the_cluster_is_not_loaded_for_files() -> None:
    """Commands import the live part, and with it the client library, inside functions."""
    for path in modules():
        if part(shown(path)) in ("commands", "cli", "entry"):
            assert not [
                one for one in imports(path, lazy=False) if one.startswith("gpufleet_cli.live")
            ]
