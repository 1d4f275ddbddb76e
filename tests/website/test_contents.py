"""The site has every lecture, exercise and page of the documentation once, and no solution."""

import json
import runpy
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

from website.contents import START, contents, linked_files, toctrees, topics

COURSE = Path(__file__).parents[2]
LISTED = [page for pages in contents(COURSE).values() for page in pages]


@pytest.mark.parametrize("pattern", ["lectures/*/*.ipynb", "exercises/*/*.ipynb", "docs/*.md"])
def test_each_page_of_a_folder_is_listed_once(pattern):
    pages = [path.relative_to(COURSE).with_suffix("").as_posix() for path in COURSE.glob(pattern)]
    assert pages
    assert {page: Counter(LISTED)[page] for page in pages} == dict.fromkeys(pages, 1)


def test_what_is_listed_exists():
    assert [page for page in LISTED if not list(COURSE.glob(f"{page}.*"))] == []


def test_a_page_that_a_page_links_to_is_listed():
    linked = linked_files(COURSE, set(LISTED) - {"docs/students"}, {".md"})
    assert linked
    assert {file.removesuffix(".md") for file in linked} - {START, *LISTED} == set()


def test_files_that_texts_and_notebooks_link_to_are_found(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/a.md").write_text("[one](../one.py), [a place](b.md#place), [none](two.py)")
    (tmp_path / "docs/b.ipynb").write_text(json.dumps({"cells": [{"source": ["[three](../three.py) is\n"]}]}))
    for name in ("one.py", "two.py", "three.py"):
        (tmp_path / name).touch()
    assert linked_files(tmp_path, ["docs/a", "docs/b"], {".py"}) == ["one.py", "three.py"]


def test_no_solution_and_no_source_is_listed():
    assert [page for page in LISTED if page.startswith(("solutions/", "source/"))] == []


def test_an_exercise_follows_its_lecture(tmp_path):
    for notebook in ("exercises/00_a/exercise", "exercises/01_b/exercise", "lectures/00_a/lecture"):
        (tmp_path / notebook).parent.mkdir(parents=True)
        (tmp_path / f"{notebook}.ipynb").touch()
    assert topics(tmp_path) == ["lectures/00_a/lecture", "exercises/00_a/exercise", "exercises/01_b/exercise"]


def test_notebooks_to_play_have_a_heading_where_there_are_any(tmp_path):
    assert "To play" not in contents(tmp_path)
    (tmp_path / "play").mkdir()
    (tmp_path / "play/puzzles.ipynb").touch()
    assert contents(tmp_path)["To play"] == ["play/puzzles"]


def test_the_sidebar_calls_an_exercise_by_its_number():
    assert "Exercise 02 <exercises/02_collectives/exercise>" in toctrees(COURSE).splitlines()


def test_the_configuration_names_extensions_and_files_that_exist():
    settings = runpy.run_path(str(COURSE / "website" / "conf.py"))
    ours = [name for name in settings["extensions"] if name.startswith("website.")]
    assert ours
    assert all(map(find_spec, ours))
    files = {path.name for path in COURSE.glob("website/static/*")}
    named = [*settings["html_css_files"], *settings["html_js_files"], Path(settings["html_favicon"]).name]
    assert files.issuperset(named)
