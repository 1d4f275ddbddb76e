"""A new topic is one folder: its checks are found, and fail code for the mistakes that they know."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

COURSE = Path(__file__).parents[2]
TOPIC = {
    "__init__.py": """
        from autograder.topics.doubling.checks import double
    """,
    "mistakes.py": """
        from autograder.kit.mistakes import mistake

        SQUARED = mistake('''a square
            Twice a number is the number added to itself.''')
    """,
    "checks.py": """
        from autograder.kit.case import Trial
        from autograder.kit.check import check
        from autograder.kit.problem import Problem
        from autograder.topics.doubling import mistakes


        @check()
        def double(function, world_sizes=(1, 2), seed=0):
            yield from map(_trial, world_sizes)


        def _trial(world_size):
            def verify(outcomes):
                values = [outcome.value for outcome in outcomes]
                return None if values == [6] * world_size else Problem(mistakes.SQUARED, "6", str(values))

            return Trial(title=f"{world_size} ranks", inputs=[(3,)] * world_size, verify=verify)
    """,
}


@pytest.fixture
def course(tmp_path):
    """The course's packages, with one more topic in them."""
    for package in ("autograder", "fourranks"):
        shutil.copytree(COURSE / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    folder = tmp_path / "autograder" / "topics" / "doubling"
    folder.mkdir()
    for name, text in TOPIC.items():
        lines = text.strip("\n").splitlines()
        (folder / name).write_text("\n".join(line[8:] for line in lines))
    return tmp_path


@pytest.mark.parametrize(
    ("function", "told"),
    [
        ("number + number", "double: passed, 2 cases"),
        ("number ** 2", "double: a square (2 of 2 cases failed)"),
    ],
)
def test_a_new_topic_is_one_folder(course, function, told):
    program = f"from autograder import check; check.double(lambda number: {function})"
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=course,
        env={"PYTHONPATH": str(course)},
        capture_output=True,
        text=True,
    )
    assert told in ended.stdout + ended.stderr
