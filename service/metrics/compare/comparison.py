"""Compares jobs: the same metrics side by side, with paired tests on the common examples.

Each evaluation's outcome table pairs the common examples of both jobs, and tests the differences.

Every job is compared with the first one, so n jobs give n - 1 rows per metric.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import Field

from assay.service.contract.corruption_cells import content_label
from assay.service.contract.fractions import canonical
from assay.service.contract.results import (
    Answer,
    EvaluationResult,
    IntervalMethod,
    JobError,
    Metric,
    Unit,
    Warning,
    data_label,
)
from assay.service.contract.stored_specs import Spec
from assay.service.contract.warning_codes import Severity, WarningCode
from assay.service.metrics.arithmetic import COARSE
from assay.service.metrics.paired import AnyPairedTest, Pair, PairedMetrics, Rows
from assay.service.metrics.statistics.multiple_tests import ADJUSTMENTS, Adjustment
from assay.service.metrics.table import OutcomeTable

WEIGHTS_COMPARED = (
    "each job has one training with one seed: this compares weights, not methods; a study over seeds compares"
    " methods"
)
MAX_NAMED = 12  # Evaluations that a warning names.


class ComparedValue(Answer):
    """A metric of a job, over all its examples."""

    job: str
    value: float | None
    ci_low: float | None
    ci_high: float | None
    n: int


class ComparisonRow(Answer):
    """A metric of an evaluation, for the first job and another job.

    `difference` is the second value minus the first; with a test it is over the common examples, and
    `ci_low`, `ci_high` are its 95 % interval by the method `ci_method`: null where that says that examples
    are too few or do not differ. `common` counts the examples of the difference where a job has others too.
    """

    evaluation: str
    params: dict[str, Any]
    data: dict[str, Any]
    protocol: str
    metric: str
    higher_is_better: bool
    unit: Unit | None = None
    values: list[ComparedValue]
    difference: float | None
    ci_low: float | None = None
    ci_high: float | None = None
    ci_method: IntervalMethod | None = None
    test: AnyPairedTest | None = None
    common: int | None = None


class Comparison(Answer):
    """The whole comparison.

    `adjust` names the adjustment of the p-values, over all `tests` of the comparison together. `note` says
    what the comparison cannot tell: a comparison of single trainings is no study. `result_warnings` has the
    codes of the warnings of each job's own results, by job id, and `names` the names that tell jobs apart.
    """

    jobs: list[str]
    adjust: Adjustment = "holm"
    tests: int = 0
    rows: list[ComparisonRow]
    warnings: list[Warning]
    note: str | None = None
    result_warnings: dict[str, list[str]] = Field(default_factory=dict)
    names: dict[str, str] = Field(default_factory=dict)


@dataclass(frozen=True)
class JobResults:
    """Input of the comparison for a job."""

    job: str  # its id
    complete: bool  # whether all its evaluations have finished
    evaluations: Mapping[int, EvaluationResult]  # finished evaluations by their position in the spec
    columns: Callable[[int], Rows]  # the outcome columns (id, correct, ...) of the evaluation at a position
    # the outcome table of the evaluation at a position, where known; without one there are no paired tests
    tables: Mapping[int, OutcomeTable] = field(default_factory=dict)
    data_sha256: Mapping[str, str] = field(default_factory=dict)  # content hash by `data_label`
    seed: int | None = None  # of the job; None where unknown
    code: Mapping[str, Any] = field(default_factory=dict)  # `version`, `commit`, `source_sha256`, as known
    error: JobError | None = None  # that the job failed with
    warnings: Sequence[Warning] = ()  # of its results as a whole
    arithmetic: Mapping[str, str] = field(default_factory=dict)  # by setting; empty where unknown
    name: str = ""

    @property
    def label(self) -> str:
        """The job in messages: its name, or its id."""
        return repr(self.name) if self.name.strip() else self.job


def compared_weights(specs: Sequence[Spec]) -> str | None:
    """What a comparison of jobs cannot say; None unless all evaluate the weights of trainings."""
    trained = ["job" in (spec["model"].get("weights") or {}) for spec in specs if spec["kind"] == "evaluate"]
    return WEIGHTS_COMPARED if all(trained) and len(trained) == len(specs) else None


def compare(jobs: Sequence[JobResults], adjust: Adjustment = "holm") -> Comparison:
    """Compares every job with the first, evaluation by evaluation in the first one's order."""
    assert len(jobs) >= 2, "the caller asks for at least two jobs"
    named = Counter(job.name for job in jobs)
    jobs = [job if named[job.name] == 1 else replace(job, name="") for job in jobs]
    warnings = [warning for job in jobs for warning in _of_results(job)]
    rows: list[ComparisonRow] = []
    for other in jobs[1:]:
        warnings.extend(_different_code(jobs[0], other))
        warnings.extend(_different_arithmetic(jobs[0], other))
        pair = _Jobs(jobs[0], other)
        rows.extend(pair.rows())
        warnings.extend(pair.warnings)
    tests = [row.test for row in rows if row.test is not None]
    adjusted = ADJUSTMENTS[adjust]([test.p_value for test in tests])
    for test, p_value in zip(tests, adjusted, strict=True):
        test.adjusted_p_value = p_value
    told = {job.job: [job.warnings, *(part.warnings for part in job.evaluations.values())] for job in jobs}
    codes = {job: sorted({str(one.code) for own in found for one in own}) for job, found in told.items()}
    return Comparison(
        jobs=[job.job for job in jobs],
        adjust=adjust,
        tests=len(tests),
        rows=rows,
        warnings=warnings,
        result_warnings={job: found for job, found in codes.items() if found},
        names={job.job: job.name for job in jobs if job.name.strip()},
    )


def _of_results(job: JobResults) -> Iterator[Warning]:
    if not job.complete:
        failed = job.error and f"has failed ({job.error.type})"
        why = failed or "has not finished all its evaluations"
        yield _warning("incomplete", f"job {job.label} {why}", job=job.job)
    for told in job.warnings:
        if told.severity == "invalid":
            evidence = {**told.evidence, "job": job.job}
            yield told.model_copy(
                update={"message": f"job {job.label}: {told.message}", "evidence": evidence}
            )


def _different_code(first: JobResults, second: JobResults) -> Iterator[Warning]:
    hashes = [side.code.get("source_sha256") for side in (first, second)]
    if None not in hashes and hashes[0] != hashes[1]:
        message = (
            f"job {second.label} was measured by other code of Assay than job {first.label}: a difference"
            " may be the code's; CHANGELOG lists the numbers that change"
        )
        made = [{key: side.code.get(key) for key in ("version", "commit")} for side in (first, second)]
        yield _warning("different_code", message, sha256=hashes, releases=made)


def _different_arithmetic(first: JobResults, second: JobResults) -> Iterator[Warning]:
    sides = (first.arithmetic, second.arithmetic)
    if not all(sides) or sides[0] == sides[1]:
        return
    differing = sorted(name for name in {*sides[0], *sides[1]} if sides[0].get(name) != sides[1].get(name))
    told = [", ".join(f"{name} {side.get(name, 'off')}" for name in differing) for side in sides]
    rough = [(side.get("dtype") in COARSE and side["dtype"], side.get("screening")) for side in sides]
    severity: Severity = "note" if rough[0] == rough[1] else "caution"
    what = "the numbers differ by rounding" if severity == "note" else "a difference may be the arithmetic's"
    message = f"job {first.label} was computed with {told[0]}, job {second.label} with {told[1]}: {what}"
    found = _warning("different_arithmetic", message, arithmetic=[dict(side) for side in sides])
    yield found.model_copy(update={"severity": severity})


def _names(evaluations: Sequence[EvaluationResult]) -> str:
    """The names of evaluations with their radii, and their norms where a name has several, up to a number."""
    norms: dict[str, set[str]] = {}
    for one in evaluations:
        norms.setdefault(one.name, set()).add(str(one.params.get("norm", "")))
    radii: dict[str, list[str]] = {}
    for one in evaluations:
        epsilon, several = one.params.get("epsilon"), len(norms[one.name]) > 1
        name = f"{one.name} {one.params.get('norm', '')}".strip() if several else one.name
        radii.setdefault(name, []).extend([] if epsilon is None else [str(epsilon)])
    radius = {name: f" (epsilon {', '.join(dict.fromkeys(found))})" for name, found in radii.items() if found}
    named = [f"{name}{radius.get(name, '')}" for name in radii]
    more = [f"{len(named) - MAX_NAMED} more"] if len(named) > MAX_NAMED else []
    return ", ".join([*named[:MAX_NAMED], *more])


class _Jobs:
    def __init__(self, first: JobResults, second: JobResults) -> None:
        self.first = first
        self.second = second
        self._told: dict[str, tuple[Warning, str, str, list[EvaluationResult]]] = {}

    @property
    def warnings(self) -> list[Warning]:
        """A warning for each thing to say, about all evaluations that it is said of."""
        found = []
        for told, before, after, about in self._told.values():
            evaluations = [{"evaluation": one.name, "params": one.params} for one in about]
            evidence = {**told.evidence, "evaluations": evaluations}
            changes = {"message": f"{before}{_names(about)}{after}", "evidence": evidence}
            found.append(told.model_copy(update=changes))
        return found

    def _tell(
        self,
        code: WarningCode,
        evaluation: EvaluationResult,
        after: str,
        *,
        before: str = "",
        **evidence: Any,
    ) -> None:
        told = _warning(code, before + after, **evidence)
        self._told.setdefault(told.model_dump_json(), (told, before, after, []))[3].append(evaluation)

    def rows(self) -> Iterator[ComparisonRow]:
        first, second = positions(self.first.evaluations), positions(self.second.evaluations)
        for key, position in first.items():
            if key in second:
                yield from self._evaluation(position, second[key])
        lonely = [(self.first, first[key]) for key in first.keys() - second.keys()]
        lonely += [(self.second, second[key]) for key in second.keys() - first.keys()]
        for side, position in sorted(lonely, key=lambda item: (item[0].job, item[1])):
            self._not_common(side, self.second if side is self.first else self.first, position)

    def _evaluation(self, here: int, there: int) -> Iterator[ComparisonRow]:
        first, second = self.first.evaluations[here], self.second.evaluations[there]
        self._check_machines(first, second)
        paired = common = None
        if self._same_data(first):
            pair = Pair(
                first.name, self.first.columns(here), self.second.columns(there), results=(first, second)
            )
            common = self._check_overlap(pair, first)
            table = self.first.tables.get(here)
            if table is not None and pair.ids and self._same_examples(table, first):
                paired = table.paired(pair)
        for name, metric in first.metrics.items():
            if name in second.metrics:
                yield self._row(first, name, (metric, second.metrics[name]), paired, common)

    def _row(
        self,
        evaluation: EvaluationResult,
        name: str,
        metrics: tuple[Metric, Metric],
        paired: PairedMetrics | None,
        common: int | None,
    ) -> ComparisonRow:
        values = (metrics[0].value, metrics[1].value)
        row = ComparisonRow(
            evaluation=evaluation.name,
            params=evaluation.params,
            data=evaluation.data,
            protocol=evaluation.protocol,
            metric=name,
            higher_is_better=metrics[0].higher_is_better,
            unit=metrics[0].unit or metrics[1].unit,
            values=[_value(self.first.job, metrics[0]), _value(self.second.job, metrics[1])],
            difference=None if values[0] is None or values[1] is None else values[1] - values[0],
        )
        found = None if paired is None else paired.difference(name, values)
        if found is None:
            return row
        return row.model_copy(
            update={
                "difference": found.value,
                "ci_low": found.low,
                "ci_high": found.high,
                "ci_method": found.method,
                "test": found.test,
                "common": common,
            }
        )

    def _same_data(self, evaluation: EvaluationResult) -> bool:
        name = content_label(data_label(evaluation.data), evaluation.params)
        hashes = {side.data_sha256.get(name) for side in (self.first, self.second)} - {None}
        if len(hashes) <= 1:
            return True
        before = f"data set {name!r} had other content in job {self.second.label}; no paired tests of "
        self._tell("different_data", evaluation, "", before=before, sha256=sorted(map(str, hashes)))
        return False

    def _same_examples(self, table: OutcomeTable, evaluation: EvaluationResult) -> bool:
        seeds = [self.first.seed, self.second.seed]
        if not getattr(table, "seeded", False) or seeds[0] == seeds[1]:
            return True
        after = f": job {self.second.label} has another seed, from which its examples begin; no paired tests"
        self._tell("different_seeds", evaluation, after, seeds=seeds)
        return False

    def _check_overlap(self, pair: Pair, evaluation: EvaluationResult) -> int | None:
        """How many examples are common; None where all are."""
        if pair.sizes[0] == pair.sizes[1] == len(pair.ids):
            return None
        after = (
            f": job {self.first.label} and job {self.second.label} share {len(pair.ids)} examples; difference"
            " and test are over these, each value is over all examples of its job"
        )
        self._tell("partial_overlap", evaluation, after, n=list(pair.sizes), common=len(pair.ids))
        return len(pair.ids)

    def _check_machines(self, first: EvaluationResult, second: EvaluationResult) -> None:
        """Warns where latencies of two machines, or of two batch sizes, are side by side."""
        found = [
            {key: warning.evidence.get(key) for key in ("device", "batch_size")}
            for evaluation in (first, second)
            for warning in evaluation.warnings
            if warning.code == "measures_the_machine"
        ]
        if len(found) == 2 and found[0] != found[1]:
            after = (
                f": job {self.second.label} was measured on another machine, or with another batch size:"
                " differences of seconds and memory say nothing of the models"
            )
            self._tell("measures_the_machine", first, after, measured=found)

    def _not_common(self, side: JobResults, other: JobResults, position: int) -> None:
        after = f", and job {other.label} has none with the same parameters, data and protocol"
        before = f"job {side.label} has "
        self._tell("not_common", side.evaluations[position], after, before=before, job=side.job)


def _value(job: str, metric: Metric) -> ComparedValue:
    return ComparedValue(
        job=job, value=metric.value, ci_low=metric.ci_low, ci_high=metric.ci_high, n=metric.n
    )


def _warning(code: WarningCode, message: str, **evidence: Any) -> Warning:
    return Warning(code=code, message=message, evidence=evidence)


def positions(evaluations: Mapping[int, EvaluationResult]) -> dict[str, int]:
    """Positions of a job's evaluations by their identity; of equal evaluations the first."""
    found: dict[str, int] = {}
    for position, evaluation in sorted(evaluations.items()):
        paper = evaluation.protocol == "paper"  # Earlier versions labelled rows without pixels `pixel`.
        same = [evaluation.name, evaluation.params, evaluation.data, paper, evaluation.backend]
        found.setdefault(json.dumps(canonical(same), sort_keys=True), position)
    return found
