"""A figure of a formula, with sliders for what stands in it. For lectures.

A notebook's output must be readable wherever the notebook is. So the output is the figure for the values at
first; in a browser whose kernel lives, sliders stand above it, and move it (`views.dashboard` does the same).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..views.style import Figure, Keywords


@dataclass(frozen=True)
class Slider:
    """The values that one slider can be set to.

    Attributes:
        values: arguments of the drawing function.
        names: labels of the values, for the reader.
        at: index of the first value that is shown.
    """

    values: Sequence[Any]
    names: Sequence[str]
    at: int


class Playground:
    """A figure as its sliders are set.

    Attributes:
        sliders: by their labels.
        place: a class of the elements on a page that show it.
        settings: of each slider, the index of its value.
    """

    def __init__(self, draw: Callable[..., Figure], sliders: Mapping[str, Slider]) -> None:
        self.sliders, self._draw = sliders, draw
        self.place = f"fourranks-{uuid.uuid4().hex}"
        self.settings = [slider.at for slider in sliders.values()]

    @property
    def figure(self) -> Figure:
        """The figure for the values that are set."""
        pairs = zip(self.sliders.values(), self.settings, strict=True)
        return self._draw(*(slider.values[setting] for slider, setting in pairs))

    def set(self, settings: object) -> None:
        """Set all sliders, to indices of their values; anything but such a list changes nothing."""
        ranges = [range(len(slider.values)) for slider in self.sliders.values()]
        if not isinstance(settings, list) or len(settings) != len(ranges):
            return
        if all(
            isinstance(setting, int) and setting in each
            for setting, each in zip(settings, ranges, strict=True)
        ):
            self.settings = settings

    def controls(self) -> list[Keywords]:
        """Return what a page needs to draw the sliders."""
        return [{"label": label, "names": list(slider.names)} for label, slider in self.sliders.items()]

    def picture(self) -> Keywords:
        """Return the attributes of the image that shows the figure now."""
        figure = self.figure
        return {"src": figure.data_url(), "alt": figure.alt, **figure.screen_size}
