"""What is wrong with an HTML page: structure, links, headings, pictures, requests, scripts, contrast.

A small checker of our own over `html.parser`: it knows the rules that a write-up promises and names each
place where one is broken, so that a test can say `assert faults(page) == []`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from itertools import pairwise

VOID = frozenset({"meta", "link", "br", "hr", "img", "input", "col", "wbr", "source", "base"})
SELF_CLOSED = frozenset({"rect", "line", "path", "circle", "polygon", "use"})
LOADING = ("src", "srcset", "href", "xlink:href", "data", "poster", "action", "background")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,3})?Z")
_PROPERTY = re.compile(r"--([a-z]+):\s*(#[0-9a-f]{6})", re.IGNORECASE)
TEXT = ("ink", "soft", "link", "bad", "warn", "good", "ask")
GRAPHICS = ("culprit", "suspect", "waited", "silent", "well", "unknown", "alive", "mark")


@dataclass(slots=True)
class Element:
    tag: str
    attributes: dict[str, str | None]
    parent: Element | None
    parts: list[str | Element] = field(default_factory=list)

    @property
    def children(self) -> list[Element]:
        return [one for one in self.parts if isinstance(one, Element)]

    def all(self, *tags: str) -> list[Element]:
        """Every element below this one, in the order of the page."""
        found: list[Element] = []
        for one in self.children:
            if not tags or one.tag in tags:
                found.append(one)
            found += one.all(*tags)
        return found

    @property
    def words(self) -> str:
        return "".join(one if isinstance(one, str) else one.words for one in self.parts)


class Page(HTMLParser):
    """A page as a tree, with what was wrong on the way."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("#document", {}, None)
        self.faults: list[str] = []
        self.declaration = ""
        self._open = self.root
        self.feed(text)
        self.close()
        if self._open is not self.root:
            self.faults.append(f"<{self._open.tag}> is never closed")

    def handle_decl(self, decl: str) -> None:
        self.declaration = decl

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        if len(set(names)) != len(names):
            self.faults.append(f"<{tag}> has an attribute twice")
        element = Element(tag, dict(attrs), self._open)
        self._open.parts.append(element)
        if tag not in VOID:
            self._open = element

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag in SELF_CLOSED:
            self._open = self._open.parent or self.root
        elif tag not in VOID:
            self.faults.append(f"<{tag}/> closes itself, which HTML does not know")

    def handle_endtag(self, tag: str) -> None:
        if self._open.tag != tag:
            self.faults.append(f"</{tag}> closes <{self._open.tag}>")
            return
        self._open = self._open.parent or self.root

    def handle_data(self, data: str) -> None:
        self._open.parts.append(data)

    @property
    def everything(self) -> list[Element]:
        return self.root.all()

    def by_id(self, name: str) -> Element | None:
        return next((one for one in self.everything if one.attributes.get("id") == name), None)

    @property
    def words(self) -> str:
        """What a reader sees: all text but styles."""
        return "".join(one.words for one in self.root.all("body"))


def faults(text: str) -> list[str]:
    """Everything that is wrong with a page; empty when it keeps its promises."""
    page = Page(text)
    found = [*page.faults, *_document(page), *_ids(page), *_headings(page), *_tables(page)]
    found += [*_pictures(page), *_requests(page), *_times(page), *_style(page)]
    return found


def _document(page: Page) -> list[str]:
    found = []
    root = page.root
    html = root.all("html")
    if page.declaration.lower() != "doctype html":
        found.append("no HTML5 doctype")
    if len(html) != 1 or not html[0].attributes.get("lang"):
        found.append("<html> without lang")
    if not any(one.words.strip() for one in root.all("title")[:1]):
        found.append("no title")
    names = {one.attributes.get("name"): one.attributes.get("content") for one in root.all("meta")}
    if "width=device-width" not in (names.get("viewport") or ""):
        found.append("no viewport")
    counts = {tag: len(root.all(tag)) for tag in ("main", "h1")}
    return [*found, *(f"{count} <{tag}>" for tag, count in counts.items() if count != 1)]


def _ids(page: Page) -> list[str]:
    ids = [one.attributes["id"] for one in page.everything if "id" in one.attributes]
    found = [
        f"id {one} twice" for one in sorted({i for i in ids if i is not None}) if ids.count(one) > 1
    ]
    for one in page.everything:
        target = one.attributes.get("href") or ""
        if target.startswith("#") and target[1:] not in ids:
            found.append(f"a link to {target}, which is nowhere")
        for name in ("aria-labelledby", "aria-describedby"):
            parts = (one.attributes.get(name) or "").split()
            found += [f"{name}={part}, which is nowhere" for part in parts if part not in ids]
    return found


def _headings(page: Page) -> list[str]:
    heads = page.root.all("h1", "h2", "h3", "h4", "h5", "h6")
    levels = [int(one.tag[1]) for one in heads]
    found = [] if levels[:1] == [1] else ["the first heading is no h1"]
    return [*found, *(f"h{b} follows h{a}" for a, b in pairwise(levels) if b > a + 1)]


def _tables(page: Page) -> list[str]:
    found = []
    for table in page.root.all("table"):
        heads = table.all("th")
        if not heads:
            found.append("a table without <th>")
        found += ["a <th> without scope" for one in heads if not one.attributes.get("scope")]
        if not table.all("caption"):
            found.append("a table without a caption")
        widths = {
            len([c for c in row.children if c.tag in ("th", "td")]) for row in table.all("tr")
        }
        if len(widths) > 1:
            found.append(f"a table with rows of {sorted(widths)} cells")
    return found


def _pictures(page: Page) -> list[str]:
    """A title on each svg; one that is a picture has words of its own and a figure with a text around it."""
    found = []
    for svg in page.root.all("svg"):
        if not any(one.tag == "title" and one.words.strip() for one in svg.children):
            found.append("an svg without a title")
        if svg.attributes.get("aria-hidden") == "true":
            continue
        if svg.attributes.get("role") != "img" or not svg.attributes.get("aria-labelledby"):
            found.append("an svg that is no img with a label")
        figure = next((one for one in _above(svg) if one.tag == "figure"), None)
        if figure is None or not any(one.words.strip() for one in figure.all("figcaption")):
            found.append("an svg without a figure and its words")
    return found


def _above(element: Element) -> list[Element]:
    found = []
    above = element.parent
    while above is not None:
        found.append(above)
        above = above.parent
    return found


def _requests(page: Page) -> list[str]:
    """Nothing is loaded, nothing runs."""
    found = []
    for one in page.everything:
        if one.tag in (
            "script",
            "iframe",
            "object",
            "embed",
            "link",
            "base",
            "img",
            "form",
            "audio",
            "video",
        ):
            found.append(f"<{one.tag}>")
        for name, value in one.attributes.items():
            if name.startswith("on"):
                found.append(f"{name} on <{one.tag}>")
            if name in LOADING and not (value or "").startswith("#"):
                found.append(f"{name}={value!r} on <{one.tag}>")
            if name == "http-equiv" and value != "Content-Security-Policy":
                found.append(f"http-equiv {value}")
            if name == "style" or "javascript:" in (value or "").lower():
                found.append(f"{name} on <{one.tag}>")
    policies = [
        one.attributes.get("content") or ""
        for one in page.root.all("meta")
        if one.attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    if policies != ["default-src 'none'; style-src 'unsafe-inline'"]:
        found.append("no policy that forbids all requests")
    css = "".join(one.words for one in page.root.all("style"))
    found += [f"{word} in the style" for word in ("url(", "@import", "//") if word in css]
    return found


def _times(page: Page) -> list[str]:
    return [
        f"<time datetime={one.attributes.get('datetime')}>"
        for one in page.root.all("time")
        if not _TIME.fullmatch(one.attributes.get("datetime") or "") or not one.words.strip()
    ]


# --- Style ----------------------------------------------------------------------------------------


def _style(page: Page) -> list[str]:
    css = "".join(one.words for one in page.root.all("style"))
    found = []
    if "@media print" not in css:
        found.append("no print style")
    schemes = colours(css)
    if set(schemes) < {"light", "dark"}:
        return [*found, "not both colour schemes"]
    for scheme, known in schemes.items():
        for paper in ("paper", "panel"):
            for ink in TEXT:
                ratio = contrast(known[ink], known[paper])
                if ratio < 4.5:
                    found.append(f"{scheme}: {ink} on {paper} has {ratio:.2f}")
            for shape in GRAPHICS:
                ratio = contrast(known[shape], known[paper])
                if ratio < 3:
                    found.append(f"{scheme}: {shape} on {paper} has {ratio:.2f}")
    return found


def colours(css: str) -> dict[str, dict[str, str]]:
    """The custom properties of each scheme, the ones of the dark one over those of the light."""
    light = dict(_PROPERTY.findall(css.split("@media", 1)[0]))
    dark_part = css.split("prefers-color-scheme: dark", 1)
    if len(dark_part) < 2:
        return {"light": light}
    dark = dict(_PROPERTY.findall(dark_part[1].split("@media", 1)[0]))
    return {"light": light, "dark": {**light, **dark}}


def contrast(first: str, second: str) -> float:
    """The ratio of WCAG 2.

    >>> round(contrast("#000000", "#ffffff"), 1)
    21.0
    """
    bright, dim = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
