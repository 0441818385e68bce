"""The end of a shard whose file is none, or cannot be read for a moment."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import ProgrammingError

from assay.service.store.store import Store
from assay.workers.supervision.shard_end import ShardEnd
from tests.support.workers import ended, losses_and_failures, settings, submit, supervising


@pytest.mark.costly
@pytest.mark.parametrize(
    ("number", "state"), [(errno.EIO, "succeeded"), (errno.ESTALE, "succeeded"), (errno.ELOOP, "failed")]
)
def test_only_a_file_that_may_be_there_is_tried_again(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, state: str
) -> None:
    real, left = ShardEnd._outcome, [OSError(number, "no file")]

    def outcome(self: ShardEnd, message: Any) -> Any:
        if left:
            raise left.pop()
        return real(self, message)

    monkeypatch.setattr(ShardEnd, "_outcome", outcome)
    job_id = submit(store, "shards=1")
    with supervising(store, settings(tmp_path)):
        job = ended(store, job_id)
    assert job.state == state
    assert losses_and_failures(store, job_id) == (0, 1)
    assert job.error is None or job.error["type"] == "bad_report"


def test_an_error_of_the_database_says_no_sql(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def finish(*given: Any) -> Any:
        raise ProgrammingError("INSERT INTO outcomes VALUES (?)", ("secret",), Exception("type 'dict'"))

    monkeypatch.setattr(store.shards, "finish", finish)
    job_id = submit(store, "shards=1")
    with supervising(store, settings(tmp_path)):
        job = ended(store, job_id)
    assert job.error == {
        "type": "worker_raised",
        "message": "ProgrammingError: the database refused it; the worker's log says what",
    }
