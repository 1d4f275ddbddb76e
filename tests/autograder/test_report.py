"""The pages about a class: their counts and names, and that nothing of a student is more than text."""

import shutil
from html.parser import HTMLParser

import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output
from nbgrader.api import Gradebook

from autograder import cli
from autograder.grading import gradebook, outputs, records, structures
from autograder.grading.records import CellRecord, NotebookRecord
from autograder.grading.report import Question, Student, _write, report
from autograder.grading.structures import alike
from autograder.kit.case import Trial
from autograder.kit.mistakes import RAISED
from autograder.kit.problem import Problem
from autograder.kit.verdict import Result, Verdict
from autograder.sandbox.tiers import Tier
from tests.classroom import COURSE, as_bytes

NASTY = "<script>alert('ha')</script>"
LONG = """
def share(tensor, group=None):
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    for distance in range(1, world_size):
        peer = (rank + distance) % world_size
        dist.send(tensor, group_dst=peer, group=group)
    return tensor / world_size
"""
COPIED = '''
def share(values: torch.Tensor, group=None) -> torch.Tensor:
    """My own work."""
    me, everybody = dist.get_rank(group), dist.get_world_size(group)
    for step in range(2, everybody):  # around
        other = (me + step) % everybody
        dist.send(values, group_dst=other, group=group)
    return values / everybody
'''


def failed(got):
    """The outputs of a test cell whose check failed, and what it quotes of the student's."""
    case = Trial(inputs=[()], title=NASTY, verify=lambda outcomes: None)
    verdict = Verdict("share", [Result(case, "gloo", Problem(RAISED, "an answer", got))], 7, 0.1)
    return outputs.failed(verdict)


PASSED = [new_output("stream", name="stdout", text="share: passed, 9 cases\n")]
COST, CHEAPER = outputs.cost(0.5), outputs.cost(0.125)
BROKEN = [new_output("error", ename="SyntaxError", evalue=NASTY)]


# nbgrader 0.9 says it of each new submission; it changes nothing in the gradebook.
pytestmark = pytest.mark.filterwarnings("ignore:Object of type <Submitted")


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A course in which a class of four was graded."""
    course = tmp_path_factory.mktemp("course")
    shutil.copy(COURSE / gradebook.SETTINGS, course)
    fields = {"locked": True, "schema_version": 3, "task": False}
    answer = {"grade_id": "share", "solution": True, "grade": False} | fields
    test = {"grade_id": "share_check", "solution": False, "grade": True, "points": 8} | fields
    source = new_notebook(
        cells=[
            new_code_cell("def share(): return 1", metadata={"nbgrader": answer}),
            new_code_cell("check.share(share)", metadata={"nbgrader": test}),
        ]
    )
    (course / "source" / "ps1").mkdir(parents=True)
    (course / "source" / "ps1" / "exercise.ipynb").write_bytes(as_bytes(source))
    submissions = {
        "ada": (8, LONG, [], [COST, *PASSED], []),
        "bob": (0, COPIED, [], failed(NASTY), ["share_check: the cell was missing"]),
        "eve": (0, "def share(", BROKEN, [CHEAPER, *failed("it hangs")], []),
        "<b>mal": (0, NASTY, BROKEN, [new_output("error", ename="OutOfTime", evalue=NASTY)], [NASTY]),
    }
    with Gradebook(f"sqlite:///{course}/gradebook.db", "fourranks") as book:
        book.add_assignment("ps1")
        book.add_notebook("exercise", "ps1")
        book.add_grade_cell("share_check", "exercise", "ps1", max_score=8, cell_type="code")
        for student, (points, text, outputs, tested, repairs) in submissions.items():
            book.add_student(student)
            book.add_submission("ps1", student)
            grade = book.find_grade("share_check", "exercise", "ps1", student)
            grade.auto_score, grade.needs_manual_grade = points, False
            cells = [
                CellRecord("share", text, False, outputs, seconds=61.0),
                CellRecord("share_check", "check.share(share)", True, tested, seconds=2.0),
            ]
            path = records.path_of(course, "ps1", student, "exercise")
            records.save(NotebookRecord(Tier.LANDLOCK, repairs, cells), path)
        book.db.commit()
    return course


@pytest.fixture(scope="module")
def pages(course):
    """The pages about the class, by name: the class's is index."""
    index = report(course, "ps1")
    everything = [index, index.parent / "ranking.html", *(index.parent / "students").iterdir()]
    assert index == course / "report" / "ps1" / "index.html"
    assert sorted((course / "report").rglob("*.html")) == sorted(everything)
    shown = {page.stem: page.read_text() for page in everything}
    report(course, "ps1", anonymous=True)
    return shown | {"anonymous": (index.parent / "ranking.html").read_text()}


class _Reader(HTMLParser):
    """The tags of a page with their attributes, and its text."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.text += " "
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text += data

    @property
    def words(self):
        return " ".join(self.text.split())


@pytest.fixture(scope="module")
def read(pages):
    return {name: _Reader(page) for name, page in pages.items()}


def test_the_class_page_says_how_many_failed_each_check_and_why(read):
    assert "share_check 2.0 8 1 of 4 2 × an exception; 1 × OutOfTime" in read["index"].words
    assert "Mean 25 %, median 0 %" in read["index"].words
    assert "bob share_check: the cell was missing" in read["index"].words
    assert "1:03" in read["index"].words


def test_a_submission_that_could_not_be_graded_is_named_and_has_no_answers_that_wait(course, tmp_path):
    shutil.copytree(course, tmp_path, dirs_exist_ok=True)
    with Gradebook(f"sqlite:///{tmp_path}/gradebook.db", "fourranks") as book:
        book.add_student("unreadable")
        book.add_submission("ps1", "unreadable")
        book.find_grade("share_check", "exercise", "ps1", "eve").needs_manual_grade = True
        book.db.commit()
    (tmp_path / "autograded" / "eve" / "ps1").mkdir(parents=True)
    words = _Reader(report(tmp_path, "ps1").read_text()).words
    assert gradebook.Class(tmp_path, "ps1").waiting() == {"eve"}
    assert "1 with answers to grade by hand, which count 0 until then. Not graded: unreadable. " in words


def test_pages_that_cannot_be_written_are_named(course, tmp_path, monkeypatch, capsys):
    shutil.copytree(course, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("report"))
    (tmp_path / "report").touch()
    monkeypatch.chdir(tmp_path)
    assert cli.main(["report", "ps1"]) == 2
    assert "The report cannot be written: " in capsys.readouterr().err


def test_an_exercise_that_is_not_whole_is_named(course, tmp_path, monkeypatch, capsys):
    shutil.copytree(course, tmp_path, dirs_exist_ok=True)
    exercise = tmp_path / "exercises" / "ps1" / "exercise.ipynb"
    exercise.parent.mkdir(parents=True)
    exercise.touch()
    monkeypatch.chdir(tmp_path)
    assert cli.main(["report", "ps1"]) == 2
    assert f"{exercise} is not a notebook: it is empty." in capsys.readouterr().err


def test_the_ranking_begins_with_the_least_cost_and_leaves_out_those_without_one(read):
    assert "place student cost 1 eve 0.1250 2 ada 0.5000" in read["ranking"].words
    assert "bob" not in read["ranking"].words
    assert "Ranking by cost of the 2 that have one" in read["index"].words
    assert "cost: 0.5000" in read["ada"].words


def test_the_ranking_can_hide_all_names(read):
    assert "place cost 1 0.1250 2 0.5000" in read["anonymous"].words
    assert not any(name in read["anonymous"].text for name in ("ada", "eve", "bob"))


def test_the_pages_say_in_which_sandbox_it_was_graded(read):
    assert "Sandbox: 4 × landlock (without namespaces)." in read["index"].words
    assert "Sandbox: landlock (without namespaces)." in read["ada"].words


def test_each_student_has_a_page_with_what_the_checks_said(read):
    assert "ada: 8 of 8 points" in read["ada"].words and "share: passed, 9 cases" in read["ada"].words
    assert "share: an exception (1 of 1 case failed)" in read["eve"].words and "it hangs" in read["eve"].words
    assert f"share SyntaxError: {NASTY}" in read["eve"].words
    links = [values["href"] for tag, values in read["index"].tags if tag == "a"]
    assert {"students/ada.html", "students/%3Cb%3Emal.html"} <= set(links)


def test_a_question_that_waits_for_a_person_has_no_points_yet(tmp_path):
    student = Student("ada", 0.0, 6.0, 0.0, [Question("share_explained", 0.0, 6.0, True, None)], [])
    _write(tmp_path / "ada.html", "student.html", {"assignment": "ps1", "student": student})
    words = _Reader((tmp_path / "ada.html").read_text()).words
    assert "share_explained: ? of 6, for a person to grade" in words


def test_nothing_of_a_students_becomes_more_than_text(read):
    for reader in read.values():
        assert {"script", "b", "img", "iframe"}.isdisjoint(tag for tag, _ in reader.tags)
    assert NASTY in read["bob"].text and NASTY in read["<b>mal"].text and "<b>mal" in read["index"].text


def test_the_pages_need_nothing_but_themselves(read):
    for reader in read.values():
        assert {"link", "style"} & {tag for tag, _ in reader.tags} == {"style"}
        addresses = [values.get("href", "") + (values.get("src") or "") for _, values in reader.tags]
        assert not any("//" in address for address in addresses)


def test_answers_that_differ_in_names_and_comments_only_are_named(read):
    assert "The same structure" in read["index"].words
    assert "share ada, bob" in read["index"].words


def structure(students, released="raise NotImplementedError", solution="def share(): return 1"):
    answers = {student: {"share": source} for student, source in students.items()}
    return alike(answers, {"share": released}, {"share": solution})


def test_other_calls_make_another_structure():
    assert len(structure({"ada": LONG, "bob": COPIED})) == 1
    assert structure({"ada": LONG, "bob": COPIED.replace("dist.send", "dist.isend")}) == []


def test_what_is_short_or_was_handed_out_is_nobodys_own():
    assert structure({"ada": "def share(x): return x + 1", "bob": "def share(y): return y + 2"}) == []
    assert structure({"ada": LONG, "bob": COPIED}, released=LONG) == []


def test_what_is_as_in_the_solution_is_told_apart():
    (group,) = structure({"ada": LONG, "bob": COPIED}, solution=COPIED)
    assert group.as_solved and group.students == ("ada", "bob")


@pytest.mark.parametrize("source", ["def share(", "x = " + "-" * 5000 + "1", "a" + "+a" * 50_000, "\0"])
def test_what_cannot_be_parsed_is_like_nothing(source):
    assert structure({"ada": source, "bob": source}) == []


def test_what_takes_too_long_to_parse_is_like_nothing(monkeypatch):
    monkeypatch.setattr(structures, "SECONDS", 0.0)
    assert structure({"ada": LONG, "bob": COPIED}) == []
