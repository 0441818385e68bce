"""Parts of the specs of plots, and jobs with chosen evaluations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from assay.service.contract.results import EvaluationResult, Results
from assay.service.plots.kinds import LabelledResults


def parts(spec: Any) -> Iterator[dict[str, Any]]:
    """Every object of a spec."""
    if isinstance(spec, dict):
        yield spec
        for value in spec.values():
            yield from parts(value)
    elif isinstance(spec, list):
        for value in spec:
            yield from parts(value)


def values(spec: Any) -> list[dict[str, Any]]:
    return [row for part in parts(spec) if "values" in part for row in part["values"]]


def only(results: Results, *evaluations: EvaluationResult) -> LabelledResults:
    changed = {"evaluations": list(evaluations), "bracket": []}
    return LabelledResults("a job", results.model_copy(update=changed))
