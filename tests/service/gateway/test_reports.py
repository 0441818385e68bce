"""Reports of progress: the first of a job at once, the others of a second in one transaction."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from assay.service.contract.errors import NotFound
from assay.service.gateway import reports
from assay.service.gateway.reports import ProgressReports
from assay.service.store.rows import Claim, ShardReport

OTHERS: Any = {"kind": "evaluate", "attempt": 1, "spec": {}, "plan": None, "evaluation": 0, "number": 0}
OTHERS |= {"start": 0, "stop": 10, "failures": 0, "losses": 0, "worker": "pool:w"}


def said(shard: str, done: int, job: str = "job", fence: int = 1) -> ShardReport:
    return ShardReport(Claim(shard_id=shard, job_id=job, fence=fence, **OTHERS), done, None)


class Written:
    """Where reports are written: done examples by transaction; each may fail."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, dict[str, int]]] = []
        self.error: Exception | None = None

    async def write(self, job: str, told: Sequence[ShardReport]) -> None:
        self.rows.append((job, {one.claim.shard_id: one.done for one in told}))
        if self.error is not None:
            raise self.error


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "TOGETHER_SECONDS", 0.05)


async def quiet(taken: ProgressReports) -> None:
    while taken._writing:
        await asyncio.sleep(0.01)


def test_a_hundred_reports_of_a_job_are_two_transactions() -> None:
    async def work() -> None:
        taken, written = ProgressReports(), Written()
        for number in range(100):
            await taken.take(said(f"s{number}", number), written.write)
        await taken.take(said("s7", 70), written.write)
        await taken.take(said("s8", 80, fence=0), written.write)
        await taken.take(said("s0", 1, job="another"), written.write)
        await quiet(taken)
        first, other, together = written.rows
        assert (first, other) == (("job", {"s0": 0}), ("another", {"s0": 1}))
        assert together == ("job", {f"s{number}": number for number in range(1, 100)} | {"s7": 70})
        await taken.take(said("s1", 9), written.write)
        assert written.rows[3:] == [("job", {"s1": 9})], "a quiet job is written to at once"
        await taken.close()
        assert not taken._writing

    asyncio.run(work())


@pytest.mark.parametrize("close", [False, True])
def test_what_cannot_be_written_is_said(caplog: pytest.LogCaptureFixture, close: bool) -> None:
    async def work() -> None:
        taken, written, others = ProgressReports(), Written(), asyncio.all_tasks()
        await taken.take(said("s0", 1), written.write)
        await taken.take(said("s1", 1), written.write)
        written.error = NotFound("there is no such job")
        if close:
            await taken.close()
        await quiet(taken)
        assert len(written.rows) == (1 if close else 2)
        written.error = None
        await taken.take(said("s2", 1), written.write)
        assert written.rows[-1] == ("job", {"s2": 1}), "a report that was dropped stays dropped"
        await taken.close()
        assert asyncio.all_tasks() == others

    with caplog.at_level(logging.WARNING):
        asyncio.run(work())
    assert ("there is no such job" in caplog.text) is not close
