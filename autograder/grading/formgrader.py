"""Shows names as text on formgrader's pages: students choose theirs, and nbgrader's templates escape none.

nbgrader_config.py sets both: `Pages` makes the lists, and `EscapeNames` comes before the page of one
submission, of which nbconvert makes the rest.
"""

from __future__ import annotations

import html
import re
from typing import Any

from jinja2 import Environment
from nbconvert.exporters.exporter import ResourcesDict
from nbconvert.preprocessors import Preprocessor
from nbformat import NotebookNode

_NAMES = ("student", "first_name", "last_name", "notebook_path")


class Pages(Environment):
    """Jinja's environment with every value escaped, as a string of JavaScript where it stands for one."""

    def __init__(self, **options: Any) -> None:
        super().__init__(autoescape=True, **options)

    def preprocess(self, source: str, name: str | None = None, filename: str | None = None) -> str:
        plain = super().preprocess(source, name, filename)
        return re.sub(r'= "\{\{ (\w+) \}\}";', r"= {{ \1 | tojson }};", plain)


class EscapeNames(Preprocessor):
    """Escapes the names at the head of a submission's page."""

    def preprocess(self, nb: NotebookNode, resources: ResourcesDict) -> tuple[NotebookNode, ResourcesDict]:
        resources.update({name: html.escape(resources[name]) for name in _NAMES if resources.get(name)})
        return nb, resources
