"""The text of exercises and lectures keeps its promises: ratings, hours, hints in steps, links."""

import ast
import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

COURSE = Path(__file__).parents[1]
EXERCISES = {path.parent.name: path.read_text() for path in sorted(COURSE.glob("source/*/exercise.py"))}
SOURCES = {
    f"{path.parent.name}/{path.stem}": path.read_text() for path in sorted(COURSE.glob("source/[0-9]*/*.py"))
}
PAGES = ("notation", "cheat_sheet", "glossary", "concept_map")
DOTS = r"(●{1,5}○{0,4})"
RATING = re.compile(
    rf"^# \*\*Difficulty\*\* {DOTS} · \*\*Importance\*\* {DOTS} · \*\*about (\d+) minutes\*\*( · optional)?$",
    re.M,
)
HEADING = re.compile(r"^# #{2,3} (\d+[a-z]?)\. .*$", re.M)
STAGES = ["Hint 1: the idea", "Hint 2: the skeleton", "Hint 3: a part of the solution"]

each_exercise = pytest.mark.parametrize("topic", EXERCISES)
each_source = pytest.mark.parametrize("name", SOURCES)


class Part(NamedTuple):
    """A part of an exercise: from its heading to the next one."""

    number: str
    text: str

    @property
    def is_work(self) -> bool:
        """Whether there is something to do in it: an introduction to smaller parts has no cell of code."""
        return bool(re.search(r"^# %%(?! \[markdown\]$)", self.text, re.M))


def parts(text: str) -> Iterator[Part]:
    headings = list(HEADING.finditer(text))
    ends = [heading.start() for heading in headings[1:]] + [len(text)]
    for heading, end in zip(headings, ends, strict=True):
        yield Part(heading[1], text[heading.end() : end])


def minutes(text: str) -> int:
    return sum(int(rating[3]) for rating in RATING.finditer(text))


def links(text: str) -> list[str]:
    """The files that Markdown in a notebook links to."""
    cells = re.split(r"^# %%", text, flags=re.M)
    prose = "".join(cell for cell in cells if cell.startswith(" [markdown]"))
    return [link for link in re.findall(r"\]\(([^)#\s]+)", prose) if "://" not in link]


@each_exercise
def test_every_part_says_once_how_difficult_how_important_and_how_long_it_is(topic):
    found = {part.number: RATING.findall(part.text) for part in parts(EXERCISES[topic]) if part.is_work}
    assert found
    assert [number for number, ratings in found.items() if len(ratings) != 1] == []
    dots = [dots for ratings in found.values() for dots in ratings[0][:2]]
    assert [each for each in dots if len(each) != 5] == []


@each_exercise
def test_the_hours_of_an_exercise_are_those_of_its_parts(topic):
    text = EXERCISES[topic]
    if hours := re.search(r"^# (\d+) to (\d+) hours", text, re.M):
        assert 60 * int(hours[1]) <= minutes(text) <= 60 * int(hours[2])
    else:
        assert f"# {minutes(text)} minutes" in text


@each_exercise
def test_the_points_of_an_exercise_add_up_to_100(topic):
    assert sum(map(int, re.findall(r'"points": (\d+)', EXERCISES[topic]))) == 100


@each_exercise
def test_a_hard_part_has_hints_in_steps_which_students_open_one_by_one(topic):
    for part in parts(EXERCISES[topic]):
        rating = RATING.search(part.text)
        if topic >= "03" and rating and rating[1].count("●") >= 4:
            hints = re.findall(r"<details><summary>(.*?)</summary>", part.text)
            assert hints[: len(STAGES)] == STAGES, f"part {part.number}"
            assert part.text.count("</details>") == len(hints)


@each_exercise
def test_no_hint_has_an_empty_line_which_would_end_its_html(topic):
    hints = re.findall(r"<details>.*?</details>", EXERCISES[topic], re.S)
    assert hints
    assert [hint for hint in hints if re.search(r"\n# *\n", hint)] == []


def test_parts_of_solutions_in_hints_are_python_that_a_student_can_paste():
    """Rewrapping a text must not join their lines."""
    whole = re.compile(rf"<summary>{STAGES[-1]}</summary>.*?</details>", re.S)
    found = {
        code: name
        for name, text in EXERCISES.items()
        for hint in whole.findall(re.sub("^# ", "", text, flags=re.M))
        for code in re.findall("<pre>(.*?)</pre>", hint, re.S)
    }
    assert len(found) > 8
    for code, name in found.items():
        ast.parse(html.unescape(code).replace("…", "..."), name)


def test_what_is_optional_says_so_in_its_heading_and_in_its_rating():
    for topic, text in EXERCISES.items():
        told = {part.number for part in parts(text) if " · optional" in part.text}
        stretch = re.findall(r"^# ## (\d+)\. Optional", text, re.M)
        assert told == set(stretch), topic


@each_source
def test_lectures_and_exercises_link_to_each_other_and_to_the_pages(name):
    topic, kind = name.split("/")
    other = {"lecture": "exercise", "exercise": "lecture"}[kind]
    wanted = [f"../../docs/{page}.md" for page in PAGES]
    if f"{topic}/{other}" in SOURCES:  # some topics are a lecture alone
        wanted.append(f"../../{other}s/{topic}/{other}.ipynb")
    assert [link for link in wanted if link not in links(SOURCES[name])] == []


@each_source
def test_the_files_that_a_notebook_links_to_exist(name):
    topic, kind = name.split("/")
    folder = COURSE / f"{kind}s" / topic
    assert [link for link in links(SOURCES[name]) if not (folder / link).exists()] == []
