"""Rows of tables as the store's values."""

from __future__ import annotations

from dataclasses import fields

import pytest
from sqlalchemy import select

from assay.service.contract.errors import NotFound
from assay.service.contract.states import JobState, ShardState
from assay.service.store.row_mapping import job_row, read_job, shard_row, unknown_job
from assay.service.store.rows import JobRow, ShardRow
from assay.service.store.store import Store
from assay.service.store.tables import jobs, shards
from tests.support.jobs import evaluate_spec, planned, train_spec


def add(store: Store, tenant: str | None, **changes: object) -> str:
    return store.jobs.add(train_spec(**changes), body_sha256="sha", tenant=tenant)[0].id


def test_a_job_has_its_name_and_tags_from_the_spec(store: Store) -> None:
    name = "<b>&amp;\u202e'; DROP TABLE jobs"
    job_id = add(store, "team", name=name, tags=["b", "a", "b"])
    with store._database.reading() as connection:
        job = read_job(connection, job_id)
    assert (job.name, job.tags) == (name, ["b", "a", "b"]), "as they were given, in their order"
    assert job.state is JobState.QUEUED, "an enumeration, no text"
    assert (job.id, job.tenant, job.attempt) == (job_id, "team", 1)


def test_every_column_is_a_field_or_left_out_by_name(store: Store) -> None:
    """A column that a migration adds must be shown or hidden on purpose."""
    job_id = planned(store, 1)
    with store._database.reading() as connection:
        job = connection.execute(select(jobs).where(jobs.c.id == job_id)).one()
        shard = connection.execute(select(shards).where(shards.c.job_id == job_id)).first()
    assert shard is not None
    hidden = {
        "last_event",
        "progress_event_at",
        "paused_at",
        "seed",
        "clean",
        "worst",
        "worst_at",
        "examples",
    }
    assert {one.name for one in fields(JobRow)} == {*job._mapping, "name", "tags"} - hidden
    assert isinstance(job_row(job), JobRow)
    found = shard_row(shard)
    assert {one.name for one in fields(ShardRow)} < {*shard._mapping}
    assert found.state is ShardState(shard.state)
    for scheduling in ("tenant", "identity", "requirements", "precedence"):
        assert not hasattr(found, scheduling)


@pytest.mark.parametrize("tenant", ["other", ""])
def test_a_job_of_another_tenant_is_not_there(store: Store, tenant: str) -> None:
    job_id = add(store, "team")
    free = add(store, None)
    with store._database.reading() as connection:
        assert read_job(connection, job_id, "team").id == job_id
        assert read_job(connection, free).id == free
        for hidden in (job_id, free):
            with pytest.raises(NotFound) as told:
                read_job(connection, hidden, tenant)
            assert told.value.message == f"there is no job {hidden}", "as of a job that never was"


@pytest.mark.parametrize("job_id", ["", "0" * 26, "' OR '1'='1", "%", "x" * 10_000])
def test_an_unknown_job_is_named_in_few_words(store: Store, job_id: str) -> None:
    add(store, None)
    with store._database.reading() as connection, pytest.raises(NotFound) as told:
        read_job(connection, job_id)
    assert told.value.message == unknown_job(job_id).message
    assert len(told.value.message) <= len("there is no job ") + 100


def test_the_spec_is_the_stored_one(store: Store) -> None:
    spec = evaluate_spec(name="n", tags=["t"])
    job_id = store.jobs.add(spec, body_sha256="sha")[0].id
    with store._database.reading() as connection:
        assert read_job(connection, job_id).spec == spec
