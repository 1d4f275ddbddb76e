"""Steps of our own among those that nbgrader takes with a submission; nbgrader_config.py names them."""

import warnings
from pathlib import Path
from typing import IO, Any

from nbconvert.exporters import NotebookExporter
from nbconvert.exporters.exporter import ResourcesDict
from nbformat import NotebookNode
from nbformat.warnings import DuplicateCellId
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import ClearHiddenTests, NbGraderPreprocessor
from nbgrader.utils import is_locked
from traitlets import Bool, Enum, List, Unicode
from traitlets.config import Configurable

from autograder.grading import intake, records, submission
from autograder.grading.grade_submission import grade_notebook
from autograder.grading.intake import HandedIn
from autograder.grading.records import Terms
from autograder.kit.text import line
from autograder.sandbox.tiers import Tier

Step = tuple[NotebookNode, ResourcesDict]
Resources = dict[str, Any] | None
Exported = tuple[Any, ...]


class CarefulExporter(NotebookExporter):
    """Has a submission read where memory and time have limits, and takes no more of it than its text.

    What `Restore` and `Referee` made of it is read as it is.
    """

    def from_filename(self, filename: str, resources: Resources = None, **options: Any) -> Exported:
        submission.require_own(Path(filename))
        return super().from_filename(filename, resources, **options)

    def from_file(self, file_stream: IO[str], resources: Resources = None, **options: Any) -> Exported:
        if not any(isinstance(step, Restore) for step in self._preprocessors):
            return super().from_file(file_stream, resources, **options)
        kept = intake.kept_for(_record(self, resources))
        notebook = intake.read(HandedIn(Path(file_stream.name), kept))
        with warnings.catch_warnings():  # Colab writes no ids, and those of copies are the same
            warnings.simplefilter("ignore", DuplicateCellId)
            return self.from_notebook_node(notebook, resources, **options)


class Restore(NbGraderPreprocessor):
    """Puts the instructor's cells back, and says at the top of the notebook what had to be repaired."""

    def preprocess(self, notebook: NotebookNode, resources: ResourcesDict) -> Step:
        names = resources["nbgrader"]
        release = submission.release(_course(self), names["assignment"], names["notebook"])
        notebook = submission.repaired(notebook, release)
        if repairs := notebook.metadata.fourranks.repairs:
            self.log.warning("%s", line(f"{names['student']}: {'; '.join(repairs)}"))
        return notebook, resources


class Referee(NbGraderPreprocessor):
    """In place of nbgrader's `Execute`: students' code runs in a sandbox, test cells outside of it.

    Outcomes that are on record are taken from there, so that the same is not run twice.
    """

    tier = Enum(
        ["", *(tier.value for tier in Tier)],
        "",
        help="The kind of sandbox for students' code (docs/security.md). By default the strongest that this "
        "machine allows.",
    ).tag(config=True)
    nccl = Bool(
        False, help="Run every check on NCCL, too, on this machine's GPUs; an answer must pass on both."
    ).tag(config=True)
    secret = Unicode(
        "", help="The secret that inputs are drawn from, to repeat a disputed run; by default a new one."
    ).tag(config=True)
    only = Unicode(
        "",
        help="A test cell or a check to run. All others keep their records, even if their checks changed.",
    ).tag(config=True)

    @property
    def terms(self) -> Terms:
        return Terms(Tier(self.tier) if self.tier else None, self.nccl, self.secret, self.only)

    def preprocess(self, notebook: NotebookNode, resources: ResourcesDict) -> Step:
        if self.terms.tier is Tier.NONE:
            self.log.warning("Without a sandbox students' code can do all that you can, and forge grades.")
        grade_notebook(notebook, _record(self, resources), self.terms)
        notebook.metadata.setdefault("fourranks", NotebookNode()).graded = records.digest(notebook)
        return notebook, resources


def _course(step: Configurable) -> Path:
    return Path(CourseDirectory(config=step.config).root)


def _record(step: Configurable, resources: Any) -> Path:
    names = resources["nbgrader"]
    return records.path_of(_course(step), names["assignment"], names["student"], names["notebook"])


class HideTests(ClearHiddenTests):
    """Cuts the hidden tests out of test cells, and out of the tracebacks, which quote them."""

    # nbconvert sets it for pages. nbgrader hides it from settings, so that a warning would name this class.
    display_data_priority = List(Unicode()).tag(config=True)

    def preprocess_cell(self, cell: NotebookNode, resources: ResourcesDict, cell_index: int) -> Step:
        if is_locked(cell) and self._remove_hidden_test_region(cell):
            for output in cell.outputs:
                if output.output_type == "error":
                    output.traceback = output.traceback[-1:]  # the exception and its message
        return cell, resources
