"""Rules on the GPUs that the job holds and the nodes under it: states, and readings that stay.

A reading is compared with the GPU's own past and with the job's other GPUs, never with a number from a data
sheet. DCGM's blanks (9.2e18 and near) are no readings.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpufleet_cli.alert_card import AlertRule
from gpufleet_cli.operate.alerts.numbers import Numbers
from gpufleet_cli.operate.alerts.promql import number
from gpufleet_cli.operate.alerts.series import (
    NODE_LABELS,
    Selected,
    Series,
    block,
    indented,
    metric,
    rate,
    with_node,
)

PRESENCE = (
    "DCGM_FI_DEV_(GPU_TEMP|GPU_TEMP_CELSIUS|MEMORY_TEMP|POWER_USAGE|BOARD_POWER_WATTS|GPU_UTIL"
    "|GPU_UTIL_RATIO|SM_CLOCK|FB_USED|XID_ERRORS?)"
)
"""Any of these says that the exporter sees the GPU; each is exported by default, under an old or a new name."""
WIDTH, PENDING = "DCGM_FI_DEV_PCIE_LINK_WIDTH", "DCGM_FI_DEV_ROW_REMAP_PENDING"
REASONS = ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS")
THERMAL, POWER = "DCGM_FI_DEV_THERMAL_VIOLATION", "DCGM_FI_DEV_POWER_VIOLATION"
FAILED = "DCGM_FI_DEV_ROW_REMAP_(FAILURE|FAILED)"
NS = 1e9
BLANK = "1e15"
USUAL_OVER, USUAL_STEP = "6h", "10m"
HOST = "{{ or $labels.node $labels.kubernetes_node $labels.Hostname $labels.hostname }}"
GPU = f"GPU {{{{ $labels.gpu }}}} of {HOST}"
NODE = f"gpufleet node {HOST}"
AGO_S = (1800.0, 480.0)
"""Where a GPU is looked for that is not there now: half an hour ago, else (a younger pod) eight minutes."""
ONE_GPU = f"{NODE_LABELS}, gpu, UUID"


def rules(numbers: Numbers) -> Iterator[AlertRule]:
    """Nodes first, then what is lost, then what slows."""
    series = Series(numbers=numbers)
    yield _not_ready(numbers, series)
    yield from _gone(numbers, series)
    yield from _remap(numbers, series)
    yield from _thermal(numbers, series)
    yield from _power(numbers, series)
    yield _width(numbers, series)


def _not_ready(numbers: Numbers, series: Series) -> AlertRule:
    condition = 'kube_node_status_condition{condition="Ready"'
    return AlertRule(
        name="GpufleetNodeNotReady",
        expr=(
            f'max by (node) ({condition}, status=~"false|unknown"}} or 1 - {condition}, status="true"}})'
            f" >= {number(numbers.limits.signs)}\nand on (node) {series.nodes(PRESENCE)}"
        ),
        for_s=120,
        severity="critical",
        summary=f"{HOST} is NotReady under {numbers.job}",
        description=(
            "It holds a pod of the gang, so every rank waits for it. After the tolerated time (300 s by default) its"
            " pods are deleted, and the evidence on it goes."
        ),
        commands=(numbers.triage, NODE),
    )


def _gone(numbers: Numbers, series: Series) -> Iterator[AlertRule]:
    """GPUs that were there and are not, neither the job's nor anybody's, while the exporter of their node answers:
    it tells of other GPUs of the job there, or its scrape succeeds while the node holds a pod of the job."""
    before = "\nor ".join(series.gpus(metric(PRESENCE, at_s=at_s)) for at_s in AGO_S)
    now = series.seen(metric(PRESENCE))
    known = series.seen(metric(PRESENCE, 'UUID!=""'))
    lost = f"{block(before)}\nunless on ({ONE_GPU}) {now}\nunless on (UUID) {known}"
    held = f"{with_node(block(lost))}\nand on (node) {series.held}"
    others = f"{lost}\nand on ({NODE_LABELS}) {series.gpus(metric(PRESENCE))}"
    answers = f'{held}\nand on (instance) up{{instance!=""}} == 1'
    for sign, expr, for_s in (
        ("others are there", others, 60),
        ("the exporter answers", answers, 180),
    ):
        yield AlertRule(
            name="GpufleetGpuGone",
            expr=f"group by ({ONE_GPU}, node) (\n{indented(expr)}\n) >= {number(numbers.limits.signs)}",
            for_s=for_s,
            severity="critical",
            summary=f"{GPU} is gone under {numbers.job}",
            description=(
                "The exporter of its node answers and lists it no more: it has fallen off the bus, or its driver"
                " has given it up. There may be no XID to see: silence is the sign."
            ),
            commands=(numbers.triage, NODE),
            labels=(("sign", sign),),
        )


def _remap(numbers: Numbers, series: Series) -> Iterator[AlertRule]:
    least = number(numbers.limits.signs)
    yield AlertRule(
        name="GpufleetRowRemap",
        expr=f"{_reading(series, metric(PENDING))} >= {least}",
        for_s=120,
        severity="warning",
        summary=f"A row remap waits for a reset on {GPU}, under {numbers.job}",
        description=(
            "Memory gave an error that was contained. The job may go on; the spare row is used after a reset of the"
            " GPU: cordon the node, and reset at the next checkpoint."
        ),
        commands=(NODE, f"gpufleet cordon {HOST} --reason 'row remap pending'"),
        needs=(PENDING,),
        labels=(("remap", "pending"),),
    )
    yield AlertRule(
        name="GpufleetRowRemap",
        expr=f"{_reading(series, metric(FAILED))} >= {least}",
        for_s=120,
        severity="warning",
        summary=f"A row could not be remapped on {GPU}, under {numbers.job}",
        description="The board is to be replaced (NVIDIA's criterion): cordon the node, and evict at a checkpoint.",
        commands=(NODE, f"gpufleet cordon {HOST} --reason 'row remap failed'"),
        labels=(("remap", "failed"),),
    )


def _reading(series: Series, what: Selected) -> str:
    """A reading of each of the job's GPUs, without DCGM's blanks."""
    return series.gpus(lambda given: f"({what(given)} < {BLANK})")


HEAT = ("floor({mask} / 32) % 4 > bool 0", "(floor({mask} / 8) % 32 < 16) % 2")
"""Heat by software or hardware (0x20, 0x40); a slowdown by hardware (0x8) that is no power brake (0x80), which is
all that older drivers say. The software power cap (0x4) is what a GPU at full load does."""
BRAKE = ("floor({mask} / 128) % 2",)


def _reasons(series: Series, least: float, signs: tuple[str, ...]) -> str:
    """GPUs that show any of the signs in a mask that comes as a float and under one of two names."""

    def asked(given: str) -> str:
        mask = f"({' or '.join(f'{name}{{{given}}}' for name in REASONS)})"
        return " or ".join(f"{sign.format(mask=mask)} >= {number(least)}" for sign in signs)

    return series.gpus(asked)


def _thermal(numbers: Numbers, series: Series) -> Iterator[AlertRule]:
    share, least = numbers.limits.thermal_share * NS, numbers.limits.signs
    for sign, expr, needs in (
        ("time", f"{series.gpus(rate(THERMAL, '5m'))} > {number(share)}", (THERMAL,)),
        ("reasons", _reasons(series, least, HEAT), REASONS),
    ):
        yield AlertRule(
            name="GpufleetThermal",
            expr=expr,
            for_s=360,
            severity="warning",
            summary=f"{GPU} runs slower because it is too hot, under {numbers.job}",
            description="All ranks wait for the slowest in each step. Look at fans, airflow and its neighbours.",
            commands=(NODE, f"gpufleet ranks {numbers.typed}"),
            needs=needs,
            labels=(("sign", sign),),
        )


def _power(numbers: Numbers, series: Series) -> Iterator[AlertRule]:
    """The power brake, and a GPU that its limit holds back more than the job's others."""
    held_back = series.gpus(rate(POWER, "5m"))
    share = number(numbers.limits.power_share * NS)
    more = f"{held_back} > on () group_left () ({share} + quantile(0.5, {held_back}))"
    for sign, expr, needs in (
        ("reasons", _reasons(series, numbers.limits.signs, BRAKE), REASONS),
        ("time", more, (POWER,)),
    ):
        yield AlertRule(
            name="GpufleetPower",
            expr=expr,
            for_s=360,
            severity="warning",
            summary=f"{GPU} runs slower because it gets less power, under {numbers.job}",
            description=(
                "A power brake, or a limit that the job's other GPUs do not have: look at the node's power supplies"
                " and at who set the limit."
            ),
            commands=(NODE, f"gpufleet ranks {numbers.typed}"),
            needs=needs,
            labels=(("sign", sign),),
        )


def _width(numbers: Numbers, series: Series) -> AlertRule:
    """Against what the GPU had in six hours, and against the job's others."""
    share = number(numbers.limits.width_share)

    def lanes(given: str) -> str:
        return f"({WIDTH}{{{given}}} > 0 < {BLANK})"

    def narrower(given: str) -> str:
        usual = f"max_over_time({lanes(given)}[{USUAL_OVER}:{USUAL_STEP}])"
        return f"({lanes(given)} <= {share} * {usual})"

    now = series.gpus(lanes)
    return AlertRule(
        name="GpufleetLinkWidth",
        expr=(
            f"{series.gpus(narrower)}\n"
            f"or {now} <= on () group_left () ({share} * quantile(0.5, {now}))"
        ),
        for_s=180,
        severity="warning",
        summary=f"The PCIe link of {GPU} is {{{{ $value }}}} lanes wide, half or less, under {numbers.job}",
        description=(
            "Half the lanes carry half the traffic to host and network: a bad slot, riser or retimer. Every rank"
            " waits for it in each collective."
        ),
        commands=(NODE, f"gpufleet ranks {numbers.typed}"),
        needs=(WIDTH,),
    )
