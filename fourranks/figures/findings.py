"""Sentences on what a run showed, chosen by its values. For lectures, after a run."""

SHOWN, NOT_SHOWN = "Shown:", "Not shown here:"


def finding(holds: bool, sentence: str, otherwise: str) -> None:
    """Print the sentence if the measured values bear it out, or else what this run showed instead.

    A lecture is run on other machines than the one that its text was written on. What its text says about a
    measurement goes through here, so that it is true of the run above it.

    Args:
        holds: whether the values bear the sentence out.
        sentence: the finding that the lecture expects, with its numbers.
        otherwise: the finding if the values show something else, and why that may be.
    """
    print(*((SHOWN, sentence) if holds else (NOT_SHOWN, otherwise)))
