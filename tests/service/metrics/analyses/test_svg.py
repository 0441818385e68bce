"""Plots are XML, everything lies inside the picture, and points lie where they should."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from assay.service.contract.results import Metric
from assay.service.metrics.analyses.svg import (
    BAR,
    GAP,
    HEIGHT,
    LEFT,
    PANEL_HEIGHT,
    PANEL_WIDTH,
    TOP,
    Panel,
    Series,
    draw,
    measured,
    span,
    width,
)

SVG = "{http://www.w3.org/2000/svg}"
BOTTOM, RIGHT = TOP + PANEL_HEIGHT, LEFT + PANEL_WIDTH
CORNERS = Series("corners", ((0.0, 10.0), (1.0, 15.0), (2.0, 20.0)))
PANEL = Panel("A title", "x in m", "y in s", (CORNERS,), (0.0, 2.0), (10.0, 20.0))


def elements(panel: Panel, kind: str) -> list[dict[str, str]]:
    return [element.attrib for element in ElementTree.fromstring(draw([panel])).iter(f"{SVG}{kind}")]


def with_style(style: str, **more: object) -> Panel:
    return replace(PANEL, series=(replace(CORNERS, style=style, **more),))  # type: ignore[arg-type]


def test_points_lie_where_their_values_are() -> None:
    found = [(float(c["cx"]), float(c["cy"])) for c in elements(PANEL, "circle")]
    middle = (LEFT + PANEL_WIDTH / 2, TOP + PANEL_HEIGHT / 2)
    assert found == [(LEFT, BOTTOM), middle, (RIGHT, TOP)]


def test_whiskers_go_from_end_to_end_and_unknown_ones_are_not_drawn() -> None:
    panel = with_style("points", whiskers=((10.0, 15.0), (None, 15.0), (15.0, 20.0)))
    drawn = [path["d"] for path in elements(panel, "path") if "V" in path["d"]]
    middle = f"{TOP + PANEL_HEIGHT / 2:.2f}"
    assert drawn == [f"M{LEFT:.2f} {BOTTOM:.2f}V{middle}", f"M{RIGHT:.2f} {middle}V{TOP:.2f}"]


def test_bars_stand_on_the_foot_of_the_panel() -> None:
    bars = [bar for bar in elements(with_style("bars"), "rect") if bar["width"] == str(BAR)]
    assert [float(bar["x"]) + BAR / 2 for bar in bars] == [LEFT, LEFT + PANEL_WIDTH / 2, RIGHT]
    assert [float(bar["height"]) for bar in bars] == [0, PANEL_HEIGHT / 2, PANEL_HEIGHT]
    assert all(float(bar["y"]) + float(bar["height"]) == BOTTOM for bar in bars)


def test_steps_hold_their_height_until_the_next() -> None:
    (line,) = elements(with_style("steps"), "polyline")
    points = [tuple(map(float, point.split(","))) for point in line["points"].split()]
    x, y = (LEFT, LEFT + PANEL_WIDTH / 2, RIGHT), (BOTTOM, TOP + PANEL_HEIGHT / 2, TOP)
    assert points == [(x[0], y[0]), (x[1], y[0]), (x[1], y[1]), (x[2], y[1]), (x[2], y[2]), (x[2], y[2])]


def test_axes_have_their_names_and_numbers() -> None:
    texts = [element.text for element in ElementTree.fromstring(draw([PANEL])).iter(f"{SVG}text")]
    assert {"A title", "x in m", "y in s", "10", "20", "0", "0.5", "2"} <= set(texts)
    named = replace(PANEL, names={0.0: "test", 2.0: "training"}, title="a < b & c")
    texts = [element.text for element in ElementTree.fromstring(draw([named])).iter(f"{SVG}text")]
    assert {"a < b & c", "test", "training"} <= set(texts)
    assert "0.5" not in texts
    whole = [t.text for t in ElementTree.fromstring(draw([replace(PANEL, whole=True)])).iter(f"{SVG}text")]
    assert "0.5" not in whole
    assert "1" in whole


@pytest.mark.parametrize("legend", ["top", "bottom"])
def test_several_series_are_named_and_everything_is_inside(legend: str) -> None:
    several = tuple(replace(CORNERS, label=f"series {number}") for number in range(3))
    panel = replace(PANEL, series=several, legend=legend)  # type: ignore[arg-type]
    root = ElementTree.fromstring(draw([panel, panel]))
    texts = list(root.iter(f"{SVG}text"))
    assert sum(text.text == "series 2" for text in texts) == 2
    assert root.attrib["width"] == str(width(2))
    for text in texts:
        assert 0 <= float(text.attrib["x"]) <= width(2)
        assert 0 <= float(text.attrib["y"]) <= HEIGHT
    places = [float(circle.attrib["cx"]) for circle in root.iter(f"{SVG}circle")]
    assert places[0] == LEFT
    assert places[-1] == LEFT + 2 * PANEL_WIDTH + GAP


def test_a_dark_scheme_has_colours_of_its_own() -> None:
    text = draw([PANEL])
    assert "prefers-color-scheme:dark" in text
    light, _, dark = text.partition("prefers-color-scheme:dark")
    assert ".paper{fill:#fff}" in light
    assert ".paper{fill:#1b1b1b}" in dark
    assert text == draw([PANEL])


def test_a_span_shows_its_values() -> None:
    low, high = span([1.0, 3.0])
    assert low < 1 < 3 < high
    assert span([]) == (0.0, 1.0)
    for value in (0.0, -2.0, 1e9):
        low, high = span([value])
        assert low < value < high


def test_metrics_with_a_value_are_a_series_in_another_unit() -> None:
    known = Metric(value=0.5, n=4, ci_low=0.25, ci_high=None, ci_method="none", higher_is_better=True)
    missing = known.model_copy(update={"value": None})
    series = measured([(0, known), (1, missing), (2, known)], "share", "line", 100)
    assert series == Series("share", ((0.0, 50.0), (2.0, 50.0)), "line", ((25.0, None), (25.0, None)))
    assert sorted(series.heights) == [25.0, 25.0, 50.0, 50.0]
