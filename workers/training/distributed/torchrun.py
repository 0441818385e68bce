"""Wrapper of torchrun that dies with its evaluator and records how the training processes died.

python -m assay.workers.training.distributed.torchrun DEATH TORCHRUN_ARGUMENTS...
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from assay.workers.evaluator_link import die_with_parent


def main() -> int:
    """Run torchrun; 0 when all processes ended well."""
    die_with_parent()
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    try:
        run.main(sys.argv[2:])
    except ChildFailedError as error:
        killed = [
            f"the process of device {rank} was killed by {failure.signal_name()}"
            for rank, failure in sorted(error.failures.items())
            if failure.exitcode < 0
        ]
        Path(sys.argv[1]).write_text(json.dumps({"killed": "; ".join(killed)}))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
