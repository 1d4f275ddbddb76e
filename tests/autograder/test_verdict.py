"""The display of a check: in a real kernel, and as plain text."""

import tempfile
from fractions import Fraction

import nbformat
import pytest
import torch
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook
from traitlets.config import Config

from autograder.kit.mistakes import DEADLOCK, RAISED
from autograder.kit.problem import Problem
from autograder.kit.verdict import CheckFailed, Result, Verdict, show
from autograder.topics.collectives.budget import Budget
from autograder.topics.collectives.in_place import InPlaceCase
from autograder.topics.collectives.mistakes import VALUE

CELLS = [
    "import torch, torch.distributed as dist\nfrom autograder import check",
    """
def right(tensor, peer):
    print("printed on a rank")
    received = torch.empty_like(tensor)
    sending = dist.isend(tensor, peer)
    dist.recv(received, peer)
    sending.wait()
    return received

check.exchange(right, world_sizes=(2,), numels=(1,))
""",
    "check.exchange(lambda tensor, peer: tensor + 1, world_sizes=(2,), numels=(1,))",
    "check.exchange(None)",
]


@pytest.fixture(scope="module")
def cells() -> list[nbformat.NotebookNode]:
    notebook = new_notebook(cells=[new_code_cell(source) for source in CELLS])
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    with tempfile.TemporaryDirectory() as sockets:  # in the current folder kernels of two workers would meet
        config = Config(KernelManager={"transport": "ipc", "ip": f"{sockets}/kernel"})
        NotebookClient(notebook, allow_errors=True, timeout=60, config=config).execute()
    return notebook.cells


def test_nothing_that_a_check_does_is_written_to_stderr(cells):
    streams = [output.name for cell in cells for output in cell.outputs if output.output_type == "stream"]
    assert "stderr" not in streams


def test_a_passed_check_displays_one_line_as_text_and_as_html(cells):
    (output,) = [output for output in cells[1].outputs if output.output_type == "display_data"]
    assert output.data["text/plain"].startswith("exchange: passed, 2 cases (2 ranks; gloo; ")
    assert "exchange: passed" in output.data["text/html"]


def test_a_failed_check_displays_a_table_and_raises_with_the_same_text_but_shows_it_once(cells):
    table, error = cells[2].outputs
    assert "<table>" in table.data["text/html"]
    assert error.ename == "CheckFailed"
    assert error.evalue == table.data["text/plain"]
    assert len(error.traceback) == 1
    assert "exchange: wrong values (2 of 2 cases failed)" in error.traceback[0]
    assert "expected" not in error.traceback[0]


def test_what_is_no_function_is_refused_in_one_line(cells):
    (error,) = cells[3].outputs
    assert error.ename == "NotAFunction"
    assert len(error.traceback) == 1


def verdict(*problems: Problem | None) -> Verdict:
    case = InPlaceCase(
        inputs=[(), ()], shape=(3,), dtype=torch.float32, expected=[{}, {}], budget=Budget("nothing")
    )
    return Verdict("f", [Result(case, "gloo", problem) for problem in problems], seed=4, seconds=0.25)


def test_outside_a_notebook_a_passed_check_prints_one_line(capsys):
    show(verdict(None, None))
    assert capsys.readouterr().out == "f: passed, 2 cases (2 ranks; gloo; 0.2 s)\n"


def test_outside_a_notebook_a_failed_check_prints_nothing_and_raises_an_assertion_error(capsys):
    with pytest.raises(AssertionError) as caught:
        show(verdict(None, Problem(VALUE, "1", "2")))
    assert capsys.readouterr() == ("", "")
    assert isinstance(caught.value, CheckFailed)
    assert str(caught.value).startswith(
        "f: wrong values (1 of 2 cases failed)\n\n"
        "  2 ranks, 3 × float32 (gloo)\n"
        "    expected  1\n"
        "    got       2\n"
    )
    assert "The inputs were drawn with seed=4." in str(caught.value)


@pytest.fixture
def first_and_second() -> list[InPlaceCase]:
    """Two cases that count alone."""
    alone = {"budget": Budget("nothing"), "counts_alone": True}
    return [
        InPlaceCase(inputs=[()], shape=(3,), dtype=torch.float32, expected=[{}], **alone) for _ in range(2)
    ]


def test_cases_that_were_not_run_earn_nothing_where_each_counts_alone(first_and_second):
    first, second = first_and_second
    results = [Result(first, "gloo", None), Result(second, "gloo", Problem(VALUE, "1", "2"))]
    assert Verdict("f", results, seed=4, seconds=0.25, not_run=2).share == Fraction(1, 4)


def test_a_case_counts_only_if_it_passes_on_each_backend(first_and_second):
    first, second = first_and_second
    results = [Result(case, backend, None) for case in (first, second) for backend in ("gloo", "nccl")]
    assert Verdict("f", results, seed=4, seconds=0.25).share == 1
    results[-1] = Result(second, "nccl", Problem(VALUE, "1", "2"))
    assert Verdict("f", results, seed=4, seconds=0.25).share == Fraction(1, 2)


def test_many_failed_cases_are_counted_and_only_a_few_shown():
    text = str(verdict(*[Problem(VALUE, str(number), "?") for number in range(9)]))
    assert text.count("expected") == 3
    assert "6 more cases failed." in text


def test_what_several_cases_have_to_say_is_said_once():
    text = str(verdict(*[Problem(RAISED, "an answer", got) for got in ("a", "b", "a", "a", "c")]))
    assert [line.split()[1] for line in text.splitlines() if line.startswith("    got")] == ["a", "b", "c"]
    assert "2 more cases failed." in text


def test_of_long_stories_only_one_is_told():
    text = str(verdict(*[Problem(DEADLOCK, "an answer", "first\nsecond")] * 3))
    assert text.count("first") == 1
    assert "    got       first\n              second" in text


def test_the_headline_has_the_pages_own_colour_which_is_readable_in_light_and_in_dark():
    for one in (verdict(Problem(VALUE, "1", "2")), verdict(None)):
        style = one._repr_html_().partition('style="')[2].partition('"')[0]
        assert "border-left" in style and ";color" not in style


def test_what_came_from_a_students_code_is_escaped():
    html = verdict(Problem(RAISED, "<i>", "<script>alert(1)</script>"))._repr_html_()
    assert "<script>" not in html and "&lt;script&gt;" in html and "&lt;i&gt;" in html
