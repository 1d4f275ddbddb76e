"""The IPython shell inside a rank: runs cells as a notebook would. `output` has what they show."""

from __future__ import annotations

import contextlib
import functools
import re
import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from IPython.core import page
from IPython.core.compilerop import CachingCompiler
from IPython.core.completer import ProvisionalCompleterWarning, rectify_completions
from IPython.core.inputtransformer2 import (
    EscapedCommand,
    HelpEnd,
    MagicAssign,
    SystemAssign,
    TransformerManager,
)
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.profiledir import ProfileDir, ProfileDirError
from traitlets import Instance, Type
from traitlets.config import Config

from ..protocol.messages import FromRank
from ..protocol.places import cell_name
from ..protocol.remote_error import ErrorWithData, RemoteError
from .output import Emit, LastValue, Output, Publisher
from .prompts import refuse_magic
from .telling import (
    above_ipython,
    by_python,
    in_pythons_words,
    message_of,
    name_module_of_cells,
    told,
    where_left,
    without_own_frames,
)

_LEAVING = ("exit", "quit")  # a script's end its cell; IPython's end a terminal
_TOKEN_TRANSFORMERS = [MagicAssign, SystemAssign, EscapedCommand, HelpEnd]
_MAY_BE_IPYTHONS = re.compile(r"\s*([,;/%!?]|[^#\s].*[%!?])", re.DOTALL)  # of a line that is no comment
_NO_RANKS = re.compile(r"`%+ranks` not found")  # IPython's text; behind a first line it reads %%%ranks
_NOTEBOOKS = (
    "%ranks and %%ranks belong to the notebook, and this code runs on a rank: %%ranks must be "
    "a cell's first line, and %ranks needs a cell of its own."
)
Shield = Callable[[], AbstractContextManager[None]]  # no KeyboardInterrupt is raised inside it


class _Compiler(CachingCompiler):
    """Has tracebacks name the cells of the notebook itself as they name those of the ranks."""

    def format_code_name(self, name: str) -> tuple[str, str] | None:
        label, _, number = cell_name(name).partition(" ")
        return (label, number) if label else super().format_code_name(name)


class _Transformers(TransformerManager):
    """Looks for IPython's syntax among a cell's tokens only where there may be some: that takes long."""

    def do_token_transforms(self, lines: list[str]) -> list[str]:
        if self.token_transformers == _TOKEN_TRANSFORMERS and not any(map(_MAY_BE_IPYTHONS.match, lines)):
            return lines
        transformed: list[str] = super().do_token_transforms(lines)  # type: ignore[no-untyped-call]
        return transformed


class RankShell(InteractiveShell):
    """One IPython shell that keeps the error of a cell instead of printing it.

    Attributes:
        output: of the process.
        is_stopped: tells whether the notebook has stopped the running cell, so that it reads no traceback.
        own_names: the names that every rank has.
    """

    output: Output
    is_stopped: Callable[[], bool]
    displayhook: LastValue
    display_pub: Publisher
    own_names: Mapping[str, Any] = {}

    compiler_class = Type(_Compiler)
    displayhook_class = Type(LastValue)
    display_pub_class = Type(Publisher)
    input_transformer_manager = Instance(_Transformers, ())
    is_on_rank = True  # the extension asks

    def __init__(self) -> None:
        config = Config()
        config.HistoryManager.enabled = False
        config.HistoryManager.hist_file = ":memory:"
        config.InteractiveShell.autocall = 0
        config.Completer.use_jedi = False  # it reads source; the variables are here
        super().__init__(config=config)  # type: ignore[no-untyped-call]  # IPython has no types here
        for kind in (type(self), InteractiveShell):  # get_ipython() and %matplotlib look there
            kind._instance = self  # type: ignore[assignment]  # IPython initializes it with None
        self._error: RemoteError | None = None
        self.telling = False  # of the cell's error, which takes a second or more on a busy machine
        for name in _LEAVING:
            del self.builtin_trap.auto_builtins[name]
        for magic in (("line", "debug"), ("cell", "debug"), ("line", "pdb")):
            self.magics_manager.register_function(refuse_magic, *magic)
        self.set_hook("show_in_pager", page.as_hook(page.display_page), 90)  # `x?` only shows
        warnings.simplefilter("ignore", ProvisionalCompleterWarning)

    def enter_rank(self, send: Emit, shield: Shield, is_stopped: Callable[[], bool]) -> None:
        """Have all that this process shows, from now on, leave through `send`."""

        def emit(message: FromRank) -> None:
            with shield():
                send(message)

        self._shield, self.is_stopped = shield, is_stopped
        self.output = self.displayhook.output = self.display_pub.output = Output(emit)

    def give(self, names: Mapping[str, Any]) -> None:
        """Have these names from now on, also after %reset; %who lists the reader's own."""
        self.own_names = names
        self.push(names, interactive=False)

    def init_ipython_dir(self, ipython_dir: str | None) -> None:
        with contextlib.suppress(OSError):  # the disk of a home folder may be full
            super().init_ipython_dir(ipython_dir)  # type: ignore[no-untyped-call]

    def init_profile_dir(self, profile_dir: ProfileDir | None) -> None:
        try:
            super().init_profile_dir(profile_dir)  # type: ignore[no-untyped-call]
        except (OSError, ProfileDirError):
            self.db: dict[str, Any] = {}  # %cd notes in it where it has been

    def init_user_ns(self) -> None:
        super().init_user_ns()  # type: ignore[no-untyped-call]
        for name in _LEAVING:
            del self.user_ns[name]
        self.push(self.own_names, interactive=False)

    def init_io(self) -> None:
        pass

    def init_traceback_handlers(self, custom_exceptions: Any) -> None:
        super().init_traceback_handlers(custom_exceptions)
        by_ipython = self.InteractiveTB.structured_traceback

        def structured_traceback(
            kind: type, error: BaseException, begin: TracebackType | None = None, *args: Any, **kwargs: Any
        ) -> list[str]:
            name_module_of_cells(begin)
            try:
                return by_ipython(kind, error, begin, *args, **kwargs)
            except Exception:  # too few descriptors or too little memory is left for it
                return by_python(error, above_ipython(begin))

        self.InteractiveTB.structured_traceback = structured_traceback  # type: ignore[method-assign, assignment]

    def init_prompts(self) -> None:
        """Leave out `sys.ps1`: libraries take it for a terminal, and Lightning refuses to run DDP there."""

    def enable_gui(self, gui: object = None) -> None:
        """Do nothing: no event loop runs in a rank, and figures are drawn inline."""

    def begin_cell(self) -> None:
        """Forget what the last cell did."""
        self._error, self.telling = None, False

    def withdraw(self) -> None:
        """Have libraries find no IPython: a program runs now, as under plain Python."""
        for kind in (type(self), InteractiveShell):
            kind._instance = None

    def run(self, source: str, execution_count: int | None) -> RemoteError | None:
        """Run a cell; returns its error, if any."""
        if execution_count is not None:
            self.execution_count = execution_count
        self.displayhook.source = source
        result = self.run_cell(source, store_history=False)
        error = result.error_in_exec if result.error_before_exec is None else result.error_before_exec
        if self._error is None and error is not None and not isinstance(error, SystemExit):
            self._keep(error, above_ipython(error.__traceback__))  # a handler of the reader's has shown it
        return self._error

    def should_run_async(self, raw_cell: str, *, transformed_cell: str | None = None, **options: Any) -> bool:
        """Return whether a cell awaits something; IPython compiles each cell for this question alone."""
        source = raw_cell if transformed_cell is None else transformed_cell
        if "await" not in source and "async" not in source:
            return False
        return super().should_run_async(raw_cell, transformed_cell=transformed_cell, **options)

    def completions(self, source: str, cursor: int) -> tuple[str, list[tuple[str, str | None]]]:
        """Find what may stand at a place of a cell.

        Returns:
            The text before the cursor that is to be replaced; the candidates, each with its kind.
        """
        found = list(rectify_completions(source, self.Completer.completions(source, cursor)))
        if not found:
            return "", []
        # IPython counts a dot in front of the name in; people look for the name.
        dot = int(all(each.text.startswith(".") for each in found))
        return source[found[0].start + dot : cursor], [(each.text[dot:], each.type) for each in found]

    def inspection(self, name: str, detail_level: int, omit_sections: tuple[str, ...]) -> dict[str, str]:
        """Return what is known of a name, by MIME type; nothing if it is unknown."""
        try:
            found: dict[str, str] = self.object_inspect_mime(name, detail_level, omit_sections)
        except KeyError:
            return {}
        return found

    def keep_error(self, error: BaseException, skip: int = 0) -> RemoteError:
        """Describe an exception that was caught outside `run`, without its first `skip` frames."""
        if isinstance(error, ErrorWithData):  # which says it all; a traceback would take long
            self._error = told(type(error), error, [str(error)])
            return self._error
        self.telling = True
        begin = error.__traceback__
        for _ in range(skip):
            begin = begin.tb_next if begin is not None else None
        return self._keep(error, begin)

    def _keep(self, error: BaseException, begin: TracebackType | None) -> RemoteError:
        message = message_of(error)
        # The first traceback of a process takes half a second.
        lines = [] if self.is_stopped() else self._lines(error, begin, message)
        self._error = told(type(error), error, lines, message)
        return self._error

    def _lines(self, error: BaseException, begin: TracebackType | None, message: str) -> list[str]:
        begin = without_own_frames(begin)
        if begin is None:  # the request itself is refused
            return [f"{type(error).__name__}: {message}"]
        if lines := in_pythons_words(error, begin, message):
            return lines
        # IPython 8 would leave out one more, for its own frame at the top of a cell.
        formatted: list[str] = self.InteractiveTB.structured_traceback(type(error), error, begin, tb_offset=0)
        return formatted

    def _showtraceback(self, etype: type, evalue: BaseException | None, stb: list[str]) -> None:
        self._error = told(etype, evalue, stb)

    def showtraceback(self, *args: Any, **kwargs: Any) -> None:
        self.telling = True
        error = sys.exc_info()[1]  # None for a SyntaxError of the cell itself
        message = message_of(error)  # which may never end
        with self._shield():  # an interrupt here would replace the error by itself
            if isinstance(error, SystemExit):
                self._note_exit(error)
            elif self.is_stopped():
                self._error = told(type(error), error, [], message)
            elif error is not None and (
                lines := in_pythons_words(error, above_ipython(error.__traceback__), message)
            ):
                self._error = told(type(error), error, lines, message)
            else:
                without_own_frames(sys.exc_info()[2])
                super().showtraceback(*args, **kwargs)

    def _note_exit(self, error: SystemExit) -> None:
        """End the cell: with an error where a process would end with a failure."""
        warnings.filterwarnings("ignore", "To exit: use")  # IPython's advice, which follows
        if error.code:
            self._error = told(type(error), error, [f"SystemExit: {error}", *where_left(error)])

    def forget_error(self) -> None:
        """Let go of the last exception, whose frames hold what its code used: process groups, tensors."""
        for name in ("last_type", "last_value", "last_traceback", "last_exc"):
            vars(sys).pop(name, None)
        self.InteractiveTB.tb = self.last_execution_result = None

    def show_usage_error(self, exc: BaseException) -> None:
        text = _NOTEBOOKS if _NO_RANKS.search(str(exc)) else exc
        self._error = told(type(exc), exc, [f"UsageError: {text}"])


@functools.cache
def shell() -> RankShell:
    """Return the shell of this process; a forked one has its parent's, which took that 20 ms to make."""
    return RankShell()
