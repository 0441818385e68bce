"""A node of the storm at a gateway: `assay.workers.worker` in disguise.

STORM_DISGUISE=... python -m tests.storm.gateway_node
"""

from __future__ import annotations

import sys

from tests.storm import disguise

if __name__ == "__main__":
    chosen = disguise.present()
    disguise.put_on(chosen, chosen.node)

    from assay.workers import worker

    sys.exit(worker.main())
