"""NCCL start-up: who is which rank on which GPU, and which network was chosen (NCCL 2.4 to 2.30).

`comm 0x.. rank R nranks N cudaDev D nvmlDev M busId B commId 0x.. - Init START|COMPLETE` ties a rank of
one communicator to HOST:PID and a GPU; the rank is global only where N is the world size. The bus id is
hexadecimal without separators: 4e000 is 0000:4e:00.0. Up to 2.15 neither nvmlDev nor commId stand there,
from 2.21 the function stands in front, from 2.29 `[Rank R]` in front of START.
The address of the bootstrap interface (`OOB`) is the one by which peers name a host.
A socket network is slow, not dead. That a net plugin or an InfiniBand device was not found is normal where
another network is used (`NET/IB : No device found` on EFA): only what NCCL then uses counts.

>>> from gpufleet_cli.parsers.lines.pasted import read
>>> link, = read(recognise, "moe-1:213:916 [3] NCCL INFO ncclCommInitRank comm 0x559c21a7aedd rank 7 "
...     "nranks 8 cudaDev 3 nvmlDev 3 busId 4e000 commId 0x9ab16c33a09b41f2 - Init COMPLETE")
>>> link.rank, link.rank_in, link.host, link.pid, link.pci_bus_id, link.gpu_index
(7, 8, 'moe-1', 213, '0000:4e:00.0', 3)
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpufleet_cli.facts import Fact, IdentityLink, Link, Sign
from gpufleet_cli.parsers.lines.nccl_prefix import nccl_speaker, parse_prefix
from gpufleet_cli.parsers.lines.signs import Rule, by_literal, make_sign, patterns_of
from gpufleet_cli.parsers.log_line import Following, LogLine

_INIT = re.compile(
    r"comm 0x[0-9a-f]{1,16} rank (?P<rank>\d{1,7}) nranks (?P<nranks>\d{1,7})"
    r"(?P<rest>[^\n]{0,400}?) - Init (?P<state>START|COMPLETE)"
)
_NVML = re.compile(r" nvmlDev (?P<dev>\d{1,4})")
_BUS = re.compile(r" busId (?P<bus>[0-9a-fA-F]{1,16})\b")
_COMM = re.compile(r" commId (?P<id>0x[0-9a-fA-F]{1,16})")
_ADDRESS = re.compile(
    r"(?:; OOB |NET/Socket ?: Using \[0\])[\w.@-]{1,40}:(?P<ip>\d{1,3}(?:\.\d{1,3}){3}|[0-9a-fA-F:]{2,45})<\d{1,5}>"
)
_NETWORK = re.compile(r"Using network (?P<name>[^\n]{1,60})")
_PLUGIN = re.compile(r"Initialized NET plugin (?P<name>[^\n]{1,60})")
_DUPLICATE = re.compile(
    r"Duplicate GPU detected : rank (?P<a>\d{1,7}) and rank (?P<b>\d{1,7}) both on CUDA device "
    r"(?P<bus>[0-9a-f]{1,16})"
)
_CHECKED_IN = re.compile(r"rank (?P<rank>\d{1,7}) of (?P<of>\d{1,7}) ranks has already checked in")


def _init(line: LogLine, following: Following) -> Iterator[Fact]:
    found = _INIT.search(line.text)
    if found is None:
        return
    prefix, speaker = parse_prefix(line.text), line.speaker
    nvml, bus = _NVML.search(found["rest"]), _BUS.search(found["rest"])
    comm = _COMM.search(found["rest"])
    yield IdentityLink(
        how=Link.NCCL_INIT,
        origin=line.origin,
        rank=int(found["rank"]),
        rank_in=int(found["nranks"]),
        host=prefix.host if prefix is not None else speaker.host,
        pid=prefix.pid if prefix is not None else speaker.pid,
        gpu_index=int(nvml["dev"]) if nvml is not None else None,
        pci_bus_id=bus_address(bus["bus"]) if bus is not None else None,
        pod=speaker.pod,
        pod_uid=speaker.pod_uid,
        container=speaker.container,
        namespace=speaker.namespace,
        node=speaker.node,
        attempt=speaker.attempt,
        cycle=speaker.cycle,
        stream=speaker.stream,
        comm=comm["id"] if comm is not None else None,
        comm_ready=found["state"] == "COMPLETE",
    )


def _address(line: LogLine) -> Iterator[Fact]:
    """The address under which peers will name this host: that of the bootstrap interface."""
    found, prefix = _ADDRESS.search(line.text), parse_prefix(line.text)
    if found is None or prefix is None:
        return
    speaker = line.speaker
    yield IdentityLink(
        how=Link.NCCL_INIT,
        origin=line.origin,
        host=prefix.host,
        pid=prefix.pid,
        pod_ip=found["ip"],
        pod=speaker.pod,
        pod_uid=speaker.pod_uid,
        container=speaker.container,
        namespace=speaker.namespace,
        node=speaker.node,
        attempt=speaker.attempt,
        cycle=speaker.cycle,
    )


def bus_address(bus_id: str) -> str:
    """NCCL's packed bus id as a PCI address.

    >>> bus_address("4e000"), bus_address("10010a010")
    ('0000:4e:00.0', '1001:0a:01.0')
    """
    packed = int(bus_id, 16)
    domain, bus, device = packed >> 20, packed >> 12 & 0xFF, packed >> 4 & 0xFF
    return f"{domain:04x}:{bus:02x}:{device:02x}.{packed & 0xF:x}"


def _network(line: LogLine, following: Following) -> Iterator[Fact]:
    for pattern, what in ((_NETWORK, "using network"), (_PLUGIN, "net plugin")):
        found = pattern.search(line.text)
        if found is not None:
            name = found["name"].strip()
            is_socket = name.startswith("Socket")
            sign = Sign.NETWORK_SOCKET if is_socket else Sign.NETWORK_FAST
            yield make_sign(sign, line, speaker=nccl_speaker(line), detail=f"{what} {name}")


def _transport(line: LogLine, following: Following) -> Iterator[Fact]:
    """Devices that a transport found. `Using network` decides; older versions print only this."""
    if "NET/Socket" in line.text:
        sign, detail = Sign.NETWORK_SOCKET, "NET/Socket in use"
    else:
        sign, detail = Sign.NETWORK_FAST, "NET/IB devices found"
    yield make_sign(sign, line, speaker=nccl_speaker(line), detail=detail)
    yield from _address(line)


def _fastrak_ready(line: LogLine, following: Following) -> Iterator[Fact]:
    detail = "FasTrak plugin initialized"
    yield make_sign(Sign.NETWORK_FAST, line, speaker=nccl_speaker(line), detail=detail)


def _set_up_failed(line: LogLine, following: Following) -> Iterator[Fact]:
    prefix = parse_prefix(line.text)
    yield make_sign(
        Sign.NETWORK_SETUP_FAILED,
        line,
        speaker=nccl_speaker(line),
        detail=prefix.message if prefix is not None else line.text,
    )


def _checked_in(line: LogLine, following: Following) -> Iterator[Fact]:
    found = _CHECKED_IN.search(line.text)
    if found is not None:
        yield make_sign(
            Sign.RENDEZVOUS_FAILED,
            line,
            speaker=nccl_speaker(line),
            named_ranks=(int(found["rank"]),),
            ranks_are_group_local=True,
            expected=int(found["of"]),
            detail="two processes claim one rank",
        )


def _duplicate(line: LogLine, following: Following) -> Iterator[Fact]:
    found = _DUPLICATE.search(line.text)
    yield make_sign(
        Sign.OTHER_CAUSE,
        line,
        speaker=nccl_speaker(line),
        named_ranks=(int(found["a"]), int(found["b"])) if found is not None else (),
        ranks_are_group_local=True,
        device=bus_address(found["bus"]) if found is not None else None,
        detail="configuration: two ranks on one GPU",
    )


_RULES: tuple[Rule, ...] = (
    ((" - Init START", " - Init COMPLETE"), _init),
    (("NCCL INFO Using network", "Initialized NET plugin"), _network),
    (
        (
            "NET/IB : Using [",
            "NET/IB: Using [",
            "NET/Socket : Using [",
            "NET/Socket: Using [",
        ),
        _transport,
    ),
    (("NET/FasTrak plugin initialized",), _fastrak_ready),
    (
        (
            "Failed to initialize any NET plugin",
            "no socket interface found",
            "Bootstrap : No socket interface",
        ),
        _set_up_failed,
    ),
    (("has already checked in",), _checked_in),
    (("Duplicate GPU detected",), _duplicate),
)
PATTERNS: tuple[str, ...] = patterns_of(_RULES)


def recognise(line: LogLine, following: Following) -> Iterator[Fact]:
    """Identity of ranks, the network in use, failures to set one up."""
    return by_literal(_RULES, line, following)
