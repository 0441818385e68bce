"""Results of earlier versions get the units of their metrics, as far as their evaluations are known."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.api.outcome_tables import read_result, table_of
from assay.service.contract.results import EvaluationResult


def stored(name: str, data: str, metric: str) -> dict[str, Any]:
    """A result as a version without units stored it."""
    value = {"value": 0.5, "n": 4, "ci_low": 0.1, "ci_high": 0.9, "ci_method": "wilson"}
    metrics = {metric: value | {"higher_is_better": True}}
    return {
        "name": name, "params": {}, "data": {"name": data, "params": {}}, "protocol": "pixel",
        "backend": "native", "metrics": metrics, "seconds": 1, "forward_passes": 1, "backward_passes": 0,
        "breakdown": [{"corruption": "fog", "severity": 1, "metrics": metrics}],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "data", "metric", "table", "unit"),
    [
        ("clean", "digits", "top1", "classification", "proportion"),
        ("clean", "shapes", "miou", "segmentation", "proportion"),
        ("pgd", "digits", "queries", "attack", "count"),
        ("perplexity", "pydoc", "perplexity", "perplexity", "number"),
        ("clean", "digits", "not_a_metric_of_it", "classification", None),
        ("of_a_package_that_was_removed", "digits", "top1", None, None),
        ("clean", "data_of_a_package_that_was_removed", "top1", None, None),
    ],
)
def test_units_are_those_of_the_table_of_evaluation_and_data(
    name: str, data: str, metric: str, table: str | None, unit: str | None
) -> None:
    old = stored(name, data, metric)
    found = table_of(EvaluationResult.model_validate(old))
    assert (None if found is None else found.name) == table
    result = read_result(old)
    assert result.metrics[metric].unit == unit
    assert result.breakdown[0].metrics[metric].unit == unit
    assert result.metrics[metric].value == 0.5
