"""What the repository promises as a whole: exact pins within the declared ranges, and tidy code."""

import re
import subprocess
from importlib.metadata import requires
from pathlib import Path

from jupyter_core import paths
from packaging.requirements import Requirement

from autograder.grading.referee import PATIENCE
from autograder.sandbox.bubblewrap import Limits
from autograder.sandbox.student_process import CELL

COURSE = Path(__file__).parents[1]


def test_tests_leave_nothing_in_the_users_home():
    folders = (paths.jupyter_config_dir(), paths.jupyter_data_dir(), paths.jupyter_runtime_dir())
    assert not [folder for folder in folders if Path(folder).is_relative_to(Path.home())]


def test_every_direct_dependency_is_pinned_within_its_range():
    lines = (COURSE / "requirements.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    declared = {
        requirement.name: requirement.specifier for requirement in map(Requirement, requires("fourranks"))
    }
    assert pins.keys() == declared.keys()
    assert [name for name, pin in pins.items() if pin not in declared[name]] == []


def test_the_code_has_no_lint_is_formatted_and_keeps_its_types():
    for command in (["ruff", "check"], ["ruff", "format", "--check"], ["mypy"]):
        checked = subprocess.run(command, cwd=COURSE, capture_output=True, text=True)
        assert checked.returncode == 0, checked.stdout


def test_the_figures_in_the_readme_are_those_of_the_benchmark():
    measured = (COURSE / "benchmarks" / "results.md").read_text().splitlines()
    section = (COURSE / "README.md").read_text().partition("## Figures")[2].splitlines()
    quoted = [line for line in section if line.startswith(("|", "- "))]
    assert len(quoted) > 5
    assert [line for line in quoted if line not in measured] == []


def test_the_files_that_the_readme_links_to_exist():
    links = re.findall(r"\]\(([^)#:]+)\)", (COURSE / "README.md").read_text())
    assert links
    assert [link for link in links if not (COURSE / link).exists()] == []


def test_every_heading_that_the_coverage_map_names_is_in_its_notebook():
    topic, named = "", []
    for line in (COURSE / "docs" / "coverage.md").read_text().splitlines():
        if heading := re.fullmatch(r"## (\d\d) .*", line):
            topic = heading[1]
        for number, kind, title in re.findall(r"(\d\d )?(lecture|exercise), \*([^*]+)\*", line):
            named.append((number.strip() or topic, kind, title))
    assert len(named) > 30
    headings = {
        (path.parent.name[:2], path.stem, line.lstrip("# ").strip())
        for path in COURSE.glob("source/*/*.py")
        for line in path.read_text().splitlines()
        if line.startswith("# #")
    }
    assert [one for one in named if one not in headings] == []


def test_every_line_of_the_coverage_map_says_where_the_subject_is_taught():
    lines = (COURSE / "docs" / "coverage.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("| ") and not line.endswith("| where |")]
    assert [row for row in rows if not re.search(r"(lecture|exercise), \*", row)] == []


def test_the_limits_that_the_documentation_names_are_those_that_hold():
    limits = Limits()
    rows = [
        f"| memory | {limits.memory_bytes >> 30} GiB, all processes together |",
        f"| processes, threads | {limits.processes}, {limits.threads} |",
        f"| open files of a process | {limits.open_files} |",
        f"| files | {limits.disk_bytes >> 20} MiB in each of the three folders |",
        f"| processor time | {limits.cpu_seconds:g} s |",
        f"| time for a cell | {CELL:g} s |",
        f"| time for all | {PATIENCE:g} s; questions that are not reached then have failed |",
    ]
    lines = (COURSE / "docs" / "security.md").read_text().splitlines()
    assert [row for row in rows if row not in lines] == []
