"""How users of a storm reach the service: by its store, or over HTTP at an API process that answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from assay.service.client import AssayClient
from assay.service.contract.errors import Unavailable
from assay.service.contract.states import JobState
from assay.service.store.store import Store
from assay.service.store.transactions.release import DIFFERENT
from tests.storm.jobs import Wish, spec_of, with_weights

T = TypeVar("T")
AWAY_SECONDS = 0.2
REFUTED = "a liar's numbers, computed again"


@dataclass(frozen=True)
class Seen:
    """A job as users see it; `error` is the type of its error or REFUTED, empty without one."""

    id: str
    name: str
    state: JobState
    error: str


def error_of(error_type: str, message: str) -> str:
    """The type of an error; REFUTED where a repeated shard has shown a liar's numbers."""
    return REFUTED if error_type == DIFFERENT and "liar-" in message else error_type


class Access(Protocol):
    """What users do. A call is repeated until it is answered: under a key, so that a job is made once."""

    def submit(self, wish: Wish, ids: Mapping[str, str]) -> str:
        """Submit a job; returns its id."""
        ...

    def jobs(self) -> list[Seen]:
        """All jobs."""
        ...

    def cancel(self, job_id: str) -> None:
        """Cancel a job."""
        ...

    def retry(self, job_id: str) -> None:
        """Retry a job."""
        ...

    def replan(self, job_id: str) -> None:
        """Have a job planned again."""
        ...

    def give_up(self) -> None:
        """Let a call that is not answered raise."""
        ...

    def close(self) -> None:
        """End the connections."""
        ...


class ByStore:
    """Users in the process of the store, without faults.

    Args:
        store: of the run.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def submit(self, wish: Wish, ids: Mapping[str, str]) -> str:
        """Submit a job; returns its id."""
        same = {"body_sha256": wish.key, "idempotency_key": wish.key}
        return self._store.jobs.add(spec_of(wish, ids), **same)[0].id

    def jobs(self) -> list[Seen]:
        """All jobs."""
        found, cursor = self._store.jobs.page(limit=200)
        while cursor is not None:
            more, cursor = self._store.jobs.page(limit=200, cursor=cursor)
            found += more
        return [
            Seen(
                one.id,
                one.name,
                one.state,
                error_of(one.error["type"], one.error["message"]) if one.error else "",
            )
            for one in found
        ]

    def cancel(self, job_id: str) -> None:
        """Cancel a job."""
        self._store.jobs.cancel(job_id)

    def retry(self, job_id: str) -> None:
        """Retry a job."""
        self._store.jobs.retry(job_id)

    def replan(self, job_id: str) -> None:
        """Have a job planned again."""
        self._store.jobs.replan(job_id)

    def give_up(self) -> None:
        """Nothing: every call is answered."""

    def close(self) -> None:
        """Nothing: the store is another's."""


class ByHttp:
    """Users of API processes that are killed.

    Args:
        clients: one of each process.
    """

    def __init__(self, clients: list[AssayClient]) -> None:
        self._clients = clients
        self._over = threading.Event()

    def submit(self, wish: Wish, ids: Mapping[str, str]) -> str:
        """Submit a job; returns its id."""
        body = with_weights(wish, ids)
        return self._insist(lambda client: client.submit(body, idempotency_key=wish.key)).id

    def jobs(self) -> list[Seen]:
        """All jobs."""
        found = self._insist(lambda client: list(client.jobs(page_size=200)))
        return [
            Seen(
                one.id,
                one.name or "",
                JobState(one.state),
                error_of(one.error.type, one.error.message) if one.error else "",
            )
            for one in found
        ]

    def cancel(self, job_id: str) -> None:
        """Cancel a job."""
        self._insist(lambda client: client.cancel(job_id))

    def retry(self, job_id: str) -> None:
        """Retry a job."""
        self._insist(lambda client: client.retry(job_id))

    def replan(self, job_id: str) -> None:
        """Have a job planned again."""
        self._insist(lambda client: client.replan(job_id))

    def give_up(self) -> None:
        """Let a call that is not answered raise."""
        self._over.set()

    def close(self) -> None:
        """End the connections."""
        for client in self._clients:
            client.close()

    def _insist(self, call: Callable[[AssayClient], T]) -> T:
        """Ask one process after another, until one answers."""
        while True:
            for client in tuple(self._clients):
                try:
                    return call(client)
                except Unavailable:
                    # The next call begins with a process that may answer.
                    self._clients = [*self._clients[1:], self._clients[0]]
                    if self._over.wait(AWAY_SECONDS):
                        raise
