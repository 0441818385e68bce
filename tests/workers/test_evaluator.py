"""The evaluator's report on its GPU, and its tolerance of one without information."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from assay.workers import accelerator, evaluator
from assay.workers.data.formats import look
from assay.workers.data.formats.dataset import CorruptData
from assay.workers.evaluator import Reporter, gpu_memory


def driver_with(**functions: Any) -> Any:
    """Fake driver of a GPU."""
    cuda = {
        "is_initialized": lambda: True,
        "mem_get_info": lambda _: (6, 10),
        "get_device_name": lambda _: "NVIDIA H200",
        "memory_reserved": lambda _: 3,
    }
    return SimpleNamespace(**(cuda | functions))


def reported(message: dict[str, Any]) -> dict[str, Any]:
    read, write = os.pipe()
    try:
        Reporter(write)(message)
        answer: dict[str, Any] = json.loads(os.read(read, 10_000))
        return answer
    finally:
        os.close(read)
        os.close(write)


def test_a_report_at_once_is_sent_right_after_another() -> None:
    read, write = os.pipe()
    report = Reporter(write)
    for message, at_once in (("pgd", False), ("left out", False), ("pgd: compiling passes", True)):
        told: Any = {"type": "progress", "done": 1, "total": 2, "message": message}
        report({**told, "at_once": True} if at_once else told)
    os.close(write)
    with os.fdopen(read) as lines:
        assert [json.loads(line)["message"] for line in lines] == ["pgd", "pgd: compiling passes"]


def broken(device: Any) -> Any:
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


def test_progress_comes_with_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerator, "driver", driver_with())
    gpu = {"name": "NVIDIA H200", "total": 10, "used": 4, "reserved": 3}
    progress = {"type": "progress", "done": 1, "total": 2}
    assert reported(progress) == {**progress, "gpu": gpu}
    monkeypatch.setattr(accelerator, "driver", driver_with(utilization=lambda: 61))
    assert reported(progress) == {**progress, "gpu": {**gpu, "busy": 0.61}}
    checkpoint = {"type": "checkpoint", "step": 1}
    assert reported(checkpoint) == checkpoint


@pytest.mark.parametrize(
    "driver",
    [driver_with(is_initialized=lambda: False), driver_with(mem_get_info=broken)],
    ids=["unused", "broken"],
)
def test_without_a_gpu_there_is_nothing_to_say(monkeypatch: pytest.MonkeyPatch, driver: Any) -> None:
    monkeypatch.setattr(accelerator, "driver", driver)
    assert gpu_memory() is None
    progress = {"type": "progress", "done": 1, "total": 2}
    assert reported(progress) == progress


def test_the_report_imports_no_torch() -> None:
    program = (
        "import os, sys; from assay.workers.evaluator import Reporter;"
        " Reporter(os.open(os.devnull, os.O_WRONLY))({'type': 'progress', 'done': 1, 'total': 2});"
        " sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


@pytest.mark.parametrize(
    ("kind", "error", "lines"),
    [
        ("plan", ValueError("the folder is empty"), 1),
        ("plan", RuntimeError("a defect"), 2),
        ("train", ValueError("bad"), 2),
    ],
)
def test_a_refused_plan_is_one_line_of_the_log(
    kind: str, error: Exception, lines: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Defects have their traceback in the log; the error itself has it always."""

    def refused(*_: object) -> None:
        raise error

    monkeypatch.setattr(evaluator, "_answer", refused)
    answers: list[dict[str, Any]] = []
    session: Any = SimpleNamespace(forget=lambda: None, know=lambda hashes: None)
    evaluator._serve({"kind": kind}, session, answers.append)  # type: ignore[arg-type,typeddict-item]
    (record,) = caplog.records
    assert (record.getMessage().count("\n") + 1 > 1) is (lines > 1)
    assert str(error) in record.getMessage()
    assert "Traceback" in answers[0]["traceback"]


def test_an_error_of_an_example_is_told_with_the_other_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot_read(*_: object) -> None:
        raise CorruptData("a.png")

    asked: list[Any] = []
    monkeypatch.setattr(evaluator, "_answer", cannot_read)

    def with_others(error: Exception, sets: Any) -> str:
        asked.append(sets)
        return f"{error} and b.png"

    monkeypatch.setattr(look, "with_others", with_others)
    answers: list[dict[str, Any]] = []
    session: Any = SimpleNamespace(forget=lambda: None, know=lambda hashes: None, data_sets=["photos"])
    evaluator._serve({"kind": "plan"}, session, answers.append)  # type: ignore[arg-type,typeddict-item]
    assert (answers[0]["error_type"], answers[0]["message"]) == ("invalid_value", "a.png and b.png")
    assert asked == [["photos"]]
