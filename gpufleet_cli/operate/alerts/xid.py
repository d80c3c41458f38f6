"""Rules on XIDs, one a disposition of the catalogue, all under one name.

The gauge keeps its last code for days, so a value is no event. A change is: the code of a GPU is not what it was
ten minutes ago (a younger series: two). Where the code is a label (`err_code` in newer exporters,
`xid` in DCGM_EXP_XID_ERRORS_COUNT) a new series is, if that GPU had none with that code in the hour before, and
if the job was watched at all then. `changes()` is not used: VictoriaMetrics counts the first sample.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpufleet_cli import xid_catalog
from gpufleet_cli.alert_card import AlertRule, Severity
from gpufleet_cli.live.metric_queries import quoted
from gpufleet_cli.operate.alerts.gpu import GPU, NODE, ONE_GPU, PRESENCE
from gpufleet_cli.operate.alerts.numbers import Numbers
from gpufleet_cli.operate.alerts.promql import number, span
from gpufleet_cli.operate.alerts.series import Series, block, indented, metric

GAUGE = "DCGM_FI_DEV_XID_ERRORS?"
LABELLED = f"{GAUGE}|DCGM_EXP_XID_ERRORS_COUNT"
CODE_LABELS = ("err_code", "xid")
AGO_S = (600.0, 120.0)
NO_CODE = 'err_code="", xid=""'
SEEN = "1h"
LARGEST = 1000
"""No code is as high; DCGM's blanks are higher."""
TOLD: tuple[tuple[str, Severity, str, str], ...] = (
    (
        "evict-now",
        "critical",
        "The GPU cannot be used any more: whoever runs on it stops, and a restart that lands on it stops again.",
        "gpufleet triage",
    ),
    (
        "cordon-at-checkpoint",
        "warning",
        "The job may go on to its next checkpoint; then the node is to be taken out.",
        "gpufleet node",
    ),
    (
        "fix-app",
        "info",
        "Mostly the program's own fault (an illegal address, say): look at the code before the hardware.",
        "gpufleet xid",
    ),
    ("watch", "info", "Nothing to do yet: look whether it comes again.", "gpufleet xid"),
)


def rules(numbers: Numbers) -> Iterator[AlertRule]:
    """One a disposition; codes that are to be ignored have none, and those that nobody knows are watched."""
    series = Series(numbers=numbers)
    happened = block(f"{block(_changed(series))}\nor\n{block(_appeared(series))}")
    for disposition, severity, what, first in TOLD:
        commands = {
            "gpufleet triage": numbers.triage,
            "gpufleet node": NODE,
            "gpufleet xid": "gpufleet xid {{ $labels.xid }}",
        }
        order = sorted(commands, key=lambda name: name != first)
        yield AlertRule(
            name="GpufleetXid",
            expr=f"{_chosen(happened, disposition)} >= {number(numbers.limits.signs)}",
            for_s=0,
            severity=severity,
            summary=(f"XID {{{{ $labels.xid }}}} on {GPU}, under {numbers.job}: {disposition}"),
            description=f"{what} The gauge has just changed to this code; it will show it for days.",
            commands=tuple(commands[name] for name in order),
            labels=(("disposition", disposition),),
        )


def codes(disposition: str) -> tuple[int, ...]:
    """Every code of the catalogue with this disposition."""
    return tuple(
        code for code in xid_catalog.codes() if xid_catalog.xid(code).disposition == disposition
    )


def _chosen(happened: str, disposition: str) -> str:
    """The events of one disposition. Whatever has another one is taken away for `watch`: the rest, unknown codes
    too, stays."""
    if disposition == "watch":
        listed = [
            one
            for one in xid_catalog.codes()
            if xid_catalog.xid(one).disposition not in ("watch", "unknown")
        ]
        how = "unless"
    else:
        listed, how = list(codes(disposition)), "and"
    pattern = quoted("|".join(map(str, listed)))
    marked = f'label_replace(\n{indented(happened)},\n  "listed", "yes", "xid", {pattern})'
    return f'count without () (\n{marked}\n{how} on (listed) label_replace(vector(1), "listed", "yes", "", ""))'


def _changed(series: Series) -> str:
    """GPUs whose value is another than it was, by `xid`; 0 is none."""

    def changed(given: str) -> str:
        now, *before = (
            f"max without () ({metric(GAUGE, NO_CODE, at_s=at_s)(given)})"
            for at_s in (None, *AGO_S)
        )
        return f"({now} != ({' or '.join(before)}) > 0 < {LARGEST})"

    return f'count_values without () ("xid",\n{indented(series.gpus(changed))}\n)'


def _appeared(series: Series) -> str:
    """GPUs with a series of a code that they had not in the hour before, whosever they were then, by `xid`. What
    is new to a server that has just begun is not new: something of the job must have been seen before."""
    offset = f"offset {span(AGO_S[0])}"
    of_one = ", ".join((ONE_GPU, *CODE_LABELS))

    def labelled(given: str, function: str = "", window: str = "") -> str:
        coded = (metric(LABELLED, f'{label}!~"0?"')(given) for label in CODE_LABELS)
        return f"(({' or '.join(f'{function}({one}{window})' for one in coded)}) > 0)"

    had = labelled("", "last_over_time", f"[{SEEN}] {offset}")
    known = block(
        f"group({series.kube('kube_pod_info')} {offset})\n"
        f"or group({series.own(series.numbers.last_step_metric)} {offset})\n"
        f"or group(\n{indented(series.mapped(metric(PRESENCE, at_s=AGO_S[0])))}\n)"
    )
    new = f"{series.gpus(labelled)}\nunless on ({of_one}) {had}\nand on () {known}"
    return f'label_replace(\n{block(new)}, "xid", "$1", "err_code", "(.+)")'
