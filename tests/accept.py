"""Rewrite what is generated from the program and kept in the repository; the diff is reviewed.

python tests/accept.py           write the completion files, the manual (docs/commands, man), the README's example and the
                                 rules of docs/preflight.md
python tests/accept.py --check   exit 1 if they differ from what the program says
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
MANUAL = ("docs/commands", "man")
COMPLETIONS = {"bash": "gpufleet.bash", "zsh": "_gpufleet", "fish": "gpufleet.fish"}
EXAMPLE = ["triage", "fixtures/train-run-7"]
_START = "from gpufleet_cli.entry import main; raise SystemExit(main())"
START, END = "<!-- example:start -->", "<!-- example:end -->"
RULES_START, RULES_END = "<!-- rules:start -->", "<!-- rules:end -->"


def run(arguments: list[str], **environment: str) -> str:
    """What the program prints, in a look that does not depend on who asks."""
    plain = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "GPUFLEET_NO_STATE": "1", **environment}
    command = [sys.executable, "-c", _START, *arguments]
    done = subprocess.run(command, cwd=ROOT, env=plain, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        raise SystemExit(f"{' '.join(command)} failed: {done.stderr.strip()}")
    return done.stdout


def completion(shell: str) -> str:
    """The script for one shell, as the program gives it."""
    return run([], _GPUFLEET_COMPLETE=f"source_{shell}").strip() + "\n"


def readme() -> str:
    """The README with the true output of the bundled incident."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    before, rest = text.split(START)
    _, after = rest.split(END)
    shown = f"```console\n$ gpufleet {' '.join(EXAMPLE)}\n{run(EXAMPLE).rstrip()}\n```"
    return f"{before}{START}\n{shown}\n{END}{after}"


def preflight() -> str:
    """The manual of `preflight` with the table of its rules."""
    from gpufleet_cli.operate.preflight.registry import THEMES

    text = (ROOT / "docs" / "preflight.md").read_text(encoding="utf-8")
    before, rest = text.split(RULES_START)
    _, after = rest.split(RULES_END)
    lines = ["| id | severity | looks for | why |", "|---|---|---|---|"]
    for theme, rules in THEMES:
        lines.append(f"| **{theme}** | | | |")
        lines += [f"| `{r.id}` | {r.severity} | {r.looks_for} | {r.why} |" for r in rules]
    return f"{before}{RULES_START}\n{chr(10).join(lines)}\n{RULES_END}{after}"


def manual() -> dict[Path, str]:
    """A page for each command, in Markdown and as a man page."""
    if str(ROOT) not in sys.path:  # started as a script
        sys.path.insert(0, str(ROOT))
    from scripts import manual as made

    return {ROOT / path: content for path, content in made.files().items()}


def words() -> str:
    """Each command and each option with the first sentence of its help, for the shell's TAB."""
    if str(ROOT) not in sys.path:  # started as a script
        sys.path.insert(0, str(ROOT))
    from scripts import manual as made

    return "".join(f"{','.join(row)}\n" for row in made.words())


def stale() -> list[Path]:
    """Pages of commands that are no more."""
    kept = manual()
    found = (path for folder in MANUAL for path in sorted((ROOT / folder).glob("*.*")))
    return [path for path in found if path not in kept]


def generated() -> dict[Path, str]:
    """Every generated file with the content that it should have."""
    files = {ROOT / "completions" / name: completion(shell) for shell, name in COMPLETIONS.items()}
    files |= manual()
    files[ROOT / "gpufleet_cli" / "data" / "words.csv"] = words()
    return {**files, ROOT / "README.md": readme(), ROOT / "docs" / "preflight.md": preflight()}


def main() -> int:
    different = [
        (path, content)
        for path, content in generated().items()
        if not path.exists() or path.read_text(encoding="utf-8") != content
    ]
    for path, content in different:
        print(path.relative_to(ROOT))
        if "--check" not in sys.argv:
            path.parent.mkdir(exist_ok=True)
            path.write_text(content, encoding="utf-8")
    gone = stale()
    for path in gone:
        print(f"{path.relative_to(ROOT)} (no such command)")
        if "--check" not in sys.argv:
            path.unlink()
    return 1 if (different or gone) and "--check" in sys.argv else 0


if __name__ == "__main__":
    raise SystemExit(main())
