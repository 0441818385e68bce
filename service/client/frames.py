"""Results as pandas data frames: one row a number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from assay.service.client.groups import Group, GroupCalls
from assay.service.client.transport import API, parsed, part
from assay.service.contract.errors import NoResults, NotFound
from assay.service.contract.extras import require
from assay.service.contract.results import Answer, Job, Results
from assay.service.reports.formats.csv_text import COLUMNS, compact, parameter_columns
from assay.service.reports.tidy import ReportedJob, TidyRow, tidy_rows

if TYPE_CHECKING:
    from pandas import DataFrame  # type: ignore[import-untyped]

Reported = str | Answer  # the id of a job or study, a `Job`, a `StudyStatus`
# Of the fixed columns; all others hold texts.
TYPES = {"seed": "Int64", "value": "float64", "ci_low": "float64", "ci_high": "float64", "n": "Int64"}


class FrameCalls(GroupCalls):
    """Results of several jobs in one data frame."""

    def frame(self, jobs: Reported | Iterable[Reported]) -> DataFrame:
        """The results so far as a tidy data frame: one row a number.

        Columns: `job`, `name`, `model`, `weights_sha256`, `seed`, `data`, `attack`, `protocol`, `metric`,
        `part`, `unit`, `value`, `ci_low`, `ci_high`, `ci_method`, `n`, then each parameter, with `param_`
        before a name of another column. Proportions are in [0, 1]; what does not exist is a missing value. A
        parameter keeps its text ("8/255"); a column of plain numbers is numeric. `jobs`: ids, `Job` or
        `StudyStatus`, for a study's evaluation jobs; each job appears once. Raises MissingExtra, an
        ImportError, without pandas; NotFound; NoResults: a job named by id, or all jobs, have none. Other
        jobs without results are left out.
        """
        require("a data frame", "frame")
        import pandas

        several = [jobs] if isinstance(jobs, str | Answer) else jobs
        found = {job.id: job for one in several for job in self._reported(one)}
        rows = tidy_rows(list(found.values()))
        if not rows:
            raise NoResults("none of these jobs has results yet")
        names = parameter_columns(rows)
        frame = pandas.DataFrame([_fixed(row) for row in rows], columns=list(COLUMNS))
        frame = frame.astype({name: TYPES.get(name, "string") for name in COLUMNS})
        for name, column in names.items():
            values = [_parameter(row.params.get(name)) for row in rows]
            frame[column] = pandas.array(values, dtype=_type(values))
        return frame

    def _reported(self, one: Reported) -> Iterator[ReportedJob]:
        if isinstance(one, Job):
            yield from self._if_finished(one)
        elif isinstance(one, str):
            try:
                job = parsed(Job, self._json("GET", f"{API}/jobs/{part(one)}"))
            except NotFound:
                yield from self._of_group(self._group(one))
            else:
                yield self._with_results(job)
        else:
            yield from self._of_group(self._group(one))

    def _of_group(self, group: Group) -> Iterator[ReportedJob]:
        for job_id in group.evaluations:
            yield from self._if_finished(parsed(Job, self._json("GET", f"{API}/jobs/{part(job_id)}")))

    def _if_finished(self, job: Job) -> Iterator[ReportedJob]:
        try:
            yield self._with_results(job)
        except NoResults:
            return

    def _with_results(self, job: Job) -> ReportedJob:
        results = parsed(Results, self._json("GET", f"{API}/jobs/{part(job.id)}/results"))
        return ReportedJob(job.id, job.name, job.spec, results)


def _fixed(row: TidyRow) -> tuple[Any, ...]:
    metric = row.metric
    return (
        *(row.job, row.name, row.model, row.weights_sha256, row.seed, row.data),
        *(row.attack, row.protocol, row.metric_name, row.part),
        *(metric.unit, metric.value, metric.ci_low, metric.ci_high, metric.ci_method, metric.n),
    )


def _parameter(value: Any) -> Any:
    return value if value is None or isinstance(value, str | bool | int | float) else compact(value)


def _type(values: list[Any]) -> str:
    """The pandas type of all values, missing included; mixed values stay."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int}:
        return "Int64" if all(value is None or abs(value) < 2**63 for value in values) else "object"
    if kinds and kinds <= {int, float}:
        return "Float64"
    if kinds == {bool}:
        return "boolean"
    return "string" if kinds == {str} else "object"
