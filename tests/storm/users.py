"""Users of a storm: they submit, cancel, retry failed jobs and have outdated ones planned again."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import count

from assay.service.contract.errors import InvalidSpec, InvalidState
from assay.service.contract.states import RETRYABLE, JobState
from tests.storm.access import REFUTED, Access, Seen
from tests.storm.jobs import Wish

log = logging.getLogger(__name__)
POLL_SECONDS = 0.5
BUSY = frozenset({JobState.STARTING, JobState.RUNNING})
# Jobs beyond the planned ones are submitted one after another, so that there is work for every fault.
BACKLOG = 6


class Users(threading.Thread):
    """Submits wishes one after another, cancels some jobs, and retries until all have succeeded.

    Args:
        access: to the service.
        wish: the nth job.
        seed: of what they do.
        jobs: how many at least.
        enough: whether no further ones are needed.
        outdated: ids of jobs that were planned by a version that is gone.
        pause: mean seconds between two submissions.
        cancels: how many jobs are canceled.

    Attributes:
        wishes: what was submitted, in that order.
        ids: of the jobs, by the keys of the wishes.
        replanned: ids of the jobs that were planned again.
        failure: what ended them, if a defect did.
    """

    def __init__(
        self,
        access: Access,
        wish: Callable[[int], Wish],
        seed: int,
        *,
        jobs: int,
        enough: Callable[[], bool] = lambda: True,
        outdated: Callable[[], set[str]] = set,
        pause: float = 0.0,
        cancels: int = 0,
    ) -> None:
        super().__init__(name="users", daemon=True)
        self._access, self._wish, self._jobs = access, wish, jobs
        self._enough, self._outdated = enough, outdated
        self._pause, self._cancels = pause, cancels
        self._draw = random.Random(f"users {seed}")
        self._over = threading.Event()
        self.wishes: list[Wish] = []
        self.ids: dict[str, str] = {}
        self.done: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.replanned: set[str] = set()
        self.succeeded: set[str] = set()
        self._canceled: set[str] = set()
        self._all_submitted = False
        self.failure: BaseException | None = None

    def run(self) -> None:
        """Act until all jobs have succeeded, or `stop`."""
        try:
            for number in count():
                if number >= self._jobs and not self._room():
                    break
                self._submit(self._wish(number))
                if self._over.wait(self._draw.uniform(0, 2 * self._pause)):
                    return
                self._meddle()
            self._all_submitted = True
            while not self._over.wait(POLL_SECONDS) and not self.finished:
                self._meddle()
        except BaseException as error:
            if not self._over.is_set():
                log.exception("users: this is a defect of the storm, or of the service")
                self.failure = error
        finally:
            self._access.close()

    @property
    def finished(self) -> bool:
        """Whether every job was submitted and has succeeded."""
        return self._all_submitted and len(self.succeeded) == len(self.wishes)

    def stop(self) -> None:
        """End soon."""
        self._over.set()
        self._access.give_up()

    def _room(self) -> bool:
        """Wait until a further job is needed; whether one is."""
        while not self._enough() and not self._over.is_set():
            if len(self.wishes) - len(self.succeeded) < BACKLOG:
                return True
            self._meddle()
            time.sleep(POLL_SECONDS)
        return False

    def _submit(self, wish: Wish) -> None:
        while True:
            try:
                job_id = self._access.submit(wish, self.ids)
            except InvalidSpec:
                # The training it depends on has just failed: it is retried first.
                self._meddle()
                time.sleep(POLL_SECONDS)
            else:
                self.wishes.append(wish)
                self.ids[wish.key] = job_id
                self.done["submitted"] += 1
                return

    def _meddle(self) -> None:
        """Retry failed jobs; occasionally cancel a running one; plan outdated ones again."""
        outdated = self._outdated()
        for job in self._access.jobs():
            if job.state is JobState.SUCCEEDED:
                self.succeeded.add(job.id)
            elif job.id in outdated or job.error in ("mixed_identities", REFUTED):
                self._replan(job)
            elif job.state in RETRYABLE:
                self._retry(job)
            elif self._wants_to_cancel(job):
                self._cancel(job)
            if self._over.is_set():
                return

    def _wants_to_cancel(self, job: Seen) -> bool:
        allowed = job.id not in self._canceled and len(self._canceled) < self._cancels
        return job.state in BUSY and allowed and self._draw.random() < 0.1

    def _cancel(self, job: Seen) -> None:
        self._canceled.add(job.id)
        try:
            self._access.cancel(job.id)
        except InvalidState:
            return  # it has just ended, or the answer to the first try was lost
        self.done["canceled"] += 1

    def _retry(self, job: Seen) -> None:
        kind = job.error or str(job.state)
        log.info("job %s (%s): %s; trying again", job.id, job.name, kind)
        try:
            self._access.retry(job.id)
        except InvalidState:
            return  # the answer to the first try was lost
        self.done["retried"] += 1
        self.errors[kind] += 1

    def _replan(self, job: Seen) -> None:
        try:
            self._access.replan(job.id)
        except InvalidState:
            return  # a worker has a shard of it: the next time
        log.info("job %s (%s): planned again: %s", job.id, job.name, job.error or "of the version before")
        self.replanned.add(job.id)
        self.done["replanned"] += 1
