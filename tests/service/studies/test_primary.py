"""The primary question of a study: what it asks, its one test, and what it answers."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import pytest
from scipy import stats

from assay.service.contract.errors import InvalidSpec
from assay.service.contract.problems import Problems
from assay.service.studies import primary as questions
from assay.service.studies.primary import LEVELS, Primary, check_primary, evaluations_of
from assay.service.studies.result_wire import StudyPrimary, StudyResults
from assay.service.studies.results import StudyPlan, study_results
from assay.service.studies.significance import Spread
from assay.service.studies.text import headline, lines, to_markdown
from tests.support.studies import Method, study_arms
from tests.support.study_specs import check, example

CELLS = [(Method(0.5, 0.1), Method(0.8, 0.1)), (Method(0.06), Method(0.06)), (Method(0.5), Method(0.52))]


def answered(primary: Primary | None, cells: Any = CELLS, key: str = "primary") -> StudyResults:
    plan = StudyPlan("0" * 26, "one", "holm", list(range(6)), primary=primary)
    return study_results(plan, study_arms(cells, 6, 100, key))


def primary_of(results: StudyResults) -> StudyPrimary:
    assert results.primary is not None
    return results.primary


def test_its_test_is_alone_and_the_others_are_adjusted_among_themselves() -> None:
    without, asked = answered(None), answered(Primary(0, None, "other"))
    assert (without.primary, without.tests, asked.tests) == (None, 3, 2)
    alone, *others = (cell.comparisons[0] for cell in asked.cells)
    assert alone.test is not None
    assert alone.primary
    assert alone.test.adjusted_p_value == alone.test.p_value == primary_of(asked).p_value
    assert alone.power is not None
    assert alone.power.level == 0.05
    p_values = sorted(one.test.p_value for one in others if one.test is not None)
    adjusted = sorted(one.test.adjusted_p_value for one in others if one.test is not None)
    assert adjusted[0] == pytest.approx(2 * p_values[0])
    assert {one.power.level for one in others if one.power is not None} == {0.025}
    found = primary_of(asked)
    assert (found.arm, found.baseline, found.metric, found.holds) == ("other", "one", "top1", True)
    assert found.text.startswith("other is better than one by ")
    assert headline(asked) == f"top1 of cell 0: {found.text}.", "what, of which arm, than which"
    assert "| primary |" in to_markdown(asked)
    assert lines(asked)[0].startswith("primary question: other differs from one in top1 of cell 0: other is")


def test_a_primary_metric_that_is_not_among_the_tested_is_tested_for_its_arm() -> None:
    plan = StudyPlan("0" * 26, "one", "holm", list(range(6)), ["none"], Primary(1, None, "other"))
    results = study_results(plan, study_arms(CELLS, 6, 100, "only"))
    assert [cell.tested for cell in results.cells] == [False, True, False]
    assert primary_of(results).p_value is not None
    assert results.tests == 0


@pytest.mark.parametrize(
    ("place", "claim", "margin", "holds", "said"),
    [
        (0, "not_worse", 0.01, True, "other is not worse than one by 1.0 points or more: measured"),
        (2, "not_worse", 0.01, False, "not shown that other is not worse than one by 1.0 points"),
        (1, "equivalent", 0.2, True, "other and one differ by less than 20.0 points: measured"),
        (0, "equivalent", 0.2, False, "not shown that other and one differ by less than 20.0 points"),
        (1, "difference", None, False, "other is not told apart from one: "),
    ],
)
def test_claims(place: int, claim: Any, margin: float | None, holds: bool, said: str) -> None:
    found = primary_of(answered(Primary(place, "top1", "other", claim, margin)))
    assert (found.holds, found.level) == (holds, LEVELS[claim])
    assert found.text.startswith(said)
    assert found.p_value is not None
    assert found.holds == (found.p_value < found.level)


def test_one_sided_tests_are_those_of_student() -> None:
    """Against scipy, with seeds alone random: the margin shifts the mean."""
    rng = random.Random("one-sided")
    for _ in range(50):
        values = [rng.gauss(0.3, 1) for _ in range(7)]
        spread = Spread(math.fsum((v - sum(values) / 7) ** 2 for v in values) / 42, 0.0, 6.0, 1.0)
        mean = sum(values) / 7
        want = stats.ttest_1samp([v + 0.2 for v in values], 0.0, alternative="greater").pvalue
        assert questions._one_sided((mean + 0.2) / spread.error, spread) == pytest.approx(want, rel=1e-6)


@pytest.mark.parametrize(
    ("claim", "difference", "share"), [("not_worse", -0.08, 0.025), ("equivalent", 0.08, 0.05)]
)
def test_at_the_margin_a_claim_holds_as_often_as_its_level(
    claim: Any, difference: float, share: float
) -> None:
    """10,000 studies of six seeds whose differences are normal, exactly as far apart as the margin."""
    assert LEVELS[claim] == share
    rng, held = random.Random(f"margin/{claim}"), 0
    asked, cell = Primary(0, None, "other", claim, 0.08), answered(None).cells[0]
    for _ in range(10_000):
        values = [rng.gauss(difference, 0.02) for _ in range(6)]
        mean = sum(values) / 6
        spread = Spread(math.fsum((v - mean) ** 2 for v in values) / 30, 0.0, 5.0, 1.0)
        found = cell.comparisons[0].model_copy(update={"difference": mean})
        held += questions._p_value(asked, cell, found, spread) < share
    assert held / 10_000 == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / 10_000))


def wrong(primary: dict[str, Any], **changes: Any) -> dict[str, tuple[str, Any]]:
    with pytest.raises(InvalidSpec) as caught:
        check(example() | {"primary": primary} | changes)
    return {".".join(map(str, one.loc)): (one.message, one.nearest) for one in caught.value.details}


def test_what_is_wrong_with_it_is_said_at_its_fields() -> None:
    found = wrong({"evaluation": "pgdd", "arm": "rcp", "margin": 0.01})
    assert found["primary.evaluation"] == ("the study has no evaluation of this name", "pgd")
    assert found["primary.arm"][0] == "must be an arm that is compared with the baseline"
    assert found["primary.margin"][0] == "the claim 'difference' has no margin"
    two = wrong({"evaluation": "pgd"})
    assert two["primary.params"][0] == "2 evaluations of the name 'pgd' have these parameters; name one"
    with pytest.raises(InvalidSpec) as caught:
        check(example() | {"primary": {"evaluation": "pgd"}})
    (detail,) = [one for one in caught.value.details if one.loc == ["primary", "params"]]
    assert [json.loads(one).keys() for one in detail.allowed] == [{"epsilon"}] * 2, "what tells them apart"
    none = wrong({"evaluation": "pgd", "params": {"epsilon": "3/255"}})
    assert none["primary.params"][0].startswith("no evaluations of the name 'pgd'")
    assert "needs a margin" in wrong({"evaluation": "clean", "claim": "not_worse"})["primary.margin"][0]
    assert wrong({"evaluation": "clean", "metric": "top11"})["primary.metric"][1] == "top1"
    assert "primary.claim" in wrong({"evaluation": "clean", "claim": "better"})
    assert "primary.arm" in wrong({"evaluation": "clean", "arm": "softmax"}), "the baseline itself"
    points = wrong({"evaluation": "clean", "arm": "rpc", "claim": "equivalent", "margin": 20})
    assert points["primary.margin"][0].startswith("is of a share, in which 0.02 are 2 points")
    twice = example()["evaluations"][:1] * 2
    assert "2 times, alike in all" in wrong({"evaluation": "clean"}, evaluations=twice)["evaluations.1"][0]


def test_evaluations_that_differ_in_their_data_alone_are_told_apart() -> None:
    evaluations = [{"name": "clean"}, {"name": "clean", "data": {"name": "svhn"}}]
    changes = {"evaluations": evaluations, "data": {"name": "cifar10"}}
    two = wrong({"evaluation": "clean"}, **changes)["primary.data"]
    assert two[0] == "2 evaluations of the name 'clean' differ in their data set"
    none = wrong({"evaluation": "clean", "data": {"name": "digits"}}, **changes)
    assert none["primary.data"][0].startswith("no evaluations of the name 'clean' are on")
    for place, name in enumerate(("cifar10", "svhn")):
        given = {"evaluation": "clean", "data": {"name": name}}
        valid = check(example() | changes | {"primary": given})
        listed = evaluations_of(valid.templates[0]["evaluate"])
        found = check_primary(valid.spec["primary"], listed, ["softmax", "rpc"], "softmax", Problems())
        assert found is not None
        assert found.position == place


def test_it_is_stored_with_its_arm_and_all_parameters() -> None:
    given = {"evaluation": "pgd", "params": {"epsilon": 8 / 255}}
    stored = check(example() | {"primary": given}).spec["primary"]
    assert (stored["arm"], stored["claim"], stored["params"]["epsilon"]) == ("rpc", "difference", "8/255")
    assert check(example()).spec["primary"] is None
