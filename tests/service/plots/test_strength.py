"""Accuracy left against passes: a staircase for each attack, at an epsilon that two attacks share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.service.contract.results import EvaluationResult, Results
from assay.service.plots.series import LabelledResults
from assay.service.plots.strength import MAX_PANELS, strength
from assay.service.plots.theme import Vega
from tests.support.plot_specs import values
from tests.support.result_rows import row

Curve = list[tuple[float, float]]


def attack(name: str, epsilon: str, **params: Any) -> EvaluationResult:
    return EvaluationResult.model_validate(
        row(name, {}, params={"epsilon": epsilon, "norm": "Linf", **params})
    )


def job(rows: list[EvaluationResult], spent: Mapping[int, Curve]) -> LabelledResults:
    results = Results(job="01", complete=True, evaluations=rows, provenance=None)
    return LabelledResults("a job", results, {place: {"spent": curve} for place, curve in spent.items()}, [])


def drawn(rows: list[EvaluationResult], spent: Mapping[int, Curve]) -> Vega:
    found = strength([job(rows, spent)])
    assert found is not None
    return found


PAIR = [attack("pgd", "4/255"), attack("square", "4/255")]
CURVES: dict[int, Curve] = {0: [(0.0, 0.9), (10.0, 0.5), (40.0, 0.25)], 1: [(100.0, 0.75), (5000.0, 0.5)]}


def test_two_attacks_of_a_ball_are_compared_in_words_and_points() -> None:
    spec = drawn(PAIR, CURVES)
    assert spec["description"] == (
        "Accuracy against passes, per example: Linf, ε = 4/255: pgd 25.0 % with 40, square 50.0 % with 5000."
    )
    assert spec["title"]["subtitle"] == "a job: Linf, ε = 4/255"
    steps = [(one["attack"], one["passes"], one["accuracy"]) for one in spec["data"]["values"]]
    assert steps == [
        ("pgd", 10.0, 0.5),
        ("pgd", 40.0, 0.25),
        ("square", 100.0, 0.75),
        ("square", 5000.0, 0.5),
    ], "an axis of logarithms has no 0"
    assert spec["layer"][0]["encoding"]["x"]["scale"] == {"type": "log"}
    assert spec["layer"][0]["mark"]["interpolate"] == "step-after", "between two points nothing was won"


def test_the_end_of_each_attack_has_a_point() -> None:
    dots = drawn(PAIR, CURVES)["layer"][-1]["data"]["values"]
    assert [(one["attack"], one["passes"], one["accuracy"]) for one in dots] == [
        ("pgd", 40.0, 0.25),
        ("square", 5000.0, 0.5),
    ]


def test_one_attack_of_a_ball_is_no_comparison() -> None:
    assert strength([job(PAIR, {0: CURVES[0]})]) is None
    assert strength([job(PAIR, {0: CURVES[0], 1: []})]) is None
    assert strength([job([attack("pgd", "4/255"), attack("square", "8/255")], CURVES)]) is None
    assert strength([]) is None
    assert strength([job(PAIR, CURVES), job(PAIR, CURVES)]) is None, "several jobs"
    other = EvaluationResult.model_validate(row("square", {}, params={"epsilon": "4/255", "norm": "L2"}))
    assert strength([job([PAIR[0], other], CURVES)]) is None, "another norm is another ball"


def test_tallies_without_an_attack_are_left_out() -> None:
    clean = EvaluationResult.model_validate(row("clean", {}))
    spec = drawn([*PAIR, clean], {**CURVES, 2: CURVES[0], 9: CURVES[0]})
    assert {one["attack"] for one in values(spec)} == {"pgd", "square"}


def test_one_attack_with_two_settings_has_two_names() -> None:
    rows = [attack("pgd", "4/255", steps=10), attack("pgd", "4/255", steps=100)]
    names = {one["attack"] for one in values(drawn(rows, CURVES))}
    assert len(names) == 2
    assert all("pgd" in name and "steps=10" in name for name in names), names


def test_the_balls_with_most_attacks_have_panels() -> None:
    rows, spent = [], {}
    for ball in range(1, MAX_PANELS + 3):
        for name in ("a", "b", "c")[: 3 if ball == MAX_PANELS + 2 else 2]:
            spent[len(rows)] = CURVES[0]
            rows.append(attack(name, f"{ball}/255"))
    panels = drawn(rows, spent)["hconcat"]
    assert len(panels) == MAX_PANELS
    assert [len({one["attack"] for one in panel["data"]["values"]}) for panel in panels] == [2, 2, 2, 3]
    orders = [panel["layer"][0]["encoding"]["color"]["scale"]["domain"] for panel in panels]
    assert all(order == orders[0] for order in orders), "an attack has one colour in all panels"
