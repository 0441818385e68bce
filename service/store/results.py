"""Measurements of jobs: outcomes per example, and the results merged from them."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import select

from assay.service.contract.records import ResultJson
from assay.service.store.clock import now
from assay.service.store.columns import unpack, upsert
from assay.service.store.database import Database
from assay.service.store.row_mapping import unknown_job
from assay.service.store.rows import OutcomeRow
from assay.service.store.tables import outcomes, results, shards
from assay.service.store.transactions.event_log import record_metric_event
from assay.service.store.transactions.transitions import lock_job


class ResultRows:
    """Outcomes and results. Every method is one short transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def outcomes(self, job_id: str, evaluation: int | None) -> list[OutcomeRow]:
        """The outcomes of one evaluation, or of all (None), by evaluation and shard number.

        The outcome of a training job has evaluation 0 and number 0.
        """
        wanted = (shards.c.evaluation, shards.c.number)
        statement = (
            select(outcomes, *wanted)
            .join(shards, shards.c.id == outcomes.c.shard_id)
            .where(outcomes.c.job_id == job_id)
            .order_by(*wanted)
        )
        if evaluation is not None:
            statement = statement.where(shards.c.evaluation == evaluation)
        with self._database.reading() as connection:
            rows = connection.execute(statement).all()
        return [_outcome(row) for row in rows]

    def save(self, job_id: str, evaluation: int, result: ResultJson) -> None:
        """Writes the merged result of an evaluation; writing it again replaces it.

        A new or changed result is recorded in the job's events.

        Raises:
            NotFound: when the job has been deleted.
            ValueError: when the result holds NaN or an infinity.
        """
        values = {"job_id": job_id, "evaluation": evaluation, "result": result, "created_at": now()}
        with self._database.writing() as connection:
            if lock_job(connection, job_id) is None:
                raise unknown_job(job_id)
            this = (results.c.job_id == job_id) & (results.c.evaluation == evaluation)
            before = connection.execute(select(results.c.result).where(this)).scalar()
            upsert(connection, results, values)
            if before != json.loads(json.dumps(result)):
                record_metric_event(connection, job_id, evaluation, result)

    def of(self, job_id: str) -> dict[int, ResultJson]:
        """The merged results of a job by evaluation, in order."""
        statement = select(results).where(results.c.job_id == job_id).order_by(results.c.evaluation)
        with self._database.reading() as connection:
            return {row.evaluation: row.result for row in connection.execute(statement)}


def _outcome(row: Any) -> OutcomeRow:
    columns, extra = unpack(row.payload)
    return OutcomeRow(
        evaluation=row.evaluation,
        number=row.number,
        n=row.n,
        columns=columns,
        seconds=row.seconds,
        forward_passes=row.forward_passes,
        backward_passes=row.backward_passes,
        extra=extra,
    )
