"""The process that holds the model: reads shard requests from a pipe, writes reports as JSON lines.

An `EvaluatorRequest` is answered by progress and checkpoint reports, then one `FinalReport`
(`service/contract/messages.py`).

It needs no database and no network, ends when the request pipe closes, and asks the kernel to be killed with
the thread that started it. Unless ASSAY_SANDBOX is off, it is the template of contained processes
(`containment/template.py`).
"""

from __future__ import annotations

import importlib
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

from assay.service.contract.fleet.worker_records import GpuMemory
from assay.service.contract.messages import (
    EvaluatorReport,
    EvaluatorRequest,
    FinalReport,
    HashReport,
    RankReport,
    SelfTestReport,
)
from assay.service.contract.stored_specs import evaluations_in, parts_of
from assay.workers.containment.settings import from_environment
from assay.workers.containment.template import Template
from assay.workers.devices import device_classes
from assay.workers.evaluator_link import REPORTS, REQUESTS, die_with_parent

if TYPE_CHECKING:
    from assay.service.catalog.catalog import Catalog
    from assay.service.catalog.component import Component
    from assay.service.contract.stored_specs import Params
    from assay.workers.jobs.session import Session

log = logging.getLogger(__name__)
PROGRESS_SECONDS = 0.5
# Imported by use (seconds each), by components and kinds of requests.
LATE_IMPORTS = {
    "assay.workers.data.cifar10": "torchvision.datasets",
    "assay.workers.data.cifar100": "torchvision.datasets",
    "train": "torch._dynamo",
}


class Reporter:
    """Writes reports to the supervisor; progress at most twice a second, if not at once."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._last_progress = 0.0

    def __call__(self, message: EvaluatorReport | RankReport) -> None:
        """Send one report."""
        if message["type"] == "progress":
            now = time.monotonic()
            if now - self._last_progress < PROGRESS_SECONDS and not message.get("at_once"):
                return
            self._last_progress = now
            if (memory := gpu_memory()) is not None:
                message = {**message, "gpu": memory}
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        while line:
            line = line[os.write(self._descriptor, line) :]


def gpu_memory() -> GpuMemory | None:
    """Memory of the GPU in use; None without, or before its first use."""
    # Every job that uses a device has imported it, and torch.
    accelerator = sys.modules.get("assay.workers.accelerator")
    if accelerator is None or not hasattr(accelerator, "name_of") or not accelerator.is_in_use():
        return None
    try:
        found = accelerator.memory()
        name = accelerator.name_of()
        busy: float | None = accelerator.busy_share()
    except RuntimeError as error:  # the shard reports the device's errors
        log.warning("no word from the GPU: %s", error)
        return None
    used = found.total - found.free
    memory = GpuMemory(name=name, total=found.total, used=used, reserved=found.reserved)
    return memory if busy is None else {**memory, "busy": busy}


def main() -> None:
    """Serve requests until the pipe closes: here, or in a contained child for each job."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    requests, reports = int(os.environ[REQUESTS]), int(os.environ[REPORTS])
    chosen = from_environment()
    if chosen is None or chosen.mode == "off" or sys.platform != "linux":
        die_with_parent()
        serve(requests, reports)
        return
    threads, gpu = int(os.environ.get("ASSAY_TORCH_THREADS", "1")), "cuda" in device_classes()
    template = Template(
        chosen,
        requests,
        reports,
        prepare=_import_components,
        serve=serve,
        rehearse=_rehearse,
        threads=threads,
        gpu=gpu,
    )
    _import_everything()
    template.run()


def serve(requests: int, reports: int) -> None:
    """Serve requests in this process."""
    waiting: queue.SimpleQueue[EvaluatorRequest] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests, waiting), name="requests", daemon=True).start()
    report = Reporter(reports)
    # The reader thread already watches the pipe while torch loads.
    from assay.workers.jobs.session import Session, configure

    configure(int(os.environ.get("ASSAY_TORCH_THREADS", "1")))
    session = Session()
    while True:
        _serve(waiting.get(), session, report)


def _import_everything() -> None:
    """What all evaluators have in common, so that a fork has it."""
    from assay.workers.identity import identity
    from assay.workers.jobs import check, evaluate, plan, self_test, train  # noqa: F401

    identity()  # asks git, which an evaluator cannot


def _rehearse() -> None:
    """Touch what every job uses, in one thread: torch's first calls, copies of shared memory."""
    import torch

    torch.set_num_threads(1)
    layers = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.Flatten(), torch.nn.Linear(144, 4))
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        layers(torch.zeros(2, 1, 8, 8)).softmax(1).argmax(1).tolist()


def _import_components(request: EvaluatorRequest) -> None:
    from assay.service.catalog.catalog import load

    if request["kind"] == "self_test":
        return
    catalog, spec = load(), request["spec"]
    try:
        if request["kind"] in LATE_IMPORTS:
            importlib.import_module(LATE_IMPORTS[request["kind"]])
        named = [("model", spec["model"])] if spec["kind"] == "check" else parts_of(spec)
        for kind, reference in named:
            _import_component(catalog, catalog.find(kind, reference["name"]), reference["params"])
        for item in evaluations_in(spec):
            _import_component(catalog, catalog.find_evaluation(item["name"]), item["params"])
            if item["data"] is not None:
                _import_component(catalog, catalog.find("data", item["data"]["name"]), {})
    except Exception as error:  # the shard reports its spec's faults
        log.info("components not imported ahead: %s", error)


def _import_component(catalog: Catalog, component: Component, params: Params) -> None:
    module = component.target.partition(":")[0]
    if component.package is None:
        importlib.import_module(module)
    if module in LATE_IMPORTS:
        importlib.import_module(LATE_IMPORTS[module])
    if module == "assay.workers.data.digits":
        importlib.import_module(module).load_all()  # of the library's own files
    for _, kind, reference in component.references(params):
        _import_component(catalog, catalog.find(kind, reference["name"]), reference["params"])


def _serve(request: EvaluatorRequest, session: Session, report: Reporter) -> None:
    from assay.workers.data.formats.dataset import CorruptData
    from assay.workers.data.formats.look import with_others
    from assay.workers.jobs.failures import CONTEXT_LOST, describe

    if request["kind"] != "self_test" and request["kind"] != "hash":
        session.know(request.get("data_sha256", {}))
    try:
        report(_answer(request, session, report))
    except Exception as error:  # any error of a shard is the answer
        text, failure = traceback.format_exc(), describe(error)
        if isinstance(error, CorruptData):
            failure["message"] = with_others(error, session.data_sets)
        if request["kind"] == "plan" and not failure["retry"]:  # the job's error says why
            log.warning("the plan is refused: %s: %s", failure["error_type"], failure["message"])
        else:
            log.error("%s", text)
        if failure["error_type"] not in CONTEXT_LOST:  # freeing its memory would raise again
            session.forget()
        report({"type": "error", **failure, "traceback": text[-8000:]})


def _answer(
    request: EvaluatorRequest, session: Session, report: Reporter
) -> FinalReport | SelfTestReport | HashReport:
    from assay.workers.jobs import check, evaluate, plan, self_test, sources, train

    match request["kind"]:
        case "plan":
            return plan.run(request, session, report)
        case "train":
            return train.run(request, session, report)
        case "evaluate":
            return evaluate.run(request, session, report)
        case "check":
            return check.run(request, session, report)
        case "self_test":
            return self_test.run(request)
        case "hash":
            return sources.hash_data(request, session)


def _read(descriptor: int, requests: queue.SimpleQueue[EvaluatorRequest]) -> None:
    try:
        with os.fdopen(descriptor) as lines:
            for line in lines:
                requests.put(json.loads(line))
    finally:
        _end()


def _end() -> None:
    """Ends this process and its children: the supervisor is gone."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(0)


if __name__ == "__main__":
    main()
