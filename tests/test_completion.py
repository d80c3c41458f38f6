"""TAB: names from a file, at the right places, without a library and without the network."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from completion_names import Way, keep, shell

from gpufleet_cli import completion
from gpufleet_cli.cli import COMMANDS, main, name_of
from gpufleet_cli.commands.options import STATES
from gpufleet_cli.live import name_cache
from gpufleet_cli.live.name_cache import Names
from gpufleet_cli.render import FORMATS

ROOT = Path(__file__).parents[1]
FORBIDDEN = ("typer", "rich", "yaml", "pydantic", "kubernetes", "httpx", "msgspec", "click")


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """Names of the context that the kubeconfig chooses; the environment of a shell."""
    return keep(monkeypatch, tmp_path)


def names(kept: dict[str, str], line: str) -> list[str] | None:
    """What is offered at the end of a line."""
    found = completion.matches(line.split(" "), kept)
    return None if found is None else found[0]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("gpufleet node ", ["cpu-1", "gpu-node-2", "gpu-node-10"]),
        ("gpufleet node gpu", ["gpu-node-2", "gpu-node-10"]),
        ("gpufleet node nothing", []),
        ("gpufleet node a b", None),
        ("gpufleet nodes ", None),
        ("gpufleet drain-check gpu", ["gpu-node-2", "gpu-node-10"]),
        ("gpufleet drain-check gpu-node-2 c", ["cpu-1"]),
        ("gpufleet drain-check --since-checkpoint ", None),
        ("gpufleet label-gangs -n k", ["kube-system"]),
        ("gpufleet label-gangs ", None),
        ("gpufleet triage tr", ["train-run-7", "train-run-8"]),
        ("gpufleet triage -n other tr", ["train-run-8"]),
        ("gpufleet triage --namespace=train tr", ["train-run-7"]),
        ("gpufleet -n train collect ", ["train-run-7"]),
        ("gpufleet triage pytorchjob/train-run-7", ["pytorchjob/train-run-7"]),
        ("gpufleet triage -n ", ["kube-system", "other", "train"]),
        ("gpufleet triage --namespace k", ["kube-system"]),
        ("gpufleet --context ", ["arn:aws:eks:us-east-1:1:cluster/a", "prod"]),
        ("gpufleet --context other node ", []),
        ("gpufleet explain x --rank 1", ["1", "10", "11"]),
        ("gpufleet explain x --rank ", ["0", "1", "2", "3", "10", "11"]),
        ("gpufleet xid 9", ["9", "90", "91", "92", "93", "94", "95", "96", "97", "98", "99"]),
        ("gpufleet cache r", ["refresh"]),
        ("gpufleet cost re", ["recompute"]),
        ("gpufleet -o json cost s", ["spares"]),
        ("gpufleet cost decide ", None),
        ("gpufleet cost decide --", None),
        ("gpufleet ", None),
        ("gpufleet tri", None),
        ("gpufleet triage --", None),
        ("gpufleet triage -o ", ["text", "json", "yaml", "markdown", "html"]),
        ("gpufleet collect -o ", ["json"]),
        ("gpufleet node --output t", ["text"]),
        ("gpufleet triage x --state st", ["stalled"]),
    ],
)
def test_where_a_name_can_stand(
    kept: dict[str, str], line: str, expected: list[str] | None
) -> None:
    """And nothing where something else stands."""
    found = names(kept, line)
    if expected and line.startswith("gpufleet xid"):
        assert found is not None
        assert "9" in found
        assert all(code.startswith("9") for code in found)
        return
    assert expected == found


def test_values_are_those_of_the_program(kept: dict[str, str]) -> None:
    """What `-o` and `--state` take; completion imports neither."""
    assert list(FORMATS) == names(kept, "gpufleet triage -o ")
    assert list(STATES) == names(kept, "gpufleet triage x --state ")


def test_no_state_no_names(kept: dict[str, str]) -> None:
    """GPUFLEET_NO_STATE=1 neither writes nor reads."""
    assert [] == names({**kept, "GPUFLEET_NO_STATE": "1"}, "gpufleet node ")


def test_another_kubeconfig_with_the_same_context(kept: dict[str, str], tmp_path: Path) -> None:
    """`prod` there is another cluster."""
    other = tmp_path / "other"
    other.write_text('{"current-context": "prod"}', encoding="utf-8")
    assert "prod" == completion.current_context(str(other), kept)
    assert [] == names({**kept, "KUBECONFIG": str(other)}, "gpufleet node ")


def test_what_a_run_met_is_added(kept: dict[str, str]) -> None:
    """A whole fetch begins anew."""
    name_cache.remember(Way(), None, Names(nodes=["gpu-node-3"]))  # type: ignore[arg-type]
    found = ["gpu-node-2", "gpu-node-3", "gpu-node-10"]
    assert found == names(kept, "gpufleet node gpu")
    name_cache.remember(Way(), None, Names(nodes=["b"]), whole=name_cache.KINDS)  # type: ignore[arg-type]
    assert ["b"] == names(kept, "gpufleet node ")


def test_names_that_a_shell_would_run_are_not_kept(kept: dict[str, str]) -> None:
    """What a server calls its objects never reaches an eval."""
    bad = Names(nodes=["a;id", "$(id)", "`id`", "-x", "a'b", "a\tb", "a\nb"])
    name_cache.remember(Way(), None, bad, whole=name_cache.KINDS)  # type: ignore[arg-type]
    assert [] == names(kept, "gpufleet node ")


def test_nodes_of_commands_that_act(kept: dict[str, str]) -> None:
    """As many as are wanted; `queue` offers what it can do first."""
    assert ["gpu-node-2", "gpu-node-10"] == names(kept, "gpufleet cordon gpu")
    assert ["gpu-node-2"] == names(kept, "gpufleet cordon --reason gpu gpu-node-10 gpu-node-2")
    assert ["gpu-node-2", "gpu-node-10"] == names(kept, "gpufleet uncordon cpu-1 gpu")
    assert ["done"] == names(kept, "gpufleet queue ")
    assert ["cpu-1"] == names(kept, "gpufleet queue done gpu-node-2 c")


def test_the_age_is_shown_by_cache_alone(
    kept: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """It is no name."""
    assert 0 == main(["cache"])
    told = capsys.readouterr().out
    assert "prod: 3 nodes, 2 jobs, 3 namespaces; never fetched whole" in told
    assert "ago" in told
    assert not any("ago" in one for one in names(kept, "gpufleet node ") or ())


def test_options_that_take_a_value_are_known(capsys: pytest.CaptureFixture[str]) -> None:
    """Else their value would be taken for a target."""
    takes: set[str] = set()
    topics = (["cost", topic] for topic in completion.COST_TOPICS)
    for words in (*([name_of(command)] for command in COMMANDS), ["cost"], *topics):
        assert 0 == main([*words, "--help"])
        for line in capsys.readouterr().out.splitlines():
            found = re.match(r"^  ((?:-\w, )?--[a-z][a-z-]+(?: / -\S+)?)  ?([A-Z]+)\b", line)
            if found:
                takes |= set(re.findall(r"-{1,2}[a-z][a-z-]*", found[1]))
    assert {"--context", "-n", "--rank", "--to", "--stock-out"} <= takes
    assert set() == takes - completion.WITH_VALUE


def bash(environment: dict[str, str], *words: str) -> tuple[list[str], str]:
    """What bash's own function offers, and the modules that were loaded for it."""
    script = (
        f'source {ROOT}/completions/gpufleet.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
        "_gpufleet_completion gpufleet; printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    done = subprocess.run(
        ["bash", "-c", script, "bash", *words],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split(), done.stderr


def test_bash_asks_its_own_function(kept: dict[str, str], tmp_path: Path) -> None:
    """Nodes, and a context whose name bash breaks at its colons; nothing heavy is loaded."""
    environment = shell(kept, tmp_path)
    found, loaded = bash(environment, "gpufleet", "node", "gpu-")
    assert ["gpu-node-2", "gpu-node-10"] == found
    assert not set(FORBIDDEN) & set(loaded.split())
    for line, told in ((("tri",), "triage"), (("cost", "tail", "--sl"), "--slow-probability")):
        found, loaded = bash(environment, "gpufleet", *line)
        assert told in found
        assert not set(FORBIDDEN) & set(loaded.split())
    found, _ = bash(environment, "gpufleet", "--context", "arn", ":", "aws", ":", "e")
    assert ["eks:us-east-1:1:cluster/a"] == found
    found, _ = bash(environment, "gpufleet", "triage", "--namespace", "=", "k")
    assert ["kube-system"] == found


def test_what_was_typed_is_never_run(
    kept: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The beginning of a job's name is the user's own, and zsh evaluates the answer."""
    typed = "gpufleet triage $(id)}'/train"
    variables = {"_GPUFLEET_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": typed}
    assert 0 == completion.answer({**kept, **variables})
    told = capsys.readouterr().out
    assert "compadd -- '$(id)}/train-run-7' '$(id)}/train-run-8'; _files\n" == told


@pytest.mark.parametrize(
    ("variables", "status", "told"),
    [
        (
            {"_GPUFLEET_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "gpufleet node gpu"},
            0,
            "compadd -- ${(f):-'gpu-node-2\ngpu-node-10'}\n",
        ),
        (
            {"_GPUFLEET_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "gpufleet triage "},
            0,
            "compadd -- ${(f):-'train-run-7\ntrain-run-8'}; _files\n",
        ),
        (
            {"_GPUFLEET_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "gpufleet triage --sa"},
            0,
            '_arguments \'*: :(("--save":"Keep what a job in the cluster left, here."))\'\n',
        ),
        (
            {
                "_GPUFLEET_COMPLETE": "complete_zsh",
                "_TYPER_COMPLETE_ARGS": "gpufleet triage --save b",
            },
            0,
            "_files\n",
        ),
        (
            {
                "_GPUFLEET_COMPLETE": "complete_fish",
                "_TYPER_COMPLETE_FISH_ACTION": "get-args",
                "_TYPER_COMPLETE_ARGS": "gpufleet node gpu",
            },
            0,
            "gpu-node-2\ngpu-node-10\n",
        ),
        (
            {
                "_GPUFLEET_COMPLETE": "complete_fish",
                "_TYPER_COMPLETE_FISH_ACTION": "is-args",
                "_TYPER_COMPLETE_ARGS": "gpufleet node nothing",
            },
            1,
            "",
        ),
    ],
)
def test_what_zsh_and_fish_are_told(
    kept: dict[str, str],
    capsys: pytest.CaptureFixture[str],
    variables: dict[str, str],
    status: int,
    told: str,
) -> None:
    """In the form that each evaluates."""
    assert status == completion.answer({**kept, **variables})
    assert told == capsys.readouterr().out


def test_kubectl_is_told_in_its_own_form(
    kept: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A name a line, then whether files may follow."""
    assert 0 == completion.for_kubectl(["node", "gpu"], kept)
    assert "gpu-node-2\ngpu-node-10\n:4\n" == capsys.readouterr().out
    assert 0 == completion.for_kubectl(["triage", "train-run-7"], kept)
    assert capsys.readouterr().out.endswith(":0\n")
    assert 0 == completion.for_kubectl(["cost", "tail", "--slow"], kept)
    assert "--slow-probability\n--slowdown\n:4\n" == capsys.readouterr().out
    assert 0 == completion.for_kubectl(["postmortem", "./inc"], kept)
    assert ":0\n" == capsys.readouterr().out


def test_install_completion(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Into the user's own files, for the shell of $SHELL."""
    monkeypatch.setenv("SHELL", "/bin/bash")
    assert 0 == main(["--install-completion"])
    home = Path(os.environ["HOME"])
    assert "gpufleet" in (home / ".bashrc").read_text(encoding="utf-8")
    assert "a new shell has it" in capsys.readouterr().out
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    assert 2 == main(["--install-completion"])


def test_kubectl_itself_asks(kept: dict[str, str], tmp_path: Path) -> None:
    """kubectl finds `kubectl_complete-gpufleet` on PATH: names and commands."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not on PATH")
    for name, function in (
        ("kubectl-gpufleet", "main"),
        ("kubectl_complete-gpufleet", "complete_for_kubectl"),
    ):
        program = tmp_path / "plugins" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(
            f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
            f"from gpufleet_cli.entry import {function} as run\nsys.exit(run())\n",
            encoding="utf-8",
        )
        program.chmod(0o755)
    environment = {**kept, "PATH": f"{tmp_path / 'plugins'}:{kept['PATH']}"}
    for words, told in (
        (("node", "gpu"), "gpu-node-2\ngpu-node-10\n:4\n"),
        (("tri",), "triage\n:4\n"),
    ):
        done = subprocess.run(
            [kubectl, "__complete", "gpufleet", *words],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert told == done.stdout
