"""Results in parts that a page shows."""

from __future__ import annotations

from typing import Any

from assay.service.contract.results import Results
from assay.service.dashboard.result_rows import MAX_ROWS, shown_results


def warning(code: str, message: str, severity: str, **evidence: Any) -> dict[str, Any]:
    return {"code": code, "message": message, "severity": severity, "evidence": evidence}


def metric(value: float | None) -> dict[str, Any]:
    return {
        "value": value,
        "n": 4,
        "ci_low": 0.1,
        "ci_high": 0.9,
        "ci_method": "wilson",
        "higher_is_better": True,
        "unit": "proportion",
    }


def evaluation(name: str = "pgd", *, metrics: int = 1, **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "params": {"epsilon": "2/255", "steps": 10, "norm": None},
        "data": {"name": "digits", "params": {}},
        "protocol": "pixel",
        "backend": "native",
        "metrics": {f"metric{i}": metric(0.5) for i in range(metrics)},
        "seconds": 1.0,
        "forward_passes": 4,
        "backward_passes": 0,
    } | changes


def results(*evaluations: dict[str, Any], warnings: Any = ()) -> Results:
    return Results.model_validate(
        {
            "job": "x",
            "complete": True,
            "evaluations": evaluations,
            "warnings": list(warnings),
            "provenance": None,
        }
    )


def test_a_warning_is_shown_once_with_its_evaluations() -> None:
    same = warning("subset", "half of it", "note")
    grave = warning("batch_dependent", "beware", "invalid")
    shown = shown_results(
        results(
            evaluation(warnings=[same]),
            evaluation("square", warnings=[same, grave]),
            warnings=[warning("top5_upper_bound", "all alike", "note", evaluations=[1, 7])],
        )
    )
    found = [(one.number, one.warning.code, one.places, one.everywhere) for one in shown.warnings]
    assert found == [
        (1, "batch_dependent", (1,), False),
        (2, "top5_upper_bound", (1,), False),
        (3, "subset", (0, 1), True),
    ]
    assert [one.number for one in shown.evaluations[1].warnings] == [1, 2, 3]


def test_parameters_that_differ_are_beside_the_name() -> None:
    other = evaluation(params={"epsilon": "4/255", "steps": 10, "norm": None})
    shown = shown_results(results(evaluation(), other, evaluation("clean", params={})))
    assert [one.label for one in shown.evaluations] == ["pgd epsilon=2/255", "pgd epsilon=4/255", "clean"]
    assert any("steps=10" in line for line in shown.shared)


def test_long_results_come_in_pages() -> None:
    many = [evaluation(metrics=100) for _ in range(7)]
    shown = shown_results(results(*many))
    assert shown.pages == (0, 3, 6, 7)
    assert [len(shown.page(number)) for number in (1, 2, 3)] == [3, 3, 1]
    assert shown_results(results(evaluation(metrics=MAX_ROWS + 1))).pages == (0, 1)
    assert shown_results(results()).pages == (0, 0)


def test_published_numbers_stand_beside_the_measured_metric() -> None:
    reference = {"metric": "metric0", "value": 0.842, "source": "a paper", "protocol": "paper"}
    shown = shown_results(results(evaluation(reference=[reference]))).evaluations[0]
    assert shown.references["metric0"][0][0] == "84.2 %"


def test_attacks_come_last_by_name_the_worst_row_first() -> None:
    def measured(name: str, value: float | None, **params: Any) -> dict[str, Any]:
        return evaluation(name, params=params) | {"metrics": {"top1": metric(value)}}

    given = results(
        measured("uniform_noise", 0.1, epsilon="2/255"),
        measured("fgsm", 0.5, epsilon="2/255"),
        measured("pgd", 0.6, epsilon="1/255"),
        measured("pgd", 0.25, epsilon="2/255"),
        measured("clean", 0.9),
        *(
            evaluation(name, params={})
            | {"metrics": {"median_distance": metric(value) | {"unit": "distance"}}}
            for name, value in (("ddn", 1.4), ("fmn", 0.08))
        ),
    )
    shown = shown_results(given.model_copy(update={"headline": "a sentence"}))
    groups = [[one.label for one in group] for group in shown.groups(1)]
    assert groups == [
        ["clean"], ["pgd epsilon=2/255", "pgd epsilon=1/255"], ["fgsm epsilon=2/255"],
        ["fmn"], ["ddn"], ["uniform_noise epsilon=2/255"],
    ]  # fmt: skip
    assert shown.strongest == 3
    assert shown.headline == "a sentence"


def test_parameters_at_their_defaults_are_not_shown() -> None:
    shown = shown_results(results(evaluation(params={"epsilon": "2/255", "steps": 40, "restarts": 1})))
    assert shown.shared == ("pgd: steps=40",), "and protocol and data only where they differ"
