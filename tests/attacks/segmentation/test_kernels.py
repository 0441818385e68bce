"""The kernels against plain loops, image by image, and on a model whose worst case is known."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from assay.attacks.adversarial.sea import sea
from assay.attacks.adversarial.segmentation_pgd import segmentation_pgd
from assay.attacks.adversarial.segpgd import segpgd
from assay.attacks.segmentation.kernel import (
    PixelEnsemble,
    PixelExamples,
)
from assay.attacks.segmentation.losses import IGNORE
from tests.attacks.segmentation.pixels import EPSILON, SIDE, WEIGHTS, K, N, attacked, examples


class Linear(nn.Module):
    """A linear classifier of each pixel alone, (B, C, H, W) to (B, K, H, W)."""

    def __init__(self, weights: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.weights, self.bias = weights, bias

    def forward(self, images: Tensor) -> Tensor:
        return torch.einsum("kc,bchw->bkhw", self.weights, images) + self.bias.view(-1, 1, 1)


def exactly_right(model: Linear, given: PixelExamples, epsilon: float) -> Tensor:
    """Right pixels in the worst case, (B,): a pixel falls where another class can overtake its own."""
    images, labels = given.images, given.maps.long().clamp(max=len(model.bias) - 1)
    up, down = (1 - images).clamp(max=epsilon), images.clamp(max=epsilon)
    holds = given.maps != IGNORE
    for other in range(len(model.bias)):
        tilt = model.weights[other] - model.weights[labels]  # (B, H, W, C)
        tilt = tilt.permute(0, 3, 1, 2)
        gain = (tilt.clamp(min=0) * up - tilt.clamp(max=0) * down).sum(1)
        logits = model(images)
        behind = logits.gather(1, labels[:, None])[:, 0] - logits[:, other]
        holds &= (labels == other) | (behind - gain > 0)
    return holds.flatten(1).sum(1)


ATTACKS = [
    segmentation_pgd(epsilon=EPSILON, steps=20),
    segpgd(epsilon=EPSILON, steps=20),
    sea(epsilon=EPSILON, steps=40),
]


@pytest.mark.parametrize("ensemble", ATTACKS, ids=lambda ensemble: ensemble.name)
def test_two_classes_per_pixel_have_a_worst_case_that_is_found_exactly(ensemble: PixelEnsemble) -> None:
    weights = torch.tensor([[0.0, 0.0], [1.3, -0.9]], dtype=torch.float64)
    model = Linear(weights, torch.tensor([0.0, -0.2], dtype=torch.float64))
    given = examples(nn.Sequential(model))
    wanted = exactly_right(model, given, EPSILON)
    assert (wanted < given.right).all()
    assert (wanted > 0).all()
    for attack in ensemble.attacks((1.0, 2.0)):
        state = attacked(attack, model, given)
        assert state["right"].tolist() == wanted.tolist(), attack.loss.name
        assert (state["best"] - given.images).abs().max() <= EPSILON + 1e-12


@pytest.mark.parametrize("ensemble", ATTACKS, ids=lambda ensemble: ensemble.name)
def test_no_attack_finds_more_than_there_is(ensemble: PixelEnsemble) -> None:
    generator = torch.Generator().manual_seed(4)
    weights = torch.randn(K, 2, generator=generator, dtype=torch.float64)
    model = Linear(weights, torch.tensor([0.1, 0.0, -0.1], dtype=torch.float64))
    given = examples(nn.Sequential(model))
    wanted = exactly_right(model, given, EPSILON)
    found = torch.stack([attacked(attack, model, given)["right"] for attack in ensemble.attacks(WEIGHTS)])
    assert (found >= wanted).all()
    # The classes compete for a pixel, and still every loss comes close.
    assert (found.sum(1) - wanted.sum() <= 0.02 * N * SIDE * SIDE).all()
