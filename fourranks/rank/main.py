"""The inside of one rank: the default process group, a shell, and the loop that answers the notebook.

The main thread runs cells. A listener thread reads the notebook's messages, so that a rank whose main thread
computes or waits can still report, be interrupted and be freed.
"""

from __future__ import annotations

import contextlib
import os
import queue
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import torch
import torch.distributed as dist

from ..hardware import share_processors, threads_per_rank
from ..progress_bar import collect
from ..protocol.board import Board
from ..protocol.calls import Record
from ..protocol.channel import Channel
from ..protocol.messages import (
    TEXT_LIMIT,
    Answer,
    Complete,
    Done,
    Execute,
    Form,
    Inspect,
    Interrupt,
    Launch,
    Leave,
    Probe,
    Pull,
    Push,
    Request,
    Rescue,
    Run,
    Settings,
    State,
    ToRank,
    Virtualize,
)
from ..protocol.parcel import Parcel, pack
from ..protocol.places import cells_among, know_cells, place, show_lines_of
from . import cuda, environment, files, forked, patches, program, prompts
from .default_group import DefaultGroup
from .frames import whereabouts
from .interrupts import Interrupts
from .notices import UNFINISHED_BATCH, of_broken_groups, of_dropped_handles, of_reinterpreted_messages
from .profiling import Profiler
from .recorder import Recorder
from .script import Script
from .shell import shell
from .telling import handled
from .threads import Helper, main_thread
from .variable import Variable

SLEEPING = 0.01  # seconds of processor time between two reports; answering one takes a tenth of that
_EXPRESSION = "<expression>"  # the name of its file, in tracebacks


class Rank:
    """One rank: handles the notebook's messages until the notebook goes away."""

    def __init__(self, settings: Settings, channel: Channel, board: int, group: DefaultGroup) -> None:
        self._settings, self._pid = settings, os.getpid()
        self._device = torch.device(settings.device)
        self._channel = channel
        self._requests: queue.SimpleQueue[Request | Leave] = queue.SimpleQueue()
        self._busy = False
        self._has_run_program = False
        self._cpu_time = 0.0
        launches = settings.backend == "nccl"
        self._recorder = Recorder(settings.rank, Board(board, settings.rank), launches)
        patches.record_groups(self._recorder)
        channel.serve_forks()
        if launches:
            patches.connect_at_once(self._device, settings.local_world_size == settings.world_size)
        if settings.backend == "gloo":
            patches.stage_messages_of_gpus()
        self._group = group
        self._interrupts = Interrupts()
        self._shell = shell()
        self._shell.enter_rank(channel.send, self._interrupts.shield, lambda: self._recorder.cell_is_stopped)
        self._shell.give(self._names())
        self._bars = collect()
        self._script = Script(settings, group)
        self._script.install()
        threading.excepthook = self._thread_raised

    def _names(self) -> dict[str, Any]:
        return {
            "rank": self._settings.rank,
            "world_size": self._settings.world_size,
            "device": self._device,
            "torch": torch,
            "dist": dist,
        }

    def _resize(self, world_size: int) -> None:
        """Take note of how many ranks the world has from now on."""
        if world_size != self._settings.world_size:
            self._settings.world_size = world_size
            self._shell.give(self._names())
            os.environ.update(environment.of_torchrun(self._settings))
            share_processors(self._settings.local_world_size)
            torch.set_num_threads(threads_per_rank(self._settings.local_world_size))

    def _virtualize(self, rank: int, world_size: int) -> None:
        from .virtual import leave_for_a_virtual_world  # torch's testing modules: few ranks need them

        leave_for_a_virtual_world(rank, world_size, self._recorder)
        self._settings.rank = rank
        self._resize(world_size)

    # --- listener thread ---------------------------------------------------------------------------------

    def listen(self) -> None:
        """Take messages as they come; ends the process, and its children, when the notebook is gone."""
        while True:
            try:
                message = self._channel.receive()
            except (EOFError, OSError):
                os.killpg(0, signal.SIGKILL)
            try:
                self._take(message)
            except Exception:  # a rank that cannot answer once must still hear the next message
                traceback.print_exc()
            del message  # with the large value that may have come along

    def _take(self, message: ToRank) -> None:
        match message:
            case Probe(number, detailed):
                self._channel.send(self._state(number, detailed))
            case Interrupt():
                self._recorder.cell_is_stopped = True
                self._interrupts.request()
            case Rescue(everything):
                self._recorder.cell_is_stopped = True
                self._group.cut(everything)
            case Leave():
                if self._has_run_program:
                    self._requests.put(message)  # Python ends in its main thread
                else:
                    files.write_out()
                    os._exit(0)
            case Complete() | Inspect():  # may never end: the reader's own __dir__ or __repr__ runs
                Helper(target=self._look, args=[message]).start()
            case _:
                self._busy = True
                self._requests.put(message)

    def _state(self, number: int, detailed: bool) -> State:
        frame = sys._current_frames()[main_thread()]
        where = _where(frame)
        progress = self._recorder.progress(self._busy, self._sleeps())
        progress.handled = handled()
        if not detailed:
            progress.recent = list(progress.waits)
        shown = [*progress.recent, *progress.failed, *progress.refused]
        lines = {line for call in shown for line in (call.at, *call.callers)}
        if progress.handled is not None:
            lines.add(progress.handled.at)
        places = {(file, line): place(file, line, function) for file, line, function in lines}
        cells = cells_among({file for file, _, _ in lines}) if detailed else {}
        return State(
            self._busy,
            progress,
            where,
            places,
            cells,
            bars=self._bars.snapshot(),
            telling=self._shell.telling,
            postponed=self._interrupts.postponed,
            handling=self._interrupts.handled,
            number=number,
        )

    def _sleeps(self) -> bool:
        """Tell whether this process has hardly used a processor since this was last asked."""
        before, self._cpu_time = self._cpu_time, time.process_time()
        return self._cpu_time - before < SLEEPING

    def _thread_raised(self, end: threading.ExceptHookArgs) -> None:
        """Note that a thread has raised; an error that came from freeing the rank is no news."""
        if self._recorder.cell_is_stopped:
            return
        if end.exc_type is not SystemExit:  # which ends a thread without an error
            self._recorder.raised.append(end.exc_type.__name__)
        threading.__excepthook__(end)

    # --- threads of their own ----------------------------------------------------------------------------

    def _look(self, question: Complete | Inspect) -> None:
        value: object
        match question:
            case Complete(source, cursor):
                value = self._shell.completions(source, cursor)
            case Inspect(name, detail_level, omit_sections):
                value = self._shell.inspection(name, detail_level, omit_sections)
        self._channel.send(Answer(question.number, value))

    # --- main thread -------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Handle requests one after the other, until a program has run and the process is to end."""
        Helper(target=self.listen, name="fourranks listener").start()
        while not isinstance(request := self._requests.get(), Leave):
            self._answer(request)
        self._shell.forget_error()  # it holds what the program had
        self._group.end_threads()
        program.leave()

    def _answer(self, request: Request) -> None:
        done = self._handle(request)
        done.gpu_bytes = cuda.allocated_bytes(self._device)
        self._busy = False
        self._channel.send(done)

    def _handle(self, request: Request) -> Done:
        try:
            match request:
                case Form(generation, world_size):
                    self._resize(world_size)
                    cuda.settle(self._device)
                    self._shell.forget_error()
                    self._group.form(generation)
                    return Done()
                case Virtualize(rank, world_size):
                    self._virtualize(rank, world_size)
                    return Done()
                case Execute():
                    return self._cell(request, lambda: self._execute(request))
                case Run():
                    return self._cell(request, lambda: self._run(request))
                case Launch():
                    return self._cell(request, lambda: self._run_program(request))
                case Push(parcel, cells):
                    know_cells(cells)
                    self._shell.user_ns.update(parcel.unpack())
                    return Done()
                case Pull(expression):
                    with self._interrupts.user_code():
                        return Done(parcel=_packed(eval(_compiled(expression), self._shell.user_ns)))
        except BaseException as error:
            return Done(error=self._shell.keep_error(error, skip=1))

    def _cell(self, request: Execute | Run | Launch, work: Callable[[], Done]) -> Done:
        """Run the reader's code as one cell: output counted from zero, calls kept if a trace is on."""
        is_program, trace = isinstance(request, Launch), request.trace
        variable = Variable(self._shell.user_ns, trace.values) if trace is not None and trace.values else None
        self._recorder.begin_cell(trace is not None, variable)
        self._shell.begin_cell()
        self._shell.output.begin_cell(sys.maxsize if is_program else TEXT_LIMIT)
        self._script.begin_cell()
        self._bars.begin_cell()
        profiler = Profiler() if trace is not None and trace.profile else None
        if profiler is not None:
            profiler.start()
        start = time.perf_counter()
        try:
            done = work()
            if done.error is None and os.getpid() == self._pid:
                with self._interrupts.user_code():
                    self._recorder.finish()
        except BaseException as error:
            done = Done(error=self._shell.keep_error(error, skip=3))
        if os.getpid() != self._pid:
            forked.end(done.error)
        done.broke_group = self._notify(tell_of_groups=done.error is None and not is_program)
        if trace is not None:
            done.record = self._record(start, profiler)
        done.left_group = not self._group.exists
        self._shell.output.flush()
        done.dropped = self._shell.output.dropped
        done.bars = self._bars.end_cell()
        return done

    def _record(self, start: float, profiler: Profiler | None) -> Record:
        end = time.perf_counter()
        calls, self._recorder.calls = self._recorder.calls or [], None
        profile = profiler.stop() if profiler is not None else None
        variable = self._recorder.variable
        held = variable.look().values if variable is not None else None
        places = {line[:2]: place(*line) for line in {call.at for call in calls}}
        record = Record(start, end, calls, places, profile, held)
        if not self._recorder.launches:
            record.close(set(self._recorder.under_way()))
        return record

    def _notify(self, tell_of_groups: bool) -> bool:
        """Say on stderr what went wrong unseen; returns whether the default process group is broken.

        Args:
            tell_of_groups: whether to name broken groups: the code has caught the errors of its failed calls,
                and a cell may follow.
        """
        recorder, group = self._recorder, self._group
        recorder.under_way()  # notes those that C++ code has waited for, and that have failed
        texts = [*of_dropped_handles(recorder.dropped), *of_reinterpreted_messages(recorder.reinterpreted)]
        unfinished, half_made = group.drop_unfinished_batch(), group.note_half_made_group()
        broken = {call.group: call for call in reversed(recorder.broke_groups)}
        texts += of_broken_groups(broken, group.name) if tell_of_groups else ()
        texts += [UNFINISHED_BATCH] if unfinished and tell_of_groups else ()
        for text in texts:
            sys.stderr.write(f"{text}\n")  # a script may have replaced print
        return unfinished or half_made or group.name in broken

    def _execute(self, request: Execute) -> Done:
        with self._interrupts.user_code():
            return Done(error=self._shell.run(request.source, request.execution_count))

    def _run(self, request: Run) -> Done:
        know_cells(request.cells)
        function, args, kwargs = request.parcel.unpack()
        if getattr(function, "__module__", None) == "__main__" and hasattr(function, "__globals__"):
            for name, value in self._names().items():  # as in a cell; the function's own globals win
                function.__globals__.setdefault(name, value)
        with self._interrupts.user_code():
            try:
                return Done(parcel=_packed(function(*args, **kwargs)))
            except SystemExit as leaving:
                if leaving.code:
                    raise
                return Done(parcel=_packed(None))

    def _run_program(self, request: Launch) -> Done:
        self._group.leave()  # the program forms its own, as torch does
        patches.connect_at_once(None)
        self._script.serve_program(request.backend)
        self._shell.withdraw()
        prompts.allow()
        program.prepare(self._settings)
        try:
            with self._interrupts.user_code():
                program.run(request)
            return Done()
        except BaseException as error:
            return Done(error=self._shell.keep_error(program.call_hook(error)))
        finally:
            program.finish()
            self._has_run_program = True


def _where(frame: FrameType | None) -> str:
    """Return the line of the reader's code that a thread is in."""
    at, _, through, _ = whereabouts(frame)
    return f"{place(*at)}, through {through}" if through else str(place(*at))


def _compiled(expression: str) -> CodeType:
    """Compile an expression such that a traceback shows it."""
    text = expression.lstrip(" \t")  # as eval() does
    show_lines_of(_EXPRESSION, text)
    return compile(text, _EXPRESSION, "eval")


def _packed(value: Any) -> Parcel:
    try:
        return pack(value)
    except Exception as error:
        raise TypeError(
            f"a value of type {type(value).__name__} cannot be sent to the notebook ({error}); "
            "return tensors, numbers, strings, lists or dicts"
        ) from None


def become_rank(
    settings: Settings,
    channel: Channel,
    board: int,
    listener: int | None,
    group_kind: Callable[[Settings, int | None], DefaultGroup] = DefaultGroup,
) -> None:
    """Become a rank; called in a freshly forked process and never returns.

    Args:
        settings: which rank of which world.
        channel: the way to the notebook.
        board: the descriptor of the world's board.
        listener: on rank 0, the descriptor of the socket that the rendezvous store listens on.
        group_kind: makes the default process group.
    """
    with contextlib.suppress(OSError):  # this user may not enter it
        os.chdir(settings.directory)
    sys.path[:] = settings.path
    environment.enter(settings)
    torch.set_num_threads(threads_per_rank(settings.local_world_size))
    torch.default_generator.seed()  # a fork would otherwise share its parent's random state
    if numpy_random := sys.modules.get("numpy.random"):  # else it is imported, and seeded, at its first use
        numpy_random.seed()
    random.seed()
    prompts.refuse()
    Rank(settings, channel, board, group_kind(settings, listener)).serve()
