"""Whether a gang finds room once a node is out: GPUs, selectors, taints, topology, quota. Pure.

The gang is torn down as a whole and begins again elsewhere, so what its own pods hold counts as free, and
the node that is taken out as gone. Counted are devices (`nvidia.com/gpu`, `rdma/...`: resources with a
domain in their name), never CPU and memory, and no preemption: a yes is what the scheduler can do with the
GPUs as they are held now. What a pod asks for and is not looked at here (affinity to other pods, spread
constraints, Volcano's tiers) turns a yes into "not known"; a no stays one.

Scheduling: https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from gpufleet_cli.node_card import Spares
from gpufleet_cli.parsers import json_documents as js
from gpufleet_cli.parsers import kubernetes_gangs
from gpufleet_cli.parsers.kubernetes_gpus import GPU_RESOURCE
from gpufleet_cli.spare_facts import Devices, Need, Object, Room, Taint, Wants

PRODUCT = "nvidia.com/gpu.product"
MOST_NAMED = 3
_NODE_STATE = (
    "node.kubernetes.io/unschedulable", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable",
)  # fmt: skip
_BLOCKING = ("NoSchedule", "NoExecute")


# --- Which node a pod may go to -------------------------------------------------------------------


def admits(room: Room, need: Need, wants: Wants, without: frozenset[str] = frozenset()) -> bool:
    """Whether a pod may be placed on a node, room apart. `without` names tests that are left out."""
    if "state" not in without and not room.is_open:
        return False
    if "product" not in without and wants.product not in (None, room.labels.get(PRODUCT)):
        return False
    if "taints" not in without and not all(_tolerated(one, need) for one in _hard(room)):
        return False
    if "selector" in without:
        return True
    if any(room.labels.get(key) != value for key, value in need.selector):
        return False
    return not need.terms or any(_matches(term, room) for term in need.terms)


def _hard(room: Room) -> Iterable[Taint]:
    """Taints that keep pods off; those that only repeat a node's state are told by that."""
    return (one for one in room.taints if one[2] in _BLOCKING and one[0] not in _NODE_STATE)


def _tolerated(taint: Taint, need: Need) -> bool:
    key, value, effect = taint
    for one in need.tolerations:
        if js.text_at(one, "effect") not in (None, effect):
            continue
        if js.text_at(one, "operator") == "Exists":
            if js.text_at(one, "key") in (None, key):
                return True
        elif js.text_at(one, "key") == key and (js.text_at(one, "value") or "") == value:
            return True
    return False


def _matches(term: Object, room: Room) -> bool:
    """One nodeSelectorTerm: all its expressions; an empty one matches nothing."""
    expressions = js.items(term.get("matchExpressions"))
    fields = js.items(term.get("matchFields"))
    if not expressions and not fields:
        return False
    return all(_holds(one, room.labels) for one in expressions) and all(
        _holds(one, {"metadata.name": room.name}) for one in fields
    )


def _holds(expression: object, labels: Mapping[str, str]) -> bool:
    has = labels.get(js.text_at(expression, "key") or "")
    values = js.items(js.at(expression, "values"))
    match js.text_at(expression, "operator"):
        case "In":
            return has in values if has is not None else False
        case "NotIn":
            return has not in values
        case "Exists":
            return has is not None
        case "DoesNotExist":
            return has is None
        case "Gt" | "Lt" as operator:
            number, bound = js.integer(has), js.integer(values[0] if values else None)
            if number is None or bound is None:
                return False
            return number > bound if operator == "Gt" else number < bound
        case _:
            return False


# --- Placing --------------------------------------------------------------------------------------


def _fits_on(free: Mapping[str, int], need: Need) -> int:
    """How many pods of a kind a node takes."""
    most = min((free.get(key, 0) // count for key, count in need.devices), default=need.count)
    return max(0, min(most, 1) if need.one_a_node else most)


def _placed(
    free: dict[str, dict[str, int]],
    where: Sequence[Room],
    unit: Sequence[Need],
    wants: Wants,
    without: frozenset[str],
) -> int:
    """How many pods of a unit find room on these nodes; what they take is taken from `free`."""
    count = 0
    for need in unit:
        left = need.count
        for room in where:
            if left == 0:
                break
            if not admits(room, need, wants, without):
                continue
            own = free[room.name]
            taken = min(left, _fits_on(own, need))
            for key, devices in need.devices:
                own[key] = own.get(key, 0) - devices * taken
            left -= taken
        count += need.count - left
    return count


def _place(
    where: Sequence[Room],
    wants: Wants,
    without: frozenset[str] = frozenset(),
    *,
    by_level: bool = True,
) -> int:
    """How many pods of the gang find room."""
    free = {room.name: room.free for room in where}
    if wants.level is None or not by_level:
        return sum(_placed(free, where, unit, wants, without) for unit in wants.units)
    domains = _domains(where, wants)
    total = 0
    for unit in sorted(wants.units, key=lambda one: -sum(n.count * n.gpus for n in one)):
        tries = []
        for value, inside in domains.items():
            trial = {room.name: dict(free[room.name]) for room in inside}
            spare = sum(sum(devices.values()) for devices in trial.values())
            tries.append((-_placed(trial, inside, unit, wants, without), spare, value, trial))
        if not tries:
            return 0
        placed, _, value, trial = min(tries, key=lambda one: one[:3])
        total -= placed
        free.update(trial)
        if wants.exclusive:
            del domains[value]
    return total


def _domains(where: Sequence[Room], wants: Wants) -> dict[str, list[Room]]:
    """The nodes by their value of the level's label; one that another gang has for itself is left out."""
    found: dict[str, list[Room]] = defaultdict(list)
    for room in where:
        value = room.labels.get(wants.level or "")
        if value is not None:
            found[value].append(room)
    if not wants.exclusive:
        return dict(found)
    return {
        value: inside
        for value, inside in found.items()
        if not any(room.exclusive for room in inside)
    }


# --- The answer -----------------------------------------------------------------------------------


def judge(
    wants: Wants,
    every: Sequence[Room],
    *,
    out: frozenset[str],
    quota: str | None = None,
    unread: Sequence[str] = (),
) -> Spares:
    """Whether the gang places once the nodes `out` are gone. `quota` is the reason of a queue or a quota
    that says no already; `unread` what could not be read, without which a yes is none."""
    if not wants.pods:
        return Spares(places=None, why="none of its pods says what it asks for")
    if quota is not None:
        return Spares(places=False, why=f"quota: {quota}", cause="quota")
    where = sorted(
        (room for room in every if room.name not in out),
        key=lambda room: (not room.holds_gang, sum(room.free.values()), room.name),
    )
    placed = _place(where, wants)
    if placed < wants.pods:
        if "nodes" in unread:
            return Spares(places=None, why="the nodes could not be read")
        return _refused(wants, where, placed)
    spare = _spare(wants, where)
    shape = f"all {wants.pods} pods ({wants.gpus} GPUs) find room"
    not_seen = [*unread, *wants.unjudged]
    if not_seen:
        why = f"{shape}, but not looked at: {', '.join(not_seen)}"
        return Spares(places=None, why=why, spare_nodes=len(spare))
    return Spares(
        places=True,
        why=f"{shape}; {len(spare)} spare node{'' if len(spare) == 1 else 's'}",
        nodes=tuple(room.name for room in spare[:MOST_NAMED]),
        spare_nodes=len(spare),
    )


def _spare(wants: Wants, where: Sequence[Room]) -> list[Room]:
    """Nodes that hold no pod of the gang and could take one."""
    needs = [need for unit in wants.units for need in unit]
    return [
        room
        for room in where
        if not room.holds_gang
        and any(admits(room, need, wants) and _fits_on(room.free, need) for need in needs)
    ]


def _refused(wants: Wants, where: Sequence[Room], placed: int) -> Spares:
    """The first thing without which it would have placed, with its numbers."""
    pods = wants.pods
    short = f"{placed} of {pods} pods find room"
    if wants.level is not None and _place(where, wants, by_level=False) >= pods:
        return _no(
            "topology", f"no domain of {wants.level} has room for a whole unit; {short}", wants
        )
    free = _free_gpus(wants, where)
    if free >= wants.gpus:
        most = max((_free_of(room) for room in where if _may(room, wants)), default=0)
        each = max(need.gpus for unit in wants.units for need in unit)
        why = f"{free} GPUs are free, {most} at most on one node; a pod needs {each}; {short}"
        return _no("fragmentation", why, wants)
    for test, cause in _RELAXED:
        others = [room for room in where if not _may(room, wants) and _may(room, wants, test)]
        if others and _place(where, wants, test) >= pods:
            gpus = sum(_free_of(room) for room in others)
            why = f"{gpus} more GPUs are free on {len(others)} {cause[1]}; {short}"
            return _no(cause[0], why, wants)
    why = f"it needs {wants.gpus} GPUs, and {free} are free where it may run; {short}"
    return _no("no free GPUs", why, wants)


_RELAXED: tuple[tuple[frozenset[str], tuple[str, str]], ...] = (
    (frozenset({"taints"}), ("taints", "nodes with taints that it does not tolerate")),
    (frozenset({"state"}), ("cordoned", "nodes that are cordoned or not ready")),
    (frozenset({"selector"}), ("selector", "nodes that its selectors leave out")),
    (frozenset({"product"}), ("product", "nodes with other GPUs")),
)


def _no(cause: str, why: str, wants: Wants) -> Spares:
    """A no. With several kinds of pod in partly held nodes the packing is a guess: then nobody knows."""
    kinds = {need.devices for unit in wants.units for need in unit}
    if cause in ("fragmentation", "topology") and len(kinds) > 1:
        return Spares(places=None, why=f"it looks as if not ({cause}: {why})")
    return Spares(places=False, why=f"{cause}: {why}", cause=cause)


def _may(room: Room, wants: Wants, without: frozenset[str] = frozenset()) -> bool:
    return any(admits(room, need, wants, without) for unit in wants.units for need in unit)


def _free_of(room: Room) -> int:
    return sum(max(0, count) for key, count in room.free.items() if GPU_RESOURCE.match(key))


def _free_gpus(wants: Wants, where: Sequence[Room]) -> int:
    return sum(_free_of(room) for room in where if _may(room, wants))


# --- Quota ----------------------------------------------------------------------------------------


def quota_of(
    workloads: Iterable[Object], quotas: Iterable[Object], wants: Wants, own: Devices
) -> str | None:
    """Why a queue or the namespace's quota says no; None where neither does. `own`: what the gang holds
    now, which it gives back."""
    for one in workloads:
        told = kubernetes_gangs.held_by(one)
        if told is not None:
            return f"Kueue: {told[0]}: {told[1]}"
    need: Counter[str] = Counter()
    for unit in wants.units:
        for kind in unit:
            for key, count in kind.devices:
                need[key] += count * kind.count
    for one in quotas:
        hard = js.mapping(js.at(one, "status", "hard")) or js.mapping(js.at(one, "spec", "hard"))
        used = js.mapping(js.at(one, "status", "used"))
        for key, count in sorted(need.items()):
            limit = js.integer(hard.get(f"requests.{key}"))
            if limit is None:
                continue
            left = limit - max(0, (js.integer(used.get(f"requests.{key}")) or 0) - own.get(key, 0))
            if left < count:
                name = js.text_at(one, "metadata", "name") or "?"
                return (
                    f"ResourceQuota {name} leaves {max(0, left)} of {limit} {key}, it needs {count}"
                )
    return None
