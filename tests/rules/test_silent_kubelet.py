"""A kubelet that did not reply: it adds to what speaks against its node, and convicts nobody by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpufleet_cli.facts import Fact, JobNumbers, KubeletReply, NodeLease, NodeState, Origin
from gpufleet_cli.reason.build import build_case
from gpufleet_cli.recommend import recommend
from gpufleet_cli.rules import RULES, node_fault, silent_kubelet
from gpufleet_cli.verdict import Action, Kind, Verdict
from gpufleet_cli.weigh import weigh
from rules.stories import GAVE_UP, STOPPED, S, hang, proposed, running

READS = Origin(path="kubernetes/log_reads.json", entry=0)
REFUSED = "dial tcp 10.0.0.1:10250: connect: connection refused"


def kubelet(node: int, *, replied: bool = False) -> KubeletReply:
    said = "" if replied else REFUSED
    pods = () if replied else (f"pod-{node}",)
    at = None if replied else GAVE_UP + 300 * S
    return KubeletReply(
        node=f"node-{node}", replied=replied, pods=pods, said=said, at_ns=at, origin=READS
    )


def node(number: int, ready: str = "Unknown", since: int = STOPPED + S) -> NodeState:
    return NodeState(
        name=f"node-{number}",
        ready=ready,  # type: ignore[arg-type]
        ready_since_ns=since,
        ready_reason=None,
        unschedulable=False,
        bad_conditions=(),
        gpus_capacity=None,
        gpus_allocatable=None,
        nvlink_domain=None,
        provider_id=None,
        internal_ip=None,
        created_ns=None,
        labels=(),
        taints=(),
        origin=Origin(path="kubernetes/nodes.json", entry=number),
    )


def lease(number: int, at: int) -> NodeLease:
    origin = Origin(path="kubernetes/nodes.json", entry=10 + number)
    return NodeLease(node=f"node-{number}", renewed_ns=at, duration_s=40.0, origin=origin)


def judged(facts: list[Fact]) -> tuple[Verdict, Action]:
    case = build_case(facts, as_of_ns=None, captured_ns=GAVE_UP + 300 * S)
    verdict, chosen = weigh(case, [h for rule in RULES for h in rule.propose(case)])
    return verdict, recommend(case, verdict, chosen).action


SILENT_1 = [kubelet(0, replied=True), kubelet(1)]
NONE_OF_1 = range(4, 8)  # its log never came


def test_with_a_node_that_is_not_ready_it_is_a_claim_for_the_same_verdict() -> None:
    """The node is dead by its condition; the silence of its kubelet stands beside it, with its origin."""
    facts = hang(node(1), *SILENT_1, quiet=(), absent=NONE_OF_1)
    (dead,) = proposed(node_fault, facts)
    assert ("node-1",) == dead.nodes
    told = [claim for claim in dead.claims if "did not reply" in claim.text]
    assert [READS] == [claim.origin for claim in told]
    assert REFUSED in told[0].text
    assert [] == proposed(silent_kubelet, facts), "said once"
    verdict, action = judged(facts)
    assert (Kind.HARDWARE, {"node-1"}) == (verdict.kind, {c.node for c in verdict.culprits})
    assert Action.EVICT_NOW is action


def test_it_weighs_with_a_stale_lease() -> None:
    """Both together say more than the lease alone."""
    leases = [lease(0, GAVE_UP + 300 * S), lease(1, STOPPED)]
    alone = hang(*leases, quiet=(), absent=NONE_OF_1)
    both = [*alone, *SILENT_1]
    (one,), (two,) = proposed(node_fault, alone), proposed(node_fault, both)
    assert sum(c.weight for c in two.claims) > sum(c.weight for c in one.claims)


@pytest.mark.parametrize("ready", ["True", None])
def test_alone_it_evicts_nobody(ready: str | None) -> None:
    """A kubelet that hangs on a node that is otherwise well, in a job that stopped: no cordon, no evict."""
    more = [] if ready is None else [node(1, ready, STOPPED - 9999 * S)]
    facts = hang(*more, *SILENT_1, quiet=(), absent=NONE_OF_1)
    verdict, action = judged(facts)
    assert action not in (Action.EVICT_NOW, Action.CORDON_AT_CHECKPOINT), verdict
    assert verdict.kind is not Kind.HARDWARE
    assert any("did not reply" in claim.text for claim in verdict.evidence), "and it is shown"


def test_it_is_too_little_by_itself() -> None:
    """Nobody waited, nothing else is known: undecidable, with the ranks of that node in question."""
    facts = [
        replace(fact, state="aborted") if isinstance(fact, JobNumbers) else fact
        for fact in hang(*SILENT_1, quiet=(), absent=range(8))
    ]
    verdict, action = judged(facts)
    assert (Kind.UNDECIDABLE, Action.COLLECT_MORE) == (verdict.kind, action)
    assert tuple(NONE_OF_1) == verdict.alternatives[0].ranks
    assert "node-1" in verdict.would_settle


def test_ranks_that_waited_are_not_in_question() -> None:
    """Their log came from a store: they waited like all others."""
    assert [] == proposed(silent_kubelet, hang(*SILENT_1, quiet=(3,)))


def test_a_job_that_runs_is_not_doubted() -> None:
    """Others step on, so the ranks of that node do too."""
    assert [] == proposed(silent_kubelet, running(*SILENT_1))


@pytest.mark.parametrize(
    "replies",
    [
        [kubelet(0), kubelet(1)],
        [kubelet(1)],
        [kubelet(0, replied=True), kubelet(1), kubelet(2), kubelet(3)],
    ],
    ids=["all", "the only one", "most"],
)
def test_where_the_way_is_at_fault_no_node_is_blamed(replies: list[KubeletReply]) -> None:
    """Not all nodes die at once; a node that is dead by other signs stays so, without this claim."""
    facts = hang(*replies, quiet=(), absent=NONE_OF_1, size=16)
    assert [] == proposed(silent_kubelet, facts)
    (dead,) = proposed(node_fault, [*facts, node(1)])
    assert not [claim for claim in dead.claims if "did not reply" in claim.text]


def test_a_node_that_replied_once_is_not_silent() -> None:
    """Whatever else of it did not come."""
    replies = [kubelet(0, replied=True), kubelet(1, replied=True), kubelet(1)]
    assert [] == proposed(silent_kubelet, hang(*replies, quiet=(), absent=NONE_OF_1))
