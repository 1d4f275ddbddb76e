"""Pictures on a notebook's page: described in words, and readable in light and in dark themes.

The figures are drawn on white paper. Where JupyterLab's theme is dark their lightness is turned round, by a
filter of the browser's that keeps hues: paper becomes black, ink nearly white, and rank 0 stays blue. A page
that allows no style, such as a forge's, shows them on their white paper.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

_MOST_PARTS = 12  # of a text; a listener has heard enough by then
_DARK = ".fourranks-figure img { filter: invert(1) hue-rotate(180deg) }"
_STYLE = f'<style>[data-jp-theme-light="false"] {_DARK} .vscode-dark {_DARK}</style>'


def page(source: str, alt: str, width: int, height: int) -> str:
    """Return the picture as HTML, never made smaller, so that its text can be read: a narrow page scrolls.

    Args:
        source: the picture as a data URL.
        alt: a description in words.
        width, height: in a browser's pixels.
    """
    image = (
        f'<img alt="{escape(alt)}" width="{width}" height="{height}" style="max-width: none" src="{source}">'
    )
    return f'{_STYLE}<div class="fourranks-figure" style="overflow-x: auto">{image}</div>'


def in_words(title: str, parts: Iterable[str]) -> str:
    """Put a headline and what there is to tell into words, one part after another, up to a limit."""
    parts = list(parts)
    told = parts[:_MOST_PARTS]
    if len(parts) > len(told):
        told.append(f"and {len(parts) - len(told)} more")
    return ": ".join(filter(None, (title.strip(), "; ".join(told))))
