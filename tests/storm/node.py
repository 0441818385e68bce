"""A node of the storm: `assay.workers.doorbell` in disguise.

STORM_DISGUISE=... python -P -m tests.storm.node worker ...
"""

from __future__ import annotations

import sys

from tests.storm import disguise

if __name__ == "__main__":
    chosen = disguise.present()
    disguise.put_on(chosen, chosen.node)
    if chosen.lie:
        disguise.measure_only()

    from assay.workers import doorbell

    doorbell.app.worker_main(sys.argv[1:])
