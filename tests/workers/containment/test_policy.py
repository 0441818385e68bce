"""What a request needs of its evaluator's policy."""

from __future__ import annotations

from typing import Any, cast

import pytest

from assay.workers.containment.policy import needs_processes
from assay.workers.training.batch_workers import worker_count


def training(cores: int, devices: int = 1) -> Any:
    return {"kind": "train", "spec": {"execution": {"devices": devices}}, "cores": cores}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("cores", [1, 2, 3, 4])
def test_a_training_may_start_processes_where_it_starts_some(cores: int, threads: int) -> None:
    """No more than it uses: with a policy of its own, the next job of a process would need another one."""
    assert needs_processes(training(cores), threads) == (worker_count(cores, threads) > 0)


def test_the_ranks_of_a_training_are_processes_and_an_evaluation_has_none() -> None:
    assert needs_processes(training(1, devices=2), 1)
    assert not needs_processes(cast(Any, {**training(8), "kind": "evaluate"}), 1)
