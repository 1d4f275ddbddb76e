"""Boards to play on: schedules of pipelines, and collectives in rounds.

    from fourranks import puzzles
    puzzles.board("Four of eight")                  # shows the board
    puzzles.board("Four of eight").play(schedule)   # tries a schedule, draws it, keeps your record
    puzzles.scores()                                # all boards, and a line to share

Rules, drawings and records need the standard library alone, and of the rest of the package only the colours
and the frame of a picture. Nothing here imports torch or matplotlib or speaks to a kernel, so that boards can
also run in a web page.
"""

from .board import Attempt, Puzzle, ScoreTable, score_table
from .catalogue import BOARDS, board

__all__ = ["BOARDS", "Attempt", "Puzzle", "board", "scores"]


def scores() -> ScoreTable:
    """Return your records of all boards, from this folder."""
    return score_table(BOARDS)
