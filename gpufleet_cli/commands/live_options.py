"""Options that say which job of the cluster is meant and where its evidence lies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from gpufleet_cli.settings import Settings, parse_duration

if TYPE_CHECKING:
    from gpufleet_cli.live.session import LiveOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """What the command line says about a job in the cluster; nothing of it matters for files."""

    selector: str | None
    attempt: int | None
    group: int | None
    at: str | None
    lookback: str
    dumps: str | None
    prometheus: str | None
    log_store: str | None
    kernel_logs: str | None
    capture: bool

    def options(
        self,
        target: str | None,
        settings: Settings,
        *,
        is_triage: bool,
        watchdog_s: float | None = None,
    ) -> LiveOptions:
        """As `live` takes them."""
        from gpufleet_cli.commands.options import time_ns
        from gpufleet_cli.live.session import LiveOptions

        return LiveOptions(
            target=target,
            looked_on_disk=is_triage and self.selector is None,
            selector=self.selector,
            namespace=settings.namespace,
            context=settings.context,
            kubeconfig=settings.kubeconfig,
            deadline_s=settings.deadline_s,
            attempt=self.attempt,
            group=self.group,
            at_ns=time_ns(self.at, "--at"),
            lookback_s=parse_duration(self.lookback, "--lookback"),
            dumps=self.dumps,
            prometheus=self.prometheus,
            log_store=self.log_store,
            kernel_logs=self.kernel_logs,
            capture=self.capture,
            watchdog_s=watchdog_s,
        )


def live_options(  # a signature to splice, never called
    *,
    selector: Annotated[
        str | None,
        typer.Option("-l", "--selector", metavar="LABELS", help="A job in the cluster, by labels."),
    ] = None,
    attempt: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="The attempt that is meant, from 0.")
    ] = None,
    group: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="The group of a LeaderWorkerSet that is meant."),
    ] = None,
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="The attempt that ran then.")
    ] = None,
    lookback: Annotated[
        str, typer.Option(metavar="TIME", help="How long a failed attempt stays the subject.")
    ] = "2h",
    dumps: Annotated[
        str | None,
        typer.Option(
            metavar="LOCATION",
            help="Flight Recorder dumps: exec:/path/prefix_, a folder, s3://bucket/prefix_.",
        ),
    ] = None,
    prometheus: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Metrics of the GPUs."),
    ] = None,
    log_store: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Logs of pods that are gone."),
    ] = None,
    kernel_logs: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Kernel logs of the nodes.")
    ] = None,
    capture: Annotated[
        bool,
        typer.Option(
            "--capture", help="Ask a stalled job for fresh dumps and stacks (exec into its pods)."
        ),
    ] = False,
) -> None:
    raise NotImplementedError
