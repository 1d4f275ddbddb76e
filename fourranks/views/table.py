"""Tables of texts, as a notebook and as a terminal show them."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

Row = Sequence[str]


def as_text(head: Row, body: Sequence[Row], numbers: bool = False) -> str:
    """Align columns; all but the first to the right if they hold numbers."""
    table = [head, *body]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join(
        "  ".join(
            text.rjust(width) if numbers and column else text.ljust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    )


def as_html(head: Row, body: Sequence[Row], numbers: bool = False) -> str:
    """Return the same for a notebook."""
    rows = "".join(f"<tr>{_cells('td', row, numbers)}</tr>" for row in body)
    return f"<table><thead><tr>{_cells('th', head, numbers)}</tr></thead><tbody>{rows}</tbody></table>"


def _cells(tag: str, row: Row, numbers: bool) -> str:
    return "".join(
        f'<{tag} style="text-align: {"right" if numbers and column else "left"}">{escape(text)}</{tag}>'
        for column, text in enumerate(row)
    )
