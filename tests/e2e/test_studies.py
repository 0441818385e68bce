"""A study from its submission to its table, on real trainings."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.contract.errors import NoResults, NotFound
from tests.e2e.jobs import SHAPE, pgd
from tests.e2e.running import RunningService

RATES = {"epochs": 2, "warmup_epochs": 1, "learning_rate": 4e-3, "shift": 0.0, "rotate": 0.0, "scale": 0.0}


def study(**changes: Any) -> dict[str, Any]:
    """Two arms and two seeds of a second or two each."""
    spec: dict[str, Any] = {
        "kind": "study",
        "name": "tiny",
        "arms": [
            {"name": "softmax", "model": {"name": "symvit", "params": SHAPE}},
            {"name": "rpc", "model": {"name": "rpc_symvit", "params": SHAPE}},
        ],
        "data": {"name": "digits"},
        "recipe": {"name": "small_vit", "params": RATES},
        "seeds": 2,
        "limit": 64,
        "evaluations": [{"name": "clean"}, pgd("2/255", steps=2)],
        "execution": {"device": "cpu", "batch_size": 64},
    }
    return spec | changes


@pytest.mark.slow  # twelve jobs: half a minute on an idle machine
def test_a_study_is_run_extended_canceled_and_resumed(shared: RunningService) -> None:
    client = shared.client
    posted = client.submit_study(study())
    with pytest.raises(NoResults):
        client.study_results(posted.id)
    ended = client.wait_study(posted.id, timeout_seconds=240, poll_seconds=0.1)
    assert (ended.state, ended.jobs) == ("succeeded", {"succeeded": 8}), ended.message
    first = client.study_results(posted.id)
    assert (first.complete, first.seeds, first.tests) == (True, [0, 1], 2)
    clean = first.cells[0]
    values = [[one.value for one in arm.seeds] for arm in clean.arms]
    assert all(len(set(arm)) == 2 for arm in values), "two seeds are two trainings"

    extended = client.extend_study(posted.id, [2])
    assert len(extended.runs[0].runs) == 3
    stopped = client.cancel_study(posted.id)
    assert stopped.state in ("canceling", "canceled")
    client.wait_study(posted.id, timeout_seconds=60, poll_seconds=0.1)
    part = client.study_results(posted.id)
    assert (part.complete, {one.seed for one in part.missing}) == (False, {2})
    client.retry_study(posted.id)
    ended = client.wait_study(posted.id, timeout_seconds=240, poll_seconds=0.1)
    assert ended.jobs == {"succeeded": 12}, ended.message
    longer = client.study_results(posted.id)
    assert (longer.complete, longer.seeds) == (True, [0, 1, 2])
    for cell, before in zip(longer.cells, first.cells, strict=True):
        for arm, earlier in zip(cell.arms, before.arms, strict=True):
            assert arm.seeds[:2] == earlier.seeds
    compared = longer.cells[0].comparisons[0]
    assert (compared.seeds, compared.n, compared.compares) == ([0, 1, 2], 64, "methods")
    assert compared.ci_method == "hierarchical_bootstrap"
    assert "| clean | top1 |" in client.study_table(posted.id)

    client.delete_study(posted.id)
    with pytest.raises(NotFound):
        client.study(posted.id)
    with pytest.raises(NotFound):
        client.job(ended.runs[0].runs[0].evaluate)


@pytest.mark.slow  # sixteen jobs
def test_a_study_is_extended_by_the_service_until_its_end(shared: RunningService) -> None:
    client = shared.client
    asked = {"primary": {"evaluation": "clean"}, "until": {"width": 1e-6, "max_seeds": 4}}
    posted = client.submit_study(study(evaluations=[{"name": "clean"}], **asked))
    ended = client.wait_study(posted.id, timeout_seconds=480, poll_seconds=0.1)
    assert (ended.state, ended.seeds, ended.jobs) == ("succeeded", [0, 1, 2, 3], {"succeeded": 16})
    assert ended.until is not None
    assert (ended.until.state, [look.seeds for look in ended.until.looks]) == ("max_seeds", [2, 3, 4])
    found = client.study_results(posted.id)
    assert found.cells[0].comparisons[0].ci_method == "anytime_t"
    assert "anytime-valid" in client.study_table(posted.id)
    client.delete_study(posted.id)
