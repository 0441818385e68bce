"""The only Celery task, the doorbell, and the command line of a node.

    python -P -m assay.workers.doorbell worker --pool prefork --concurrency 1

is `celery worker` without its search for the application in the current folder.
"""

from __future__ import annotations

from assay.service.contract.extras import require_to_run

if __name__ == "__main__":
    require_to_run("assay.workers.doorbell", "worker")

import sys

from assay.service.contract.fleet.doorbell import RING
from assay.workers import node
from assay.workers.app import app


def ring(job_id: str) -> None:
    """Wakes the supervisor of this process; the work is in the database."""
    node.ring()


app.task(ring, name=RING)


if __name__ == "__main__":
    app.worker_main(sys.argv[1:])
