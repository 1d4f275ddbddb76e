"""A figure of attention shows each weight in its row, and leaves blank what a token does not see."""

import pytest
from matplotlib.text import Text

from fourranks.figures import attention_weights

CAUSAL = [[1.0, 0.0, 0.0], [0.25, 0.75, 0.0], [0.2, 0.5, 0.3]]


def squares(figure):
    """The drawn cells, by (row, column)."""
    return {
        (int(patch.get_y()), int(patch.get_x())): patch.get_facecolor()[:3]
        for patch in figure.axes[0].patches
    }


def test_a_token_sees_itself_and_what_is_before_it():
    assert set(squares(attention_weights(CAUSAL))) == {
        (row, column) for row in range(3) for column in range(row + 1)
    }


def test_the_larger_a_weight_the_darker_its_square():
    drawn = squares(attention_weights(CAUSAL))
    assert sum(drawn[1, 1]) < sum(drawn[1, 0])


def test_each_weight_is_written_in_its_square_and_the_strongest_are_told_in_words():
    figure = attention_weights(CAUSAL, "one head")
    assert [text.get_text() for text in figure.axes[0].texts] == ["100%", "25%", "75%", "20%", "50%", "30%"]
    assert "one head" in figure.alt and "token 2 looks most at token 1" in figure.alt


@pytest.mark.parametrize("size", [1, 16])
def test_any_number_of_tokens_is_drawn(size):
    assert attention_weights([[1 / size] * size] * size).axes


@pytest.mark.parametrize("size", [2, 8])
@pytest.mark.parametrize("title", ["one head", "What each token takes of the ones before it: one head " * 2])
def test_no_title_is_cut_off(size, title):
    figure = attention_weights([[1 / size] * size] * size, title)
    words = figure.axes[0].get_title("left").replace("\n", " ")
    assert words == title.strip()
    (headline,) = figure.axes[0].findobj(
        lambda text: isinstance(text, Text) and text.get_text()[:3] == words[:3]
    )
    place = headline.get_window_extent()
    assert place.x1 <= figure.bbox.x1 and place.y1 <= figure.bbox.y1
