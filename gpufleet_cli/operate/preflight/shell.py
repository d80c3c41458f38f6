"""What a container runs: command and args, or the script behind `sh -c`, as simple commands.

No shell is run and none is fully understood: what cannot be told apart stays text, and a variable whose
value is not in the spec stays `$NAME`, which every rule takes as not known.

>>> script = 'set -e\\nexport A=1; cd /w && B=2 torchrun --nnodes=$N \\\\\\n  train.py --save /ckpt'
>>> told = commands_of(("bash", "-c", script), {"N": "4"})
>>> told.commands[-1], told.exports["A"]
(('torchrun', '--nnodes=4', 'train.py', '--save', '/ckpt'), '1')
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

Env = Mapping[str, str | None]
"""Values by name; None where it is set and the spec does not say to what."""

Words = tuple[str, ...]
MOST_CHARS = 8_192
"""So much may variables add to one word."""
MOST_TEXT = 4_000_000
"""So much may they make of one container; behind it all stays as it is written."""
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh"})
_SEPARATOR = re.compile(r"[;&|\n]+")
_HEREDOC = re.compile(r"(?<!<)<<-?[ \t]{0,4}['\"]?(\w{1,40})")
_COMMENT = re.compile(r"(?:^|\s)#(?=\s|!|$)[^\n]*|^[ \t]*#[^\n]*", re.MULTILINE)
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:\((\w+)\)|\{(\w+)(?::?-([^{}]*))?\}|(\w+))")
_BEFORE = frozenset(
    {"exec", "then", "do", "else", "if", "while", "!", "{", "(", "nohup", "time", "sudo", "elif"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Simple commands in their order, what the script exports, and all of it as text."""

    commands: tuple[Words, ...]
    exports: Env
    text: str


def commands_of(words: Sequence[str], env: Env) -> Told:
    """The commands of a container; of `sh -c SCRIPT` those of the script."""
    left = MOST_TEXT

    def put_in(word: str, known: Env, *, in_shell: bool = True) -> str:
        nonlocal left
        if left <= 0:
            return word
        text = expanded(word, known, in_shell=in_shell)
        left -= len(text)
        return text

    plain = [put_in(word, env, in_shell=False) for word in words]
    script = _script(plain)
    text = " ".join(plain)
    if script is None:
        return Told(commands=(tuple(plain),) if plain else (), exports={}, text=text)
    exports: dict[str, str | None] = {}
    found: list[Words] = []
    known = dict(env)
    for command in _split(script):
        rest = _assignments(command, exports, known, put_in)
        if rest:
            found.append(tuple(put_in(word, known) for word in rest))
    return Told(commands=tuple(found), exports=exports, text=text)


def expanded(text: str, env: Env, *, in_shell: bool) -> str:
    """Known variables put in: `$(NAME)` by the kubelet, `$NAME` and `${NAME:-else}` by a shell.

    What would grow beyond any sane argument stays as it is written, which counts as not known.
    """
    left = MOST_CHARS

    def value(match: re.Match[str]) -> str:
        nonlocal left
        name = match[1] or match[2] or match[4]
        if match[1] is None and not in_shell:
            return match[0]
        known = env.get(name)
        if known is not None:
            left -= len(known)
            return known if left >= 0 else match[0]
        if match[3] is not None and name not in env and "$" not in match[3]:
            return match[3]
        return match[0]

    return _VARIABLE.sub(value, text)


def is_open(text: str | None) -> bool:
    """Whether a value is known only when the container runs."""
    return text is None or "$" in text or "`" in text


def _script(words: Sequence[str]) -> str | None:
    """The text behind `sh -c`, also behind `env` or `exec`, or a script given as one word."""
    for index, word in enumerate(words[:6]):
        if word.rpartition("/")[2] in _SHELLS:
            for at in range(index + 1, min(index + 6, len(words))):
                if re.fullmatch(r"-[a-z]*c[a-z]*", words[at]) and at + 1 < len(words):
                    behind = at + 1
                    while behind < len(words) - 1 and words[behind].startswith("-"):
                        behind += 1
                    return words[behind]
            return None
    if len(words) == 1 and re.search(r"\s", words[0].strip()):
        return words[0]
    return None


def _split(script: str) -> Iterator[list[str]]:
    """Simple commands as words."""
    text = script.replace("\\\r\n", " ").replace("\\\n", " ")
    text = _COMMENT.sub("", _without_here_documents(text))
    try:
        words = _tokens(text)
    except ValueError:  # a quote that never ends: line by line is better than nothing
        words = []
        for line in text.splitlines():
            words += [*line.split(), "\n"]
    command: list[str] = []
    for word in [*words, "\n"]:
        if _SEPARATOR.fullmatch(word):
            while command and command[0] in _BEFORE:
                command.pop(0)
            if command:
                yield command
            command = []
        else:
            command.append(word)


def _without_here_documents(script: str) -> str:
    """The script without what it feeds to its commands; a mark that never comes again begins nothing."""
    lines = script.split("\n")
    last = {line.strip(): number for number, line in enumerate(lines)}
    kept: list[str] = []
    mark: str | None = None
    for number, line in enumerate(lines):
        if mark is not None:
            mark = None if line.strip() == mark else mark
            continue
        begun = _HEREDOC.search(line)
        if begun is not None and last.get(begun[1], -1) > number:
            mark, line = begun[1], line[: begun.start()]
        kept.append(line)
    return "\n".join(kept)


def _tokens(text: str) -> list[str]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|\n")
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    lexer.commenters = ""
    return list(lexer)


def _assignments(
    command: list[str],
    exports: dict[str, str | None],
    known: dict[str, str | None],
    put_in: Callable[[str, Env], str],
) -> list[str]:
    """The command without `export A=1`, `A=1 B=2` and `env A=1` before it, which go to `exports` and to all
    that is `known`."""
    words = list(command)
    if words[0] in ("export", "env", "declare", "local", "readonly"):
        words.pop(0)
        while words and words[0].startswith("-"):
            words.pop(0)
    while words and (match := _ASSIGNED.fullmatch(words[0])) is not None:
        value = put_in(match[2], known)
        exports[match[1]] = known[match[1]] = None if is_open(value) else value
        words.pop(0)
    return words if command[0] != "export" else []
