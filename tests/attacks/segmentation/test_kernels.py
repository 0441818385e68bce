"""The kernels against plain loops, image by image, and on a model whose worst case is known."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.attacks.adversarial.kernels.auto_pgd import start_direction
from assay.attacks.adversarial.sea import sea
from assay.attacks.adversarial.segmentation_apgd import segmentation_apgd
from assay.attacks.adversarial.segmentation_pgd import segmentation_pgd
from assay.attacks.adversarial.segpgd import segpgd
from assay.attacks.kernel import Setting, State
from assay.attacks.randomness import Randomness
from assay.attacks.segmentation.kernel import (
    PixelAttack,
    PixelEnsemble,
    PixelExamples,
    right_pixels,
    unconverged,
)
from assay.attacks.segmentation.losses import IGNORE
from assay.attacks.threat import Ball
from tests.attacks.segmentation import plain

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


@pytest.mark.parametrize("make", [segmentation_pgd, segpgd])
@pytest.mark.parametrize("random_start", [False, True])
def test_pgd_is_the_plain_loop(make: Any, random_start: bool) -> None:
    model = network()
    given, attack = examples(model), only(make(epsilon=EPSILON, steps=12, random_start=random_start))
    state = attacked(attack, model, given)
    draws = starts(attack.name, given)
    for row in range(N):
        one = plain.Attacked(model, given.images[row], given.maps[row], attack.loss.name, None)
        start = one.image
        if random_start:
            start = (start + (2 * draws[row] - 1) * EPSILON).clamp(0, 1)
        plain.pgd(one, start, EPSILON, 0.15 * EPSILON, 12)
        assert int(state["right"][row]) == one.fewest < int(given.right[row])
        torch.testing.assert_close(state["best"][row], one.best, rtol=0, atol=1e-12)


@pytest.mark.parametrize("loss", ["mce", "mce_bal", "js", "ce"])
def test_auto_pgd_is_the_plain_loop(loss: Any) -> None:
    model = network()
    given, attack = examples(model), only(segmentation_apgd(epsilon=EPSILON, steps=60, loss=loss))
    state = attacked(attack, model, given)
    spread = start_direction(starts(attack.name, given), Ball("Linf", 2 * EPSILON))
    for row in range(N):
        one = plain.Attacked(model, given.images[row], given.maps[row], loss, WEIGHTS)
        start = (one.image + 2 * EPSILON * spread[row]).clamp(0, 1)
        plain.shrinking_auto_pgd(one, start, EPSILON, 60)
        assert int(state["right"][row]) == one.fewest < int(given.right[row])
        torch.testing.assert_close(state["best"][row], one.best, rtol=0, atol=1e-9)


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


def test_runs_shrink_and_only_the_last_one_counts() -> None:
    attack = only(segmentation_apgd(epsilon=0.1, steps=300))
    assert attack.runs == ((0.2, 90), (pytest.approx(0.15), 90), (0.1, 120))  # type: ignore[attr-defined]
    assert only(segmentation_apgd(epsilon=0.1, steps=3)).runs == ((0.1, 3),)  # type: ignore[attr-defined]
    model = network()
    given, attack = examples(model), only(segmentation_apgd(epsilon=EPSILON, steps=20))
    setting = Setting(IDS, Randomness(0, attack.name))
    state = attack.start(setting, given)
    widest = []
    with torch.no_grad():
        while not state["done"].all():
            attack.step(setting, model, state)
            widest.append(float((state["adversarial"] - given.images).abs().max()))
            if not (state["run"] == 2).all():
                assert torch.equal(state["best"], given.images)
    assert max(widest) > 1.5 * EPSILON
    assert max(widest[14:]) <= EPSILON + 1e-12
    assert state["forward"].tolist() == [23] * N
    assert state["backward"].tolist() == [20] * N


def test_slots_at_different_steps_do_not_disturb_each_other() -> None:
    model = network()
    given = examples(model)
    attack = only(segmentation_apgd(epsilon=EPSILON, steps=20))
    setting = Setting(IDS, Randomness(0, attack.name))
    whole = attacked(attack, model, given)
    some, others = (PixelExamples(*(v[part] for v in given)) for part in (slice(2), slice(2, None)))
    state = attack.start(setting, some)
    with torch.no_grad():
        for _ in range(9):  # in the middle of the second run
            attack.step(setting, model, state)
        more = attack.start(setting, others)
        state = {key: torch.cat([state[key], more[key]]) for key in state}
        for _ in range(40):
            before = state["done"].clone()
            attack.step(setting, model, state)
            if before.all():
                break
    assert torch.equal(state["right"], whole["right"])
    torch.testing.assert_close(state["best"], whole["best"], rtol=0, atol=1e-12)


def test_an_image_without_a_right_pixel_is_broken_and_left_alone() -> None:
    model = network()
    given = examples(model)
    maps = given.maps.clone()
    maps[0] = (model(given.images[:1]).argmax(1)[0] + 1) % K
    maps[1] = IGNORE
    right = right_pixels(model(given.images), maps).flatten(1).sum(1)
    state = attacked(only(segpgd(epsilon=EPSILON, steps=3)), model, given._replace(maps=maps, right=right))
    assert state["broken"][:2].tolist() == [True, True]
    assert torch.equal(state["best"][:2], given.images[:2])
    assert state["forward"].tolist() == [0, 0, 4, 4]
    assert state["backward"].tolist() == [0, 0, 3, 3]


def test_a_gradient_that_is_zero_or_not_finite_is_noted_and_moves_nothing() -> None:
    def constant(images: Tensor) -> Tensor:
        return torch.zeros_like(images[:, :1]).expand(-1, K, -1, -1) * images[:, :1]

    def infinite(images: Tensor) -> Tensor:
        return constant(images) + (images[:, :1] - images[:, :1].detach()).sqrt()

    given = examples(network())
    given = given._replace(maps=given.maps.masked_fill(given.maps < IGNORE, 0), right=given.right + 1)
    attack = only(segmentation_pgd(epsilon=EPSILON, steps=3, random_start=False))
    state = attacked(attack, constant, given)
    assert state["zero_gradient"].all()
    assert torch.equal(state["adversarial"], given.images)
    assert attacked(attack, infinite, given)["nonfinite_gradient"].all()


def test_unconverged_is_a_fall_of_more_than_a_hundredth_in_the_last_tenth() -> None:
    maps = torch.zeros(4, 20, 20, dtype=torch.uint8)
    before, right = torch.tensor([300, 300, 300, -1]), torch.tensor([280, 297, 0, 10])
    assert unconverged({"before_last": before, "right": right, "maps": maps}).tolist() == [True, *[False] * 3]
