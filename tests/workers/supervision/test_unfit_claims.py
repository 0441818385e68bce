"""What a worker finds out when a job says that it is not fit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from assay.workers import identity
from assay.workers.supervision.evaluator_process import EvaluatorDied, UnfitWorker
from assay.workers.supervision.unfit_claims import confirmed, is_claim


class Evaluator:
    """A worker's evaluator, of which only its next self-test is of interest."""

    def __init__(self, found: dict[str, str] | Exception, before: dict[str, str] | None = None) -> None:
        self.found, self.ended = found, 0
        self.health = SimpleNamespace(judges=True, faults=before or {}, doubt=lambda: None)

    def end(self) -> None:
        self.ended += 1

    def ready(self, interrupted: Any) -> None:
        if isinstance(self.found, Exception):
            raise self.found
        self.health.faults = self.found


def look(error_type: str, evaluator: Any, data: Any = None) -> str | None:
    return confirmed(error_type, evaluator, data, lambda: False)


def test_which_errors_are_claims() -> None:
    names = ("other_data", "other_identity", "device_fault", "unfit", "out_of_memory")
    assert [is_claim(name) for name in names] == [True, True, True, False, False]


@pytest.mark.parametrize(
    ("found", "before", "reason"),
    [
        ({}, {}, None),
        ({"cuda": "lost"}, {"cuda": "lost"}, None),
        ({"cuda": "lost", "cpu": "wrong"}, {"cuda": "lost"}, "cpu: wrong"),
        (UnfitWorker("cpu: wrong"), {}, "cpu: wrong"),
        (EvaluatorDied("interrupted"), {}, None),
    ],
)
def test_devices_are_tested(found: Any, before: dict[str, str], reason: str | None) -> None:
    evaluator = Evaluator(found, before)
    assert look("device_fault", evaluator) == reason
    assert evaluator.ended >= 1, "of the job first"


def test_a_worker_that_tests_no_device_has_no_fault() -> None:
    evaluator = Evaluator({"cpu": "wrong"})
    evaluator.health.judges = False
    assert look("device_fault", evaluator) is None


def test_source_and_data_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert look("other_identity", Evaluator({})) is None
    monkeypatch.setattr(identity, "source_sha256", lambda _: "0" * 64)
    assert look("other_identity", Evaluator({})) == f"{identity.CHANGED}: restart the worker"
    data = SimpleNamespace(differing=lambda: "the data set x has another content")
    assert look("other_data", Evaluator({}), data) == "the data set x has another content"
