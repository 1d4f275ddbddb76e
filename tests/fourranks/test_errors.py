"""Errors carry the events, the state of the world and the ranks' output; their text tells them."""

from __future__ import annotations

import pickle

import pytest

import fourranks
from fourranks.errors import (
    Aftermath,
    CellInterrupted,
    CellTimeout,
    DeadlockError,
    FourRanksError,
    RankDied,
    RankError,
    StartError,
    plain,
)
from fourranks.protocol.remote_error import RemoteError

ERRORS = {0: RemoteError("KeyError", "'x'", "Traceback\nKeyError: 'x'")}
RAISED = "Rank 0 raised KeyError\nTraceback\nKeyError: 'x'"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (FourRanksError("The ranks are busy."), "The ranks are busy."),
        (StartError("No GPU.", Aftermath.INTACT), "No GPU."),
        (DeadlockError("They wait.", Aftermath.ENDED), f"They wait.\n\n{Aftermath.ENDED.value}"),
        (
            CellInterrupted("Interrupted.", Aftermath.RESTARTED),
            f"Interrupted.\n\n{Aftermath.RESTARTED.value}",
        ),
        (RankDied(0, "ended", "Rank 0 ended.", Aftermath.DEAD), f"Rank 0 ended.\n{Aftermath.DEAD.value}"),
        (CellTimeout(""), "The cell took longer than its timeout and was stopped."),
        (
            CellTimeout("  Rank 0: line 2", Aftermath.FORMED_ANEW),
            "The cell took longer than its timeout and was stopped.\n  Rank 0: line 2\n\n"
            f"{Aftermath.FORMED_ANEW.value}",
        ),
        (RankError(ERRORS), RAISED),
        (RankError(ERRORS, Aftermath.DEAD), f"{RAISED}\n{Aftermath.DEAD.value}"),
        (RankError(ERRORS, meanwhile="Rank 1 waits."), f"{RAISED}\nMeanwhile:\nRank 1 waits."),
        (
            RankError(ERRORS, Aftermath.DEAD, meanwhile="Rank 1 waits."),
            f"{RAISED}\nMeanwhile:\nRank 1 waits.\n\n{Aftermath.DEAD.value}",
        ),
    ],
    ids=repr,
)
def test_the_text_is_what_happened_and_what_became_of_the_world(error, text):
    assert str(error) == plain(str(error)) == text
    assert error.explanation == text.partition("\nMeanwhile:")[0].replace(error.aftermath.value, "").rstrip()
    back = pickle.loads(pickle.dumps(error))
    assert (str(back), back.aftermath, type(back)) == (text, error.aftermath, type(error))


def test_frames_that_are_equal_are_shown_once_with_the_message_of_each_rank():
    def error(message, line=1):
        return RemoteError("ValueError", message, f"Line {line}\nValueError: {message}")

    told = str(RankError({0: error("0 of 2"), 1: error("1 of 2"), 2: error("1 of 2"), 3: error("no", 5)}))
    assert told.splitlines() == [
        "Ranks 0-2 raised ValueError", "Line 1", "ValueError: 0 of 2", "On ranks 1-2: 1 of 2",
        "Rank 3 raised ValueError", "Line 5", "ValueError: no",
    ]  # fmt: skip
    told = str(RankError({rank: error(str(rank)) for rank in range(8)}))
    assert told.endswith(
        "0\nOn rank 1: 1\nOn rank 2: 2\nOn rank 3: 3\n… and different messages on ranks 4-7."
    )
    told = str(RankError({rank: error("no", line=rank) for rank in range(8)}))
    assert told.endswith("\n… and different tracebacks on ranks 4-7.")


def test_frames_are_equal_whichever_of_the_lines_around_them_ipython_has_chosen():
    above = "RuntimeError  Traceback (most recent call last)\nCell In[4], line 3, in A.__repr__(self)\n"
    frames = (
        "----> 3 def __repr__(self): 1 / 0\n",
        "      2 class A:\n----> 3     def __repr__(self): 1 / 0\n",
    )
    raised = {
        rank: RemoteError("RuntimeError", "no", f"{above}{frame}no") for rank, frame in enumerate(frames)
    }
    assert str(RankError(raised)).count("raised RuntimeError") == 1
    raised[1] = RemoteError("RuntimeError", "no", raised[1].traceback.replace("line 3", "line 4"))
    assert str(RankError(raised)).count("raised RuntimeError") == 2


def test_a_hint_stands_between_the_traceback_and_what_became_of_the_world():
    error = RankError(ERRORS, Aftermath.DEAD)
    error.hint = "Did you mean y?"
    assert str(error) == f"{RAISED}\nDid you mean y?\n{Aftermath.DEAD.value}"


@pytest.fixture(scope="module")
def pair():
    with fourranks.start(2, "gloo") as group:
        yield group


@pytest.mark.parametrize(
    ("cell", "kind", "happened", "aftermath"),
    [
        ("print('so far'); 1 / 0", RankError, "ZeroDivisionError: division by zero", Aftermath.INTACT),
        (
            "print('so far')\nif rank: dist.barrier()",
            DeadlockError,
            "These ranks would wait forever.\n  Rank 1 waits in barrier",
            Aftermath.FORMED_ANEW,
        ),
        (
            "print('so far')\nwhile True: pass",
            CellTimeout,
            "The cell took longer than its timeout and was stopped.\n  Ranks 0-1: Cell In[1], line 2",
            Aftermath.INTACT,
        ),
    ],
)
def test_a_failed_cell_says_as_data_what_became_of_the_world(pair, cell, kind, happened, aftermath):
    with pytest.raises(kind) as caught:
        pair.execute(cell, timeout=5, execution_count=1)
    error = caught.value
    assert happened in error.explanation and error.aftermath is aftermath
    assert str(error.transcript) == "[0-1] so far"


@pytest.mark.parametrize(
    "cell",
    [
        "dist.send(torch.ones(1), 7)",
        "dist.broadcast(torch.ones(1), 7)",
        "dist.new_group([0, 7])",
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)",
        "input()",
    ],
)
def test_a_traceback_has_frames_of_the_reader_and_of_torch_alone(pair, cell):
    with pytest.raises(RankError) as caught:
        pair.execute(cell)
    for error in caught.value.errors.values():
        assert "rank/" not in plain(error.traceback)
        assert cell.splitlines()[-1] in plain(error.traceback)


def test_a_value_that_cannot_leave_its_rank_is_one_sentence(pair):
    with pytest.raises(RankError) as caught:
        pair.pull("(n for n in [1])")
    for error in caught.value.errors.values():
        assert error.traceback == f"TypeError: {error.message}"


def test_a_call_that_is_refused_before_it_runs_has_no_transcript(pair):
    with pytest.raises(FourRanksError) as caught:
        pair.execute("pass", ranks=[7])
    assert caught.value.transcript is None and caught.value.aftermath is Aftermath.INTACT


def test_what_a_failed_call_printed_is_shown_once(pair, capsys):
    def fail():
        print("so far")
        raise KeyError("x")

    with pytest.raises(RankError):
        pair.run(fail)
    assert capsys.readouterr().out == "[0-1] so far\n"
