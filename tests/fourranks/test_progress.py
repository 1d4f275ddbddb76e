"""Loops over `fourranks.progress`: on ranks, in a notebook, in a script, and in words."""

from __future__ import annotations

import subprocess
import sys

import pytest

import fourranks
from fourranks.errors import RankError
from fourranks.loops import ended, labelled, running
from fourranks.progress_bar import Bars
from fourranks.protocol.bars import Bar

from .test_magics import Kernel


def bar(
    done: int, total: int | None = 100, *, name="training", depth=0, round=0, began=0.0, ended=None
) -> Bar:
    return Bar(name, total, depth, round, began, done, ended)


def line(bars: dict[int, list[Bar]], now: float = 10.0) -> str:
    return labelled(running(bars, now))


# --- in words --------------------------------------------------------------------------------------------


def test_ranks_that_are_equally_far_share_a_bar():
    assert (
        line({0: [bar(50)], 1: [bar(50)]})
        == "[0-1] training  |██████████··········|  50 %  50/100  5.0/s  10 s left"
    )


def test_the_slowest_rank_is_named_when_the_ranks_part():
    shown = line({0: [bar(60)], 1: [bar(25)], 2: [bar(61)]})
    assert shown == (
        "[0-2] training  |█████▒▒▒▒▒▒▒········|  25 %  25-61/100  2.5/s  30 s left  slowest: rank 1"
    )


def test_a_step_that_one_rank_has_just_taken_is_no_lag():
    assert "slowest" not in line({0: [bar(50)], 1: [bar(51)]})
    assert "slowest" not in line({0: [bar(100_000, None)], 1: [bar(101_000, None)]})


def test_a_loop_of_unknown_length_counts_and_tells_the_time():
    assert line({0: [bar(1234, None)]}, now=75.0) == "[0] training  1234  16/s  1:15"


def test_uneven_shares_are_compared_by_what_is_left_of_each():
    assert "slowest" not in line({0: [bar(50, 100)], 1: [bar(500, 1000)]})
    assert "slowest: rank 1" in line({0: [bar(90, 100)], 1: [bar(500, 1000)]})


def test_a_rank_in_a_later_round_of_the_same_loop_is_ahead():
    shown = line({0: [bar(5, round=1, began=9.0)], 1: [bar(40)]})
    assert "40-100/100" in shown
    assert "slowest: rank 1" in shown


def test_an_outer_loop_stands_in_short_before_the_inner_one():
    bars = [bar(1, 3, name="epochs"), bar(50, began=5.0, depth=1)]
    assert line({0: bars, 1: bars}).startswith("[0-1] epochs 1/3 › training  |██████████···")


def test_ranks_in_different_loops_have_a_line_each():
    assert line({0: [bar(1, None, name="a")], 1: [bar(2, None, name="b")]}).split("   ") == [
        "[0] a  1  10 s each  10 s",
        "[1] b  2  5.0 s each  10 s",
    ]


def test_in_the_end_there_is_one_line_for_each_outermost_loop():
    bars = [bar(3, 3, name="epochs", ended=6.0), bar(100, depth=1, ended=6.0)]
    [(ranks, shown)] = ended({0: bars, 1: bars})
    assert ranks == [0, 1]
    assert shown == "epochs  |████████████████████| 100 %  3/3  2.0 s each  in 6.0 s"


def test_in_the_end_the_rank_that_took_longest_is_named():
    [(_, shown)] = ended({0: [bar(100, ended=2.0)], 1: [bar(100, ended=8.0)]})
    assert shown.endswith("100/100  12/s  in 8.0 s  slowest: rank 1 (fastest: 2.0 s)")


def test_a_loop_that_was_left_says_where():
    [(_, shown)] = ended({0: [bar(40, ended=2.0)], 1: [bar(100, ended=5.0)]})
    assert shown.endswith("40 %  40-100/100  20/s  stopped after 2.0 s  fewest: rank 0")


def test_a_loop_without_an_iteration_has_no_rate():
    assert line({0: [bar(0)]}) == "[0] training  |····················|   0 %  0/100"
    [(_, shown)] = ended({0: [bar(0, 0, ended=0.0)]})
    assert shown == "training  0  in 0.0 s"


def test_a_cell_full_of_short_loops_is_kept_within_bounds():
    bars = Bars()
    frame = sys._getframe()
    for number in range(1000):
        bars.close(bars.open(f"loop {number}", 1, frame))
    assert len(bars.snapshot()) <= 50


# --- on ranks --------------------------------------------------------------------------------------------


def loops(group, source: str, **options) -> list[str]:
    return group.execute(f"import fourranks\n{source}", **options).loops()


def test_a_loop_on_all_ranks_is_one_line(shared_group):
    [shown] = loops(shared_group, "for i in fourranks.progress(range(10), 'ten'): pass")
    assert shown.startswith("[0-3] ten  |████████████████████| 100 %  10/10")


def test_a_loop_on_some_ranks_names_them(shared_group):
    [shown] = loops(shared_group, "for i in fourranks.progress('abc', 'letters'): pass", ranks=[1, 2])
    assert shown.startswith("[1-2] letters ")


def test_the_line_is_there_while_the_cell_runs(shared_group):
    seen = []

    def follow(transcript):
        seen.append(line(transcript.bars, now=0.0))

    source = "import time\nfor i in fourranks.progress(range(30)): time.sleep(0.02 * (1 + 2 * (rank == 1)))"
    loops(shared_group, source, on_output=follow)
    assert any("slowest: rank 1" in shown for shown in seen)


def test_generators_breaks_and_exceptions(shared_group):
    left = "for i in fourranks.progress((i for i in range(9)), 'generator'):\n    if i == 5: break"
    [shown] = loops(shared_group, left)
    assert shown.startswith("[0-3] generator  5  ")
    seen = []
    with pytest.raises(RankError):
        loops(
            shared_group,
            "for i in fourranks.progress(range(9), 'raises'):\n    if i == 3: 1 / 0",
            on_output=lambda transcript: seen.append(transcript.loops()),
        )
    assert "3/9" in seen[-1][0] and "stopped" in seen[-1][0]
    [shown] = loops(shared_group, "for i in fourranks.progress(range(2), 'next'): pass")
    assert shown.startswith("[0-3] next ")


def test_a_function_that_runs_on_all_ranks_shows_its_loops(shared_group, capsys):
    def work():
        return sum(fourranks.progress(range(4), "adding"))

    assert shared_group.run(work) == [6] * 4
    assert capsys.readouterr().out.startswith("[0-3] adding  |████")


# --- elsewhere -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kernel():
    kernel = Kernel()
    yield kernel
    kernel.stop()


def test_a_stored_notebook_keeps_the_last_line_only(kernel):
    cell = "import fourranks, time\nfor i in fourranks.progress(range(20), 'loop'):\n    time.sleep(0.05)"
    shown = kernel.text(f"%%ranks\n{cell}\n    print('step', i // 10)").split("\n")
    assert [text for text in shown if "loop" not in text][:1] == ["4 ranks on Gloo started for this cell."]
    assert [text.split("  ")[0] for text in shown if "loop" in text] == ["[0-3] loop"]
    [output] = kernel.run(cell)
    assert output.data["text/plain"].startswith("loop  |████████████████████| 100 %  20/20")


def test_a_loop_in_the_notebook_that_raises_does_not_disturb_the_next(kernel):
    kernel.run("import fourranks\nfor i in fourranks.progress(range(20), 'broken'): 1 / 0")
    [output] = kernel.run("for i in fourranks.progress(range(20), 'whole'): pass")
    assert output.data["text/plain"].startswith("whole  |████████████████████| 100 %")


def test_a_script_ends_with_the_last_line_in_its_log():
    script = (
        "import fourranks\n"
        "for i in fourranks.progress(range(3), 'outer'):\n"
        "    for j in fourranks.progress(range(3), 'inner'): pass\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    [shown] = ran.stderr.splitlines()
    assert shown.startswith("outer  |████████████████████| 100 %  3/3")


def test_a_loop_may_be_described_by_an_object_of_the_readers(group):
    own = "import fourranks\nclass Own(int):\n    def __repr__(self):\n        return 'fold 3'\n"
    out = group.execute(f"{own}for _ in fourranks.progress(range(2), Own(), total=Own(2)): pass")
    assert "fold 3" in str(out) and "2/2" in str(out)
    assert group.pull("rank") == [0, 1, 2, 3]
