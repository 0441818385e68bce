"""Perturbed observations: keyed, in their ball, and stronger than noise on a policy whose answer is known."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from assay.attacks.observations import ascend, deviation, gaussian, uniform
from assay.attacks.randomness import Randomness

IDS = ["a", "b", "c"]
WEIGHTS = torch.tensor([[1.0, -2.0, 0.5], [-1.0, 2.0, -0.5]], dtype=torch.float64)
TRUE = torch.tensor([[0.3, 0.1, 0.2], [-0.2, 0.4, 0.0], [1.0, 1.0, 1.0]], dtype=torch.float64)


def linear(perturbation: Tensor) -> Tensor:
    return (TRUE + perturbation) @ WEIGHTS.T


def smooth(perturbation: Tensor) -> Tensor:
    return ((TRUE + perturbation) @ WEIGHTS[:1].T).tanh()


@pytest.mark.parametrize("noise", [uniform, gaussian])
def test_noise_is_keyed_by_episode_and_step(noise: object) -> None:
    draws = Randomness(0, "noise")
    together = noise(draws, IDS, 3, 2, 0.5)  # type: ignore[operator]
    assert together.shape == (3, 2)
    for row, name in enumerate(IDS):
        assert torch.equal(noise(draws, [name], 3, 2, 0.5)[0], together[row])  # type: ignore[operator]
    assert not torch.equal(noise(draws, IDS, 4, 2, 0.5), together)  # type: ignore[operator]


def test_sizes_of_noise() -> None:
    draws, many = Randomness(1, "noise"), [f"episode-{number}" for number in range(400)]
    drawn = uniform(draws, many, 0, 3, 0.2)
    assert 0.19 < drawn.abs().max() <= 0.2
    assert abs(drawn.mean()) < 0.02
    normal = gaussian(draws, many, 0, 3, 0.2)
    assert normal.std().item() == pytest.approx(0.2, rel=0.1)
    assert normal.abs().max() > 0.4


@pytest.mark.parametrize("discrete", [True, False])
def test_finds_the_corner_of_the_ball_that_changes_a_linear_policy_most(discrete: bool) -> None:
    answers = linear if discrete else smooth
    clean, start = answers(torch.zeros(3, 3)), uniform(Randomness(0, "x"), IDS, 0, 3, 0.1)
    found = ascend(answers, clean, start, epsilon=0.1, steps=20, step_size=0.025, discrete=discrete)
    assert found.abs().max() <= 0.1
    corners = torch.cartesian_prod(*[torch.tensor([-0.1, 0.1], dtype=torch.float64)] * 3)
    strongest = torch.stack(
        [deviation(answers(corner.expand(3, 3)), clean, discrete=discrete) for corner in corners]
    ).amax(0)
    value = deviation(answers(found), clean, discrete=discrete)
    if discrete:
        torch.testing.assert_close(value, strongest, rtol=0, atol=1e-12)
    else:  # a squared distance has two hills, and the ascent climbs that of its start
        assert (value > deviation(answers(start), clean, discrete=False)).all()
        way = 0.1 * WEIGHTS[:1].sign().expand(3, 3)
        hills = torch.stack([deviation(answers(side), clean, discrete=False) for side in (way, -way)])
        torch.testing.assert_close(hills.amax(0), strongest, rtol=0, atol=1e-12)
        assert ((value - hills).abs().amin(0) < 1e-12).all()


def test_counts_its_passes_and_never_gets_worse_than_its_start() -> None:
    passes: list[bool] = []

    def wavy(perturbation: Tensor) -> Tensor:
        passes.append(perturbation.requires_grad)
        return (40 * perturbation).sin()

    start = uniform(Randomness(0, "y"), IDS, 0, 3, 0.1)
    clean = torch.zeros(3, 3, dtype=torch.float64)
    before = deviation(wavy(start), clean, discrete=False)
    found = ascend(wavy, clean, start, epsilon=0.1, steps=3, step_size=0.2, discrete=False)
    assert passes == [False, True, True, True, False]
    assert (deviation(wavy(found), clean, discrete=False) >= before).all()


def test_gradients_and_answers_that_are_not_finite_move_nothing() -> None:
    def broken(perturbation: Tensor) -> Tensor:
        return perturbation * torch.tensor([[1.0], [torch.nan], [1.0]], dtype=torch.float64)

    start = uniform(Randomness(0, "z"), IDS, 0, 3, 0.1)
    clean = torch.zeros(3, 3, dtype=torch.float64)
    found = ascend(broken, clean, start, epsilon=0.1, steps=5, step_size=0.05, discrete=False)
    assert torch.equal(found[1], start[1])
    torch.testing.assert_close(found[[0, 2]].abs(), torch.full((2, 3), 0.1, dtype=torch.float64))
