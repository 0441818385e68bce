"""Slots of the engine: independent, left alone without a right pixel, gradients that are no use noted."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.attacks.adversarial.segmentation_apgd import segmentation_apgd
from assay.attacks.adversarial.segmentation_pgd import segmentation_pgd
from assay.attacks.adversarial.segpgd import segpgd
from assay.attacks.kernel import Setting
from assay.attacks.randomness import Randomness
from assay.attacks.segmentation.kernel import (
    PixelExamples,
    right_pixels,
    unconverged,
)
from assay.attacks.segmentation.losses import IGNORE
from tests.attacks.segmentation.pixels import (
    EPSILON,
    IDS,
    K,
    attacked,
    examples,
    network,
    only,
)


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
