"""Randomised smoothing against exact radii, Cohen's formula in scipy, and itself in other batches."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from scipy.stats import beta, binom, norm
from torch import Tensor, nn

from assay.attacks.randomness import Randomness
from assay.service.metrics.table import Context
from assay.service.metrics.tables.smoothing import Smoothed
from assay.workers.evaluation.randomized_smoothing import (
    ABSTAINED,
    _noise,
    certified_radius,
    lower_bound,
    randomized_smoothing,
)
from tests.support.shards import Given, shard

WEIGHTS = torch.tensor([0.6, -0.8, 0.0, 0.0])


class Linear(nn.Module):
    """Class 0 where the weighted sum exceeds 0: an image at x is at the distance |w x| from the border."""

    def forward(self, images: Tensor) -> Tensor:
        score = images.flatten(1) @ WEIGHTS
        return torch.stack([score, torch.zeros_like(score)], dim=1)


def given(distances: list[float], labels: list[int] | None = None) -> Given:
    """Images at these distances from the border of `Linear`."""
    images = torch.zeros(len(distances), 1, 2, 2)
    for row, distance in enumerate(distances):
        images[row, 0, 0] = torch.tensor([distance / 0.6, 0.0] if distance > 0 else [0.0, -distance / 0.8])
    ids = [f"image-{row}" for row in range(len(distances))]
    truth = torch.tensor(labels or [0] * len(distances))
    return Given(ids, classes=2, images=lambda rows: images[list(rows)], labels=truth)


def columns(data: Given, batch_size: int = 16, order: Any = None, **params: Any) -> dict[str, list[Any]]:
    found = randomized_smoothing(**params).measure(
        shard(Linear(), data, order, batch_size=batch_size, seed=3)
    )
    return found.columns()


@pytest.mark.parametrize(
    ("count", "draws"), [(1000, 1000), (999, 1000), (640, 1000), (9950, 10_000), (7, 10)]
)
def test_radius_is_that_of_cohen_in_scipy(count: int, draws: int) -> None:
    # As proportion_confint(count, draws, alpha=2 * alpha, method="beta")[0] of the released code.
    lower = beta.ppf(0.001, count, draws - count + 1)
    assert lower_bound(count, draws, 0.001) == pytest.approx(lower, rel=1e-9)
    radius = certified_radius(count, draws, 0.5, 0.001)
    if lower > 0.5:
        assert radius == pytest.approx(0.5 * norm.ppf(lower), rel=1e-6)
    else:
        assert radius is None


def test_abstains_without_a_majority() -> None:
    assert certified_radius(0, 100, 0.25, 0.001) is None
    assert certified_radius(540, 1000, 0.25, 0.001) is None
    assert certified_radius(560, 1000, 0.25, 0.001) is not None


def test_the_radius_of_a_linear_model_is_just_below_its_distance() -> None:
    # The smoothed classifier of a linear one is itself, so the distance is the exact radius.
    distances = [0.05, 0.15, 0.3, 0.4, 0.6]
    found = columns(given(distances), sigmas=[0.25], draws=4000)
    assert [one[0] for one in found["prediction"]] == [0] * 5
    for (radius,), distance in zip(found["radius"], distances, strict=True):
        assert radius < distance
        assert radius > 0.8 * distance - 0.04 or distance == 0.6
    # What so many draws can certify at most.
    assert found["radius"][-1][0] <= 0.25 * norm.ppf(0.001 ** (1 / 4000)) + 1e-9
    assert found["forward"] == [4100] * 5


def test_counts_follow_the_normal_law_of_noise_that_is_not_clipped() -> None:
    # Clipping to [0, 1] would halve the noise of black pixels: the share of votes would be another.
    (votes,) = columns(given([0.2]), sigmas=[0.4], draws=5000)["votes"][0]
    share = norm.cdf(0.2 / 0.4)
    assert abs(votes / 5000 - share) < 4 * math.sqrt(share * (1 - share) / 5000)


def test_wrong_answers_and_the_border_certify_nothing() -> None:
    found = columns(given([0.4, 1e-4, -0.4], [1, 0, 1]), sigmas=[0.25], draws=500)
    assert found["prediction"][0] == [0]  # a certificate for a wrong answer
    assert found["prediction"][1] == [ABSTAINED]
    assert found["radius"][1] == [0.0]
    assert found["prediction"][2] == [1]
    assert found["smoothed_correct"] == [False, False, True]


@pytest.mark.parametrize("batch_size", [1, 7, 64])
def test_votes_depend_neither_on_batches_nor_on_neighbours(batch_size: int) -> None:
    data = given([0.1, 0.2, -0.1, 0.05])
    params = {"sigmas": [0.2, 0.5], "selection": 20, "draws": 130}
    whole = columns(data, 50, **params)
    part = columns(data, batch_size, [3, 1], **params)
    for name, values in whole.items():
        assert part[name] == [values[3], values[1]], name


def test_the_draws_that_choose_the_class_are_others_than_those_that_estimate() -> None:
    image, draws = torch.zeros(1, 1, 2, 2), Randomness(3, "randomized_smoothing")
    chosen, estimated, again = (
        torch.cat(list(_noise(image, draws, "image-0", purpose, 120)))
        for purpose in ("selection", "estimation", "selection")
    )
    assert chosen.shape == (120, 1, 2, 2)
    assert torch.equal(chosen, again)
    for first, other in zip(chosen.split(50), estimated.split(50), strict=True):
        assert not (first == other).any()
    assert len(torch.unique(torch.cat([chosen, estimated]))) == 2 * 480


class Coin(nn.Module):
    """Class 0 or 1 by the sign of the noise: the smoothed classifier has no majority anywhere."""

    def forward(self, images: Tensor) -> Tensor:
        score = 1e6 * images.flatten(1) @ torch.tensor([0.1, -0.2, 0.3, 0.4])
        return torch.stack([score, torch.zeros_like(score)], dim=1)


@pytest.mark.costly
def test_a_coin_certifies_no_more_than_alpha() -> None:
    """With the same draws for both, few draws would choose the class that they then favour."""
    n, draws, alpha = 3000, 20, 0.05
    found = randomized_smoothing(sigmas=[0.25], selection=draws, draws=draws, alpha=alpha).measure(
        shard(Coin(), given([0.0] * n), batch_size=draws, seed=1)
    )
    certified = sum(one[0] != ABSTAINED for one in found.columns()["prediction"])
    least = next(k for k in range(draws) if lower_bound(k, draws, alpha) > 0.5)
    # 2.1 % of the examples, and four standard deviations; with shared draws 4.1 %.
    level = float(binom.sf(least - 1, draws, 0.5))
    assert level < alpha
    assert certified / n < level + 4 * math.sqrt(level * (1 - level) / n)


def test_table_has_the_step_function_of_each_level() -> None:
    rows = {
        "label": [0, 0, 1, 1],
        "smoothed_correct": [True, True, False, False],
        "prediction": [[0, 0], [0, -1], [0, 1], [-1, -1]],
        "radius": [[0.5, 0.9], [0.2, 0.0], [0.4, 0.3], [0.0, 0.0]],
        "votes": [[99, 99], [90, 50], [95, 90], [50, 50]],
        "draws": [100] * 4,
    }
    summary = Smoothed().summarise(rows, Context(params={"sigmas": [0.25, 0.5], "radii": [0.5, 0.0, 0.3]}))
    assert summary.metrics["smoothed_top1"].value == 0.5
    assert summary.metrics["smoothed_abstained"].value == 0.25
    assert summary.metrics["smoothed_mean_radius"].value == pytest.approx(0.7 / 4)
    shares = {part.label: part.metrics.get("smoothed_certified_top1") for part in summary.breakdown}
    found = {label: share.value for label, share in shares.items() if share is not None}
    assert found == {
        "sigma 0.25/radius 0": 0.5,
        "sigma 0.25/radius 0.3": 0.25,
        "sigma 0.25/radius 0.5": 0.25,
        "sigma 0.5/radius 0": 0.5,
        "sigma 0.5/radius 0.3": 0.5,
        "sigma 0.5/radius 0.5": 0.25,
    }
    assert all(name.startswith("smoothed_") for name in summary.metrics)
    assert summary.plot is not None
    assert "Smoothed classifier" in summary.plot


def test_levels_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match="ascending"):
        randomized_smoothing(sigmas=[0.5, 0.25])
