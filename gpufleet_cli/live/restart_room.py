"""Whether a restart would place without each node of the gang, asked beside the logs and kept judged.

At this time nobody knows which node will be blamed: each is judged alone, ill ones first. The fleet is read
once, within `LONGEST_S`: this must never hold up a triage. What was not read by then turns answers into
"not known", and the file says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from gpufleet_cli.live import first_facts, held_gangs, spare_look
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.bundle_writer import BundleWriter
from gpufleet_cli.live.deadline import Deadline
from gpufleet_cli.live.find_job import Job
from gpufleet_cli.live.gather import NODES_FILE
from gpufleet_cli.live.held_gangs import Gang
from gpufleet_cli.live.kinds import Object
from gpufleet_cli.live.pods import Attempt
from gpufleet_cli.node_card import Spares
from gpufleet_cli.parsers import json_documents as js
from gpufleet_cli.parsers.restart_room import MOST_NODES, SCHEMA

SPARES_FILE = "kubernetes/spares.json"
LONGEST_S = 5.0
THREADS = 4


def gather(api: Api, job: Job, attempt: Attempt, sink: BundleWriter) -> None:
    """One small file: for each node of the gang, whether it places without it."""
    if sink.has(SPARES_FILE):
        return
    judged, requests = without_each(api, job, attempt, _nodes(sink))
    if requests:
        api.requests["spares"] = requests
    if judged and not api.deadline.is_over():
        sink.add_document(SPARES_FILE, _document(judged))


def without_each(
    api: Api, job: Job, attempt: Attempt, nodes: Sequence[Object]
) -> tuple[dict[str, Spares], int]:
    """The answer for each node of the gang, and what was asked of the server. Nothing for what is no gang."""
    gang = _gang(job, attempt)
    names = [] if gang is None else _worth_asking(attempt, nodes, api.now_ns())
    products = {p for one in nodes if (p := spare_look.product_of(one)) is not None}
    if gang is None or not names or len(products) > 1:
        return {}, 0
    own = Api(
        api.access,
        deadline=Deadline(api.deadline.bound(LONGEST_S)),
        threads=min(api.threads, THREADS),
    )
    product = next(iter(products), None)
    question = spare_look.question(
        own, gang, job.objects, spare_look.fleet(own, product), product=product
    )
    judged: dict[str, Spares] = {}
    for name, told in question.without_each(names):
        judged[name] = told
        if own.deadline.is_over():
            break
    return judged, own.requests.total()


def _gang(job: Job, attempt: Attempt) -> Gang | None:
    """The one gang that the attempt's pods are of; none where they are several, or no gang."""
    uids = {pod.state.uid for pod in attempt.pods}
    owners = {uid: one for one in job.objects if (uid := js.text_at(one, "metadata", "uid"))}
    found = [
        gang
        for gang in held_gangs.found_in(job.pods, owners)
        if any(pod.state.uid in uids for pod in gang.pods)
    ]
    return found[0] if len(found) == 1 and found[0].is_gang else None


def _nodes(sink: BundleWriter) -> list[Object]:
    """The gang's nodes as the bundle has them."""
    if NODES_FILE not in sink.files:
        return []
    document = msgspec.json.decode(sink.read(NODES_FILE))
    return [js.mapping(one) for one in js.items(js.at(document, "items"))]


def _worth_asking(attempt: Attempt, nodes: Sequence[Object], now_ns: int) -> list[str]:
    """The gang's nodes, ill ones first, as many as are judged."""
    seen = first_facts.nodes_of(nodes)
    names = {pod.state.node for pod in attempt.pods if pod.state.node is not None}

    def is_well(name: str) -> bool:
        return name in seen and first_facts.illness(seen[name], now_ns) is None

    return sorted(names, key=lambda name: (is_well(name), name))[:MOST_NODES]


def _document(judged: dict[str, Spares]) -> dict[str, object]:
    return {"schema": SCHEMA, "without": list(_entries(sorted(judged.items())))}


def _entries(judged: Iterable[tuple[str, Spares]]) -> Iterable[dict[str, object]]:
    for node, one in judged:
        yield {
            "node": node,
            "places": one.places,
            "why": one.why,
            "cause": one.cause,
            "nodes": list(one.nodes),
            "spare_nodes": one.spare_nodes,
        }
