"""The command `fourranks run`: a program on ranks, from a shell, as torchrun would start it.

Ranks, the watch, errors and nodes are those of a notebook. This command's own part: the program gets a
`__main__` and a process group of its own (`rank.program`), output goes out as it comes, and an exit status
says how it ended.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping

from . import zygote
from .commands import add_start_options, start_arguments
from .errors import Aftermath, CellInterrupted, DeadlockError, FourRanksError, RankError, StartError
from .group import RankGroup, start
from .hardware import processors
from .naming import name_ranks, sentence_case
from .protocol.remote_error import RemoteError
from .transcript import Item, Transcript, label, plain_text

FAILED, UNUSABLE, INTERRUPTED = 1, 2, 130  # exit statuses, as shells have them
_ENDED_BY_SIGNAL = 128  # to which the signal's number is added
REWRITTEN_EVERY = 1.0  # seconds between two looks at lines that ranks write over, such as tqdm's
_MEETING = ("rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf", "master-addr", "master-port")
_ONE_COMMAND = "one command starts the ranks of all nodes: -n says how many, --nodes hostA,hostB where"
_AS_HERE = {  # torchrun's options of which some values say what is so here, and what to say about others
    "nnodes": (("1", "1:1"), _ONE_COMMAND),
    "node-rank": (("0",), _ONE_COMMAND),
    "max-restarts": (("0",), "nothing is restarted here after a failure: leave this option out"),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe the options of `fourranks run`."""
    add_start_options(parser, backend="instead of the one that the program asks for (auto: that one)")
    parser.add_argument(
        "-m", "--module", action="store_true", help="the program is a module, as for `python -m`"
    )
    parser.add_argument(
        "--nproc-per-node",
        "--nproc_per_node",
        type=_ranks_per_node,
        metavar="N",
        help="the same as -n, on one machine; cpu, gpu or auto: as many ranks as it has of these",
    )
    parser.add_argument(
        "--standalone",
        action="store_true",
        help="accepted as by torchrun, and so are --nnodes 1, --node-rank 0, --max-restarts 0, --rdzv-... "
        "and --master-...; changes nothing, since ranks find each other by themselves",
    )
    _accept_of_torchrun(parser)
    parser.add_argument("program", help="a script, for instance train.py")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the program: sys.argv[1:]")


def _accept_of_torchrun(parser: argparse.ArgumentParser) -> None:
    """Let a command line that was written for torchrun on one machine keep what changes nothing here."""
    for name in _MEETING:
        _accept(parser, name, str)
    for name, (values, otherwise) in _AS_HERE.items():
        _accept(parser, name, functools.partial(_as_here, values, otherwise))


def _accept(parser: argparse.ArgumentParser, name: str, read: Callable[[str], str]) -> None:
    spellings = dict.fromkeys((f"--{name}", f"--{name.replace('-', '_')}"))
    parser.add_argument(*spellings, type=read, help=argparse.SUPPRESS)


def _as_here(values: Collection[str], otherwise: str, text: str) -> str:
    """Read what torchrun's option may say here.

    Raises:
        ArgumentTypeError: it says something else.
    """
    if text not in values:
        raise argparse.ArgumentTypeError(otherwise)
    return text


def _ranks_per_node(text: str) -> int:
    """Read a number of ranks as torchrun does, which may be given as what there is one of for each."""
    counts: dict[str, Callable[[], int]] = {
        "cpu": processors,
        "gpu": _gpus,
        "auto": lambda: _gpus() or processors(),
    }
    try:
        count = counts[text]() if text in counts else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"give a number, cpu, gpu or auto, not {text!r}") from None
    if text == "gpu" and not count:
        raise argparse.ArgumentTypeError("there is no GPU that torch can use")
    return count


def _gpus() -> int:
    return zygote.shared().gpus().count


def main(options: argparse.Namespace) -> int:
    """Run the command.

    Returns:
        The exit code: that of the program, 0 or n of its `sys.exit(n)`; 1 for an error of its own
        or a deadlock; 130 for Ctrl-C; 128 + n if signal n has ended it; 2 if it could not be started.
    """
    if not options.module and not os.path.isfile(options.program):
        return _refused(f"there is no file {options.program}")
    if options.nproc_per_node is not None:
        if options.nodes or options.on:
            return _refused("over several nodes, -n says how many ranks there are in all")
        options.world_size = options.nproc_per_node
    if not getattr(sys.flags, "safe_path", False):  # from Python 3.11 on
        del sys.path[0]  # this command's own; the program's is put there on the ranks
    try:
        group = start(**start_arguments(options))
    except StartError as error:
        return _refused(str(error))
    except KeyboardInterrupt:
        return INTERRUPTED
    with group, _signals_for(group) as came:
        status = _run(group, options)
    return _ENDED_BY_SIGNAL + came[0] if came and status == FAILED else status


@contextlib.contextmanager
def _signals_for(group: RankGroup) -> Iterator[list[int]]:
    """Have the ranks get signals that would end this command: a program may save something when one comes.

    Yields:
        Those that have come.
    """
    came: list[int] = []

    def pass_on(number: int, _: object) -> None:
        came.append(number)
        group.pass_on(number)

    ending = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is signal.SIG_DFL]
    for number in ending:
        signal.signal(number, pass_on)
    try:
        yield came
    finally:
        for number in ending:
            signal.signal(number, signal.SIG_DFL)


def _refused(reason: str) -> int:
    print(f"fourranks run: {reason}", file=sys.stderr)
    return UNUSABLE


def _run(group: RankGroup, options: argparse.Namespace) -> int:
    show = _Console().show
    try:
        group.run_program(options.program, options.arguments, options.module, options.backend, show)
    except (FourRanksError, CellInterrupted) as error:
        if error.transcript is not None:
            show(error.transcript)
        if isinstance(error, RankError) and not error.meanwhile and _have_left(error.errors):
            print("\n".join(_farewells(error.errors)), file=sys.stderr)
        else:
            _explain(error)
        return _exit_status(error)
    return 0


class _Console:
    """Prints what ranks show, each line with its rank; one that is written over, again every second."""

    def __init__(self) -> None:
        self._next_look = 0.0
        self._rewritten: dict[int, Item] = {}  # the last that was printed of each rank

    def show(self, transcript: Transcript) -> None:
        """Print what has come since the last call."""
        self._show(transcript)
        if sys.stdout is not None:  # as it is in a daemon
            sys.stdout.flush()

    def _show(self, transcript: Transcript) -> None:
        for rank, item in transcript.take():
            if self._rewritten.pop(rank, None) != item:
                _print(rank, item)
        if time.monotonic() > self._next_look:
            self._next_look = time.monotonic() + REWRITTEN_EVERY
            for rank in transcript.ranks:
                line = transcript.rewritten(rank)
                if line and line.text and line != self._rewritten.get(rank):
                    self._rewritten[rank] = line
                    _print(rank, line)


def _print(rank: int, item: Item) -> None:
    stream = sys.stderr if item.stream == "stderr" else sys.stdout
    print(*label([rank], plain_text(item)), sep="\n", file=stream)


def _explain(error: FourRanksError | CellInterrupted) -> None:
    """Print an error, in colours where there are any, and in words of programs in place of cells."""
    error.aftermath = Aftermath.INTACT  # the world has ended
    error.explanation = _of_programs(error.explanation)
    if isinstance(error, RankError):
        error.meanwhile = _of_programs(error.meanwhile)
    coloured = sys.stderr.isatty()
    print("\n".join(error._render_traceback_()) if coloured else _plain(error), file=sys.stderr)


def _plain(error: FourRanksError | CellInterrupted) -> str:
    kind = f"{type(error).__name__}: " if isinstance(error, DeadlockError) else ""
    return f"{kind}{error}"


def _of_programs(text: str) -> str:
    return re.sub(r"\b([Tt]he|this) cell\b", r"\1 program", text)


def _have_left(errors: Mapping[int, RemoteError]) -> bool:
    """Tell whether these ranks have called `sys.exit`, and nothing else went wrong."""
    return all(error.is_exit for error in errors.values())


def _farewells(errors: Mapping[int, RemoteError]) -> Iterator[str]:
    """Say how ranks have left: with which exit status, or with which words as Python prints them."""
    alike: dict[str, list[int]] = {}
    for rank, error in sorted(errors.items()):
        words = (
            f"left with exit status {error.exit_status}."
            if error.is_exit_status
            else f"left: {error.message}"
        )
        alike.setdefault(words, []).append(rank)
    for words, ranks in alike.items():
        yield f"{sentence_case(name_ranks(ranks))} {words}"


def _exit_status(error: FourRanksError | CellInterrupted) -> int:
    if isinstance(error, CellInterrupted):
        return INTERRUPTED
    errors = error.errors if isinstance(error, RankError) else {}
    if errors and _have_left(errors):
        return errors[min(errors)].exit_status
    return FAILED
