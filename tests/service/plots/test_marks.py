"""Pieces that plots share."""

from __future__ import annotations

from assay.service.plots.marks import beside, between, category, quantity


def test_a_field_keeps_the_order_of_what_it_states() -> None:
    stated = quantity("passes", scale={"type": "log"}, title="Passes")
    assert list(stated) == ["field", "type", "scale", "title"]
    assert category("attack") == {"field": "attack", "type": "nominal"}


def test_a_mark_between_two_fields_keeps_the_axis_of_its_channel() -> None:
    axis = quantity("value", title="Accuracy")
    ends = between("y", axis, "low", "high")
    assert ends == {"y": quantity("low", title="Accuracy"), "y2": {"field": "high"}}
    assert axis["field"] == "value"


def test_a_single_panel_is_the_whole_plot() -> None:
    panel = {"mark": "point"}
    assert beside([panel], resolve={}) is panel
    assert beside([panel, panel], resolve={}) == {"hconcat": [panel, panel], "resolve": {}}


def test_panels_that_a_row_has_no_room_for_are_in_rows() -> None:
    panels = [{"width": 290}] * 5
    assert beside(panels) == {"concat": panels, "columns": 3}
    assert beside(panels[:3]) == {"hconcat": panels[:3]}
