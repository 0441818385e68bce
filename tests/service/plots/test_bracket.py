"""The band in which the robust accuracy lies: a proof holds for smaller radii, an attack for larger ones."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.contract.results import Bracket, Metric, Results
from assay.service.plots.bracket import bracket
from assay.service.plots.series import LabelledResults
from assay.service.plots.theme import Vega


def metric(value: float | None) -> Metric:
    ends = {"ci_low": value, "ci_high": value}
    return Metric(value=value, n=50, **ends, ci_method="wilson", higher_is_better=True, unit="proportion")


def point(epsilon: float, verified: float | None, attacked: float | None, **changes: Any) -> Bracket:
    given: dict[str, Any] = {"data": "digits", "norm": "Linf", "epsilon": epsilon, "n": 50}
    values = {"verified": verified, "attacked": attacked}
    sides = {name: None if value is None else metric(value) for name, value in values.items()}
    return Bracket(**{**given, **sides, "verified_by": ["v"], "attacked_by": ["pgd"], **changes})


def job(*points: Bracket) -> LabelledResults:
    results = Results(job="01", complete=True, evaluations=[], bracket=list(points), provenance=None)
    return LabelledResults("a job", results, {}, [])


def drawn(*points: Bracket) -> Vega:
    found = bracket([job(*points)])
    assert found is not None
    return found


def band(panel: Vega) -> list[tuple[float, float, float, float]]:
    rows = panel["layer"][0]["data"]["values"]
    return [(one["x"], one["x2"], one["low"], one["high"]) for one in rows]


def test_the_band_is_proved_at_the_larger_radius_and_attacked_at_the_smaller() -> None:
    """Robust accuracy falls: from e1 to e2 it is proved(e2) at least, attacked(e1) at most"""
    found = band(
        drawn(
            point(0.25, 0.6, 0.9, norm="L2"), point(0.5, 0.4, 0.8, norm="L2"), point(1.0, 0.1, 0.3, norm="L2")
        )
    )
    assert found == [(0.25, 0.5, 0.4, 0.9), (0.5, 1.0, 0.1, 0.8)]


def test_what_nothing_bounds_is_between_0_and_1() -> None:
    found = band(drawn(point(0.25, 0.6, None, norm="L2"), point(0.5, None, 0.8, norm="L2")))
    assert found == [(0.25, 0.5, 0.0, 1.0)]
    undefined = [point(epsilon, 0.6, 0.7, norm="L2") for epsilon in (0.25, 0.5)]
    for one in undefined:
        one.verified = one.attacked = metric(None)
    assert band(drawn(*undefined)) == [(0.25, 0.5, 0.0, 1.0)]


def test_an_attack_that_breaks_everything_leaves_no_room() -> None:
    """0 is a bound, not a missing value."""
    found = band(drawn(point(0.25, 0.0, 0.0, norm="L2"), point(0.5, 0.0, 0.0, norm="L2")))
    assert found == [(0.25, 0.5, 0.0, 0.0)]


def test_radii_in_pixels_are_in_255ths() -> None:
    pixels = drawn(point(2 / 255, 0.5, 0.75))
    values = pixels["data"]["values"]
    assert [one["x"] for one in values] == pytest.approx([2.0, 2.0])
    assert {one["epsilon"] for one in values} == {"2/255"}
    assert "1/255" in pixels["layer"][0]["encoding"]["x"]["title"]
    other = drawn(point(0.5, 0.5, 0.75, norm="L2"))
    assert [one["x"] for one in other["data"]["values"]] == [0.5, 0.5]
    assert "1/255" not in other["layer"][0]["encoding"]["x"]["title"]


def test_a_side_that_was_not_measured_has_no_point() -> None:
    values = drawn(point(0.25, None, 0.9, norm="L2"), point(0.5, 0.4, None, norm="L2"))["data"]["values"]
    assert [(one["side"], one["x"], one["value"], one["n"]) for one in values] == [
        ("attacked", 0.25, 0.9, 50),
        ("verified", 0.5, 0.4, 50),
    ]


def test_the_steps_go_the_way_in_which_each_bound_holds() -> None:
    _, attacked, verified, _ = drawn(point(0.25, 0.5, 0.75, norm="L2"))["layer"]
    assert attacked["mark"]["interpolate"] == "step-after", "for larger radii"
    assert verified["mark"]["interpolate"] == "step-before", "for smaller radii"
    assert drawn(point(0.25, 0.5, 0.75, norm="L2"))["layer"][1]["encoding"]["color"]["scale"]["domain"] == [
        "attacked",
        "verified",
    ]


def test_each_norm_and_data_set_has_a_panel() -> None:
    spec = drawn(point(0.25, 0.5, 0.75), point(0.25, 0.5, 0.75, norm="L2"), point(0.5, 0.5, 0.75))
    assert [len(panel["data"]["values"]) for panel in spec["hconcat"]] == [4, 2]
    two = drawn(point(0.25, 0.5, 0.75), point(0.25, 0.5, 0.75, data="<b>other</b>"))
    assert len(two["hconcat"]) == 2


def test_several_jobs_and_jobs_without_a_bracket_have_none() -> None:
    one = job(point(0.25, 0.5, 0.75))
    assert bracket([one, one]) is None
    assert bracket([job()]) is None
    assert bracket([]) is None
