"""Who is who: global rank, pod, node, local rank, GPU, PCI address, and how each link was learned.

Order of trust (facts: kubernetes 1.3): the job's own lines, NCCL's init line, the agent's map, then files and
formulae. A speaker is resolved to a rank only by proof: a lone `[rankN]:` is local when several pods
carry the same N, or when its N cannot be a rank of the pod that wrote it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from gpufleet_cli.facts import (
    MOST_RANKS,
    IdentityLink,
    Link,
    NodeState,
    Origin,
    PodState,
    Speaker,
)
from gpufleet_cli.reason import rank_numbering, world_size
from gpufleet_cli.reason.names import Names, numbered_nodes
from gpufleet_cli.verdict import GpuRef

TRUST = (
    Link.LOG,
    Link.NCCL_INIT,
    Link.AGENT,
    Link.RAY,
    Link.TOPOLOGY_FILE,
    Link.POD_SPEC,
    Link.METRICS_LABELS,
    Link.KERNEL,
    Link.SCHEDULER,
    Link.DERIVED,
)
FEW_RANKS = 16_384
MOST_SPARSE = 64  # a single line of a rank 100,000 makes no job of that size
_TRUST_ORDER = {link: order for order, link in enumerate(TRUST)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one rank runs. `how` names the most trusted source that placed it."""

    rank: int
    pod: str | None = None
    pod_uid: str | None = None
    pod_ip: str | None = None
    namespace: str | None = None
    container: str | None = None
    node: str | None = None
    local_rank: int | None = None
    gpu: GpuRef = field(default_factory=GpuRef)
    how: Link = Link.DERIVED
    origin: Origin | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The identity map with its look-ups. Ranks that nothing places are absent from `places`."""

    world_size: int | None
    world_size_source: str
    places: Mapping[int, Place]
    by_speaker: Mapping[Speaker, int]
    by_pod: Mapping[str, tuple[int, ...]]
    by_node: Mapping[str, tuple[int, ...]]
    by_node_pci: Mapping[tuple[str, str], int]
    by_uuid: Mapping[str, int]
    node_by_address: Mapping[str, str]
    node_of_pod: Mapping[str, str]
    pod_by_uid: Mapping[str, str]
    domain_of_node: Mapping[str, str] = field(default_factory=dict)
    contradictions: tuple[str, ...] = ()
    node_aliases: Mapping[str, str] = field(default_factory=dict)

    def node_of(self, rank: int) -> str | None:
        """The node of a rank, None when not known."""
        place = self.places.get(rank)
        return None if place is None else place.node

    def node_of_speaker(self, speaker: Speaker) -> str | None:
        """The node that a speaker runs on, by its rank, its pod, or what its path said."""
        rank = self.by_speaker.get(speaker)
        if rank is not None and (node := self.node_of(rank)) is not None:
            return node
        if speaker.pod is not None and speaker.pod in self.node_of_pod:
            return self.node_of_pod[speaker.pod]
        for name in (speaker.node, speaker.host, speaker.pod):
            if name is not None and name in self.by_node:
                return name
            if name is not None and name in self.node_by_address:
                return self.node_by_address[name]
        return (
            speaker.node
            if speaker.node is None
            else self.node_aliases.get(speaker.node, speaker.node)
        )

    def unit_of(self, rank: int) -> frozenset[int]:
        """The ranks of a rank's node, or of its pod where no node is known; at least itself."""
        place = self.places.get(rank)
        if place is None:
            return frozenset({rank})
        ranks = self.by_node.get(place.node or "") or self.by_pod.get(place.pod or "")
        return frozenset(ranks or (rank,))

    def clock_of(self, speaker: Speaker) -> str | None:
        """The name of the clock that stamps a speaker's lines: its node, or its pod where no file tells
        the node, since all ranks of a pod share one."""
        node = self.node_of_speaker(speaker)
        if node is not None or speaker.pod is None:
            return node
        return f"pod {speaker.pod}"

    def rank_of_gpu(self, node: str | None, pci: str | None, uuid: str | None) -> int | None:
        """The rank on a GPU, by its UUID or by node and PCI address."""
        if uuid is not None and uuid in self.by_uuid:
            return self.by_uuid[uuid]
        bus = normal_pci(pci)
        return None if node is None or bus is None else self.by_node_pci.get((node, bus))


def normal_pci(text: str | None) -> str | None:
    """PCI address as `domain:bus:device`, lower case, four-digit domain, no function.

    >>> normal_pci("00000000:4E:00.0"), normal_pci("4e000"), normal_pci("4e:00.0")
    ('0000:4e:00', '0000:4e:00', '0000:4e:00')
    """
    if text is None:
        return None
    body = text.strip().lower().split(".")[0]
    parts = body.split(":")
    try:
        if len(parts) == 1:
            value = int(body, 16) >> 4
            return f"{value >> 16:04x}:{(value >> 8) & 0xFF:02x}:{value & 0xFF:02x}"
        domain, bus, device = ["0", *parts][-3:] if len(parts) == 2 else parts[-3:]
        return f"{int(domain, 16):04x}:{int(bus, 16):02x}:{int(device, 16):02x}"
    except ValueError:
        return None


def build(
    *,
    links: Iterable[IdentityLink],
    speakers: Iterable[Speaker],
    pods: Iterable[PodState],
    nodes: Iterable[NodeState],
    stated_world_size: tuple[int, str] | None,
    recorder_world_size: int | None,
    gpus_per_node: int | None,
    gathered_world_size: int | None = None,
) -> Topology:
    """Join every link of one attempt. `stated_world_size` is (size, source) of flag or file,
    `gathered_world_size` what the pods that were gathered start: a line of the job knows better."""
    credible = (link for link in links if max(link.rank or 0, (link.rank_in or 0) - 1) < MOST_RANKS)
    all_links = sorted(credible, key=lambda link: (_TRUST_ORDER[link.how], str(link.origin)))
    pod_list = sorted(pods, key=lambda pod: (pod.name, pod.created_ns or 0))
    node_list = tuple(nodes)
    speaker_list = sorted(set(speakers), key=_speaker_key)
    size, source = world_size.chosen(
        all_links, speaker_list, stated_world_size, recorder_world_size, gathered_world_size
    )
    all_links = [
        link
        for link in all_links
        if link.rank is None or link.rank_in is None or size is None or link.rank_in == size
    ]
    all_links += rank_numbering.by_pod_index(all_links, pod_list, size)
    numbered = rank_numbering.by_agent(all_links, speaker_list, None if source == "agent" else size)
    if numbered and source == "agent":
        size = max(link.rank or 0 for link in [*all_links, *numbered]) + 1
    all_links += numbered
    names = Names.gather(all_links, pod_list, node_list)
    draft = _draft_places(all_links, pod_list, names)
    untold: tuple[str, ...] = ()
    if size is not None:
        homes = {rank: (place.pod, place.node) for rank, place in draft.items()}
        order = rank_numbering.left_over(homes, speaker_list, pod_list, names, size)
        all_links += order.links
        draft = _draft_places(all_links, pod_list, names) if order.links else draft
        untold = () if order.why_not is None else (order.why_not,)
    names.aliases.update(
        numbered_nodes(
            speaker_list, {r: p.node for r, p in draft.items() if p.node is not None}, names
        )
    )
    prefixes_are_local = _prefixes_are_local(speaker_list, draft, size, names)
    resolved = _resolve(
        speaker_list, draft, all_links, prefixes_are_local, size, gpus_per_node, names
    )
    places, contradictions = _finish(draft, resolved, names, pod_list)
    if size is None and places and max(places) < max(FEW_RANKS, len(places) * MOST_SPARSE):
        size, source = max(places) + 1, "derived"
    told = (*contradictions, *untold)
    return _indexed(places, resolved, names, node_list, pod_list, size, source, told)


def _speaker_key(speaker: Speaker) -> str:
    return repr(speaker)


def _draft_places(
    links: list[IdentityLink], pods: list[PodState], names: Names
) -> dict[int, Place]:
    places: dict[int, Place] = {}
    for link in links:
        if link.rank is None:
            continue
        place = places.get(link.rank, Place(rank=link.rank, how=link.how, origin=link.origin))
        host_pod = link.host if link.host in names.pods else names.pod_by_ip.get(link.host or "")
        host_node = names.node_named(link.host)
        pod = place.pod or link.pod or host_pod
        places[link.rank] = replace(
            place,
            pod=pod,
            pod_uid=place.pod_uid or link.pod_uid,
            pod_ip=place.pod_ip or link.pod_ip,
            namespace=place.namespace or link.namespace,
            container=place.container or link.container,
            node=place.node
            or link.node
            or host_node
            or (None if pod is None else names.node_of_pod.get(pod)),
            local_rank=link.local_rank if place.local_rank is None else place.local_rank,
            gpu=_merge_gpu(place.gpu, link),
        )
    return places


def _merge_gpu(gpu: GpuRef, link: IdentityLink) -> GpuRef:
    return GpuRef(
        index=link.gpu_index if gpu.index is None else gpu.index,
        uuid=gpu.uuid or link.gpu_uuid,
        pci_bus_id=gpu.pci_bus_id or link.pci_bus_id,
    )


def _ranks_by(draft: Mapping[int, Place], name: str) -> dict[str, tuple[int, ...]]:
    """The ranks of each pod, or of each node."""
    found: dict[str, list[int]] = defaultdict(list)
    for rank, place in sorted(draft.items()):
        value = getattr(place, name)
        if value is not None:
            found[value].append(rank)
    return {value: tuple(ranks) for value, ranks in found.items()}


def _prefixes_are_local(
    speakers: list[Speaker], draft: Mapping[int, Place], size: int | None, names: Names
) -> bool:
    """Whether a lone `[rankN]:` is torchrun's local rank in this evidence (log-formats 0.2)."""
    units: dict[int, set[str]] = defaultdict(set)
    by_unit: dict[str, set[int]] = defaultdict(set)
    of_pod, of_node = _ranks_by(draft, "pod"), _ranks_by(draft, "node")
    fits = misfits = 0
    proven_global = False
    for speaker in speakers:
        number = speaker.prefix_rank
        if number is None:
            continue
        pod, node = names.unit(speaker)
        unit = pod or node
        expected = () if unit is None else (of_node if pod is None else of_pod).get(unit, ())
        if expected:
            # A number that is a rank of its pod and a local rank alike tells nothing.
            fits += number in expected and number >= len(expected)
            misfits += number not in expected and number < len(expected)
        if unit is not None:
            units[number].add(unit)
            by_unit[unit].add(number)
        if speaker.local_rank is not None and number != speaker.local_rank:
            proven_global = True
    if proven_global:
        return False
    if fits or misfits:
        return misfits > fits
    narrow = {unit for unit, numbers in by_unit.items() if size is None or len(numbers) < size}
    return any(len(found & narrow) > 1 for found in units.values())


def _resolve(
    speakers: list[Speaker],
    draft: Mapping[int, Place],
    links: list[IdentityLink],
    prefixes_are_local: bool,
    size: int | None,
    gpus_per_node: int | None,
    names: Names,
) -> dict[Speaker, int]:
    by_process: dict[tuple[str | None, int | None], int] = {
        (link.host, link.pid): link.rank
        for link in reversed(links)
        if link.rank is not None and link.host is not None and link.pid is not None
    }
    by_local: dict[tuple[str, int], int] = {}
    by_unit: dict[str, list[int]] = defaultdict(list)
    for rank, place in sorted(draft.items()):
        for unit in {place.pod, place.node} - {None}:
            assert unit is not None
            by_unit[unit].append(rank)
            if place.local_rank is not None:
                by_local.setdefault((unit, place.local_rank), rank)
    shared = {unit for unit, local in by_local if local > 0}
    """Pods and nodes that hold more ranks than one, even where only one of them is known."""
    tasks = {speaker.task for speaker in speakers if speaker.task is not None}
    disproved = any(
        speaker.task is not None
        and (stated := speaker.rank if speaker.rank is not None else speaker.prefix_rank)
        is not None
        and stated != speaker.task
        for speaker in speakers
    )
    tasks_are_ranks = bool(tasks) and not disproved and _tasks_are_ranks(tasks, size, names)
    resolved: dict[Speaker, int] = {}
    for speaker in speakers:
        pod, node = names.unit(speaker)
        found = _rank_of(
            speaker,
            unit=pod or node,
            by_process=by_process,
            by_local=by_local,
            by_unit=by_unit,
            shared=shared,
            prefixes_are_local=prefixes_are_local,
            tasks_are_ranks=tasks_are_ranks,
            gpus_per_node=gpus_per_node,
        )
        if found is not None and 0 <= found < (MOST_RANKS if size is None else size):
            resolved[speaker] = found
    return resolved


def _tasks_are_ranks(tasks: set[int], size: int | None, names: Names) -> bool:
    """srun's label is a rank only with one task per GPU; else it is a node index."""
    if size is not None:
        return max(tasks) + 1 > size // 2 and max(tasks) < size
    return len(tasks) > max(1, len(names.nodes))


def _rank_of(
    speaker: Speaker,
    *,
    unit: str | None,
    by_process: Mapping[tuple[str | None, int | None], int],
    by_local: Mapping[tuple[str, int], int],
    by_unit: Mapping[str, list[int]],
    shared: set[str],
    prefixes_are_local: bool,
    tasks_are_ranks: bool,
    gpus_per_node: int | None,
) -> int | None:
    if speaker.rank is not None:
        return speaker.rank
    if speaker.prefix_rank is not None and not prefixes_are_local:
        return speaker.prefix_rank
    if speaker.host is not None and speaker.pid is not None:
        known = by_process.get((speaker.host, speaker.pid))
        if known is not None:
            return known
    if speaker.host is None and speaker.pid is not None and speaker.prefix_rank is None:
        of_pid = {rank for (_host, pid), rank in by_process.items() if pid == speaker.pid}
        if len(of_pid) == 1:
            return next(iter(of_pid))
    if speaker.task is not None and tasks_are_ranks:
        return speaker.task
    local = speaker.local_rank
    if local is None and prefixes_are_local:
        local = speaker.prefix_rank
    if local is not None and unit is not None and (unit, local) in by_local:
        return by_local[unit, local]
    if local is not None and speaker.node_rank is not None and gpus_per_node is not None:
        return speaker.node_rank * gpus_per_node + local
    if unit is not None and local is None and len(set(by_unit.get(unit, ()))) == 1:
        return None if unit in shared else by_unit[unit][0]
    return None


def _finish(
    draft: dict[int, Place],
    resolved: Mapping[Speaker, int],
    names: Names,
    pods: list[PodState],
) -> tuple[dict[int, Place], tuple[str, ...]]:
    """Places completed by who spoke where; the narrowest stream names a rank's pod."""
    width = Counter(speaker.stream for speaker in resolved)
    places = dict(draft)
    contradictions: list[str] = []
    for speaker, rank in sorted(
        resolved.items(), key=lambda item: (width[item[0].stream], _speaker_key(item[0]))
    ):
        pod, node = names.unit(speaker)
        place = places.get(rank)
        if place is None:
            place = Place(rank=rank, how=Link.LOG)
        elif place.pod is not None and pod is not None and pod != place.pod:
            if pod in names.pods and width[speaker.stream] <= 16:
                contradictions.append(
                    f"rank {rank} wrote in the log of {pod}, but {place.how} places it in {place.pod}"
                )
            continue
        places[rank] = replace(
            place,
            pod=place.pod or pod,
            pod_uid=place.pod_uid or speaker.pod_uid,
            namespace=place.namespace or speaker.namespace,
            container=place.container or speaker.container,
            node=place.node or node or (None if pod is None else names.node_of_pod.get(pod)),
            local_rank=speaker.local_rank if place.local_rank is None else place.local_rank,
        )
    return places, tuple(sorted(set(contradictions)))


def _indexed(
    places: dict[int, Place],
    resolved: Mapping[Speaker, int],
    names: Names,
    nodes: tuple[NodeState, ...],
    pods: list[PodState],
    size: int | None,
    source: str,
    contradictions: tuple[str, ...],
) -> Topology:
    by_pod: dict[str, list[int]] = defaultdict(list)
    by_node: dict[str, list[int]] = defaultdict(list)
    by_node_pci: dict[tuple[str, str], int] = {}
    by_uuid: dict[str, int] = {}
    for rank, place in sorted(places.items()):
        if place.pod is not None:
            by_pod[place.pod].append(rank)
        if place.node is not None:
            by_node[place.node].append(rank)
            bus = normal_pci(place.gpu.pci_bus_id)
            if bus is not None:
                by_node_pci.setdefault((place.node, bus), rank)
        if place.gpu.uuid is not None:
            by_uuid.setdefault(place.gpu.uuid, rank)
    addresses = dict(names.node_by_address)
    for place in places.values():
        if place.pod_ip is not None and place.node is not None:
            addresses.setdefault(place.pod_ip, place.node)
    return Topology(
        world_size=size,
        world_size_source=source,
        places=dict(sorted(places.items())),
        by_speaker=dict(resolved),
        by_pod={pod: tuple(ranks) for pod, ranks in sorted(by_pod.items())},
        by_node={node: tuple(ranks) for node, ranks in sorted(by_node.items())},
        by_node_pci=by_node_pci,
        by_uuid=by_uuid,
        node_by_address=addresses,
        node_of_pod=dict(names.node_of_pod),
        pod_by_uid=dict(names.pod_by_uid),
        domain_of_node={n.name: n.nvlink_domain for n in nodes if n.nvlink_domain is not None},
        contradictions=contradictions,
        node_aliases=dict(names.aliases),
    )
