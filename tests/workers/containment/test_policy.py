"""What a request needs of its evaluator's policy."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from assay.workers.containment.policy import needs_compiler, needs_processes
from assay.workers.training.batch_workers import worker_count


def training(cores: int, devices: int = 1) -> Any:
    return {"kind": "train", "spec": {"execution": {"devices": devices}}, "cores": cores}


@pytest.mark.sampled
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("cores", [1, 2, 3, 4])
def test_a_training_may_start_processes_where_it_starts_some(cores: int, threads: int) -> None:
    """No more than it uses: with a policy of its own, the next job of a process would need another one."""
    assert needs_processes(training(cores), threads) == (worker_count(cores, threads) > 0)


def test_the_ranks_of_a_training_are_processes_and_an_evaluation_has_none() -> None:
    assert needs_processes(training(1, devices=2), 1)
    assert not needs_processes(cast(Any, {**training(8), "kind": "evaluate"}), 1)


@pytest.mark.parametrize(
    ("kind", "asked", "chosen", "needed"),
    [
        ("plan", "auto", None, True),
        ("plan", "on", None, False),
        ("evaluate", "on", None, True),
        ("evaluate", "auto", True, True),
        ("evaluate", "auto", False, False),
        ("evaluate", None, None, False),
        ("train", "on", None, False),
    ],
)
def test_only_requests_that_compile_may_start_compilers(
    kind: str, asked: str | None, chosen: bool | None, needed: bool
) -> None:
    found = {} if chosen is None else {"compile": {"chosen": chosen}}
    execution = {} if asked is None else {"compile": asked}
    request: Any = {"kind": kind, "spec": {"execution": execution}, "plan": found}
    for allowed in (True, False):
        containment: Any = SimpleNamespace(compiles=allowed)
        assert needs_compiler(request, containment) == (needed and allowed)
