"""Which further sources a look asks, in their order: a line here for each."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gpufleet_cli import settings_file
from gpufleet_cli.errors import UsageError
from gpufleet_cli.live import exec_dumps, folder_files, rights, stores
from gpufleet_cli.live.gather import Source, Sources
from gpufleet_cli.live.rights import Right

if TYPE_CHECKING:
    from gpufleet_cli.live.session import LiveOptions


def sources_for(options: LiveOptions, context: str | None) -> Sources:
    """Dumps before lost logs: they are gone with their container. Flag over environment over settings file."""
    file = settings_file.load()
    chosen = settings_file.choose("dumps", flag=options.dumps, file=file, context=context)
    after = _dumps(None if chosen is None else chosen.value)
    if options.kernel_logs is not None:
        after.append(_folder(options.kernel_logs, "kernel", "kernel logs"))
    after.append(partial(stores.gather_lost_logs, flag=options.log_store, file=file))
    beside = partial(stores.gather_metrics, flag=options.prometheus, file=file)
    return Sources(beside=(beside,), after=tuple(after))


def rights_for(
    options: LiveOptions, context: str | None, namespace: str, *, many_nodes: bool
) -> tuple[Right, ...]:
    """The rights that a look with these options needs once the job is found."""
    file = settings_file.load()
    dumps = settings_file.choose("dumps", flag=options.dumps, file=file, context=context)
    prometheus = settings_file.choose(
        "prometheus", flag=options.prometheus, file=file, context=context
    )
    wanted = rights.to_read_a_job(namespace, many_nodes=many_nodes)
    if dumps is None or dumps.value.startswith("exec:"):
        wanted += rights.to_exec(namespace)
    return wanted if prometheus is not None else wanted + rights.to_find_services()


def _dumps(stated: str | None) -> list[Source]:
    if stated is None:
        return [exec_dumps.gather]
    kind, _, rest = stated.partition(":")
    if kind == "exec":
        return [partial(exec_dumps.gather, stated=rest)]
    if "://" in stated:
        raise UsageError(f"--dumps {stated}: only exec:/path/prefix_ and a folder can be read yet")
    return [_folder(stated, "dumps", "Flight Recorder dumps")]


def _folder(folder: str, into: str, what: str) -> Source:
    return partial(folder_files.gather, folder=folder, into=into, what=what)
