"""The network: an adapter or port that reports itself, a peer that several nodes accuse, or a transport
that fell back to plain sockets.

An adapter's own event (port error, fatal event, link down in the kernel log) blames its node, unless it
came back at once and stayed; links of several nodes that go together blame what they share. A completion
error blames the peer it names, and counts only from several nodes; its printer is a witness. Status 5
follows another error. A fallback on every rank blames nobody: pods lost their devices. What could look
the same: a peer whose process ended first, which closes its connections too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from ipaddress import ip_address

from gpufleet_cli.facts import Sign
from gpufleet_cli.reason import Case
from gpufleet_cli.reason.placed import PlacedSign
from gpufleet_cli.rules import claims
from gpufleet_cli.rules.adapters import Own, own_events, same_place, unit_of, went_together
from gpufleet_cli.rules.claims import about, claim, waited_in
from gpufleet_cli.verdict import Hypothesis, JobState, Kind, Remedy

NAME = "network_fault"
SLOWER = 1.5
MOST_NODES = 4
FEWEST_ACCUSERS = 3
WHOLE_NODE = 4
"""Adapters do not fail by fours: what goes with them all is a switch, or its power."""


def propose(case: Case) -> Iterator[Hypothesis]:
    """Nodes that report their own link, peers that are accused, then fallbacks and set-up."""
    own = same_place(case, own_events(case))
    accused = _of_the_reporting(case, own, _accusations(case))
    together = went_together(case, own) or tuple(
        node for node, o in sorted(own.items()) if o.together >= WHOLE_NODE
    )
    if together:
        yield _shared(case, {node: own[node] for node in together}, accused)
    elif not own and _all_accuse_all(accused) and case.steps.count == 0:
        yield _everybody(accused)
    else:
        for node in sorted(set(own) | set(accused)):
            yield from _node(case, node, own.get(node), accused.get(node, {}))
    yield from _fallback(case)
    yield from _setup(case)
    yield from _in_flight(case)
    yield from _closed(case)


def _shared(
    case: Case, own: dict[str, Own], accused: dict[str, dict[str, PlacedSign]]
) -> Hypothesis:
    """Links of several nodes went at once: a switch or its power; none of the nodes is to blame."""
    first = [o.claims[0] for _node, o in sorted(own.items())]
    found = [
        claim(
            c.text,
            c.origin,
            (claims.STRONG, claims.GOOD)[i] if i < 2 else claims.WEAK,
            at_ns=c.at_ns,
        )
        for i, c in enumerate(first[:MOST_NODES])
    ]
    signs = [sign for by in accused.values() for sign in by.values()]
    if signs:
        text = f"{len(signs)} pairs of nodes could not reach one another: {signs[0].fact.text[:80]}"
        found.append(about(signs[0], text, claims.WEAK))
    names = ", ".join(sorted(own)[:MOST_NODES]) + (", ..." if len(own) > MOST_NODES else "")
    return Hypothesis(
        kind=Kind.NETWORK,
        rule=NAME,
        summary=f"Links of {_count(len(own), 'node')} ({names}) went down together: a switch or what else"
        " they share; no single node is to blame.",
        claims=tuple(found),
        remedy=Remedy.OUTSIDE,
        spread=tuple(sorted(own)),
        onset_ns=min((o.first_ns for o in own.values() if o.first_ns is not None), default=None),
        degrades=True,
        worsens=None,
        worsens_why="it lasts as long as the switch is away",
        reason_tag="shared network",
        would_settle="the switches and ports that those nodes share",
    )


def _accusations(case: Case) -> dict[str, dict[str, PlacedSign]]:
    """Accused node -> accusing node -> first such line. A node never accuses itself."""
    found: dict[str, dict[str, PlacedSign]] = defaultdict(dict)
    for sign in case.signs_of(Sign.PEER_UNREACHABLE):
        peer = sign.fact.peer
        accuser = unit_of(case, sign)
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
    return _with_names(case, found)


def _with_names(
    case: Case, accused: dict[str, dict[str, PlacedSign]]
) -> dict[str, dict[str, PlacedSign]]:
    """An address that no file explains, and that all nodes but one accuse, is that one's: nobody
    accuses itself."""
    units = _units(case)
    found: dict[str, dict[str, PlacedSign]] = defaultdict(dict)
    for name, by in accused.items():
        others = units - set(by)
        is_known = name in units or len(by) < FEWEST_ACCUSERS or len(others) != 1
        known = name if is_known else next(iter(others))
        for accuser, sign in by.items():
            found[known].setdefault(accuser, sign)
    return found


def _of_the_reporting(
    case: Case, own: dict[str, Own], accused: dict[str, dict[str, PlacedSign]]
) -> dict[str, dict[str, PlacedSign]]:
    """An address that no file explains, or a pod whose node nothing tells, accused by several nodes while one
    node reports its own adapter and does not accuse it: that node's."""
    if len(own) != 1:
        return accused
    name = next(iter(own))
    is_placed = name in case.topology.by_node or name in case.topology.by_pod
    most = max(accused, key=lambda peer: (len(accused[peer]), peer), default=None)
    found: dict[str, dict[str, PlacedSign]] = defaultdict(dict)
    for peer, by in accused.items():
        is_open_pod = not is_placed and peer == most and _has_no_node(case, peer)
        is_its = (_is_address(peer) or is_open_pod) and len(by) > 1 and name not in by
        for accuser, sign in by.items():
            found[name if is_its else peer].setdefault(accuser, sign)
    return found


def _has_no_node(case: Case, pod: str) -> bool:
    ranks = case.topology.by_pod.get(pod, ())
    return bool(ranks) and all(case.topology.node_of(rank) is None for rank in ranks)


def _units(case: Case) -> set[str]:
    """All nodes of the job, or all its pods where nodes are not known; empty where some rank has neither."""
    world = case.world
    if not world:
        return set()
    for units in (case.topology.by_node, case.topology.by_pod):
        if {rank for ranks in units.values() for rank in ranks} >= set(world):
            return set(units)
    return set()


def _node(
    case: Case, node: str, own: Own | None, accused: dict[str, PlacedSign]
) -> Iterator[Hypothesis]:
    found = [] if own is None else list(own.claims)
    reported = len(found)
    for accuser, sign in sorted(accused.items())[:3]:
        weight = claims.FAIR if own or len(accused) >= 2 else claims.WEAK
        found.append(
            about(
                sign,
                f"{accuser} could not reach {sign.fact.peer}: {(sign.fact.detail or '')[:80]}",
                weight if len(found) == reported else claims.WEAK,
            )
        )
    if len(accused) >= 3:
        first = next(iter(sorted(accused.items())))[1]
        found.append(about(first, f"{len(accused)} nodes accuse {node}", claims.FAIR))
    what = "reports a fault of its own adapter" if own else "is named by its peers as unreachable"
    ranks, nodes, suspects = _whose(case, node, own, set(accused))
    yield Hypothesis(
        kind=Kind.NETWORK,
        rule=NAME,
        summary=f"{node} {what}"
        + (f"; {_count(len(accused), 'node')} could not reach it" if accused and own else "")
        + ".",
        claims=tuple(found),
        remedy=Remedy.NODE if own else Remedy.PROCESS,
        nodes=nodes,
        ranks=ranks,
        suspects=suspects,
        onset_ns=case.onset_ns,
        worsens=True if own else None,
        worsens_why="a link that failed once fails again" if own else "not known",
        reason_tag="network adapter" if own else "unreachable peer",
        would_settle=f"port counters and the kernel log of {node}",
    )


def _whose(
    case: Case, name: str, own: Own | None, accusers: set[str]
) -> tuple[tuple[int, ...], tuple[str, ...], tuple[int, ...]]:
    """(ranks, nodes, suspects): the one rank that reports its adapter, else the node with its rank open;
    of a pod whose node nobody tells, its ranks are suspects, and of an address that nobody explains
    all ranks elsewhere than those who accuse it."""
    own_rank = tuple(own.ranks) if own is not None and len(own.ranks) == 1 else ()
    if case.topology.by_node.get(name):
        return own_rank, (name,), ()
    of_pod = case.topology.by_pod.get(name, ())
    if of_pod:
        return own_rank, (), () if own_rank else of_pod
    if own_rank or not _is_address(name):
        return own_rank or _ranks_by_host(case, name), (name,), ()
    return (), (), _elsewhere(case, accusers)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _elsewhere(case: Case, accusers: set[str]) -> tuple[int, ...]:
    """All ranks but those on the accusers' nodes."""
    known = [
        *(case.topology.by_node.get(name, ()) for name in accusers),
        *(case.topology.by_pod.get(name, ()) for name in accusers),
    ]
    there = {rank for ranks in known for rank in ranks}
    return tuple(rank for rank in case.world if rank not in there)


def _closed(case: Case) -> Iterator[Hypothesis]:
    """Nothing but connections that peers closed: some process ended first, and not one of these. Where its
    address is known, it is one of that node."""
    signs = case.signs_of(Sign.PEER_CLOSED)
    if not signs or case.timeouts or case.graph is not None or not case.stop.stopped:
        return
    first = signs[0]
    accuser = unit_of(case, first)
    node = case.topology.node_by_address.get(first.fact.peer or "")
    there = case.topology.by_node.get(node or "") or case.topology.by_pod.get(node or "")
    suspects = there or _elsewhere(case, set() if accuser is None else {accuser})
    heard = {s.rank for s in signs if s.rank is not None}
    suspects = tuple(r for r in suspects if r not in heard)
    if not suspects:
        return
    yield Hypothesis(
        kind=Kind.RANK_MISSING,
        rule=NAME,
        summary="A peer's process ended, or its node went; the lines at hand do not tell whose.",
        claims=(about(first, f"{accuser}: {first.fact.text[:120]}", claims.FAIR),),
        remedy=Remedy.PROCESS,
        generic=True,
        suspects=suspects,
        onset_ns=first.at_ns,
        would_settle="the logs of the other ranks, or whose address that is",
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
    nodes = {key for s in signs if (key := unit_of(case, s)) is not None}
    everywhere = {key for s in case.signs if (key := unit_of(case, s)) is not None} | set(
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
            suspects, first, more = root.ranks, claims.GOOD, 0.2
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
            generic=root.kind == "in-flight",
            collective=waited_in(case),
            onset_ns=graph.onset_ns,
            reason_tag="in flight",
            would_settle="stacks, GPU utilisation and RDMA counters of the members;"
            " TORCH_NCCL_ENABLE_TIMING=1 for the next time",
        )
