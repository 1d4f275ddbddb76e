"""Shows names as text on formgrader's pages: students choose theirs, and nbgrader's templates escape none."""

from __future__ import annotations

import functools
import html

import jinja2
from nbconvert.exporters.exporter import ResourcesDict
from nbconvert.preprocessors import Preprocessor
from nbformat import NotebookNode

_NAMES = ("student", "first_name", "last_name", "notebook_path")


class EscapeNames(Preprocessor):
    """Escapes the names at the head of a submission's page, which nbconvert makes."""

    enabled = True

    def preprocess(
        self, notebook: NotebookNode, resources: ResourcesDict
    ) -> tuple[NotebookNode, ResourcesDict]:
        resources.update({name: html.escape(resources[name]) for name in _NAMES if resources.get(name)})
        return notebook, resources


def escape_addresses() -> None:
    """Have the templates of all other pages escape the names that they take from a page's address.

    nbgrader has no setting for it; it makes these templates' environment after it has read its settings.
    The page of all assignments has no names in its address, and needs the course's path as it is.
    """
    from nbgrader.server_extensions.formgrader import formgrader  # a web server, which commands do without

    escaping = functools.partial(jinja2.Environment, autoescape=lambda page: page != "manage_assignments.tpl")
    vars(formgrader)["Environment"] = escaping
