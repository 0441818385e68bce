"""The bracket of verified and attacked examples, and its contradictions."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.contract.results import Bracket, EvaluationResult, Metric, Results, Warning
from assay.service.contract.threat import Threat
from assay.service.metrics.compare.bracket import bracket_line, brackets
from assay.service.plots.kinds import LabelledResults, plots_of
from assay.service.signing.statement import content_of

IDS = ["a", "b", "c", "d"]
METRIC = Metric(
    value=0.5, n=4, ci_low=0.1, ci_high=0.9, ci_method="wilson", higher_is_better=True, unit="proportion"
)
ATTACK = Threat(knowledge="white_box", search="iterative")
NOISE = Threat(knowledge="noise")
MINIMAL = Threat(knowledge="white_box", search="iterative", minimum_norm=True)


def result(name: str, epsilon: Any, metric: str = "top1", **more: Any) -> EvaluationResult:
    params = {"epsilon": epsilon, "norm": more.pop("norm", "Linf"), **more.pop("params", {})}
    fields = {"data": {"name": "digits", "params": {}}, "protocol": "pixel", "backend": "native"} | more
    costs = {"seconds": 1.0, "forward_passes": 1, "backward_passes": 1}
    return EvaluationResult(name=name, params=params, metrics={metric: METRIC}, **fields, **costs)


def proof(epsilon: Any, safe: str, **more: Any) -> tuple[EvaluationResult, dict[str, Any]]:
    """A verified row, and the examples that it verifies."""
    rows = {"id": IDS, "verified": [one in safe for one in IDS]}
    return result("proof", epsilon, "verified_top1", **more), rows


def attack(epsilon: Any, broken: str, **more: Any) -> tuple[EvaluationResult, dict[str, Any]]:
    rows = {"id": IDS, "correct": [one not in broken for one in IDS]}
    return result("ascent", epsilon, **more), rows


def nearest(*sizes: float, **more: Any) -> tuple[EvaluationResult, dict[str, Any]]:
    """An attack without a radius, and the distance of each example; infinite where it found nothing."""
    correct = [size == float("inf") for size in sizes]
    ways = [0.0 if none else size for none, size in zip(correct, sizes, strict=True)]
    rows = {"id": IDS, "correct": correct, "clean_correct": [True] * 4, "linf": ways}
    one = result("minimal", None, "median_distance", **more)
    one.params.pop("epsilon")
    return one, rows


def made(*sides: tuple[EvaluationResult, dict[str, Any]]) -> tuple[list[Bracket], list[Warning]]:
    # Two shards: the examples of an evaluation are not in one piece.
    shards = {
        place: [{name: column[part] for name, column in rows.items()} for part in (slice(3), slice(3, None))]
        for place, (_, rows) in enumerate(sides)
    }
    threats = {"ascent": ATTACK, "noise": NOISE, "minimal": MINIMAL}
    return brackets({place: one for place, (one, _) in enumerate(sides)}, shards.__getitem__, threats.get)


def values(points: list[Bracket]) -> list[tuple[float, float | None, float | None]]:
    return [
        (
            point.epsilon,
            None if point.verified is None else point.verified.value,
            None if point.attacked is None else point.attacked.value,
        )
        for point in points
    ]


def test_the_worst_case_over_attacks_is_per_example() -> None:
    points, warnings = made(proof(0.1, "a"), attack(0.1, "b"), attack("1/10", "c"))
    assert values(points) == [(0.1, 0.25, 0.5)]  # not the lower of the two rows, 0.75
    assert warnings == []
    assert points[0].verified_by == ["proof"]
    assert points[0].attacked is not None
    assert points[0].attacked.ci_method == "wilson"


def test_proofs_hold_for_smaller_balls_and_attacks_for_larger_ones() -> None:
    points, _ = made(proof(0.1, "ab"), proof(0.3, "a"), attack(0.2, "d"), attack(0.4, "c"))
    assert values(points) == [(0.1, 0.5, None), (0.2, 0.25, 0.75), (0.3, 0.25, 0.75), (0.4, None, 0.5)]


def test_an_example_at_exactly_the_radius_is_broken() -> None:
    points, warnings = made(proof(0.25, "a"), nearest(0.25, 0.5, 0.125, float("inf")))
    assert [(point.epsilon, point.contradictions) for point in points] == [(0.25, ["a"])]
    assert points[0].attacked is not None
    assert points[0].attacked.value == 0.5
    assert [warning.evidence["examples"] for warning in warnings] == [["a"]]
    assert made(proof(0.25, "a"), nearest(0.2500001, 0.5, 0.125, float("inf")))[1] == []


def test_a_contradiction_is_found_across_radii_and_is_invalid() -> None:
    points, warnings = made(proof(0.3, "ab"), attack(0.1, "b"))
    assert [point.contradictions for point in points] == [["b"], ["b"]]
    assert {warning.code for warning in warnings} == {"certified_and_broken"}
    assert {warning.severity for warning in warnings} == {"invalid"}
    assert warnings[0].evidence["examples"] == ["b"]
    # An attack with more room contradicts nothing.
    assert made(proof(0.1, "ab"), attack(0.3, "b"))[1] == []


@pytest.mark.parametrize(
    "other",
    [
        attack(0.1, "a", norm="L2"),
        attack(0.1, "a", protocol="paper"),
        attack(0.1, "a", data={"name": "other", "params": {}}),
        attack(0.1, "a", params={"targeted": True}),
        attack(0.1, "a", warnings=[Warning(code="random_outputs", message="")]),
        (result("noise", 0.1), attack(0.1, "a")[1]),
        (result("unknown", 0.1), attack(0.1, "a")[1]),
        (result("ascent", 0.1), {**attack(0.1, "a")[1], "expected": [0.5] * 4}),
        (result("ascent", 0.1), {"id": ["a", "b", "c", "e"], "correct": [False] * 4}),
    ],
)
def test_rows_of_another_claim_have_no_part(other: tuple[EvaluationResult, dict[str, Any]]) -> None:
    assert made(proof(0.1, "a"), other) == ([], [])
    assert values(made(proof(0.1, "a"), other, attack(0.1, "d"))[0]) == [(0.1, 0.25, 0.75)]


def test_no_outcomes_are_read_without_a_verified_row() -> None:
    def fail(place: int) -> Any:
        raise AssertionError(place)

    assert brackets({0: attack(0.1, "a")[0]}, fail, {"ascent": ATTACK}.get) == ([], [])


def test_lines_plot_and_signed_content() -> None:
    proofs = proof("2/255", "ac"), proof("8/255", "a")
    points, _ = made(*proofs, attack("2/255", "b"), attack("8/255", "d"), proof(0.5, "", norm="L2"))
    assert bracket_line(points[0]) == (
        "robust accuracy in the Linf ball of 2/255: 50.00 % (verified) to 75.00 % (attacked), n = 4"
    )
    tiny, _ = made(proof(1e-9, ""), attack(1e-9, "b"))
    assert bracket_line(tiny[0]) == (
        "robust accuracy in the Linf ball of 1e-09: 0.00 % (verified) to 75.00 % (attacked), n = 4;"
        " that none is verified says nothing against the model"
    )
    results = Results(job="j", complete=True, evaluations=[], bracket=points, provenance=None)
    plot = plots_of([LabelledResults("mine", results)])["bracket"]
    assert "50.00 %" in plot["description"]
    assert {row["side"] for row in plot["data"]["values"]} == {"attacked", "verified"}
    # Between two radii: what is verified at the larger one, what no attack broke at the smaller one.
    band = {"x": pytest.approx(2), "x2": pytest.approx(8), "low": 0.25, "high": 0.75}
    assert plot["layer"][0]["data"]["values"] == [band]
    assert [layer["mark"].get("interpolate") for layer in plot["layer"]] == [
        None,
        "step-after",
        "step-before",
        None,
    ]
    assert plots_of([LabelledResults("one", results), LabelledResults("two", results)]) == {}
    # The content of results that were signed before there were brackets is the same.
    assert content_of(results)["bracket"]
    assert "bracket" not in content_of(results.model_copy(update={"bracket": []}))


def test_an_attack_that_minimises_the_norm_counts_at_every_radius() -> None:
    far = nearest(0.05, 0.15, 0.3, float("inf"))
    points, warnings = made(proof(0.1, "cd"), attack(0.2, ""), far)
    assert values(points) == [(0.1, 0.5, 0.75), (0.2, None, 0.5)]
    assert [point.attacked_by for point in points] == [["minimal"], ["ascent", "minimal"]]
    assert warnings == []
    points, warnings = made(proof(0.1, "ad"), far)
    assert values(points) == [(0.1, 0.5, 0.75)]
    assert warnings[0].evidence["examples"] == ["a"]
    assert made(proof(0.1, "cd"), nearest(0.05, 0.15, 0.3, 0.4, norm="L2"))[0] == []
