"""The checker of pages finds what it says: a page that is right, and one broken in each way."""

from __future__ import annotations

import pytest
from page_check import Page, colours, contrast, faults

COLOURS = (
    "--ink: #111111; --paper: #ffffff; --panel: #f5f5f5; --soft: #555555; --link: #0a58a8; --bad: #b3231b;"
    " --warn: #855300; --good: #1a6b3a; --ask: #0b5a8a; --culprit: #c62f25; --suspect: #a06a10; --waited: #5b7fa6;"
    " --silent: #7d6b9e; --well: #3d8a5a; --unknown: #6b737c; --alive: #5b7fa6; --mark: #111111;"
)
DARK = (
    "--ink: #eeeeee; --paper: #101010; --panel: #181818; --soft: #aaaaaa; --link: #8dc2f7; --bad: #ff8f85;\
 --warn: #ffc46b; --good: #7fd6a0; --ask: #86c8f5; --mark: #eeeeee;"
)
GOOD = (
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width, initial-scale=1">'
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    f"<title>t</title><style>:root {{ {COLOURS} }} @media (prefers-color-scheme: dark) {{ :root {{ {DARK} }} }}"
    ' @media print { a { color: inherit; } }</style></head><body><main><h1>One</h1><h2 id="two">Two</h2>'
    '<p><a href="#two">there</a> <time datetime="2026-03-11T03:41:07.341Z">03:41</time></p>'
    '<table><caption>c</caption><tr><th scope="col">a</th></tr><tr><td>1</td></tr></table>'
    '<figure><svg role="img" aria-labelledby="n"><title id="n">n</title><rect width="1" height="1"/></svg>'
    "<figcaption>words</figcaption></figure></main></body></html>"
)


def test_a_good_page() -> None:
    """Nothing is found in it."""
    assert faults(GOOD) == []
    assert Page(GOOD).words.startswith("OneTwothere 03:41")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("<!doctype html>", "", "no HTML5 doctype"),
        (' lang="en"', "", "<html> without lang"),
        ("<title>t</title>", "<title></title>", "no title"),
        ("width=device-width, ", "", "no viewport"),
        ("<main>", "<main></main><main>", "2 <main>"),
        ("<h1>One</h1>", "<h1>One</h1><h1>One</h1>", "2 <h1>"),
        ('<h2 id="two">Two</h2>', '<h3 id="two">Two</h3>', "h3 follows h1"),
        ('href="#two"', 'href="#three"', "a link to #three, which is nowhere"),
        ("<p>", '<p id="two">', "id two twice"),
        (' scope="col"', "", "a <th> without scope"),
        ("<td>1</td>", "<td>1</td><td>2</td>", "a table with rows of [1, 2] cells"),
        ('<title id="n">n</title>', '<desc id="n">n</desc>', "an svg without a title"),
        ("<figcaption>words</figcaption>", "", "an svg without a figure and its words"),
        ("<p>", '<p onclick="x()">', "onclick on <p>"),
        ("<p>", "<script>x</script><p>", "<script>"),
        ("<p>", '<p><img src="http://e/x.png">', "src='http://e/x.png' on <img>"),
        ("color: inherit", "background: url(x)", "url( in the style"),
        ("default-src 'none'; ", "", "no policy that forbids all requests"),
        ("03:41:07.341Z", "03:41:07.341123456Z", "<time datetime=2026-03-11T03:41:07.341123456Z>"),
        ("@media print", "@media screen", "no print style"),
        ("--soft: #555555", "--soft: #999999", "light: soft on paper has 2.85"),
        ("--bad: #ff8f85", "--bad: #803030", "dark: bad on paper has"),
        ("</p>", "", "</main> closes <p>"),
    ],
)  # fmt: skip
def test_a_broken_page(old: str, new: str, said: str) -> None:
    """What was broken is named."""
    assert old in GOOD
    assert any(one.startswith(said) for one in faults(GOOD.replace(old, new, 1)))


def test_colours_of_both_schemes() -> None:
    """The dark ones stand over the light ones."""
    found = colours(GOOD)
    assert (found["light"]["ink"], found["dark"]["ink"]) == ("#111111", "#eeeeee")
    assert found["dark"]["culprit"] == found["light"]["culprit"]
    assert round(contrast("#777777", "#ffffff"), 2) == 4.48
