"""One process of a multi-device training, started by torchrun with RANK and WORLD_SIZE.

python -m assay.workers.training.distributed.rank FOLDER
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import traceback
from pathlib import Path

from assay.service.contract.messages import RankFailure, RankReport, TrainRequest
from assay.workers.evaluator_link import die_with_parent


def main() -> None:
    """Train this process's part; the first process reports."""
    die_with_parent()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    folder = Path(sys.argv[1])
    try:
        _train(folder)
    except Exception as error:  # any error is reported to the evaluator
        _tell(folder, error)
        # Immediate exit: an orderly one would wait for the other processes, which wait for this one.
        os._exit(1)


def _train(folder: Path) -> None:
    import torch

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
    on_gpu = resolve_device(request["spec"]["execution"]["device"]).type == "cuda"
    if on_gpu:
        torch.cuda.set_device(local)
    torch.distributed.init_process_group("nccl" if on_gpu else "gloo", rank=rank, world_size=size)
    chosen = from_environment()
    if chosen is not None and chosen.mode != "off":
        limits.inherited(gpu="cuda" in device_classes())
    report = Reporter(os.open(folder / REPORTS, os.O_WRONLY)) if rank == 0 else _silent
    _, trained = train_model(request, Session(), report, Processes(rank, size))
    report({"type": "trained", "outcome": to_json(trained)})
    torch.distributed.destroy_process_group()


def _silent(message: RankReport) -> None:
    """Only the first process reports."""


def _tell(folder: Path, error: Exception) -> None:
    from assay.workers.jobs.failures import describe

    sys.stderr.write(traceback.format_exc())
    sys.stderr.flush()
    told: RankFailure = {"time": time.monotonic_ns(), "failure": describe(error)}
    file = folder / f"failure-{os.environ['RANK']}.json"
    file.with_suffix(".tmp").write_text(json.dumps(told))
    file.with_suffix(".tmp").rename(file)


if __name__ == "__main__":
    main()
