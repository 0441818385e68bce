"""Labels, colours and shapes of all plots."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.plots.kinds import LabelledResults, plots_of
from assay.service.plots.theme import COLOURS, MAX_LABEL, PALETTES, SHAPES, cycled, themed, unique_labels


def test_labels_are_short_and_unique() -> None:
    labels = unique_labels(["a" * 100, "a" * 100, "", "b"])
    assert len(set(labels)) == 4
    assert max(map(len, labels)) == MAX_LABEL


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_a_scheme_changes_the_colours_alone(job: LabelledResults, scheme: Any) -> None:
    spec = plots_of([job])["curve"]
    other = themed(spec, scheme)
    assert {key: value for key, value in other.items() if key != "config"} == {
        key: value for key, value in spec.items() if key != "config"
    }
    assert other["config"]["title"]["color"] == COLOURS[scheme]["ink"]
    assert len(PALETTES[scheme]) == len(set(PALETTES[scheme])) == len(SHAPES)


def test_two_values_of_many_never_have_colour_and_shape_in_common() -> None:
    order = [f"value {place}" for place in range(40)]
    shapes = cycled("field", order, title="Field")["shape"]["scale"]["range"]
    looks = [(place % len(PALETTES["light"]), shape) for place, shape in enumerate(shapes)]
    assert len(set(looks)) == len(order)
