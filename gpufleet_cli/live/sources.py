"""Which further sources a look asks, in their order: a line here for each."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gpufleet_cli import settings_file
from gpufleet_cli.live import (
    capture,
    exec_dumps,
    folder_files,
    object_dumps,
    restart_room,
    rights,
    stores,
)
from gpufleet_cli.live.gather import Source, Sources
from gpufleet_cli.live.rights import Right

if TYPE_CHECKING:
    from gpufleet_cli.live.session import LiveOptions


def sources_for(options: LiveOptions, context: str | None) -> Sources:
    """Dumps before lost logs: they are gone with their container. Flag over environment over settings file."""
    file = settings_file.load()
    chosen = settings_file.choose("dumps", flag=options.dumps, file=file, context=context)
    after = _dumps(chosen)
    if options.capture:
        stated = file.of(context).watchdog_timeout_s
        after.insert(0, partial(capture.gather, watchdog=_watchdog(options, stated)))
    if options.kernel_logs is not None:
        after.append(_folder(options.kernel_logs, "kernel", "kernel logs"))
    after.append(partial(stores.gather_lost_logs, flag=options.log_store, file=file))
    beside = partial(stores.gather_metrics, flag=options.prometheus, file=file)
    return Sources(beside=(beside, restart_room.gather), after=tuple(after))


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
    if prometheus is None:
        return wanted + rights.to_find_services()
    return wanted + rights.to_reach(prometheus.value, stores.XIDS)


def _watchdog(options: LiveOptions, file_s: float | None) -> capture.Watchdog:
    """Flag over settings file over torch's default."""
    if options.watchdog_s is not None:
        return capture.Watchdog(timeout_s=options.watchdog_s, source=options.watchdog_source)
    if file_s is not None:
        return capture.Watchdog(timeout_s=file_s, source="the settings file")
    return capture.Watchdog()


def _dumps(chosen: settings_file.Chosen | None) -> list[Source]:
    if chosen is None:
        return [exec_dumps.gather]
    kind, _, rest = chosen.value.partition(":")
    if kind == "exec":
        return [partial(exec_dumps.gather, stated=rest)]
    if "://" in chosen.value:
        return [partial(object_dumps.gather, location=chosen.value)]
    return [_folder(chosen.value, "dumps", "Flight Recorder dumps")]


def _folder(folder: str, into: str, what: str) -> Source:
    return partial(folder_files.gather, folder=folder, into=into, what=what)
