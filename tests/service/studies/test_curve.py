"""The curve of a study, and the sentence of what it found."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.plots.renderer import _rendered
from assay.service.studies.curve import study_curve
from assay.service.studies.result_wire import StudyResults
from assay.service.studies.text import headline


def cell(
    name: str, first: float, second: float, epsilon: str | None = None, **changes: Any
) -> dict[str, Any]:
    """A metric of two arms over two seeds; `changes` are of the comparison."""
    arms = [
        {
            "arm": arm, "mean": mean, "sd": 0.01, "n": 100,
            "seeds": [{"seed": seed, "value": mean + (0.01, -0.01)[seed], "n": 100} for seed in (0, 1)],
        }
        for arm, mean in (("plain", first), ("new", second))
    ]  # fmt: skip
    power = {
        "seeds": 2, "n": 100, "level": 0.05, "resolves": 0.2, "with_twice": 0.086, "sd_seeds": 0.0,
        "sd_examples": 0.1, "sd_rest": 0.1, "assumed": False, "text": "",
    }  # fmt: skip
    compared = {
        "arm": "new", "baseline": "plain", "compares": "methods", "difference": second - first,
        "ci_low": second - first - 0.05, "ci_high": second - first + 0.05, "seeds": [0, 1], "power": power,
    }  # fmt: skip
    return {
        "evaluation": name, "params": {} if epsilon is None else {"epsilon": epsilon},
        "data": {"name": "digits", "params": {}}, "protocol": "pixel", "metric": "top1",
        "higher_is_better": True, "unit": "proportion", "tested": True, "arms": arms,
        "comparisons": [compared | changes],
    }  # fmt: skip


def student(p: float) -> dict[str, Any]:
    return {"name": "two_way_t", "p_value": p, "adjusted_p_value": p, "statistic": 3.0, "seeds": 2}


def results(*cells: dict[str, Any], **changes: Any) -> StudyResults:
    given = {
        "study": "s", "complete": True, "arms": ["plain", "new"], "seeds": [0, 1], "baseline": "plain",
        "adjust": "holm", "tests": len(cells), "cells": list(cells), "missing": [], "notes": [],
        "warnings": [],
    }  # fmt: skip
    return StudyResults.model_validate(given | changes)


GRID = (cell("clean", 0.9, 0.88), cell("pgd", 0.5, 0.6, "2/255"), cell("pgd", 0.2, 0.26, "4/255"))


def test_means_have_the_range_of_their_seeds_and_differences_their_interval() -> None:
    random = (cell("token_noise", 0.3, 0.3), cell("uniform_noise", 0.1, 0.1, "8/255"))
    spec = study_curve(results(random[0], *reversed(GRID), random[1]))
    assert spec is not None
    means, differences = (panel["data"]["values"] for panel in spec["hconcat"])
    plain = [(one["x"], one["value"], one["low"], one["high"]) for one in means if one["arm"] == "plain"]
    assert plain == [
        (0.0, 0.9, pytest.approx(0.89), pytest.approx(0.91)),
        (2.0, 0.5, pytest.approx(0.49), pytest.approx(0.51)),
        (4.0, 0.2, pytest.approx(0.19), pytest.approx(0.21)),
    ]
    assert [(one["x"], round(one["low"], 2), round(one["high"], 2)) for one in differences] == [
        (0.0, -0.07, 0.03), (2.0, 0.05, 0.15), (4.0, 0.01, 0.11)
    ]  # fmt: skip
    assert "at the largest epsilon plain 20.0 %, new 26.0 %" in spec["description"]
    drawn = _rendered(spec, "svg")
    assert drawn.startswith(b"<svg")
    assert b"Difference from plain" in drawn
    assert b"(points, 95 % interval)" in drawn
    assert b">+10</text>" in drawn


def test_of_equal_grids_the_attack_that_leaves_least_is_drawn() -> None:
    spec = study_curve(results(cell("fgsm", 0.4, 0.4, "4/255"), cell("pgd", 0.2, 0.2, "4/255")))
    assert spec is not None
    assert spec["title"]["subtitle"] == "pgd"


def test_without_an_attack_there_is_no_curve() -> None:
    noise = cell("uniform_noise", 0.1, 0.1, "8/255")
    assert study_curve(results(cell("clean", 0.9, 0.8), noise)) is None
    assert study_curve(results()) is None


def test_the_headline_names_the_surest_difference() -> None:
    found = cell("pgd", 0.5, 0.6, "2/255", test=student(0.001))
    assert headline(results(GRID[0], found, cell("pgd", 0.2, 0.29, "4/255", test=student(0.02)))) == (
        "new is better than plain on pgd 2/255: top1 +10.0 [+5.0, +15.0] points;"
        " 2 of 3 differences are significant."
    )
    surer = cell("clean", 0.9, 0.8, test=student(0.0001))
    calibrated = surer | {"evaluation": "top1", "params": {"ece_bins": 15}}
    perturbed = found | {"evaluation": "series_noise", "params": {"scale": 0.1}}
    for one, other in ((surer, found), (calibrated, found), (surer, perturbed)):
        assert headline(results(one, other)).startswith(f"new is better than plain on {other['evaluation']}")
    unsure = cell("pgd", 0.5, 0.6, "2/255", test=student(0.5))
    assert headline(results(surer, unsure)).startswith("new is worse than plain on clean: top1 -10.0")
    worse = cell("clean", 0.9, 0.8, test=student(0.001))
    assert headline(results(worse)).startswith("new is worse than plain on clean: top1 -10.0")


def test_a_study_that_is_too_small_says_what_more_seeds_would_find() -> None:
    assert headline(results(*GRID)) == (
        "Too small to tell: the largest difference on attacked or corrupted examples is +10.0 [+5.0, +15.0]"
        " points (new, pgd 2/255);"
        " 4 seeds would find 8.6 points."
    )
    large = cell("clean", 0.9, 0.2)
    assert "+10.0 [+5.0, +15.0] points (new, pgd 2/255)" in headline(results(large, *GRID[1:]))
    assert "the largest difference is -70.0" in headline(results(large))
    assert "(new, clean)" in headline(results(large))
    one = cell("clean", 0.9, 0.8, compares="weights", test=student(0.001), power=None)
    assert headline(results(one, complete=False)).startswith("Not complete, so far: Too small to tell")


def test_a_single_arm_has_no_headline() -> None:
    assert headline(results({**GRID[0], "comparisons": []})) == ""
    assert headline(results()) == ""
