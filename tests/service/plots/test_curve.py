"""Curves of accuracy against epsilon: where they begin, their panels and their labels."""

from __future__ import annotations

from assay.service.plots.kinds import LabelledResults, plots_of
from tests.support.plot_specs import only, values


def test_a_curve_begins_with_the_accuracy_without_an_attack(job: LabelledResults) -> None:
    spec = plots_of([job])["curve"]
    line = [row for row in spec["data"]["values"] if row["attack"] == "pgd"]
    assert [(row["x"], row["value"]) for row in line] == [(0.0, 0.95), (2.0, 0.7), (4.0, 0.3)]
    assert (line[1]["low"], line[1]["high"]) == (0.7 - 0.04, 0.7 + 0.04)
    published = [row for row in values(spec) if row.get("source") == "Table 1"]
    assert [(row["x"], row["value"]) for row in published] == [(2.0, 0.5)]


def test_norms_have_panels_of_their_own(job: LabelledResults) -> None:
    rows = job.results.evaluations
    other = rows[1].model_copy(update={"params": {"epsilon": 0.5, "norm": "L2"}})
    spec = plots_of([only(job.results, *rows, other)])["curve"]
    assert [panel["layer"][0]["encoding"]["x"]["title"] for panel in spec["vconcat"]] == [
        "ε in 1/255 (L∞)",
        "ε (L2)",
    ]


def test_attacks_of_one_name_are_told_apart_by_what_differs(job: LabelledResults) -> None:
    first, second = (
        job.results.evaluations[1].model_copy(update={"params": {"epsilon": "2/255", "steps": steps}})
        for steps in (10, 100)
    )
    spec = plots_of([only(job.results, first, second)])["curve"]
    assert [row["attack"] for row in spec["data"]["values"]] == ["pgd, steps=10", "pgd, steps=100"]


def test_null_values_and_single_points_are_drawn_or_left_out(job: LabelledResults) -> None:
    attack = job.results.evaluations[2]
    empty = attack.model_copy(
        update={"metrics": {"top1": attack.metrics["top1"].model_copy(update={"value": None})}}
    )
    assert "curve" not in plots_of([only(job.results, empty)])
    unbounded = attack.metrics["top1"].model_copy(update={"ci_low": None, "ci_high": None})
    spec = plots_of([only(job.results, attack.model_copy(update={"metrics": {"top1": unbounded}}))])["curve"]
    (point,) = spec["data"]["values"]
    assert (point["low"], point["value"], point["high"], point["interval"]) == (0.3, 0.3, 0.3, "none")
