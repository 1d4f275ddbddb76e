"""A figure with sliders is a figure where nothing is live, and follows its sliders where a kernel is."""

from __future__ import annotations

import json

import pytest

from fourranks.figures import alpha_beta, playgrounds
from fourranks.figures.playgrounds import eager_schedule
from fourranks.figures.slider_widget import SliderWidget
from fourranks.figures.sliders import Playground, Slider
from fourranks.plan.memory import zero_bytes
from fourranks.views.style import Figure

PLAYGROUNDS = pytest.mark.parametrize(
    "show", [playgrounds.all_reduce_algorithms, playgrounds.zero_stages, playgrounds.pipeline_schedules]
)


def drawn(number: int, power: int) -> Figure:
    figure = Figure(1, 1)
    figure.alt = f"{number} to the power {power}"
    return figure


@pytest.fixture
def playground() -> Playground:
    numbers = Slider([2, 3, 5], ["two", "three", "five"], 1)
    return Playground(drawn, {"number": numbers, "power": Slider([1, 2], ["one", "two"], 0)})


def ask(widget: SliderWidget, message: object) -> None:
    """Send it as a page does."""
    widget._handle_custom_msg(message, [])


@PLAYGROUNDS
def test_what_is_stored_is_the_figure_in_words_and_as_an_image(show):
    data, _ = show()._repr_mimebundle_()
    assert data.keys() == {"text/html", "image/png", "text/plain"}  # no widget that would be missing later
    assert "<img" in data["text/html"] and data["text/plain"]


@PLAYGROUNDS
def test_without_widgets_there_is_the_figure_alone(show, monkeypatch):
    monkeypatch.setattr(playgrounds, "find_spec", lambda name: None)
    assert isinstance(show(), Figure)


@PLAYGROUNDS
def test_both_ends_of_all_sliders_can_be_drawn(show):
    widget = show()
    last = [len(control["names"]) - 1 for control in widget.controls]
    for settings in ([0] * len(last), last):
        ask(widget, {"settings": settings})
        assert widget.settings == settings and widget.picture["alt"]


def test_a_moved_slider_brings_another_figure(playground):
    widget = SliderWidget(playground)
    assert (widget.settings, widget.picture) == ([1, 0], {})
    ask(widget, {"settings": [2, 1]})
    assert widget.picture["alt"] == "5 to the power 2"
    assert widget.picture["src"].startswith("data:image/png;base64,")
    json.dumps(widget.picture)


@pytest.mark.parametrize(
    "message",
    [
        None,
        "x",
        {},
        {"settings": None},
        {"settings": [0]},
        {"settings": [0, 9]},
        {"settings": [-1, 0]},
        {"settings": ["0", 0]},
    ],
)
def test_a_message_that_sets_nothing_leaves_the_sliders_and_is_answered(playground, message):
    widget = SliderWidget(playground)
    answers = []
    widget.send = answers.append
    ask(widget, message)
    assert widget.settings == [1, 0] and answers == [{"drawn": True}]


def test_two_displays_of_one_playground_share_their_place_on_the_page(playground):
    widget = SliderWidget(playground)
    first, second = (widget._repr_mimebundle_()[0]["text/html"] for _ in range(2))
    assert f'class="{playground.place}"' in first and first == second


def test_the_title_names_the_crossovers_of_the_course_s_own_formula():
    title = playgrounds._algorithms(64, 1e-5, 50e9).alt
    assert alpha_beta.crossover_bytes(64, 1e-5, 1 / 50e9) == pytest.approx(5.42 * 2**20, rel=0.01)
    assert "64 ranks: the tree beats the ring up to 5.42 MiB, pipelined up to 1.7 GiB" in title
    assert "2 ranks: no tree beats the ring" in playgrounds._algorithms(2, 1e-5, 50e9).alt


def test_the_stages_of_zero_keep_what_the_paper_says():
    totals = [sum(zero_bytes(7.5, 7.5 / 64, stage)) for stage in range(4)]
    assert totals == pytest.approx([120, 31.4, 16.6, 1.9], rel=0.02)  # figure 1 of 1910.02054, in GB
    assert "stage 3 1.88 GB" in playgrounds._zero(7.5, 64).alt


@pytest.mark.parametrize(
    ("ranks", "microbatches", "limit"), [(4, 8, 4), (4, 8, 8), (1, 3, 1), (8, 16, 8), (3, 2, 3)]
)
def test_with_memory_enough_a_schedule_has_the_bubble_of_the_formula(ranks, microbatches, limit):
    rows = eager_schedule(ranks, microbatches, limit)
    assert max(job[3] for row in rows for job in row) == 3 * (microbatches + ranks - 1)


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_a_schedule_never_keeps_more_than_its_limit_and_does_everything_once(limit):
    for row in eager_schedule(4, 8, limit):
        kept = [sum({"F": 1, "B": -1}[job[0]] for job in row[: place + 1]) for place in range(len(row))]
        assert max(kept) <= limit
        assert sorted(job[:2] for job in row) == sorted((kind, k) for kind in "FB" for k in range(8))
