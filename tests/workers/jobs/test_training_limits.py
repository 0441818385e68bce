"""A training is held to several times the memory and to the time that it needs."""

from __future__ import annotations

import math
import resource
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from assay.workers.containment import limits
from assay.workers.containment.limits import Limits
from assay.workers.containment.settings import VARIABLE, Containment
from assay.workers.jobs import cost, trainer
from assay.workers.jobs.failures import describe
from assay.workers.jobs.session import Session
from tests.support.children import in_a_child

MIB = 1 << 20
LARGE = 2048 * MIB


@pytest.fixture
def request_of(spec: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(cost, "SPARE_BYTES", 256 * MIB)
    # A process that has run many tests has more than an evaluator's.
    monkeypatch.setattr(limits, "resident", lambda: 256 * MIB)
    monkeypatch.setenv(VARIABLE, Containment("auto", tmp_path, Limits(memory=1 << 40)).to_text())
    return {
        "kind": "train",
        "job": "job",
        "spec": spec | {"kind": "train", "recipe": {"name": "small_vit", "params": {"epochs": 1}}},
        "weights": None,
        "folder": str(tmp_path),
        "checkpoint_seconds": 60,
        "cores": 2,
    }


def trained(request: Any, monkeypatch: pytest.MonkeyPatch, *, limited: bool) -> Any:
    """What a training that allocates `LARGE` bytes comes to, in a process with the limits of an evaluator."""

    def allocate(*arguments: Any, **options: Any) -> None:
        raise ValueError(f"allocated {torch.empty(LARGE, dtype=torch.uint8).nbytes}")

    monkeypatch.setattr(trainer, "train", allocate)

    def work() -> Any:
        torch.set_num_threads(1)
        if limited:
            limits.apply(Limits(memory=1 << 40, processor_seconds=10**6), programs=False, gpu=False)
        try:
            trainer.train_model(request, Session(), lambda _: None)
        except Exception as error:
            soft = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_CPU)]
            return [describe(error), *soft]

    return in_a_child(work)


def test_a_training_that_takes_more_than_it_needs_several_times_is_out_of_memory(
    request_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure, most, seconds = trained(request_of, monkeypatch, limited=True)
    assert (failure["error_type"], failure["retry"]) == ("out_of_memory", False)
    assert "of a training, what its model, data and batch need" in failure["message"]
    assert "ASSAY_MAX_EVALUATOR_BYTES" in failure["message"]
    assert 256 * MIB < most < 1 << 40
    assert seconds == 10**6, "neither a timeout nor a deadline"


def test_without_the_limit_the_same_training_gets_its_memory(
    request_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure, *_ = trained(request_of, monkeypatch, limited=False)
    assert failure["message"] == f"allocated {LARGE}"


@pytest.mark.parametrize(("timeout", "deadline", "expected"), [(50, 1000.0, 50), (None, 1000.0, 1000)])
def test_processor_time_is_that_of_the_deadline_in_every_thread(
    request_of: Any,
    timeout: int | None,
    deadline: float,
    expected: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    request_of["spec"]["timeout_seconds"] = timeout
    _, _, seconds = trained(request_of | {"deadline_seconds": deadline}, monkeypatch, limited=True)
    used = resource.getrusage(resource.RUSAGE_SELF)
    assert 0 <= seconds - expected * (1 + 2 + 1) <= math.ceil(used.ru_utime + used.ru_stime) + 60


def test_memory_grows_with_the_model_the_batch_the_step_and_the_data() -> None:
    model = torch.nn.Linear(1000, 1000, bias=False)
    loaded: Any = SimpleNamespace(classifier=model, image_size=10, device=torch.device("cpu"))
    data: Any = SimpleNamespace(task="classification", channels=3)
    sizes: dict[str, Any] = {"size": None, "batch_size": 1, "step_size": 1, "saved_bytes": 0, "resident": 0}
    base = cost.training_bytes(loaded, data, **sizes)
    assert base > cost.SPARE_BYTES + 16 * 4_000_000
    for change, more in (
        ({"batch_size": 3, "saved_bytes": 1000}, 16 * 3 * 1000),
        ({"step_size": 5}, 8 * 4 * 1200),
        ({"size": 20}, 8 * 3 * 1200),
        ({"resident": 77}, 77),
    ):
        assert cost.training_bytes(loaded, data, **(sizes | change)) - base == more


def test_a_process_of_several_has_the_limits_of_its_parent() -> None:
    def work() -> list[int]:
        resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40))
        limits.narrow(MIB, None)
        before = resource.getrlimit(resource.RLIMIT_AS)[0]
        limits.inherited(gpu=False)
        limits.narrow(MIB, None)
        return [before, resource.getrlimit(resource.RLIMIT_AS)[0]]

    before, after = in_a_child(work)
    assert before == 1 << 40 > after
