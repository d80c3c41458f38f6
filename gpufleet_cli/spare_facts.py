"""What a gang asks for and what nodes offer, from raw objects: the two sides that `spares` compares. Pure.

Topology by JobSet (`alpha.jobset.sigs.k8s.io/exclusive-topology`), LeaderWorkerSet and Kueue, whose labels
and annotations stand on pods and on the objects above them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpufleet_cli.parsers import json_documents as js
from gpufleet_cli.parsers.kubernetes_gpus import GPU_RESOURCE

Object = Mapping[str, object]
Devices = Mapping[str, int]
Taint = tuple[str, str, str]

HOST = "kubernetes.io/hostname"
_JOBSET = "alpha.jobset.sigs.k8s.io/exclusive-topology"
_LWS = "leaderworkerset.sigs.k8s.io/exclusive-topology"
_KUEUE = "kueue.x-k8s.io/podset-required-topology"
_KUEUE_ANY = (
    "kueue.x-k8s.io/podset-preferred-topology",
    "kueue.x-k8s.io/podset-unconstrained-topology",
)
_KUEUE_UNIT = ("kueue.x-k8s.io/podset",)
_UNIT = (
    "jobset.sigs.k8s.io/replicatedjob-name",
    "jobset.sigs.k8s.io/job-index",
    "leaderworkerset.sigs.k8s.io/group-index",
)
_LWS_KEY = "leaderworkerset.sigs.k8s.io/group-key"
_JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """A node: what it offers, and `held`, what pods other than the gang's hold of it.

    `exclusive`: the marks of gangs that want their domain for themselves and have a pod here.
    """

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    is_open: bool
    offers: Devices
    held: Devices = field(default_factory=dict)
    exclusive: frozenset[str] = frozenset()
    holds_gang: bool = False

    @property
    def free(self) -> dict[str, int]:
        return {key: count - self.held.get(key, 0) for key, count in self.offers.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """So many pods of one kind. `terms` are the nodeSelectorTerms of the required node affinity."""

    count: int
    devices: tuple[tuple[str, int], ...]
    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[Object, ...] = ()
    tolerations: tuple[Object, ...] = ()
    one_a_node: bool = False

    @property
    def gpus(self) -> int:
        return sum(count for key, count in self.devices if GPU_RESOURCE.match(key))


@dataclass(frozen=True, slots=True, kw_only=True)
class Wants:
    """What a gang asks for. Each of `units` has to fit into one domain of `level` where that is given;
    `exclusive`: and each into a domain of its own. `unjudged`: what it asks for besides."""

    units: tuple[tuple[Need, ...], ...]
    level: str | None = None
    exclusive: bool = False
    product: str | None = None
    unjudged: tuple[str, ...] = ()

    @property
    def pods(self) -> int:
        return sum(need.count for unit in self.units for need in unit)

    @property
    def gpus(self) -> int:
        return sum(need.count * need.gpus for unit in self.units for need in unit)


# --- From objects ---------------------------------------------------------------------------------


def room_of(node: Object) -> Room:
    """A node as it stands, empty."""
    conditions = js.items(js.at(node, "status", "conditions"))
    ready = next((c for c in conditions if js.at(c, "type") == "Ready"), None)
    taints = tuple(
        (
            js.text_at(one, "key") or "",
            js.text_at(one, "value") or "",
            js.text_at(one, "effect") or "",
        )
        for one in js.items(js.at(node, "spec", "taints"))
    )
    is_open = js.at(node, "spec", "unschedulable") is not True
    return Room(
        name=js.text_at(node, "metadata", "name") or "?",
        labels=_texts(js.at(node, "metadata", "labels")),
        taints=taints,
        is_open=is_open and js.text_at(ready, "status") == "True",
        offers=_devices(js.at(node, "status", "allocatable")),
    )


def rooms(nodes: Iterable[Object], pods: Iterable[Object], own: frozenset[str]) -> list[Room]:
    """The nodes with what is held of each. `own` are the uids of the gang's pods, which give way."""
    held: dict[str, Counter[str]] = defaultdict(Counter)
    marks: dict[str, set[str]] = defaultdict(set)
    gang: set[str] = set()
    for pod in pods:
        node = js.text_at(pod, "spec", "nodeName")
        if node is None or js.at(pod, "status", "phase") in ("Succeeded", "Failed"):
            continue
        if js.text_at(pod, "metadata", "uid") in own:
            gang.add(node)
            continue
        held[node].update(devices_of(pod))
        labels = _texts(js.at(pod, "metadata", "labels"))
        marks[node] |= {labels[key] for key in (_JOBSET_NAME, _LWS_KEY) if key in labels}
    found = (room_of(node) for node in nodes)
    return [
        replace(
            room,
            held=dict(held.get(room.name, {})),
            exclusive=frozenset(marks.get(room.name, ())),
            holds_gang=room.name in gang,
        )
        for room in found
    ]


def devices_of(pod: Object) -> Counter[str]:
    """What all containers of a pod ask for; init containers run before and in their room."""
    total: Counter[str] = Counter()
    for container in js.items(js.at(pod, "spec", "containers")):
        asked = {
            **_devices(js.at(container, "resources", "requests")),
            **_devices(js.at(container, "resources", "limits")),
        }
        total.update(asked)
    return total


def held_by(pods: Iterable[Object]) -> Counter[str]:
    """What all these pods ask for together."""
    total: Counter[str] = Counter()
    for pod in pods:
        total.update(devices_of(pod))
    return total


def _devices(resources: object) -> dict[str, int]:
    return {
        key: count
        for key, value in js.mapping(resources).items()
        if "/" in key and (count := js.integer(value)) is not None and count > 0
    }


def _texts(value: object) -> dict[str, str]:
    return {key: one for key, one in js.mapping(value).items() if isinstance(one, str)}


def wants_of(
    pods: Sequence[Object], objects: Iterable[Object], *, size: int | None, product: str | None
) -> Wants:
    """What a gang asks for, by the specs of its pods and the annotations above them. Pods of it that are
    not there (of `size`) are taken to be like most of those that are."""
    marks = [
        _texts(js.at(one, "metadata", "annotations")) for one in (*objects, *pods)
    ] + [
        _texts(js.at(one, "spec", "networkTopology")) for one in objects
    ]  # fmt: skip
    level, exclusive = _level(marks)
    with_devices = [pod for pod in pods if devices_of(pod)]
    unjudged = {
        word for pod in with_devices for word in _unjudged(pod, is_placed=level is not None)
    }
    if any(one.get("mode") == "hard" for one in marks):
        unjudged.add("Volcano's network topology")
    units: dict[str, Counter[Need]] = defaultdict(Counter)
    keys = () if level is None else _UNIT if exclusive else _KUEUE_UNIT
    for pod in with_devices:
        units[_unit(pod, keys)][_need(pod, level, marks)] += 1
    lacking = 0 if size is None else size - len(pods)
    if lacking > 0 and len(units) == 1:
        (only,) = units.values()
        only[only.most_common(1)[0][0]] += lacking
    elif lacking > 0 and units:
        unjudged.add(f"{lacking} pods that are not there")
    return Wants(
        units=tuple(
            tuple(replace(need, count=count) for need, count in _largest_first(unit))
            for _, unit in sorted(units.items())
        ),
        level=level,
        exclusive=exclusive,
        product=product,
        unjudged=tuple(sorted(unjudged)),
    )


def _largest_first(unit: Counter[Need]) -> list[tuple[Need, int]]:
    return sorted(unit.items(), key=lambda one: (-one[0].gpus, -one[1], str(one[0].devices)))


def _level(marks: Iterable[Mapping[str, str]]) -> tuple[str | None, bool]:
    """The label whose one value must hold a unit, and whether no other unit may be there."""
    for key, exclusive in ((_JOBSET, True), (_LWS, True), (_KUEUE, False)):
        found = next((one[key] for one in marks if one.get(key)), None)
        if found is not None:
            return found, exclusive
    return None, False


def _unit(pod: Object, keys: Iterable[str]) -> str:
    """The child Job of a JobSet, the group of a LeaderWorkerSet, the podset of a Workload."""
    labels = _texts(js.at(pod, "metadata", "labels"))
    return "/".join(labels.get(key, "") for key in keys)


def _need(pod: Object, level: str | None, marks: Sequence[Mapping[str, str]]) -> Need:
    spec = js.mapping(js.at(pod, "spec"))
    selector = _texts(spec.get("nodeSelector"))
    if level is not None or any(key in one for one in marks for key in _KUEUE_ANY):
        # put there by who placed the pod, for the place that it has now
        selector = {
            key: value
            for key, value in selector.items()
            if key not in (HOST, level) and "topology" not in key
        }
    required = js.at(spec, "affinity", "nodeAffinity", _REQUIRED)
    return Need(
        count=1,
        devices=tuple(sorted(devices_of(pod).items())),
        selector=tuple(sorted(selector.items())),
        terms=_Frozen(js.mapping(one) for one in js.items(js.at(required, "nodeSelectorTerms"))),
        tolerations=_Frozen(js.mapping(one) for one in js.items(spec.get("tolerations"))),
        one_a_node=_is_one_a_node(spec),
    )


class _Frozen(tuple[Object, ...]):
    """A tuple of raw objects that can be counted: equal by what they say."""

    __slots__ = ()

    def __hash__(self) -> int:
        return hash(str(list(self)))


def _is_one_a_node(spec: Object) -> bool:
    terms = js.items(js.at(spec, "affinity", "podAntiAffinity", _REQUIRED))
    return any(js.text_at(one, "topologyKey") == HOST for one in terms)


def _unjudged(pod: Object, *, is_placed: bool) -> Iterable[str]:
    """What a pod asks for that is not looked at. `is_placed`: its affinity to pods comes from a topology
    that is."""
    if js.items(js.at(pod, "spec", "affinity", "podAffinity", _REQUIRED)) and not is_placed:
        yield "its affinity to other pods"
    for term in js.items(js.at(pod, "spec", "affinity", "podAntiAffinity", _REQUIRED)):
        if js.text_at(term, "topologyKey") != HOST and not is_placed:
            yield "its anti-affinity to other pods"
    for one in js.items(js.at(pod, "spec", "topologySpreadConstraints")):
        if js.at(one, "whenUnsatisfiable") == "DoNotSchedule":
            yield "its spread constraints"
