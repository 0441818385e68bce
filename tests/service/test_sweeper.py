"""Jobs that the service ends without any worker."""

from __future__ import annotations

import pytest
from sqlalchemy.exc import OperationalError

from assay.service.store.store import Store, open_store
from assay.service.sweeper import Sweeper
from tests.support.databases import *  # noqa: F403 (fixtures)
from tests.support.jobs import WORKER, add, evaluate_spec
from tests.support.workers import wait_for


def test_a_cancel_and_a_timeout_end_without_workers(database_url: str) -> None:
    with open_store(database_url, migrate=False) as store:
        canceled = add(store, evaluate_spec())
        overdue = add(store, evaluate_spec(timeout_seconds=0.001))
        for _ in range(2):
            assert store.shards.claim(WORKER, ["cpu"], lease_seconds=-1) is not None
        assert store.jobs.cancel(canceled).state == "canceling"
        sweeper = Sweeper(lambda: store, seconds=0.02)
        try:
            wait_for(lambda: store.jobs.get(canceled).state == "canceled")
            wait_for(lambda: store.jobs.get(overdue).state == "timed_out")
        finally:
            sweeper.close()


def test_no_error_ends_it(database_url: str, caplog: pytest.LogCaptureFixture) -> None:
    calls: list[str] = []

    def opener() -> Store:
        calls.append("")
        if len(calls) == 1:
            raise OperationalError("", {}, Exception("connection refused"))
        raise ValueError("a defect")

    sweeper = Sweeper(opener, seconds=0.02)
    wait_for(lambda: len(calls) > 2)
    sweeper.close()
    assert "a defect" in caplog.text
    assert "connection refused" not in caplog.text
