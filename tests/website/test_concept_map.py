"""The concept map is read whole, and drawn with words for readers who cannot see it."""

import re
from pathlib import Path

import pytest

from website.concept_map import Arrow, ConceptMapError, picture, read

PAGE = Path(__file__).parents[2] / "docs" / "concept_map.md"
SMALL = """flowchart TD
  subgraph one [Building blocks]
    a["00 Hello<br/>ranks"]
  end
  subgraph two [Strategies]
    b["04 Data parallelism<br/>the batch"]
  end
  a -- "all-reduce" --> b
"""


def test_groups_boxes_and_arrows_are_read():
    concepts = read(SMALL)
    assert concepts.groups == {
        "Building blocks": {"a": "00 Hello\nranks"},
        "Strategies": {"b": "04 Data parallelism\nthe batch"},
    }
    assert concepts.arrows == [Arrow("a", "b", "all-reduce")]


def test_the_picture_says_in_words_what_is_needed_for_what():
    assert 'alt="Concept map: 00 Hello for 04 Data parallelism (all-reduce)"' in picture(SMALL)


def test_the_map_of_the_course_can_be_drawn_and_has_every_topic():
    text = re.search(r"```mermaid\n(.*?)```", PAGE.read_text(), re.DOTALL)[1]
    titles = [title.partition(" ")[0] for title in read(text).titles.values()]
    assert titles == sorted(path.name[:2] for path in PAGE.parents[1].glob("source/[0-9][0-9]_*"))
    assert picture(text)


@pytest.mark.parametrize("line", ["a -.-> b", 'c("round")', "classDef x fill:#fff"])
def test_a_line_that_cannot_be_drawn_is_named(line):
    with pytest.raises(ConceptMapError, match=re.escape(repr(line))):
        read(SMALL + line)


def test_an_arrow_to_a_box_that_is_not_there_is_named():
    with pytest.raises(ConceptMapError, match="gone"):
        read(SMALL + "a --> gone")
