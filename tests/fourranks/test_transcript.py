"""Merging the ranks' output: exact, in order, readable, bounded."""

from __future__ import annotations

from types import SimpleNamespace

from fourranks.protocol.messages import TEXT_LIMIT, Clear, Display, Stream
from fourranks.transcript import Item, Transcript
from fourranks.views.output import LiveOutput


def transcript_of(*texts):
    """A finished transcript in which rank r printed texts[r]."""
    transcript = Transcript(range(len(texts)))
    for rank, text in enumerate(texts):
        transcript.add(rank, Stream("stdout", text))
        transcript.finish(rank)
    return transcript


def test_equal_output_is_shown_once_under_its_ranks():
    assert str(transcript_of("hello\n", "hello\n", "hello\n")) == "[0-2] hello"


def test_lines_that_differ_in_one_digit_are_not_merged():
    assert str(transcript_of("loss 1.0\n", "loss 1.1\n")) == "[0] loss 1.0\n[1] loss 1.1"


def test_an_extra_line_on_one_rank_does_not_part_the_equal_lines_behind_it():
    merged = str(transcript_of("begin\nend\n", "begin\nextra\nend\n"))
    assert merged == "[0-1] begin\n[1] extra\n[0-1] end"


def test_every_rank_keeps_its_own_order():
    transcript = transcript_of("a\nb\n", "b\na\n")
    for rank, order in [(0, ["a", "b"]), (1, ["b", "a"])]:
        assert [item.text for ranks, item in transcript.merged() if rank in ranks] == order


def test_thirty_two_ranks_read_as_two_lines_when_one_differs():
    texts = ["same\n"] * 32
    texts[7] = "other\n"
    assert str(transcript_of(*texts)) == "[0-6,8-31] same\n[7] other"


def test_a_line_that_arrives_in_pieces_is_one_line():
    transcript = Transcript([0])
    for piece in ("hel", "lo\nwor", "ld"):
        transcript.add(0, Stream("stdout", piece))
    transcript.finish(0)
    assert transcript.text(0) == "hello\nworld"


def test_a_carriage_return_overwrites_as_in_a_terminal():
    assert str(transcript_of("10%\r20%\r30%\n")) == "[0] 30%"


EPOCHS, BATCHES = "\repochs {}", "\n\rbatches {}\x1b[A"  # as tqdm writes bars below one another


def test_bars_below_one_another_are_a_line_each():
    epoch = EPOCHS.format(1) + BATCHES.format(1) + BATCHES.format(2)
    shown = transcript_of(epoch + EPOCHS.format(2) + BATCHES.format(3) + EPOCHS.format(3) + "\n")
    assert str(shown) == "[0] epochs 3\n[0] batches 3"


def test_a_bar_that_is_wiped_leaves_no_line_below_the_other_one():
    wiped = BATCHES.format(1) + BATCHES.format("").replace("batches", " " * 9)
    shown = transcript_of("loss 5\n" + EPOCHS.format(1) + wiped + EPOCHS.format(2) + wiped + "\nthe end")
    assert str(shown) == "[0] loss 5\n[0] epochs 2\n[0] the end"


def test_bars_below_one_another_are_shown_as_they_are_while_they_move():
    shown = Transcript([0])
    for bars in (EPOCHS.format(1) + BATCHES.format(1), BATCHES.format(2), EPOCHS.format(2)):
        shown.add(0, Stream("stderr", bars))
        assert not shown.items(0)
    assert shown.unfinished(0) == "epochs 2  batches 2"
    assert shown.rewritten(0) == Item("stderr", "epochs 2  batches 2")


def test_a_cursor_that_moves_up_without_end_opens_no_lines_without_end():
    moves = "x" * (TEXT_LIMIT // 2) + "\n" + (TEXT_LIMIT // 12) * "\x1b[99A\n"
    shown = transcript_of(moves, "\x1b[" + "9" * 5000 + "A")
    assert [len(item.text) for item in shown.items(0)] == [TEXT_LIMIT // 2]


def test_the_same_text_on_stdout_and_stderr_is_not_merged():
    transcript = Transcript([0, 1])
    transcript.add(0, Stream("stdout", "x\n"))
    transcript.add(1, Stream("stderr", "x\n"))
    assert str(transcript) == "[0] x\n[1] x"


def test_equal_figures_are_shown_once_and_different_ones_apart():
    transcript = Transcript([0, 1, 2])
    for rank, picture in enumerate(["one", "one", "two"]):
        transcript.add(rank, Display({"image/png": picture, "text/plain": "<Figure>"}))
    assert [ranks for ranks, _ in transcript.merged()] == [(0, 1), (2,)]


def test_a_plain_value_of_several_lines_is_labelled_on_each():
    transcript = Transcript([0])
    transcript.add(0, Display({"text/plain": "tensor([[1],\n        [2]])"}))
    assert str(transcript) == "[0] tensor([[1],\n[0]         [2]])"


def test_clear_output_with_wait_clears_when_something_new_comes():
    transcript = Transcript([0])
    transcript.add(0, Stream("stdout", "old\n"))
    transcript.add(0, Clear(wait=True))
    assert transcript.text(0) == "old"
    transcript.add(0, Stream("stdout", "new\n"))
    assert transcript.text(0) == "new"


def test_update_display_replaces_the_value_in_its_place():
    transcript = Transcript([0])
    transcript.add(0, Display({"text/plain": "1", "text/html": "1"}, display_id="x"))
    transcript.add(0, Stream("stdout", "after\n"))
    transcript.add(0, Display({"text/plain": "2", "text/html": "2"}, display_id="x", update=True))
    assert str(transcript) == "[0] 2\n[0] after"


def test_output_beyond_the_limit_is_cut_and_says_so():
    transcript = transcript_of("x" * (3 * TEXT_LIMIT))
    assert len(transcript.text(0)) < 2.1 * TEXT_LIMIT
    assert "256 KiB more were printed and are not shown" in transcript.text(0)


def test_merging_a_long_output_takes_linear_time():
    lines = "".join(f"line {number}\n" for number in range(5_000))
    assert len(str(transcript_of(*[lines] * 8)).splitlines()) == 5_000


def test_a_terminal_shows_what_comes_after_a_cell_has_cleared_its_output(capsys):
    shown, output = Transcript([0, 1]), LiveOutput(SimpleNamespace())
    for message in (Stream("stdout", "before\n"), Clear(wait=True), Stream("stdout", "after\n")):
        for rank in shown.ranks:
            shown.add(rank, message)
        output.follow(shown)
    shown.finish(0)
    output.finish(shown)  # rank 1 has died
    assert capsys.readouterr().out == "[0-1] before\n[0-1] after\n"


def test_a_terminal_shows_what_a_display_is_updated_to(capsys):
    shown, output = Transcript([0]), LiveOutput(SimpleNamespace())
    for number, update in (("first", False), ("second", True)):
        shown.add(0, Stream("stdout", f"{number}\n"))
        shown.add(0, Display({"text/plain": "", "text/html": number}, display_id="x", update=update))
        output.follow(shown)
    shown.finish(0)
    output.finish(shown)
    assert capsys.readouterr().out.count("'second'") == 1
