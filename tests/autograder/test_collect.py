"""Downloads of learning platforms become submissions, whatever students called their files."""

import io
import json
import resource
import unicodedata
import zipfile
from pathlib import Path

import pytest

from autograder import cli
from autograder.grading import uploads
from autograder.grading.collect import NOTEBOOK, CollectError, collect, find_in
from autograder.grading.submission import MAX_BYTES
from tests.classroom import folders

COURSE = Path(__file__).parents[2]
TOPIC = "02_collectives"
EXERCISE = (COURSE / "exercises" / TOPIC / NOTEBOOK).read_bytes()
ANSWERED = (COURSE / "solutions" / TOPIC / NOTEBOOK).read_bytes()
ANOTHER = (COURSE / "exercises" / "03_benchmarking" / NOTEBOOK).read_bytes()


@pytest.fixture
def course(tmp_path: Path) -> Path:
    (tmp_path / "exercises" / TOPIC).mkdir(parents=True)
    (tmp_path / "exercises" / TOPIC / NOTEBOOK).write_bytes(EXERCISE)
    return tmp_path


def packed(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def downloaded(course: Path, files: dict[str, bytes]) -> Path:
    (course / "submissions.zip").write_bytes(packed(files))
    return course / "submissions.zip"


def submitted(course: Path) -> dict[str, bytes]:
    paths = [path for path in (course / "submitted").rglob("*") if path.is_file()]
    return {path.relative_to(course / "submitted").as_posix(): path.read_bytes() for path in paths}


MOODLE = {
    "Ada Lovelace_1234567_assignsubmission_file_/exercise.ipynb": "1234567",
    "Ada Lovelace_1234567_assignsubmission_file_exercise.ipynb": "1234567",
    "Jean-Luc O'Neil y Björk_42_assignsubmission_file/Kopie von Übung 2 (final).ipynb": "42",
}
CANVAS = {
    "lovelaceada_12345_6789012_exercise-1.ipynb": "12345",
    "lovelaceada_LATE_12345_6789012_exercise.ipynb": "12345",
    "björkneiljeanluc_7_6789013_02_collectives_v3.ipynb": "7",
}


@pytest.mark.parametrize(("name", "student"), {**MOODLE, **CANVAS}.items())
def test_a_download_of_moodle_or_canvas_names_the_student_by_number(course, name, student):
    assert collect(course, TOPIC, downloaded(course, {name: ANSWERED})) == []
    assert submitted(course) == {f"{student}/{TOPIC}/exercise.ipynb": ANSWERED}


def test_an_unpacked_download_is_as_good_as_the_zip(course):
    folder = course / "unpacked"
    with zipfile.ZipFile(downloaded(course, dict.fromkeys(MOODLE, ANSWERED))) as archive:
        archive.extractall(folder)
    collect(course, TOPIC, folder)
    assert set(submitted(course)) == {f"{student}/{TOPIC}/exercise.ipynb" for student in ("1234567", "42")}


def test_the_notebook_is_found_among_whatever_else_was_handed_in(course):
    everything = {
        "course/lectures/02_collectives/lecture.ipynb": b'{"cells": []}',
        "course/exercises/03_benchmarking/exercise.ipynb": ANOTHER,
        "course/exercises/02_collectives/.ipynb_checkpoints/exercise-checkpoint.ipynb": EXERCISE,
        "course/exercises/02_collectives/exercise.ipynb": ANSWERED,
        "__MACOSX/course/exercises/02_collectives/._exercise.ipynb": b"\x00\x05\x16\x07",
    }
    name = "Ada_1_assignsubmission_file_/All my work.ZIP"
    assert collect(course, TOPIC, downloaded(course, {name: packed(everything)})) == []
    assert submitted(course) == {f"1/{TOPIC}/exercise.ipynb": ANSWERED}


def test_a_notebook_whose_cells_lost_their_names_is_found(course):
    notebook = json.loads(EXERCISE)
    for number, cell in enumerate(notebook["cells"]):
        cell["id"], cell["metadata"] = f"random{number}", {"trusted": True}
    nameless = json.dumps(notebook).encode()
    files = {"Ada_1_assignsubmission_file_/a.ipynb": nameless}
    files |= {"Eve_2_assignsubmission_file_/a.ipynb": ANOTHER}
    collect(course, TOPIC, downloaded(course, files))
    assert submitted(course) == {f"1/{TOPIC}/{NOTEBOOK}": nameless}
    with_hidden_tests = ANSWERED
    assert find_in(course / "submitted", with_hidden_tests).content == nameless


@pytest.mark.parametrize("name", ["exercise.ipynb.txt", "exercise.ipynb.json", "exercise.ipynb (1)"])
def test_a_notebook_that_a_browser_named_as_a_text_is_found(course, name):
    download = downloaded(course, {f"Ada_1_assignsubmission_file_/{name}": ANSWERED})
    assert collect(course, TOPIC, download) == []
    assert submitted(course) == {f"1/{TOPIC}/{NOTEBOOK}": ANSWERED}


def test_a_backup_beside_a_notebook_does_not_count(course):
    folder = "Ada_1_assignsubmission_file_"
    files = {f"{folder}/exercise.ipynb.bak": EXERCISE, f"{folder}/exercise.ipynb": ANSWERED}
    collect(course, TOPIC, downloaded(course, files))
    assert submitted(course) == {f"1/{TOPIC}/{NOTEBOOK}": ANSWERED}


@pytest.mark.parametrize(("name", "depth", "unread"), [("d", 990, 0), ("d" * 240, 20, 1)])
def test_folders_in_one_another_without_end_stop_nobody(course, name, depth, unread):
    download = course / "unpacked"
    for student in ("ada", "eve"):
        (download / student).mkdir(parents=True)
        (download / student / NOTEBOOK).write_bytes(ANSWERED)
    with folders(download / "eve", name, depth):
        assert len(collect(course, TOPIC, download, names="(?P<student>[^/]+)/")) == unread
    assert set(submitted(course)) == {f"{student}/{TOPIC}/exercise.ipynb" for student in ("ada", "eve")}


def test_who_handed_in_only_what_cannot_be_looked_into_is_named_with_the_reason(course):
    download = course / "download"
    top = download / "ada_1234567_assignsubmission_file_"
    top.mkdir(parents=True)
    with folders(top, "d" * 200, 25):  # a path longer than Linux takes
        (problem,) = collect(course, TOPIC, download)
    assert problem.startswith("'ada_1234567_assignsubmission_file_/ddd")
    assert "NOT looked into: File name too long" in problem


def test_of_several_the_newest_counts_and_the_others_are_named(course):
    names = [f"Ada_1_assignsubmission_file_/exercise{copy}.ipynb" for copy in ("", " (2)", " (10)")]
    contents = dict(zip(names, (EXERCISE, EXERCISE, ANSWERED), strict=True))
    (problem,) = collect(course, TOPIC, downloaded(course, contents))
    assert problem.startswith(f"1: {names[2]!a} counts") and names[0] in problem and names[1] in problem
    assert submitted(course) == {f"1/{TOPIC}/exercise.ipynb": ANSWERED}


def test_what_is_no_notebook_of_the_assignment_is_said_and_stops_nobody_else(course):
    problems = collect(
        course,
        TOPIC,
        downloaded(
            course,
            {
                "a_1_assignsubmission_file_/essay.pdf": b"%PDF",
                "b_2_assignsubmission_file_/broken.zip": b"PK\x03\x04 and no more",
                "c_3_assignsubmission_file_/exercise.ipynb": ANOTHER,
                "d_4_assignsubmission_file_/exercise.ipynb": b"this will be graded, with a reason",
                "e_5_assignsubmission_file_/exercise.ipynb": ANSWERED,
            },
        ),
    )
    assert [problem.split(":")[0] for problem in problems] == ["1", "2", "3"]
    assert "essay.pdf" in problems[0] and "broken.zip" in problems[1]
    assert set(submitted(course)) == {f"4/{TOPIC}/exercise.ipynb", f"5/{TOPIC}/exercise.ipynb"}


def test_who_handed_in_hidden_files_alone_is_told_that(course):
    (said,) = collect(course, TOPIC, downloaded(course, {"Ada_1_assignsubmission_file_/.ipynb": ANSWERED}))
    assert said == f"1: no notebook of {TOPIC} in hidden files, which are not looked into"


def test_what_cannot_be_written_is_said_and_stops_nobody_else(course):
    (course / "submitted").mkdir()
    (course / "submitted/1").write_text("a file where a folder has to be")
    (course / "submitted/2" / TOPIC / NOTEBOOK).mkdir(parents=True)
    names = [f"Ada_{number}_assignsubmission_file_/exercise.ipynb" for number in (1, 2, 3)]
    problems = collect(course, TOPIC, downloaded(course, dict.fromkeys(names, ANSWERED)))
    assert [problem.partition(": [")[0] for problem in problems] == ["1: NOT collected", "2: NOT collected"]
    assert submitted(course)[f"3/{TOPIC}/{NOTEBOOK}"] == ANSWERED


def test_nobody_can_write_elsewhere(course):
    names = [
        "Eve_6_assignsubmission_file_/Ada_1_assignsubmission_file_/exercise.ipynb",
        "Eve_6_9_x/../../../../exercises/02_collectives/exercise.ipynb",
    ]
    collect(course, TOPIC, downloaded(course, dict.fromkeys(names, ANSWERED)))
    assert set(submitted(course)) == {f"6/{TOPIC}/exercise.ipynb"}
    assert (course / "exercises" / TOPIC / NOTEBOOK).read_bytes() == EXERCISE


ADA = "Ada Lovelace_1_assignsubmission_file_/exercise.ipynb"
POSING = {
    "Moodle, folders": "Eve_1_assignsubmission_file__6_assignsubmission_file_/exercise.ipynb",
    "Moodle, no folders": "Eve_1_assignsubmission_file__6_assignsubmission_file_exercise.ipynb",
    "Canvas's form in a name for Moodle": "Eve_1_7__6_assignsubmission_file_/exercise.ipynb",
    "late": "Eve_LATE_1_7__6_assignsubmission_file_/exercise.ipynb",
    "Canvas": "eve_1_7_6_9_exercise.ipynb",
    "a file's name": "eve_6_9_Ada_1_assignsubmission_file_.ipynb",
}


@pytest.mark.parametrize("posing", POSING.values(), ids=POSING)
@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
def test_whose_name_has_a_number_in_it_is_not_taken_for_someone_else(course, posing, first):
    collect(course, TOPIC, downloaded(course, {ADA: EXERCISE}))
    names = [posing, ADA, "Bob_2_assignsubmission_file_/exercise.ipynb"]
    problems = collect(
        course, TOPIC, downloaded(course, dict.fromkeys(names if first else names[::-1], ANSWERED))
    )
    assert submitted(course) == {f"1/{TOPIC}/exercise.ipynb": EXERCISE, f"2/{TOPIC}/exercise.ipynb": ANSWERED}
    assert [problem.split(":")[0] for problem in problems] == ["1", "6"]
    assert all("NOT collected" in problem and posing in problem for problem in problems)


def test_two_names_with_one_number_are_two_students(course):
    other = "Eve_1_assignsubmission_file_/exercise.ipynb"
    (problem,) = collect(course, TOPIC, downloaded(course, {ADA: ANSWERED, other: EXERCISE}))
    assert submitted(course) == {} and ADA in problem and other in problem


@pytest.mark.parametrize(
    "name",
    [
        "ada_1_700_ada_1_601_exercise.ipynb",
        "ada_1_700_2024_11.ipynb",
        "Ada_1_assignsubmission_file_take_2_3_of_exercise.ipynb",
    ],
)
def test_numbers_in_the_name_of_ones_own_file_are_no_doubt(course, name):
    assert collect(course, TOPIC, downloaded(course, {name: ANSWERED})) == []
    assert set(submitted(course)) == {f"1/{TOPIC}/exercise.ipynb"}


def test_a_student_is_no_path(course):
    (course / "by_name" / "..x").mkdir(parents=True)
    (course / "by_name" / "..x" / NOTEBOOK).write_bytes(ANSWERED)
    (problem,) = collect(course, TOPIC, course / "by_name", r"(?P<student>[^/]+)/")
    assert problem.startswith("'..x': NOT collected") and submitted(course) == {}


@pytest.mark.parametrize(
    "name",
    ["eve adams", "sean.o'neil", "ada+cs@uni.org", "Müller (2)", "Lovelace, Ada", "अनीता", "สมชาย ดีใจ"],
)
def test_a_name_may_have_spaces_and_what_names_and_addresses_have(course, name):
    download = downloaded(course, {f"{name}/{NOTEBOOK}": ANSWERED})
    assert collect(course, TOPIC, download, r"(?P<student>[^/]+)/") == []
    assert submitted(course) == {f"{name}/{TOPIC}/{NOTEBOOK}": ANSWERED}


def test_letters_that_macos_takes_apart_name_the_student_of_the_roster(course):
    download = downloaded(course, {f"{unicodedata.normalize('NFD', 'Björk')}/{NOTEBOOK}": ANSWERED})
    assert collect(course, TOPIC, download, r"(?P<student>[^/]+)/") == []
    assert submitted(course) == {f"Björk/{TOPIC}/{NOTEBOOK}": ANSWERED}


def test_who_has_a_name_that_no_folder_can_have_is_named_and_the_others_are_collected(course):
    names = ("ada", "ada [2]", "ends with a space ", "\u0308mark")
    download = downloaded(course, {f"{name}/{NOTEBOOK}": ANSWERED for name in names})
    problems = collect(course, TOPIC, download, r"(?P<student>[^/]+)/")
    assert [problem.split(":")[0] for problem in problems] == [
        "'ada [2]'",
        "'ends with a space '",
        "'\u0308mark'",
    ]
    assert set(submitted(course)) == {f"ada/{TOPIC}/{NOTEBOOK}"}


def test_a_zip_that_grows_is_not_unpacked_and_a_link_is_not_followed(course):
    bomb = packed({"exercise.ipynb": bytes(MAX_BYTES + 1)})
    assert len(bomb) < 1 << 20
    folder = course / "folder"
    (folder / "a_1_assignsubmission_file_").mkdir(parents=True)
    (folder / "a_1_assignsubmission_file_" / "all.zip").write_bytes(bomb)
    (folder / "b_2_assignsubmission_file_").mkdir()
    (folder / "b_2_assignsubmission_file_" / NOTEBOOK).symlink_to(course / "exercises" / TOPIC / NOTEBOOK)
    (problem,) = collect(course, TOPIC, folder)
    assert problem.startswith("1: no notebook")
    assert submitted(course) == {}


NESTED = {f"{number}.zip": packed({"exercise.ipynb": bytes(MAX_BYTES // 2)}) for number in range(9)}
UPLOADS = {
    "zips in zips": packed({"a.zip": packed(NESTED), "b.zip": packed(NESTED)}),
    "a zip of nothing": b"PK\x05\x06" + bytes(18),
    "files without number": packed(dict.fromkeys(map(str, range(10_001)), b"")),
    "deep": packed({f"{'a/' * 20_000}exercise.ipynb": ANSWERED[:10]}),
    "a notebook of arrays": packed({"exercise.ipynb": b"[" + b"[]," * 20_000_000 + b"1]"}),
    "a notebook of brackets": packed({"exercise.ipynb": b"[" * 30_000_000}),
    "a number of digits": packed({f"exercise ({'1' * 5_000}).ipynb": b"1" * 5_000}),
}


@pytest.mark.parametrize("upload", UPLOADS.values(), ids=UPLOADS)
def test_an_upload_costs_memory_and_time_of_its_own_only(course, upload):
    names = ("a_1_assignsubmission_file_/all.zip", "b_2_assignsubmission_file_/exercise.ipynb")
    download = downloaded(course, dict(zip(names, (upload, ANSWERED), strict=True)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    problems = collect(course, TOPIC, download)
    # Two copies of the largest file that is taken, on its way from the process that has read it.
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10 < 128 << 20
    assert submitted(course)[f"2/{TOPIC}/exercise.ipynb"] == ANSWERED
    assert len("".join(problems)) < 3_000


def test_what_takes_all_memory_or_time_to_read_is_said_and_stops_nobody_else(course, monkeypatch):
    monkeypatch.setattr(uploads, "MEMORY", 200 << 20)
    bomb = b"[" + b"[]," * 20_000_000 + b"1]"
    names = [f"x_{student}_assignsubmission_file_/exercise.ipynb" for student in "123"]
    problems = collect(
        course, TOPIC, downloaded(course, dict(zip(names, (ANSWERED, bomb, EXERCISE), strict=True)))
    )
    assert len(problems) == 1 and problems[0].startswith("2: no notebook") and "memory" in problems[0]
    assert set(submitted(course)) == {f"{student}/{TOPIC}/exercise.ipynb" for student in "13"}


def test_an_encrypted_zip_and_a_file_that_is_too_large_are_said_to_be_that(course):
    encrypted = bytearray(packed({"exercise.ipynb": ANSWERED}))
    encrypted[6] |= 1
    encrypted[encrypted.index(b"PK\x01\x02") + 8] |= 1
    large = b" " * (MAX_BYTES + 1)
    names = ("a_1_assignsubmission_file_/all.zip", "b_2_assignsubmission_file_/exercise.ipynb")
    first, second = collect(
        course, TOPIC, downloaded(course, dict(zip(names, (bytes(encrypted), large), strict=True)))
    )
    assert "encrypted" in first and "larger than 64 MiB" in second
    assert submitted(course) == {}


def test_names_of_files_do_nothing_to_the_terminal(course, capsys):
    dark = "\x1b[2J\u202e"
    names = [f"Ada_1_assignsubmission_file_/{dark}{copy}.ipynb" for copy in ("", "-2")]
    problems = collect(course, TOPIC, downloaded(course, dict.fromkeys(names, ANSWERED)))
    said = capsys.readouterr().out + "".join(problems)
    assert "\\x1b[2J\\u202e" in said and "\x1b" not in said and "\u202e" not in said


def test_a_name_longer_than_a_folders_names_nobody(course):
    name = f"{'ü' * 110}/exercise.ipynb"
    (problem,) = collect(course, TOPIC, downloaded(course, {name: ANSWERED}), r"(?P<student>[^/]+)/")
    assert "has 200 bytes at most" in problem and submitted(course) == {}


def test_who_calls_themselves_by_anothers_address_is_not_taken_for_them(course):
    worksheet = course / "grades.csv"
    worksheet.write_text(
        "Identifier,Full name,Email address\n"
        "Participant 1,Ada Lovelace,ada@uni.example\n"
        "Participant 2,Bob,bob@uni.example\n"
        "Participant 6,ada@uni.example,eve@uni.example\n"
    )
    names = [f"x{student}_{student}_assignsubmission_file_/exercise.ipynb" for student in "126"]
    contents = dict(zip(names, (EXERCISE, ANSWERED, ANSWERED), strict=True))
    assert collect(course, TOPIC, downloaded(course, contents), worksheet=worksheet) == []
    assert submitted(course)[f"ada@uni.example/{TOPIC}/exercise.ipynb"] == EXERCISE


def test_two_numbers_with_one_address_are_two_students(course):
    worksheet = course / "grades.csv"
    worksheet.write_text(
        "Id,Name,Email\nParticipant 1,Ada,ada@uni.example\nParticipant 6,Eve,ada@uni.example\n"
    )
    names = [f"x{student}_{student}_assignsubmission_file_/exercise.ipynb" for student in "16"]
    (problem,) = collect(
        course, TOPIC, downloaded(course, dict.fromkeys(names, ANSWERED)), worksheet=worksheet
    )
    assert problem.startswith("ada@uni.example: NOT collected") and submitted(course) == {}


def test_other_names_need_a_pattern(course):
    (course / "mails" / "ada").mkdir(parents=True)
    (course / "mails" / "ada" / "homework.ipynb").write_bytes(ANSWERED)
    with pytest.raises(CollectError, match="--names takes a pattern"):
        collect(course, TOPIC, course / "mails")
    assert collect(course, TOPIC, course / "mails", "(?P<student>[^/]+)/") == []
    assert submitted(course) == {f"ada/{TOPIC}/exercise.ipynb": ANSWERED}


@pytest.mark.parametrize("between", [",", ";", "\t"])
def test_moodles_worksheet_says_whose_numbers_they_are(between, course):
    worksheet = course / "Bewertungen.csv"
    lines = [
        ["\ufeffID", "Vollständiger Name", "E-Mail-Adresse", "Status"],
        ["Teilnehmer/in1234567", '"Lovelace, Ada"', "ada@uni.example", "Abgegeben"],
        ["Participant 42", "Jean-Luc O'Neil", "", "Submitted"],
    ]
    worksheet.write_text("".join(between.join(line) + "\n" for line in lines), encoding="utf-8")
    collect(course, TOPIC, downloaded(course, dict.fromkeys(MOODLE, ANSWERED)), worksheet=worksheet)
    assert {path.split("/")[0] for path in submitted(course)} == {"ada@uni.example", "42"}
    with pytest.raises(CollectError, match="no line with a participant's number and an e-mail"):
        collect(course, TOPIC, course / "submissions.zip", worksheet=course / "exercises" / TOPIC / NOTEBOOK)


def test_collecting_again_takes_what_has_changed(course, monkeypatch, capsys):
    monkeypatch.chdir(course)
    names = [f"x_{student}_assignsubmission_file_/exercise.ipynb" for student in "12"]
    download = downloaded(course, dict.fromkeys(names, EXERCISE))
    assert cli.main(["collect", TOPIC, str(download)]) == 0
    downloaded(course, {names[0]: EXERCISE, names[1]: ANSWERED})
    capsys.readouterr()
    assert cli.main(["collect", TOPIC, str(download)]) == 0
    first, second = sorted(capsys.readouterr().out.splitlines())
    assert first.startswith("1: as before") and second.startswith("2: collected again")
    assert submitted(course)[f"2/{TOPIC}/exercise.ipynb"] == ANSWERED


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["03_other", "submissions.zip"], "Name an assignment, such as 02_collectives"),
        ([TOPIC, "nowhere.zip"], "nowhere.zip is neither a folder nor a zip"),
        ([TOPIC, "submissions.zip", "--names", "("], "The pattern '(' finds no student"),
        ([TOPIC, "submissions.zip", "--names", "x"], "The pattern 'x' finds no student"),
    ],
)
def test_what_cannot_be_collected_is_one_clear_message(course, monkeypatch, capsys, arguments, said):
    downloaded(course, {"x_1_assignsubmission_file_/x": b""})
    monkeypatch.chdir(course)
    assert cli.main(["collect", *arguments]) == 2
    assert said in capsys.readouterr().err
