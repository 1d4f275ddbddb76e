"""A notebook without its browser: cells run in an IPython shell of this process, as a kernel runs them.

Used for Four Ranks and for the peers that are notebook extensions alike. A kernel would add the same few
milliseconds of messages to each of them.
"""

from IPython.core.interactiveshell import InteractiveShell

WORLD_SIZE = 4
ALL_REDUCE = "x = torch.ones(1)\ndist.all_reduce(x)\n"
CHECK = f"assert x.item() == {WORLD_SIZE}\n"


def shell() -> InteractiveShell:
    """The shell, made on the first call."""
    return InteractiveShell.instance()


def run(cell: str) -> None:
    """Run one cell; an error in it is raised here."""
    shell().run_cell(cell).raise_error()
