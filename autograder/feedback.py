"""What a student may see of a test: nbgrader_config.py puts it into nbgrader's feedback pages."""

from nbconvert.exporters.exporter import ResourcesDict
from nbformat import NotebookNode
from nbgrader.preprocessors import ClearHiddenTests
from nbgrader.utils import is_locked


class HideTests(ClearHiddenTests):
    """Cuts the hidden tests out of test cells, and out of the tracebacks, which quote them."""

    def preprocess_cell(
        self, cell: NotebookNode, resources: ResourcesDict, cell_index: int
    ) -> tuple[NotebookNode, ResourcesDict]:
        if is_locked(cell) and self._remove_hidden_test_region(cell):
            for output in cell.outputs:
                if output.output_type == "error":
                    output.traceback = output.traceback[-1:]  # the exception and its message
        return cell, resources
