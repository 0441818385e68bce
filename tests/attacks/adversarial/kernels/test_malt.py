"""Targets in the order of their distance in the linear model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.attacks.adversarial.apgd_t import apgd_t
from assay.attacks.adversarial.kernels.malt import linear_distances, nearest_first
from assay.attacks.kernel import Attack
from assay.attacks.randomness import Randomness
from assay.workers.evaluation.engine.protocols import attack_pixel
from tests.support import networks

N = networks.CONVOLUTIONAL_FROM


@pytest.mark.parametrize("norm", ["Linf", "L2"])
def test_malt_orders_by_the_distance_in_the_linear_model(norm: Any, digits: tuple[Tensor, Tensor]) -> None:
    network, images, labels = networks.network("convolutional"), digits[0][:8], digits[1][:8]
    with torch.no_grad():
        order = network(images).argsort(dim=1, descending=True)
    candidates = torch.stack([row[row != label][:5] for row, label in zip(order, labels, strict=True)])
    found = linear_distances(network, images, labels, candidates, norm)
    for row, (image, label) in enumerate(zip(images, labels, strict=True)):
        expected = []
        for target in candidates[row]:
            point = image[None].clone().requires_grad_(True)
            z = network(point)[0]
            (slope,) = torch.autograd.grad(z[target] - z[label], point)
            size = slope.abs().sum() if norm == "Linf" else slope.square().sum().sqrt()
            expected.append(float((z[label] - z[target]).detach() / size))
        torch.testing.assert_close(found[row], torch.tensor(expected), rtol=1e-4, atol=1e-6)
    first = nearest_first(candidates, found, 2)
    assert torch.equal(first[:, 0], candidates.gather(1, found.argmin(1, keepdim=True))[:, 0])
    assert not torch.equal(first[:, 0], candidates[:, 0]), "an order unlike that of the logits"


class Flat(nn.Module):
    """Class 1 has the second highest logit and no gradient; class 2 is farther away and has one."""

    def forward(self, images: Tensor) -> Tensor:
        rows = images.flatten(1)
        zero = torch.zeros_like(rows[:, 0])
        return torch.stack([zero + 1, zero, rows[:, 0] - 1], dim=1)


def test_a_class_without_gradient_comes_last() -> None:
    images, labels = torch.zeros(1, 1, 2, 2), torch.tensor([0])
    distances = linear_distances(Flat(), images, labels, torch.tensor([[1, 2]]), "Linf")
    assert distances.tolist() == [[math.inf, 2.0]]


def attacked(attack: Attack, model: nn.Module, digits: tuple[Tensor, Tensor]) -> Any:
    def images_of(rows: Sequence[int]) -> Tensor:
        return digits[0][list(rows)]

    ids = [f"digit-{row}" for row in range(N)]
    randomness = Randomness(0, attack.name)
    return attack_pixel(attack, model, images_of, digits[1][:N], ids, randomness=randomness, batch_size=16)


def test_malt_pays_for_its_order_and_finds_near_classes(digits: tuple[Tensor, Tensor]) -> None:
    network = networks.network("convolutional-fgsm-trained")
    common: dict[str, Any] = {"epsilon": 0.15, "steps": 10, "targets": 1}
    logits, malt = (attacked(apgd_t(**common, order=order), network, digits) for order in ("logits", "malt"))
    held = malt.correct & logits.correct
    assert held.any()
    assert torch.equal(malt.forward[held], logits.forward[held] + 1)
    assert torch.equal(malt.backward[held], logits.backward[held] + 9)
    wide = attacked(apgd_t(**common | {"targets": 9}, order="malt", loss="margin"), network, digits)
    assert int(wide.correct.sum()) <= int(malt.correct.sum())
