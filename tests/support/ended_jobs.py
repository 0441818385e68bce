"""Jobs that have ended, and the states of their shards."""

from __future__ import annotations

from assay.service.store.store import Store
from tests.support.jobs import (
    finish_all,
    planned,
)


def shard_states(store: Store, job_id: str) -> list[str]:
    return [str(row.state) for row in store.shards.of(job_id)]


def done(store: Store) -> str:
    """A job that has succeeded."""
    job_id = planned(store, 1)
    finish_all(store, job_id)
    store.results.save(job_id, 0, {"name": "clean"})
    assert store.jobs.succeed(job_id, {"seed": 0})
    return job_id
