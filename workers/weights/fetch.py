"""Downloads timm's pretrained weights into the cache that evaluators read.

python -P -m assay.workers.weights.fetch ARCHITECTURE [TAG]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """0 when the weights are in the cache, 1 with a reason on stderr."""
    from assay.models.from_timm import timm

    architecture, *tags = arguments
    try:
        # Building the model is how timm finds, downloads and checks them.
        timm(1000, 3, architecture=architecture, tag=next(filter(None, tags), None), pretrained=True)
    except Exception as error:  # of any kind: the network, the hub, the disk
        sys.stderr.write(f"{architecture}: {type(error).__name__}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
