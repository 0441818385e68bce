"""Checks across the evaluations of one job: each is raised by its planted fault, and by nothing near it."""

from __future__ import annotations

import random
from typing import Any

import pytest

from assay.service.catalog.catalog import load
from assay.service.contract.results import EvaluationResult, Metric
from assay.service.contract.threat import Threat
from assay.service.metrics.compare import sanity_checks
from assay.service.metrics.compare.sanity_checks import cross_checks

N = 1000
THREAT_OF = load().threat_of


def row(name: str, top1: float, *, n: int = N, protocol: str = "pixel", **params: Any) -> EvaluationResult:
    metric = Metric(value=top1, n=n, ci_low=0, ci_high=1, ci_method="wilson", higher_is_better=True)
    return EvaluationResult(
        name=name,
        params={"epsilon": "8/255", "norm": "Linf"} | params,
        data={"name": "digits", "params": {}},
        protocol=protocol,  # type: ignore[arg-type]
        backend="native",
        metrics={"top1": metric},
        seconds=1.0,
        forward_passes=1,
        backward_passes=1,
    )


def pgd(epsilon: str | float, top1: float, **params: Any) -> EvaluationResult:
    return row("pgd", top1, epsilon=epsilon, **{"steps": 20, **params})


def pixels(name: str, accuracy: float, epsilon: str, n: int = 20, **params: Any) -> EvaluationResult:
    made = row(name, accuracy, n=n, epsilon=epsilon, **params)
    return made.model_copy(update={"metrics": {"pixel_accuracy": made.metrics["top1"]}})


def codes(*evaluations: EvaluationResult) -> list[str]:
    return [warning.code for warning in cross_checks(evaluations, THREAT_OF)]


def test_step_sizes_at_one_epsilon_are_no_rise_with_epsilon() -> None:
    assert codes(pgd("2/255", 0.5, step_size=0.01), pgd(2 / 255, 0.7, step_size=0.0001)) == []


@pytest.mark.parametrize("name", ["pgd", "fgsm", "square", "apgd_ce", "autoattack", "uniform_noise"])
def test_accuracy_that_rises_with_epsilon(name: str) -> None:
    small = row(name, 0.5, epsilon="2/255")
    assert codes(small, row(name, 0.6, epsilon="4/255")) == ["accuracy_rises_with_epsilon"]
    assert codes(small, row(name, 0.4, epsilon="4/255")) == []
    assert codes(small, row(name, 0.6, epsilon="4/255", norm="L2")) == []
    assert codes(small, row(name, 0.6, epsilon="4/255", protocol="paper")) == []


def test_the_strongest_attack_at_each_epsilon_is_compared() -> None:
    weak, strong = pgd("2/255", 0.7, step_size=0.0001), pgd("2/255", 0.5, step_size=0.01)
    assert codes(weak, strong, pgd("4/255", 0.4)) == []
    assert codes(weak, strong, pgd("4/255", 0.6)) == ["accuracy_rises_with_epsilon"]
    assert codes(strong, pgd("4/255", 0.4), pgd("4/255", 0.6, step_size=0.0001)) == []


@pytest.mark.parametrize(
    ("weaker", "stronger", "code"),
    [
        ("uniform_noise", "fgsm", "noise_stronger_than_gradient"),
        ("uniform_noise", "apgd_ce", "noise_stronger_than_gradient"),
        ("fgsm", "pgd", "single_step_stronger_than_iterative"),
        ("fgsm", "autoattack", "single_step_stronger_than_iterative"),
        ("square", "pgd", "black_box_stronger_than_white_box"),
        ("spsa", "apgd_t", "black_box_stronger_than_white_box"),
        ("transfer", "autoattack", "black_box_stronger_than_white_box"),
    ],
)
def test_attacks_out_of_order(weaker: str, stronger: str, code: str) -> None:
    assert codes(row(weaker, 0.3), row(stronger, 0.4)) == [code]
    assert codes(row(weaker, 0.4), row(stronger, 0.3)) == []
    assert codes(row(weaker, 0.3, epsilon=8 / 255), row(stronger, 0.4)) == [code]
    assert codes(row(weaker, 0.3, epsilon="9/255"), row(stronger, 0.4)) == []
    assert codes(row(weaker, 0.3), row(stronger, 0.4, norm="L2")) == []
    assert codes(row(weaker, 0.3), row(stronger, 0.4, targeted=True)) == []
    assert codes(row(weaker, 0.3, protocol="paper"), row(stronger, 0.4, protocol="paper")) == []


def test_attacks_on_series_are_checked_as_those_on_pixels() -> None:
    found = codes(row("fgsm", 0.3, protocol="series"), row("pgd", 0.4, protocol="series"))
    assert found == ["single_step_stronger_than_iterative"]


def test_a_black_box_is_compared_with_the_best_white_box() -> None:
    assert codes(row("square", 0.3), row("pgd", 0.4), row("apgd_ce", 0.2)) == []
    # FGSM is not meant to stand up to thousands of queries.
    assert codes(row("square", 0.3), row("fgsm", 0.4)) == []


def test_fab_and_carlini_wagner_take_part() -> None:
    for name in ("fab", "fab_t"):
        assert codes(row("square", 0.3), row(name, 0.6)) == ["black_box_stronger_than_white_box"]
        assert codes(row("uniform_noise", 0.3), row(name, 0.6)) == ["noise_stronger_than_gradient"]
        assert codes(row("square", 0.3), row(name, 0.6), row("pgd", 0.2)) == []
    found = codes(row("square", 0.3, norm="L2"), row("carlini_wagner", 0.6, norm="L2"))
    assert found == ["black_box_stronger_than_white_box"]


def test_attacks_of_packages_are_grouped_by_what_they_state() -> None:
    def threat_of(name: str) -> Threat | None:
        stated = {
            "package_queries": {"knowledge": "black_box", "search": "iterative"},
            "package_step": {"knowledge": "white_box", "search": "single_step"},
            "package_l1": {"knowledge": "white_box", "search": "iterative", "norm": "L1"},
        }
        return Threat.model_validate(stated[name]) if name in stated else THREAT_OF(name)

    def found(*evaluations: EvaluationResult) -> list[str]:
        return [warning.code for warning in cross_checks(evaluations, threat_of)]

    def plain(name: str, top1: float) -> EvaluationResult:
        made = row(name, top1)
        del made.params["norm"]
        return made

    assert found(row("package_queries", 0.3), row("pgd", 0.6)) == ["black_box_stronger_than_white_box"]
    assert found(plain("package_queries", 0.3), row("pgd", 0.6)) == ["black_box_stronger_than_white_box"]
    assert found(row("package_step", 0.3), row("pgd", 0.6)) == ["single_step_stronger_than_iterative"]
    assert found(row("square", 0.3), row("package_step", 0.6)) == []
    assert found(plain("package_queries", 0.3), plain("package_l1", 0.6)) == []


def test_an_attack_for_the_smallest_perturbation_does_not_use_the_room_that_it_has() -> None:
    for name in ("fab", "fab_t"):
        assert codes(row("fgsm", 0.3), row(name, 0.6)) == []
        assert codes(row(name, 0.5, epsilon="64/255")) == []


def test_an_attack_that_looks_for_more_than_a_wrong_answer_breaks_less() -> None:
    sure = row("carlini_wagner", 0.6, norm="L2", confidence=20.0)
    assert codes(row("square", 0.3, norm="L2"), sure) == []
    plain = row("carlini_wagner", 0.6, norm="L2", confidence=0.0)
    assert codes(row("square", 0.3, norm="L2"), plain) == ["black_box_stronger_than_white_box"]


def test_results_of_an_attack_that_this_version_lacks_are_compared_with_themselves_only() -> None:
    assert THREAT_OF("gone") is None
    assert codes(row("gone", 0.3), row("pgd", 0.6), row("uniform_noise", 0.2, epsilon="9/255")) == []
    assert codes(row("gone", 0.5, epsilon="64/255")) == []
    grid = [row("gone", 0.5, epsilon="2/255"), row("gone", 0.6, epsilon="4/255")]
    assert codes(*grid) == ["accuracy_rises_with_epsilon"]


def test_noise_is_compared_with_each_attack_in_its_best_setting() -> None:
    noise, fgsm = row("uniform_noise", 0.5), row("fgsm", 0.6)
    assert codes(noise, fgsm, row("pgd", 0.1, steps=20)) == ["noise_stronger_than_gradient"]
    assert codes(noise, row("pgd", 0.7, step_size=0.1), row("pgd", 0.4, step_size=0.01)) == []


def test_other_norms_are_other_balls_though_the_number_is_the_same() -> None:
    descent = row("sparse_l1_descent", 0.3)
    del descent.params["norm"]
    assert codes(descent, row("fgsm", 0.4)) == []
    assert codes(descent, row("square", 0.1)) == []


@pytest.mark.parametrize(
    ("n", "fewer", "warned"),
    [
        (355, 1, False),  # 0.28 points, but one example
        (355, 2, True),
        (4, 1, False),
        (1000, 2, False),  # 0.2 points exactly
        (1000, 3, True),
        (10_000, 20, False),
        (10_000, 21, True),
    ],
)
def test_a_difference_counts_above_two_tenths_of_a_point_and_one_example(
    n: int, fewer: int, warned: bool
) -> None:
    half = n // 2
    square, best = row("square", (half - fewer) / n, n=n), row("pgd", half / n, n=n)
    assert codes(square, best) == (["black_box_stronger_than_white_box"] if warned else [])
    grid = [pgd("2/255", (half - fewer) / n, n=n), pgd("4/255", half / n, n=n)]
    assert codes(*grid) == (["accuracy_rises_with_epsilon"] if warned else [])


@pytest.mark.parametrize("name", ["pgd", "apgd_ce", "apgd_dlr", "apgd_t", "autoattack"])
def test_accuracy_at_a_large_epsilon(name: str) -> None:
    assert codes(row(name, 0.2, epsilon="64/255")) == ["robust_at_large_epsilon"]
    assert codes(row(name, 0.05, epsilon=0.5)) == []
    assert codes(row(name, 0.2, epsilon="63/255")) == []
    assert codes(row(name, 0.2, epsilon=2.0, norm="L2")) == []
    assert codes(row(name, 0.2, epsilon=0.5, targeted=True)) == []
    assert codes(row(name, 0.125, epsilon=0.5, n=8)) == []


@pytest.mark.parametrize("name", ["fgsm", "uniform_noise", "square"])
def test_attacks_that_may_fail_at_a_large_epsilon(name: str) -> None:
    assert codes(row(name, 0.5, epsilon=0.5)) == []


@pytest.mark.parametrize(
    ("name", "effort", "less", "more"),
    [
        ("pgd", "steps", 20, 40),
        ("apgd_ce", "restarts", 1, 5),
        ("square", "queries", 1000, 5000),
        ("spsa", "samples", 16, 128),
        ("uniform_noise", "draws", 1, 10),
    ],
)
def test_more_effort_must_not_help_the_model(name: str, effort: str, less: int, more: int) -> None:
    def tried(amount: int, top1: float, **rest: Any) -> EvaluationResult:
        return row(name, top1, **{effort: amount}, **rest)

    assert codes(tried(less, 0.4), tried(more, 0.5)) == ["accuracy_rises_with_effort"]
    assert codes(tried(more, 0.5), tried(less, 0.4)) == ["accuracy_rises_with_effort"]
    assert codes(tried(less, 0.5), tried(more, 0.4)) == []
    assert codes(tried(less, 0.4), tried(more, 0.4015)) == []
    assert codes(tried(less, 0.4), tried(more, 0.5, other=1)) == []


def test_effort_of_an_attack_without_epsilon() -> None:
    attacks = [row("carlini_wagner", top1, epsilon=None, iterations=n) for n, top1 in ((10, 0.1), (100, 0.2))]
    (warning,) = cross_checks(attacks, THREAT_OF)
    assert warning.code == "accuracy_rises_with_effort"
    assert warning.evidence == {
        "less": {"top1": 0.1, "n": N, "iterations": 10},
        "more": {"top1": 0.2, "n": N, "iterations": 100},
    }


def test_warnings_carry_their_evidence_and_a_remedy() -> None:
    (warning,) = cross_checks([row("square", 0.3), row("pgd", 0.4)], THREAT_OF)
    assert warning.evidence == {
        "square": {"epsilon": "8/255", "top1": 0.3, "n": N},
        "pgd": {"epsilon": "8/255", "top1": 0.4, "n": N},
    }
    assert "believe the lower accuracy" in warning.message


@pytest.mark.parametrize("name", ["segmentation_pgd", "segpgd", "segmentation_apgd", "sea"])
def test_attacks_on_pixels_are_checked_by_pixel_accuracy(name: str) -> None:
    assert codes(pixels(name, 0.5, "2/255"), pixels(name, 0.503, "4/255")) == ["accuracy_rises_with_epsilon"]
    assert codes(pixels(name, 0.5, "2/255"), pixels(name, 0.501, "4/255")) == []
    if name == "segmentation_pgd":
        assert codes(pixels(name, 0.06, "64/255")) == []
        return
    assert codes(pixels(name, 0.06, "64/255")) == ["robust_at_large_epsilon"]
    assert codes(pixels(name, 0.04, "64/255")) == []
    assert codes(pixels(name, 0.06, "63/255")) == []
    less, more = pixels(name, 0.3, "4/255", steps=10), pixels(name, 0.31, "4/255", steps=100)
    assert codes(less, more) == ["accuracy_rises_with_effort"]
    (warning,) = cross_checks([pixels(name, 0.06, "64/255")], THREAT_OF)
    assert warning.evidence == {"epsilon": "64/255", "pixel_accuracy": 0.06, "n": 20}
    assert "square" not in warning.message


def test_attacks_on_the_same_terms_are_those_of_comparing_each_with_each() -> None:
    draw = random.Random(0)
    sets: list[dict[str, Any]] = [
        {"name": name, "params": {"fold": fold}} for name in "ab" for fold in (0, 1)
    ]
    kinds: list[dict[str, Any]] = [{}, {"norm": "L2"}, {"goal": "target"}]
    attacks = []
    for name in draw.choices(("pgd", "fgsm", "square"), k=80):
        epsilon = draw.choice(["1/255", 1 / 255, 1 / 255 + 5e-10, 1 / 255 + 1.2e-9, "2/255", "8/255"])
        own = row(name, draw.random(), epsilon=epsilon, **draw.choice(kinds))
        threat = load().threat_of(name)
        assert threat is not None
        attacks.append((own.model_copy(update={"data": draw.choice(sets)}), threat))
    kept = [one for one in attacks if not sanity_checks._harder(one[0])]

    def same(one: sanity_checks._Attack, other: sanity_checks._Attack) -> bool:
        radii = (sanity_checks._epsilon(one[0]), sanity_checks._epsilon(other[0]))
        ball = sanity_checks._norm(*one) == sanity_checks._norm(*other) and abs(radii[0] - radii[1]) <= 1e-9
        return ball and one[0].data == other[0].data

    expected = [(one, [other for other in kept if same(other, one)]) for one in kept]
    assert sanity_checks._on_same_terms(attacks) == expected
    assert max(len(near) for _, near in expected) > 5
