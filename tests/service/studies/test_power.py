"""The power of a study, as numbers and in words."""

from __future__ import annotations

import pytest

from assay.service.metrics.statistics.student_t import MIN_P
from assay.service.studies.power import at_level, power_of
from assay.service.studies.significance import Components, resolved

PARTS = Components(0.0, 0.02**2, 0.1**2, 0.4**2)


def test_the_power_is_that_of_its_components() -> None:
    power = power_of(PARTS, 4, 300)
    assert (power.sd_seeds, power.sd_examples, power.sd_rest) == pytest.approx((0.02, 0.1, 0.4))
    assert (power.seeds, power.n, power.assumed, power.resolves, power.least_error) == (
        4,
        300,
        False,
        None,
        None,
    )
    found = at_level(power, 0.01, "number")
    assert found.level == 0.01
    assert found.resolves == pytest.approx(resolved(PARTS, 4, 300, 0.01))
    assert found.with_twice == pytest.approx(resolved(PARTS, 8, 300, 0.01))
    tiny = at_level(power, MIN_P / 10, "number")
    assert tiny.resolves == pytest.approx(resolved(PARTS, 4, 300, MIN_P))


def test_the_least_error_is_kept() -> None:
    found = at_level(power_of(Components(0, 0, 0, 0), 4, 300, least_error=0.02), 0.05, "proportion")
    assert found.least_error == 0.02
    assert found.resolves == pytest.approx(resolved(Components(0, 0, 0, 0), 4, 300, 0.05, least_error=0.02))
    assert at_level(power_of(Components(0, 0, 0, 0), 4, 300), 0.05, "proportion").resolves == 0


def test_one_seed_says_what_three_would_find_if_seeds_were_as_uncertain() -> None:
    found = at_level(power_of(PARTS, 1, 300), 0.05, "proportion")
    assert (found.assumed, found.resolves) == (True, None)
    assert found.with_twice == pytest.approx(resolved(PARTS, 3, 300, 0.05))
    assert "3 seeds would find a difference of" in found.text
    assert "the sampling error of these 300 examples, 3 seeds" in found.text


def test_metrics_without_values_of_examples_name_none() -> None:
    power = power_of(Components(0.0, 0.02**2, 0.0, 0.0), 3, None)
    assert (power.n, power.sd_examples, power.sd_rest) == (None, None, None)
    found = at_level(power, 0.05, "number")
    assert found.resolves == pytest.approx(resolved(Components(0.0, 0.02**2, 0.0, 0.0), 3, 2, 0.05))
    assert found.text.startswith("3 seeds find a difference of")


@pytest.mark.parametrize(("seeds", "said"), [(2, True), (5, True), (6, False)])
def test_few_seeds_are_said_to_be_uncertain(seeds: int, said: bool) -> None:
    text = at_level(power_of(PARTS, seeds, 300), 0.05, "proportion").text
    assert (f"estimated from {seeds} differences, and is itself uncertain" in text) is said


@pytest.mark.parametrize(
    ("spread", "unit", "amount"),  # 5.653 / sqrt(3) = 3.264: shift of a noncentral t of 2 degrees of freedom
    [
        (0.01, "proportion", "3.3 points"),
        (0.01, "ratio", "3.3 points"),
        (0.01, "number", "0.0326"),
        (1.0, "proportion", "more than 100 points (that is: none)"),
        (1.0, "ratio", "326.4 points"),
    ],
)
def test_amounts_are_in_the_unit_of_the_metric(spread: float, unit: str, amount: str) -> None:
    text = at_level(power_of(Components(0.0, spread**2, 0.0, 0.0), 3, 300), 0.05, unit).text  # type: ignore[arg-type]
    assert "80 % power at the level 0.05" in text
    found = text.split("find a difference of ")[1].split(" with")[0]
    assert found == amount


def test_the_power_of_an_anytime_test_is_of_a_look_and_none_with_few_seeds() -> None:
    few = at_level(power_of(PARTS, 3, 300), 0.05, "proportion", anytime=True)
    assert few.resolves is None
    assert few.with_twice == pytest.approx(resolved(PARTS, 6, 300, 0.05, anytime=True))
    assert few.text.startswith("3 seeds find no difference of any size at the level 0.05, 6 seeds one of")
    fixed = at_level(power_of(PARTS, 8, 300), 0.05, "proportion")
    found = at_level(power_of(PARTS, 8, 300), 0.05, "proportion", anytime=True)
    assert (found.resolves or 0) > (fixed.resolves or 0) > 0
    none = at_level(power_of(PARTS, 2, 300), 1e-9, "proportion", anytime=True)
    assert (none.resolves, none.with_twice) == (None, None)
    assert at_level(power_of(PARTS, 1, 300), 0.05, "proportion", anytime=True).text == (
        "one seed says nothing of the spread over seeds"
    )
