"""README, --help, exit codes, registries and generated files say what the program does."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import accept
import pytest

from gpufleet_cli import __version__, cli
from gpufleet_cli.commands.triage import DETAILED
from gpufleet_cli.completion import COST_TOPICS
from gpufleet_cli.errors import ExitCode
from gpufleet_cli.parsers.registry import PARSERS
from gpufleet_cli.render import FORMATS
from gpufleet_cli.rules import RULES
from gpufleet_cli.verdict import SCHEMA, Action, JobState, Kind

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def table(head: str) -> dict[str, str]:
    """First and second column of the README's table with this first title."""
    lines = README.split(f"| {head} | ")[1].splitlines()[2:]
    rows: dict[str, str] = {}
    for line in lines:
        if not line.startswith("|"):
            break
        first, second = line.strip("|").split("|")[:2]
        rows[first.strip().strip("`")] = second.strip()
    return rows


def help_of(*arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main([*arguments, "--help"]) == 0
    return capsys.readouterr().out


def test_every_command_is_in_the_readme(capsys: pytest.CaptureFixture[str]) -> None:
    """And in --help, and nowhere else."""
    names = [cli.name_of(command) for command in (*cli.COMMANDS, *cli.GROUPS)]
    assert names == list(table("command"))
    shown = help_of(capsys=capsys).split("Commands:")[1]
    assert names == re.findall(r"^  ([\w-]+)  ", shown, re.MULTILINE)


def test_every_option_of_the_readme_exists(capsys: pytest.CaptureFixture[str]) -> None:
    """No flag is promised that is not there."""
    shown = "".join(help_of(cli.name_of(command), capsys=capsys) for command in cli.COMMANDS)
    shown += "".join(help_of("cost", topic, capsys=capsys) for topic in COST_TOPICS)
    text = README.split("## Development")[0].split("## Use")[1]
    for option in set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)):
        assert option in shown, option


def test_numbers_of_job_json_have_flags(capsys: pytest.CaptureFixture[str]) -> None:
    """The flags of the contract, spelled as there."""
    shown = help_of("triage", capsys=capsys)
    for option in ("--world-size", "--gpus-per-node", "--state", "--checkpoint-interval",
                   "--last-checkpoint-at", "--last-checkpoint-step", "--step-seconds",
                   "--watchdog-timeout", "--restart", "--as-of", "--follow-links", "--brief",
                   "--detailed-exitcode", "-o,", "-v,", "-n,", "--no-color", "--deadline",
                   "--context", "--kubeconfig", "--version"):  # fmt: skip
        assert option in shown


def test_exit_codes() -> None:
    """Every code has a row, every row a code."""
    assert [str(int(code)) for code in ExitCode] == list(table("code"))


def test_detailed_exit_codes_name_their_actions() -> None:
    """10, 20, 21 and 22, as the program gives them; no other action has one."""
    rows = table("code")
    for action, code in DETAILED.items():
        assert action in rows[str(int(code))]
    assert set(DETAILED) == {action.value for action in Action} - {"none", "collect-more"}


def test_every_rule_has_a_row() -> None:
    """In the order of work."""
    assert [rule.NAME for rule in RULES] == list(table("rule"))


def test_every_format_has_a_row() -> None:
    """A format that is read is promised, and the other way round."""
    names = {parser.__name__.rsplit(".", 1)[-1] for parser in PARSERS}
    assert names == set(table("format"))


def test_outputs_and_actions_are_named() -> None:
    """As `-o` takes them, and as the report says them."""
    for name in FORMATS:
        assert re.search(rf"`(-o )?{name}`", README), name
    for action in Action:
        assert f"`{action.value}`" in README


def test_schema_names_every_word() -> None:
    """Kinds, actions and states of the schema are those of the program."""
    path = ROOT / "gpufleet_cli" / "schema" / "triage-v1.schema.json"
    schema = json.loads(path.read_text(encoding="utf-8"))["properties"]
    assert SCHEMA == schema["schema"]["const"]
    assert [kind.value for kind in Kind] == schema["verdict"]["properties"]["kind"]["enum"]
    actions = schema["recommendation"]["properties"]["action"]["enum"]
    assert [action.value for action in Action] == actions
    assert [state.value for state in JobState] == schema["job"]["properties"]["state"]["enum"]


def test_scripts_and_version() -> None:
    """Two commands, one program; and what kubectl asks for its completion."""
    assert PROJECT["project"]["scripts"] == {
        "gpufleet": "gpufleet_cli.entry:main",
        "kubectl-gpufleet": "gpufleet_cli.entry:main",
        "kubectl_complete-gpufleet": "gpufleet_cli.entry:complete_for_kubectl",
    }
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_every_requirement_is_pinned() -> None:
    """Both commands of the README install the same versions next year."""
    pinned = {
        line.split("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    }
    project = PROJECT["project"]
    extras = project["optional-dependencies"].values()
    wanted = [*project["dependencies"], *(one for extra in extras for one in extra)]
    for requirement in wanted:
        name = re.split(r"[><=!~\[ ;]", requirement)[0].lower().replace("_", "-")
        assert name in pinned, name
    assert README.count("-c constraints.txt") == 2


def test_completions_are_those_of_the_program() -> None:
    """`make accept` writes them."""
    for shell, name in accept.COMPLETIONS.items():
        kept = (ROOT / "completions" / name).read_text(encoding="utf-8")
        assert kept == accept.completion(shell)


def test_example_of_the_readme_is_true() -> None:
    """The terminal example is what the program prints for the bundled incident."""
    assert README == accept.readme()


def test_make_targets() -> None:
    """Those that are documented."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^([a-z]+):.*## ", text, re.MULTILINE)
    assert targets == [
        "help", "dev", "servers", "test", "lint", "fix", "accept", "dist", "wheelhouse", "onefile",
    ]  # fmt: skip
