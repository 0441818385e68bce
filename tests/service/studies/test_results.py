"""Results of a study from simulated runs: a model against itself, a better one, and what is missing."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest
from scipy import stats

from assay.service.contract.results import Metric, Warning
from assay.service.metrics.paired import Rows
from assay.service.metrics.statistics.multiple_tests import holm
from assay.service.studies.result_wire import StudyResults
from assay.service.studies.results import MeasuredArm, MeasuredRun, StudyPlan, study_results
from assay.service.studies.significance import two_way
from assay.service.studies.text import lines, to_csv, to_markdown
from tests.support.studies import Method, answers, measured, study_arms

STUDY = "0" * 26


def plan(seeds: int, **changes: Any) -> StudyPlan:
    given: dict[str, Any] = {"study": STUDY, "baseline": "one", "adjust": "holm", "seeds": range(seeds)}
    return StudyPlan(**given | {"seeds": list(range(seeds))} | changes)


def found(seeds: int = 6, n: int = 100, key: str = "a", **changes: Any) -> StudyResults:
    cells = [(Method(0.5, 0.1), Method(0.8, 0.1)), (Method(0.06), Method(0.06))]
    return study_results(plan(seeds, **changes), study_arms(cells, seeds, n, key))


def test_a_model_against_itself_differs_in_at_most_5_of_100_studies() -> None:
    """Under PGD its six trainings are right in 2.5 to 10.1 %; McNemar between two of them gave p < 7e-5.

    `benchmarks/studies.py` does the same with whole studies.
    """
    wrong = 0
    for number in range(100):
        p_values = []
        for accuracy in (0.5, 0.06):
            one, other = answers([Method(accuracy)] * 2, 6, 60, f"itself/{accuracy}/{number}")
            components, spread = two_way(
                [list(map(int.__sub__, *pair)) for pair in zip(one, other, strict=True)]
            )
            p_values.append(spread.p_value(abs(components.mean) / spread.error))
        wrong += min(holm(p_values)) < 0.05
    assert wrong <= 5


def test_a_better_method_is_found_and_the_same_one_is_not() -> None:
    better, same = (cell.comparisons[0] for cell in found().cells)
    assert better.test is not None
    assert better.test.adjusted_p_value < 0.01
    assert better.ci_low is not None
    assert better.ci_low > 0.1
    assert same.test is not None
    assert same.test.adjusted_p_value > 0.05


def test_means_and_spreads_are_over_seeds() -> None:
    tables = answers((Method(0.5), Method(0.5)), 3, 80, "means")
    results = study_results(plan(3), [measured("one", [tables[0]]), measured("other", [tables[1]])])
    (cell,) = results.cells
    for arm, runs in zip(cell.arms, tables, strict=True):
        values = [sum(run) / 80 for run in runs]
        mean = sum(values) / 3
        assert arm.mean == pytest.approx(mean)
        assert arm.sd == pytest.approx((sum((value - mean) ** 2 for value in values) / 2) ** 0.5)
        assert [(one.seed, one.value) for one in arm.seeds] == list(enumerate(values))
    assert cell.comparisons[0].difference == pytest.approx(
        (cell.arms[1].mean or 0) - (cell.arms[0].mean or 0)
    )


def test_one_seed_compares_weights_and_has_no_p() -> None:
    results = found(seeds=1)
    one = results.cells[0].comparisons[0]
    assert (one.compares, one.test, results.tests) == ("weights", None, 0)
    assert one.note == "one seed: this compares weights, not methods"
    assert one.ci_low is not None
    assert one.power is not None
    assert (one.power.assumed, one.power.resolves) == (True, None)
    assert "one seed says nothing of the spread over seeds" in one.power.text
    assert "weights, not of methods" in to_markdown(results)


def test_an_arm_that_is_not_trained_is_compared_as_weights() -> None:
    arms = study_arms([(Method(0.5), Method(0.5))], 3, 50, "given")
    given = MeasuredArm("other", trained=False, runs=arms[1].runs)
    results = study_results(plan(3), [arms[0], given])
    assert results.cells[0].comparisons[0].compares == "weights"
    assert any("'other' is not trained" in note for note in results.notes)


def test_arms_with_the_same_answers_do_not_differ() -> None:
    arm = study_arms([(Method(0.5), Method(0.5))], 3, 60, "twin")[0]
    one = study_results(plan(3), [arm, MeasuredArm("other", True, arm.runs)]).cells[0].comparisons[0]
    assert one.difference == 0
    assert one.test is not None
    assert one.test.p_value == 1
    assert one.ci_low is not None
    assert one.ci_high is not None
    assert one.ci_low < -0.05 < 0.05 < one.ci_high, "n is finite"


def test_arms_of_one_configuration_are_noted() -> None:
    arms = study_arms([(Method(0.5), Method(0.5))], 3, 60, "twin", ("one", "other"))
    twins = [MeasuredArm(arm.name, True, arm.runs, "same") for arm in arms]
    (note,) = study_results(plan(3), twins).notes
    assert note.startswith("arms 'one' and 'other' are the same configuration")
    others = [MeasuredArm(arm.name, True, arm.runs, arm.name) for arm in arms]
    assert study_results(plan(3), others).notes == study_results(plan(3), arms).notes == []


def test_a_radius_as_a_fraction_and_as_a_number_is_one_cell() -> None:
    (arm,) = study_arms([(Method(0.5),)], 2, 20, "radius", ("one",))

    def with_radii(run: MeasuredRun, *radii: object) -> MeasuredRun:
        results = {
            place: run.results[0].model_copy(update={"params": {"epsilon": radius}})
            for place, radius in enumerate(radii)
        }
        return MeasuredRun(run.seed, run.state, results, lambda _: run.columns(0))

    def cells(*radii: object) -> int:
        runs = [with_radii(run, *radii) for run in arm.runs]
        return len(study_results(plan(2), [MeasuredArm("one", True, runs)]).cells)

    assert cells("4/255", 4 / 255) == 1
    assert cells("4/255", 0.0157) == 2


def test_names_of_arms_are_no_markup() -> None:
    arms = study_arms([(Method(0.5), Method(0.5))], 3, 60, "markup", ("one", "<b>*x*</b>|"))
    text = to_markdown(study_results(plan(3), arms))
    assert "&lt;b&gt;\\*x\\*&lt;/b&gt;\\|" in text
    assert "<b>" not in text


def test_runs_that_are_missing_are_told_and_left_out() -> None:
    arms = study_arms([(Method(0.5), Method(0.7))], 4, 50, "missing")
    runs = [arms[1].runs[0], MeasuredRun(1, "running"), *arms[1].runs[2:]]
    results = study_results(plan(4), [arms[0], MeasuredArm("other", True, runs)])
    assert not results.complete
    assert [(one.arm, one.seed, one.state) for one in results.missing] == [("other", 1, "running")]
    assert results.cells[0].comparisons[0].seeds == [0, 2, 3]
    assert len(results.cells[0].arms[0].seeds) == 4


def with_metric(arm: MeasuredArm, values: Mapping[int, float], name: str = "aupr") -> MeasuredArm:
    """The arm with one more metric, which has no values of examples."""
    runs = []
    for run in arm.runs:
        result = run.results[0]
        metric = Metric(
            value=values[run.seed], n=50, ci_low=0, ci_high=1, ci_method="bootstrap", higher_is_better=True,
            unit="proportion",
        )  # fmt: skip
        results = {0: result.model_copy(update={"metrics": {**result.metrics, name: metric}})}
        runs.append(MeasuredRun(run.seed, run.state, results, run.columns))
    return MeasuredArm(arm.name, arm.trained, runs)


def test_a_metric_without_values_of_examples_is_tested_over_seeds() -> None:
    one, other = study_arms([(Method(0.5), Method(0.5))], 3, 50, "aupr")
    arms = [with_metric(one, {0: 0.5, 1: 0.6, 2: 0.4}), with_metric(other, {0: 0.8, 1: 0.87, 2: 0.72})]
    results = study_results(plan(3, metrics=["aupr"]), arms)
    top1, aupr = results.cells
    assert (top1.tested, top1.comparisons[0].test) == (False, None)
    assert top1.comparisons[0].ci_low is not None
    compared = aupr.comparisons[0]
    assert compared.test is not None
    assert (compared.test.name, compared.ci_method, compared.n) == ("paired_t", "t_over_seeds", None)
    expected = stats.ttest_1samp([0.3, 0.27, 0.32], 0)
    assert compared.test.statistic == pytest.approx(expected.statistic)
    assert compared.test.p_value == pytest.approx(expected.pvalue)
    assert "paired t over seeds" in to_markdown(results)


def segmented(arm: MeasuredArm, gain: int) -> MeasuredArm:
    """The arm with a mean IoU of two classes of 40 images, which all gain so many of 300 pixels."""
    runs = []
    for run in arm.runs:
        rng = random.Random("images")
        jitter = random.Random(f"{arm.name}/{run.seed}")
        there = [[rng.randrange(900, 1100) for _ in range(2)] for _ in range(40)]
        right = [[300 + gain + jitter.randrange(9) for _ in range(2)] for _ in range(40)]
        columns = {
            "id": [f"{place:05d}" for place in range(40)],
            "intersection": right, "target": there, "predicted": there,
        }  # fmt: skip
        sums = [[sum(image[one] for image in table) for one in range(2)] for table in (right, there)]
        value = math.fsum(found / (2 * whole - found) for found, whole in zip(*sums, strict=True)) / 2
        miou = Metric(
            value=value, n=40, ci_low=0, ci_high=1, ci_method="t", higher_is_better=True,
            unit="proportion",
        )  # fmt: skip
        results = {0: run.results[0].model_copy(update={"metrics": {"miou": miou}})}
        runs.append(MeasuredRun(run.seed, run.state, results, partial(lambda columns, _: columns, columns)))
    return MeasuredArm(arm.name, arm.trained, runs)


def test_a_mean_iou_has_no_floor_of_shares() -> None:
    """A share of 40 images cannot be told nearer than 4.5 points; a ratio of their pixels can."""
    one, other = study_arms([(Method(0.5), Method(0.5))], 3, 40, "pixels")
    (cell,) = study_results(plan(3), [segmented(one, 0), segmented(other, 20)]).cells
    compared = cell.comparisons[0]
    assert compared.test is not None
    assert (compared.test.name, compared.n) == ("two_way_t", 40)
    assert compared.difference is not None
    assert compared.difference == pytest.approx(0.014, abs=0.003)
    assert compared.ci_low is not None
    assert compared.ci_high is not None
    assert compared.ci_low < compared.difference < compared.ci_high
    assert compared.ci_high - compared.ci_low < 0.01
    assert compared.test.p_value < 0.01


def test_without_any_spread_there_is_no_test() -> None:
    one, other = study_arms([(Method(0.5), Method(0.5))], 3, 50, "flops")
    arms = [with_metric(one, dict.fromkeys(range(3), 0.5)), with_metric(other, dict.fromkeys(range(3), 0.7))]
    compared = study_results(plan(3, metrics=["aupr"]), arms).cells[1].comparisons[0]
    assert (compared.difference, compared.test, compared.ci_low) == (pytest.approx(0.2), None, None)
    assert compared.note is not None
    assert "no interval, no test" in compared.note


def test_other_data_are_not_paired() -> None:
    arms = study_arms([(Method(0.5), Method(0.5))], 3, 50, "data")
    for arm, sha256 in zip(arms, "ab", strict=True):
        for run in arm.runs:
            object.__setattr__(run, "data_sha256", {"digits": sha256 * 64})
    results = study_results(plan(3), arms)
    assert [warning.code for warning in results.warnings] == ["different_data"]
    compared = results.cells[0].comparisons[0]
    assert compared.test is not None
    assert compared.test.name == "paired_t"


def test_adjustments_are_over_all_tests_of_the_study() -> None:
    holm, hochberg = found(), found(adjust="benjamini_hochberg")
    for results in (holm, hochberg):
        tests = [one.test for cell in results.cells for one in cell.comparisons if one.test is not None]
        assert results.tests == len(tests) == 2
    small, large = sorted(
        (one.test.p_value, one.test.adjusted_p_value)
        for cell in holm.cells
        for one in cell.comparisons
        if one.test is not None
    )
    assert small[1] == pytest.approx(min(1, 2 * small[0]))
    assert large[1] == pytest.approx(max(large[0], small[1]))
    assert "Benjamini-Hochberg" in to_markdown(hochberg)
    assert ",benjamini_hochberg," in to_csv(hochberg)


def test_three_arms_have_two_comparisons_in_every_cell() -> None:
    methods = (Method(0.5), Method(0.5), Method(0.7))
    arms = study_arms([methods], 3, 50, "three", ["a", "b", "c"])
    results = study_results(plan(3, baseline="b"), arms)
    assert [one.arm for one in results.cells[0].comparisons] == ["a", "c"]
    assert results.tests == 2
    assert len(to_markdown(results).split("\n\n")[0].splitlines()) == 2 + 2


def turned(columns: Callable[[int], Rows], place: int) -> Rows:
    return {name: list(column)[::-1] for name, column in columns(place).items()}


def test_the_same_runs_give_the_same_bits_in_any_order_of_rows() -> None:
    first = found()
    arms = study_arms([(Method(0.5, 0.1), Method(0.8, 0.1)), (Method(0.06), Method(0.06))], 6, 100, "a")
    for arm in arms:
        for run in arm.runs:
            object.__setattr__(run, "columns", partial(turned, run.columns))
    assert study_results(plan(6), arms) == first


def test_warnings_of_runs_are_counted() -> None:
    arms = study_arms([(Method(0.5), Method(0.5))], 3, 50, "warned")
    masked = Warning(code="zero_gradient", message="of 3 examples", evidence={"count": 3})
    for run in arms[1].runs[:2]:
        result = run.results[0].model_copy(update={"warnings": [masked, masked]})
        object.__setattr__(run, "results", {0: result})
    results = study_results(plan(3), arms)
    assert results.cells[0].warnings == {"zero_gradient": 2}
    assert "caution zero_gradient: cell 0 (runs: 2)" in lines(results)
    assert results.warning_messages == {"zero_gradient": "of 3 examples"}


def test_power_is_told_in_words_once_for_the_best_and_the_worst_cell() -> None:
    told = [line for line in lines(found()) if line.startswith("power: ")]
    assert len(told) == 2
    assert all("6 seeds and 100 examples find a difference of" in line for line in told)
    assert all(cell.metric in line for cell in found().cells[:1] for line in told)


def test_no_difference_is_resolved_that_the_test_could_not_find() -> None:
    """Arms without any disagreement: the test takes the error of Tango's interval at least."""
    same = [[1] * 50 for _ in range(6)]
    results = study_results(plan(6), [measured("one", [same]), measured("other", [same])])
    power = results.cells[0].comparisons[0].power
    assert power is not None
    assert power.least_error == pytest.approx(1.96 / (50 + 1.96**2), rel=1e-4)
    assert power.resolves is not None
    assert power.resolves > 1.96 * power.least_error


def test_one_seed_has_the_level_of_the_tests_to_come() -> None:
    powers = [one.power for cell in found(seeds=1).cells for one in cell.comparisons]
    assert [power.level for power in powers if power is not None] == [0.025, 0.025]
