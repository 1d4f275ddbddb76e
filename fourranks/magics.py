"""`%ranks` and `%%ranks`: parse the line, call the group, show what came back.

%ranks start -n 4            start a world (also: stop, restart)
%ranks start --device cuda   on GPUs; ranks share them, by Gloo, if there are not enough for NCCL
%ranks                       what each rank is and does
%ranks push x y              set variables of the ranks from the notebook's
%ranks dashboard             the same, live
%%ranks                      run the cell on all ranks
%%ranks 0,2-3 --timeout 30   on some of them, for at most 30 seconds
%%ranks --out loss           and bring a variable back, as a list with an entry for each rank
%%ranks --trace              and show what they communicated, when and how fast
%%ranks --steps x            and show round by round who sent what to whom, and what x held
"""

from __future__ import annotations

import argparse
import functools
import keyword
import time
from typing import Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_cell_magic, magics_class
from IPython.display import display

from . import completion, current, zygote
from .errors import DeadlockError, RankError, name_ranks
from .group import RankGroup, start
from .trace import Trace
from .views.deadlock import DeadlockFigure
from .views.output import LiveOutput
from .views.status import StatusTable

BACKEND_NAMES = {"gloo": "Gloo", "nccl": "NCCL"}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:
        raise UsageError(f"{self.prog}: {message}. {self.format_usage().strip()}")

    def exit(self, status: int = 0, message: str | None = None) -> None:
        raise UsageError(message or "")  # --help has printed what it had to say


@functools.cache
def _line_parser() -> _Parser:
    parser = _Parser(prog="%ranks", description="Start, stop or look at the ranks.")
    actions = ("status", "start", "stop", "restart", "push", "dashboard")
    parser.add_argument("action", nargs="?", choices=actions, default="status")
    parser.add_argument("names", nargs="*", help="with push: the notebook's variables to send to all ranks")
    parser.add_argument("-n", "--world-size", type=int, default=4, help="number of ranks (4)")
    parser.add_argument("--backend", choices=("auto", "gloo", "nccl"), default="auto")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="cuda: share GPUs")
    parser.add_argument("--spawn", action="store_true", help="fresh processes instead of forks: slower")
    return parser


@functools.cache
def _cell_parser() -> _Parser:
    parser = _Parser(prog="%%ranks", description="Run this cell on the ranks.")
    parser.add_argument("ranks", nargs="?", type=_parse_ranks, help="which ranks, for instance 0,2-3 (all)")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="stop the cell after this time")
    parser.add_argument(
        "--out",
        type=_parse_names,
        default=[],
        metavar="NAMES",
        help="bring these variables of the ranks back, each as a list in rank order",
    )
    parser.add_argument("--trace", action="store_true", help="show what the ranks communicated")
    parser.add_argument(
        "--steps",
        metavar="NAME",
        help="show round by round who sent what to whom, and what this variable held",
    )
    return parser


def _parse_ranks(text: str) -> list[int]:
    try:
        spans = [part.split("-") for part in text.split(",")]
        return [rank for span in spans for rank in range(int(span[0]), int(span[-1]) + 1)]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} does not name ranks; write for instance 0,2-3") from None


def _parse_names(text: str) -> list[str]:
    names = text.split(",")
    if not all(name.isidentifier() and not keyword.iskeyword(name) for name in names):
        raise argparse.ArgumentTypeError(f"{text!r} does not name variables; write for instance loss,model")
    return names


@magics_class
class RanksMagics(Magics):
    """The magics of this extension."""

    _shown: Any = None  # the dashboard

    @line_cell_magic
    def ranks(self, line: str, cell: str | None = None) -> Any:
        """Run a cell on the ranks (`%%ranks`), or start, stop, restart and list them (`%ranks`)."""
        if cell is None:
            options = _line_parser().parse_args(line.split())
            if options.names and options.action != "push":
                raise UsageError(f"%ranks {options.action} takes no names: {' '.join(options.names)}")
            return getattr(self, f"_{options.action}")(options)
        self._run(_cell_parser().parse_args(line.split()), f"#%%ranks {line}".rstrip(), cell)
        return None

    def _status(self, options: argparse.Namespace) -> StatusTable | None:
        if current.has_world():
            if times := current.world().formed_anew:
                often = "once" if times == 1 else f"{times} times"
                print(f"The process group was formed anew {often} since the ranks were started.")
            return StatusTable(current.world().status())
        print("No ranks are running. `%ranks start` starts four.")
        return None

    def _start(self, options: argparse.Namespace) -> None:
        began = time.perf_counter()
        method = "spawn" if options.spawn else "auto"
        world = start(options.world_size, options.backend, device=options.device, start_method=method)
        current.set_world(world)
        print(f"{_describe(world)} {_are(world)} ready ({time.perf_counter() - began:.2f} s).")

    def _restart(self, options: argparse.Namespace) -> None:
        if not current.has_world():
            return self._start(options)
        began = time.perf_counter()
        world = current.world()
        world.restart()
        print(f"{_describe(world)} {_are(world)} fresh again ({time.perf_counter() - began:.2f} s).")

    def _stop(self, options: argparse.Namespace) -> None:
        if current.has_world():
            current.world().stop()
            print("The ranks have ended.")
        else:
            print("No ranks are running.")

    def _push(self, options: argparse.Namespace) -> None:
        if not options.names:
            raise UsageError("%ranks push: name the variables to send, for instance %ranks push x y")
        if unknown := [name for name in options.names if name not in self.shell.user_ns]:
            raise UsageError(f"%ranks push: the notebook has no variable {', '.join(unknown)}")
        world = current.world()
        world.push(**{name: self.shell.user_ns[name] for name in options.names})
        print(f"On {name_ranks(range(world.world_size))} now: {', '.join(options.names)}.")

    def _dashboard(self, options: argparse.Namespace) -> None:
        from .views.dashboard import Dashboard  # its libraries take a while to import

        if self._shown is None or self._shown.comm is None:  # none yet, or closed by the reader
            self._shown = Dashboard(current.last_world)
        self._shown.show()

    def close(self) -> None:
        """Leave nothing that runs on by itself."""
        if self._shown is not None:
            self._shown.close()

    def _run(self, options: argparse.Namespace, magic_line: str, cell: str) -> None:
        note = "" if current.has_world() else f"{_describe(current.world())} started for this cell."
        output = LiveOutput(self.shell, note)
        # The magic's own line stays, as a comment, so that line numbers are those of the notebook.
        source = cell if cell.lstrip().startswith("%%") else f"{magic_line}\n{cell}"
        if options.trace or options.steps:
            with current.world().trace(values=options.steps or "") as trace:
                try:
                    self._execute(source, options, output)
                finally:  # most of all after a deadlock
                    self._draw(trace, options)
        else:
            self._execute(source, options, output)
        self.shell.push({name: _pulled(name, options.ranks) for name in options.out})

    def _execute(self, source: str, options: argparse.Namespace, output: LiveOutput) -> None:
        transcripts = []

        def follow(transcript: Any) -> None:
            transcripts[:] = [transcript]
            output.follow(transcript)

        try:
            current.world().execute(source, options.ranks, options.timeout, self._cell_number(), follow)
        finally:
            for transcript in transcripts:
                output.finish(transcript)

    def _cell_number(self) -> int:
        """What stands in front of this cell: In[…]. `execution_count` may be ahead of it already."""
        return len(self.shell.user_ns["In"]) - 1

    def _draw(self, trace: Trace, options: argparse.Namespace) -> None:
        if options.trace:
            if trace.operations:
                display(trace.timeline())
            display(trace.table())
        if options.steps:
            display(trace.steps())


def _pulled(name: str, ranks: list[int] | None) -> list[Any]:
    """A variable's value on each rank that has run the cell."""
    try:
        return current.world().pull(name, ranks)
    except RankError as error:
        if any(remote.name != "NameError" for remote in error.errors.values()):
            raise
        lacking = name_ranks(list(error.errors)).capitalize()
        have = "have" if len(error.errors) > 1 else "has"
        raise UsageError(f"--out {name}: {lacking} {have} no variable {name} after this cell") from None


def _describe(world: RankGroup) -> str:
    sharing = " with GPUs" if (world.backend, world.device) == ("gloo", "cuda") else ""
    return f"{world.world_size} rank{'s' * (world.world_size > 1)} on {BACKEND_NAMES[world.backend]}{sharing}"


def _are(world: RankGroup) -> str:
    return "are" if world.world_size > 1 else "is"


def _show_deadlock(
    shell: InteractiveShell, kind: type, error: DeadlockError, traceback: Any, tb_offset: int | None = None
) -> list[str]:
    """Draw who waits for whom above the error, wherever in the notebook it was raised."""
    if getattr(shell, "kernel", None) is not None and error.deadlock is not None:
        display(DeadlockFigure(error))
    shell.showtraceback((kind, error, traceback), tb_offset=tb_offset)
    return []


def load_ipython_extension(shell: InteractiveShell) -> None:
    """`%load_ext fourranks`: add the magics and warm up the process that ranks are forked from."""
    zygote.shared()
    shell.register_magics(RanksMagics)
    shell.set_custom_exc((DeadlockError,), _show_deadlock)
    completion.install(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """`%unload_ext fourranks`: end the ranks and the process that they are forked from."""
    completion.remove(shell)
    shell.magics_manager.registry[RanksMagics.__name__].close()
    if current.has_world():
        current.world().stop()
    shell.set_custom_exc((), None)
    zygote.stop_shared()
