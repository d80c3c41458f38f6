"""The forms in which people take a kernel log along: journalctl, dmesg and syslog.

Host clocks are in UTC; only short-iso, which states its zone, may have another.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from random import Random
from typing import Literal

from gpufleet_cli.operate.simulate import gathered
from gpufleet_cli.operate.simulate.story import Story

Name = Literal["iso", "iso-precise", "precise", "dmesg-T", "dmesg", "syslog"]

NAMES: tuple[Name, ...] = ("iso", "iso-precise", "precise", "dmesg-T", "syslog")
ENDS: dict[Name, str] = {
    "iso": ".journal-k.log",
    "iso-precise": ".log",
    "precise": ".journal.log",
    "dmesg-T": ".dmesg-T.txt",
    "dmesg": ".dmesg.txt",
    "syslog": ".kern.log",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How all kernel logs of a world are written. `boots_ns[node]`: when each node booted."""

    name: Name
    zone: timezone
    boots_ns: tuple[int, ...]

    def path(self, node: str) -> str:
        return f"kernel/{node}{ENDS[self.name]}"


def choose(story: Story, rng: Random) -> Form:
    """Seconds since boot are written only where topology.json says when that was."""
    epoch = gathered.boot_epoch(story)
    name: Name = "dmesg" if epoch is not None else rng.choice(NAMES)
    hours = rng.choice((0, 0, 0, 1, -7)) if name in ("iso", "iso-precise") else 0
    boots = tuple(
        epoch * 10**9
        if epoch is not None
        else story.start_ns - rng.randrange(3 * 86_400, 90 * 86_400) * 10**9
        for _ in story.layout.nodes
    )
    return Form(name=name, zone=timezone(timedelta(hours=hours)), boots_ns=boots)


def line(form: Form, story: Story, index: int, at_s: float, text: str) -> str:
    """One line of the log of a node. Seconds since boot know nothing of the node's clock."""
    true_ns = story.wall_ns(at_s)
    boot_s = max(0.0, (true_ns - form.boots_ns[index]) / 1e9)
    if form.name == "dmesg":
        return f"[{boot_s:12.6f}] {text}"
    seconds, rest = divmod(story.wall_ns(at_s, index), 10**9)
    at = datetime.fromtimestamp(seconds, tz=form.zone)
    micro = rest // 1000
    node = story.layout.nodes[index]
    match form.name:
        case "iso":
            return f"{at:%Y-%m-%dT%H:%M:%S%z} {node} kernel: {text}"
        case "iso-precise":
            return f"{at:%Y-%m-%dT%H:%M:%S}.{micro:06d}{_colon(at)} {node} kernel: {text}"
        case "precise":
            return f"{at:%b %d %H:%M:%S}.{micro:06d} {node} kernel: {text}"
        case "dmesg-T":
            return f"[{at:%a %b} {at.day:2d} {at:%H:%M:%S %Y}] {text}"
        case "syslog":
            host = node.partition(".")[0]
            return f"{at:%b} {at.day:2d} {at:%H:%M:%S} {host} kernel: [{boot_s:12.6f}] {text}"


def _colon(at: datetime) -> str:
    zone = at.strftime("%z")
    return f"{zone[:3]}:{zone[3:]}"
