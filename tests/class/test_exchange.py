"""Everybody in a class can write in nbgrader's exchange: each student's own work is collected."""

import os
import shutil
from datetime import datetime
from pathlib import Path

import pytest
from nbgrader.auth import Authenticator
from nbgrader.coursedir import CourseDirectory
from nbgrader.exchange import ExchangeError
from traitlets.config import PyFileConfigLoader

from autograder.grading.exchange import CarefulCollect
from tests.classroom import COURSE, make_folders, run

TOPIC = "00_hello"
ADA, EVE, HUB = 64_001, 64_002, 64_003  # numbers of users

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give files to other users")


@pytest.fixture
def course(tmp_path):
    shutil.copy(COURSE / "nbgrader_config.py", tmp_path)
    (tmp_path / "exchange/fourranks/inbound").mkdir(parents=True)
    return tmp_path


@pytest.fixture
def enter(course):
    """Hands something in, as `nbgrader submit` does; gives the entry."""

    def entered(student: str, answer: str, hour: int = 10, topic: str = TOPIC, owner: int = -1) -> Path:
        time = f"2026-11-26 {hour}:00:00 UTC"
        entry = course / f"exchange/fourranks/inbound/{student}+{topic}+{time}+random"
        entry.mkdir()
        (entry / "exercise.ipynb").write_text(answer)
        (entry / "timestamp.txt").write_text(time)
        (entry / "submission_secret.txt").write_text("secret")
        os.chown(entry, owner, -1)
        return entry

    return entered


@pytest.fixture
def collect(course):
    """Collects with nbgrader's command; gives what it said, and checks its exit status."""

    def collected(refused: bool) -> str:
        done = run(f"nbgrader collect --update {TOPIC}", course, "")
        assert done.returncode == (1 if refused else 0), done.stdout
        return done.stdout

    return collected


def submitted(course: Path) -> dict[str, str]:
    return {path.parts[-3]: path.read_text() for path in course.glob(f"submitted/*/{TOPIC}/exercise.ipynb")}


def test_the_latest_entry_of_each_student_is_collected(course, enter, collect):
    for student, hour in (("ada", 10), ("ada", 12), ("ada", 11), ("bob+1@uni.example", 10)):
        enter(student, f"of {hour}", hour)
    collect(refused=False)
    assert submitted(course) == {"ada": "of 12", "bob+1@uni.example": "of 10"}


def linked_file(entry, course):
    (entry / "exercise.ipynb").unlink()
    (entry / "exercise.ipynb").symlink_to(course / "submitted/ada" / TOPIC / "exercise.ipynb")


def linked_folder(entry, course):
    (entry / "data").symlink_to(course)


def linked_to_itself(entry, course):
    (entry / "loop").symlink_to(".")


def linked_as_a_whole(entry, course):
    shutil.rmtree(entry)
    entry.symlink_to(course / "submitted/ada" / TOPIC)


def pipe(entry, course):
    os.mkfifo(entry / "pipe")


def deep(entry, course):
    (entry / "/".join("d" * 100)).mkdir(parents=True)


def with_a_path_that_linux_does_not_take(entry, course):
    make_folders(entry, "d" * 240, 18)


def large(entry, course):
    with (entry / "data").open("wb") as file:
        file.truncate(200_000_000)


def without_a_time(entry, course):
    entry.rename(entry.with_name(f"without_a_time+{TOPIC}+soon+random"))


def without_a_secret(entry, course):
    (entry / "submission_secret.txt").unlink()


def without_a_name(entry, course):
    entry.rename(entry.with_name(entry.name.removeprefix("without_a_name")))


UNSAFE = (
    linked_file, linked_folder, linked_to_itself, linked_as_a_whole, pipe, deep,
    with_a_path_that_linux_does_not_take, large, without_a_time, without_a_secret, without_a_name,
)  # fmt: skip


def test_what_cannot_be_copied_safely_is_refused_in_a_line_each_and_all_else_is_collected(
    course, enter, collect
):
    for student in ("ada", "zoe"):
        enter(student, f"{student}'s")
    collect(refused=False)
    for unsafe in UNSAFE:
        enter(unsafe.__name__, "safe")
        unsafe(enter(unsafe.__name__, "unsafe", 11), course)
    enter("zoe", "later", 11)
    said = collect(refused=True)
    assert said.count("is not collected: ") == len(UNSAFE) and "Traceback" not in said
    assert submitted(course) == {"ada": "ada's", "zoe": "later"} | {
        unsafe.__name__: "safe" for unsafe in UNSAFE
    }


def file_becomes_a_link(entry, course):
    (entry / "exercise.ipynb").unlink()
    (entry / "exercise.ipynb").symlink_to(course / "secret/exercise.ipynb")


def linked_to_a_secret(entry, course):
    (entry / "data").symlink_to(course / "secret")


def becomes_a_link(entry, course):
    shutil.rmtree(entry)
    entry.symlink_to(course / "secret")


def grown(entry, course):
    with (entry / "exercise.ipynb").open("r+b") as file:
        file.truncate(200_000_000)


def secret_becomes_no_text(entry, course):
    (entry / "submission_secret.txt").write_bytes(b"\xff")


CHANGES = {
    file_becomes_a_link: "exercise.ipynb is no file any more",
    linked_to_a_secret: "",  # which is left out
    becomes_a_link: "it is no folder any more",
    grown: "it has become too large",
    secret_becomes_no_text: "it has no text submission_secret.txt",
}


def test_what_an_entry_is_changed_to_after_it_was_looked_at_is_not_collected(
    course, enter, monkeypatch, caplog
):
    monkeypatch.chdir(course)
    settings = PyFileConfigLoader("nbgrader_config.py", str(course)).load_config()
    settings.CourseDirectory.update(root=str(course), assignment_id=TOPIC)
    (course / "secret").mkdir()
    (course / "secret/exercise.ipynb").write_text("another's")
    entries = {change: enter(change.__name__, "own") for change in CHANGES}
    enter("zoe", "hers")
    collector = CarefulCollect(
        coursedir=CourseDirectory(config=settings),
        authenticator=Authenticator(config=settings),
        config=settings,
    )
    collector.init_src()
    for change, entry in entries.items():
        change(entry, course)
    collector.init_dest()
    with pytest.raises(ExchangeError, match="Entries refused, see above: 4"):
        collector.copy_files()
    assert submitted(course) == {"linked_to_a_secret": "own", "zoe": "hers"}
    assert not list(course.glob("submitted/*/*/data"))
    assert [said for said in CHANGES.values() if said not in caplog.text] == []


WRITTEN = {"no_time": "soon", "early": "2026-11-25 10:00:00 UTC", "much": "9" * 1_000, "missing": None}


def test_the_time_in_an_entrys_name_counts_whatever_its_file_says(course, enter, collect):
    for student, text in WRITTEN.items():
        file = enter(student, "first") / "timestamp.txt"
        file.unlink() if text is None else file.write_text(text)
    collect(refused=False)
    folders = CourseDirectory(root=str(course))
    times = {folders.get_existing_timestamp(str(course / "submitted" / name / TOPIC)) for name in WRITTEN}
    assert times == {datetime(2026, 11, 26, 10)}
    for student in (*WRITTEN, "zoe"):
        enter(student, "second", 11)
    collect(refused=False)
    assert submitted(course) == dict.fromkeys((*WRITTEN, "zoe"), "second")


@needs_root
def test_an_entry_in_another_students_name_replaces_nothing(course, enter, collect):
    enter("ada", "Ada's", owner=ADA)
    collect(refused=False)
    enter("ada", "Eve's", 23, owner=EVE)
    said = collect(refused=True)
    assert f"user {EVE} owns it" in said and "Delete what is not ada's" in said
    assert submitted(course) == {"ada": "Ada's"}


@needs_root
def test_entries_of_a_user_who_has_the_students_name_are_the_students(course, enter, collect):
    enter("nobody", "mine", owner=65534)
    enter("nobody", "Eve's", 23, owner=EVE)
    collect(refused=True)
    assert submitted(course) == {"nobody": "mine"}


@needs_root
def test_an_entry_for_another_exercise_tells_who_the_student_is(course, enter, collect):
    enter("ada", "Ada's", topic="01_hardware_hierarchy", owner=ADA)
    enter("ada", "Eve's", owner=EVE)
    collect(refused=True)
    assert submitted(course) == {}


@needs_root
def test_a_hub_may_have_one_user_for_all_students_and_the_instructor_may_hand_in_for_one(
    course, enter, collect
):
    enter("ada", "early", owner=HUB)
    enter("nobody", "mine", owner=HUB)
    enter("ada", "from a mail", 12)
    collect(refused=False)
    assert submitted(course) == {"ada": "from a mail", "nobody": "mine"}


@needs_root
def test_who_knows_the_owners_better_can_have_nobody_look_at_them(course, enter, collect):
    with (course / "nbgrader_config.py").open("a") as settings:
        settings.write("c.ExchangeCollect.check_owner = False\n")
    enter("ada", "before the hub moved", owner=ADA)
    enter("ada", "afterwards", 12, owner=HUB)
    collect(refused=False)
    assert submitted(course) == {"ada": "afterwards"}
