"""The ranks' output during one cell, and how equal output of several ranks becomes one line.

A rank's output is a sequence of items: lines of text and rich values. Merging is exact: two ranks share a
line only if it is the same to the letter, and every rank's own order is kept.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from .loops import ended
from .naming import format_ranks
from .protocol.bars import Bar
from .protocol.messages import TEXT_LIMIT, Clear, Display, Stream

MOST_OPEN = 64  # lines between which the cursor goes up and down; bars stand on a few
_MOVE = re.compile(r"(\n|\x1b\[[0-9]{0,2}A)")  # of the cursor: down to the next line, or up by so many
RICH_LIMIT = 16 * 1024 * 1024  # bytes of figures and other rich values that one rank may show in a cell


@dataclass(frozen=True)
class Item:
    """One thing that a rank showed: a line of text or a rich value."""

    stream: str  # "stdout", "stderr", or "display" for a rich value
    text: str  # the line without its newline; for a rich value its JSON, which makes equal values equal
    value: Display | None = field(default=None, compare=False, repr=False)


class _OpenLines:
    """The lines of a stream that may still change: the last, and those between which the cursor goes up."""

    def __init__(self) -> None:
        self._lines, self._row = [""], 0

    def write(self, text: str) -> None:
        """Add text to the cursor's line, in which a carriage return goes back to the start."""
        self._lines[self._row] += text

    def down(self) -> list[str]:
        """Move to the next line's start; returns the lines that can change no more, if it is a new one."""
        if self._row + 1 == len(self._lines):
            return self.end()
        self._row += 1
        self._to_start()
        return []

    @property
    def most_up(self) -> int:
        """How many lines the cursor may go up."""
        return self._row + MOST_OPEN - len(self._lines)

    @property
    def takes_above(self) -> bool:
        """Whether the line above is not open yet, and may be."""
        return self._row == 0 and len(self._lines) < MOST_OPEN

    def up(self, above: str) -> None:
        """Move to the start of the line above, which is this one if it is not open yet."""
        if self.takes_above:
            self._lines.insert(0, above)
        else:
            self._row = max(0, self._row - 1)
        self._to_start()

    def _to_start(self) -> None:
        if not self._lines[self._row].endswith("\r"):
            self.write("\r")

    def end(self) -> list[str]:
        """Return all lines, and begin a new one; of several, those that were wiped are left out."""
        lines = [_overwritten(line) for line in self._lines]
        self._lines, self._row = [""], 0
        return lines if len(lines) == 1 else [line for line in lines if line.strip()]

    @property
    def is_rewritten(self) -> bool:
        return any("\r" in line for line in self._lines)

    def __str__(self) -> str:
        return "  ".join(filter(None, map(_overwritten, self._lines)))


@dataclass
class _RankOutput:
    items: list[Item] = field(default_factory=list)
    unfinished: dict[str, _OpenLines] = field(default_factory=lambda: defaultdict(_OpenLines))  # by stream
    text_left: int = 2 * TEXT_LIMIT  # the rank's own limit comes first; this one is for what bypasses it
    rich_left: int = RICH_LIMIT
    dropped: int = 0
    clear_next: bool = False
    finished: bool = False


class Transcript:
    """The output of one cell on several ranks.

    `str(transcript)` is the merged text, each line under the ranks that showed it; a notebook displays it so.
    """

    def __init__(self, ranks: Sequence[int]) -> None:
        self.ranks = tuple(ranks)
        self._outputs = {rank: _RankOutput() for rank in ranks}
        self.bars: dict[int, tuple[Bar, ...]] = {}  # how far each rank's loops are
        self.revision = 0  # grows when something already shown changes, as clear_output does

    # --- filling it --------------------------------------------------------------------------------------

    def add(self, rank: int, message: Stream | Display | Clear) -> None:
        """Take in what a rank has shown."""
        output = self._outputs[rank]
        if isinstance(message, Clear):
            output.clear_next = True
            if message.wait:
                return
        if output.clear_next:
            self._clear(output)
        if isinstance(message, Stream):
            self._add_text(output, message)
        elif isinstance(message, Display):
            self._end_lines(output)
            self._add_value(output, message)

    def drop(self, rank: int, characters: int) -> None:
        """Note that a rank printed more than is kept."""
        self._outputs[rank].dropped += characters

    def finish(self, rank: int) -> None:
        """End the rank's cell: an unfinished line is its last one."""
        output = self._outputs[rank]
        output.finished = True
        self._end_lines(output)
        if output.dropped:
            output.items.append(
                Item("stderr", f"… {_size(output.dropped)} more were printed and are not shown")
            )
            output.dropped = 0

    def _clear(self, output: _RankOutput) -> None:
        output.clear_next = False
        output.items.clear()
        output.unfinished.clear()
        self.revision += 1

    def _add_text(self, output: _RankOutput, message: Stream) -> None:
        text = message.text[: output.text_left]
        output.text_left -= len(text)
        output.dropped += len(message.text) - len(text)
        if not text:
            return
        for stream in output.unfinished:
            if stream != message.name:
                self._end_line(output, stream)
        unfinished = output.unfinished[message.name]
        for part in _MOVE.split(text):
            if part == "\n":
                output.items += [Item(message.name, line) for line in unfinished.down()]
            elif _MOVE.fullmatch(part):
                for _ in range(min(int(part[2:-1] or 1), unfinished.most_up)):
                    self._move_up(output, message.name)
            else:
                unfinished.write(part)

    def _move_up(self, output: _RankOutput, stream: str) -> None:
        """Move to the line above, as bars below one another do; it may have been shown already."""
        unfinished, above = output.unfinished[stream], ""
        if unfinished.takes_above and output.items and output.items[-1].stream == stream:
            above = output.items.pop().text
            self.revision += 1
        unfinished.up(above)

    def _add_value(self, output: _RankOutput, message: Display) -> None:
        if set(message.data) == {"text/plain"} and message.display_id is None:
            output.items += [Item("stdout", line) for line in message.data["text/plain"].split("\n")]
            return
        text = json.dumps([message.data, message.metadata], sort_keys=True, default=repr)
        if len(text) > output.rich_left:
            output.items.append(Item("stderr", f"… a rich value of {_size(len(text))} is not shown"))
            return
        item = Item("display", text, value=message)
        if message.update:
            self._update(output, message, item)
        else:
            output.rich_left -= len(text)
            output.items.append(item)

    def _update(self, output: _RankOutput, message: Display, item: Item) -> None:
        """Replace the value that was shown under this display id, for `update_display`."""
        for position, shown in enumerate(output.items):
            if shown.value is not None and shown.value.display_id == message.display_id:
                output.items[position] = item
                self.revision += 1

    def _end_lines(self, output: _RankOutput) -> None:
        for stream in output.unfinished:
            self._end_line(output, stream)

    def _end_line(self, output: _RankOutput, stream: str) -> None:
        output.items += [Item(stream, line) for line in output.unfinished[stream].end() if line]

    def take(self) -> Iterator[tuple[int, Item]]:
        """Yield what each rank has shown, in its own order, and forget it: that makes room for more."""
        for rank, output in self._outputs.items():
            items, output.items = output.items, []
            output.text_left, output.rich_left = 2 * TEXT_LIMIT, RICH_LIMIT
            yield from ((rank, item) for item in items)

    # --- reading it --------------------------------------------------------------------------------------

    def items(self, rank: int) -> list[Item]:
        """Return what one rank showed so far, in its own order."""
        return self._outputs[rank].items

    def unfinished(self, rank: int) -> str:
        """Return the line that the rank is still writing, such as a progress bar."""
        return next(filter(None, map(str, self._outputs[rank].unfinished.values())), "")

    def rewritten(self, rank: int) -> Item | None:
        """Return the line that the rank writes over again and again, as tqdm does, as it is now."""
        unfinished = self._outputs[rank].unfinished.items()
        return next((Item(name, str(lines)) for name, lines in unfinished if lines.is_rewritten), None)

    def all_have(self, queues: dict[int, deque[Item]]) -> bool:
        """Return whether every rank has something in its queue or nothing more to come."""
        return all(queue or self._outputs[rank].finished for rank, queue in queues.items())

    def text(self, rank: int) -> str:
        """Return the text of one rank, without a label."""
        return "\n".join(map(plain_text, self.items(rank)))

    def merged(self) -> Iterator[tuple[tuple[int, ...], Item]]:
        """Yield all items in reading order, each with the ranks that showed it."""
        return merge({rank: deque(self.items(rank)) for rank in self.ranks})

    def lines(self) -> Iterator[str]:
        """Yield the merged text line by line, each with the ranks that showed it in front."""
        for ranks, item in self.merged():
            yield from label(ranks, plain_text(item))

    def __str__(self) -> str:
        return "\n".join([*self.lines(), *self.loops()])

    def loops(self) -> list[str]:
        """Return a line for each loop over `fourranks.progress`."""
        return [line for ranks, text in ended(self.bars) for line in label(ranks, text)]

    __repr__ = __str__


def merge(queues: dict[int, deque[Item]]) -> Iterator[tuple[tuple[int, ...], Item]]:
    """Consume the ranks' queues in one order that keeps each rank's own.

    An item that another rank will also show, but later, waits for that rank, so that an extra line on one
    rank does not separate the equal lines that follow it.
    """
    pending = {rank: Counter(queue) for rank, queue in queues.items()}
    while heads := _heads(queues):
        item, ranks = next(
            ((item, ranks) for item, ranks in heads.items() if not _comes_later(item, ranks, pending)),
            next(iter(heads.items())),
        )
        for rank in ranks:
            queues[rank].popleft()
            pending[rank][item] -= 1
        yield tuple(ranks), item


def _heads(queues: dict[int, deque[Item]]) -> dict[Item, list[int]]:
    heads: dict[Item, list[int]] = {}
    for rank, queue in queues.items():
        if queue:
            heads.setdefault(queue[0], []).append(rank)
    return heads


def _comes_later(item: Item, ranks: list[int], pending: dict[int, Counter[Item]]) -> bool:
    return any(count[item] for rank, count in pending.items() if rank not in ranks)


def label(ranks: Sequence[int], text: str) -> list[str]:
    """Return the lines of a text, each with the ranks that showed it in front."""
    prefix = f"[{format_ranks(ranks)}]"
    return [f"{prefix} {line}" if line else prefix for line in text.split("\n")]


def _overwritten(line: str) -> str:
    """Return what is left of a line in which carriage returns went back to the start."""
    return line.rstrip("\r").rsplit("\r", 1)[-1]


def plain_text(item: Item) -> str:
    """Return an item as text; of a rich value, its form in words."""
    if item.value is None:
        return item.text
    data = item.value.data
    return str(data.get("text/plain", f"<{', '.join(data)}>"))


def _size(characters: int) -> str:
    if characters < 1024:
        return f"{characters} characters"
    return f"{characters / 2**10:.0f} KiB" if characters < 2**20 else f"{characters / 2**20:.0f} MiB"
