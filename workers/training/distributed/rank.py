"""One process of a multi-device training, started by torchrun with RANK and WORLD_SIZE.

python -m assay.workers.training.distributed.rank FOLDER TIMEOUT (in seconds, for the others in a sum)
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import traceback
from datetime import timedelta
from pathlib import Path

from assay.service.contract.messages import Failure, RankFailure, RankReport, TrainRequest
from assay.workers.evaluator_link import die_with_parent

# gloo's message, in RuntimeErrors. NCCL's watchdog ends its process by SIGABRT.
TIMED_OUT = "Timed out waiting"


def main() -> None:
    """Train this process's part; the first process reports."""
    die_with_parent()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    folder, timeout = Path(sys.argv[1]), timedelta(seconds=float(sys.argv[2]))
    try:
        _train(folder, timeout)
    except Exception as error:  # reported to the evaluator
        _tell(folder, error, timeout)
        os._exit(1)  # An orderly exit would wait for the other processes, which wait for this process
    sys.stderr.flush()
    os._exit(0)  # In an orderly exit a thread of gloo's may end the process by SIGABRT


def join(rank: int, size: int, local: int, *, on_gpu: bool, timeout: timedelta) -> None:
    """Make this process, `rank` in [0, size), part of the group: NCCL on the GPU `local`, else gloo."""
    import torch  # A sum may wait `timeout` for the other processes; the wait then ends this process

    from assay.workers import accelerator

    if not on_gpu:
        torch.distributed.init_process_group("gloo", rank=rank, world_size=size, timeout=timeout)
        return
    # Without its device NCCL guesses for barriers, and connects the processes at the first sum.
    own = accelerator.select(local)
    torch.distributed.init_process_group("nccl", rank=rank, world_size=size, timeout=timeout, device_id=own)


def _train(folder: Path, timeout: timedelta) -> None:
    import torch

    from assay.workers import accelerator
    from assay.workers.containment import limits
    from assay.workers.containment.settings import from_environment
    from assay.workers.devices import device_classes
    from assay.workers.evaluator import Reporter
    from assay.workers.jobs.session import Session, configure, resolve_device
    from assay.workers.jobs.trainer import train_model
    from assay.workers.training.distributed.launch import REPORTS, REQUEST, to_json
    from assay.workers.training.distributed.processes import Processes

    rank, size, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    request: TrainRequest = json.loads((folder / REQUEST).read_text())
    configure(int(os.environ.get("ASSAY_TORCH_THREADS", "1")))
    on_gpu = accelerator.is_accelerator(resolve_device(request["spec"]["execution"]["device"]))
    join(rank, size, local, on_gpu=on_gpu, timeout=timeout)
    chosen = from_environment()
    if chosen is not None and chosen.mode != "off":
        limits.inherited(gpu="cuda" in device_classes())
    report = Reporter(os.open(folder / REPORTS, os.O_WRONLY)) if rank == 0 else _silent
    _, trained = train_model(request, Session(), report, Processes(rank, size))
    report({"type": "trained", "outcome": to_json(trained)})
    torch.distributed.destroy_process_group()


def _silent(message: RankReport) -> None:
    """Only the first process reports."""


def _tell(folder: Path, error: Exception, timeout: timedelta) -> None:
    from assay.workers.jobs.failures import describe
    from assay.workers.training.distributed.launch import HUNG

    sys.stderr.write(traceback.format_exc())
    sys.stderr.flush()
    failure = describe(error)
    if TIMED_OUT in str(error):
        text = (
            f"a process of the training has not answered the others for {timeout.total_seconds():g} seconds:"
            " it hangs, or is far slower than they are"
        )
        failure = Failure(error_type=HUNG, message=text, retry=True)
    told: RankFailure = {"time": time.monotonic_ns(), "failure": failure}
    file = folder / f"failure-{os.environ['RANK']}.json"
    file.with_suffix(".tmp").write_text(json.dumps(told))
    file.with_suffix(".tmp").rename(file)


if __name__ == "__main__":
    main()
