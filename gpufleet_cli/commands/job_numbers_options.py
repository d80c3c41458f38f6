"""Options of `alerts` and `watch`: a job's own numbers, and the series that have them."""

from __future__ import annotations

from typing import Annotated

import typer

StepSeconds = Annotated[
    str | None, typer.Option(metavar="TIME", help="One optimizer step: 0.418, 2s.")
]
CheckpointInterval = Annotated[
    str | None, typer.Option(metavar="TIME", help="Between two checkpoints: 30m, 1800.")
]
WatchdogTimeout = Annotated[
    str | None, typer.Option(metavar="TIME", help="Timeout of a collective: 10m.")
]
StepSecondsMetric = Annotated[str, typer.Option(metavar="NAME", help="Seconds a step.")]
LastStepMetric = Annotated[str, typer.Option(metavar="NAME", help="Unix time of the last step.")]
LastCheckpointMetric = Annotated[
    str, typer.Option(metavar="NAME", help="Unix time of the last checkpoint.")
]
STEP_SECONDS = "training_step_seconds"
LAST_STEP = "training_last_step_timestamp_seconds"
LAST_CHECKPOINT = "training_last_checkpoint_timestamp_seconds"
