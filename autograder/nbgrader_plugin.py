"""Steps of our own among those that nbgrader takes with a submission; nbgrader_config.py names them."""

from nbconvert.exporters.exporter import ResourcesDict
from nbformat import NotebookNode
from nbgrader.preprocessors import ClearHiddenTests, DeduplicateIds
from nbgrader.utils import is_locked

Step = tuple[NotebookNode, ResourcesDict]


class OneOfEach(DeduplicateIds):
    """Makes ordinary cells of those that a student has copied, but for the last copy.

    nbgrader's own step leaves them half an nbgrader cell, and then cannot grade the notebook.
    """

    def preprocess_cell(self, cell: NotebookNode, resources: ResourcesDict, cell_index: int) -> Step:
        cell, resources = super().preprocess_cell(cell, resources, cell_index)
        if cell.metadata.get("nbgrader") == {}:
            del cell.metadata["nbgrader"]
        return cell, resources


class HideTests(ClearHiddenTests):
    """Cuts the hidden tests out of test cells, and out of the tracebacks, which quote them."""

    def preprocess_cell(self, cell: NotebookNode, resources: ResourcesDict, cell_index: int) -> Step:
        if is_locked(cell) and self._remove_hidden_test_region(cell):
            for output in cell.outputs:
                if output.output_type == "error":
                    output.traceback = output.traceback[-1:]  # the exception and its message
        return cell, resources
