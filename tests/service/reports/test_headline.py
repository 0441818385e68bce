"""The sentence of a job: counts, words of the task, doubts, and what it says without an attack."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.contract.results import EvaluationResult, Metric, Results, Warning
from assay.service.contract.summaries import JobSummary, SummaryValue
from assay.service.reports.headline import cases, headline, summary


def metric(value: float | None, **changes: Any) -> Metric:
    found: dict[str, Any] = {
        "value": value, "n": 100, "ci_low": None, "ci_high": None, "ci_method": "wilson",
        "higher_is_better": True, "unit": "proportion",
    }  # fmt: skip
    return Metric(**{**found, **changes})


def row(name: str, metrics: dict[str, Metric], epsilon: Any = None, data: str = "digits") -> EvaluationResult:
    return EvaluationResult(
        name=name,
        params={} if epsilon is None else {"epsilon": epsilon},
        data={"name": data, "params": {}},
        protocol="pixel",
        backend="native",
        metrics=metrics,
        seconds=1.0,
        forward_passes=1,
        backward_passes=1,
    )


def results(*rows: EvaluationResult, complete: bool = True, warnings: Any = ()) -> Results:
    return Results(
        job="x", complete=complete, evaluations=list(rows), warnings=list(warnings), provenance=None
    )


def attack(name: str, value: float | None, epsilon: Any, **changes: Any) -> EvaluationResult:
    return row(name, {"top1": metric(value), "attack_success_rate": metric(0.5)}, epsilon, **changes)


CLEAN_ROW = row("clean", {"top1": metric(0.87)})
PGD = attack("pgd", 0.6, "4/255")


def test_the_sentence_counts_what_holds_under_the_strongest_attack() -> None:
    told = headline(results(CLEAN_ROW, attack("fgsm", 0.64, "4/255"), PGD))
    assert told == "60 of 100 images hold at 4/255 under the strongest attack run; clean 87 of 100."


def test_a_grid_has_the_largest_radius_at_which_a_tenth_holds_and_the_last() -> None:
    told = headline(results(CLEAN_ROW, attack("pgd", 0.8, "1/255"), PGD, attack("pgd", 0.03, "8/255")))
    assert told == (
        "60 of 100 images hold at 4/255 under the strongest attack run, 3 of 100 at 8/255; clean 87 of 100."
        " The worst case is told at 4/255: at 8/255 less than 10 % hold."
    )
    told = headline(results(attack("pgd", 0.08, "1/255"), attack("pgd", 0.03, "8/255")))
    assert told.endswith(" The worst case is told at 1/255, the smallest radius run: less than 10 % hold.")


def test_a_weak_attack_at_a_larger_radius_is_no_worst_case_there() -> None:
    """A search at 4/255 says nothing of 8/255, and a useless attack at 8/255 says no more."""
    weak = attack("fgsm", 0.7, "8/255")
    assert headline(results(PGD, weak)) == (
        "60 of 100 images hold at 4/255 under the strongest attack run."
        " Attacks were too weak to count: fgsm at 8/255 left no less than pgd at 4/255."
    )
    told = summary(results(CLEAN_ROW, PGD, weak)).worst
    assert told is not None
    assert (told.value, told.at, told.radius) == (0.6, "4/255", pytest.approx(4 / 255))
    assert cases(results(CLEAN_ROW, PGD, weak))[-1][:2] == ("worst case", "pgd 4/255")
    between = attack("fgsm", 0.61, "6/255")
    assert headline(results(PGD, between, attack("pgd", 0.05, "8/255"))).partition(". ")[2] == (
        "The worst case is told at 4/255: at 8/255 less than 10 % hold."
        " Attacks were too weak to count: fgsm at 6/255 left no less than pgd at 4/255."
    )


@pytest.mark.parametrize(
    ("second", "at"),
    [
        (attack("pgd", 0.6, "8/255"), "8/255"),  # the same attack, with more room
        (attack("fgsm", 0.6, "8/255"), "4/255"),  # the luck of a weak search
        (attack("fgsm", 0.59, "8/255"), "8/255"),
    ],
)
def test_equal_numbers_at_two_radii(second: EvaluationResult, at: str) -> None:
    told = summary(results(PGD, second)).worst
    assert told is not None
    assert told.at == at


def test_nothing_holds_at_either_of_two_radii() -> None:
    told = headline(
        results(attack("pgd", 0.5, "1/255"), attack("pgd", 0.0, "4/255"), attack("fgsm", 0.0, "8/255"))
    )
    assert "0 of 100 at 8/255" in told
    assert "too weak" not in told


def test_noise_is_no_attack() -> None:
    noise = attack("uniform_noise", 0.2, "4/255")
    assert "60 of 100 images hold" in headline(results(CLEAN_ROW, noise, PGD))
    assert headline(results(CLEAN_ROW, noise)) == (
        "20 of 100 images are right under uniform_noise at 4/255; clean 87 of 100; no attack was run."
    )


def test_without_an_attack_the_clean_accuracy_is_told() -> None:
    assert headline(results(CLEAN_ROW)) == "87 of 100 images are right; no attack was run."


def test_accuracies_on_corrupted_and_randomly_changed_examples_are_told_without_an_attack() -> None:
    cells = row("corruptions", {"corrupted_top1": metric(0.569, ci_method="t")})
    noise = [row("token_noise", {"top1": metric(value)}) for value in (0.4, 0.3)]
    found = results(*noise, CLEAN_ROW, cells)
    assert headline(found) == (
        "87 of 100 images are right, 30 of 100 under token_noise, 56.9 % under corruptions;"
        " no attack was run."
    )
    told = summary(found)
    assert (told.clean and told.clean.value, told.worst) == (0.87, None), "noise is no clean accuracy"
    shaken = row("series_noise", {"top1": metric(0.2), "attack_success_rate": metric(0.7)}, data="motions")
    told = summary(results(shaken, row("clean", {"top1": metric(0.9)}, data="motions")))
    assert (told.clean and told.clean.value, told.worst) == (0.9, None), "and no attack"


def test_of_several_norms_the_counted_norm_is_named() -> None:
    other = PGD.model_copy(update={"params": {"epsilon": 0.5, "norm": "L2"}})
    found = results(CLEAN_ROW, attack("fgsm", 0.64, "4/255"), PGD, other)
    assert headline(found).startswith("60 of 100 images hold at 4/255 (Linf) under the strongest attack run;")


def test_nothing_evaluated_says_nothing() -> None:
    assert headline(results()) == ""
    assert headline(results(row("clean", {"top1": metric(None)}))) == ""


def test_an_undefined_metric_is_passed_over() -> None:
    assert headline(results(CLEAN_ROW, attack("pgd", None, "4/255"))) == (
        "No attack has a value, the warnings say why; clean 87 of 100."
    )
    told = headline(results(CLEAN_ROW, attack("pgd", None, "8/255"), PGD))
    assert told.startswith("60 of 100 images hold at 4/255 under the strongest attack run;")


def test_abstentions_are_no_clean_accuracy() -> None:
    smoothed = {"smoothed_top1": metric(0.5), "smoothed_abstained": metric(0.3)}
    assert headline(results(row("smoothing", smoothed))) == "smoothing: smoothed top1 50.0 % (n = 100)."
    told = headline(results(row("smoothing", smoothed), CLEAN_ROW, PGD))
    assert told == "60 of 100 images hold at 4/255 under the strongest attack run; clean 87 of 100."


def test_doubts_come_first() -> None:
    assert headline(results(CLEAN_ROW, complete=False)) == (
        "Not complete, so far: 87 of 100 images are right; no attack was run."
    )
    told = Warning(code="below_chance", severity="invalid", message="a guess")
    doubted = PGD.model_copy(update={"warnings": [told, told]})
    assert headline(results(doubted)).startswith("Invalid (below_chance): 60 of 100 images hold")


@pytest.mark.parametrize(("data", "noun"), [("sst", "sequences"), ("motions", "series"), ("gone", "images")])
def test_examples_have_the_word_of_their_task(data: str, noun: str) -> None:
    clean = row("clean", {"top1": metric(0.87)}, data=data)
    assert headline(results(clean)) == f"87 of 100 {noun} are right; no attack was run."


def test_texts_have_no_radius() -> None:
    swapped = {
        "accuracy_under_attack": metric(0.4), "accuracy": metric(0.9), "attack_success_rate": metric(0.5)
    }  # fmt: skip
    told = headline(results(row("guided_word_swap", swapped, data="sst")))
    assert told == "40 of 100 sequences hold under the strongest attack run; clean 90 of 100."


def test_shares_that_are_no_counts_are_percent_and_other_norms_are_named() -> None:
    seen = {"miou": metric(0.431, ci_method="studentised"), "pixel_accuracy": metric(0.8)}
    attacked = row("segmentation_pgd", seen, "4/255", data="shapes")
    assert headline(results(attacked)) == "mIoU 43.1 % at 4/255 under the strongest attack run."
    other = PGD.model_copy(update={"params": {"epsilon": 0.5, "norm": "L2"}})
    assert " at 0.5 (L2) under " in headline(results(other))


def test_an_attack_without_a_radius_that_leaves_less_is_named() -> None:
    broken = {"top1": metric(0.1), "attack_success_rate": metric(0.88)}
    patch = row("patch_rs", broken).model_copy(update={"params": {"size": 5}})
    told = headline(results(CLEAN_ROW, PGD, patch))
    assert (
        "60 of 100 images hold at 4/255 under the strongest attack run, 10 of 100 under patch_rs size=5"
        in told
    )
    weak = row("patch_rs", {"top1": metric(0.8), "attack_success_rate": metric(0.08)})
    assert "patch_rs" not in headline(results(CLEAN_ROW, PGD, weak))


def test_metrics_without_accuracy_are_beside_those_of_unchanged_examples() -> None:
    numbers = [metric(value, unit="number", higher_is_better=False, ci_method="t") for value in (30.5, 41.25)]
    told = headline(results(*(
        row(name, {"perplexity": one}, data="pydoc")
        for name, one in zip(("perplexity", "word_swap"), numbers, strict=True)
    )))  # fmt: skip
    assert told == "Perplexity 41.25 under word_swap; clean 30.5."
    of_same_words = {"perplexity": numbers[1]} | {
        f"perplexity_unswapped{end}": metric(value, unit="number", ci_method="t")
        for end, value in (("", 31.5), ("_before", 30.75))
    }
    swapped = row("word_swap", of_same_words, data="pydoc")
    assert headline(results(row("perplexity", {"perplexity": numbers[0]}, data="pydoc"), swapped)) == (
        "Perplexity 30.5 clean; perplexity of unswapped words 31.5 under word_swap, 30.75 before;"
        " perplexity with the swapped words 41.25."
    ), "the perplexity of all words counts the swapped ones as they are now"
    error = {"rmse": numbers[1], "clean_rmse": numbers[0]}
    assert (
        headline(results(row("pgd", error, 0.3, "motions"))) == "Rmse 41.25 at 0.3 sd under pgd; clean 30.5."
    )


def test_smallest_perturbations_are_told_by_their_median() -> None:
    found = {
        "median_distance": metric(0.0123, unit="distance"),
        "top1": metric(0.0),
        "attack_success_rate": metric(1.0),
    }
    told = headline(results(CLEAN_ROW, row("ddn", found)))
    assert told == (
        "Half of the images are broken within 0.0123 (L2) under the strongest attack run; clean 87 of 100."
    )


def test_several_data_sets_are_named() -> None:
    other = row("clean", {"top1": metric(0.5)}, data="stripes")
    assert "60 of 100 images of digits hold" in headline(results(CLEAN_ROW, PGD, other))


def test_a_summary_has_the_accuracies_of_the_sentence() -> None:
    found = summary(results(CLEAN_ROW, attack("pgd", 0.8, "1/255"), PGD, attack("pgd", 0.03, "8/255")))
    assert found.clean == SummaryValue(metric="top1", value=0.87, n=100, invalid=[])
    at = {"at": "4/255", "radius": 4 / 255}
    assert found.worst == SummaryValue(metric="top1", value=0.6, n=100, invalid=[], **at)
    assert found.invalid == []


def test_a_summary_marks_the_numbers_that_are_invalid() -> None:
    grave = Warning(code="below_chance", severity="invalid", message="m")
    bad = PGD.model_copy(update={"warnings": [grave]})
    attacked = summary(results(CLEAN_ROW, bad))
    assert attacked.clean is not None
    assert attacked.worst is not None
    assert (attacked.clean.invalid, attacked.worst.invalid) == ([], ["below_chance"])
    clean = summary(results(CLEAN_ROW.model_copy(update={"warnings": [grave]}), PGD))
    assert clean.clean is not None
    assert clean.worst is not None
    assert clean.clean.invalid == clean.worst.invalid == ["below_chance"]
    earlier = attacked.clean.model_copy(update={"invalid": None})
    assert attacked.invalid_codes(earlier) == ["below_chance"], "as the job"


def test_a_summary_without_an_attack_has_no_worst_case() -> None:
    noise = attack("uniform_noise", 0.5, "8/255")
    assert summary(results(CLEAN_ROW, noise)) == summary(results(CLEAN_ROW))
    assert summary(results(CLEAN_ROW)).worst is None
    assert summary(results()) == JobSummary()


def test_a_summary_of_texts_has_no_radius_and_undefined_metrics_none() -> None:
    found = summary(results(CLEAN_ROW, attack("text_attack", 0.25, None)))
    assert found.worst == SummaryValue(metric="top1", value=0.25, n=100, invalid=[])
    assert found.clean is not None
    assert summary(results(attack("pgd", None, "4/255"))) == JobSummary()


def test_a_summary_names_what_makes_the_numbers_invalid() -> None:
    stronger = attack("pgd", 0.95, "4/255")
    told = Warning(code="below_chance", message="", severity="invalid")
    found = summary(results(CLEAN_ROW, stronger.model_copy(update={"warnings": [told]})))
    assert found.invalid == ["below_chance"]


def test_the_cases_are_what_the_sentence_counts() -> None:
    found = results(CLEAN_ROW, attack("fgsm", 0.64, "4/255"), PGD)
    clean, worst = cases(found)
    assert (clean[0], clean[2], clean[3].value) == ("clean", "top1", 0.87)
    assert (worst[0], worst[1], worst[2], worst[3].value) == ("worst case", "pgd 4/255", "top1", 0.6)


def test_cases_without_a_radius_and_without_a_clean_row() -> None:
    assert [case[:3] for case in cases(results(attack("swap", 0.4, None), attack("typo", 0.3, None)))] == [
        ("worst case", "typo", "top1")
    ]
    assert cases(results(CLEAN_ROW)) == []
    assert cases(results(attack("uniform_noise", 0.4, "4/255"))) == []
