"""MI-FGSM on a linear model, where the result is known."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from assay.attacks.adversarial.mifgsm import mifgsm
from assay.attacks.kernel import Examples, Setting, State
from assay.attacks.randomness import Randomness

WEIGHTS = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)


def linear(images: Tensor) -> Tensor:
    """Logits (B, 2) of images (B, 1, 2, 2): class 0 where the weighted sum is positive."""
    score = images.flatten(1) @ WEIGHTS
    return torch.stack([score, -score], dim=1)


def run(images: Tensor, labels: Tensor, **parameters: float) -> State:
    attack = mifgsm(**parameters)
    setting = Setting([str(row) for row in range(len(images))], Randomness(0, attack.name))
    state = attack.start(setting, Examples(torch.arange(len(images)), images, labels, labels, linear(images)))
    with torch.no_grad():
        while not state["done"].all():
            attack.step(setting, linear, state)
    return state


def test_goes_to_the_corner_of_the_ball_on_a_linear_model() -> None:
    images = torch.full((1, 1, 2, 2), 0.5, dtype=torch.float64)
    state = run(images, torch.tensor([0]), epsilon=0.1, steps=4)
    expected = 0.5 - 0.1 * WEIGHTS.sign()
    torch.testing.assert_close(state["adversarial"].flatten(), expected, rtol=0, atol=1e-15)
    assert state["forward"].item() == 5
    assert state["backward"].item() == 4


@pytest.mark.parametrize(("epsilon", "broken"), [(0.19, False), (0.2, True)])
def test_breaks_an_example_exactly_where_the_margin_ends(epsilon: float, broken: bool) -> None:
    # The score is 0.5 * 2.5 = 1.25, and a step of epsilon changes it by 6.5 * epsilon.
    images = torch.full((1, 1, 2, 2), 0.5, dtype=torch.float64)
    assert run(images, torch.tensor([0]), epsilon=epsilon, steps=2)["broken"].item() is broken
