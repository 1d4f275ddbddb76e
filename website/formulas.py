"""Formulas as MathML, which browsers draw themselves: no script, no fonts, and a screen reader reads them."""

from __future__ import annotations

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _inline(writer: HTML5Translator, node: nodes.math) -> None:
    writer.body.append(tex2mathml(node.astext()))  # type: ignore[no-untyped-call]
    raise nodes.SkipNode


def _block(writer: HTML5Translator, node: nodes.math_block) -> None:
    formula = tex2mathml(node.astext(), as_block=True)  # type: ignore[no-untyped-call]
    writer.body.append(f'<div class="formula">{formula}</div>')
    raise nodes.SkipNode
