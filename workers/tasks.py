"""The one task of Celery: the doorbell."""

from __future__ import annotations

from service.contract.doorbell import RING
from workers import node
from workers.app import app


def ring(job_id: str) -> None:
    """Wakes the supervisor of this process; what there is to do stands in the database."""
    node.ring()


app.task(ring, name=RING)
