"""What a supervisor and a real evaluator send each other is of the types of the contract."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from assay.service.catalog.catalog import load
from assay.service.contract.messages import (
    CheckedReport,
    CheckpointReport,
    CheckRequest,
    ErrorReport,
    EvaluateRequest,
    HashReport,
    HashRequest,
    OutcomeReport,
    PlanReport,
    PlanRequest,
    ProgressReport,
    SelfTestReport,
    SelfTestRequest,
    TrainRequest,
)
from assay.service.contract.typed_values import faults
from assay.service.store.store import Store
from assay.service.submission.validate import validate
from assay.workers.supervision.evaluator_process import EvaluatorProcess
from tests.support.jobs import add
from tests.support.workers import ended, settings, supervising, wait_for

REQUESTS = {
    "plan": PlanRequest,
    "train": TrainRequest,
    "evaluate": EvaluateRequest,
    "check": CheckRequest,
    "self_test": SelfTestRequest,
    "hash": HashRequest,
}
REPORTS = {
    "progress": ProgressReport,
    "checkpoint": CheckpointReport,
    "plan": PlanReport,
    "outcome": OutcomeReport,
    "checked": CheckedReport,
    "self_tested": SelfTestReport,
    "hashed": HashReport,
    "error": ErrorReport,
}
MODEL = {"name": "symvit", "params": {"image_size": 8, "patch_size": 4, "depth": 1, "width": 16, "heads": 2}}
COMMON = {"model": MODEL, "data": {"name": "digits"}, "execution": {"batch_size": 32}}


class Wire:
    """All that was sent through an evaluator's pipes, as JSON."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.requests: list[dict[str, Any]] = []
        self.reports: list[dict[str, Any]] = []
        send, receive = EvaluatorProcess.send, EvaluatorProcess.receive

        def sent(process: EvaluatorProcess, request: Any) -> None:
            self.requests.append(json.loads(json.dumps(request)))
            send(process, request)

        def received(process: EvaluatorProcess, timeout: float) -> Any:
            report = receive(process, timeout)
            if report is not None:
                self.reports.append(json.loads(json.dumps(report)))
            return report

        monkeypatch.setattr(EvaluatorProcess, "send", sent)
        monkeypatch.setattr(EvaluatorProcess, "receive", received)

    def faults(self) -> list[str]:
        requests = [found for one in self.requests for found in faults(one, REQUESTS[one["kind"]])]
        return requests + [found for one in self.reports for found in faults(one, REPORTS[one["type"]])]


def submitted(store: Store, body: Mapping[str, Any]) -> str:
    spec = validate(load(), {**COMMON, **body}, find_job=store.jobs.source).spec
    return add(store, spec)


def upload(store: Store, folder: Path, weights: Path) -> None:
    def place(job_id: str) -> None:
        path = folder / "artifacts" / job_id / "weights.safetensors"
        path.parent.mkdir(parents=True)
        shutil.copyfile(weights, path)

    model = validate(load(), {**COMMON, "kind": "evaluate", "evaluations": [{"name": "clean"}]}).spec["model"]
    reference = {"name": model["name"], "params": model["params"]}
    store.checkpoints.add("ours", model=reference, sha256="a" * 64, size=7, tenant=None, place=place)


@pytest.mark.costly
@pytest.mark.trains
def test_every_message_is_of_its_type(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wire = Wire(monkeypatch)
    command = f"{sys.executable} -m assay.workers.evaluator"
    for name in ("one", "two"):
        (tmp_path / "data" / "pictures" / name).mkdir(parents=True)
        for number in range(4):
            Image.new("RGB", (8, 8), (50 * number, 0, 0)).save(
                tmp_path / "data" / "pictures" / name / f"{number}.png"
            )
    chosen = settings(tmp_path, evaluator_command=command, data_root=tmp_path / "data")
    with supervising(store, chosen):
        recipe = {"name": "small_vit", "params": {"epochs": 1}}
        training = submitted(store, {"kind": "train", "recipe": recipe})
        assert ended(store, training, 120).state == "succeeded"
        transfer = {"name": "transfer", "params": {"job": training}}
        body = {
            "kind": "evaluate",
            "limit": 8,
            "evaluations": [{"name": "clean"}, {"name": "fgsm"}, transfer],
        }
        assert ended(store, submitted(store, body), 120).state == "succeeded"
        upload(store, tmp_path, chosen.folder(training) / "weights.safetensors")
        wait_for(lambda: store.checkpoints.get("ours", tenant=None).state == "ready", 60)
        pictures = {"name": "image_folder", "params": {"folder": "pictures"}}
        read = {"kind": "evaluate", "data": pictures, "evaluations": [{"name": "clean"}]}
        assert ended(store, submitted(store, read), 60).state == "succeeded"
        missing = {"kind": "evaluate", "data": {"name": "cifar10"}, "evaluations": [{"name": "clean"}]}
        assert ended(store, submitted(store, missing), 60).state == "failed"
    assert {one["kind"] for one in wire.requests} == set(REQUESTS)
    assert {one["type"] for one in wire.reports} == set(REPORTS)
    assert wire.faults() == []
