"""The service of a storm over the gateway: `assay.workers.embedded` without workers, of one of two versions.

STORM_DISGUISE=... python -m tests.storm.gateway_service
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.storm import disguise, revision

if __name__ == "__main__":
    chosen = disguise.present()
    disguise.put_on(chosen, chosen.node)
    disguise.measure_only("liars:")
    if chosen.revisions:
        revision.know(Path(chosen.revisions))

    from assay.workers import embedded

    sys.exit(embedded.main())
