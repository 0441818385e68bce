"""Curves of accuracy against epsilon: where they begin, their panels and their labels."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from assay.service.contract.results import EvaluationResult
from assay.service.plots.curve import NAME_GAP, STRONGEST
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
    assert [panel["layer"][0]["encoding"]["x"]["title"] for panel in spec["hconcat"]] == [
        "ε in 1/255 (L∞)",
        "ε (L2)",
    ]
    assert spec["resolve"]["scale"]["color"] == "independent", "each panel names its own lines"


def test_jobs_have_their_colours_in_every_panel_and_kinds_of_accuracy_panels_of_their_own(
    job: LabelledResults, other_job: LabelledResults
) -> None:
    attack = other_job.results.evaluations[1]
    segmented = {**attack.metrics, "miou": attack.metrics["top1"]}
    del segmented["top1"]
    overlap = only(other_job.results, attack.model_copy(update={"metrics": segmented}))
    spec = plots_of([replace(job, label="first"), replace(overlap, label="second")])["curve"]
    for panel in spec["hconcat"]:
        color = panel["layer"][0]["encoding"]["color"]
        assert color["scale"]["domain"] == ["first", "second"]
    titles = [panel["layer"][0]["encoding"]["y"]["title"] for panel in spec["hconcat"]]
    assert titles == ["Accuracy", "mIoU"]
    assert [panel.get("title", {}).get("text") for panel in spec["hconcat"]] == [None, "pgd"]


def test_attacks_of_one_name_are_told_apart_by_what_differs(job: LabelledResults) -> None:
    first, second = (
        job.results.evaluations[1].model_copy(update={"params": {"epsilon": "2/255", "steps": steps}})
        for steps in (10, 100)
    )
    spec = plots_of([only(job.results, first, second)])["curve"]
    named = ["pgd, steps=10", "pgd, steps=100"]
    assert [row["attack"] for row in spec["data"]["values"]] == [STRONGEST, *named]
    other = second.model_copy(update={"data": {"name": "stripes", "params": {}}})
    assert all(
        row["attack"] != STRONGEST for row in values(plots_of([only(job.results, first, other)])["curve"])
    )


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


def test_the_strongest_attack_at_each_radius_is_bold_and_noise_is_apart(job: LabelledResults) -> None:
    clean, two, four = job.results.evaluations[:3]
    other = four.model_copy(
        update={"name": "fgsm", "metrics": {"top1": four.metrics["top1"].model_copy(update={"value": 0.2})}}
    )
    noise = two.model_copy(
        update={
            "name": "uniform_noise",
            "metrics": {"top1": two.metrics["top1"].model_copy(update={"value": 0.01})},
        }
    )
    spec = plots_of([only(job.results, noise, clean, two, four, other)])["curve"]
    drawn = spec["data"]["values"]
    assert [(row["x"], row["value"]) for row in drawn if row["attack"] == STRONGEST] == [
        (0.0, 0.95), (2.0, 0.7), (4.0, 0.2)
    ]  # fmt: skip
    assert list(dict.fromkeys(row["attack"] for row in drawn)) == [STRONGEST, "pgd", "fgsm", "uniform_noise"]
    bold = [one for one in spec["layer"] if one["mark"].get("strokeWidth") == 3]
    assert [one["transform"][0]["filter"]["equal"] for one in bold] == [STRONGEST]
    assert (
        "under the strongest attack at each ε the accuracy goes from 95.0 % without an attack to 20.0 %"
        in spec["description"]
    )


@pytest.mark.parametrize("level", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("count", [2, 3, 9])
def test_names_lie_on_no_line_and_on_no_name(
    job: LabelledResults, count: int, level: float, *, early: bool
) -> None:
    two, four = job.results.evaluations[1:3]

    def attack(name: str, row: EvaluationResult, value: float) -> EvaluationResult:
        top1 = row.metrics["top1"].model_copy(update={"value": value, "ci_low": value, "ci_high": value})
        return row.model_copy(update={"name": name, "metrics": {"top1": top1}})

    rows = [
        attack(name, row, level)
        for name in ("pgd", "fgsm", "autoattack", "square", "apgd_ce", "apgd_dlr", "fab_t", "cw", "deepfool")[
            :count
        ]
        for row in ((two,) if early and name == "autoattack" else (two, four))
    ]
    spec = plots_of([only(job.results, *rows)])["curve"]
    drawn = [row for row in spec["data"]["values"] if "line" in row or "x" in row]
    named = [layer for layer in spec["layer"] if layer["mark"].get("type") == "text"]
    legend = spec["layer"][-1 - len(named)]["encoding"]["color"].get("legend", {})
    assert bool(named) is (count <= 3 and not (early and count == 3))
    assert bool(named) is (legend is None)
    for layer in named:
        names = sorted(layer["data"]["values"], key=lambda one: float(one["value"]))
        assert len(names) == len({row["attack"] for row in drawn})
        assert {one["x"] for one in names} == {max(row["x"] for row in drawn)}
        heights = [one["value"] for one in names]
        assert all(above - below >= NAME_GAP - 1e-9 for below, above in itertools.pairwise(heights))
        assert 0 < heights[0] <= heights[-1] <= 1 + 1e-9


def test_one_attack_is_its_own_strongest(job: LabelledResults) -> None:
    one = only(job.results, *job.results.evaluations[:3])
    assert STRONGEST not in {row["attack"] for row in plots_of([one])["curve"]["data"]["values"]}
    several = plots_of([job, job])["curve"]
    assert STRONGEST not in {row["attack"] for row in several["data"]["values"]}
