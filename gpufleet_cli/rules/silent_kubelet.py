"""A node whose kubelet did not reply when its pods' logs were asked for, and of which nothing else is known.

Claims no more than that its ranks may be those that the others wait for: what else looks the same is a
kubelet that hangs, or a firewall on the way to one node, while the ranks are well. So it adds to what
leaves the same ranks in question, convicts nobody by itself, and calls for no cordon. It cannot tell when the
silence began. Where the node is dead by other signs, `node_fault` has this claim.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpufleet_cli.facts import KubeletReply
from gpufleet_cli.reason import Case, kubelets
from gpufleet_cli.rules import claims, node_fault
from gpufleet_cli.rules.claims import ranks_text
from gpufleet_cli.verdict import Hypothesis, Kind, Remedy

NAME = "silent_kubelet"


def propose(case: Case) -> Iterator[Hypothesis]:
    """The ranks of each such node, in a job that stopped."""
    if not case.stop.stopped:
        return  # others step on, and with them the ranks of that node
    dead = node_fault.deaths(case)
    for reply in kubelets.silent_nodes(case.kubelets):
        ranks = case.topology.by_node.get(reply.node) or node_fault.of_unplaced(case)
        if ranks and reply.node not in dead and not any(r in case.witnesses for r in ranks):
            yield _in_question(case, reply, ranks)


def _in_question(case: Case, reply: KubeletReply, ranks: tuple[int, ...]) -> Hypothesis:
    single = len(ranks) == 1
    is_ready = any(node.name == reply.node and node.ready == "True" for node in case.nodes)
    return Hypothesis(
        kind=Kind.RANK_MISSING,
        rule=NAME,
        summary=f"The kubelet of {reply.node} does not reply: whether {ranks_text(ranks)} on it still"
        " lived is not known.",
        claims=(node_fault.silence(reply, claims.WEAK if is_ready else claims.MODEST),),
        remedy=Remedy.PROCESS,
        generic=True,
        ranks=ranks if single else (),
        suspects=() if single else ranks,
        would_settle=f"the console, the kernel log or any other sign of life of {reply.node}",
    )
