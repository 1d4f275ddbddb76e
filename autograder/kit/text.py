"""Text of which a student may have written any part, made fit for a page, a terminal, a log or a table."""

from __future__ import annotations

import re
import unicodedata

MAX_LINE = 500  # characters of a line about a submission
# Control and format characters, among them terminal codes and marks that reverse the direction of a text;
# halves of surrogate pairs, which no encoding takes; and separators that some programs take for new lines.
_UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
# Where a cell begins that is a formula: some spreadsheets end one at a semicolon, also between quotes.
_FORMULA = re.compile(r"""(^|;)(?=[\s"']*[=+@-])""")


def visible(text: str, keep: str = "\n\t") -> str:
    """Return the text with an escape in place of each character that is not seen, such as \\x1b.

    Args:
        keep: those that stay as they are.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(each if each in keep or _is_seen(each) else _escaped(each) for each in text)


def shortened(text: str, most: int) -> str:
    """Return the beginning of a text that has more than so many characters, and how many it has."""
    return text if len(text) <= most else f"{text[:most]} … ({len(text):,} characters)"


def line(text: str, most: int = MAX_LINE) -> str:
    """Put the text on one line, for a terminal: all of it visible, and not more than people read."""
    return visible(shortened(text, most), keep="")


def table_cell(text: str) -> str:
    """Make the text a cell of a table that a spreadsheet opens: never a formula, always one line."""
    return _FORMULA.sub(r"\1'", visible(text, keep=""))


def _is_seen(character: str) -> bool:
    return unicodedata.category(character) not in _UNSEEN


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode()
