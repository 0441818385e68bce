"""The process that holds the model: reads shard requests from a pipe, writes reports as JSON lines.

A request is a `ShardRequest`, its answers are `EvaluatorReport`s: any number of progress and checkpoint
reports, then one `FinalReport` (`service/contract/messages.py`).

It needs no database and no network. It ends when the request pipe closes, even in the middle of a
request, and asks the kernel to be killed with the thread that started it.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import signal
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING

from assay.service.contract.messages import EvaluatorReport, FinalReport, RankReport, ShardRequest
from assay.service.contract.records import GpuMemory
from assay.workers.evaluator_link import REPORTS, REQUESTS, die_with_parent

if TYPE_CHECKING:
    from assay.workers.jobs.session import Session

log = logging.getLogger(__name__)
PROGRESS_SECONDS = 0.5


class Reporter:
    """Writes reports to the supervisor; progress at most twice a second."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._last_progress = 0.0

    def __call__(self, message: EvaluatorReport | RankReport) -> None:
        """Send one report."""
        if message["type"] == "progress":
            now = time.monotonic()
            if now - self._last_progress < PROGRESS_SECONDS:
                return
            self._last_progress = now
            if (memory := gpu_memory()) is not None:
                message = {**message, "gpu": memory}
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        while line:
            line = line[os.write(self._descriptor, line) :]


def gpu_memory() -> GpuMemory | None:
    """The memory of the GPU in use; None without one, or before its first use."""
    torch = sys.modules.get("torch")  # never imported here: only used if the evaluator has imported it
    if torch is None or not hasattr(torch, "cuda") or not torch.cuda.is_initialized():
        return None
    try:
        free, total = torch.cuda.mem_get_info()
        name, reserved = torch.cuda.get_device_name(), torch.cuda.memory_reserved()
    except RuntimeError as error:  # the shard reports errors of the device
        log.warning("no word from the GPU: %s", error)
        return None
    return {"name": name, "total": total, "used": total - free, "reserved": reserved}


def main() -> None:
    """Serve requests until the pipe closes."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    die_with_parent()
    requests: queue.SimpleQueue[ShardRequest] = queue.SimpleQueue()
    descriptor = int(os.environ[REQUESTS])
    threading.Thread(target=_read, args=(descriptor, requests), name="requests", daemon=True).start()
    report = Reporter(int(os.environ[REPORTS]))
    # Imported here, so that the reader thread already watches the pipe while torch loads.
    from assay.workers.jobs.session import Session, configure

    configure(int(os.environ.get("ASSAY_TORCH_THREADS", "1")))
    session = Session()
    while True:
        _serve(requests.get(), session, report)


def _serve(request: ShardRequest, session: Session, report: Reporter) -> None:
    from assay.workers.jobs.failures import describe

    try:
        report(_answer(request, session, report))
    except Exception as error:  # any error of a shard is the answer to the request
        text = traceback.format_exc()
        log.error("%s", text)
        session.forget()
        report({"type": "error", **describe(error), "traceback": text[-8000:]})


def _answer(request: ShardRequest, session: Session, report: Reporter) -> FinalReport:
    from assay.workers.jobs import check, evaluate, plan, train

    match request["kind"]:
        case "plan":
            return plan.run(request, session, report)
        case "train":
            return train.run(request, session, report)
        case "evaluate":
            return evaluate.run(request, session, report)
        case "check":
            return check.run(request, session, report)


def _read(descriptor: int, requests: queue.SimpleQueue[ShardRequest]) -> None:
    try:
        with os.fdopen(descriptor) as lines:
            for line in lines:
                requests.put(json.loads(line))
    finally:
        _end()


def _end() -> None:
    """Ends this process and its children: the supervisor is gone, and no one waits for a result."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(0)


if __name__ == "__main__":
    main()
