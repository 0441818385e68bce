"""The doorbell: a hint to the workers that a job may be claimable.

Rows in state `queued` are the truth; a lost doorbell costs time, never a job.
"""

from __future__ import annotations

from typing import Protocol


class Dispatcher(Protocol):
    """Whoever can wake the workers."""

    def ring(self, job_id: str, /) -> None:
        """Tells the workers that the job with this id may be claimable."""
        ...


class NullDispatcher:
    """For a service without workers of its own: whoever works polls the database."""

    def ring(self, job_id: str, /) -> None:
        """Does nothing."""
