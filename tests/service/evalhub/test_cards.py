from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from evalhub.adapter import JobResults, JobSpec

from assay.service.evalhub.cards import job_results, worst_case
from tests.service.evalhub.conftest import JOB, attack, job_of, results_of, share
from tests.support.result_rows import row

Config = Callable[..., JobSpec]
INVALID = {"code": "zero_gradient", "severity": "invalid", "message": "gradients are zero"}
CLEAN = row("clean", {"top1": share(0.9), "top5": share(0.95)})


def made(config: Config, *rows: dict[str, Any], **changes: Any) -> JobResults:
    return job_results(config(), job_of(list(rows)), results_of(*rows, **changes), "http://assay.example")


def values(found: JobResults) -> dict[str, Any]:
    return {one.metric_name: one.metric_value for one in found.results}


@pytest.mark.parametrize(
    ("given", "name"),
    [
        # Two attacks at 8/255 and one at 64/255, where nothing is left.
        ([("fgsm", "8/255", 0.6), ("pgd", "8/255", 0.5), ("pgd", "64/255", 0.0)], "pgd_epsilon_8_255"),
        # The same radius for a weaker model.
        ([("fgsm", "8/255", 0.05), ("pgd", "8/255", 0.01), ("pgd", "1/255", 0.8)], "pgd_epsilon_8_255"),
        # One attack each: the largest radius.
        ([("pgd", "1/255", 0.8), ("pgd", "4/255", 0.3)], "pgd_epsilon_4_255"),
        # A perturbation of a smaller radius is one of the larger radius.
        ([("fgsm", "1/255", 0.2), ("pgd", "4/255", 0.3)], "fgsm_epsilon_1_255"),
        # Noise is no attack.
        ([("pgd", "4/255", 0.3), ("uniform_noise", "8/255", 0.1)], "pgd_epsilon_4_255"),
    ],
)
def test_the_worst_case_is_within_the_radius_of_most_attacks(
    given: list[tuple[str, str, float]], name: str
) -> None:
    rows = [CLEAN, *(attack(*one) for one in given)]
    case = worst_case(job_of(rows).spec, results_of(*rows))
    assert case is not None
    assert case.name == f"{name}/top1"


def test_without_a_radius_the_lowest_accuracy_of_all_rows_counts() -> None:
    rows = [CLEAN, row("textfooler", {"accuracy_under_attack": share(0.3), "accuracy": share(0.9)})]
    case = worst_case(job_of(rows).spec, results_of(*rows))
    assert case is not None
    assert case.name == "textfooler/accuracy_under_attack"


def test_results_without_an_accuracy_have_no_worst_case(config: Config) -> None:
    perplexity = share(20.0, unit="number", higher_is_better=False)
    found = made(config, row("perplexity", {"perplexity": perplexity}))
    assert "worst_case_accuracy" not in values(found)
    assert values(found)["perplexity/perplexity"] == 20.0
    assert found.additional_info is not None
    assert found.additional_info["judged"] == ""


def test_each_evaluation_has_its_first_metric_with_ends_and_n(config: Config) -> None:
    found = made(config, CLEAN, attack("pgd", "8/255", 0.5))
    assert values(found) == {
        "clean/top1": 0.9, "clean/top1_ci_low": 0.8, "clean/top1_ci_high": 1.0, "clean/top1_n": 100.0,
        "pgd_epsilon_8_255/top1": 0.5, "pgd_epsilon_8_255/top1_ci_low": 0.4,
        "pgd_epsilon_8_255/top1_ci_high": 0.6, "pgd_epsilon_8_255/top1_n": 100.0,
        "worst_case_accuracy": 0.5, "worst_case_accuracy_ci_low": 0.4, "worst_case_accuracy_ci_high": 0.6,
        "worst_case_accuracy_n": 100.0,
    }  # fmt: skip
    first = found.results[0]
    assert (first.confidence_interval, first.num_samples) == ((0.8, 1.0), 100)
    assert found.num_examples_evaluated == 100
    assert found.duration_seconds == 10
    assert found.evaluation_metadata["artifacts"] == {
        "assay.results": f"http://assay.example/api/v1/jobs/{JOB}/results"
    }


def test_the_judgement_is_said_in_words(config: Config) -> None:
    found = made(config, CLEAN, attack("pgd", "8/255", 0.5))
    assert found.additional_info == {
        "assay_job": JOB,
        "headline": "Half hold.",
        "judged": "worst_case_accuracy is pgd_epsilon_8_255/top1: 50.0 % [40.0 %, 60.0 %], n 100;"
        " a threshold is held against the interval's lower end, 40.0 %",
    }


@pytest.mark.parametrize("place", ["row", "job"])
def test_an_invalid_number_has_no_end_to_pass_with(config: Config, place: str) -> None:
    rows = [CLEAN, attack("pgd", "8/255", 0.5, warnings=[INVALID] * (place == "row"))]
    found = made(config, *rows, warnings=[INVALID] * (place == "job"))
    assert "worst_case_accuracy" in values(found)
    assert "worst_case_accuracy_ci_low" not in values(found)
    assert found.additional_info is not None
    assert "invalid (zero_gradient)" in found.additional_info["judged"]


def test_the_card_has_intervals_versions_hashes_and_warnings_of_the_worker(config: Config) -> None:
    card = made(config, CLEAN, attack("pgd", "8/255", 0.5, warnings=[INVALID])).env_card
    assert card is not None
    assert card.confidence_intervals["clean/top1"] == {
        "low": 0.8, "high": 1.0, "n": 100, "method": "wilson", "level": 0.95,
    }  # fmt: skip
    assert set(card.confidence_intervals) == {"clean/top1", "pgd_epsilon_8_255/top1", "worst_case_accuracy"}
    assert (card.model_version, card.dataset_hash, card.cpu_model) == ("ab", "cd", "a processor")
    assert card.key_packages == {"python": "3.11.7", "torch": "2.10.0"}
    assert card.framework_version == "0.1.0"
    assert card.custom["warnings"] == [{**INVALID, "evaluation": "pgd"}]


def test_a_metric_without_a_value_is_left_out(config: Config) -> None:
    nothing = share(None, ci_low=None, ci_high=None, ci_method="none")
    found = made(config, CLEAN, row("top1", {"top1": nothing}))
    assert not any(name.startswith("top1") for name in values(found))
