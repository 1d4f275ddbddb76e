"""The notebook that is graded, whatever a student did to the one that was handed out."""

import base64
import io
import json
import os
import struct
import zlib
from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from PIL import Image

from autograder.grading.submission import (
    MAX_BYTES,
    MAX_FILES,
    SubmissionError,
    read,
    release,
    require_own,
    restored,
)
from tests.classroom import folders

TEST = "check.f(f)\n### BEGIN HIDDEN TESTS\ncheck.f(f, seed=1)\n### END HIDDEN TESTS"


def named(name, source, *, grade=False, solution=False, locked=False, points=None, kind=new_code_cell):
    fields = {"grade_id": name, "grade": grade, "solution": solution, "locked": locked}
    fields |= {} if points is None else {"points": points}
    return kind(source, metadata={"nbgrader": fields}, id=name)


def released():
    return new_notebook(
        cells=[
            new_markdown_cell("# A topic"),
            named("setup", "import torch", locked=True),
            named("f", "raise NotImplementedError", solution=True),
            named("f_check", TEST, grade=True, locked=True, points=5),
            named("why", "Your answer.", grade=True, solution=True, points=3, kind=new_markdown_cell),
        ]
    )


def handed_in(**answers):
    notebook = released()
    for cell in notebook.cells:
        cell.source = answers.get(cell.id, cell.source.split("\n### BEGIN")[0])
    return notebook


def names(notebook):
    return [cell.metadata.get("nbgrader", {}).get("grade_id") for cell in notebook.cells]


def source_of(notebook, name):
    return notebook.cells[names(notebook).index(name)].source


def test_an_honest_notebook_needs_no_repair_and_gets_the_hidden_tests():
    notebook, repairs = restored(handed_in(f="def f(): pass", why="So."), released())
    assert repairs == []
    assert names(notebook) == [None, "setup", "f", "f_check", "why"]
    assert source_of(notebook, "f") == "def f(): pass" and source_of(notebook, "why") == "So."
    assert source_of(notebook, "f_check") == TEST


def test_a_locked_cell_is_the_instructors_whatever_it_was_made():
    notebook, repairs = restored(handed_in(f_check="pass", setup="import os"), released())
    assert source_of(notebook, "f_check") == TEST and source_of(notebook, "setup") == "import torch"
    assert [line.split(":")[0] for line in repairs] == ["setup", "f_check"]


def test_lines_that_end_as_on_windows_change_no_cell(tmp_path):
    submitted = released()
    submitted.cells[1].source, long = "import torch\r\nimport os", released()
    long.cells[1].source = "import torch\nimport os"
    notebook, repairs = restored(read(saved(tmp_path, submitted)), long)
    assert repairs == [] and "\r" not in "".join(cell.source for cell in notebook.cells)


def test_a_cell_that_was_deleted_comes_back_to_its_place():
    submitted = handed_in(f="def f(): pass")
    del submitted.cells[3], submitted.cells[1]
    notebook, repairs = restored(submitted, released())
    assert [name for name in names(notebook) if name] == ["setup", "f", "f_check", "why"]
    assert len(repairs) == 2 and all("missing" in line for line in repairs)


def test_an_answer_that_was_deleted_is_not_the_instructors():
    solved = released()
    solved.cells[2].source = "### BEGIN SOLUTION\ndef f(): return 1\n### END SOLUTION"
    solved.cells[4].source = "### BEGIN SOLUTION\nBecause it is 1.\n### END SOLUTION"
    notebook, repairs = restored(new_notebook(), solved)
    assert source_of(notebook, "f") == source_of(notebook, "why") == ""
    assert source_of(notebook, "f_check") == TEST
    assert [line for line in repairs if "without an answer" in line] == [repairs[1], repairs[3]]


def test_of_a_cell_that_was_copied_the_last_one_counts_and_all_of_them_run():
    submitted = handed_in(f="def f(): return 1")
    submitted.cells.append(named("f", "def f(): return 2", solution=True))
    submitted.cells.append(named("f_check", "pass", grade=True, locked=True, points=500))
    notebook, repairs = restored(submitted, released())
    assert source_of(notebook, "f") == "def f(): return 2"
    assert [cell.source for cell in notebook.cells].index("def f(): return 1") < names(notebook).index("f")
    assert names(notebook).count("f") == names(notebook).count("f_check") == 1
    assert names(notebook).index("f_check") == names(notebook).index("f") + 1
    assert [line.split(":")[0] for line in repairs] == ["f", "f_check"]


@pytest.mark.parametrize(
    "fields", [None, "no dict", {}, {"grade_id": 7}, {"grade_id": "another", "points": 100, "grade": True}]
)
def test_fields_that_were_changed_do_not_matter(fields):
    submitted = handed_in(f="def f(): pass")
    for cell in submitted.cells[1:]:
        cell.metadata = {} if fields is None else {"nbgrader": fields}
    notebook, repairs = restored(submitted, released())
    assert repairs == []
    assert [cell.metadata for cell in notebook.cells] == [cell.metadata for cell in released().cells]


@pytest.mark.parametrize("first", ["", "import math\n\n\n"])
def test_cells_that_lost_their_names_are_known_by_their_text(first):
    submitted = handed_in(f=f"{first}raise NotImplementedError\n1", why="Your answer.\n\nSo.")
    for number, cell in enumerate(submitted.cells):
        cell.id, cell.metadata = f"random{number}", {}
    notebook, _ = restored(submitted, released())
    assert [name for name in names(notebook) if name] == ["setup", "f", "f_check", "why"]
    answer = [cell.source for cell in notebook.cells].index(submitted.cells[2].source)
    assert names(notebook).index("setup") < answer < names(notebook).index("f_check")
    assert source_of(notebook, "why") == "Your answer.\n\nSo."


def test_a_cell_of_ones_own_that_begins_as_an_answer_is_none_while_the_answer_has_its_name():
    submitted = handed_in(f="def f(): return 1")
    submitted.cells.append(new_code_cell("raise NotImplementedError\nnotes"))
    notebook, repairs = restored(submitted, released())
    assert source_of(notebook, "f") == "def f(): return 1" and repairs == []


def test_a_cell_of_ones_own_is_worth_nothing():
    submitted = handed_in()
    submitted.cells.insert(2, named("free_points", "1", grade=True, locked=True, points=100))
    notebook, _ = restored(submitted, released())
    assert "free_points" not in names(notebook)
    assert "1" in [cell.source for cell in notebook.cells]


def test_a_test_follows_its_answer_wherever_that_was_moved():
    submitted = handed_in(f="def f(): pass")
    submitted.cells.append(submitted.cells.pop(2))
    notebook, _ = restored(submitted, released())
    assert [name for name in names(notebook) if name] == ["setup", "why", "f", "f_check"]


@pytest.mark.parametrize("keep", [True, False], ids=["copied", "moved"])
def test_the_imports_run_before_the_answers_wherever_they_were(keep):
    submitted = handed_in(f="def f(x: torch.Tensor): pass")
    submitted.cells.append(submitted.cells[1] if keep else submitted.cells.pop(1))
    notebook, _ = restored(submitted, released())
    assert [name for name in names(notebook) if name] == ["setup", "f", "f_check", "why"]


def test_the_imports_run_before_cells_of_ones_own():
    submitted = handed_in(f="def f(): pass")
    submitted.cells.insert(0, new_code_cell("torch.manual_seed(0)"))
    notebook, repairs = restored(submitted, released())
    assert repairs == []
    assert names(notebook)[:2] == ["setup", None]


def test_a_test_stays_behind_cells_that_are_in_no_release():
    release = new_notebook(cells=[named("f_check", TEST, grade=True, locked=True, points=5)])
    submitted = new_notebook(cells=[new_code_cell("def f(): pass"), *release.cells])
    notebook, _ = restored(submitted, release)
    assert names(notebook) == [None, "f_check"]


def test_what_a_student_puts_between_an_answer_and_its_test_is_run_between_them():
    submitted = handed_in(f="def f(): return helper()")
    submitted.cells.insert(3, new_code_cell("def helper(): pass"))
    notebook, repairs = restored(submitted, released())
    assert repairs == []
    assert names(notebook) == [None, "setup", "f", None, "f_check", "why"]
    assert notebook.cells[3].source == "def helper(): pass"


def test_an_answer_that_was_made_text_is_code_again():
    submitted = handed_in()
    submitted.cells[2] = named("f", "def f(): pass", solution=True, kind=new_markdown_cell)
    notebook, repairs = restored(submitted, released())
    assert notebook.cells[2].cell_type == "code" and repairs == [
        "f: the cell was made a markdown cell; it is a code cell again"
    ]


# --- what is read
# ----------------------------------------------------------------------------------


def saved(folder, content):
    path = folder / "exercise.ipynb"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_notebook_is_read_by_its_text_and_names_only(tmp_path):
    submitted = handed_in(f="def f(): pass")
    submitted.cells[2].outputs = [{"output_type": "stream", "name": "stdout", "text": "passed"}]
    cells = read(saved(tmp_path, submitted)).cells
    assert [cell.source for cell in cells] == [cell.source for cell in submitted.cells]
    assert [cell.metadata.nbgrader.grade_id or None for cell in cells] == names(submitted)
    assert not any(cell.get("outputs") for cell in cells)


def test_what_jupyter_tolerates_is_read(tmp_path):
    odd = [
        {"cell_type": "code", "source": ["a\n", "b"], "metadata": {"nbgrader": "no dict"}},
        {"cell_type": "graph", "source": "what is this"},
        {"cell_type": "code", "source": "half a pair: \ud800"},
    ]
    path = saved(tmp_path, {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": odd})
    notebook, _ = restored(read(path), released())
    assert {"a\nb", "what is this", "half a pair: ?"} <= {cell.source for cell in notebook.cells}


def test_a_notebook_of_an_older_format_is_read(tmp_path):
    old = {"cell_type": "code", "input": "x = 1", "language": "python", "outputs": [], "collapsed": False}
    content = {"nbformat": 3, "nbformat_minor": 0, "metadata": {}, "worksheets": [{"cells": [old]}]}
    assert [cell.source for cell in read(saved(tmp_path, content)).cells] == ["x = 1"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("See my other folder.", "not a notebook"),
        ("[" * 100_000, "not a notebook"),
        ([], "not a notebook"),
        ({"nbformat": 4}, "not a notebook"),
        ({"nbformat": 3}, "not a notebook"),
        ({"nbformat": 3, "worksheets": [{"cells": [{"cell_type": "odd"}]}]}, "not a notebook"),
        ({"nbformat": 4, "cells": 3}, "not a notebook"),
        ({"nbformat": 4, "cells": [{"cell_type": "code"}]}, "not a notebook"),
        ({"nbformat": 4, "cells": [{"cell_type": "code", "source": ""}] * 5_001}, "more than 5,000 cells"),
    ],
)
def test_what_is_no_notebook_is_refused_with_the_reason(content, said, tmp_path):
    with pytest.raises(SubmissionError, match=said):
        read(saved(tmp_path, content))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "it is empty"),
        (b'{"cells": [', "it is not JSON at line 1, column 12"),
        ("{'é': 1}".encode("latin-1"), "its text is not UTF-8. Save it as UTF-8"),
        (b'{\n<<<<<<< HEAD\n"a": 1\n=======\n', "git has left conflict markers .* Resolve the conflict"),
        (b'{"nbformat": 4, "cells": null}', "it has no list of cells"),
        (b'{"nbformat": 4, "cells": [null]}', "its cell 1 has no text as source"),
        (b'{"nbformat": 4, "cells": [{"source": ["a", 5]}]}', "its cell 1 has no text as source"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_in_words_of_notebooks_and_what_to_do(content, said, tmp_path):
    path = tmp_path / "exercise.ipynb"
    path.write_bytes(content)
    with pytest.raises(SubmissionError, match=said) as caught:
        read(path)
    assert "Error" not in str(caught.value)


def test_a_cell_without_metadata_is_read_by_its_text(tmp_path):
    content = {"nbformat": 4, "metadata": None, "cells": [{"source": "x = 1", "metadata": None}]}
    assert [cell.source for cell in read(saved(tmp_path, content)).cells] == ["x = 1"]


def test_a_file_larger_than_any_notebook_is_not_read(tmp_path):
    path = saved(tmp_path, "")
    with path.open("r+b") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(SubmissionError, match="larger than 64 MiB"):
        require_own(path)


def test_files_beside_it_that_would_fill_the_disk_are_not_copied(tmp_path):
    path = saved(tmp_path, handed_in())
    (tmp_path / "data").mkdir()
    with (tmp_path / "data" / "without a byte on disk").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(SubmissionError, match="bytes in all its files, more than 100,000,000"):
        require_own(path)


def test_links_are_not_followed(tmp_path):
    submitted = tmp_path / "submitted"
    submitted.mkdir()
    path = saved(submitted, handed_in())
    (submitted / "notes.txt").symlink_to(tmp_path / "gradebook.db")
    with pytest.raises(SubmissionError, match=r"notes\.txt"):
        require_own(path)


def test_a_link_in_a_folder_beside_it_is_one_too_and_is_named_in_visible_letters(tmp_path):
    path = saved(tmp_path, handed_in())
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "\x1b[2Jnotes").symlink_to(tmp_path)
    with pytest.raises(SubmissionError, match=r"links.*: \\x1b\[2Jnotes"):
        require_own(path)


def test_a_folder_that_is_a_link_is_not_followed(tmp_path):
    saved(tmp_path, handed_in())
    folder = tmp_path / "linked"
    folder.symlink_to(tmp_path)
    with pytest.raises(SubmissionError, match="linked is a link"):
        require_own(folder / "exercise.ipynb")


def test_a_students_folder_that_is_a_link_is_not_followed(tmp_path):
    (tmp_path / "ada" / "ps1").mkdir(parents=True)
    saved(tmp_path / "ada" / "ps1", handed_in())
    (tmp_path / "eve").symlink_to("ada")
    with pytest.raises(SubmissionError, match="eve is a link"):
        require_own(tmp_path / "eve" / "ps1" / "exercise.ipynb")


def test_a_folder_that_is_named_like_a_page_is_to_be_renamed(tmp_path):
    path = saved(tmp_path, handed_in())
    (tmp_path / "exercise.html").mkdir()
    with pytest.raises(SubmissionError, match=r"a folder exercise\.html.*rename it"):
        require_own(path)


@pytest.mark.parametrize("name", ["timestamp.txt", "data/\x1b[2Jpipe"])
def test_a_pipe_beside_it_keeps_nobody_waiting(tmp_path, name):
    path = saved(tmp_path, handed_in())
    (tmp_path / "data").mkdir()
    os.mkfifo(tmp_path / name)
    with pytest.raises(SubmissionError, match=r"pipes.*: (timestamp\.txt|\\x1b\[2Jpipe)"):
        require_own(path)


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch])
def test_files_and_folders_without_end_are_not_looked_through(make, tmp_path):
    path = saved(tmp_path, handed_in())
    for number in range(MAX_FILES):
        make(tmp_path / f"{number}")
    with pytest.raises(SubmissionError, match="more than 10,000 files and folders"):
        require_own(path)


@pytest.mark.parametrize(
    ("name", "depth", "said"), [("d", 990, "more than 20 folders"), ("d" * 240, 18, "too long")]
)
def test_folders_in_one_another_without_end_are_not_looked_through(name, depth, said, tmp_path):
    path = saved(tmp_path, handed_in())
    with folders(tmp_path, name, depth), pytest.raises(SubmissionError, match=said):
        require_own(path)


@pytest.mark.parametrize(
    ("kind", "cells", "said"),
    [
        ("code", ["x" * 100_001], "100,001 characters in a cell of code"),
        ("code", ["x" * 90_000] * 6, "540,000 characters in code"),
        ("markdown", ["x" * 20_001], "20,001 characters in a cell of text"),
        ("raw", ["x" * 20_000] * 11, "220,000 characters in text"),
    ],
)
def test_more_text_than_anybody_reads_is_refused(kind, cells, said, tmp_path):
    content = {"nbformat": 4, "cells": [{"cell_type": kind, "source": source} for source in cells]}
    with pytest.raises(SubmissionError, match=said):
        read(saved(tmp_path, content))


def test_of_a_name_there_is_no_more_than_a_name(tmp_path):
    cell = {
        "cell_type": "code",
        "source": "",
        "id": ["x"],
        "metadata": {"nbgrader": {"grade_id": "x" * 10**6}},
    }
    (read_cell,) = read(saved(tmp_path, {"nbformat": 4, "cells": [cell]})).cells
    assert read_cell.id == "" and read_cell.metadata.nbgrader.grade_id == "x" * 100


def test_markers_without_an_end_are_looked_at_once():
    submitted = handed_in(f="def f(): pass")
    submitted.cells[3].source = "### BEGIN HIDDEN TESTS " * 200_000
    _, repairs = restored(submitted, released())
    assert repairs == ["f_check: the cell is locked and was changed; the instructor's is used"]


def test_what_was_not_made_yet_is_named_with_the_command_that_makes_it(tmp_path):
    with pytest.raises(SubmissionError, match="make build"):
        release(tmp_path, "02_collectives", "exercise")


# --- pictures ---


def content_of(picture, kind="PNG", place=0, more=b""):
    """A picture's file as notebooks have it, with more bytes at a place in it."""
    file = io.BytesIO()
    picture.save(file, kind)
    return base64.b64encode(file.getvalue()[:place] + more + file.getvalue()[place:]).decode()


PNG = content_of(Image.new("1", (1, 1)))


def pasted(text, **attachments):
    """A submission whose answer in words came with these attachments."""
    submitted = handed_in(why=text)
    submitted.cells[-1].attachments = attachments
    return submitted


def graded(submitted, folder):
    """The answer in words as it is graded, with its pictures."""
    path = folder / "exercise.ipynb"
    path.write_text(json.dumps(submitted))
    notebook, _ = restored(read(path), released())
    why = notebook.cells[names(notebook).index("why")]
    return why.source, why.get("attachments", {})


def test_a_picture_that_was_pasted_in_jupyterlab_stays(tmp_path):
    picture = {"image.png": {"image/png": PNG}}
    text = "So:\n\n![image.png](attachment:image.png)"
    assert graded(pasted(text, **picture), tmp_path) == (text, picture)


def test_one_that_colab_wrote_into_the_text_counts_as_a_picture_and_not_as_text(tmp_path):
    content = content_of(Image.effect_noise((300, 300), 99))  # longer than a text may be
    text, pictures = graded(pasted(f"![it](data:image/png;base64,{content})"), tmp_path)
    assert (text, pictures) == ("![it](attachment:written-0)", {"written-0": {"image/png": content}})


@pytest.mark.parametrize(
    "attachments",
    [
        {},
        {"image.png": {"image/svg+xml": "<svg/>"}},
        {"image.png": {"image/png": "<script>"}},
        {"image.png": 7},
    ],
)
def test_an_attachment_that_is_no_picture_is_left_out(attachments, tmp_path):
    assert graded(pasted("![it](attachment:image.png)", **attachments), tmp_path)[1] == {}


def test_a_picture_whose_name_is_written_as_addresses_are_stays(tmp_path):
    picture = {"my image.png": {"image/png": PNG}}
    assert graded(pasted("![it](attachment:my%20image.png)", **picture), tmp_path)[1] == picture


@pytest.mark.parametrize("name", ["other.png", "image.png" * 1_000_000, "\ud800.png"], ids=len)
def test_a_picture_that_the_text_does_not_show_is_left_out(name, tmp_path):
    others = {name: {"image/png": PNG}}
    assert graded(pasted(f"![it](attachment:image.png) {name[:1]}", **others), tmp_path)[1] == {}


def test_pictures_larger_than_any_that_people_paste_are_refused(tmp_path):
    with pytest.raises(SubmissionError, match="characters in pictures, more than"):
        picture = {"a.png": {"image/png": content_of(Image.effect_noise((3000, 3000), 99))}}
        graded(pasted("![a](attachment:a.png)", **picture), tmp_path)


def test_a_small_file_that_is_a_picture_of_hundreds_of_megapixels_is_refused(tmp_path):
    content = content_of(Image.new("1", (18_000, 18_000)))  # 40 kB, of which a browser makes a gigabyte
    picture = {"a.png": {"image/png": content}}
    with pytest.raises(SubmissionError, match="more pixels than any screenshot: make it smaller"):
        graded(pasted("![it](attachment:a.png)", **picture), tmp_path)


def a_long_text():
    """A part of a PNG that readers with a limit stumble over, and that browsers skip."""
    text = b"zTXta\0\0" + zlib.compress(bytes(2 << 20))
    return struct.pack(">I", len(text) - 4) + text + struct.pack(">I", zlib.crc32(text))


@pytest.mark.parametrize(("kind", "place", "more"), [("PNG", 33, a_long_text()), ("JPEG", 2, b"xx")])
def test_a_picture_whose_size_cannot_be_told_is_left_out(kind, place, more, tmp_path):
    content = content_of(Image.new("L", (30, 30)), kind, place, more)
    picture = {"a": {f"image/{kind.lower()}": content}}
    text = f"![it](attachment:a) ![it](data:image/{kind.lower()};base64,{content})"
    assert graded(pasted(text, **picture), tmp_path) == (
        "![it](attachment:a) ![it](attachment:written-1)",
        {},
    )


def test_pictures_in_cells_of_ones_own_stay_too(tmp_path):
    submitted = handed_in()
    own = new_markdown_cell("![a](attachment:a.png)", attachments={"a.png": {"image/png": PNG}})
    (tmp_path / "exercise.ipynb").write_text(json.dumps(submitted | {"cells": [*submitted.cells, own]}))
    notebook, _ = restored(read(tmp_path / "exercise.ipynb"), released())
    assert notebook.cells[-1].attachments == own.attachments
