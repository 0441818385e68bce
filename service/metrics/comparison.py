"""Compares jobs: the same metrics side by side, with paired tests on the common examples.

Two accuracies on the same test set are not independent, so overlapping intervals say little about
their difference. The tests here pair the examples: McNemar's exact test for right and wrong, and a
bootstrap over examples for the interval of the difference; of segmentation, whose metrics are ratios of sums
over all images, the bootstrap is the test too.

Every job is compared with the first one, so n jobs give n - 1 rows per metric.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from assay.service.compare_cells import CellPairs
from assay.service.compare_pixels import PixelPairs
from assay.service.contract.corruption_cells import content_label
from assay.service.contract.fractions import parse_fraction
from assay.service.contract.results import Answer, EvaluationResult, Metric, Warning, data_label
from assay.service.contract.warning_codes import WarningCode
from assay.service.metrics.intervals import mcnemar, paired_bootstrap
from assay.service.metrics.perplexity import documents_of, paired_difference, perplexity_of, resamples_of

# Metrics that are the mean of a per-example column of the outcomes.
COLUMN_OF = {
    "top1": "correct",
    "accuracy": "clean_correct",
    "accuracy_under_attack": "correct",
    "top5": "correct5",
    "top1_8bit": "correct8",
}

Columns = Mapping[str, Sequence[Any]]


class ComparedValue(Answer):
    """A metric of one job, over all examples of that job."""

    job: str
    value: float | None
    ci_low: float | None
    ci_high: float | None
    n: int


class PairedTest(Answer):
    """McNemar's exact test on the n common examples.

    `b` counts the examples that only the first job gets right, `c` those that only the second does.
    """

    name: Literal["mcnemar"] = "mcnemar"
    p_value: float
    b: int
    c: int
    n: int


class PairedBootstrap(Answer):
    """A bootstrap test over the n common images, for metrics that are no mean over examples.

    `p_value` is the achieved significance level of "no difference", from so many resamples.
    """

    name: Literal["paired_bootstrap"] = "paired_bootstrap"
    p_value: float
    n: int
    resamples: int


class ComparisonRow(Answer):
    """One metric of one evaluation, for the first job and one other.

    `difference` is the second value minus the first; with a test it is over the common examples, and
    `ci_low`, `ci_high` are its 95 % paired bootstrap interval.
    """

    evaluation: str
    params: dict[str, Any]
    data: dict[str, Any]
    protocol: str
    metric: str
    higher_is_better: bool
    values: list[ComparedValue]
    difference: float | None
    ci_low: float | None = None
    ci_high: float | None = None
    test: PairedTest | PairedBootstrap | None = None


class Comparison(Answer):
    """The whole comparison."""

    jobs: list[str]
    rows: list[ComparisonRow]
    warnings: list[Warning]


@dataclass(frozen=True)
class JobResults:
    """What the comparison needs of a job.

    Attributes:
        job: its id.
        complete: whether all its evaluations have finished.
        evaluations: finished evaluations by their position in the spec.
        columns: the outcome columns (id, correct, ...) of the evaluation at a position.
        data_sha256: content hash of each data set by `data_label`.
    """

    job: str
    complete: bool
    evaluations: Mapping[int, EvaluationResult]
    columns: Callable[[int], Columns]
    data_sha256: Mapping[str, str] = field(default_factory=dict)


def compare(jobs: Sequence[JobResults]) -> Comparison:
    """Compares every job with the first, evaluation by evaluation in the first one's order."""
    assert len(jobs) >= 2, "the caller asks for at least two jobs"
    warnings = [
        _warning("incomplete", f"job {job.job} has not finished all its evaluations", job=job.job)
        for job in jobs
        if not job.complete
    ]
    rows: list[ComparisonRow] = []
    for other in jobs[1:]:
        pair = _Pair(jobs[0], other)
        rows.extend(pair.rows())
        warnings.extend(pair.warnings)
    return Comparison(jobs=[job.job for job in jobs], rows=rows, warnings=warnings)


class _Pair:
    """The first job and one other."""

    def __init__(self, first: JobResults, second: JobResults) -> None:
        self.first = first
        self.second = second
        self.warnings: list[Warning] = []

    def rows(self) -> Iterator[ComparisonRow]:
        first, second = _by_key(self.first), _by_key(self.second)
        for key, position in first.items():
            if key in second:
                yield from self._evaluation(position, second[key])
        lonely = [(self.first, first[key]) for key in first.keys() - second.keys()]
        lonely += [(self.second, second[key]) for key in second.keys() - first.keys()]
        for side, position in sorted(lonely, key=lambda item: (item[0].job, item[1])):
            self._not_common(side, position)

    def _evaluation(self, here: int, there: int) -> Iterator[ComparisonRow]:
        first, second = self.first.evaluations[here], self.second.evaluations[there]
        self._check_machines(first, second)
        common = None
        if self._same_data(first):
            common = _Common(self.first.columns(here), self.second.columns(there), first.name)
            self._check_overlap(common, first)
        for name, metric in first.metrics.items():
            if name in second.metrics:
                yield self._row(first, name, (metric, second.metrics[name]), common)

    def _row(
        self, evaluation: EvaluationResult, name: str, metrics: tuple[Metric, Metric], common: _Common | None
    ) -> ComparisonRow:
        values = [metric.value for metric in metrics]
        row = ComparisonRow(
            evaluation=evaluation.name,
            params=evaluation.params,
            data=evaluation.data,
            protocol=evaluation.protocol,
            metric=name,
            higher_is_better=metrics[0].higher_is_better,
            values=[_value(self.first.job, metrics[0]), _value(self.second.job, metrics[1])],
            difference=None if None in values else values[1] - values[0],  # type: ignore[operator]
        )
        if common is None:
            return row
        if common.of_pixels.there:
            return row.model_copy(update=common.pixels(name, metrics))
        if name == "perplexity":
            return row.model_copy(update=common.documents(metrics))
        pairs = common.pairs(name, metrics)
        return row if not pairs else row.model_copy(update=_paired(pairs, f"{name}/{evaluation.name}"))

    def _same_data(self, evaluation: EvaluationResult) -> bool:
        name = content_label(data_label(evaluation.data), evaluation.params)
        hashes = {side.data_sha256.get(name) for side in (self.first, self.second)} - {None}
        if len(hashes) <= 1:
            return True
        message = f"data set {name!r} had other content in job {self.second.job}; no paired tests"
        if not any(warning.message == message for warning in self.warnings):
            self.warnings.append(_warning("different_data", message, sha256=sorted(map(str, hashes))))
        return False

    def _check_overlap(self, common: _Common, evaluation: EvaluationResult) -> None:
        if not common.sizes[0] == common.sizes[1] == len(common.ids):
            message = (
                f"{evaluation.name}: the jobs share {len(common.ids)} examples; difference and test are over "
                "these, each value is over all examples of its job"
            )
            evidence = {"n": list(common.sizes), "common": len(common.ids), "params": evaluation.params}
            self.warnings.append(_warning("partial_overlap", message, **evidence))

    def _check_machines(self, first: EvaluationResult, second: EvaluationResult) -> None:
        """Says so where latencies of two machines, or of two batch sizes, stand side by side."""
        found = [
            {key: warning.evidence.get(key) for key in ("device", "batch_size")}
            for evaluation in (first, second)
            for warning in evaluation.warnings
            if warning.code == "measures_the_machine"
        ]
        if len(found) == 2 and found[0] != found[1]:
            message = (
                f"{first.name}: job {self.second.job} was measured on another machine, or with another batch"
                " size: differences of seconds and memory say nothing of the models"
            )
            self.warnings.append(_warning("measures_the_machine", message, measured=found))

    def _not_common(self, side: JobResults, position: int) -> None:
        evaluation = side.evaluations[position]
        self.warnings.append(
            _warning(
                "not_common",
                f"only job {side.job} has {evaluation.name} with these parameters, data and protocol",
                job=side.job,
                params=evaluation.params,
            )
        )


class _Common:
    """The examples that both evaluations saw, in the order of their ids."""

    def __init__(self, first: Columns, second: Columns, evaluation: str) -> None:
        self.columns = (first, second)
        self.evaluation = evaluation
        self.rows = (_rows(first), _rows(second))
        self.ids = sorted(self.rows[0].keys() & self.rows[1].keys())
        self.sizes = (len(self.rows[0]), len(self.rows[1]))
        subject = (self.columns, self.rows, self.ids, f"compare/{evaluation}")
        self.of_pixels, self.of_cells = PixelPairs(*subject), CellPairs(*subject)

    def pairs(self, metric: str, metrics: tuple[Metric, Metric]) -> list[tuple[int, int]] | None:
        """Right (1) or wrong (0) of both on every common example; None when the metric is no such mean."""
        name = COLUMN_OF.get(metric)
        sides = []
        for rows, columns, whole in zip(self.rows, self.columns, metrics, strict=True):
            column = columns.get(name) if name else None
            # A metric that is not the mean of this column (say, over a subset) must not be paired by it.
            if not column or whole.value is None or abs(sum(column) / len(column) - whole.value) > 1e-9:
                return None
            sides.append([int(column[rows[example]]) for example in self.ids])
        return list(zip(*sides, strict=True))

    def documents(self, metrics: tuple[Metric, Metric]) -> dict[str, Any]:
        """What a row says of a perplexity; nothing where it is not that of these documents."""
        common = []
        for rows, columns, whole in zip(self.rows, self.columns, metrics, strict=True):
            documents = documents_of(columns) if "nll" in columns else []
            known = [(loss, count) for loss, count in documents if loss is not None]
            found = perplexity_of(known) if len(known) == len(documents) else None
            if found is None or whole.value is None or not math.isclose(found, whole.value, rel_tol=1e-9):
                return {}
            common.append([known[rows[example]] for example in self.ids])
        difference = paired_difference(*common, seed=f"compare/{self.evaluation}") if self.ids else None
        if difference is None:
            return {}
        value, low, high, p_value = difference
        test = PairedBootstrap(p_value=p_value, n=len(self.ids), resamples=resamples_of(len(self.ids)))
        return {"difference": value, "ci_low": low, "ci_high": high, "test": test}

    def pixels(self, metric: str, metrics: tuple[Metric, Metric]) -> dict[str, Any]:
        """What a row says of a metric of segmentation; nothing when it is not one of the pixel counts'."""
        made_of = self.of_cells if self.of_cells.has(metric) else self.of_pixels
        found = made_of.difference(metric, (metrics[0].value, metrics[1].value))
        if found is None:
            return {}
        difference, low, high, p_value = found.difference
        test = PairedBootstrap(p_value=p_value, n=len(self.ids), resamples=found.resamples)
        return {"difference": difference, "ci_low": low, "ci_high": high, "test": test}


def _rows(columns: Columns) -> dict[str, int]:
    return {example: row for row, example in enumerate(columns.get("id", ()))}


def _paired(pairs: Sequence[tuple[int, int]], key: str) -> dict[str, Any]:
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    bootstrap = paired_bootstrap(second, first, seed=f"compare/{key}")
    only_first = sum(a > b for a, b in pairs)
    only_second = sum(b > a for a, b in pairs)
    return {
        "difference": bootstrap.difference,
        "ci_low": bootstrap.low,
        "ci_high": bootstrap.high,
        "test": PairedTest(
            p_value=mcnemar(only_first, only_second), b=only_first, c=only_second, n=len(pairs)
        ),
    }


def _value(job: str, metric: Metric) -> ComparedValue:
    return ComparedValue(
        job=job, value=metric.value, ci_low=metric.ci_low, ci_high=metric.ci_high, n=metric.n
    )


def _warning(code: WarningCode, message: str, **evidence: Any) -> Warning:
    return Warning(code=code, message=message, evidence=evidence)


def _by_key(job: JobResults) -> dict[str, int]:
    """Positions by what makes evaluations the same; the first of equal ones counts."""
    positions: dict[str, int] = {}
    for position, evaluation in sorted(job.evaluations.items()):
        same = [evaluation.name, evaluation.params, evaluation.data, evaluation.protocol, evaluation.backend]
        positions.setdefault(json.dumps(_plain(same), sort_keys=True), position)
    return positions


def _plain(value: Any) -> Any:
    """The value with "2/255" and 2/255 written the same way."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, str) and "/" in value:
        try:
            return _plain(parse_fraction(value))
        except ValueError:
            return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(f"{value:.12g}")
    return value
