"""The network: an adapter or port that reports itself, a peer that several nodes accuse, or a transport
that fell back to plain sockets.

An adapter's own event (port error, fatal event, link down in the kernel log) blames its node. A completion
error blames the peer it names, and counts only from several nodes; its printer is a witness. Status 5
follows another error. A fallback on every rank blames nobody: pods lost their devices. What could look
the same: a peer whose process ended first, which closes its connections too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from gpufleet_cli.facts import HostSign, Sign
from gpufleet_cli.reason import Case
from gpufleet_cli.reason.placed import PlacedHost, PlacedSign
from gpufleet_cli.rules import claims
from gpufleet_cli.rules.claims import about, claim, waited_in
from gpufleet_cli.verdict import Claim, Hypothesis, JobState, Kind, Remedy

NAME = "network_fault"
SLOWER = 1.5


def propose(case: Case) -> Iterator[Hypothesis]:
    """Nodes that report their own link, peers that are accused, then fallbacks and set-up."""
    own = _own_events(case)
    accused = _accusations(case)
    if not own and _all_accuse_all(accused) and case.steps.count == 0:
        yield _everybody(accused)
    else:
        for node in sorted(set(own) | set(accused)):
            yield from _node(case, node, own.get(node, []), accused.get(node, {}))
    yield from _fallback(case)
    yield from _setup(case)
    yield from _in_flight(case)


def _key(sign: PlacedSign) -> str | None:
    return sign.node or sign.fact.speaker.host


def _own_events(case: Case) -> dict[str, list[Claim]]:
    """Each node's own adapter events, from NCCL and from its kernel log."""
    found: dict[str, list[Claim]] = defaultdict(list)
    first_timeout = case.first_timeout_ns
    for sign in case.signs_of(Sign.NIC_ERROR):
        node = _key(sign)
        if node is None:
            continue
        if sign.at_ns is not None and first_timeout is not None and sign.at_ns > first_timeout:
            continue
        if len(found[node]) < 3:
            found[node].append(
                about(
                    sign,
                    f"{node} reports its own adapter{claims.when(sign.at_ns)}:"
                    f" {(sign.fact.detail or sign.fact.text)[:100]}",
                    claims.STRONG if not found[node] else claims.WEAK,
                )
            )
    for host in case.hosts:
        if host.event.sign is not HostSign.NIC_DOWN or not host.relevant or host.node is None:
            continue
        if _came_back(case, host) or len(found[host.node]) >= 3:
            continue
        found[host.node].append(
            claim(
                f"{host.node}: {host.event.text[:120]}",
                host.event.origin,
                claims.STRONG if not found[host.node] else claims.WEAK,
                at_ns=host.at_ns,
            )
        )
    return {node: listed for node, listed in found.items() if listed}


def _came_back(case: Case, down: PlacedHost) -> bool:
    return any(
        h.event.sign is HostSign.NIC_UP
        and h.node == down.node
        and h.at_ns is not None
        and down.at_ns is not None
        and 0 <= h.at_ns - down.at_ns < 10_000_000_000
        for h in case.hosts
    )


def _accusations(case: Case) -> dict[str, dict[str, PlacedSign]]:
    """Accused node -> accusing node -> first such line. A node never accuses itself."""
    found: dict[str, dict[str, PlacedSign]] = defaultdict(dict)
    for sign in case.signs_of(Sign.PEER_UNREACHABLE):
        peer = sign.fact.peer
        accuser = _key(sign)
        if peer is None or accuser is None or (sign.fact.detail or "").startswith("flushed"):
            continue
        address = peer.split("<")[0].rsplit(":", 1)[0] if ":" in peer else peer.split("<")[0]
        node = (
            case.topology.node_by_address.get(peer)
            or case.topology.node_by_address.get(address)
            or case.topology.node_by_address.get(address.split(".")[0])
            or address
        )
        if node != accuser:
            found[node].setdefault(accuser, sign)
    return found


def _node(
    case: Case, node: str, own: list[Claim], accused: dict[str, PlacedSign]
) -> Iterator[Hypothesis]:
    found = list(own)
    for accuser, sign in sorted(accused.items())[:3]:
        weight = claims.FAIR if own or len(accused) >= 2 else claims.WEAK
        found.append(
            about(
                sign,
                f"{accuser} could not reach {sign.fact.peer}: {(sign.fact.detail or '')[:80]}",
                weight if len(found) == len(own) else claims.WEAK,
            )
        )
    if len(accused) >= 3:
        first = next(iter(sorted(accused.items())))[1]
        found.append(about(first, f"{len(accused)} nodes accuse {node}", claims.FAIR))
    ranks = case.topology.by_node.get(node, ()) or _ranks_by_host(case, node)
    what = "reports a fault of its own adapter" if own else "is named by its peers as unreachable"
    yield Hypothesis(
        kind=Kind.NETWORK,
        rule=NAME,
        summary=f"{node} {what}"
        + (f"; {_count(len(accused), 'node')} could not reach it" if accused and own else "")
        + ".",
        claims=tuple(found),
        remedy=Remedy.NODE if own else Remedy.PROCESS,
        nodes=(node,),
        ranks=ranks if not case.topology.by_node.get(node) else (),
        onset_ns=case.onset_ns,
        worsens=True if own else None,
        worsens_why="a link that failed once fails again" if own else "not known",
        reason_tag="network adapter" if own else "unreachable peer",
        would_settle=f"port counters and the kernel log of {node}",
    )


def _all_accuse_all(accused: dict[str, dict[str, PlacedSign]]) -> bool:
    accusers = {who for found in accused.values() for who in found}
    return len(accused) > 1 and accusers <= set(accused)


def _everybody(accused: dict[str, dict[str, PlacedSign]]) -> Hypothesis:
    """At the first collective every node fails to reach every other: settings, nobody to blame."""
    signs = [sign for _node, found in sorted(accused.items()) for _w, sign in sorted(found.items())]
    return Hypothesis(
        kind=Kind.NETWORK,
        rule=NAME,
        summary=f"None of {len(accused)} nodes could reach another before the first step:"
        " security group, firewall or fabric settings, no node.",
        claims=(
            about(signs[0], signs[0].fact.text[:140], claims.GOOD),
            about(signs[-1], f"{len(accused)} nodes accuse one another", claims.FAIR),
        ),
        remedy=Remedy.CODE,
        reason_tag="network set-up",
        would_settle="the rules between the nodes for the fabric's own protocol",
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _ranks_by_host(case: Case, host: str) -> tuple[int, ...]:
    return tuple(
        sorted({s.rank for s in case.signs if s.rank is not None and s.fact.speaker.host == host})
    )


def _fallback(case: Case) -> Iterator[Hypothesis]:
    """Plain sockets in place of the fast transport: by the earlier attempt, or by the pace."""
    sockets = case.signs_of(Sign.NETWORK_SOCKET)
    fast = case.signs_of(Sign.NETWORK_FAST)
    if not sockets or (fast and len(fast) >= len(sockets)):
        return
    was_fast = [s for s in case.earlier_signs if s.fact.sign is Sign.NETWORK_FAST]
    before, after = case.steps.before_s, case.steps.after_s
    slower = before is not None and after is not None and after / before >= SLOWER
    if not was_fast and not slower:
        return
    found = [
        about(
            sockets[0],
            f"{len(sockets)} ranks use plain sockets: {sockets[0].fact.text[:80]}",
            claims.FAIR,
        )
    ]
    if was_fast:
        found.append(
            about(
                was_fast[0], f"the earlier attempt used: {was_fast[0].fact.text[:90]}", claims.GOOD
            )
        )
    if slower and before is not None and after is not None:
        found.append(
            claim(
                f"a step took {before:.2f} s and takes {after:.2f} s now",
                case.steps.change_origin or case.steps.last_origin,
                claims.FAIR,
            )
        )
    factor = after / before if before and after else None
    yield Hypothesis(
        kind=Kind.NETWORK,
        rule=NAME,
        summary="NCCL fell back to plain sockets on every rank"
        + (f"; a step takes {factor:.1f} times as long" if factor else "")
        + ". No node is to blame.",
        claims=tuple(found),
        remedy=Remedy.CODE,
        degrades=True if slower else None,
        degrades_why=f"steps take {factor:.1f} times as long" if factor else "sockets are slow",
        slowdown=factor,
        reason_tag="socket fallback",
        would_settle="RDMA devices in the pod spec and the device plugin's state",
    )


def _setup(case: Case) -> Iterator[Hypothesis]:
    """The network never worked in this attempt: plugin, interface, security group."""
    signs = case.signs_of(Sign.NETWORK_SETUP_FAILED)
    if not signs or case.steps.count > 0:
        return
    nodes = {key for s in signs if (key := _key(s)) is not None}
    everywhere = {key for s in case.signs if (key := _key(s)) is not None} | set(
        case.topology.by_node
    )
    some = tuple(sorted(nodes)) if 0 < len(nodes) * 2 <= len(everywhere) else ()
    yield Hypothesis(
        kind=Kind.NETWORK,
        rule=NAME,
        summary=("The network never came up" + (f" on {', '.join(some)}: " if some else ": "))
        + f"{(signs[0].fact.detail or signs[0].fact.text)[:100]}",
        claims=(
            about(signs[0], signs[0].fact.text[:160], claims.STRONG),
            about(signs[-1], f"{len(signs)} such lines, no step was made", claims.FAIR),
        ),
        remedy=Remedy.OUTSIDE if some else Remedy.CODE,
        nodes=some,
        reason_tag="network set-up",
        would_settle="security group, plugin and interface settings of the pods",
    )


def _in_flight(case: Case) -> Iterator[Hypothesis]:
    """Every member entered and nobody is behind: a link, an adapter or a kernel in that group."""
    graph = case.graph
    if graph is None or case.stop.state is JobState.RUNNING:
        return
    for root in graph.roots:
        if root.kind == "in-flight":
            suspects, first, more = root.ranks, claims.FAIR, 0.2
        elif root.kind == "hidden" and root.flight:
            # As likely as the loss of members' dumps by chance, beside a stop that took its dump along.
            suspects, more = root.flight, 0.0
            first = claims.hidden_weight(root) + claims.flight_odds(case, root)
        else:
            continue
        yield Hypothesis(
            kind=Kind.NETWORK,
            rule=NAME,
            summary="A collective is in flight on all its members and never ends: a link, an"
            " adapter or a kernel; the dumps cannot tell whose.",
            claims=tuple(
                claim(c.text, c.origin, first if i == 0 else more, rank=c.rank)
                for i, c in enumerate(root.claims)
            ),
            remedy=Remedy.OUTSIDE,
            suspects=suspects,
            collective=waited_in(case),
            onset_ns=graph.onset_ns,
            reason_tag="in flight",
            would_settle="stacks, GPU utilisation and RDMA counters of the members;"
            " TORCH_NCCL_ENABLE_TIMING=1 for the next time",
        )
