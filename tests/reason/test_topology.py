"""Identity map: who wrote a line, and how that is known."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from gpufleet_cli.facts import IdentityLink, Link, Origin, PodState, Speaker
from gpufleet_cli.reason import topology
from gpufleet_cli.reason.topology import Topology, normal_pci

HERE = Origin(path="topology.json")


def link(rank: int, **known: object) -> IdentityLink:
    return IdentityLink(how=Link.TOPOLOGY_FILE, origin=HERE, rank=rank, **known)  # type: ignore[arg-type]


def built(
    links: Iterable[IdentityLink], speakers: Iterable[Speaker], size: int | None = None
) -> Topology:
    return topology.build(
        links=links,
        speakers=speakers,
        pods=(),
        nodes=(),
        stated_world_size=None if size is None else (size, "file"),
        recorder_world_size=None,
        gpus_per_node=None,
    )


def two_pods() -> list[IdentityLink]:
    return [link(r, pod=f"w-{r // 2}", node=f"n{r // 2}", local_rank=r % 2) for r in range(4)]


def test_a_lone_prefix_is_global_where_it_fits_the_pod() -> None:
    """`[rank3]:` in the log of the pod that holds rank 3 is a global rank."""
    speaker = Speaker(stream="a", prefix_rank=3, pod="w-1")
    assert built(two_pods(), [speaker], 4).by_speaker[speaker] == 3


def test_a_lone_prefix_is_local_when_every_pod_says_rank0() -> None:
    """Several pods that all say `[rank0]:` use torchrun's role prefix: the number is local."""
    speakers = [Speaker(stream=str(i), prefix_rank=0, pod=f"w-{i}") for i in range(2)]
    found = built(two_pods(), speakers, 4).by_speaker
    assert [found[s] for s in speakers] == [0, 2]


def test_a_local_prefix_without_a_map_gives_no_rank() -> None:
    """Without proof no global rank: two unknown pods with the same number stay unresolved."""
    speakers = [Speaker(stream=str(i), prefix_rank=0, pod=f"x-{i}") for i in range(2)]
    assert built([], speakers, 16).by_speaker == {}


def test_the_inner_of_two_prefixes_wins() -> None:
    """A proven rank is taken as it is, whatever the local rank says."""
    speaker = Speaker(stream="a", rank=3, local_rank=1, pod="w-1")
    assert built(two_pods(), [speaker], 4).by_speaker[speaker] == 3


def test_local_rank_and_pod_find_the_rank() -> None:
    """`[default1]:` in pod w-1 is rank 3 of this map."""
    speaker = Speaker(stream="a", local_rank=1, pod="w-1")
    assert built(two_pods(), [speaker], 4).by_speaker[speaker] == 3


def test_rank_zero_is_a_rank() -> None:
    """Rank 0 and local rank 0 resolve like any other."""
    speaker = Speaker(stream="a", local_rank=0, pod="w-0")
    assert built(two_pods(), [speaker], 4).by_speaker[speaker] == 0


def test_a_pod_with_one_rank_needs_no_prefix() -> None:
    """The only rank of a pod wrote the pod's lines."""
    speaker = Speaker(stream="a", pod="w-7")
    assert built([link(7, pod="w-7")], [speaker], 8).by_speaker[speaker] == 7


def test_srun_label_is_a_rank_only_with_one_task_per_gpu() -> None:
    """Eight labels for a world of eight are ranks; two labels are node indices."""
    eight = [Speaker(stream="s", task=i) for i in range(8)]
    two = [Speaker(stream="s", task=i) for i in range(2)]
    assert built([], eight, 8).by_speaker[eight[5]] == 5
    assert built([], two, 16).by_speaker == {}


def test_nccl_init_line_maps_host_and_pid() -> None:
    """The init line of the same host and pid tells the rank of a warning that names neither."""
    init = IdentityLink(
        how=Link.NCCL_INIT,
        origin=HERE,
        rank=11,
        rank_in=16,
        host="b08",
        pid=4103,
        pci_bus_id="4e000",
    )
    speaker = Speaker(stream="a", host="b08", pid=4103)
    found = built([init], [speaker], 16)
    assert found.by_speaker[speaker] == 11
    assert found.places[11].gpu.pci_bus_id == "4e000"


def test_init_line_of_a_smaller_communicator_is_no_global_rank() -> None:
    """`rank 1 nranks 2` in a world of 16 says nothing about global rank 1."""
    init = IdentityLink(how=Link.NCCL_INIT, origin=HERE, rank=1, rank_in=2, host="h", pid=1)
    assert built([init], [], 16).places == {}


def test_a_gpu_is_found_by_any_spelling_of_its_address() -> None:
    """The exporter's eight-digit upper-case address is the kernel's four-digit one."""
    found = built([link(5, node="n1", pci_bus_id="0000:4e:00.0")], [], 8)
    assert found.rank_of_gpu("n1", "00000000:4E:00.0", None) == 5
    assert found.rank_of_gpu("n2", "0000:4e:00", None) is None


def test_a_rank_in_another_pods_log_is_a_contradiction() -> None:
    """Lines of rank 0 in the log of the pod that should hold ranks 2 and 3 are reported."""
    speaker = Speaker(stream="a", rank=0, pod="w-1")
    found = built(two_pods(), [speaker], 4)
    assert len(found.contradictions) == 1
    assert "rank 0" in found.contradictions[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0000:4e:00.0", "0000:4e:00"),
        ("PCI", None),
        ("0008:01:00", "0008:01:00"),
        ("4e000", "0000:4e:00"),
        ("", None),
        (None, None),
    ],
)
def test_pci_addresses(text: str | None, expected: str | None) -> None:
    """All spellings come to domain, bus and device; what is none comes to nothing."""
    assert normal_pci(text) == expected


# --- Pods whose spec fixes their ranks, and names that were cut ----------------------------------


def pods(count: int, rendezvous: str = "static") -> list[PodState]:
    return [
        PodState(
            name=f"pod-{n}",
            namespace=None,
            uid=None,
            node=f"node-{n}.cluster",
            pod_ip=f"10.0.0.{n}",
            phase="Running",
            reason=None,
            created_ns=None,
            deleted_ns=None,
            containers=(),
            rank_container=None,
            disruption=None,
            disrupted_ns=None,
            gpus=4,
            labels=(),
            node_rank=n,
            owner=None,
            origin=Origin(path="pods.json", entry=n),
            rendezvous=rendezvous,  # type: ignore[arg-type]
        )
        for n in range(count)
    ]


def of_pods(listed: list[PodState], *links: IdentityLink, size: int = 8) -> Topology:
    return topology.build(
        links=links,
        speakers=[],
        pods=listed,
        nodes=[],
        stated_world_size=(size, "file"),
        recorder_world_size=None,
        gpus_per_node=None,
    )


def test_pods_whose_spec_fixes_their_node_rank_place_their_ranks() -> None:
    """No log is at hand, and two pods of four GPUs fill a world of eight."""
    found = of_pods(pods(2))
    assert found.by_node == {"node-0.cluster": (0, 1, 2, 3), "node-1.cluster": (4, 5, 6, 7)}
    assert found.by_pod["pod-1"] == (4, 5, 6, 7)


def test_pods_that_sort_themselves_place_nobody() -> None:
    assert of_pods(pods(2, "c10d")).by_node == {}


def test_pods_that_do_not_fill_the_world_place_nobody() -> None:
    assert of_pods(pods(2), size=16).by_node == {}


def test_a_line_that_says_otherwise_outweighs_the_spec() -> None:
    """Rank 1 wrote in pod-1: the order of the spec is not that of the ranks."""
    found = of_pods(pods(2), link(1, pod="pod-1"))
    assert found.by_pod == {"pod-1": (1,)}


def test_a_host_that_nccl_cut_at_its_dot_is_found() -> None:
    found = of_pods(pods(2, "c10d"), link(5, host="node-1"))
    assert found.by_node == {"node-1.cluster": (5,)}


def gathered(
    listed: list[PodState], speakers: list[Speaker], *links: IdentityLink, size: int = 12
) -> Topology:
    """With the world size that a bundle's manifest has."""
    return topology.build(
        links=links,
        speakers=speakers,
        pods=listed,
        nodes=[],
        stated_world_size=None,
        recorder_world_size=None,
        gpus_per_node=None,
        gathered_world_size=size,
    )


def saying(pod: str, rank: int, local: int | None = None) -> Speaker:
    return Speaker(stream=pod, rank=rank, local_rank=local, pod=pod)


def agents(*named: tuple[str, int]) -> list[IdentityLink]:
    """The first rank of each agent, as its block of failures says it."""
    return [
        IdentityLink(how=Link.AGENT, origin=HERE, rank=rank, local_rank=0, pod=pod)
        for pod, rank in named
    ]


def test_the_gathered_pods_tell_the_size_where_nobody_says_it() -> None:
    """The highest ranks may have left no line; a rank beyond it outweighs it."""
    found = gathered(pods(3, "c10d"), [saying("pod-0", 1)])
    assert (12, "pod-spec") == (found.world_size, found.world_size_source)
    assert gathered(pods(3, "c10d"), [saying("pod-0", 14)]).world_size == 15


def test_an_agent_that_said_nothing_makes_the_others_no_wider() -> None:
    """Agents of ranks 0 and 4 spoke, and the pod between them speaks of ranks 2 and 3: two a pod, not four."""
    spoken = [saying(f"pod-{rank // 2}", rank) for rank in range(6)]
    found = topology.build(
        links=agents(("pod-0", 0), ("pod-2", 4)),
        speakers=spoken,
        pods=(),
        nodes=[],
        stated_world_size=None,
        recorder_world_size=None,
        gpus_per_node=None,
    )
    assert 6 == found.world_size
    assert {"pod-0": (0, 1), "pod-2": (4, 5)} == dict(found.by_pod)


def test_a_line_with_both_ranks_places_its_whole_pod() -> None:
    """`[default1]:[rank5]:` in pod-1 of four a pod: it holds ranks 4 to 7; the pod that is left holds what is left."""
    found = gathered(pods(3, "c10d"), [saying("pod-1", 5, local=1), saying("pod-0", 8, local=0)])
    assert {"pod-0": (8, 9, 10, 11), "pod-1": (4, 5, 6, 7), "pod-2": (0, 1, 2, 3)} == dict(
        found.by_pod
    )


def test_two_pods_that_said_nothing_are_not_told_apart() -> None:
    found = gathered(pods(3, "c10d"), [saying("pod-1", 5, local=1)])
    assert {"pod-1": (4, 5, 6, 7)} == dict(found.by_pod)


def sorting(names: list[str]) -> list[PodState]:
    """Pods of two ranks whose agents sort themselves by their host names."""
    listed = pods(len(names), "c10d")
    return [
        replace(one, name=name, gpus=2, sorts_as=name)
        for one, name in zip(listed, names, strict=True)
    ]


def test_agents_sort_themselves_by_host_name() -> None:
    """No line tells a rank, and both orders of names agree: placed, and said to be derived."""
    found = gathered(sorting(["w-2", "w-0", "w-1"]), [], size=6)
    assert {"w-0": (0, 1), "w-1": (2, 3), "w-2": (4, 5)} == dict(found.by_pod)
    assert {"derived"} == {place.how for place in found.places.values()}
    assert 1 == found.places[3].local_rank


TWELVE = [f"w-{n}" for n in range(12)]


def test_where_strings_and_numbers_sort_apart_a_line_decides() -> None:
    """`w-10` before `w-2` in every torchrun so far; nobody is placed before a line has told which order it was."""
    untold = gathered(sorting(TWELVE), [], size=24)
    assert {} == dict(untold.by_pod)
    assert "no line tells which of 12 pods holds which ranks" in untold.contradictions[0]
    as_text = gathered(sorting(TWELVE), [saying("w-10", 4)], size=24)
    assert ((4, 5), (8, 9), (22, 23)) == tuple(as_text.by_pod[n] for n in ("w-10", "w-2", "w-9"))
    as_numbers = gathered(sorting(TWELVE), [saying("w-2", 4)], size=24)
    assert ((20, 21), (4, 5)) == tuple(as_numbers.by_pod[n] for n in ("w-10", "w-2"))
    neither = gathered(sorting(TWELVE), [saying("w-2", 0), saying("w-10", 4)], size=24)
    assert {"w-2": (0,), "w-10": (4,)} == dict(neither.by_pod)
    assert () == neither.contradictions


def test_a_prefix_counts_against_the_order_of_names() -> None:
    """`[rank1]:` in `w-1` alone: a rank of the world, and not where names would have it. In all pods: local ranks."""
    names = ["w-0", "w-1", "w-2"]
    alone = gathered(sorting(names), [Speaker(stream="w-1", prefix_rank=1, pod="w-1")], size=6)
    assert {"w-1": (1,)} == dict(alone.by_pod)
    local = [Speaker(stream=name, prefix_rank=n, pod=name) for name in names for n in (0, 1)]
    found = gathered(sorting(names), local, size=6)
    assert {"w-0": (0, 1), "w-1": (2, 3), "w-2": (4, 5)} == dict(found.by_pod)
    assert 3 == found.by_speaker[local[3]]


def test_nobody_has_a_rank_before_all_agents_have_met() -> None:
    """A pod that waits for its image: the names tell an order that was never given out."""
    names = ["w-0", "w-1", "w-2"]
    waits = [replace(sorting(names)[1], phase="Pending")]
    assert {} == dict(gathered([*sorting(names)[::2], *waits], [], size=6).by_pod)


def test_a_world_that_is_not_full_or_hosts_that_are_not_known_place_nobody() -> None:
    assert {} == dict(gathered(sorting(["w-0", "w-1"]), [], size=6).by_pod)
    assert {} == dict(gathered([*sorting(["w-0", "w-1"]), *pods(1, "c10d")], [], size=6).by_pod)
    same = [replace(one, sorts_as="node") for one in sorting(["w-0", "w-1", "w-2"])]
    assert {} == dict(gathered(same, [], size=6).by_pod)


def test_a_driver_prints_for_workers_elsewhere() -> None:
    """The address in Ray's line is the worker's pod, whoever's log it stands in."""
    speaker = Speaker(stream="pod-0", prefix_rank=9, pod="pod-0", host="10.0.0.2", pid=909)
    found = gathered(pods(3, "c10d"), [speaker])
    assert {"pod-2": (9,)} == dict(found.by_pod)


def test_mpirun_prints_in_the_launcher_for_all() -> None:
    """`[1,5]<stdout>:` in the log of pod-0 places nobody there; the hostfile's order does."""
    spoken = [Speaker(stream="pod-0", task=task, pod="pod-0") for task in range(12)]
    found = gathered(pods(3), spoken)
    assert (4, 5, 6, 7) == found.by_pod["pod-1"]
    assert () == found.contradictions


def test_a_pod_that_is_gone_takes_nobody_elses_rank() -> None:
    """The specs state how many each starts: the two that are left keep their ranks in a world of three."""
    left = [replace(pod, nproc=4) for pod in pods(3)][::2]
    found = gathered(left, [])
    assert {"pod-0": (0, 1, 2, 3), "pod-2": (8, 9, 10, 11)} == dict(found.by_pod)
