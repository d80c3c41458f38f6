"""The numbers that rules are made from, where a job does not tell them."""

from __future__ import annotations

from dataclasses import replace

import builders
import pytest

from gpufleet_cli.errors import UsageError
from gpufleet_cli.operate.alerts import job_numbers


def test_all_that_is_missing_is_asked_for_at_once() -> None:
    """A person gives three numbers in one go, and is asked for none that is known."""
    unknown = builders.triage()
    unknown = replace(
        unknown,
        job=replace(unknown.job, step_s=None, checkpoint_interval_s=None, watchdog_timeout_s=600.0),
    )
    given: job_numbers.Given = dict.fromkeys(job_numbers.ALL)
    with pytest.raises(UsageError) as caught:
        job_numbers.with_triage(given, unknown, "train")
    assert caught.value.message == (
        "the step time and the checkpoint interval of train cannot be told from its evidence"
    )
    assert caught.value.hint == "give --step-seconds (0.4) and --checkpoint-interval (30m)"
