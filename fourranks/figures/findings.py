"""What a run showed, in words that its values chose. For lectures, after a run."""

SHOWN, NOT_SHOWN = "Shown:", "Not shown here:"


def finding(holds: bool, sentence: str, otherwise: str) -> None:
    """Print the sentence if the measured values bear it out, or else what this run showed instead.

    A lecture is run on other machines than the one that its text was written on. What its text says about a
    measurement goes through here, so that it is true of the run above it.

    Args:
        holds: whether the values bear the sentence out.
        sentence: what the lecture wants to show, with its numbers.
        otherwise: what the values show if they do not, and why that may be.
    """
    print(*((SHOWN, sentence) if holds else (NOT_SHOWN, otherwise)))
