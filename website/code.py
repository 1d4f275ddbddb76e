"""Makes a page of each file of code that a page links to, so that a link shows it instead of saving it."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path
from posixpath import normpath
from typing import Any

from docutils import nodes
from sphinx.addnodes import download_reference
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

from website.contents import linked_files

LANGUAGES = {".py": "python", ".yml": "yaml", ".yaml": "yaml", ".toml": "toml", "": "text"}


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the pages and the links to them."""
    app.add_transform(_Links)
    app.connect("html-collect-pages", _pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


class _Links(SphinxTransform):
    """Turns a link to a file of code into one to its page; Sphinx would offer the file for download."""

    default_priority = 400  # type: ignore[assignment]  # docutils says None

    def apply(self, **_: Any) -> None:
        for node in list(self.document.findall(download_reference)):
            file = normpath(str(Path(self.env.docname).parent / node["reftarget"]))
            if Path(file).suffix in LANGUAGES:
                uri = self.app.builder.get_relative_uri(self.env.docname, _page(file))
                node.replace_self(nodes.reference("", "", *node.children, refuri=uri, internal=True))


def _pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    for file in linked_files(Path(app.srcdir), app.env.found_docs, LANGUAGES):
        language = LANGUAGES[Path(file).suffix]
        text = (Path(app.srcdir) / file).read_text(encoding="utf-8")
        body = app.builder.highlighter.highlight_block(text, language)  # type: ignore[attr-defined]
        heading = f'<h1><code class="literal">{escape(file)}</code></h1>'
        yield _page(file), {"title": file, "body": heading + body}, "page.html"


def _page(file: str) -> str:
    return f"code/{file}"
