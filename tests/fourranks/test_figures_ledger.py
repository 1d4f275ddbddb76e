"""The ledger of a reader's predictions, and the questions that later lectures ask again."""

import pytest

from fourranks.figures import compare, ledger, predicted, review
from fourranks.figures.journal import Journal
from fourranks.figures.ledger import Guess
from fourranks.figures.questions import asked_in
from fourranks.figures.timings import ratios, sizes


@pytest.fixture(autouse=True)
def lecture(tmp_path, monkeypatch):
    """A kernel that has just opened lecture 04, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ledger, "_journal", Journal("predictions"))
    monkeypatch.setattr(ledger, "_topic", "04")


def noted():
    return {guess.about: (guess.answer, guess.truth) for guess in ledger.guesses()[0]}


def test_a_prediction_is_noted_with_what_was_found_and_the_last_one_counts():
    for answer in (None, 12, 24):
        predicted(answer, about="MiB sent", was=24)
    predicted(3)  # about nothing that the ledger could name
    assert noted() == {"MiB sent": (24, 24)}


@pytest.mark.parametrize("answer", [{(1, 2): 3}, 10**5000], ids=["keys that JSON has not", "too many digits"])
def test_an_answer_that_json_cannot_hold_is_noted_as_text(answer):
    assert predicted(answer, about="anything", was=1).startswith("you predicted: ")
    assert isinstance(noted()["anything"][0], str)


@pytest.mark.parametrize(
    "given", [5, "640", {"a": 1}, {1}, float("nan")], ids=lambda given: type(given).__name__
)
def test_answers_that_have_lost_their_brackets_are_asked_for_in_brackets(given, capsys):
    ledger.answers(given)
    printed = capsys.readouterr().out
    assert printed.startswith("Your answers have lost their brackets.") and "you said" not in printed


@pytest.mark.parametrize("given", [None, [], (None, None, None)])
def test_answers_are_printed_without_any_that_the_reader_gave(given, capsys):
    ledger.answers(given)
    printed = capsys.readouterr().out
    assert printed.startswith("1. ") and "you said" not in printed


def test_bars_note_the_predictions_that_were_made_about_them():
    compare({"a": 3.0, "b": {"x": 1.0, "y": 2.0}}, yours={"a": None, "b": 4, "c": 1}, title="Bars")
    assert noted() == {"b, Bars": (4, 3.0)}


def test_what_a_title_says_of_one_run_does_not_make_another_prediction_of_it():
    for measured in (88, 91):
        compare({"a": 1.0}, yours={"a": measured}, title=f"A step; communication alone takes {measured} ms")
    assert noted() == {"a, A step": (91, 1.0)}


def test_ratios_and_sizes_note_their_predictions_too():
    ratios({"too high": 5.0, "too low": 0.5}, {"too high": 10, "too low": None}, "Lies")
    for mark in (2048.0, None):
        sizes({"Gloo": [(1024, 1e-3), (4096, 2e-3)]}, title="Times", mark=mark, yours=512)
    assert noted() == {"too high, Lies": (10, 5.0), "α/β, Times": (512, 2048.0)}


def test_outside_of_a_lecture_nothing_is_noted(monkeypatch, tmp_path):
    monkeypatch.setattr(ledger, "_topic", "")
    predicted(1, about="anything", was=1)
    assert ledger.guesses() == ([], []) and not list(tmp_path.iterdir())


def test_predictions_of_earlier_lectures_count_in_the_whole_only():
    predicted(1, about="here", was=1)
    ledger._journal.keep("03: there", {"topic": "03", "about": "there", "answer": 2, "truth": 1})
    here, everywhere = ledger.guesses()
    assert [guess.about for guess in here] == ["here"] and len(everywhere) == 2


@pytest.mark.parametrize("record", [{}, {"topic": "04"}, {"topic": 4, "about": 1, "answer": 1, "truth": 1}])
def test_records_that_someone_damaged_are_left_out(record):
    ledger._journal.keep("04: damaged", record)
    assert ledger.guesses() == ([], [])


@pytest.mark.parametrize(
    ("answer", "truth", "is_right", "ratio"),
    [
        (24, 24.2, True, pytest.approx(0.992, abs=1e-3)),
        (12, 24, False, 0.5),
        (0, 0, True, None),
        (0, 1e-7, False, None),
        (-1, 1, False, None),
        (True, True, True, None),
        (True, 1, True, None),
        (" Neither", "neither", True, None),
        ([1, 2], (1, 2), True, None),
        ([1, 2], [1, 3], False, None),
        ("many", 3, False, None),
        (float("nan"), 1.0, False, None),
        (float("inf"), 1.0, False, None),
        (10**400, 1.5, False, None),
    ],
)
def test_a_prediction_is_judged_as_a_number_or_to_the_letter(answer, truth, is_right, ratio):
    guess = Guess("04", "x", answer, truth)
    assert (guess.is_right, guess.ratio) == (is_right, ratio)


def test_a_lecture_without_predictions_says_what_to_do_and_draws_nothing(capsys):
    assert review() is None
    assert "Write yours in place of None" in capsys.readouterr().out


def test_the_review_tells_in_words_how_good_the_predictions_were(capsys):
    for about, answer, truth in (("a", 1, 1), ("b", 30, 10), ("c", 15, 10), ("d", "no", "yes")):
        predicted(answer, about=about, was=truth)
    figure = review()
    assert capsys.readouterr().out == (
        "In this lecture you made 4 predictions, of which 1 was right (a number is right within 2 percent).\n"
        "2 of 3 numbers were within a factor of 2; the median miss was a factor of 1.5.\n"
        "On average they were too high by a factor of 1.7.\n"
    )
    assert figure.alt == "Your predictions, divided by what was true: a 1; b 3; c 1.5"


def test_one_number_is_not_called_an_average(capsys):
    predicted(30, about="a", was=10)
    review()
    assert capsys.readouterr().out.endswith("\nIt was too high by a factor of 3.\n")


def test_predictions_in_words_alone_are_told_and_not_drawn(capsys):
    predicted("yes", about="a", was="yes")
    assert review() is None
    assert capsys.readouterr().out == "In this lecture you made 1 prediction, of which 1 was right.\n"


def test_the_figure_has_a_point_for_each_number_on_a_log_scale():
    for about, answer in (("a", 1), ("b", 1000)):
        predicted(answer, about=about, was=10)
    (axes,) = review().axes
    (points,) = (line for line in axes.lines if line.get_marker() == "D")
    assert axes.get_xscale() == "log"
    assert points.get_xdata() == pytest.approx([0.1, 100.0])


def test_each_lecture_repeats_one_question_of_each_of_three_before_it():
    assert [question.topic for question in asked_in("05")] == ["04", "03", "02"]
    assert [question.topic for question in asked_in("02")] == ["01", "00", "00"]
    assert asked_in("00") == []


def test_each_question_comes_back_one_two_and_three_lectures_later():
    asked = [question.text for topic in range(3, 9) for question in asked_in(f"{topic:02}")]
    assert len(asked) == len(set(asked)) == 18


def test_answers_are_printed_beside_the_readers_own(capsys):
    ledger.begin("04")
    questions = capsys.readouterr().out.splitlines()
    ledger.answers([70, None])
    answers = capsys.readouterr().out.splitlines()
    assert questions[0].startswith("1. (lecture 03) A reduce-scatter on 8 ranks")
    assert answers[0].startswith("1. you said: 70   70 GB/s")
    assert answers[1].startswith("2. 6: in each round")
    assert len(questions) == len(answers) == 3
