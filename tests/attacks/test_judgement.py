from __future__ import annotations

import math

import torch

from assay.attacks.judgement import finite, in_top5, judge, right


def test_prediction_rank_and_loss() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
    verdict = judge(logits, torch.tensor([2, 0]))
    assert verdict.prediction.tolist() == [1, 0]
    assert verdict.rank.tolist() == [1, 0]
    assert verdict.loss.dtype == torch.float64
    torch.testing.assert_close(verdict.loss, -logits.log_softmax(1)[[0, 1], [2, 0]].double())


def test_ties_go_to_the_lower_index() -> None:
    logits = torch.tensor([[1.0, 1.0, 0.0]] * 3)
    verdict = judge(logits, torch.tensor([0, 1, 2]))
    assert verdict.prediction.tolist() == [0, 0, 0]
    assert verdict.rank.tolist() == [0, 1, 2]


def test_rank_zero_is_being_predicted() -> None:
    logits, labels = torch.randint(0, 3, (200, 6)).float(), torch.randint(0, 6, (200,))
    verdict = judge(logits, labels)
    assert torch.equal(verdict.rank == 0, verdict.prediction == labels)


def test_right_is_rank_zero_also_where_logits_are_equal_or_not_finite() -> None:
    logits, labels = torch.randint(0, 4, (4000, 5)).float(), torch.randint(0, 5, (4000,))
    for odd in (math.nan, math.inf, -math.inf):
        logits = logits.masked_fill(torch.rand(4000, 5) < 0.05, odd)
    logits[:10] = -math.inf
    verdict = judge(logits, labels)
    assert torch.equal(right(logits, labels), verdict.rank == 0)
    assert torch.equal(finite(logits), ~verdict.nonfinite)
    assert (logits.isnan().any(1) <= verdict.nonfinite).all()
    assert 0 < int(right(logits, labels).sum()) < 4000


def test_logits_that_are_not_finite_are_wrong() -> None:
    logits = torch.tensor([[math.nan, 1.0], [math.inf, 0.0], [-math.inf, -math.inf], [-math.inf, 0.0]])
    verdict = judge(logits, torch.tensor([1, 0, 0, 1]))
    assert verdict.nonfinite.tolist() == [True, True, True, False]
    assert verdict.prediction.tolist() == [-1, -1, -1, 1]
    assert verdict.rank.tolist() == [2, 2, 2, 0]


def test_top5_of_few_classes_is_all_of_them() -> None:
    rank = torch.tensor([0, 2, 3, 4, 5])
    assert in_top5(rank, 10).tolist() == [True, True, True, True, False]
    assert in_top5(rank, 3).tolist() == [True, True, False, False, False]
