"""Pictures that students paste into their text: they are kept, and nothing else is that comes with it.

JupyterLab keeps a pasted picture as an attachment of the cell, Colab writes it into the text.
"""

from __future__ import annotations

import base64
import io
import re
import warnings
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

from nbformat import NotebookNode

KINDS = ("image/png", "image/jpeg", "image/gif", "image/webp")
_BASE64 = re.compile(r"[A-Za-z0-9+/=\s]+")
_WRITTEN = re.compile(rf"(?<=[(<\s])data:({'|'.join(KINDS)});base64,([A-Za-z0-9+/=]+)")
_REFERENCE = re.compile(r"attachment:([^\s)>\"']*)")


def kept_beside(source: str, attachments: object) -> tuple[str, NotebookNode]:
    """Return a cell's text with the pictures that it shows beside it, as attachments.

    Args:
        source: the text.
        attachments: of the cell, as the notebook has them.
    """
    pictures = _attached(attachments, _REFERENCE.findall(source))

    def attach(written: re.Match[str]) -> str:
        name = f"written-{len(pictures)}"
        pictures[name] = NotebookNode({written[1]: written[2]})
        return f"attachment:{name}"

    return _WRITTEN.sub(attach, source), pictures


def size(attachments: NotebookNode) -> int:
    """Return how many characters a cell's pictures take."""
    return sum(len(content) for picture in attachments.values() for content in picture.values())


def has_too_many_pixels(attachments: NotebookNode) -> bool:
    """Tell whether a cell has a picture that a browser would take gigabytes for, by Pillow's limit."""
    return any(_is_bomb(content) for picture in attachments.values() for content in picture.values())


def _is_bomb(content: str) -> bool:
    from PIL import Image  # takes a while, and few submissions have pictures

    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            Image.open(io.BytesIO(base64.b64decode(content))).close()  # reads the size, not the pixels
        except (Image.DecompressionBombWarning, Image.DecompressionBombError):
            return True
        except Exception:  # it is none that can be shown
            return False
    return False


def _attached(attachments: object, references: Iterable[str]) -> NotebookNode:
    """Return the attachments that are pictures and are referred to, as addresses in Markdown do."""
    found = attachments if isinstance(attachments, dict) else {}
    names = dict.fromkeys(name for reference in references for name in (reference, unquote(reference)))
    pictures = {name: _picture(found.get(name)) for name in names}
    return NotebookNode({name: picture for name, picture in pictures.items() if picture})


def _picture(contents: Any) -> NotebookNode:
    """Return those forms of an attachment that are a picture's."""
    kinds = {kind: contents.get(kind) for kind in KINDS} if isinstance(contents, dict) else {}
    return NotebookNode(
        {kind: text for kind, text in kinds.items() if isinstance(text, str) and _BASE64.fullmatch(text)}
    )
