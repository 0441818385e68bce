"""Small images, a network and attacks for tests of pixel attacks. N = images, K = classes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from assay.attacks.kernel import Setting, State
from assay.attacks.randomness import Randomness
from assay.attacks.segmentation.kernel import (
    PixelAttack,
    PixelEnsemble,
    PixelExamples,
    right_pixels,
)
from assay.attacks.segmentation.losses import IGNORE

N, K, SIDE, EPSILON = 4, 3, 6, 0.08


IDS = [f"image {row}" for row in range(N)]


WEIGHTS = (1.0, 3.0, 0.5)


def network(seed: int = 1) -> nn.Module:
    """A small convolutional network with random weights, (B, 2, H, W) to (B, K, H, W)."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = (nn.Conv2d(2, 8, 3, padding=1), nn.Tanh(), nn.Conv2d(8, K, 3, padding=1))
        return nn.Sequential(*layers).double().requires_grad_(False)


def examples(model: nn.Module, seed: int = 2) -> PixelExamples:
    """Images whose maps mostly match the model's prediction, with some pixels ignored."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(N, 2, SIDE, SIDE, generator=generator, dtype=torch.float64)
    maps = model(images).argmax(1)
    other = torch.randint(int(maps.max()) + 1, maps.shape, generator=generator)
    odd = torch.rand(maps.shape, generator=generator)
    maps = torch.where(odd < 0.15, other, maps).masked_fill(odd > 0.9, IGNORE).to(torch.uint8)
    right = right_pixels(model(images), maps).flatten(1).sum(1)
    return PixelExamples(torch.arange(N), images, maps, right)


def attacked(attack: PixelAttack, model: Any, given: PixelExamples) -> State:
    setting = Setting(IDS, Randomness(0, attack.name))
    state = attack.start(setting, given)
    with torch.no_grad():
        while not state["done"].all():
            attack.step(setting, model, state)
    return state


def starts(name: str, given: PixelExamples) -> Tensor:
    draws = Randomness(0, name)
    return draws.uniform(IDS, tuple(given.images.shape[1:]), dtype=torch.float64)


def only(ensemble: PixelEnsemble) -> PixelAttack:
    (attack,) = ensemble.attacks(WEIGHTS)
    return attack
