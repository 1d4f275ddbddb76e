"""Reads the built pages as a browser does, and says what is wrong with them: dead links above all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

RESOURCES = {("img", "src"), ("script", "src"), ("link", "href"), ("iframe", "src")}  # loaded with the page
HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")


@dataclass
class Page:
    """Anchors and links of a page, and its pictures."""

    names: set[str] = field(default_factory=set)  # places that a link can lead to
    links: list[str] = field(default_factory=list)
    resources: list[str] = field(default_factory=list)
    undescribed: list[str] = field(default_factory=list)  # pictures without words
    headings: list[int] = field(default_factory=list)  # their levels, in order


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Page()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.page.names |= {given[name] for name in ("id", "name") if name in given}
        if tag in HEADINGS:
            self.page.headings.append(HEADINGS.index(tag) + 1)
        if tag == "img" and not given.get("alt"):
            self.page.undescribed.append(given.get("src", "")[:80])
        for name in ("href", "src"):
            if name in given:
                to = self.page.resources if (tag, name) in RESOURCES else self.page.links
                to.append(given[name])


def read(path: Path) -> Page:
    """Read one page."""
    reader = _Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    return reader.page


def problems(site: Path) -> list[str]:
    """Return a sentence for each dead link, picture without words, skipped level of headings and resource
    that would come from elsewhere.
    """
    pages = {path: read(path) for path in sorted(site.rglob("*.html"))}
    return [
        f"{path.relative_to(site)}: {problem}"
        for path, page in pages.items()
        for problem in _problems(path, page, pages)
    ]


def _problems(path: Path, page: Page, pages: dict[Path, Page]) -> Iterator[str]:
    for link in dict.fromkeys(page.links + page.resources):
        if not urlsplit(link).scheme and not urlsplit(link).netloc:
            yield from _dead(path, link, pages)
    for resource in page.resources:
        if urlsplit(resource).netloc:
            yield f"it loads {resource} from elsewhere, so it would not work offline."
    for source in page.undescribed:
        yield f"the picture {source} has no alt text."
    for level, below in zip(page.headings, page.headings[1:], strict=False):
        if below > level + 1:
            yield f"a heading of level {below} follows one of level {level}."


def _dead(path: Path, link: str, pages: dict[Path, Page]) -> Iterator[str]:
    parts = urlsplit(link)
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not target.is_file():
        yield f"the link to {link} leads to no file."
    elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].names:
        yield f"the link to {link} leads to no place on that page."
