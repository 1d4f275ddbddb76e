"""The live part of a figure with sliders: hears from a page how they are set, and sends the figure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anywidget
import traitlets

from ..views.style import Keywords
from ..views.widget_places import with_places
from .sliders import Playground


class SliderWidget(anywidget.AnyWidget):
    """Displays a playground; its figure is stored, and the widget finds that on the page."""

    _esm = with_places(Path(__file__).with_name("sliders.js"))
    place = traitlets.Unicode().tag(sync=True)
    controls: traitlets.List[Any] = traitlets.List().tag(sync=True)
    settings: traitlets.List[int] = traitlets.List().tag(sync=True)
    picture = traitlets.Dict().tag(sync=True)  # none before a slider has moved

    def __init__(self, playground: Playground) -> None:
        self._playground = playground
        super().__init__(place=playground.place, controls=playground.controls(), settings=playground.settings)
        self.on_msg(self._hear)

    def _hear(self, _: Any, message: Any, buffers: Any) -> None:
        """Draw for the settings that a page has sent; the page waits for an answer in any case."""
        if isinstance(message, dict):
            self._playground.set(message.get("settings"))
        self.settings, self.picture = self._playground.settings, self._playground.picture()
        self.send({"drawn": True})

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, str], dict[str, Keywords]]:
        data, metadata = self._playground.figure._repr_mimebundle_()
        data["text/html"] = f'<div class="{self.place}">{data["text/html"]}</div>'
        return data, metadata
