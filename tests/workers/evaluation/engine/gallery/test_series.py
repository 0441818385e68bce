"""Time series of galleries: the features that changed, thinned, without padded steps."""

from __future__ import annotations

import torch

from assay.service.contract.gallery import MAX_FEATURES, MAX_POINTS
from assay.workers.evaluation.engine.gallery.series import perturbed_rows, points


def rows(features: int, steps: int, padding: int) -> torch.Tensor:
    series = torch.zeros(features + 1, steps + padding)
    series[-1, :steps] = 1.0
    return series


def test_padded_steps_are_left_out() -> None:
    clean = rows(2, 5, 3)
    changed = clean.clone()
    changed[1, 4] = 2.0
    found = points(clean, changed)
    assert (found["steps"], found["every"], found["features"], found["all_features"]) == (5, 1, [0, 1], 2)
    assert found["perturbed"] == [[0.0] * 5, [0.0] * 4 + [2.0]]
    assert (found["linf"], found["l2"]) == (2.0, 2.0)


def test_long_series_are_thinned_and_few_features_are_shown() -> None:
    clean = rows(20, 3 * MAX_POINTS - 1, 0)
    changed = clean.clone()
    changed[10:19] += torch.arange(9.0)[:, None]
    found = points(clean, changed)
    assert found["features"] == list(range(11, 19))[:MAX_FEATURES]
    assert found["every"] == 3
    assert {len(part) for part in found["clean"] + found["perturbed"]} == {MAX_POINTS}


def test_errors_that_a_perturbation_caused_come_first() -> None:
    correct, still = torch.tensor([True, True, False, True]), torch.tensor([True, False, False, False])
    assert perturbed_rows({0: 0, 1: 2, 2: 1, 3: 3}, correct, still) == [1, 3, 0]
