"""Forbidden names cannot be had by any way, and no way to write an answer without them is refused."""

import pytest

from autograder.kit.student import Function
from tests.hostile.conftest import CORPUS, HONEST, UNUSUAL

WAYS = sorted(path.stem for path in CORPUS.glob("library_*.py"))
# Those that change the process for the cells, and so what later cells do there.
ALONE = [f"library_by_{way}" for way in ("a_cell_transformer", "a_syntax_tree")]
ANSWERS = {path.stem: path.read_text() for path in sorted(UNUSUAL.glob("*.py"))}


@pytest.fixture(scope="module")
def ways(grade):
    return grade([way for way in WAYS if way not in ALONE])


@pytest.fixture(scope="module")
def answers(grade):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Function, "timeout", 60.0)  # some import much
        return grade([], ANSWERS)


@pytest.mark.timeout(1200)  # all of them are graded in the first test
@pytest.mark.parametrize("way", [way for way in WAYS if way not in ALONE])
def test_no_way_to_a_forbidden_library_earns_points(way, ways):
    assert ways.points(way) == 0, ways.text(way)


def test_answers_beside_these_ways_keep_their_points(ways):
    assert [ways.points(name) for name in HONEST] == [1, 1], ways.text(*HONEST)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("way", ALONE)
def test_no_way_that_changes_how_cells_run_earns_points(way, grade):
    graded = grade([way])
    assert graded.points(way) == 0, graded.text(way)
    assert graded.points(HONEST[0]) == 1


@pytest.mark.parametrize("way", ["library_by_importlib", "library_by_globals", "library_by_garbage"])
def test_who_uses_a_stand_in_reads_what_the_exercise_asks_for(way, ways):
    assert "this exercise asks you to write what it does" in ways.text(way)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("answer", ANSWERS)
def test_an_honest_answer_earns_its_points_however_it_is_written(answer, answers):
    assert answers.points(answer) == 1, answers.text(answer)
