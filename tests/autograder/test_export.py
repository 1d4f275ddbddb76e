"""A gradebook becomes a table that Canvas takes: with its own numbers of students, and titles."""

import csv

import pytest
from nbgrader.api import Gradebook
from nbgrader.plugins import CsvExportPlugin
from traitlets.config import Config

from autograder.grading.export import CanvasExport, TableExport

pytestmark = pytest.mark.filterwarnings(  # nbgrader 0.9's
    r"ignore:Object of type <Submitted\w+> not in session"
)


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


@pytest.mark.parametrize("delimiter", [",", ";"])
@pytest.mark.parametrize("exporter", [CanvasExport, TableExport])
def test_a_name_is_no_formula_whatever_ends_a_cell(exporter, delimiter, tmp_path):
    with Gradebook(f"sqlite:///{tmp_path}/gradebook.db") as gradebook:
        gradebook.add_assignment("01_first")
        gradebook.add_student("1", first_name="Eve;=cmd|'/c calc'!A1;", last_name='M,;"=1";+2')
        exporter(config=Config(ExportPlugin={"to": str(tmp_path / "table.csv")})).export(gradebook)
    with (tmp_path / "table.csv").open(newline="") as file:
        cells = [cell for row in csv.reader(file, delimiter=delimiter) for cell in row]
    assert not any(cell.strip(" \"'").startswith(("=", "+")) and cell[0] != "'" for cell in cells if cell)


@pytest.mark.parametrize("exporter", [CanvasExport, TableExport])
def test_a_name_is_no_formula_no_column_and_no_line(exporter, tmp_path):
    formula, lines = "=cmd|' /C calc'!A0", "Eve,100\n1,Ada,100"
    with Gradebook(f"sqlite:///{tmp_path}/gradebook.db") as gradebook:
        gradebook.add_assignment("01_first")
        gradebook.add_student("1", first_name=formula, last_name=formula, email="@SUM(1)")
        gradebook.add_student("2", first_name=lines, last_name=lines)
        exporter(config=Config(ExportPlugin={"to": str(tmp_path / "table.csv")})).export(gradebook)
    with (tmp_path / "table.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert len(rows) == 2 and {len(row) for row in rows} == {len(header)}
    assert not any(field.startswith(("=", "+", "-", "@", "\t", "\r")) for row in rows for field in row)
    assert any("Eve,100\\n1,Ada,100" in field for row in rows for field in row)


def test_a_table_has_every_student_and_assignment_with_what_nbgraders_own_has(tmp_path):
    ours, theirs = (tmp_path / name for name in ("ours.csv", "theirs.csv"))
    with Gradebook(f"sqlite:///{tmp_path}/gradebook.db") as gradebook:
        for assignment in ("01_first", "02_second"):
            gradebook.add_assignment(assignment, duedate="2026-01-31 12:00:00 UTC")
            gradebook.add_notebook("exercise", assignment)
            gradebook.add_grade_cell("q", "exercise", assignment, max_score=10, cell_type="code")
        for student in "12":
            gradebook.add_student(student, first_name="Ada", last_name="Lovelace", email="ada@uni.example")
        gradebook.add_submission("01_first", "1", timestamp="2026-01-30 12:00:00 UTC")
        gradebook.find_grade("q", "exercise", "01_first", "1").auto_score = 7.5
        gradebook.db.commit()
        for path, exporter in ((ours, TableExport), (theirs, CsvExportPlugin)):
            exporter(config=Config(ExportPlugin={"to": str(path)})).export(gradebook)
    assert ours.read_text().splitlines() == theirs.read_text().splitlines()


@pytest.mark.parametrize("exporter", [CanvasExport, TableExport])
def test_a_table_that_cannot_be_written_is_one_clear_message(exporter, tmp_path):
    config = Config(ExportPlugin={"to": str(tmp_path / "no/such/table.csv")})
    with Gradebook(f"sqlite:///{tmp_path}/gradebook.db") as gradebook, pytest.raises(SystemExit) as ended:
        exporter(config=config).export(gradebook)
    said = f"{tmp_path}/no/such/table.csv cannot be written: No such file or directory. Name another place"
    assert str(ended.value).startswith(said)
