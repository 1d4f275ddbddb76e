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

MAX_PIXELS = 89_478_485  # of one, beyond which Pillow warns: a browser would take gigabytes
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

    text = _WRITTEN.sub(attach, source)
    readable = {name: _readable(picture) for name, picture in pictures.items()}
    return text, NotebookNode({name: picture for name, picture in readable.items() if picture})


def _readable(picture: NotebookNode) -> NotebookNode:
    """Return those forms of a picture that are one."""
    return NotebookNode({kind: content for kind, content in picture.items() if _pixels(content) is not None})


def size(attachments: NotebookNode) -> int:
    """Return how many characters a cell's pictures take."""
    return sum(len(content) for picture in attachments.values() for content in picture.values())


def has_too_many_pixels(attachments: NotebookNode) -> bool:
    """Tell whether a cell has a picture of more than `MAX_PIXELS`."""
    contents = [content for picture in attachments.values() for content in picture.values()]
    return any((_pixels(content) or 0) > MAX_PIXELS for content in contents)


def _pixels(content: str) -> int | None:
    """Return how many pixels a picture has; None if that cannot be told, though a browser may show it."""
    from PIL import Image  # takes a while, and few submissions have pictures

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        try:
            # Reads the size, not the pixels.
            with Image.open(io.BytesIO(base64.b64decode(content))) as picture:
                return picture.width * picture.height
        except Image.DecompressionBombError:
            return MAX_PIXELS + 1
        except Exception:  # Pillow raises all errors of its parsers
            return None


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
