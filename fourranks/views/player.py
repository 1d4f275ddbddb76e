"""Figures that a reader leafs through with a slider, and one that stands for all of them.

A notebook's output must be readable wherever the notebook is: in Lab while its kernel runs, in Lab when it is
opened again, on a forge, in print. So the output is a picture, which a script turns into a slider where
scripts may run. (A widget would leave "model not found" behind as soon as its kernel is gone.)
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from .style import Figure, Keywords

_PIXELS_PER_DOT = 1.0  # of the frames: there may be many, and they are large
_PAGE = """\
{overview}
<script>
(() => {{
  const frames = {frames};
  const box = document.currentScript.previousElementSibling;
  const image = box.querySelector("img");
  const {{alt, src, width, height}} = image;
  frames.unshift({{title: {whole}, alt, src, width, height}});
  const last = frames.length - 1;
  const bar = document.createElement("div");
  bar.style.cssText = "display: flex; align-items: center; gap: 0.7em; padding: 2px 0 6px";
  bar.innerHTML = `<button type="button" aria-label="Play" style="width: 2.4em">\u25b6</button>
    <input type="range" min="0" max="${{last}}" value="0" aria-label="Round" style="width: 16em">
    <output></output>`;
  box.prepend(bar);
  const [button, slider, name] = bar.children;
  // Their keys are theirs, not Lab's.
  for (const control of [button, slider]) control.dataset.lmSuppressShortcuts = "true";
  let timer = null;
  const stop = () => {{
    clearInterval(timer);
    timer = null;
    Object.assign(button, {{textContent: "\u25b6", ariaLabel: "Play"}});
  }};
  const show = number => {{
    slider.value = number;
    Object.assign(image, frames[number]);
    slider.ariaValueText = name.textContent = image.title;
  }};
  slider.addEventListener("input", () => {{ stop(); show(Number(slider.value)); }});
  button.addEventListener("click", () => {{
    if (timer !== null) return stop();
    show(Number(slider.value) % last + 1);
    Object.assign(button, {{textContent: "\u23f8", ariaLabel: "Pause"}});
    timer = setInterval(() => {{
      show(Number(slider.value) + 1);
      if (Number(slider.value) === last) stop();
    }}, 1200);
  }});
  show(0);
}})();
</script>
"""


class Player:
    """Displays `overview`, with a slider to the `frames` where scripts may run.

    Attributes:
        overview: the figure that shows all steps.
        frames: the name and the figure of each step; none if the overview has but one.
        whole: the slider's name for the overview.
    """

    def __init__(
        self, overview: Figure, frames: Sequence[tuple[str, Figure]], whole: str = "all rounds"
    ) -> None:
        self.overview, self.frames, self.whole = overview, frames, whole

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, str], dict[str, Keywords]]:
        data, metadata = self.overview._repr_mimebundle_()
        if self.frames:
            frames = json.dumps([_frame(*frame) for frame in self.frames])
            data["text/html"] = _PAGE.format(
                overview=data["text/html"], frames=frames, whole=json.dumps(self.whole)
            )
        return data, metadata

    def __repr__(self) -> str:
        return f"<Player: {self.overview.alt}>"


def _frame(name: str, figure: Figure) -> dict[str, str | int]:
    """Return the attributes of its <img>."""
    return {"title": name, "alt": figure.alt, "src": figure.data_url(_PIXELS_PER_DOT), **figure.screen_size}
