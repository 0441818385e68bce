"""Pieces of Vega-Lite specs that several plots draw: fields, layers of marks, panels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from assay.service.plots.theme import HEIGHT, WIDTH, Vega

APART = {"scale": {"color": "independent", "shape": "independent"}}  # Each panel's legend has its own lines.
ROOM, AXIS = 1050, 56  # Pixels of a row of panels whose letters can be read on a page, and of a panel's axis


def category(field: str, **rest: Any) -> Vega:
    """A nominal field, with what else its channel states."""
    return {"field": field, "type": "nominal", **rest}


def quantity(field: str, **rest: Any) -> Vega:
    """A field of numbers, with what else its channel states."""
    return {"field": field, "type": "quantitative", **rest}


def categories(*fields: str) -> list[Vega]:
    """Nominal fields of a tooltip under their own names."""
    return [category(field) for field in fields]


def interval(field: str = "interval") -> Vega:
    """The text of an interval in a tooltip."""
    return category(field, title="95 % interval")


def between(channel: str, axis: Vega, low: str, high: str) -> Vega:
    """A mark from one field to another along an axis, "x" or "y"."""
    return {channel: {**axis, "field": low}, f"{channel}2": {"field": high}}


def band(encoding: Vega, **mark: Any) -> Vega:
    """An area between two fields, without lines at its ends."""
    return {"mark": {"type": "area", "opacity": 0.16, "line": False, **mark}, "encoding": encoding}


def rule(encoding: Vega) -> Vega:
    """The layer of an interval."""
    return {"mark": {"type": "rule", "opacity": 0.7}, "encoding": encoding}


def points(x: Vega, y: Vega, told: Mapping[str, Vega], tooltip: Sequence[Vega], *, size: int) -> Vega:
    """A layer of filled points in the colours and shapes of `cycled`."""
    return {
        "mark": {"type": "point", "filled": True, "size": size, "opacity": 1},
        "encoding": {"x": x, "y": y, "color": told["color"], "shape": told["shape"], "tooltip": tooltip},
    }


def heading(text: str, **rest: Any) -> Vega:
    """The title of a panel."""
    return {"text": text, "fontWeight": "normal", "fontSize": 10, **rest}


def beside(panels: Sequence[Vega], **rest: Any) -> Vega:
    """Panels beside each other, in rows that a page has room for; a single panel is the whole plot."""
    columns = max(2, ROOM // max(map(panel_width, panels)))
    rows = {"hconcat": panels} if len(panels) <= columns else {"concat": panels, "columns": columns}
    return panels[0] if len(panels) == 1 else {**rows, **rest}


def panel_width(panel: Vega) -> int:
    """Pixels of a panel and its axis."""
    return _pixels(panel.get("width"), WIDTH) + AXIS


def panel_height(panel: Vega) -> int:
    """Pixels of a panel without its axis."""
    return _pixels(panel.get("height"), HEIGHT)


def _pixels(side: Any, usual: int) -> int:
    # Plots that earlier versions stored have steps, whose number only a renderer knows.
    return side if isinstance(side, int) else usual
