"""README, docs, --help, exit codes, registries and generated files say what the program does."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import get_args

import accept
import pytest

from gpufleet_cli import __version__, cli, settings_file
from gpufleet_cli.commands.triage import DETAILED
from gpufleet_cli.completion import COST_TOPICS
from gpufleet_cli.cordon_card import GATE
from gpufleet_cli.errors import ExitCode
from gpufleet_cli.evict_card import EvictCard, Outcome, Step
from gpufleet_cli.parsers.registry import PARSERS
from gpufleet_cli.render import FORMATS
from gpufleet_cli.render.evict_page import evict_json
from gpufleet_cli.rules import RULES
from gpufleet_cli.settings_file import Access, ContextSettings
from gpufleet_cli.verdict import SCHEMA, Action, JobState, Kind
from scripts import manual

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
WORDS_OF_README = 2_200
BY_HAND = ("acting", "cluster", "costs", "drill", "reading", "settings")
"""Pages of docs/ whose options and tables are compared here; others have a test of their own."""
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def page(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def table(head: str, text: str = README) -> dict[str, str]:
    """First and second column of the tables with this first title; several make one."""
    rows: dict[str, str] = {}
    for part in text.split(f"| {head} | ")[1:]:
        rows |= rows_of(part)
    assert rows, head
    return rows


def rows_of(part: str) -> dict[str, str]:
    lines = part.splitlines()[2:]
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


def test_the_readme_is_short() -> None:
    """It is read at 3am; what is longer stands in docs/."""
    assert len(README.split()) < WORDS_OF_README


def options_of(text: str) -> set[str]:
    """The options of gpufleet that a page names; those of kubectl's own commands are kubectl's."""
    own = re.sub(r"kubectl (?!gpufleet)[^|`\n]*", "", text)
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", own))


def test_every_option_of_the_readme_and_docs_exists(capsys: pytest.CaptureFixture[str]) -> None:
    """No flag is promised that is not there."""
    shown = "".join(help_of(cli.name_of(command), capsys=capsys) for command in cli.COMMANDS)
    shown += "".join(help_of("cost", topic, capsys=capsys) for topic in COST_TOPICS)
    shown += help_of(capsys=capsys)
    known = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", shown))
    texts = {name: page(name) for name in BY_HAND} | {"README": README.split("## Development")[0]}
    for name, text in texts.items():
        found = options_of(text)
        assert found, name
        assert found - known == set(), name


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
    assert [rule.NAME for rule in RULES] == list(table("rule", page("reading")))


def test_every_format_has_a_row() -> None:
    """A format that is read is promised, and the other way round."""
    names = {parser.__name__.rsplit(".", 1)[-1] for parser in PARSERS}
    assert names == set(table("format", page("reading")))


def test_every_cost_topic_has_a_row() -> None:
    """In the order of `gpufleet cost --help`."""
    assert list(COST_TOPICS) == list(table("topic", page("costs")))


def test_every_item_of_the_gate_has_a_row() -> None:
    """What `queue done` asks."""
    assert list(GATE) == list(table("item", page("acting")))


def test_every_key_of_evict_json_has_a_row() -> None:
    """docs/acting.md names each key of `gpufleet.evict/v1`, and no other."""
    names = {name for keys in table("key", page("acting")) for name in re.findall(r"\w+", keys)}
    card = EvictCard(outcome="refused", why="it runs well", code=int(ExitCode.REFUSED))
    assert names | {"schema"} == set(json.loads(evict_json(card)))
    for word in (*get_args(Outcome), *get_args(Step)):
        assert f"`{word}`" in page("acting")


def test_every_key_of_the_settings_file_has_a_row(tmp_path: Path) -> None:
    """And the example of the page is one that the program takes."""
    of_context = {one.name.removesuffix("_s") for one in fields(ContextSettings)} - {"access"}
    access = {one.name for one in fields(Access)}
    assert set(table("key", page("settings"))) == of_context | access
    file = tmp_path / "config.toml"
    file.write_text(page("settings").split("```toml\n")[1].split("```")[0], encoding="utf-8")
    assert settings_file.load(file).of("prod").owner == "ml-platform"


def test_every_variable_has_a_row() -> None:
    """Those that the code reads, and the one of the single file."""
    named = {name for name in manual.ENVIRONMENT if name.startswith("GPUFLEET_")}
    assert set(table("variable", page("settings"))) == named | {"GPUFLEET_UNPACK"}


def anchors(text: str) -> set[str]:
    """The places that a link can name: headings, as the forges write them."""
    heads = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head).strip().lower().replace(" ", "-") for head in heads}


DOCUMENTS = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md")
    for path in ROOT.glob(pattern)
)  # fmt: skip


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    """Each relative link names a file of the repository, and a heading that it has."""
    text = re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        assert target.exists(), link
        assert target.is_relative_to(ROOT.resolve()), link
        if anchor:
            assert anchor in anchors(target.read_text(encoding="utf-8")), link


def test_paths_of_the_readme_s_commands_are_in_the_clone() -> None:
    """Who pastes them in a clone has the files."""
    for name in set(re.findall(r"(?:fixtures|deploy)/[\w./-]*\w", README)):
        assert (ROOT / name).exists(), name


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
    table = ROOT / "gpufleet_cli" / "data" / "words.csv"
    assert accept.words() == table.read_text(encoding="utf-8"), "run make accept"


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
