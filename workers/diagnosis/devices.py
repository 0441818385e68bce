"""Checks of torch and the devices, by the self-test of a real evaluator in its containment."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from importlib.util import find_spec

from assay.service.contract.fleet.worker_records import DeviceTest, SelfTestRecord
from assay.workers.devices import device_classes
from assay.workers.diagnosis import refused_parts
from assay.workers.diagnosis.finding import GIB, Finding, fail, ok, warn
from assay.workers.diagnosis.machine import INSTALL
from assay.workers.settings import WorkerSettings
from assay.workers.supervision.warm_evaluator import WarmEvaluator, never

UNKNOWN = "not known: the self-test has not answered"
AGAIN = "mend the device self-test first"


def self_test(settings: WorkerSettings) -> tuple[SelfTestRecord | None, dict[str, str]]:
    """A contained evaluator's report, and failed device classes with reasons."""
    if not settings.evaluator_command and find_spec("torch") is None:
        return None, dict.fromkeys(device_classes(), "torch is not installed")
    evaluator = WarmEvaluator(settings, device_classes=device_classes())
    evaluator.health.doubt()
    logging.disable(logging.CRITICAL)  # the findings say it
    try:
        evaluator.look(never)
    finally:
        evaluator.end()
        logging.disable(logging.NOTSET)
    return evaluator.health.gauges.get("self_test"), evaluator.health.faults


def devices(settings: WorkerSettings) -> Iterator[Finding]:
    """CUDA, NCCL, deterministic mode, and a line for each device."""
    record, faults = self_test(settings)
    gpu = "cuda" in device_classes()
    yield _cuda(record, gpu=gpu)
    yield _nccl(record, gpu=gpu, several=settings.devices > 1)
    yield _deterministic(record)
    if record is None:
        why = next(iter(faults.values()), "no answer")
        remedy = INSTALL if find_spec("torch") is None else "the evaluator's own words are above"
        yield fail("device self-test", why, remedy)
        if find_spec("torch") is not None:
            yield from _refusals(settings, faults)
        return
    for found in record["devices"]:
        yield _device(found)
    failed = [one["device"] for one in record["devices"] if one["fault"] is not None]
    yield from _refusals(settings, failed)


def _refusals(settings: WorkerSettings, failed: Iterable[str]) -> Iterator[Finding]:
    if settings.sandbox == "off" or settings.evaluator_command:
        return
    for device_class in sorted({device.partition(":")[0] for device in failed}):
        found = refused_parts.ask(settings.containment, device_class)
        if found is None or not found["parts"]:
            continue
        calls = f"; refused calls: {', '.join(found['calls'])}" if found["calls"] else ""
        text = f"it works without: {', '.join(found['parts'])}{calls}"
        remedy = "report this line; ASSAY_SANDBOX=off runs jobs without containment, so trust them all"
        yield fail(f"containment of {device_class}", text, remedy, **found)


def _cuda(record: SelfTestRecord | None, *, gpu: bool) -> Finding:
    if record is None:
        return warn("CUDA", UNKNOWN, AGAIN)
    text, facts = f"torch {record['torch']}", {key: record[key] for key in ("torch", "cuda", "source_sha256")}
    if record["cuda"] is None and gpu:
        remedy = "install a build of torch with CUDA: https://pytorch.org/get-started"
        return fail("CUDA", f"{text} is built without CUDA, and this box has NVIDIA devices", remedy, **facts)
    built = f"{text}, built for CUDA {record['cuda']}" if record["cuda"] else f"{text}, built without CUDA"
    return ok("CUDA", built if gpu else f"{built}; there is no device for it", **facts)


def _nccl(record: SelfTestRecord | None, *, gpu: bool, several: bool) -> Finding:
    if not gpu:
        return ok("NCCL", "not needed without a GPU", nccl=record and record["nccl"])
    if record is None:
        return warn("NCCL", UNKNOWN, AGAIN)
    if record["nccl"] is None:
        report = fail if several else warn
        text = "torch has no NCCL: trainings on several GPUs do not start"
        return report("NCCL", text, "install a build of torch with CUDA and NCCL", nccl=None)
    return ok("NCCL", f"NCCL {record['nccl']}", nccl=record["nccl"])


def _deterministic(record: SelfTestRecord | None) -> Finding:
    if record is None:
        return warn("deterministic mode", UNKNOWN, AGAIN)
    if not record["deterministic"]:
        return fail("deterministic mode", "torch does not keep it", "install a released build of torch")
    return ok("deterministic mode", "operators whose results do not repeat are refused", deterministic=True)


def _device(found: DeviceTest) -> Finding:
    name = f"device self-test {found['device']}"
    if found["fault"] is not None:
        remedy = (
            "end the other processes on it (`nvidia-smi` lists them)"
            if "other processes" in found["fault"]
            else "look at the driver first; a device that computes wrong must be taken out of the box"
        )
        return fail(name, found["fault"], remedy, **found)
    free, total = found["free"], found["total"]
    room = "" if free is None or total is None else f", {free / GIB:.1f} of {total / GIB:.1f} GiB free"
    capability = f", compute capability {found['capability']}" if found["capability"] else ""
    return ok(name, f"{found['name'] or 'it'} computes right{capability}{room}", **found)
