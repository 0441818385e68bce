"""Reports of progress: of a job at most one transaction a second, however many workers it has.

A report changes its job's row, which claims and outcomes lock too: written one by one, the reports of a
thousand workers would keep them waiting. A job's first report is written at once, later reports together.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from assay.service.contract.errors import AssayError
from assay.service.gateway.waiting import DATABASE_AWAY
from assay.service.store.rows import ShardReport

log = logging.getLogger(__name__)
TOGETHER_SECONDS = 1.0
Write = Callable[[str, Sequence[ShardReport]], Awaitable[None]]  # Of a job


class ProgressReports:
    """The reports that wait to be written, and the jobs that were written to in the last second."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[str, ShardReport]] = {}  # By job and shard
        self._writing: dict[str, asyncio.Task[None]] = {}

    async def take(self, report: ShardReport, write: Write) -> None:
        """Writes a report, now or within a second; a newer report of its shard replaces it."""
        job, shard = report.claim.job_id, report.claim.shard_id
        if job not in self._writing:
            self._writing[job] = asyncio.create_task(self._write_on(job, write))
            await write(job, [report])
            return
        kept = self._kept.setdefault(job, {})
        if shard not in kept or kept[shard].claim.fence <= report.claim.fence:
            kept[shard] = report

    async def close(self) -> None:
        """The service stops: the next renewals tell again what is lost."""
        if tasks := [*self._writing.values()]:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        # A task that had not begun has not tidied up.
        self._writing.clear()

    async def _write_on(self, job: str, write: Write) -> None:
        try:
            await asyncio.sleep(TOGETHER_SECONDS)
            while kept := self._kept.pop(job, None):
                try:
                    await write(job, [*kept.values()])
                except (*DATABASE_AWAY, AssayError) as error:
                    log.warning("job %s: progress not recorded: %s", job, error)
                await asyncio.sleep(TOGETHER_SECONDS)
        finally:
            del self._writing[job]
            self._kept.pop(job, None)
