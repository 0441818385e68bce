"""The doorbell: a hint to the workers that a job may be claimable.

Rows in state `queued` are the truth; a lost doorbell costs time, never a job. Ringing therefore never waits
and never fails: a slow or absent Redis must not affect submissions.
"""

from __future__ import annotations

import logging
import threading
from typing import Protocol

from assay.service.contract.fleet.doorbell import SERIALIZER, TRANSPORT, broker, listeners, sending

logger = logging.getLogger(__name__)
AWAY_SECONDS = 2.0
CLOSE_SECONDS = 5.0
BETWEEN_SECONDS = 0.25  # The first ring goes at once, close ones are batched: each takes milliseconds.


class Dispatcher(Protocol):
    """Interface: wakes the workers."""

    def ring(self, job_id: str, device: str, /) -> None:
        """Tells the workers for a device ("auto": all) that the job with this id may be claimable."""
        ...


class NullDispatcher:
    """For a service without workers of its own: workers poll the database."""

    def ring(self, job_id: str, device: str, /) -> None:
        """Does nothing."""


class CeleryDispatcher:
    """Rings the workers of all machines through Redis, from a thread of its own.

    Rings that come while one is being sent are sent as one: it only says "look into the database".
    `redis_url`: address of Redis, with the password.
    """

    def __init__(self, redis_url: str) -> None:
        from celery import Celery  # Embedded services start without it.

        self._app = Celery("assay", broker=broker(redis_url), set_as_current=False)
        self._app.conf.update(
            broker_transport_options=TRANSPORT,
            broker_connection_retry=False,
            task_serializer=SERIALIZER,
            task_ignore_result=True,
        )
        self._pending: dict[str, str] = {}
        self._wake = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._send_all, name="doorbell", daemon=True)
        self._thread.start()

    def ring(self, job_id: str, device: str, /) -> None:
        """Queues the ring; it is sent at once, and dropped when Redis is away."""
        with self._wake:
            self._pending.update(dict.fromkeys(listeners(device), job_id))
            self._wake.notify()

    def close(self) -> None:
        """Sends pending rings and ends the thread."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join(CLOSE_SECONDS)
        self._app.close()

    def _send_all(self) -> None:
        away = False
        while pending := self._next():
            try:
                for device_class, job_id in pending.items():
                    self._app.send_task(**sending(device_class, job_id))
                away = False
                self._pause(BETWEEN_SECONDS)
            except Exception as error:
                if not away:
                    logger.warning("doorbell: Redis is away, workers find jobs by polling: %s", error)
                away = True
                self._pause(AWAY_SECONDS)

    def _next(self) -> dict[str, str]:
        """Waits for the next rings; empty when the dispatcher was closed."""
        with self._wake:
            self._wake.wait_for(lambda: self._pending or self._closed)
            pending, self._pending = self._pending, {}
            return pending

    def _pause(self, seconds: float) -> None:
        with self._wake:
            self._wake.wait_for(lambda: self._closed, seconds)
