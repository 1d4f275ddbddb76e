"""Takes out of HTML what a browser would run: nbgrader's feedback and formgrader show what students wrote.

Code, outputs and errors are escaped anyway. HTML in Markdown is not: nbgrader_config.py hands it to `clean`.
"""

from __future__ import annotations

import functools

import bleach
from bleach.css_sanitizer import ALLOWED_CSS_PROPERTIES, CSSSanitizer

_TEXT = "a abbr b br code del em hr i img kbd s span strong sub sup"
_BLOCKS = "blockquote details div h1 h2 h3 h4 h5 h6 li ol p pre summary table tbody td tfoot th thead tr ul"
_ATTRIBUTES = {
    "*": ["class", "id", "style"],
    "a": ["href", "title"],
    "img": ["alt", "src", "title", "width", "height"],
    "td": ["colspan", "rowspan", "align"],
    "th": ["colspan", "rowspan", "align"],
}
_CSS = [*ALLOWED_CSS_PROPERTIES, "margin", "text-align", "vertical-align", "white-space"]


@functools.cache
def _cleaner() -> bleach.Cleaner:
    return bleach.Cleaner(
        tags=[*_TEXT.split(), *_BLOCKS.split()],
        attributes=_ATTRIBUTES,
        css_sanitizer=CSSSanitizer(allowed_css_properties=_CSS),
    )


def clean(html: str) -> str:
    """Return the HTML with only text, tables and pictures in it; it shows all else as text."""
    return _cleaner().clean(str(html))
