"""A box of the storm: `assay.workers.nodes`, whose nodes are started by `tests.storm.node`.

STORM_DISGUISE=... python -m tests.storm.box
"""

from __future__ import annotations

import sys

from assay.workers import nodes

command = nodes.command


def main() -> int:
    """Run the nodes of this box until a signal."""
    nodes.command = lambda name: [
        word.replace("assay.workers.doorbell", "tests.storm.node") for word in command(name)
    ]
    return nodes.main()


if __name__ == "__main__":
    sys.exit(main())
