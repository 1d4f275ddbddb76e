"""`import fourranks` is quick: its names, and its own modules, are imported at their first use."""

import subprocess
import sys

import pytest

import fourranks


@pytest.mark.parametrize("name", fourranks.__all__)
def test_every_public_name_is_there(name):
    assert getattr(fourranks, name) is not None
    assert name in dir(fourranks)


def test_modules_of_the_package_need_no_import_of_their_own():
    assert in_a_fresh_python("import fourranks; print(fourranks.bench.__name__)") == "fourranks.bench"


def test_nothing_heavy_is_imported_with_it():
    program = "import sys, fourranks; print(*{'torch', 'IPython', 'fourranks.group'} & {*sys.modules})"
    assert in_a_fresh_python(program) == ""


@pytest.mark.parametrize("name", ["strat", "_private"])
def test_a_name_that_it_does_not_have_is_an_attribute_error(name):
    with pytest.raises(AttributeError, match=f"module 'fourranks' has no attribute '{name}'"):
        getattr(fourranks, name)
    with pytest.raises(ImportError, match=f"cannot import name '{name}' from 'fourranks'"):
        exec(f"from fourranks import {name}")


def test_a_library_that_one_of_its_modules_lacks_is_named(tmp_path, monkeypatch):
    (tmp_path / "lacks_a_library.py").write_text("import no_such_library")
    monkeypatch.setattr(fourranks, "__path__", [*fourranks.__path__, str(tmp_path)])
    with pytest.raises(ModuleNotFoundError, match="No module named 'no_such_library'"):
        _ = fourranks.lacks_a_library


def in_a_fresh_python(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.strip()
