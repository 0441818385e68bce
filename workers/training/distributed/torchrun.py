"""Wrapper of torchrun that dies with its evaluator and records how the training processes died.

python -m assay.workers.training.distributed.torchrun DEATH TORCHRUN_ARGUMENTS...
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from assay.workers.evaluator_link import die_with_parent

NCCL_GAVE_UP = ", with which NCCL ends a process that has waited too long for another"


def main() -> int:
    """Run torchrun; 0 when all processes ended well."""
    die_with_parent()
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler

    # torchrun gives each process a session. These stay in the evaluator's group, where one signal ends them
    # all; a contained evaluator may not start sessions.
    handler = subprocess_handler.SubprocessHandler
    handler._popen = _start  # type: ignore[method-assign]  # there is no public way
    handler.close = _close  # type: ignore[method-assign]
    try:
        run.main(sys.argv[2:])
    except ChildFailedError as error:
        killed = [
            f"the process of device {rank} was killed by {failure.signal_name()}"
            + (NCCL_GAVE_UP if failure.signal_name() == "SIGABRT" else "")
            for rank, failure in sorted(error.failures.items())
            if failure.exitcode < 0
        ]
        Path(sys.argv[1]).write_text(json.dumps({"killed": "; ".join(killed)}))
        return 1
    return 0


def _start(self: Any, args: tuple[str, ...], env: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(args, env=env, stdout=self._stdout, stderr=self._stderr)  # noqa: S603 (torchrun's)


def _close(self: Any, death_sig: signal.Signals | None = None) -> None:
    self.proc.send_signal(death_sig or signal.SIGTERM)
    for output in (self._stdout, self._stderr):
        if output is not None:
            output.close()


if __name__ == "__main__":
    sys.exit(main())
