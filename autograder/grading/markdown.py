"""Takes out of HTML what a browser would run: nbgrader's feedback and formgrader show what students wrote.

Code, outputs and errors are escaped anyway, by `in_colours` where a terminal would show colours. HTML in
Markdown is not: nbgrader_config.py has it made by `to_html` and looked through by `clean`. Formgrader knows
its buttons by their classes and its fields by their ids, so text may have none of these.
"""

from __future__ import annotations

import functools
import re
from html import unescape
from urllib.parse import unquote

import bleach
from bleach.css_sanitizer import ALLOWED_CSS_PROPERTIES, CSSSanitizer
from jinja2 import pass_context
from jinja2.runtime import Context
from nbconvert.filters import ansi2html, strip_ansi
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from pygments.token import STANDARD_TYPES

_TEXT = "a abbr b br code del em hr i img kbd s span strong sub sup"
_BLOCKS = "blockquote details div h1 h2 h3 h4 h5 h6 li ol p pre summary table tbody td tfoot th thead tr ul"
_ATTRIBUTES = {
    "a": ["title"],
    "img": ["alt", "title", "width", "height"],
    "td": ["colspan", "rowspan", "align"],
    "th": ["colspan", "rowspan", "align"],
}
# Of tags such as <b> that are not closed, how many hold for the next paragraph, too: thousands of both would
# become millions.
MOST_UNCLOSED = 20
_STYLES = {"anchor-link", "highlight", *STANDARD_TYPES.values()}
_PICTURE = tuple(f"data:image/{kind};base64," for kind in ("png", "jpeg", "gif", "webp"))
# Without those of which the value can be the address of a picture.
_CSS = [*ALLOWED_CSS_PROPERTIES - {"cursor"}, "margin", "text-align", "vertical-align", "white-space"]


class _Pictures(dict[str, dict[str, str]]):
    """The attachments of a cell, by address; one that is not there is a picture without content."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> dict[str, str]:
        return self.get(unquote(name), {"image/png": ""})


@pass_context
def to_html(context: Context, source: str) -> str:
    """Return the HTML of a cell's Markdown as nbconvert does, but also where an attachment is not there."""
    pictures = _Pictures(context.get("cell", {}).get("attachments", {}))
    renderer = IPythonRenderer(escape=False, attachments=pictures)
    html: str = MarkdownWithMath(renderer=renderer).render(source)
    return html


def in_colours(text: object) -> str:
    """Return the HTML of what a terminal shows as nbconvert does, but also where a code names no colour."""
    try:
        return str(ansi2html(text))
    except IndexError:
        return str(ansi2html(strip_ansi(text)))


def _only_styles(classes: str) -> bool:
    """Tell whether these classes only say how headings and code look."""
    return all(each in _STYLES or each.startswith("hl-") for each in classes.split())


def _is_address(tag: str, address: str) -> bool:
    """Tell whether the address of a link holds no content itself, and that of a picture holds all of it.

    For any other picture the reader's browser would send a request with cookies, even one for "/logout".
    """
    plain = re.sub(r"[`\x00-\x20\x7f-\xa0\s]", "", unescape(address))  # as bleach reads it
    return plain.startswith(_PICTURE) if tag == "img" else not plain.lower().startswith("data:")


def _is_allowed(tag: str, name: str, value: str) -> bool:
    if name == "class":
        return _only_styles(value)
    if name in ("href", "src"):
        return (tag, name) in (("a", "href"), ("img", "src")) and _is_address(tag, value)
    return name == "style" or name in _ATTRIBUTES.get(tag, ())


@functools.cache
def _cleaner() -> bleach.Cleaner:
    cleaner = bleach.Cleaner(
        tags=[*_TEXT.split(), *_BLOCKS.split()],
        attributes=_is_allowed,
        protocols={*bleach.ALLOWED_PROTOCOLS, "data"},
        css_sanitizer=CSSSanitizer(allowed_css_properties=_CSS),
    )
    tree = cleaner.parser.tree
    begin_again = tree.reconstructActiveFormattingElements

    def begin_few_again() -> None:
        del tree.activeFormattingElements[:-MOST_UNCLOSED]
        begin_again()

    tree.reconstructActiveFormattingElements = begin_few_again
    return cleaner


def clean(html: str) -> str:
    """Return the HTML with only text, tables and pictures in it; it shows all else as text.

    Whatever its styles, it covers nothing of the page around it.
    """
    return f'<div style="overflow:auto">{_cleaner().clean(str(html))}</div>'
