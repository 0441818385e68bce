"""Labels, colours and shapes of all plots."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from assay.service.plots.kinds import LabelledResults, plots_of
from assay.service.plots.renderer import _rendered
from assay.service.plots.sizes import svg_size
from assay.service.plots.theme import COLOURS, MAX_NAME, PALETTES, SHAPES, cycled, themed, unique_labels


def test_labels_are_short_and_unique() -> None:
    labels = unique_labels(["a" * 100, "a" * 100, "", "b"])
    assert len(set(labels)) == 4
    assert max(map(len, labels)) == MAX_NAME


def test_names_that_begin_alike_differ_in_what_a_legend_shows() -> None:
    long = "RPC against softmax attention on digits, trained for 25 epochs: "
    names = [f"{long}{arm}, seed {seed}" for arm in ("softmax", "RPC") for seed in (0, 1)]
    labels = unique_labels(names)
    assert [label[-14:] for label in labels] == [name[-14:] for name in names]
    assert {label[:21] for label in labels} == {long[:21]}


@pytest.mark.parametrize("several", [False, True])
def test_on_a_phone_panels_and_legends_are_below_each_other(job: LabelledResults, several: bool) -> None:
    jobs = [job, replace(job, label="w" * 100)] if several else [job]
    for kind, spec in plots_of(jobs).items():
        narrow = themed(spec, "light", narrow=True)
        drawn = _rendered(narrow, "svg")
        size = svg_size(drawn)
        assert size is not None
        assert size[0] < 390, kind
        if kind == "curve":
            legend = re.findall(rb'role-legend-label"[^>]*><text[^>]*>([^<]+)<', drawn)
            assert {b"pgd", b"autoattack"} <= set(legend), "names beside lines became a legend"


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
