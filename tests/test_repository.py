"""Promises of the repository as a whole: exact pins within the declared ranges, and tidy code."""

import re
import subprocess
import sys
from importlib.metadata import metadata, requires
from pathlib import Path

import pytest
from jupyter_core import paths
from packaging.requirements import Requirement

from autograder.cli import main as autograder_main
from autograder.grading.referee import PATIENCE
from autograder.inside.limits import UNREAD_SHARE, Limits
from autograder.kit.judge import TIMES_TO_MEASURE
from autograder.kit.student import BUSIEST, Function
from autograder.sandbox.student_process import CELL
from fourranks.__main__ import main as fourranks_main

COURSE = Path(__file__).parents[1]
needs_types_of_ipython = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="IPython 8, the last one for Python 3.10, tells too few of its types"
)


def test_tests_leave_nothing_in_the_users_home():
    folders = (paths.jupyter_config_dir(), paths.jupyter_data_dir(), paths.jupyter_runtime_dir())
    assert not [folder for folder in folders if Path(folder).is_relative_to(Path.home())]


def test_every_direct_dependency_is_pinned_within_its_range():
    declared = {
        requirement.name: requirement.specifier
        for requirement in map(Requirement, requires("fourranks"))
        if requirement.name != "fourranks"  # one extra contains another
    }
    optional = [pin for pin in pins("tests/cluster/requirements.txt") if pin.name in declared]
    assert {pin.name for pin in [*pins(), *optional]} == declared.keys()
    assert [str(pin) for pin in [*pins(), *optional] if _version(pin) not in declared[pin.name]] == []


@pytest.mark.parametrize("python", ["3.10", "3.11", "3.14"])
def test_every_direct_dependency_has_one_pin_for_each_python(python):
    used = [pin.name for pin in pins() if not pin.marker or pin.marker.evaluate({"python_version": python})]
    assert sorted(used) == sorted({pin.name for pin in pins()})


def pins(file: str = "requirements.txt") -> list[Requirement]:
    """Read what a file of requirements names."""
    lines = (COURSE / file).read_text().splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def _version(pin: Requirement) -> str:
    (exactly,) = pin.specifier
    assert exactly.operator == "=="
    return exactly.version


@pytest.mark.timeout(900)  # without a cache mypy reads all of torch
@pytest.mark.parametrize(
    "command",
    [["ruff", "check"], ["ruff", "format", "--check"], pytest.param(["mypy"], marks=needs_types_of_ipython)],
    ids=" ".join,
)
def test_the_code_has_no_lint_is_formatted_and_keeps_its_types(command):
    checked = subprocess.run(command, cwd=COURSE, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.timeout(900)
@needs_types_of_ipython
def test_the_code_uses_nothing_that_the_oldest_python_lacks():
    oldest = metadata("fourranks")["Requires-Python"].removeprefix(">=")
    # What IPython says of its completions takes typing.NotRequired, of Python 3.11.
    leave_out = ["--disable-error-code=typeddict-item", "--disable-error-code=no-any-return"]
    command = ["mypy", "--python-version", oldest, "--no-warn-unused-ignores", *leave_out]
    checked = subprocess.run(command, cwd=COURSE, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize(
    ("main", "command"),
    [
        *((fourranks_main, command) for command in ("doctor", "plan", "run")),
        *(
            (autograder_main, command)
            for command in ("build", "check", "bundle", "collect", "grade", "report")
        ),
    ],
)
def test_the_help_of_a_command_says_what_each_option_is_for(main, command, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit):
        main([command, "--help"])
    listed = capsys.readouterr().out.partition("options:")[2]
    assert "--help" in listed
    assert re.findall(r"^  (--?\w\S*(?: \S+)*)\n(?!  {10})", listed, re.MULTILINE) == []


def test_the_figures_in_the_readme_are_those_of_the_benchmark():
    measured = (COURSE / "benchmarks" / "results.md").read_text().splitlines()
    section = (COURSE / "README.md").read_text().partition("## Figures")[2].splitlines()
    quoted = [line for line in section if line.startswith(("|", "- "))]
    assert len(quoted) > 5
    assert [line for line in quoted if line not in measured] == []


@pytest.mark.parametrize(
    "page", ["README.md", "index.md", *(f"docs/{path.name}" for path in COURSE.glob("docs/*.md"))]
)
def test_the_files_that_a_page_links_to_exist(page):
    path = COURSE / page
    folder = COURSE if page == "docs/students.md" else path.parent  # that one is the README of a bundle
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text())
    assert [link for link in links if not (folder / link).exists()] == []


def test_every_page_of_the_documentation_is_reached_from_the_start_page_or_the_readme_and_leads_back():
    links = {path: pages_linked_by(path) for path in COURSE.glob("docs/*.md")}
    start = {COURSE / "index.md", COURSE / "README.md"}
    reached: set[Path] = set()
    ahead = set(start)
    while ahead:
        reached |= ahead
        ahead = set().union(*map(pages_linked_by, ahead)) - reached
    assert sorted(links.keys() - reached) == []
    assert [page.name for page, linked in links.items() if not start & linked] == []


def pages_linked_by(path: Path) -> set[Path]:
    """Return the Markdown files that one links to."""
    folder = COURSE if path.name == "students.md" else path.parent  # as above
    links = re.findall(r"\]\(([^)#:]+\.md)(?:#[^)]*)?\)", path.read_text())
    return {(folder / link).resolve() for link in links}


@pytest.mark.skipif(not (COURSE / ".git").exists(), reason="needs the repository")
def test_git_ignores_the_files_of_a_class_that_the_instructors_page_names():
    page = (COURSE / "docs" / "instructors.md").read_text()
    named = sorted(set(re.findall(r"[\w./]+\.(?:zip|csv)\b", page)))
    assert len(named) > 6
    ignored = subprocess.run(["git", "check-ignore", *named], cwd=COURSE, capture_output=True, text=True)
    assert sorted(ignored.stdout.split()) == named


def test_the_glossary_is_in_order_and_its_terms_are_used_in_the_topics_that_it_names():
    rows = re.findall(
        r"^\| (\*\*.*?) \| .* \| ([\d, ]+) \|$", (COURSE / "docs" / "glossary.md").read_text(), re.M
    )
    terms = [(re.findall(r"\*\*(.+?)\*\*", row), topics.split(", ")) for row, topics in rows]
    assert len(terms) > 40
    first = [names[0].lower() for names, _ in terms]
    assert first == sorted(first)
    texts = {path.parent.name[:2]: path.read_text().lower() for path in COURSE.glob("source/*/lecture.py")}
    unused = [
        (name, topic)
        for names, topics in terms
        for topic in topics
        for name in names
        if name.lower() not in texts[topic]
    ]
    assert unused == []


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


def test_every_line_of_the_coverage_map_says_whether_its_subject_is_run_told_or_mentioned():
    lines = (COURSE / "docs" / "coverage.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("| ") and not line.endswith("| where |")]
    assert [row for row in rows if not re.search(r"\| [RTM] \| (\d\d )?(lecture|exercise), \*", row)] == []


def test_what_the_coverage_map_calls_run_has_a_cell_below_its_heading():
    topic, missing = "", []
    for line in (COURSE / "docs" / "coverage.md").read_text().splitlines():
        topic = line[3:5] if line.startswith("## ") else topic
        if found := re.search(r"\| R \| (lecture|exercise), \*([^*]+)\*", line):
            (source,) = COURSE.glob(f"source/{topic}_*/{found[1]}.py")
            section = re.split(rf"^# #+ {re.escape(found[2])}$", source.read_text(), flags=re.MULTILINE)[1]
            below = re.split(r"^# ##? ", section, flags=re.MULTILINE)[0]
            if not re.search(r"^# %%(?! \[markdown\])", below, re.MULTILINE):
                missing.append(line)
    assert missing == []


def test_the_limits_that_the_documentation_names_are_those_that_hold():
    limits, measuring = Limits(), Function.timeout * TIMES_TO_MEASURE
    rows = [
        f"| memory | {limits.memory_bytes >> 30} GiB, all processes together |",
        f"| processes, threads | {limits.processes}, {limits.threads} |",
        f"| open files of a process | {limits.open_files} |",
        f"| sent over connections and not received | a {UNREAD_SHARE}nd of the machine's memory |",
        f"| files | {limits.disk_bytes >> 20} MiB in each of the three folders |",
        f"| processor time | {limits.cpu_seconds:g} s |",
        f"| time for a cell | {CELL:g} s |",
        f"| time for one call on all ranks | {Function.timeout:g} s, or {measuring:g} s where its memory is "
        f"measured; up to {BUSIEST:g} times as long where more waits to run than there are processors |",
        f"| time for all | {PATIENCE:g} s; questions that are not reached then have failed |",
    ]
    lines = (COURSE / "docs" / "security.md").read_text().splitlines()
    assert [row for row in rows if row not in lines] == []
