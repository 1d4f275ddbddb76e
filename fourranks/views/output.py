"""Shows the output of a cell's ranks under the cell, while it runs.

Lines appear as they come, equal lines of several ranks once. Whether a line will be equal on a slow rank is
not known yet when the fast ones have printed it; after a short wait it is shown for those that have it, and
when the cell is over the whole output is put in its final order. In a terminal what was shown stays as it is.
"""

from __future__ import annotations

import sys
import time
from collections import deque

from IPython.core.interactiveshell import InteractiveShell
from IPython.display import clear_output, display

from ..loops import EVERY, labelled, running
from ..naming import format_ranks
from ..transcript import Item, Transcript, label, merge

HOLD = 0.1  # seconds that a line waits for the other ranks to print the same
TAIL_WIDTH = 160  # characters of unfinished lines (progress bars) that are shown


class LiveOutput:
    """Follows one transcript.

    Args:
        shell: where the output goes.
        note: a line to show above it.
    """

    def __init__(self, shell: InteractiveShell, note: str = "") -> None:
        self._can_clear = getattr(shell, "kernel", None) is not None
        self._note = note
        self._shown: list[tuple[tuple[int, ...], Item]] = []
        self._revision = 0
        self._waiting_since: float | None = None
        self._tail = ""
        self._had_tail = False
        self._loops_text, self._loops_at = "", 0.0
        if note:
            print(note, flush=True)

    def follow(self, transcript: Transcript) -> None:
        """Show what has come since the last call, as far as it is ready to be shown."""
        if transcript.revision != self._revision:
            if self._can_clear:
                self._show_again(transcript)
            else:
                self._forget_changed(transcript)
        self._show_new(transcript)
        if self._can_clear:
            self._show_tail(transcript)

    def finish(self, transcript: Transcript) -> None:
        """Show the rest, and all of it in its final order."""
        self.follow(transcript)
        if self._can_clear and (self._had_tail or list(transcript.merged()) != self._shown):
            self._show_again(transcript)
        self._show_new(transcript, is_all=True)
        for line in transcript.loops():
            print(line)
        sys.stdout.flush()

    def _forget_changed(self, transcript: Transcript) -> None:
        """Have a terminal show again what differs from what it has shown, and all after that."""
        queues = {rank: deque(transcript.items(rank)) for rank in transcript.ranks}
        shown, self._shown, self._revision = self._shown, [], transcript.revision
        for ranks, item in shown:
            same = tuple(rank for rank in ranks if queues[rank] and queues[rank][0] == item)
            for rank in ranks:
                queues[rank].popleft() if rank in same else queues[rank].clear()
            self._shown.append((same, item))

    def _show_new(self, transcript: Transcript, is_all: bool = False) -> None:
        queues = {rank: deque(transcript.items(rank)) for rank in transcript.ranks}
        for ranks, _ in self._shown:
            for rank in ranks:
                queues[rank].popleft()
        if not any(queues.values()):
            self._waiting_since = None
            return
        now = time.monotonic()
        self._waiting_since = self._waiting_since or now
        waited = now - self._waiting_since > HOLD
        merged = merge(queues)
        while any(queues.values()) and (is_all or waited or transcript.all_have(queues)):
            self._show(*next(merged))
            self._waiting_since = now

    def _show_again(self, transcript: Transcript) -> None:
        items = list(transcript.merged())
        clear_output(wait=bool(items or self._note or transcript.bars))
        self._shown, self._tail, self._revision = [], "", transcript.revision
        if self._note:
            print(self._note)
        for ranks, item in items:
            self._show(ranks, item)

    def _show(self, ranks: tuple[int, ...], item: Item) -> None:
        self._wipe_tail()
        self._shown.append((ranks, item))
        if item.value is None:
            stream = sys.stderr if item.stream == "stderr" else sys.stdout
            if stream is sys.stderr:
                sys.stdout.flush()  # a kernel sends on each stream by itself
            print("\n".join(label(ranks, item.text)), file=stream, flush=stream is sys.stderr)
        else:
            print(f"[{format_ranks(ranks)}]", flush=True)
            display(item.value.data, metadata=item.value.metadata, raw=True)

    def _show_tail(self, transcript: Transcript) -> None:
        """Show the lines that ranks are still writing, on one line that is overwritten."""
        unfinished: dict[str, list[int]] = {}
        for rank in transcript.ranks:
            if text := transcript.unfinished(rank):
                unfinished.setdefault(text, []).append(rank)
        lines = [f"[{format_ranks(ranks)}] {text}" for text, ranks in unfinished.items()]
        tail = _beside(list(filter(None, [self._loops(transcript), *lines])))
        if tail != self._tail:
            self._wipe_tail()
            print(tail, end="", flush=True)
            self._tail = tail
            self._had_tail = self._had_tail or bool(tail)

    def _loops(self, transcript: Transcript) -> str:
        """Return the loops over `fourranks.progress`, in words, made again when that is worth while."""
        now = time.perf_counter()
        if now - self._loops_at >= EVERY:
            self._loops_at, self._loops_text = now, labelled(running(transcript.bars, now))
        return self._loops_text

    def _wipe_tail(self) -> None:
        if self._tail:
            print("\r" + " " * len(self._tail) + "\r", end="")
            self._tail = ""


def _beside(lines: list[str]) -> str:
    """Join as many of these as there is room for on one line."""
    shown = lines[:1]
    for line in lines[1:]:
        if len("  ".join([*shown, line])) > TAIL_WIDTH:
            break
        shown.append(line)
    more = f"  … and {len(lines) - len(shown)} more" if shown != lines else ""
    return "  ".join(shown)[:TAIL_WIDTH] + more
