"""Loops over `fourranks.progress` in words: one line for all ranks, with the one that is behind.

Pure logic over the ranks' bars, for `transcript`, `views.output` and, outside ranks, `progress_bar` itself.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from .naming import format_ranks
from .protocol.bars import Bar

EVERY = 0.2  # seconds between two versions of a line
LINGER = 0.5  # seconds that an inner loop's line outlives it: the next round is about to begin
WIDTH = 20  # characters of a bar
NOTABLE = 1.1  # times longer than the fastest rank's is a loop worth naming the rank for


def running(bars: Mapping[int, Sequence[Bar]], now: float) -> list[tuple[list[int], str]]:
    """List the loops that run, outer ones first and in short, each with its ranks."""
    loops = _loops(bars, now)
    outermost = min((loop.depth for loop in loops if not loop.is_over), default=now)
    live = [loop for loop in loops if not loop.is_over or (loop.depth > outermost and loop.age < LINGER)]
    deepest = max((loop.depth for loop in live), default=0)
    return [(loop.ranks, str(loop) if loop.depth == deepest else loop.short) for loop in live]


def ended(bars: Mapping[int, Sequence[Bar]]) -> list[tuple[list[int], str]]:
    """Return a line for each outermost loop, for the time when all are over."""
    return [(loop.ranks, str(loop)) for loop in _loops(bars, time.perf_counter()) if loop.depth == 0]


def _loops(bars: Mapping[int, Sequence[Bar]], now: float) -> list[_Loop]:
    together: dict[tuple[int, str], dict[int, Bar]] = {}
    for rank, some in sorted(bars.items()):
        for bar in some:
            together.setdefault((bar.depth, bar.description), {})[rank] = bar
    loops = [_Loop(by_rank, now) for by_rank in together.values()]
    return sorted(loops, key=lambda loop: (loop.depth, loop.began))


class _Loop:
    """One loop on all ranks that run it, in words."""

    def __init__(self, bars: dict[int, Bar], now: float) -> None:
        self._now = now
        self._bars = bars
        self.ranks = list(bars)
        self.depth = next(iter(bars.values())).depth
        self.began = min(bar.began for bar in bars.values())
        rounds = [bar.round for bar in bars.values()]
        # A rank that is in a later round has finished this one.
        self._shares = {
            rank: 1.0 if bar.total and bar.round > min(rounds) else _share(bar) for rank, bar in bars.items()
        }
        in_round = [rank for rank, bar in bars.items() if bar.round == min(rounds)]
        self._last = min(in_round, key=lambda rank: (self._shares[rank], -self._took(bars[rank])))
        self._bar = bars[self._last]
        self.is_over = all(bar.ended is not None for bar in bars.values())

    @property
    def age(self) -> float:
        """Seconds since it was over on all ranks."""
        return self._now - max(self._now if bar.ended is None else bar.ended for bar in self._bars.values())

    @property
    def short(self) -> str:
        return f"{self._bar.description} {self._count()}".strip()

    def __str__(self) -> str:
        parts = [self._bar.description] if self._bar.description else []
        if self._bar.total:
            parts.append(self._drawn(self._bar.total))
        parts += [self._count(), self._rate(), self._time()]
        return "  ".join(part for part in [*parts, self._who()] if part)

    def _took(self, bar: Bar) -> float:
        return (self._now if bar.ended is None else bar.ended) - bar.began

    @property
    def _seconds(self) -> float:
        return self._took(self._bar)

    @property
    def _most(self) -> int:
        """The progress of the first rank, in items of the last rank's loop."""
        share = max(self._shares.values())
        return round(share * self._bar.total) if self._bar.total else round(share)

    @property
    def _parted(self) -> bool:
        """Whether the ranks are further apart than the moments are at which they were asked."""
        slack = 0 if self.is_over else max(1, EVERY * self._bar.done / max(self._seconds, EVERY))
        return self._most - self._bar.done > slack

    def _drawn(self, total: int) -> str:
        least, most = (
            min(WIDTH, WIDTH * done // total)
            for done in (self._bar.done, self._most if self._parted else self._bar.done)
        )
        percent = f"{100 * self._bar.done / total:3.0f} %"
        return f"|{'█' * least}{'▒' * (most - least)}{'·' * (WIDTH - most)}| {percent}"

    def _count(self) -> str:
        count = f"{self._bar.done}-{self._most}" if self._parted else f"{self._bar.done}"
        return f"{count}/{self._bar.total}" if self._bar.total else count

    def _rate(self) -> str:
        if not self._bar.done:
            return ""
        rate = self._bar.done / max(self._seconds, 1e-9)
        if rate >= 1:
            return f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s"
        return f"{_duration(1 / rate)} each"

    def _time(self) -> str:
        total, done = self._bar.total, self._bar.done
        if self.is_over:
            stopped = "stopped after" if total and done < total else "in"
            return f"{stopped} {_duration(self._seconds)}"
        if not total:
            return _duration(self._seconds)
        return f"{_duration((total - done) * self._seconds / done)} left" if done else ""

    def _who(self) -> str:
        if self._parted:
            return f"{'fewest' if self.is_over else 'slowest'}: rank {self._last}"
        fastest = min(map(self._took, self._bars.values()))
        if self.is_over and self._seconds > NOTABLE * fastest + EVERY:
            return f"slowest: rank {self._last} (fastest: {_duration(fastest)})"
        return ""


def _share(bar: Bar) -> float:
    """Say how much is done: of all items where their number is known."""
    return bar.done / bar.total if bar.total else float(bar.done)


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"


def labelled(lines: Sequence[tuple[list[int], str]]) -> str:
    """Join lines; the ranks stand in front where they change."""
    text, before = "", None
    for ranks, line in lines:
        text += f" › {line}" if ranks == before else f"{'   ' * bool(text)}[{format_ranks(ranks)}] {line}"
        before = ranks
    return text
