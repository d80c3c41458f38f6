"""Nodes as JSON: every field of a card by its name."""

from __future__ import annotations

import json
from collections.abc import Iterable

import msgspec

from gpufleet_cli.node_card import (
    HeldGang,
    Missing,
    NodeCard,
    NodeCondition,
    PastIncident,
    RepeatTest,
    XidSeen,
)
from gpufleet_cli.render.clean import clean
from gpufleet_cli.render.drain_page import spares_of
from gpufleet_cli.timestamps import format_ns

Json = dict[str, object]


def node_json(card: NodeCard) -> str:
    return _dump({"node": node_document(clean(card))})


def nodes_json(cards: Iterable[NodeCard], missing: Iterable[Missing]) -> str:
    return _dump(
        {
            "nodes": [node_document(card) for card in clean(tuple(cards))],
            "missing": [_missing(one) for one in clean(tuple(missing))],
        }
    )


def _dump(document: Json) -> str:
    # json's own indent costs ten times as much: seconds, of ten thousand nodes
    dense = json.dumps(document, ensure_ascii=True, allow_nan=False)
    return msgspec.json.format(dense, indent=2) + "\n"


def node_document(card: NodeCard) -> Json:
    """Every field of the card by name; times in RFC 3339."""
    gpus, cordon = card.gpus, card.cordon
    return {
        "name": card.name,
        "context": card.context,
        "server": card.server,
        "read_at": _time(card.read_at_ns),
        "ready": card.ready,
        "ready_since": _time(card.ready_since_ns),
        "ill": card.is_ill,
        "lease": {
            "renewed_at": _time(card.renewed_ns),
            "age_seconds": None if card.lease_age_s is None else round(card.lease_age_s, 3),
            "silent": card.is_silent,
        },
        "cordon": None
        if cordon is None
        else {
            "by": cordon.by,
            "told_by": cordon.told_by,
            "at": _time(cordon.at_ns),
            "reason": cordon.reason,
            "incident": cordon.incident,
        },
        "conditions": [_condition_document(one) for one in card.conditions],
        "taints": [{"taint": one.shown, "meaning": one.words} for one in card.taints],
        "gpus": {
            "product": gpus.product,
            "capacity": gpus.capacity,
            "allocatable": gpus.allocatable,
            "lost": gpus.lost,
            "held": gpus.held,
            "driver": gpus.driver,
        },
        "gangs": [_gang_document(one) for one in card.gangs],
        "other_pods": card.other_pods,
        "uid": card.uid,
        "created_at": _time(card.created_ns),
        "boot_id": card.boot_id,
        "provider_id": card.provider_id,
        "place": card.place,
        "notes": list(card.notes),
        "xids": None if card.xids is None else [_xid(one) for one in card.xids],
        "incidents": None if card.incidents is None else [_past_one(o) for o in card.incidents],
        "repeat_offender": None if card.repeat is None else _repeat_one(card.repeat),
        **({} if card.spares is None else {"spares": [spares_of(one) for one in card.spares]}),
        "missing": [_missing(one) for one in card.missing],
    }


def _past_one(one: PastIncident) -> Json:
    return {
        "at": _time(one.at_ns),
        "kind": one.kind,
        "action": one.action,
        "job": one.job,
        "namespace": one.namespace,
        "xids": list(one.xids),
    }


def _repeat_one(test: RepeatTest) -> Json:
    return {
        "flagged": test.is_flagged,
        "faults": test.faults,
        "days": test.days,
        "faults_per_node_day": test.rate.a_node_day,
        "faults_per_node_day_source": test.rate.source,
        "chance": test.chance,
        "nodes": test.nodes,
        "expected_innocents": test.innocents,
    }


def _time(ns: int | None) -> str | None:
    return None if ns is None else format_ns(ns)


def _missing(one: Missing) -> Json:
    return {"what": one.what, "why": one.why}


def _condition_document(one: NodeCondition) -> Json:
    return {
        "type": one.kind,
        "status": one.status,
        "mark": one.mark,
        "reason": one.reason,
        "message": one.message,
        "since": _time(one.since_ns),
        "source": one.source,
        "meaning": one.words,
        "repair_at": _time(one.repair_at_ns),
    }


def _gang_document(gang: HeldGang) -> Json:
    return {
        "kind": gang.kind,
        "name": gang.name,
        "namespace": gang.namespace,
        "size": gang.size,
        "gpus": gang.gpus,
        "over": gang.is_over,
        "ranks_by": gang.ranks_by,
        "pods": [
            {
                "name": pod.name,
                "phase": pod.phase,
                "gpus": pod.gpus,
                "ranks": None if pod.ranks is None else list(range(pod.ranks[0], pod.ranks[1] + 1)),
            }
            for pod in gang.pods
        ],
    }


def _xid(one: XidSeen) -> Json:
    return {
        "at": _time(one.at_ns),
        "xid": one.xid,
        "gpu_index": one.gpu_index,
        "pci_bus_id": one.pci_bus_id,
        "pod": one.pod,
        "namespace": one.namespace,
    }
