"""Colours, fonts and frame of all plots.

Colours are from Okabe and Ito 2008, "Color Universal Design", for any colour vision; marks and dashes differ
with them: no plot depends on colour. The renderer's font has the widths of Arial; a PDF embeds it.

A spec is a Vega-Lite v6 specification as plain JSON. Its data are inline, never an address or a file, and
texts of users are values, never in an expression.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any, Literal

Vega = dict[str, Any]
DataRows = list[dict[str, Any]]
Scheme = Literal["light", "dark"]

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
WIDTH, HEIGHT = 250, 170  # Pixels, 72 to the inch in a PDF: about a column of 3.3 inches.
MAX_LABEL = 60
MAX_NAME = 44  # Of a legend: a longer name loses its middle, as names that begin alike differ at the end.
NARROW, NARROW_TITLE, NARROW_RIGHT = 200, 270, 20  # Pixels of a panel, a title and the padding on a phone
LINE = "line"
PERCENT = "%"  # Decimals follow from the step: no two ticks read alike
MAX_TITLE, MAX_TEXT = 90, 2000

PALETTES: Mapping[Scheme, tuple[str, ...]] = {  # Without yellow on white, dark blue on black: hard to see.
    "light": ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#737373"),
    "dark": ("#56b4e9", "#e69f00", "#2cc79b", "#cc79a7", "#f0e442", "#ff8a3d", "#ffffff", "#a6a6a6"),
}
BOX = "M-0.89,-0.89H0.89V0.89H-0.89Z"  # In a box from -1 to 1: Vega's name of this shape is an attack's too
SHAPES = (
    "circle", BOX, "triangle-up", "diamond", "triangle-down", "cross", "triangle-right", "triangle-left",
)  # fmt: skip
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [4, 1], [10, 4], [1, 3], [6, 2, 2, 2, 2, 2])
COLOURS: Mapping[Scheme, Mapping[str, str]] = {
    "light": {"ink": "#1a1a1a", "muted": "#595959", "grid": "#e0e0e0", "background": "#ffffff"},
    "dark": {"ink": "#f0f0f0", "muted": "#b8b8b8", "grid": "#3d4248", "background": "#16191d"},
}
# Its padding has 40 pixels at the right: without these fonts a browser takes a wider font.
CONFIG = Template(Path(__file__).with_name("theme.json").read_text(encoding="utf-8"))


def share_axis(field: str, title: str, *, whole: bool = True, **axis: Any) -> Vega:
    """A share in percent, from 0 to 1 or, where not `whole`, around the values."""
    return {
        "field": field,
        "type": "quantitative",
        "title": title,
        "scale": {"domain": [0, 1]} if whole else {"zero": False, "nice": True},
        "axis": {"format": PERCENT, "tickCount": 6, **axis},
    }


def config(scheme: Scheme) -> Vega:
    """The `config` of a spec."""
    found: Vega = json.loads(CONFIG.substitute(COLOURS[scheme]))
    found["view"] |= {"continuousWidth": WIDTH, "continuousHeight": HEIGHT}
    return found | {"range": {"category": list(PALETTES[scheme]), "symbol": list(SHAPES)}}


def themed(spec: Vega, scheme: Scheme, *, narrow: bool = False) -> Vega:
    """The spec in a colour scheme, `narrow` for a phone; its data are shared, not copied."""
    found = config(scheme)
    if not narrow:
        return {**spec, "config": found}
    found["view"]["continuousWidth"] = NARROW
    found["title"] |= {"frame": "bounds", "limit": NARROW_TITLE}
    found["padding"]["right"] = NARROW_RIGHT
    found["legend"] |= {"orient": "bottom", "columns": 1, "layout": {"bottom": {"direction": "vertical"}}}
    return {**_stacked(spec), "config": found}


def _stacked(view: Vega) -> Vega:
    """The view with panels below each other, and a legend in place of names beside lines."""
    found = {("vconcat" if key == "hconcat" else key): value for key, value in view.items()}
    if "concat" in found:
        found["columns"] = 1
    if isinstance(found.get("width"), int):
        found["width"] = min(found["width"], NARROW)
    for key in {"vconcat", "concat", "layer"} & found.keys():
        found[key] = [_stacked(part) for part in found[key]]
    layers = found.get("layer", [])
    others = [layer for layer in layers if "limit" not in layer.get("mark", ())]
    if len(others) < len(layers):
        found["layer"] = [{**layer, "encoding": _with_legends(layer["encoding"])} for layer in others]
    return found


def _with_legends(encoding: Vega) -> Vega:
    shown = {"legend": {"title": None}}
    return {name: {**field, **shown} if "legend" in field else field for name, field in encoding.items()}


def frame(kind: str, title: str, body: Vega, *, description: str, subtitle: str = "") -> Vega:
    """A whole spec in the light scheme; the description has the main numbers, for screen readers."""
    heading: Vega = {"text": shortened(title, MAX_TITLE)}
    if subtitle:
        heading["subtitle"] = without_middle(shortened(subtitle, MAX_TEXT), MAX_TITLE)
    return {
        "$schema": SCHEMA,
        "title": heading,
        "description": shortened(description, MAX_TEXT),
        "usermeta": {"assay": {"kind": kind}},
        **body,
        "config": config("light"),
    }


def shortened(text: str, limit: int = MAX_LABEL) -> str:
    """At most `limit` characters; what cannot be drawn becomes a space."""
    # Cut first: a name may have thousands.
    drawn = "".join(char if char.isprintable() else " " for char in text[: limit + 1])
    return drawn if len(drawn) <= limit else f"{drawn[: limit - 1]}…"


def without_middle(name: str, limit: int = MAX_NAME) -> str:
    """At most `limit` characters of a name: names that begin alike differ at the end, so both ends stay."""
    end = min(24, limit // 2)
    return name if len(name) <= limit else f"{name[: limit - end - 1]}…{name[-end:]}"


def unique_labels(texts: Sequence[str]) -> list[str]:
    """Labels of a legend: long ones without their middle, told apart by a number where two would be equal."""
    labels: list[str] = []
    for place, text in enumerate(texts):
        label = without_middle(shortened(text, MAX_TEXT)) or "(no name)"
        if label in labels:
            ending = f" ({place + 1})"
            label = shortened(label, MAX_NAME - len(ending)) + ending
        labels.append(label)
    return labels


def percent(value: float | None) -> str:
    """A proportion as people read it."""
    return "no value" if value is None else f"{100 * value:.1f} %"


def cycled(field: str, order: Sequence[str], *, title: str | None, legend: bool = True) -> dict[str, Vega]:
    """Encodings `color` and `shape` of a nominal field, with one legend for equal titles."""
    shown: Vega = {"title": title} if legend else {"legend": None}
    common: Vega = {"field": field, "type": "nominal", "sort": list(order), **shown}
    # Where colours begin again, shapes are one further.
    shapes = [SHAPES[(place + place // len(SHAPES)) % len(SHAPES)] for place in range(len(order))]
    return {
        "color": {**common, "scale": {"domain": list(order)}},
        "shape": {**common, "scale": {"domain": list(order), "range": shapes}},
    }


def with_lines(points: DataRows, field: str, order: Sequence[str]) -> DataRows:
    """The points with the number of their line's dash."""
    places = {value: place % len(DASHES) for place, value in enumerate(order)}
    return [{**point, LINE: places[point[field]]} for point in points]


def dashed_lines(count: int, encoding: Vega, **mark: Any) -> list[Vega]:
    """A layer for each dash: as a channel, dashes would cut the legend's marks."""
    return [
        {
            "transform": [{"filter": {"field": LINE, "equal": place}}],
            "mark": {"type": "line", "strokeDash": dash, **mark},
            "encoding": encoding,
        }
        for place, dash in enumerate(DASHES[:count])
    ]
