"""A comparison of jobs as the rows of a page: a row for each metric, in it a cell for each job."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from assay.service.contract.results import EvaluationResult, Results, Unit, Warning
from assay.service.contract.warning_codes import SEVERITIES, SEVERITY, Severity
from assay.service.metrics.compare.comparison import ComparedValue, Comparison, ComparisonRow
from assay.service.reports.comparisons import TESTS, over_common
from assay.service.reports.headline import counted_row
from assay.service.reports.numbers import (
    WITHOUT,
    difference_bounds,
    number,
    param_text,
    row_params,
    split_params,
)

# A difference with a lower adjusted p is significant.
LEVEL = 0.05
# Parts of a spec whose parameters are compared.
COMPARED = ("model", "data", "recipe", "seed", "limit", "execution")
ADJUSTED = {"holm": "Holm", "benjamini_hochberg": "Benjamini-Hochberg"}


@dataclass(frozen=True)
class ComparedCell:
    """A job's value beside the baseline's."""

    letter: str
    value: str
    interval: str
    difference: str
    difference_interval: str
    common: int | None
    over: str  # the common examples, where the values are over others too
    p_value: str
    adjusted_p_value: str
    test: str
    verdict: str


@dataclass(frozen=True)
class ComparedMetric:
    """A metric of an evaluation in all jobs."""

    evaluation: str
    params: str  # its epsilon, and the parameters that differ among evaluations of its name, as text
    metric: str  # name of the metric
    better: str  # "higher" or "lower"
    value: str
    interval: str
    others: list[ComparedCell | None]


def letters_of(jobs: Sequence[str]) -> dict[str, str]:
    """A letter for each job: A is the baseline."""
    return {job: chr(ord("A") + index) for index, job in enumerate(jobs)}


def compared_metrics(comparison: Comparison, *, every: bool) -> tuple[list[ComparedMetric], list[str]]:
    """The rows of `every` metric or the first of each evaluation; a line for each set of equal parameters."""
    found: dict[str, dict[str, ComparisonRow]] = {}
    first_metric: dict[str, str] = {}
    for row in comparison.rows:
        evaluation = json.dumps([row.evaluation, row.params, row.data, row.protocol], sort_keys=True)
        if every or first_metric.setdefault(evaluation, row.metric) == row.metric:
            found.setdefault(f"{evaluation} {row.metric}", {})[row.values[1].job] = row
    rows = list(found.values())
    params, shared = split_params([_conditions(row) for row in rows])
    letters = letters_of(comparison.jobs)
    return [_metric(row, text, letters) for row, text in zip(rows, params, strict=True)], shared


def answers(comparison: Comparison, results: Results) -> list[tuple[str, str, str]]:
    """What differs between the first job and each other: letter, verdict, and the numbers in words.

    Counted is what the sentence of the first job's `results` counts, else what is tested first; jobs without
    a test are left out.
    """
    counted = counted_row(results)
    letters, found = letters_of(comparison.jobs), dict[str, ComparisonRow]()
    for row in comparison.rows:
        job = row.values[1].job
        if row.test is None:
            continue
        if counted is not None and _measures(row, counted) and not _measures(found.get(job), counted):
            found[job] = row
        found.setdefault(job, row)
    told = []
    for job, row in found.items():
        cell, params = _cell(row, letters[job]), split_params([(row.evaluation, row_params(row))])[0][0]
        text = f"{row.metric} {cell.difference} {cell.difference_interval}".removesuffix(" -")
        text = f"{' '.join(filter(None, (row.evaluation, params)))}: {text}"
        told.append((cell.letter, cell.verdict, f"{text}, adjusted p {cell.adjusted_p_value}"))
    return told


def _measures(row: ComparisonRow | None, result: EvaluationResult) -> bool:
    if row is None:
        return False
    here = (row.evaluation, row.params, row.data, row.protocol)
    return here == (result.name, result.params, result.data, result.protocol)


def _conditions(row: Mapping[str, ComparisonRow]) -> tuple[str, Mapping[str, object]]:
    one = next(iter(row.values()))
    return one.evaluation, row_params(one)


def _metric(row: Mapping[str, ComparisonRow], params: str, letters: Mapping[str, str]) -> ComparedMetric:
    one = next(iter(row.values()))
    baseline = one.values[0]
    value, interval = _value(baseline, one.unit)
    return ComparedMetric(
        evaluation=one.evaluation,
        params=params,
        metric=one.metric,
        better="higher" if one.higher_is_better else "lower",
        value=value,
        interval=interval,
        others=[_cell(row[job], letters[job]) if job in row else None for job in list(letters)[1:]],
    )


def _cell(row: ComparisonRow, letter: str) -> ComparedCell:
    other, test = row.values[1], row.test
    value, interval = _value(other, row.unit)
    bounds = difference_bounds(row.ci_low, row.ci_high, row.unit)
    adjusted = None if test is None else test.adjusted_p_value
    return ComparedCell(
        letter=letter,
        value=value,
        interval=interval,
        difference=number(row.difference, row.unit, sign=True),
        difference_interval=WITHOUT.get(row.ci_method or "", "-") if row.ci_low is None else bounds,
        common=None if test is None else test.n,
        over=over_common(row.common),
        p_value="-" if test is None else p_text(test.p_value),
        adjusted_p_value="-" if adjusted is None else p_text(adjusted),
        test="" if test is None else TESTS.get(test.name, test.name),
        verdict=verdict(row.difference, adjusted, higher_is_better=row.higher_is_better),
    )


def differing(specs: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    """The parameters that differ between jobs, with the text of each job, "-" where it has none."""
    found = [dict(pair for part in COMPARED for pair in _flat(spec.get(part), part)) for spec in specs]
    texts = {name: [one.get(name, "-") for one in found] for name in dict.fromkeys(chain(*found))}
    return [(name, row) for name, row in texts.items() if len(set(row)) > 1]


def _flat(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _flat(part, path if name == "params" else f"{path}.{name}")
    elif value is not None:
        yield path.removesuffix(".name"), param_text(path, value)


def _value(value: ComparedValue, unit: Unit | None) -> tuple[str, str]:
    bounds = f"[{number(value.ci_low, unit)}, {number(value.ci_high, unit)}]"
    return number(value.value, unit), "-" if value.ci_low is None or value.ci_low == value.ci_high else bounds


def verdict(difference: float | None, adjusted: float | None, *, higher_is_better: bool) -> str:
    """The word "better" or "worse" for a difference that is significant after adjustment; else empty."""
    if not difference or adjusted is None or adjusted >= LEVEL:
        return ""
    return "better" if (difference > 0) == higher_is_better else "worse"


def p_text(p_value: float) -> str:
    """A p-value with three digits, or as many as tell it from the level; very small ones as a bound."""
    texts = (f"{p_value:.{digits}g}" for digits in range(3, 18))
    told = next(text for text in texts if (float(text) < LEVEL) == (p_value < LEVEL))
    return "< 0.0001" if p_value < 0.0001 else told


def names_of_tests(table: Sequence[ComparedMetric]) -> str:
    """The tests of the p-values of these rows, in words."""
    names = dict.fromkeys(cell.test for row in table for cell in row.others if cell is not None and cell.test)
    return ", ".join(names) or "no test"


def own_warnings(comparison: Comparison) -> list[tuple[str, list[tuple[str, Severity]]]]:
    """Codes of the warnings of each job's results with their severity, the gravest first."""
    severities = {str(code): severity for code, severity in SEVERITY.items()}
    found = []
    for job, codes in comparison.result_warnings.items():
        judged = [(code, severities.get(code, "caution")) for code in codes]
        found.append((job, sorted(judged, key=lambda item: SEVERITIES.index(item[1]))))
    return found


def distinct(warnings: Sequence[Warning]) -> list[Warning]:
    """The warnings without repetitions of the same words."""
    return list({(warning.code, warning.message): warning for warning in warnings}.values())
