"""Markdown, HTML and the ten lines for a chat: complete, and deaf to what evidence says."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import builders
import pytest

from gpufleet_cli.render import brief, html, markdown
from gpufleet_cli.render.layout import Look
from gpufleet_cli.verdict import Triage

LOOK = Look()
TEXT = (
    "</td></pre><script>alert(1)</script><img src=x onerror=y>\x1b[31m\u202e|a|\n# head\n"
    "[link](javascript:x) ![i](http://evil/x.png) <http://evil> www.evil.com @everyone `code` "
    "```` **b** _i_ ~~s~~ $(reboot) &lt; \\"
)


def hostile() -> Triage:
    return builders.triage(
        target_name=TEXT,
        job=builders.job(name=TEXT, namespace=TEXT),
        verdict=builders.verdict(
            culprits=(builders.culprit(pod=TEXT, node=TEXT),),
            summary=TEXT,
            evidence=(builders.claim(TEXT, origin=builders.origin(TEXT)),),
        ),
        recommendation=builders.recommendation(
            nodes=(TEXT,), why=TEXT, would_flip=TEXT,
            commands=(builders.recommendation().commands[0].__class__(run=TEXT, stops_job=False),),
        ),
        missing=(builders.gap(what=TEXT, why=TEXT),),
    )  # fmt: skip


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def parsed(text: str) -> _Page:
    page = _Page()
    page.feed(text)
    return page


@pytest.mark.parametrize(
    "triage", [builders.triage(), builders.mismatch_triage(), builders.undecidable_triage()],
    ids=["hardware", "mismatch", "undecidable"],
)  # fmt: skip
def test_pages_say_what_the_screen_says(triage: Triage) -> None:
    """Action, summary, questions and commands stand in both."""
    for text in ("".join(parsed(html.render(triage, LOOK)).text),
                 markdown.render(triage, LOOK).replace("\\", "")):  # fmt: skip
        assert (
            triage.verdict.summary.replace("'", "&#x27;") in text or triage.verdict.summary in text
        )
        for command in triage.recommendation.commands:
            assert command.run in text
        assert "does it stop the job?" in text


def test_html_carries_nothing_foreign() -> None:
    """No script, no link, no image, no handler, whatever the evidence says."""
    page = parsed(html.render(hostile(), LOOK))
    assert page.tags <= {"html", "head", "meta", "title", "style", "body", "p", "h1", "h2", "span",
                         "table", "tr", "th", "td", "pre", "ul", "li"}  # fmt: skip
    assert page.attributes <= {"lang", "charset", "name", "content", "http-equiv", "class", "style"}
    assert "<script>alert(1)</script>" in "".join(page.text)


def test_html_asks_nobody() -> None:
    """Self-contained: no address outside the page, and a policy that forbids it."""
    text = html.render(builders.triage(), LOOK)
    assert "http:" not in text
    assert "https:" not in text
    assert "default-src 'none'" in text
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text


def test_markdown_carries_no_markup_of_the_evidence() -> None:
    """No tag, link, image, mention, heading or table cell can be made from it."""
    text = markdown.render(hostile(), LOOK)
    fence = re.search(r"(`{3,})sh\n(.*?)\n\1", text, re.DOTALL)
    assert fence is not None
    outside = text.replace(fence.group(), "")
    for risk in ("<script", "<img", "](", "http://", "www.", "@everyone", "](javascript"):
        assert risk not in outside.replace("\\](", "")
    assert [line for line in outside.splitlines() if line.startswith("# head")] == []
    assert not [char for char in text if not char.isprintable() and char != "\n"]


def test_markdown_tables_keep_their_columns() -> None:
    """A bar in a name does not make a cell."""
    lines = markdown.render(hostile(), LOOK).splitlines()
    width = 0
    for line in lines:
        cells = len(re.findall(r"(?<!\\)\|", line))
        if line.startswith("|---"):
            width = cells
        elif line.startswith("| ") and width:
            assert cells == width
        elif not line.startswith("|"):
            width = 0


def test_fence_cannot_be_closed() -> None:
    """A command with backticks stands in a longer fence."""
    text = markdown.render(hostile(), LOOK)
    assert "`````sh" in text


@pytest.mark.parametrize(
    "triage", [builders.triage(), builders.mismatch_triage(), builders.undecidable_triage(), hostile()],
    ids=["hardware", "mismatch", "undecidable", "hostile"],
)  # fmt: skip
@pytest.mark.parametrize("unicode", [True, False])
def test_brief_is_ten_plain_lines(triage: Triage, unicode: bool) -> None:
    """For a chat thread: no escape, no colour, no line of a kilometre."""
    text = brief.render(triage, Look(unicode=unicode, color=True))
    assert len(text.splitlines()) <= 10
    assert "\x1b" not in text
    assert max(len(line) for line in text.splitlines()) <= 400


def test_brief_names_the_culprit_and_the_commands() -> None:
    """Enough for somebody who sees nothing else."""
    text = brief.render(builders.triage(), LOOK)
    for said in ("EVICT NOW gpu-node-0417", "hardware, confidence 0.97", "Culprit: rank 800",
                 "Lost so far: 495 GPU-h", "gpufleet cordon gpu-node-0417 --reason 'XID 79'"):  # fmt: skip
        assert said in text
    unsure = brief.render(builders.undecidable_triage(), LOOK)
    assert "It could be: ranks 8-15" in unsure
    assert "gpufleet collect train-run-7" in unsure
