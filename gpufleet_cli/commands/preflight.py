"""`gpufleet preflight FILE...|JOB`: will the next incident of this job be diagnosable and survivable?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gpufleet_cli.commands.live_options import Live
from gpufleet_cli.commands.options import one_of
from gpufleet_cli.commands.output import emit, look, say
from gpufleet_cli.errors import ExitCode, TargetError, UsageError
from gpufleet_cli.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpufleet_cli.node_card import Spares
    from gpufleet_cli.operate.preflight.documents import Document, Unread

_ENDINGS = (".yaml", ".yml", ".json")


def preflight(
    *,
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE...|JOB",
            help="Manifests (also a folder, also - for standard input), or a job in the cluster.",
            show_default=False,
        ),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option("--ignore", metavar="ID=REASON", help="Silence a finding, and say why."),
    ] = None,
    live: Live,
    settings: Settings,
) -> int:
    """Say whether the next incident can be diagnosed and survived.

    The job's manifests are checked, or the job as it is in the cluster.
    Exit status: 0 nothing at warning or above, 10 something, 4 nothing could be read, 2 usage.

    Examples:
      gpufleet preflight job.yaml
      helm template . | gpufleet preflight -
      gpufleet preflight train-run-7 -n train -o json
    """
    output = one_of(settings.output, ("text", "json", "yaml"))
    given = list(targets or [])
    if not given and live.selector is None:
        raise UsageError("nothing to check", hint="give FILE..., - or the name of a job")
    if given and live.selector is not None:
        raise UsageError("JOB and -l are two ways to say one thing", hint="give one of them")
    from gpufleet_cli.operate.preflight.check import IDS, checked
    from gpufleet_cli.render.preflight_page import preflight_document, preflight_text
    from gpufleet_cli.render.structured import dumped

    ignored = _reasons(ignore or [], IDS)
    if live.selector is not None or (len(given) == 1 and _is_job(given[0])):
        documents, unread, spares = _of_cluster(given[0] if given else None, live, settings)
    else:
        documents, unread = _of_files(given)
        spares = {}
    found = checked(documents, unread, ignored, spares)
    if not found.read:
        raise TargetError(
            _nothing(given, unread), hint="a file with a Job, JobSet, PyTorchJob, ..."
        )
    if output == "text":
        emit(preflight_text(found, look(settings)))
    else:
        emit(dumped(preflight_document(found), output))
    return ExitCode.FIX_OR_WATCH if found.stands else ExitCode.OK


def _nothing(given: list[str], unread: list[Unread]) -> str:
    if unread:
        return f"{unread[0].source} could not be read: {unread[0].why}"
    return f"no workload in {', '.join(given) or 'what was selected'}"


def _reasons(given: list[str], known: frozenset[str]) -> dict[str, str]:
    reasons: dict[str, str] = {}
    for one in given:
        name, _, reason = (part.strip() for part in one.partition("="))
        if not reason:
            raise UsageError(f"--ignore {one!r} has no reason", hint="write --ignore ID=REASON")
        if name not in known:
            raise UsageError(f"--ignore {name!r} is no id", hint="docs/preflight.md lists them")
        reasons[name] = reason
    return reasons


def _of_files(given: list[str]) -> tuple[list[Document], list[Unread]]:
    """Files as far as they are there."""
    from gpufleet_cli.operate.preflight.documents import read_text

    documents: list[Document] = []
    unread: list[Unread] = []
    for name in given:
        for source, data in _files(name, unread):
            found, broken = read_text(source, data)
            documents += found
            unread += broken
    return documents, unread


def _is_job(name: str) -> bool:
    """Whether the one name that was given is no file, and so a job in the cluster."""
    if name == "-" or name.startswith(("/", "./", "../")) or name.endswith(_ENDINGS):
        return False
    return _kind_of(Path(name)) is None


def _kind_of(path: Path) -> Literal["folder", "file"] | None:
    """What lies there; a name that is too long for one names nothing."""
    try:
        return "folder" if path.is_dir() else "file" if path.exists() else None
    except OSError:
        return None


def _files(name: str, unread: list[Unread]) -> list[tuple[str, bytes]]:
    """The files of one argument with their content: one, standard input, or a folder's manifests."""
    from gpufleet_cli.operate.preflight.documents import Unread

    if name == "-":
        if sys.stdin.isatty():
            say("paste the manifests, then press Ctrl-D")
        return [("stdin", sys.stdin.buffer.read())]
    path = Path(name)
    is_folder = _kind_of(path) == "folder"
    every = path.rglob("*") if is_folder else ()
    inside = sorted(one for one in every if one.suffix in _ENDINGS and one.is_file())
    found: list[tuple[str, bytes]] = []
    for one in inside if is_folder else [path]:
        try:
            found.append((str(one), one.read_bytes()))
        except OSError as exc:
            unread.append(Unread(source=str(one), why=(exc.strerror or "cannot read").lower()))
    if is_folder and not inside:
        unread.append(Unread(source=name, why="no .yaml, .yml or .json in this folder"))
    return found


def _of_cluster(
    name: str | None, live: Live, settings: Settings
) -> tuple[list[Document], list[Unread], Mapping[str, Spares]]:
    from gpufleet_cli.live.job_objects import read
    from gpufleet_cli.operate.preflight.documents import Document, Unread

    found = read(live.options(name, settings, is_triage=name is not None))
    documents = [Document(source=found.namespace, raw=one) for one in found.objects]
    unread = [Unread(source=what, why=why, is_beside=True) for what, why in found.unread]
    return documents, unread, found.spares
