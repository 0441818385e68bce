"""Plots as SVG: panels side by side, each with lines, points, steps or bars, and whiskers for intervals.

Written by hand because workers have no plotting library. The same values give the same text. Colours follow
the reader's light or dark scheme where the viewer knows it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal
from xml.sax.saxutils import escape

from assay.service.contract.results import Metric

PANEL_WIDTH, PANEL_HEIGHT = 320, 220
LEFT, TOP, GAP, RIGHT, BOTTOM = 64, 36, 84, 16, 44
MAX_TICKS = 6
BAR = 60  # width of a bar
# Series by number; the second of a pair is for a dark background.
COLOURS = (("#0072b2", "#4aa8e0"), ("#d55e00", "#ff8a3d"), ("#007a5a", "#2fc79a"), ("#8a4a9e", "#c38bd6"))
STYLE = (
    "<style>"
    ".paper{fill:#fff}.ink{fill:#333}.grid{stroke:#ddd;fill:none}"
    + "".join(f".f{n}{{fill:{c}}}.s{n}{{stroke:{c};fill:none}}" for n, (c, _) in enumerate(COLOURS))
    + "@media (prefers-color-scheme:dark){.paper{fill:#1b1b1b}.ink{fill:#ddd}.grid{stroke:#444}"
    + "".join(f".f{n}{{fill:{c}}}.s{n}{{stroke:{c}}}" for n, (_, c) in enumerate(COLOURS))
    + "}</style>"
)

Point = tuple[float, float]
Whisker = tuple[float | None, float | None]


@dataclass(frozen=True)
class Series:
    """One set of points (x, y), finite and inside the panel's range, in order of x."""

    label: str  # For the legend, where the panel has more than one
    points: tuple[Point, ...]  # The points
    # A line with a mark at its end; points with whiskers; bars with whiskers, from the foot of the panel; or
    # steps, where a point is the left end of its step
    style: Literal["line", "points", "bars", "steps"] = "points"
    whiskers: tuple[Whisker, ...] = ()  # The interval at each point, or empty; an unknown one is not drawn

    @property
    def heights(self) -> list[float]:
        """The y of all points and all ends of whiskers."""
        ends = [end for whisker in self.whiskers for end in whisker if end is not None]
        return [*(y for _, y in self.points), *ends]


@dataclass(frozen=True)
class Panel:
    """One plot."""

    title: str  # Above it
    x_label: str  # Quantity of x, with its unit
    y_label: str  # Quantity of y, with its unit; empty where the title has it
    series: tuple[Series, ...]  # At most four
    x: Point  # Range of x
    y: Point  # Range of y
    whole: bool = False  # Whether only whole numbers are marked on the x axis
    legend: Literal["top", "bottom"] = "bottom"  # Vertical position of the labels, at the panel's right
    names: Mapping[float, str] = field(default_factory=dict)  # Texts at each x, in place of numbers


@dataclass(frozen=True)
class _Frame:
    panel: Panel
    left: int

    def x(self, value: float) -> float:
        low, high = self.panel.x
        share = 0.5 if high == low else (value - low) / (high - low)
        return self.left + share * PANEL_WIDTH

    def y(self, value: float) -> float:
        low, high = self.panel.y
        return TOP + PANEL_HEIGHT * (1 - (value - low) / (high - low))


def width(panels: int) -> int:
    """Width of a picture of so many panels, in pixels."""
    return LEFT + panels * PANEL_WIDTH + (panels - 1) * GAP + RIGHT


HEIGHT = TOP + PANEL_HEIGHT + BOTTOM


def measured(
    found: Iterable[tuple[float, Metric]],
    label: str = "mean and 95 % interval",
    style: Literal["line", "points", "bars"] = "points",
    scale: float = 1.0,
) -> Series:
    """The metrics with a value, each at its x, and their intervals; values times `scale`."""
    known = [(x, metric.value, metric) for x, metric in found if metric.value is not None]
    points = tuple((float(x), scale * value) for x, value, _ in known)
    ends = tuple((times(scale, one.ci_low), times(scale, one.ci_high)) for *_, one in known)
    return Series(label, points, style, ends)


def times(scale: float, value: float | None) -> float | None:
    """A value in another unit; None where it is not known."""
    return None if value is None else scale * value


def span(values: Sequence[float]) -> Point:
    """A range that shows all values with a margin; (0, 1) without values."""
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    margin = 0.08 * (high - low) or max(abs(high), 1e-300) * 0.5
    return low - margin, high + margin


def draw(panels: Sequence[Panel]) -> str:
    """The text of an SVG file with the panels side by side."""
    size = width(len(panels))
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{size}" height="{HEIGHT}"'
        f' viewBox="0 0 {size} {HEIGHT}" font-family="sans-serif" font-size="12">'
    )
    parts = [head, STYLE, f'<rect class="paper" width="{size}" height="{HEIGHT}" fill="white"/>']
    for number, panel in enumerate(panels):
        frame = _Frame(panel, LEFT + number * (PANEL_WIDTH + GAP))
        parts += _axes(frame)
        for place, series in enumerate(panel.series):
            parts += _series(frame, series, place)
            if len(panel.series) > 1:
                top = (
                    TOP + 16
                    if panel.legend == "top"
                    else TOP + PANEL_HEIGHT - 10 - 16 * (len(panel.series) - 1)
                )
                right = frame.left + PANEL_WIDTH - 6
                parts.append(
                    _text(right, top + 16 * place, series.label, "end", f"f{place}", COLOURS[place][0])
                )
    return "\n".join([*parts, "</svg>\n"])


def ticks(low: float, high: float) -> list[float]:
    """Round numbers from `low` to `high`, at most six; `low` alone where they are equal."""
    if high <= low:
        return [low]
    rough = (high - low) / (MAX_TICKS - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def _axes(frame: _Frame) -> list[str]:
    panel, bottom = frame.panel, TOP + PANEL_HEIGHT
    parts = [_text(frame.left, TOP - 14, panel.title, "start")]
    for value in ticks(*panel.y):
        y = frame.y(value)
        parts.append(f'<path class="grid" d="M{frame.left} {y:.2f}h{PANEL_WIDTH}" stroke="#ddd"/>')
        parts.append(_text(frame.left - 6, y + 4, f"{value:g}", "end"))
    marks = panel.names or {value: f"{value:g}" for value in ticks(*panel.x)}
    for value, name in marks.items():
        if panel.names or not panel.whole or float(value).is_integer():
            parts.append(_text(frame.x(value), bottom + 18, name, "middle"))
    parts.append(_text(frame.left + PANEL_WIDTH / 2, bottom + 36, panel.x_label, "middle"))
    if panel.y_label:
        x, y = frame.left - 48, TOP + PANEL_HEIGHT / 2
        turned = f' transform="rotate(-90 {x} {y:g})"'
        parts.append(_text(x, y, panel.y_label, "middle", more=turned))
    return parts


def _series(frame: _Frame, series: Series, place: int) -> list[str]:
    at = [(frame.x(x), frame.y(y)) for x, y in series.points]
    fill, stroke = f'class="f{place}" fill="{COLOURS[place][0]}"', _stroke(place)
    parts: list[str] = []
    if series.style in ("line", "steps") and at:
        path = at if series.style == "line" else _stepped(at)
        listed = " ".join(f"{x:.2f},{y:.2f}" for x, y in path)
        parts.append(f'<polyline points="{listed}" fill="none" {stroke} stroke-width="1.5"/>')
    if series.style == "bars":
        foot = TOP + PANEL_HEIGHT
        parts += [
            f'<rect x="{x - BAR / 2:.2f}" y="{y:.2f}" width="{BAR}" height="{foot - y:.2f}" {fill}'
            ' fill-opacity="0.6"/>'
            for x, y in at
        ]
    marked = at if series.style == "points" else at[-1:] if series.style == "line" else []
    parts += [f'<circle cx="{x:.2f}" cy="{y:.2f}" r="3" {fill}/>' for x, y in marked]
    for (x, _), (low, high) in zip(at, series.whiskers, strict=False):
        if low is not None and high is not None:
            ends = f"M{x:.2f} {frame.y(low):.2f}V{frame.y(high):.2f}"
            parts.append(f'<path d="{ends}" fill="none" {stroke} stroke-width="1.5"/>')
    return parts


def _stroke(place: int) -> str:
    return f'class="s{place}" stroke="{COLOURS[place][0]}"'


def _stepped(at: Sequence[Point]) -> list[Point]:
    """A step curve: each height is held until the next point."""
    corners = [(x, height) for (_, height), (x, _) in pairwise(at)]
    return [point for pair in zip(at, [*corners, at[-1]], strict=True) for point in pair]


def _text(
    x: float, y: float, text: str, anchor: str, style: str = "ink", colour: str = "#333", more: str = ""
) -> str:
    place = f'x="{x:.2f}" y="{y:.2f}" text-anchor="{anchor}"'
    return f'<text {place} class="{style}" fill="{colour}"{more}>{escape(text)}</text>'
