"""A gradebook becomes a table that Canvas takes: with its own numbers of students, and titles."""

import csv

import pytest
from nbgrader.api import Gradebook
from traitlets.config import Config

from autograder.grading.export import CanvasExport


@pytest.mark.filterwarnings(r"ignore:Object of type <Submitted\w+> not in session")  # nbgrader 0.9's
def test_canvas_gets_a_line_for_each_student_and_a_column_for_each_assignment(tmp_path):
    with Gradebook(f"sqlite:///{tmp_path}/gradebook.db") as gradebook:
        for assignment in ("01_first", "02_second", "03_third"):
            gradebook.add_assignment(assignment)
            gradebook.add_notebook("exercise", assignment)
            gradebook.add_grade_cell("q", "exercise", assignment, max_score=10, cell_type="code")
        gradebook.add_student("12345", first_name="Ada", last_name="Lovelace, Countess")
        gradebook.add_student("7")
        for assignment, score, penalty in (("01_first", 7.5, 0), ("03_third", 9, 10)):
            gradebook.add_submission(assignment, "12345")
            notebook = gradebook.find_submission_notebook("exercise", assignment, "12345")
            notebook.late_submission_penalty = penalty
            gradebook.find_grade("q", "exercise", assignment, "12345").auto_score = score
        gradebook.db.commit()
        for wanted, name in (([], "all.csv"), (["01_first"], "one.csv")):
            config = Config(ExportPlugin={"to": str(tmp_path / name), "assignment": wanted})
            CanvasExport(config=config).export(gradebook)
    with (tmp_path / "all.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    # Canvas refuses a table whose first three columns are not these.
    assert header == ["Student", "ID", "Section", "01_first", "02_second", "03_third"]
    assert sorted(rows) == [
        ["", "7", "", "", "", ""],
        ["Lovelace, Countess, Ada", "12345", "", "7.5", "", "0"],
    ]
    assert (tmp_path / "one.csv").read_text().splitlines()[0] == "Student,ID,Section,01_first"
