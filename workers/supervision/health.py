"""The self-test of a worker's devices, and the device classes that it may serve.

A GPU is tested before the worker registers, a CPU before the first shard, so that an idle machine does not
load torch; after a device's fault the test comes before the next claim. Failed classes are tried again after
growing pauses.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import cast

from assay.service.contract.fleet.worker_records import Gauges, SelfTestRecord
from assay.service.contract.messages import SelfTestReport
from assay.service.contract.stored_specs import Spec
from assay.service.submission.requirements import PlanningDevice, at_least
from assay.workers.supervision.evaluator_process import EvaluatorDied, EvaluatorProcess, UnfitWorker

log = logging.getLogger(__name__)
SELF_TEST_SECONDS = 180.0  # With the import of torch, perhaps from a slow disk
RECEIVE_SECONDS = 0.2
MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 5.0, 300.0
TESTED = ("cpu", "cuda")


class Health:
    """What a supervisor knows of its devices."""

    def __init__(self, classes: Sequence[str], devices: int) -> None:
        self._asked = tuple(classes)
        self.devices = devices
        self.judges = bool(set(classes) & set(TESTED))
        self._tested = not self.judges
        self._first = "cuda" in classes
        self._record: SelfTestRecord | None = None
        self._pause = 0.0
        self._again_at = float("inf")
        self.faults: dict[str, str] = {}  # by class that failed its latest test, why
        self.outdated = ""  # why it serves nothing until a restart; empty where it may

    @property
    def classes(self) -> tuple[str, ...]:
        """The device classes that the worker serves. Without a CPU that computes: none."""
        if self.outdated:
            return ()
        if not self._tested:
            return () if self._first else self._asked
        return () if "cpu" in self.faults else tuple(one for one in self._asked if one not in self.faults)

    @property
    def tested(self) -> bool:
        """Whether there was a test since the start, and since the last device fault."""
        return self._tested

    @property
    def due(self) -> bool:
        """Whether to test now, before any claim."""
        return (self._first and not self._tested) or time.monotonic() >= self._again_at

    @property
    def reason(self) -> str:
        """Why it serves no class; empty where it serves one, or before a test."""
        if self.outdated:
            return self.outdated
        return "" if self.classes else "; ".join(f"{one}: {why}" for one, why in self.faults.items())

    @property
    def gpu_name(self) -> str:
        """The first tested GPU's name; empty without one."""
        tested = [] if self._record is None else self._record["devices"]
        return next((one["name"] or "" for one in tested if one["device"].startswith("cuda:")), "")

    @property
    def gauges(self) -> Gauges:
        """For the heartbeat."""
        found: Gauges = {}
        if self._record is not None:
            found["self_test"] = self._record
        unfit = self.faults | ({"program": self.outdated} if self.outdated else {})
        if unfit:
            found["unfit"] = unfit
        if self.reason:
            found["cordoned"] = self.reason
        return found

    @property
    def gpu(self) -> PlanningDevice:
        """Least memory and compute capability of its tested GPUs; None where unknown."""
        used = [
            one
            for one in (self._record["devices"] if self._record is not None else [])
            if one["device"].startswith("cuda:") and int(one["device"].partition(":")[2]) < self.devices
        ]
        memory = [one["total"] for one in used if one["total"] is not None]
        able = [one["capability"] for one in used if one["capability"] is not None]
        lowest = next((one for one in able if all(at_least(other, one) for other in able)), None)
        return PlanningDevice(min(memory, default=None), lowest)

    def settled(self, spec: Spec) -> Spec:
        """A job's spec for its evaluator: "auto" is the CPU where the GPU is broken."""
        if "cuda" not in self.faults or spec["execution"]["device"] != "auto":
            return spec
        return cast(Spec, {**spec, "execution": {**spec["execution"], "device": "cpu"}})

    def doubt(self) -> None:
        """A device has failed: nothing is claimed before the next test."""
        self._tested, self._first = False, True

    def evaluator_died(self) -> None:
        """An evaluator died: on a GPU perhaps by the driver's fault."""
        if "cuda" in self._asked:
            self.doubt()

    def test(self, process: EvaluatorProcess, interrupted: Callable[[], bool]) -> None:
        """Has an evaluator test its devices. UnfitWorker: none passed; EvaluatorDied: no answer."""
        asked = [one for one in self._asked if one in TESTED]
        begun = time.monotonic()
        try:
            report = self._answer(process, asked, interrupted)
        except EvaluatorDied as error:
            if interrupted():
                raise
            output = "" if process.has_served else process.last_output[-500:]  # never a job's
            self.failed(f"the evaluator process died in its self-test: {error}. {output}".strip())
            raise UnfitWorker(self.reason) from error
        if isinstance(report, str):
            self.failed(report)
        else:
            self._judge(asked, report, time.monotonic() - begun)
        if not self.classes:
            raise UnfitWorker(self.reason)

    def failed(self, why: str) -> None:
        """Records that no device could be tested."""
        self._settle(dict.fromkeys((one for one in self._asked if one in TESTED), why))

    def _answer(
        self, process: EvaluatorProcess, asked: list[str], interrupted: Callable[[], bool]
    ) -> SelfTestReport | str:
        process.send({"kind": "self_test", "folder": "", "weights": None, "device_classes": asked})
        deadline = time.monotonic() + SELF_TEST_SECONDS
        while not interrupted():
            message = process.receive(timeout=RECEIVE_SECONDS)
            if message is None and time.monotonic() > deadline:
                raise EvaluatorDied(f"no answer within {SELF_TEST_SECONDS:g} s")
            if message is not None and message["type"] == "self_tested":
                return message
            if message is not None and message["type"] == "error":
                return f"the self-test raised {message['error_type']}: {message['message']}"
        raise EvaluatorDied("its self-test was interrupted")

    def _judge(self, asked: list[str], report: SelfTestReport, seconds: float) -> None:
        self._record = {
            "torch": report["torch"],
            "cuda": report["cuda"],
            "nccl": report["nccl"],
            "deterministic": report["deterministic"],
            "source_sha256": report["source_sha256"],
            "devices": report["devices"],
        }
        faults: dict[str, str] = {}
        seen = set()
        for found in report["devices"]:
            device_class, _, number = found["device"].partition(":")
            used = device_class in asked and int(number or 0) < self.devices
            if used:
                seen.add(device_class)
            if used and found["fault"] is not None:
                which = f"{found['device']}: " if number else ""
                faults.setdefault(device_class, f"{which}{found['fault']}")
            elif found["fault"] is not None:
                log.warning("self-test: %s, which is not used: %s", found["device"], found["fault"])
        faults |= {one: "the self-test has not reported it" for one in asked if one not in seen}
        self._settle(faults)
        if not faults:
            names = ", ".join(f"{one['device']} ({one['name']})" for one in report["devices"])
            log.info("self-test passed in %.1f s: %s", seconds, names)

    def _settle(self, faults: dict[str, str]) -> None:
        self.faults, self._tested = faults, True
        if not faults:
            self._pause, self._again_at = 0.0, float("inf")
            return
        self._pause = min(MAX_PAUSE_SECONDS, max(MIN_PAUSE_SECONDS, 2 * self._pause))
        self._again_at = time.monotonic() + self._pause
        serves = ", ".join(self.classes) or "nothing: this worker is cordoned"
        for device_class, why in faults.items():
            text = "self-test: %s is not served: %s; served: %s; the next test is in %.0f s"
            log.error(text, device_class, why, serves, self._pause)
