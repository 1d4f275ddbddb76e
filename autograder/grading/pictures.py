"""Pictures that students paste into their text: they are kept, and nothing else is that comes with it.

JupyterLab keeps a pasted picture as an attachment of the cell, Colab writes it into the text. A reference to
an attachment that is not there would end the making of a page: nbconvert refuses the whole notebook.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

from nbformat import NotebookNode

KINDS = ("image/png", "image/jpeg", "image/gif", "image/webp")
_BASE64 = re.compile(r"[A-Za-z0-9+/=\s]+")
_WRITTEN = re.compile(rf"(?<=[(<\s])data:({'|'.join(KINDS)});base64,([A-Za-z0-9+/=]+)")
_REFERENCE = re.compile(r"attachment:([^\s)>\"']*)")


def kept_beside(source: str, attachments: object) -> tuple[str, NotebookNode]:
    """Return a cell's text with its pictures beside it, as attachments.

    Args:
        source: the text.
        attachments: of the cell, as the notebook has them.
    """
    pictures = _attached(attachments)

    def attach(written: re.Match[str]) -> str:
        name = f"written-{len(pictures)}"
        pictures[name] = NotebookNode({written[1]: written[2]})
        return f"attachment:{name}"

    def known(reference: re.Match[str]) -> str:
        there = reference[1] in pictures or unquote(reference[1]) in pictures
        return reference[0] if there else f"missing-{reference[0]}"

    return _REFERENCE.sub(known, _WRITTEN.sub(attach, source)), pictures


def size(attachments: NotebookNode) -> int:
    """Return how many characters a cell's pictures take."""
    return sum(len(content) for picture in attachments.values() for content in picture.values())


def _attached(attachments: object) -> NotebookNode:
    """Return the attachments that are pictures."""
    found = attachments.items() if isinstance(attachments, dict) else ()
    pictures = {name: _picture(contents) for name, contents in found if isinstance(name, str)}
    return NotebookNode({name: picture for name, picture in pictures.items() if picture})


def _picture(contents: Any) -> NotebookNode:
    """Return those forms of an attachment that are a picture's."""
    kinds = {kind: contents.get(kind) for kind in KINDS} if isinstance(contents, dict) else {}
    return NotebookNode(
        {kind: text for kind, text in kinds.items() if isinstance(text, str) and _BASE64.fullmatch(text)}
    )
