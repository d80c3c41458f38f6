"""Rules over workloads: findings put together where they say the same, silenced with a reason, worst first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpufleet_cli.node_card import Spares
from gpufleet_cli.operate.preflight.build import specs_of
from gpufleet_cli.operate.preflight.documents import Document, Path, Unread
from gpufleet_cli.operate.preflight.model import Hit, Rule, Spec
from gpufleet_cli.operate.preflight.registry import RULES
from gpufleet_cli.parsers import json_documents as js
from gpufleet_cli.spec_check import ORDER, Preflight, Silenced, SpecFinding, SpecRead

ANNOTATION = "gpufleet/ignore"
NOT_READ = "not-read"
NO_REASON = "ignore-unclear"
STOCK_PATH = ("spec", "runtimeRef")
IDS = frozenset({*(rule.id for rule in RULES), NOT_READ, NO_REASON})


def checked(
    documents: Sequence[Document],
    unread: Sequence[Unread] = (),
    ignored: Mapping[str, str] | None = None,
    spares: Mapping[str, Spares] | None = None,
) -> Preflight:
    """Everything that the rules find. `ignored`: reasons by id, as `--ignore` gave them; `spares`: of the one
    job in the cluster that is checked, for each of its nodes whether it places without it."""
    found: list[SpecFinding] = [_not_read(one) for one in unread]
    silenced: list[Silenced] = []
    specs = [replace(one, spares=spares or {}) for one in specs_of(documents)]
    for spec in specs:
        reasons, unclear = reasons_of(spec)
        found += unclear
        for finding in _findings(spec):
            if ignored and finding.id in ignored:
                silenced.append(
                    Silenced(finding=finding, reason=ignored[finding.id], by="--ignore")
                )
            elif finding.id in reasons:
                silenced.append(
                    Silenced(finding=finding, reason=reasons[finding.id], by=ANNOTATION)
                )
            else:
                found.append(finding)
    order = {id_: index for index, id_ in enumerate(rule.id for rule in RULES)}
    found.sort(key=lambda one: (ORDER[one.severity], order.get(one.id, -1), one.where))
    return Preflight(findings=tuple(found), silenced=tuple(silenced), read=tuple(map(_read, specs)))


def _findings(spec: Spec) -> list[SpecFinding]:
    """One finding for each thing: the same in several places is one, with all of them."""
    found: dict[tuple[str, str, str], SpecFinding] = {}
    for rule in RULES:
        for hit in rule.check(spec):
            one = _finding(spec, rule, hit)
            key = (one.id, one.severity, one.message)
            old = found.get(key)
            where = one.where if old is None else (*old.where, *one.where)
            found[key] = replace(one, where=tuple(dict.fromkeys(where)))
    return list(found.values())


def _finding(spec: Spec, rule: Rule, hit: Hit) -> SpecFinding:
    document, path = hit.document or spec.document, hit.path
    if path[:2] == STOCK_PATH:
        path = STOCK_PATH  # the stock runtime's template stands in no document
    return SpecFinding(
        id=rule.id,
        severity=hit.severity or rule.severity,
        message=hit.message,
        why=rule.why,
        fix=hit.fix,
        where=(document.where(path),),
        costs=hit.costs,
    )


def reasons_of(spec: Spec) -> tuple[dict[str, str], list[SpecFinding]]:
    """`gpufleet/ignore: "id: reason; id: reason"` of the job or of its pods; what is unclear is a finding."""
    texts: list[tuple[str | None, Path]] = [
        (spec.annotation(ANNOTATION), ("metadata", "annotations", ANNOTATION))
    ]
    for role in spec.roles:
        text = js.text_at(role.annotations, ANNOTATION)
        texts.append((text, (*role.path, "metadata", "annotations", ANNOTATION)))
    reasons: dict[str, str] = {}
    unclear: list[SpecFinding] = []
    for text, path in texts:
        for part in (text or "").split(";"):
            name, _, reason = (piece.strip() for piece in part.partition(":"))
            if name in IDS and reason:
                reasons[name] = reason
            elif name:
                known = "it has no reason" if name in IDS else "there is no such id"
                unclear.append(
                    SpecFinding(
                        id=NO_REASON, severity="info", message=f"{name} is not silenced: {known}",
                        why="who reads it later must know why", fix='"ID: REASON; ID: REASON"',
                        where=(spec.document.where(path),),
                    )
                )  # fmt: skip
    return reasons, list(dict.fromkeys(unclear))


def _not_read(one: Unread) -> SpecFinding:
    return SpecFinding(
        id=NOT_READ, severity="info" if one.is_beside else "warning", message=f"{one.source} could not be read: {one.why}",
        why="what was not read was not checked", fix="the right to list it" if one.is_beside else "give it as YAML or JSON that kubectl takes",
        where=(one.source,),
    )  # fmt: skip


def _read(spec: Spec) -> SpecRead:
    if spec.is_serving:
        taken_as = "serving"
    elif spec.is_gang:
        taken_as = "training gang"
    else:
        taken_as = "training" if spec.is_training else "other work"
    document = spec.document
    return SpecRead(
        source=document.source,
        kind=spec.kind,
        name=document.name,
        namespace=document.namespace,
        pods=sum(role.pods for role in spec.roles),
        gpus=spec.gpus,
        taken_as=taken_as,
    )
