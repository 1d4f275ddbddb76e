"""`%ranks` and `%%ranks`: call the group, show what came back. `commands` reads their lines."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_cell_magic, magics_class
from IPython.display import display

from . import commands, completion, current, every_cell, hints, saved_script
from .errors import (
    CellInterrupted,
    DeadlockError,
    Explained,
    FourRanksError,
    RankError,
    interrupts_as_one_message,
)
from .group import RankGroup, start
from .naming import counted, name_ranks, some_of
from .placement import BACKEND_NAMES
from .transcript import Transcript
from .views import static_dashboard
from .views.deadlock import DeadlockFigure
from .views.drawable_trace import DrawableTrace
from .views.output import LiveOutput
from .views.static_dashboard import StaticDashboard
from .views.status import StatusTable

_MOST_NAMES = 8  # of variables that are lost
_MISPLACED = "%ranks"  # the line magic that IPython looks for when %%ranks is not on the first line


@magics_class
class RanksMagics(Magics):
    """The magics of this extension."""

    shell: InteractiveShell  # that it was loaded into
    _shown: Any = None  # the dashboard
    _transcript: Transcript | None = None  # of the last cell
    _error: FourRanksError | CellInterrupted | None = None  # that it ended with
    _running = ""  # the notebook's cell, as it was typed
    just_started = False  # whether the last cell began by starting the ranks

    @line_cell_magic
    def ranks(self, line: str, cell: str | None = None) -> Any:
        with interrupts_as_one_message("The cell was interrupted."):
            if cell is None:
                options = commands.parse_line(line, _has_code_below(self._running))
                return getattr(self, f"_{options.action}")(options)
            if commands.asks_for_help(line):
                return self._help(None)
            self._run(commands.parse_cell_line(line), f"#%%ranks {line}".rstrip(), cell)
        return None

    ranks.__doc__ = (
        "Run a cell on the ranks (`%%ranks`), or start, stop, restart and list them (`%ranks`).\n\n"
        + commands.help_text()
    )

    def note_cell(self, info: Any) -> None:
        """Keep the text of a cell that begins: its %ranks line may have been meant for all of it."""
        self._running = info.raw_cell or ""

    def misplaced(self, line: str) -> None:
        """Refuse a `%%ranks` below the first line."""
        magic = f"%%ranks {line}".rstrip()
        raise UsageError(f"%%ranks must be the cell's first line, even above comments: move `{magic}` up.")

    def _status(self, options: argparse.Namespace) -> StatusTable | None:
        if current.has_world():
            if times := current.world().formed_anew:
                often = "once" if times == 1 else f"{times} times"
                print(f"The process group was formed again {often} since the ranks were started.")
            return StatusTable(current.world().status())
        print("No ranks are running. `%ranks start` starts four.")
        return None

    def _start(self, options: argparse.Namespace) -> None:
        began = time.perf_counter()
        lost = _lost_by_a_new_start()
        if options.on and current.has_world() and current.world().nodes:
            current.world().stop()  # it may have the slots that the new one needs
        world = start(**commands.start_arguments(options))
        current.set_world(world)
        ready = f"{_describe(world)} {_are(world)} ready ({time.perf_counter() - began:.2f} s)."
        print(f"{ready}{_what_is_real(world)}{lost}")

    def _restart(self, options: argparse.Namespace) -> None:
        world = current.last_world()  # it ends where it cannot be formed again after an error
        if world is None:
            return self._start(options)
        began = time.perf_counter()
        world.restart()
        print(f"{_describe(world)} {_are(world)} fresh again ({time.perf_counter() - began:.2f} s).")
        for trouble in world.missing_nodes.values():
            print(f"{trouble}\nIts ranks are on the other nodes now.")

    def _stop(self, options: argparse.Namespace) -> None:
        if current.has_world():
            current.world().stop()
            again = " Cells run in the notebook again." if every_cell.is_on(self.shell) else ""
            every_cell.turn_off(self.shell)
            print(f"The ranks have ended.{again}")
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

    def _auto(self, options: argparse.Namespace) -> None:
        if options.off:
            every_cell.turn_off(self.shell)
            print("Cells run in the notebook again, but for those that begin with %%ranks.")
        else:
            every_cell.turn_on(self.shell)
            print(
                "From now on every cell that begins with code runs on all ranks; one that begins with % or ! "
                "runs in the notebook, as before. `%ranks auto --off` ends this."
            )

    def _dashboard(self, options: argparse.Namespace) -> None:
        if not static_dashboard.can_be_live():
            display(StaticDashboard(current.last_world()))
            return
        from .views.dashboard import Dashboard  # its libraries take a while to import

        if self._shown is None or self._shown.comm is None:  # none yet, or closed by the reader
            self._shown = Dashboard(current.last_world)
        if options.side and not static_dashboard.can_stand_beside():
            print(static_dashboard.PANE_NEEDS)
            self._shown.show()
        elif options.side:
            self._shown.show_beside()
            print("In JupyterLab the dashboard opens beside the notebook. Elsewhere use %ranks dashboard.")
        else:
            self._shown.show()

    def _last(self, options: argparse.Namespace) -> None:
        if self._transcript is None:
            print("No cell has run on the ranks yet.")
            return
        LiveOutput(self.shell).finish(self._transcript)
        if self._error is not None:
            print("\n".join(self._error._render_traceback_()), file=sys.stderr)

    def _help(self, options: argparse.Namespace | None) -> None:
        display({"text/plain": commands.help_text(), "text/markdown": commands.help_markdown()}, raw=True)

    def close(self) -> None:
        """Leave nothing that runs on by itself."""
        if self._shown is not None:
            self._shown.close()

    def _run(self, options: argparse.Namespace, magic_line: str, cell: str) -> None:
        self.just_started = not current.has_world()
        notes = [f"{_describe(current.world())} started for this cell."] if self.just_started else []
        if options.save_script:
            notes.append(_saved(cell, options.save_script))
        output = LiveOutput(self.shell, "\n".join(notes))
        # The magic's own line stays, as a comment, so that line numbers are those of the notebook.
        has_line = not every_cell.takes(self.shell, self._running) and not cell.lstrip().startswith("%%")
        source = f"{magic_line}\n{cell}" if has_line else cell
        if options.trace or options.steps:
            with current.world().trace(values=options.steps or "") as trace:
                try:
                    self._execute(source, options, output)
                finally:  # most of all after a deadlock
                    self._draw(trace, options)
            if options.steps:
                _require_seen(trace, options)
        else:
            self._execute(source, options, output)
        self.shell.push({name: _pulled(name, options.ranks) for name in options.out})

    def _execute(self, source: str, options: argparse.Namespace, output: LiveOutput) -> None:
        ranks, timeout = options.ranks, options.timeout
        try:
            shown = current.world().execute(source, ranks, timeout, self._cell_number(), output.follow)
        except (FourRanksError, CellInterrupted) as error:
            if error.transcript is not None:  # else no rank was reached
                self._transcript, self._error = error.transcript, error
                output.finish(error.transcript)
            raise
        self._transcript, self._error = shown, None
        output.finish(shown)

    def _cell_number(self) -> int:
        """Return the number in front of this cell, In[…]; `execution_count` may be ahead of it already."""
        return len(self.shell.user_ns["In"]) - 1

    def _draw(self, trace: DrawableTrace, options: argparse.Namespace) -> None:
        if options.trace:
            if trace.operations:
                display(trace.timeline())
            display(trace.table())
        if options.steps:
            display(trace.steps())


def _saved(cell: str, path: Path) -> str:
    """Save a cell as a program, and say how to start it; one that cannot be saved is not run, either."""
    world_size = current.world().world_size
    try:
        saved_script.save(cell, path, world_size)
    except saved_script.ScriptError as error:
        raise UsageError(f"%%ranks --save-script: {error}.") from None
    start = f"torchrun --standalone --nproc-per-node {world_size} {shlex.quote(str(path))}"
    return f"Saved as {path}. Outside of the notebook: {start}"


def _pulled(name: str, ranks: list[int] | None) -> list[Any]:
    """Return a variable's value on each rank that has run the cell."""
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
    if world.ranks_per_gpu > 1 and world.backend == "nccl":
        sharing = f", up to {world.ranks_per_gpu} on a GPU,"
    where = f" over {counted(len(world.nodes), 'node')}" if world.nodes else ""
    return f"{counted(world.world_size, 'rank')} on {BACKEND_NAMES[world.backend]}{where}{sharing}"


def _what_is_real(world: RankGroup) -> str:
    """Say what ranks that share GPUs over NCCL show as it is, and what not; empty for others."""
    if world.backend != "nccl" or world.ranks_per_gpu < 2:
        return ""
    return (
        " NCCL's calls, streams, kernels, asynchrony, errors and hangs are real; its times and bandwidths "
        "are not: the ranks share the GPU, and what they send stays in its memory."
    )


def _are(world: RankGroup) -> str:
    return "are" if world.world_size > 1 else "is"


def _has_code_below(cell: str) -> bool:
    """Tell whether a cell begins with a %ranks line and has code, not only comments and magics, below it."""
    lines = [line for text in cell.splitlines() if (line := text.strip()) and not line.startswith("#")]
    first, *rest = lines or [""]
    return first.split()[:1] == ["%ranks"] and any(not line.startswith(("%", "!")) for line in rest)


def _lost_by_a_new_start() -> str:
    """Say what ends with the ranks that run now; empty if none do."""
    if not current.has_world():
        return ""
    world = current.world()
    ended = f" The {counted(world.world_size, 'rank')} before {_have(world)} ended"
    try:
        names = world.pull("get_ipython().run_line_magic('who_ls', '')", [0])[0]
    except FourRanksError:  # rank 0 is gone
        return f"{ended}, and their variables with them."
    if not names:
        return f"{ended}."
    return f"{ended}, and their variables with them: {some_of(names, _MOST_NAMES)}."


def _have(world: RankGroup) -> str:
    return "have" if world.world_size > 1 else "has"


def _require_seen(trace: DrawableTrace, options: argparse.Namespace) -> None:
    """Say so if no rank has ever had the variable that --steps was to show."""
    looks = [call.look for calls in trace.calls for call in calls if call.look is not None]
    if any(look.values != [] for look in looks) or any(
        current.world().pull(f"{options.steps!r} in globals()", options.ranks)
    ):
        return
    raise UsageError(
        f"--steps {options.steps}: no rank has a variable {options.steps} after this cell. Variables inside "
        "functions are not looked at."
    )


def _show_error(
    shell: InteractiveShell, kind: type, error: BaseException, traceback: Any, tb_offset: int | None = None
) -> list[str]:
    """Show an error with what this extension knows of it, wherever in the notebook it was raised."""
    match error:
        case DeadlockError():
            if getattr(shell, "kernel", None) is not None and error.scene is not None:
                display(DeadlockFigure(error.scene))
        case RankError():
            error.hint = hints.of_the_ranks(error, shell.user_ns, _magics_of(shell).just_started)
        case UsageError() if hint := hints.of_a_magic(error):
            error.args = (f"{error} {hint}",)
        case NameError() if hint := hints.of_the_notebook(getattr(error, "name", None) or "", shell.user_ns):
            error.args = (f"{error}. {hint}",)
        case ValueError() if hint := hints.of_a_collective(error):
            error.args = (f"{str(error).removesuffix('.')}. {hint}",)
    with _no_debugger(shell) if isinstance(error, Explained) else contextlib.nullcontext():
        shell.showtraceback((kind, error, traceback), tb_offset=tb_offset)
    return []


@contextlib.contextmanager
def _no_debugger(shell: InteractiveShell) -> Iterator[None]:
    """Have %pdb open no debugger: here are only frames of this package, and the reader's are on the ranks."""
    call_pdb, shell.call_pdb = shell.call_pdb, False
    try:
        yield
    finally:
        shell.call_pdb = call_pdb


def _magics_of(shell: InteractiveShell) -> RanksMagics:
    magics: RanksMagics = shell.magics_manager.registry[RanksMagics.__name__]
    return magics


def add_to(shell: InteractiveShell) -> None:
    """Add the magics, the work before each cell, and the display of errors."""
    shell.register_magics(RanksMagics)
    magics = _magics_of(shell)
    shell.magics_manager.register_function(magics.misplaced, "line", _MISPLACED)
    shell.events.register("pre_run_cell", magics.note_cell)
    shell.set_custom_exc((Explained, NameError, ValueError, UsageError), _show_error)
    completion.install(shell)


def remove_from(shell: InteractiveShell) -> None:
    """Take all of that away again."""
    completion.remove(shell)
    every_cell.turn_off(shell)
    magics = _magics_of(shell)
    shell.events.unregister("pre_run_cell", magics.note_cell)
    shell.magics_manager.magics["line"].pop(_MISPLACED, None)
    magics.close()
    shell.set_custom_exc((), None)
