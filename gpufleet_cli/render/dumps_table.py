"""`gpufleet dumps`: the Flight Recorder alone. Per process group, who waits for whom."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from gpufleet_cli.render.clean import clean, cut
from gpufleet_cli.render.layout import Look, counted, labelled, rank_list, wrap
from gpufleet_cli.render.structured import Json, dump_json, target_dict
from gpufleet_cli.render.terminal import headline
from gpufleet_cli.verdict import DumpsReport, GroupReport, Triage

SCHEMA = "gpufleet.dumps/v1"
_MOST = 40
_EDGE_LIMIT = 1_000


def render(triage: Triage, look: Look) -> str:
    """The finding first, then the groups in which somebody waits."""
    shown = clean(triage, unicode=look.unicode)
    lines = [headline(shown), ""]
    if shown.dumps is None:
        lines.append("  no Flight Recorder dump in this evidence")
        return look.finish(lines)
    lines += _report(shown.dumps, look)
    return look.finish(lines)


def _report(report: DumpsReport, look: Look) -> Iterator[str]:
    versions = f", version {', '.join(report.versions)}" if report.versions else ""
    yield from labelled("", f"{counted(report.dumps, 'dump')}{versions}", most=2)
    for line in wrap(report.finding, 78):
        yield f"  {look.paint(line, 'strong')}"
    if report.roots:
        yield from labelled("waited for    ", f"ranks {rank_list(report.roots, 50)}", most=3)
    busy = [group for group in report.groups if group.waiting or group.behind or group.missing]
    for group in busy[:_MOST]:
        yield ""
        yield from _group(group)
    if len(busy) > _MOST:
        yield from ("", f"  and {counted(len(busy) - _MOST, 'more group')} (-o json)")
    quiet = len(report.groups) - len(busy)
    if quiet:
        yield from ("", f"  nobody waits in {counted(quiet, 'other group')}")
    if look.verbose:
        yield from _edges(report)


def _group(group: GroupReport) -> Iterator[str]:
    names = f"{group.name} ({group.desc})" if group.desc else group.name
    called = " ".join(str(part) for part in (group.op, group.seq) if part is not None)
    where = f" in {called}" if called else ""
    yield from labelled("group ", f"{names}, {counted(len(group.members), 'rank')}{where}", most=3)
    for label, ranks in (
        ("waiting  ", group.waiting),
        ("behind   ", group.behind),
        ("no dump  ", group.missing),
    ):
        if ranks:
            count = counted(len(ranks), "rank")
            yield from labelled(f"  {label}", f"{count}: {rank_list(ranks, 56)}", most=2)
    if group.note:
        yield from labelled("  note     ", group.note, most=3)


def _edges(report: DumpsReport) -> Iterator[str]:
    """Waiting ranks drawn together by whom they wait for, and in what."""
    together: dict[tuple[int, str], list[int]] = defaultdict(list)
    for waiter, awaited, called in report.edges:
        together[awaited, called].append(waiter)
    if together:
        yield from ("", "  who waits for whom")
    for (awaited, called), waiters in sorted(together.items())[:_MOST]:
        text = f"waited for by {rank_list(waiters, 36)}" + (f" in {called}" if called else "")
        yield from labelled(f"  rank {awaited}  ", text, most=2)


def render_json(triage: Triage, _look: Look) -> str:
    """The whole report; the edges are cut, with their count."""
    shown = clean(triage)
    report = shown.dumps
    document: Json = {"schema": SCHEMA, "target": target_dict(shown)}
    if report is None:
        return dump_json(
            {**document, "dumps": 0, "versions": [], "roots": [], "finding": None,
             "edges": [], "edges_count": 0, "groups": []},
            rows="groups",
        )  # fmt: skip
    document |= {
        "dumps": report.dumps,
        "versions": list(report.versions),
        "roots": list(report.roots),
        "finding": report.finding,
        "edges": [
            {"rank": waiter, "waits_for": awaited, "in": cut(called)}
            for waiter, awaited, called in report.edges[:_EDGE_LIMIT]
        ],
        "edges_count": len(report.edges),
        "groups": [_group_dict(group) for group in report.groups],
    }
    return dump_json(document, rows="groups")


def _group_dict(group: GroupReport) -> Json:
    return {
        "name": group.name,
        "desc": group.desc,
        "members": list(group.members),
        "op": group.op,
        "seq": group.seq,
        "waiting": list(group.waiting),
        "behind": list(group.behind),
        "missing": list(group.missing),
        "note": cut(group.note),
    }
