"""Users of a storm: they submit, cancel, and retry failed jobs, through all faults."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from assay.service.contract.errors import AssayError, InvalidSpec, InvalidState
from assay.service.contract.states import RETRYABLE, JobState
from assay.service.store.rows import JobRow
from assay.service.store.store import Store
from assay.workers.supervision.outcome_spool import DATABASE_UNAVAILABLE
from tests.storm.jobs import Wish, spec_of

log = logging.getLogger(__name__)
T = TypeVar("T")
Ring = Callable[[str], None]
POLL_SECONDS = 0.5


class Users(threading.Thread):
    """Submits the wishes one after another, cancels some jobs, and retries until all have succeeded.

    Args:
        store: of the cluster.
        wishes: the jobs.
        seed: of what they do.
        ring: tells the workers of a job.
        pause: mean seconds between two submissions.
        cancels: how many jobs are canceled.
    """

    def __init__(
        self, store: Store, wishes: list[Wish], seed: int, ring: Ring, *, pause: float = 0.0, cancels: int = 0
    ) -> None:
        super().__init__(name="users", daemon=True)
        self._store, self._wishes, self._ring = store, wishes, ring
        self._pause, self._cancels = pause, cancels
        self._draw = random.Random(f"users {seed}")
        self._over = threading.Event()
        self.ids: dict[str, str] = {}
        self.done: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.succeeded: set[str] = set()
        self._canceled: set[str] = set()
        self.failure: BaseException | None = None

    def run(self) -> None:
        """Act until all jobs have succeeded, or `stop`."""
        try:
            for wish in self._wishes:
                self._submit(wish)
                if self._over.wait(self._draw.uniform(0, 2 * self._pause)):
                    return
                self._meddle()
            while not self._over.wait(POLL_SECONDS) and not self.finished:
                self._meddle()
        except BaseException as error:
            log.exception("users: this is a defect of the storm")
            self.failure = error

    @property
    def finished(self) -> bool:
        """Whether every job was submitted and has succeeded."""
        return len(self.succeeded) == len(self._wishes)

    def stop(self) -> None:
        """End soon."""
        self._over.set()

    def _submit(self, wish: Wish) -> None:
        same = {"body_sha256": wish.key, "idempotency_key": wish.key}
        while True:
            try:
                spec = spec_of(wish, self.ids)
                row, _ = self._insist(partial(self._store.jobs.add, spec, **same))
            except InvalidSpec:
                # The training it depends on has just failed: it is retried first.
                self._meddle()
                time.sleep(POLL_SECONDS)
            else:
                self._ring(row.id)
                self.ids[wish.key] = row.id
                self.done["submitted"] += 1
                return

    def _meddle(self) -> None:
        """Retry failed jobs; occasionally cancel a running one."""
        for job in self._insist(self._all):
            if job.state is JobState.SUCCEEDED:
                self.succeeded.add(job.id)
            elif job.state in RETRYABLE:
                self._retry(job)
            elif self._wants_to_cancel(job):
                self._cancel(job)
            if self._over.is_set():
                return

    def _all(self) -> list[JobRow]:
        """Every job, oldest first."""
        found, cursor = self._store.jobs.page(limit=200)
        while cursor is not None:
            more, cursor = self._store.jobs.page(limit=200, cursor=cursor)
            found += more
        return found[::-1]

    def _wants_to_cancel(self, job: JobRow) -> bool:
        busy = job.state in {JobState.STARTING, JobState.RUNNING}
        allowed = job.id not in self._canceled and len(self._canceled) < self._cancels
        return busy and allowed and self._draw.random() < 0.1

    def _cancel(self, job: JobRow) -> None:
        self._canceled.add(job.id)
        try:
            self._insist(lambda: self._store.jobs.cancel(job.id))
        except InvalidState:
            return  # it has just ended, or the answer to the first try was lost
        self.done["canceled"] += 1

    def _retry(self, job: JobRow) -> None:
        kind = job.error["type"] if job.error else str(job.state)
        log.info("job %s (%s): %s; trying again", job.id, job.name, kind)
        try:
            self._insist(lambda: self._store.jobs.retry(job.id))
        except InvalidState:
            return  # the answer to the first try was lost
        self._ring(job.id)
        self.done["retried"] += 1
        self.errors[kind] += 1

    def _insist(self, call: Callable[[], T]) -> T:
        while True:
            try:
                return call()
            except AssayError:
                raise
            except DATABASE_UNAVAILABLE:
                if self._over.wait(0.2):
                    raise
