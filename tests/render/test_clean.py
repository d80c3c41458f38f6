"""Whatever is shown has passed here: no control character, no secret."""

from __future__ import annotations

import builders
import pytest

from gpufleet_cli.plain_text import visible
from gpufleet_cli.render.clean import clean, clean_text, cut


@pytest.mark.parametrize("code", [*range(0x20), 0x7F, *range(0x80, 0xA0), 0x61C, 0x200B, 0x200E, 0x200F,
                                  *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFEFF, 0x2028,
                                  0x2029, 0xD800, 0xDCFF, 0xE0041])  # fmt: skip
def test_every_dangerous_character_becomes_visible(code: int) -> None:
    """C0, C1, bidirectional and zero-width controls, separators, surrogates, tags."""
    assert visible(f"a{chr(code)}b").isprintable()
    assert clean_text(f"a{chr(code)}b").isprintable()


def test_plain_text_stays() -> None:
    """Names in any script are text."""
    for text in ("train-run-7", "训练", "émile", "a b", "😀", "[red]<b>&"):
        assert text == clean_text(text)


def test_nothing_is_forgotten() -> None:
    """Every string of every nested part is cleaned, and what is clean stays the same object."""
    triage = builders.triage()
    assert clean(triage) is triage
    secret = builders.triage(missing=(builders.gap(why="token=hf_abcdefghijklmnopqrstuv\x1b"),))
    (gap,) = clean(secret).missing
    assert "hf_" not in gap.why
    assert gap.why.isprintable()
    assert clean(secret).verdict is secret.verdict


def test_without_unicode_all_is_ascii() -> None:
    """So that widths can be counted."""
    triage = builders.triage(job=builders.job(name="训练·x"))
    assert clean(triage, unicode=False).job.name == "\\u8bad\\u7ec3-x"


def test_very_long_text_is_cut_before_it_is_searched() -> None:
    """A line of megabytes costs nothing."""
    assert len(clean_text("x" * 5_000_000)) < 11_000


def test_cut_marks() -> None:
    """At the limit nothing is cut, above it the mark is within."""
    assert cut("x" * 200) == "x" * 200
    assert len(cut("x" * 201)) == 200
    assert cut("x" * 201).endswith("...")
