"""Uploaded weights, by tenant and name.

A job of kind `check` with one shard, hidden from users, checks a checkpoint: claims, leases, retries and
dependents work as for all jobs. That job's folder has the file, that job's state is the checkpoint's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NotRequired, TypedDict, Unpack

from sqlalchemy import Connection, Row, Select, delete, select
from sqlalchemy.exc import IntegrityError

from assay.service.contract.errors import InvalidState, NotFound
from assay.service.contract.findings.verdict_records import VerdictRecord
from assay.service.contract.problems import Problems, nearest
from assay.service.contract.states import RETRYABLE, JobState
from assay.service.contract.stored_specs import CheckJobSpec, ComponentReference
from assay.service.contract.weights.checkpoints import NAME_PATTERN
from assay.service.contract.weights.options import WeightsReading
from assay.service.contract.weights.stored_checkpoints import CheckpointRow, CheckpointState
from assay.service.store.audit import Actor, record
from assay.service.store.database import StorePart
from assay.service.store.fleet.quotas import Quota, check_in_flight, check_room, one_at_a_time
from assay.service.store.ids import decode_cursor, encode_cursor
from assay.service.store.rows import Claim
from assay.service.store.tables import checkpoints, dependencies, jobs
from assay.service.store.tenant_tables import reservations
from assay.service.store.transactions.checks import BAD_WEIGHTS, end_check, submit_check
from assay.service.store.transactions.dependencies import unfinished_dependent
from assay.service.store.transactions.end_job import delete_job
from assay.service.store.transactions.retry import retry_job
from assay.service.store.transactions.transitions import lock_job

# Reading options that an upload may state (`contract.weights.options`).
UNSTATED: WeightsReading = {"normalization": None, "positions": None}


class NewCheckpoint(TypedDict):
    """What is known of an uploaded file."""

    model: ComponentReference  # {"name", "params"} with every default filled in
    sha256: str
    size: int  # in bytes
    place: Callable[[str], None]  # moves the file into this job's folder, before the commit
    reading: NotRequired[WeightsReading]  # as the upload states it, None where it does not
    quota: NotRequired[Quota | None]
    upload: NotRequired[str | None]  # the upload that has reserved the room


class Checkpoints(StorePart):
    """The uploaded weights."""

    def add(
        self, name: str, *, tenant: str | None, by: Actor | None = None, **given: Unpack[NewCheckpoint]
    ) -> tuple[CheckpointRow, bool]:
        """Adds a checkpoint and queues its check.

        The same file under the same name adds nothing; a rejected file is checked once more. Raises
        InvalidState: the name is taken by another file, model or reading, or the tenant has its number of
        checkpoints; TooLarge: its bytes; TooManyRequests: other uploads have reserved the room.
        """
        model, sha256, size = given["model"], given["sha256"], given["size"]
        reading, quota, upload = given.get("reading", UNSTATED), given.get("quota"), given.get("upload")
        while True:
            try:
                with self._database.writing() as connection:
                    one_at_a_time(connection, tenant)
                    known = _lock(connection, name, tenant)
                    queued = known is None or known.state in RETRYABLE
                    if known is None:
                        if quota is not None:
                            check_room(connection, tenant, quota, size)
                            apart = [] if upload is None else [upload]
                            check_in_flight(connection, tenant, quota, size, apart)
                        job_id = submit_check(connection, name, model, sha256, size, tenant, reading)
                    else:
                        job_id = known.job_id
                        _check_same(known, model, sha256, reading)
                        if queued:
                            retry_job(connection, job_id)
                    if queued:
                        given["place"](job_id)
                    if upload is not None:
                        connection.execute(delete(reservations).where(reservations.c.id == upload))
                    if queued:
                        told = {"sha256": sha256, "size": size, "model": model["name"]}
                        record(connection, by, "checkpoint.upload", name, detail=told)
                    return _read(connection, name, tenant), queued
            except IntegrityError:
                continue  # another upload with the same name was faster

    def get(self, name: str, *, tenant: str | None) -> CheckpointRow:
        """The tenant's checkpoint of this name. Raises NotFound."""
        with self._database.reading() as connection:
            return _read(connection, name, tenant)

    def page(
        self, *, tenant: str | None, limit: int = 50, cursor: str | None = None
    ) -> tuple[list[CheckpointRow], str | None]:
        """The tenant's checkpoints by name, the next page's cursor. Raises InvalidSpec: a foreign cursor."""
        statement = _selected().where(checkpoints.c.tenant == (tenant or "")).order_by(checkpoints.c.name)
        if cursor is not None:
            statement = statement.where(checkpoints.c.name > decode_cursor(cursor, NAME_PATTERN))
        with self._database.reading() as connection:
            rows = [_row(row) for row in connection.execute(statement.limit(limit + 1))]
        return rows[:limit], encode_cursor(rows[limit - 1].name) if len(rows) > limit else None

    def delete(self, name: str, *, tenant: str | None, by: Actor | None = None) -> str:
        """Deletes a checkpoint, abandons its check. NotFound; InvalidState: an unfinished job needs it."""
        with self._database.writing() as connection:
            found = _read(connection, name, tenant)
            job_id = found.job_id
            check = lock_job(connection, job_id)
            user = unfinished_dependent(connection, job_id)
            if user is not None:
                raise InvalidState(f"job {user.id} is not finished and needs the checkpoint {name}")
            if check is not None:
                delete_job(connection, check)
            record(connection, by, "checkpoint.delete", name, detail={"sha256": found.sha256})
        return job_id

    def needed_by(self, job_id: str) -> dict[str, CheckpointRow]:
        """The checkpoints that a job loads, by name, without deleted checkpoints."""
        needed = (
            _selected()
            .join(dependencies, dependencies.c.depends_on == checkpoints.c.job_id)
            .where(dependencies.c.job_id == job_id)
        )
        with self._database.reading() as connection:
            return {row.name: _row(row) for row in connection.execute(needed)}

    def checked(self, claim: Claim, verdict: VerdictRecord, error: str | None) -> bool:
        """Ends a check; dependents go on or fail. `error`: the rejection in one sentence; None: ready."""
        with self._database.writing() as connection:
            return end_check(connection, claim, verdict, error)


def _selected() -> Select[Any]:
    of_job = (jobs.c.state, jobs.c.error, jobs.c.spec)
    return select(checkpoints, *of_job).join(jobs, jobs.c.id == checkpoints.c.job_id)


def _find(connection: Connection, name: str, tenant: str | None) -> Row[Any] | None:
    mine = (checkpoints.c.tenant == (tenant or "")) & (checkpoints.c.name == name)
    return connection.execute(_selected().where(mine)).one_or_none()


def _lock(connection: Connection, name: str, tenant: str | None) -> Row[Any] | None:
    """The checkpoint, locked until the transaction ends; None where it is unknown."""
    known = _find(connection, name, tenant)
    if known is None or lock_job(connection, known.job_id) is None:
        return None
    return _find(connection, name, tenant)


def _read(connection: Connection, name: str, tenant: str | None) -> CheckpointRow:
    found = _find(connection, name, tenant)
    if found is None:
        names = connection.scalars(select(checkpoints.c.name).where(checkpoints.c.tenant == (tenant or "")))
        problems = Problems()
        message = f"there is no checkpoint {name[:200]!r}"
        problems.add(("name",), message, given=name, nearest=nearest(name, names))
        raise NotFound(message, problems.details)
    return _row(found)


def _check_same(known: Row[Any], model: ComponentReference, sha256: str, reading: WeightsReading) -> None:
    stated = _reading(known)
    for what, there, given in (
        ("content", known.sha256, sha256),
        ("model", known.model, model),
        ("normalization", stated["normalization"], reading["normalization"]),
        ("positions", stated["positions"], reading["positions"]),
        ("list of class names", stated.get("class_names"), reading.get("class_names")),
    ):
        if there != given:
            raise InvalidState(
                f"the checkpoint {known.name} has another {what} ({there}, given {given}):"
                " delete it first, or take another name"
            )


def _reading(row: Row[Any]) -> WeightsReading:
    spec: CheckJobSpec = row.spec
    weights = spec["model"]["weights"] or {}
    reading: WeightsReading = {
        "normalization": weights.get("normalization"),
        "positions": weights.get("positions"),
    }
    return {**reading, "class_names": weights["class_names"]} if "class_names" in weights else reading


def _row(row: Row[Any]) -> CheckpointRow:
    state: CheckpointState = "checking"
    if row.state == JobState.SUCCEEDED:
        state = "ready"
    elif row.state in RETRYABLE:
        state = "rejected"
    return CheckpointRow(
        job_id=row.job_id,
        name=row.name,
        state=state,
        model=row.model,
        size=row.size,
        sha256=row.sha256,
        reading=_reading(row),
        created_at=row.created_at,
        # The verdict of an earlier check is left while a new check runs or after it failed by accident.
        verdict=row.verdict if state == "ready" or (row.error or {}).get("type") == BAD_WEIGHTS else None,
        error=row.error if state == "rejected" else None,
    )
