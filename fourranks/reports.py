"""The ranks' reports of one time; a question about many of them is looked up once."""

from __future__ import annotations

from collections.abc import Mapping

from .protocol.calls import Call, PlaceInGroup
from .protocol.progress import Progress

_NOTHING = Progress()


class Reports:
    """The reports of all ranks.

    Args:
        progresses: of each rank that has reported; another one has issued nothing.
    """

    def __init__(self, progresses: Mapping[int, Progress]) -> None:
        self._progresses = progresses
        self._late: dict[PlaceInGroup, frozenset[int]] = {}
        self._alike: dict[PlaceInGroup, list[dict[int, Call]]] = {}

    def __getitem__(self, rank: int) -> Progress:
        return self._progresses.get(rank, _NOTHING)

    def late(self, call: Call) -> frozenset[int]:
        """Return the members of its group that have not issued the collective at this place."""
        place = call.place_in_group
        if place not in self._late:
            key = call.group, call.ranks
            late = (rank for rank in call.ranks if self[rank].collectives.get(key, 0) <= call.seq)
            self._late[place] = frozenset(late)
        return self._late[place]

    def alike(self, call: Call) -> list[dict[int, Call]]:
        """Return the collectives at this place, as far as they are known, by rank: those alike together."""
        place = call.place_in_group
        if place not in self._alike:
            kinds: dict[object, dict[int, Call]] = {}
            for rank in call.ranks:
                if found := _at_the_place_of(call, self[rank]):
                    kind = found.op, found.root, found.reduce_op, found.part
                    kinds.setdefault(kind, {})[rank] = found
            self._alike[place] = list(kinds.values())
        return self._alike[place]


def _at_the_place_of(call: Call, progress: Progress) -> Call | None:
    """Return the collective of another rank at the same place of the same group, if it is still known."""
    for recent in progress.recent:
        if recent.seq != call.seq or recent.is_point_to_point:  # to compare groups takes longer
            continue
        if recent.place_in_group == call.place_in_group:
            return recent
    return None
