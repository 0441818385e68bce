"""An API process of the storm: `assay.service.server` with an unreliable doorbell, of one of two versions.

STORM_DISGUISE=... python -m tests.storm.api
"""

from __future__ import annotations

import logging
import random
import sys
from pathlib import Path

from assay.service import server
from assay.service.dispatch import CeleryDispatcher
from tests.storm import disguise, revision

log = logging.getLogger("tests.storm.api")
DROPPED, REPEATED = 0.3, 0.3
TIMES = 20


class BadDoorbell(CeleryDispatcher):
    """Rings less or more often than it should.

    Args:
        redis_url: address of Redis, with the password.
    """

    def __init__(self, redis_url: str) -> None:
        super().__init__(redis_url)
        self._draw = random.Random(f"doorbell {disguise.present().seed}")

    def ring(self, job_id: str, device: str, /) -> None:
        """Notify the workers of a job never, once or repeatedly."""
        luck = self._draw.random()
        kind = "dropped" if luck < DROPPED else "repeated" if luck < DROPPED + REPEATED else "passed on"
        log.info("doorbell %s", kind)
        for _ in range({"dropped": 0, "passed on": 1, "repeated": TIMES}[kind]):
            super().ring(job_id, device)


def main() -> int:
    """Serve until a signal."""
    chosen = disguise.present()
    disguise.put_on(chosen, chosen.node)
    if chosen.revisions:
        revision.know(Path(chosen.revisions))
    server.CeleryDispatcher = BadDoorbell
    return server.main()


if __name__ == "__main__":
    sys.exit(main())
