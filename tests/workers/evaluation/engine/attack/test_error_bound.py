"""The measured bound of the error of logits in bfloat16."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from assay.workers.evaluation.engine.attack.error_bound import FIRST, SAFETY, SHARE, ErrorBound

ERROR = 0.125


def logits(*gaps: float) -> Tensor:
    """Two classes for each gap, at the scale that `begun` has learnt."""
    return torch.tensor([[8.0, 8.0 - gap] for gap in gaps])


def begun() -> ErrorBound:
    """A bound that has seen its first rows; their second class was wrong by ERROR."""
    bound, rough = ErrorBound("cpu"), logits(*[4.0] * FIRST)
    assert len(bound.doubtful(rough)) == FIRST
    bound.learn(rough, rough - torch.tensor([0.0, ERROR]))
    return bound


def test_rows_nearer_than_the_bound_and_a_share_of_the_others_are_judged_again() -> None:
    bound, near, far = begun(), SAFETY * ERROR * 0.99, SAFETY * ERROR * 1.01
    rough = logits(near, *[far] * (2 * SHARE), near)
    seen = [bound.doubtful(rough) for _ in range(SHARE)]
    assert all({0, len(rough) - 1} <= set(rows.tolist()) for rows in seen)
    assert all(len(rows) <= 2 + 3 for rows in seen)
    assert set(torch.cat(seen).tolist()) == set(range(len(rough))), "each place has its turn"
    evidence = bound.evidence()
    assert evidence["iterates"] == FIRST + SHARE * len(rough)
    assert evidence["in_float32"] == FIRST + sum(map(len, seen))
    assert evidence["bound"] == pytest.approx(SAFETY * ERROR)


def test_the_bound_grows_with_the_logits() -> None:
    bound = begun()
    assert SHARE - 3 not in bound.doubtful(logits(*[1.0] * SHARE)).tolist()
    assert len(bound.doubtful(100 * logits(*[0.3] * SHARE))) == SHARE


def test_a_shift_of_all_logits_is_no_error() -> None:
    bound, rough = ErrorBound("cpu"), logits(4.0)
    bound.doubtful(rough)
    bound.learn(rough, rough + 3)
    assert bound.evidence()["bound"] == 0


@pytest.mark.parametrize("exact", [[8.0, 8.0], [float("nan"), 0.0]], ids=["too large", "no number"])
def test_an_error_above_the_bound_refutes_it_for_good(exact: list[float]) -> None:
    bound, rough = begun(), logits(4.0)
    bound.doubtful(rough)
    bound.learn(rough, rough)
    assert not bound.refuted()
    bound.learn(rough, torch.tensor([exact]))
    assert bound.refuted()
    assert len(bound.doubtful(logits(*[7.0] * SHARE))) == SHARE
    bound.give_up()
    assert not bound.refuted(), "it is not used any more"
    assert len(bound.doubtful(logits(*[7.0] * SHARE))) == SHARE
    assert bound.evidence()["above_bound"] == 1
    assert bound.evidence()["iterates"] == bound.evidence()["in_float32"] == SHARE


def test_classes_that_are_switched_off_are_no_error_and_maps_are_always_judged_again() -> None:
    bound, rough = begun(), torch.tensor([[8.0, 0.0, -torch.inf]])
    bound.learn(rough, rough)
    assert not bound.refuted()
    assert len(bound.doubtful(torch.zeros(SHARE, 2, 4, 4))) == SHARE
    assert len(bound.doubtful(torch.zeros(SHARE, 1))) == SHARE
