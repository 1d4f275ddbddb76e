"""The browser's part of widgets in outputs of notebooks: `widget_places.js` keeps a view in each place."""

from __future__ import annotations

from pathlib import Path


def with_places(module: Path) -> str:
    """Return a widget's JavaScript together with `followPlaces`, which it uses."""
    return Path(__file__).with_suffix(".js").read_text(encoding="utf-8") + module.read_text(encoding="utf-8")
