"""Plots inside the page of a report."""

from __future__ import annotations

import base64
import logging
from typing import Any

import pytest

from assay.service.plots.render import RenderError
from assay.service.plots.theme import Scheme, Vega
from assay.service.reports.figures import figures

HOSTILE = "<script>alert('x')</script>\"&\u202e"


def drawn(spec: Vega, scheme: Scheme, narrow: bool) -> bytes:
    return f"<svg>{spec.get('description')} {scheme}{' narrow' * narrow}</svg>".encode()


def decoded(address: str) -> str:
    head, _, content = address.partition(",")
    assert head == "data:image/svg+xml;base64"
    return base64.b64decode(content, validate=True).decode()


def test_a_plot_is_there_in_light_and_dark() -> None:
    specs: dict[str, Vega] = {"curve": {"title": "T", "description": HOSTILE}, "cost": {}}
    found, notes = figures(specs, draw=drawn)
    assert notes == []
    assert [(one.kind, one.title, one.description) for one in found] == [
        ("curve", "T", HOSTILE),
        ("cost", "cost", ""),
    ]
    assert decoded(found[0].light) == f"<svg>{HOSTILE} light</svg>"
    assert decoded(found[0].dark) == f"<svg>{HOSTILE} dark</svg>"
    assert [decoded(one) for one in found[0].phone] == [
        f"<svg>{HOSTILE} {scheme} narrow</svg>" for scheme in ("light", "dark")
    ]
    assert list(found[1].phone) == []
    assert "<" not in found[0].light, "an address needs no escapes in a page"


@pytest.mark.parametrize(
    ("title", "shown"),
    [
        ("T", "T"),
        ({"text": "T", "subtitle": "s"}, "T"),
        ({"text": ["two", "lines"]}, "two lines"),
        ({}, "curve"),
    ],
)
def test_titles_of_every_form(title: Any, shown: str) -> None:
    assert figures({"curve": {"title": title}}, draw=drawn)[0][0].title == shown


@pytest.mark.parametrize("error", [RenderError("no renderer"), OSError("no space left")])
@pytest.mark.parametrize("failing", ["light", "dark"])
def test_a_plot_that_cannot_be_drawn_is_a_note_and_the_rest_stays(
    error: Exception, failing: str, caplog: pytest.LogCaptureFixture
) -> None:
    def draw(spec: Vega, scheme: Scheme, narrow: bool) -> bytes:
        if spec.get("title") == "bad" and scheme == failing:
            raise error
        return b"<svg/>"

    with caplog.at_level(logging.WARNING):
        found, notes = figures({"first": {}, "second": {"title": "bad"}, "third": {}}, draw=draw)
    assert [one.kind for one in found] == ["first", "third"]
    assert notes == ["the plot second could not be drawn now"]
    assert str(error) not in notes[0], "readers of the report are not told of the machine"
    assert str(error) in caplog.text


def test_a_plot_for_phones_that_fails_leaves_the_wide_plot() -> None:
    def draw(spec: Vega, scheme: Scheme, narrow: bool) -> bytes:
        if narrow:
            raise RenderError("no renderer")
        return b"<svg/>"

    (found,), notes = figures({"first": {}}, draw=draw)
    assert (found.kind, list(found.phone)) == ("first", [])
    assert notes == ["the plot first could not be drawn now for a phone"]


def test_a_defect_is_not_hidden() -> None:
    def draw(spec: Vega, scheme: Scheme, narrow: bool) -> bytes:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        figures({"curve": {}}, draw=draw)
