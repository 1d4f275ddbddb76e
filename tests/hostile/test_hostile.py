"""Attackers get the points they deserve, and nothing else. `corpus/` holds their submissions."""

import os
import re

import psutil
import pytest

from autograder.sandbox.student_process import StudentProcess
from autograder.sandbox.tiers import Tier
from tests.hostile.conftest import CORPUS, HONEST, SECRET, attack

# Attacks that can share a sandbox, with the points of 1 that each deserves: a right answer in an
# odd way gets them. A dash has no question: it only wants to get hold of something.
TOGETHER = """
    print_a_score                       0
    return_a_score                      0
    return_a_subclass                   0
    return_lying_strides                1
    return_more_than_there_is           0
    return_nan                          0
    return_another_dtype                0
    return_a_pickle                     0
    return_a_type_with_a_long_name      0
    return_colliding_keys               0
    raise_a_long_error                  0
    show_and_raise_in_the_dark          0
    return_what_never_ends              0
    lie_in_eq                           0
    override_operators                  0
    pickle_in_the_function              1
    show_scripts                        0
    show_pictures_of_gigabytes          -
    walk_frames                         0
    take_the_inputs_of_all_ranks        0
    never_end                           0
    exit_in_a_rank                      0
    exit_at_exit                        0
    print_and_die                       0
    disk_bomb                           1
    outlive_the_cell                    1
    read_the_course                     -
    read_other_processes                -
    read_the_environment                -
    write_anywhere                      -
    reach_the_network                   -
    enter_other_namespaces              -
    take_shared_memory_of_others        -
    stay_when_memory_runs_out           -
    make_timers                         -
    take_all_watches_of_files           -
    take_room_without_writing           -
    send_dummy_bytes                    0
    share_by_files                      0
    share_by_names_of_files             0
    share_by_a_prepared_file            0
    share_by_files_of_another_thread    0
    share_by_shared_memory              0
    share_by_sockets                    0
    share_by_looking_into_processes     0
    share_by_sockets_of_its_own         0
    share_by_the_notebook               0
    forbidden_by_getattr                0
    forbidden_by_torch_ops              0
    forbidden_by_the_group_within       0
    forbidden_by_a_group_of_its_own     0
    forbidden_by_functional_collectives 0
    forget_the_record                   0
    forge_the_record                    0
    forge_a_record_that_fits            0
    ask_the_witness                     0
    repeat_a_number                     0
    stop_the_clock                      0
    freeze_the_clock_in_backward        0
    share_by_inherited_descriptors      0
    share_by_attributes_of_files        0
    share_by_times_of_files             0
    share_by_locks_of_files             0
    share_by_limits_of_processes        0
    share_by_windows_of_terminals       0
    share_by_owners_of_files            0
    share_by_counts_of_requests         0
    share_by_counts_of_descriptors      0
    share_by_ends_of_processes          0
    share_by_ends_of_timers             0
    share_beyond_the_board              0
    share_experts_by_the_board          0
    train_by_the_board                  0
    hide_four_models                    0
    share_by_names_of_groups            0
    share_by_datagrams                  0
    share_by_another_thread             0
    share_by_flags_of_standard_input    0
    share_by_futexes                    0
    search_its_own_memory               0
"""
# Attacks that bring the sandbox down, or spoil the process for the cells. The answers before and after them
# keep their points. Last: words on their page.
ALONE = """
    patch_comparisons           0  exchange
    patch_the_autograder        0  exchange
    patch_ipython               0  exchange
    redefine_the_tests          0  exchange
    flood_of_output             0  an exception
    exit_in_a_cell              -  the process that runs the notebook ended
    stop_everything             0  exchange
    leave_startup_files         -  the process that runs the notebook ended
    crash_on_every_call         0  exchange
    keep_descriptors_on_their_way  -  Too many references
    answer_instead              0  exchange
    answer_with_a_pickle        0  exchange
    change_classes_of_messages  0  the process that runs the notebook ended
    fork_bomb                   -  more than 64 processes
    memory_bomb                 -  more than 2 GiB of memory
    memory_bomb_in_files_without_a_name  -  more than 2 GiB of memory
"""
# An attack that breaks the process for the cells, or lies in its name, has broken its own later cells.
SPOILS_WHAT_FOLLOWS = ("patch_ipython", "patch_the_autograder", "answer_instead")


def rows(table: str) -> dict[str, list[str]]:
    return {name: rest for name, *rest in (line.split(maxsplit=2) for line in table.strip().splitlines())}


def deserved(points: str) -> float | None:
    return None if points == "-" else float(points)


@pytest.fixture(scope="module")
def together(grade):
    return grade(list(rows(TOGETHER)))


@pytest.mark.timeout(1200)  # all of them are graded in the first test
@pytest.mark.parametrize(("name", "points"), [(name, *rest) for name, rest in rows(TOGETHER).items()])
def test_it_gets_what_it_deserves(name, points, together):
    assert together.points(name) == deserved(points), together.text(name)


@pytest.mark.parametrize("name", ["forge_a_record_that_fits", "ask_the_witness"])
def test_who_forges_a_record_reads_which_call_gave_it_away(name, together):
    assert "has called all_reduce, which its record conceals" in together.text(name)


@pytest.mark.parametrize(
    "name", ["return_a_type_with_a_long_name", "return_colliding_keys", "raise_a_long_error"]
)
def test_what_is_shown_of_an_answer_is_as_much_as_people_read(name, together):
    assert len(together.text(name)) < 100_000


def test_what_a_rank_printed_before_it_died_is_not_shown(together):
    assert "exited with code 1" in together.text("print_and_die")
    assert "last words" not in together.text("print_and_die")


def test_no_picture_is_shown_that_takes_a_browser_gigabytes(together):
    assert together.outputs("show_pictures_of_gigabytes") == []


def test_what_is_shown_of_an_error_hides_nothing(together):
    text = together.text("show_and_raise_in_the_dark")
    assert "\\u202e" in text and "\u202e" not in text


def test_answers_beside_attacks_keep_their_points(together):
    assert [together.points(name) for name in HONEST] == [1, 1], together.text(*HONEST)


@pytest.mark.parametrize("name", [name for name, (points,) in rows(TOGETHER).items() if points == "-"])
def test_who_only_looks_around_gets_hold_of_nothing(name, together):
    assert re.findall(r"got \S.*", together.text(name)) == []
    assert [output for output in together.outputs(name) if output.output_type == "error"] == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "points", "said"), [(name, *rest) for name, rest in rows(ALONE).items()])
def test_it_gets_what_it_deserves_and_harms_only_itself(name, points, said, grade):
    graded = grade([name])
    honest_after = 0 if name in SPOILS_WHAT_FOLLOWS else 1
    assert graded.points(name) == deserved(points), graded.text(name)
    assert [graded.points(honest) for honest in HONEST] == [1, honest_after], graded.text()
    assert said in graded.text(name)
    assert len(str(graded.notebook)) < 2_000_000


@pytest.mark.timeout(600)
def test_what_linux_counts_for_all_sandboxes_together_is_there_for_the_others(grade, warm):
    with StudentProcess(launch=warm) as attacker:
        shown = attacker.run(attack("keep_descriptors_on_their_way"))
        graded = grade([])
    assert "Too many references" in shown.text
    assert [graded.points(honest) for honest in HONEST] == [1, 1], graded.text()


def test_a_cell_that_fills_connections_leaves_others_room_for_theirs(grade, tier):
    graded = grade(["fill_connections"])
    ended = "more than 64 MiB sent over connections and not received"
    assert ("Permission denied" if tier is Tier.LANDLOCK else ended) in graded.text("fill_connections")
    assert [graded.points(honest) for honest in HONEST] == [1, 1], graded.text()


def test_a_cell_that_stands_still_costs_its_own_time_only(grade, patience):
    patience(CELL=3.0)
    graded = grade(["stand_still"])
    assert "no answer within 3 s" in graded.text("stand_still")
    assert [graded.points(honest) for honest in HONEST] == [1, 1]


def test_a_submission_that_always_begins_anew_ends_when_its_time_is_over(grade, patience):
    patience(PATIENCE=20.0)  # in which a busy machine runs the first honest answer
    ends = {f"ends_{number}": "import os\nos._exit(0)" for number in range(300)}
    graded = grade([], ends)
    assert [graded.points(honest) for honest in HONEST] == [1, 0]
    assert "the time for this submission is over" in graded.text("ends_299")


def test_a_notebook_that_shows_more_than_anybody_reads_keeps_its_points_and_loses_the_rest(grade, patience):
    patience(MOST_TEXT=1_000_000)
    graded = grade([], {f"cell_{number}": "print('x' * 10**6)" for number in range(30)})
    assert [graded.points(honest) for honest in HONEST] == [1, 1]
    assert "left out" in graded.text("cell_29")
    assert len(str(graded.notebook)) < 1_500_000


def test_of_displays_without_content_there_are_as_many_as_a_page_can_hold(grade, patience):
    patience(MOST_TEXT=1_000_000)
    show = "from IPython.display import display\nfor _ in range(900): display({'text/plain': ''}, raw=True)"
    graded = grade([], {f"cell_{number}": show for number in range(5)})
    assert [graded.points(honest) for honest in HONEST] == [1, 1]
    assert len(graded.outputs("cell_0")) == 900
    assert "left out" in graded.text("cell_4") and len(graded.outputs("cell_4")) == 1


def test_nothing_outside_was_touched_seen_or_left_running(together, outside, warm):
    assert SECRET not in together.text()
    assert set(outside.files().values()) == {SECRET.encode()} and len(outside.files()) == 3
    assert not outside.was_called()
    assert outside.process.poll() is None
    warm.close()
    assert set(psutil.Process().children(recursive=True)) <= set(outside.children)
    assert not os.path.exists("/tmp/was_here") and not os.path.exists("/tmp/got_started")


def test_the_catalogue_is_complete():
    named = {*rows(TOGETHER), *rows(ALONE), "stand_still", "fill_connections", "forge_a_record_that_fits"}
    others = {path.stem for path in CORPUS.glob("*.py") if not path.stem.startswith("library_")}
    assert others == named  # `test_libraries` grades the rest
