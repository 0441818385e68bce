"""The process of one check: `python -m benchmarks.acceptance.child REQUEST`, which the runner starts.

REQUEST is JSON: the check's target, the context, and the file for the answer. With `describe` in its place
the answer is what torch says of the machine's GPUs, on standard output.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from types import FrameType
from typing import Any

from assay.workers.containment.kernel import PR_SET_PDEATHSIG, prctl
from benchmarks.acceptance.context import Context
from benchmarks.acceptance.record import write_whole

TRACEBACK_LINES = 12


def describe() -> dict[str, Any]:
    """GPUs as torch sees them: their number, the first one's name, and torch's build."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    name = torch.cuda.get_device_name(0) if count else None
    return {"gpus": count, "device": name, "torch": torch.__version__, "cuda": torch.version.cuda}


def run(request: dict[str, Any]) -> None:
    """Runs a check and leaves its answer."""
    asked = {key: request[key] for key in ("kind", "dry", "seconds", "number", "parts")}
    context = Context(folder=Path(request["folder"]), **asked)
    module, _, name = request["target"].partition(":")
    try:
        check = getattr(importlib.import_module(module), name)
        if "torch" in sys.modules:
            _configure(request["threads"])
        answer = {"rows": check(context)}
    except Exception as error:  # an error of any kind is what a check may end with
        traceback.print_exc()
        answer = {"raised": f"{type(error).__name__}: {error}"[:2000]}
    write_whole(Path(request["answer"]), json.dumps(answer))


def _configure(threads: int) -> None:
    """Chooses arithmetic as evaluators do."""
    from assay.workers.jobs.session import configure

    configure(threads)


def _end(number: int, frame: FrameType | None) -> None:
    """Unwinds, so that services that a check has started are stopped."""
    sys.exit(128 + number)


def main() -> None:
    """Describes the machine, or runs one check."""
    if sys.argv[1] == "describe":
        sys.stdout.write(json.dumps(describe()))
        return
    signal.signal(signal.SIGTERM, _end)
    if sys.platform == "linux":
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    # Before CUDA's first matmul, which reads it; deterministic algorithms need it.
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    run(json.loads(sys.argv[1]))


if __name__ == "__main__":
    main()
