"""Measurements of jobs: outcomes per example, and the results merged from them."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Hashable, Sequence
from functools import partial
from itertools import repeat
from operator import itemgetter
from typing import Any, TypeVar, cast

from sqlalchemy import func, select, tuple_

from assay.service.contract.records import Columns, JobProvenance, ResultJson
from assay.service.contract.stored_specs import EvaluationItem, ModelReference, evaluations_in
from assay.service.contract.times import iso
from assay.service.lru_cache import LruCache, table_weight
from assay.service.store.clock import now
from assay.service.store.columns import SeenCells, unpack, unpack_columns, upsert
from assay.service.store.database import Database, StorePart
from assay.service.store.row_mapping import unknown_job
from assay.service.store.rows import OutcomeRow
from assay.service.store.tables import jobs, outcomes, results, shards, studies
from assay.service.store.transactions.event_log import record_metric_event
from assay.service.store.transactions.transitions import lock_job
from assay.service.submission.estimate import BACKWARD_COST

CachedValue = TypeVar("CachedValue")

PACED_JOBS = 5  # Finished jobs read for a model's speed.


MAX_CACHED_ROWS = 20_000  # Metrics and rows of breakdowns in `ResultRows.cached`.
# Of shards that a call of `ResultRows.example` reads: rows, and bytes as they are stored.
MAX_EXAMPLE_ROWS, MAX_EXAMPLE_BYTES = 50_000, 16 * 2**20
MAX_EXAMPLE_WEIGHT = 4_000_000  # Cells and characters that it keeps for the next call.


class ResultRows(StorePart):
    """Outcomes and results."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._cache: LruCache[Hashable, tuple[int, Any]] = LruCache(MAX_CACHED_ROWS, itemgetter(0))
        self._shards: LruCache[tuple[str, int], Columns] = LruCache(MAX_EXAMPLE_WEIGHT, table_weight)

    def cached(self, job_id: str, key: Hashable, make: Callable[[], tuple[int, CachedValue]]) -> CachedValue:
        """What `make` gave for a job's results, with its number of rows; made where absent."""
        return cast("CachedValue", self._cache.get_or_make((job_id, key), make)[1])

    def chosen(
        self, wanted: Collection[tuple[str, int]], tenant: str | None = None
    ) -> dict[tuple[str, int], ResultJson]:
        """The merged results by job and evaluation, of a tenant's jobs if given."""
        statement = select(results).where(tuple_(results.c.job_id, results.c.evaluation).in_(wanted))
        if tenant is not None:
            statement = statement.join(jobs, jobs.c.id == results.c.job_id).where(jobs.c.tenant == tenant)
        with self._database.reading() as connection:
            return {(row.job_id, row.evaluation): row.result for row in connection.execute(statement)}

    def design(self, job_id: str) -> dict[str, str] | None:
        """The registered design of a job's study, as `Provenance` has it; None without."""
        statement = select(studies).join(jobs, jobs.c.study_id == studies.c.id).where(jobs.c.id == job_id)
        with self._database.reading() as connection:
            row = connection.execute(statement).one_or_none()
        if row is None or row.fixing is None or row.fixing["registered_at"] is None:
            return None
        at = iso(row.fixing["registered_at"])
        return {"study": row.id, "sha256": row.design, "registered_at": at}

    def outcomes(self, job_id: str, evaluation: int | None) -> list[OutcomeRow]:
        """Outcomes of an evaluation or of all (None), by evaluation and shard; training has 0, 0."""
        return self.outcomes_of_jobs([job_id], evaluation).get(job_id, [])

    def outcomes_of_jobs(
        self, job_ids: Collection[str], evaluation: int | None, tenant: str | None = None
    ) -> dict[str, list[OutcomeRow]]:
        """Outcomes of an evaluation, or of all (None), by job and shard, of a tenant's jobs if given."""
        wanted = (shards.c.evaluation, shards.c.number)
        statement = (
            select(outcomes, *wanted)
            .join(shards, shards.c.id == outcomes.c.shard_id)
            .where(outcomes.c.job_id.in_(job_ids))
            .order_by(outcomes.c.job_id, *wanted)
        )
        if evaluation is not None:
            statement = statement.where(shards.c.evaluation == evaluation)
        if tenant is not None:
            statement = statement.join(jobs, jobs.c.id == outcomes.c.job_id).where(jobs.c.tenant == tenant)
        with self._database.reading() as connection:
            rows = connection.execute(statement).all()
        found: dict[str, list[OutcomeRow]] = {}
        for row in rows:
            found.setdefault(row.job_id, []).append(_outcome(row))
        return found

    def columns(
        self,
        job_id: str,
        evaluation: int,
        names: Collection[str] | None = None,
        seen: Sequence[SeenCells] = (),
    ) -> list[Columns]:
        """Columns of the outcomes of an evaluation by shard; all, or those named, as `unpack_columns`.

        `seen`: ids of another evaluation's shards, which mostly are the same.
        """
        statement = (
            select(outcomes.c.payload)
            .join(shards, shards.c.id == outcomes.c.shard_id)
            .where(outcomes.c.job_id == job_id, shards.c.evaluation == evaluation)
            .order_by(shards.c.number)
        )
        with self._database.reading() as connection:
            payloads = connection.execute(statement).scalars().all()
        if names is None:
            return [unpack(one)[0] for one in payloads]
        known = (*seen, *repeat(None, len(payloads) - len(seen)))
        return [unpack_columns(*one) for one in zip(payloads, repeat(names), known, strict=False)]

    def example(self, job_id: str, place: int, first: int = 0) -> dict[int, Columns]:
        """Of each evaluation the row at a place, as columns of a single value, which is no list or object."""
        # First of the evaluation `first`, then of the others while their shards are small together.
        size = func.length(outcomes.c.payload).label("size")
        statement = (
            select(
                outcomes.c.shard_id, outcomes.c.fence, outcomes.c.n, size, *shards.c["evaluation", "start"]
            )
            .join(shards, shards.c.id == outcomes.c.shard_id)
            .where(outcomes.c.job_id == job_id, shards.c.kind == "evaluate")
            .where(shards.c.start <= place, shards.c.stop > place)
            .order_by(shards.c.evaluation != first, shards.c.evaluation)
        )
        with self._database.reading() as connection:
            parts = connection.execute(statement).all()
        found: dict[int, Columns] = {}
        rows = stored = 0
        for part in parts:
            if found and (rows + part.n > MAX_EXAMPLE_ROWS or stored + part.size > MAX_EXAMPLE_BYTES):
                continue
            rows, stored = rows + part.n, stored + part.size
            columns = self._shards.get_or_make(
                (part.shard_id, part.fence), partial(self._columns, part.shard_id)
            )
            at = place - part.start
            found[part.evaluation] = {name: values[at : at + 1] for name, values in columns.items()}
        return found

    def _columns(self, shard: str) -> Columns:
        statement = select(outcomes.c.payload).where(outcomes.c.shard_id == shard)
        with self._database.reading() as connection:
            payload = connection.execute(statement).scalar()
        columns = {} if payload is None else unpack(payload)[0]
        return {name: cells for name, cells in columns.items() if not any(map(_nested, cells))}

    def save(self, job_id: str, evaluation: int, result: ResultJson) -> None:
        """Writes or replaces a merged result, with an event. NotFound; ValueError: NaN or an infinity."""
        values = {"job_id": job_id, "evaluation": evaluation, "result": result, "created_at": now()}
        with self._database.writing() as connection:
            if lock_job(connection, job_id) is None:
                raise unknown_job(job_id)
            this = (results.c.job_id == job_id) & (results.c.evaluation == evaluation)
            before = connection.execute(select(results.c.result).where(this)).scalar()
            upsert(connection, results, values)
            if before != json.loads(json.dumps(result)):
                record_metric_event(connection, job_id, evaluation, result)

    def seconds_per_pass(
        self, model: ModelReference, device: str, tenant: str | None
    ) -> tuple[float, int] | None:
        """Seconds per example of a forward pass in the fastest shard of the model's finished jobs."""
        # And the passes of that shard: in few, the start of an evaluation takes most of the time. `model`:
        # name and parameters; without parameters (an uploaded program) the file. `device`: class. `tenant`:
        # None for all. None where no job counts among the last `PACED_JOBS` of the name.
        ids = [row.id for row in self._finished(model, device, tenant)]
        passes = outcomes.c.forward_passes + BACKWARD_COST * outcomes.c.backward_passes
        counted = outcomes.c.job_id.in_(ids) & (passes > 0) & (outcomes.c.seconds > 0)
        pace = outcomes.c.seconds / passes
        chosen = select(pace.label("pace"), passes.label("passes")).where(counted)
        with self._database.reading() as connection:
            found = connection.execute(chosen.order_by(pace).limit(1)).first()
        return None if found is None else (float(found.pace), int(found.passes))

    def measured_work(
        self, model: ModelReference, device: str, tenant: str | None
    ) -> list[tuple[EvaluationItem, float, int]]:
        """Each evaluation of the jobs that `seconds_per_pass` reads, its seconds and examples."""
        made = {row.id: row.provenance["spec"] for row in self._finished(model, device, tenant)}
        work = (func.sum(outcomes.c.seconds), func.sum(outcomes.c.n))
        statement = (
            select(outcomes.c.job_id, shards.c.evaluation, *work)
            .join(shards, shards.c.id == outcomes.c.shard_id)
            .where(outcomes.c.job_id.in_(list(made)), shards.c.kind == "evaluate")
            .group_by(outcomes.c.job_id, shards.c.evaluation)
        )
        with self._database.reading() as connection:
            rows = connection.execute(statement).all()
        return [
            (evaluations_in(made[job])[number], float(seconds), int(n)) for job, number, seconds, n in rows
        ]

    def _finished(self, model: ModelReference, device: str, tenant: str | None) -> list[Any]:
        finished = (jobs.c.model == model["name"]) & jobs.c.provenance.is_not(None)
        if tenant is not None:
            finished &= jobs.c.tenant == tenant
        statement = select(jobs.c.id, jobs.c.provenance).where(finished).order_by(jobs.c.id.desc())
        with self._database.reading() as connection:
            rows = connection.execute(statement.limit(PACED_JOBS)).all()
        return [row for row in rows if _made_with(row.provenance, model, device)]

    def of(self, job_id: str) -> dict[int, ResultJson]:
        """The merged results of a job by evaluation, in order."""
        return self.of_jobs([job_id], lambda result: result).get(job_id, {})

    def of_jobs(
        self, job_ids: Collection[str], read: Callable[[ResultJson], CachedValue], tenant: str | None = None
    ) -> dict[str, dict[int, CachedValue]]:
        """What `read` makes of each merged result, by job and evaluation, of a tenant's jobs if given."""
        key = (results.c.job_id, results.c.evaluation)
        statement = select(*key, results.c.result).where(results.c.job_id.in_(job_ids)).order_by(*key)
        if tenant is not None:
            statement = statement.join(jobs, jobs.c.id == results.c.job_id).where(jobs.c.tenant == tenant)
        found: dict[str, dict[int, CachedValue]] = {}
        with self._database.reading() as connection:
            for job_id, evaluation, result in connection.execute(statement):
                found.setdefault(job_id, {})[evaluation] = read(result)
        return found


def _made_with(provenance: JobProvenance, model: ModelReference, device: str) -> bool:
    made = provenance.get("spec", {}).get("model", {})
    same = (made.get("name"), made.get("params")) == (model["name"], model["params"])
    if not model["params"]:
        same &= (made.get("weights") or {}).get("sha256") == (model["weights"] or {}).get("sha256")
    return same and provenance["device"].get("type") == device


def _nested(cell: object) -> bool:
    return isinstance(cell, list | dict)


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
