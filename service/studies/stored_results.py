"""The results of a study from its stored runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from assay.service.api.outcome_tables import read_result
from assay.service.api.results import contradicted
from assay.service.catalog.catalog import load
from assay.service.contract.errors import NoResults
from assay.service.contract.problems import Problems
from assay.service.contract.results import EvaluationResult
from assay.service.contract.states import JobState
from assay.service.contract.times import iso
from assay.service.metrics.paired import Rows
from assay.service.store.rows import OutcomeRow, columns_of
from assay.service.store.tenants import TenantStore
from assay.service.store.transactions.release import DIFFERENT
from assay.service.studies.designs.fixing import fixing_of
from assay.service.studies.primary import Primary, check_primary, evaluations_of
from assay.service.studies.result_wire import StudyResults
from assay.service.studies.results import MeasuredArm, MeasuredRun, StudyPlan, study_results
from assay.service.studies.rows import StudyJobRow, StudyRow
from assay.service.studies.runs import configuration_of
from assay.service.studies.store import Studies
from assay.service.studies.text import until_view

MAX_ROWS = 3_000_000  # Rows of a study; beyond, tests are over seeds alone.


def results_of(store: TenantStore, study: StudyRow) -> StudyResults:
    """What has been measured so far; NoResults: no evaluation has finished."""
    plan, arms, count = measured_of(store, study)
    found = study_results(plan, arms).model_copy(update={"fixing": fixing_of(study)})
    if count <= MAX_ROWS:
        return found
    note = f"{count} examples were measured, more than {MAX_ROWS}: tests and intervals are over seeds alone"
    return found.model_copy(update={"notes": [*found.notes, note]})


def measured_of(store: TenantStore, study: StudyRow) -> tuple[StudyPlan, list[MeasuredArm], int]:
    """All that the results follow from, and the examples measured: beyond MAX_ROWS the runs lack columns.

    Raises NoResults: no evaluation has finished.
    """
    evaluations = {(run.arm, run.seed): run for run in study.runs if run.role == "evaluate"}
    jobs = store.features.of(Studies).evaluation_jobs(study.id)
    outcomes, merged = _Outcomes(store, list(jobs)), store.results.of_jobs(jobs, read_result)

    def measured_run(run: StudyJobRow) -> MeasuredRun:
        return _measured(store, run.seed, jobs.get(run.job_id), merged.get(run.job_id, {}), outcomes)

    arms = [
        MeasuredArm(
            template["name"],
            template["train"] is not None,
            [measured_run(evaluations[index, seed]) for seed in study.spec["seeds"]],
            configuration_of(template),
        )
        for index, template in enumerate(study.templates)
    ]
    measured = [run for arm in arms for run in arm.runs]
    if not any(run.results for run in measured):
        raise NoResults(f"study {study.id} has no results yet")
    count = sum(
        max((metric.n for metric in result.metrics.values()), default=0)
        for run in measured
        for result in run.results.values()
    )
    if count > MAX_ROWS:
        arms = [replace(arm, runs=[_without_rows(run) for run in arm.runs]) for arm in arms]
    spec = study.spec
    plan = StudyPlan(
        study.id,
        spec["baseline"],
        spec["adjust"],
        spec["seeds"],
        spec["metrics"],
        _primary(study),
        until_view(study),
    )
    return plan, arms, count


def _primary(study: StudyRow) -> Primary | None:
    names = [template["name"] for template in study.templates]
    evaluations = evaluations_of(study.templates[0]["evaluate"])
    # Studies that were stored before there was such a question have none.
    given = study.spec.get("primary")
    found = check_primary(given, evaluations, names, study.spec["baseline"], Problems())
    registered = None if study.fixing is None else study.fixing["registered_at"]
    at = study.created_at if registered is None else registered
    return None if found is None else replace(found, fixed_at=iso(at))


class _Outcomes:
    """The outcomes of all jobs, an evaluation at a time: a query for each job would take minutes."""

    def __init__(self, store: TenantStore, job_ids: Sequence[str]) -> None:
        self._store, self._job_ids = store, job_ids
        self._position: int | None = None
        self._found: Mapping[str, Sequence[OutcomeRow]] = {}

    def of(self, job_id: str, position: int) -> Rows:
        """The outcomes of a job's evaluation."""
        if position != self._position:
            self._found = self._store.results.outcomes_of_jobs(self._job_ids, position)
            self._position = position
        return columns_of(self._found.get(job_id, []))


def _measured(
    store: TenantStore, seed: int, job: Any, merged: Mapping[int, EvaluationResult], outcomes: _Outcomes
) -> MeasuredRun:
    if job is None:
        return MeasuredRun(seed, "deleted")
    doubted = job.error is not None and job.error["type"] == DIFFERENT
    results = contradicted(store, job.id, {} if doubted else merged, load())
    hashes = {} if job.planned is None else job.planned.get("data_sha256", {})
    state = JobState.RUNNING if job.state == JobState.SUCCEEDED and not results else job.state
    return MeasuredRun(seed, str(state), results, partial(outcomes.of, job.id), hashes)


def _without_rows(run: MeasuredRun) -> MeasuredRun:
    return MeasuredRun(run.seed, run.state, run.results, data_sha256=run.data_sha256)
