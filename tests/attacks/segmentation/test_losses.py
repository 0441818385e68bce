"""The pixel losses against their definitions, written out for single pixels."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from assay.attacks.segmentation.losses import (
    IGNORE,
    LossName,
    PixelLoss,
    class_weights,
    divergence_from_label,
)

LOGITS = torch.tensor([[[2.0, 0.5, -1.0, 3.0]], [[0.0, 1.5, 0.0, 1.0]], [[1.0, -2.0, 0.5, 0.0]]]).double()[
    None
]
MAPS = torch.tensor([[[0, 0, 2, IGNORE]]], dtype=torch.uint8)
RIGHT = torch.tensor([[[True, False, True, False]]])
# -log of the softmax of the label at the three pixels that count.
ENTROPY = [
    -math.log(math.exp(own) / sum(map(math.exp, all_of_them)))
    for own, all_of_them in ((2.0, (2.0, 0.0, 1.0)), (0.5, (0.5, 1.5, -2.0)), (0.5, (-1.0, 0.0, 0.5)))
]


def losses(name: LossName, progress: float = 0.0, weights: tuple[float, ...] | None = None) -> list[float]:
    found = PixelLoss(name, weights)(LOGITS, MAPS, RIGHT, torch.tensor([progress]))
    return [float(found.raised), float(found.followed)]


def test_each_loss_by_hand() -> None:
    first, second, third = ENTROPY
    mean = sum(ENTROPY) / 3
    assert losses("ce") == pytest.approx([sum(ENTROPY), mean])
    # The mask is for the gradient; what is followed has none.
    assert losses("mce") == pytest.approx([first + third, mean])
    balanced = [2 * first + 5 * third, (2 * first + 2 * second + 5 * third) / 3]
    assert losses("mce_bal", weights=(2.0, 3.0, 5.0)) == pytest.approx(balanced)
    js = sum(map(divergence, ENTROPY))
    assert losses("js") == pytest.approx([js, js / 3])


def divergence(entropy: float) -> float:
    """JS of (p, 1 - p) and (1, 0), from the definition: what the other classes have is one number."""
    p = math.exp(-entropy)
    mixed = ((p + 1) / 2, (1 - p) / 2)
    from_softmax = p * math.log(p / mixed[0]) + (1 - p) * math.log((1 - p) / mixed[1])
    return (from_softmax + math.log(1 / mixed[0])) / 2


@pytest.mark.parametrize(("step", "steps"), [(1, 10), (4, 10), (10, 10)])
def test_segpgd_weighs_wrong_pixels_with_lambda(step: int, steps: int) -> None:
    share = (step - 1) / (2 * steps)
    first, second, third = ENTROPY
    wanted = (1 - share) * (first + third) + share * second
    assert losses("segpgd", progress=(step - 1) / steps)[0] == pytest.approx(wanted)


def test_the_divergence_is_bounded_and_its_gradient_vanishes_for_wrong_pixels() -> None:
    entropy = torch.tensor([0.0, 1e-8, 0.5, 40.0, 1000.0], dtype=torch.float64, requires_grad=True)
    values = divergence_from_label(-entropy)
    (gradient,) = torch.autograd.grad(values.sum(), entropy)
    assert values[0].item() == 0
    assert values[-1].item() == pytest.approx(math.log(2))
    assert gradient.isfinite().all()
    assert (gradient.diff() <= 0).all()
    assert gradient[3:].abs().max() < 1e-15
    # The paper: dJS/du_t = (1/2) p_y log(p_y / (1 + p_y)) (delta_yt - p_t), here as a derivative by -log p_y.
    p = math.exp(-0.5)
    assert gradient[2].item() == pytest.approx(-p * math.log(p / (1 + p)) / 2)


def test_ignored_pixels_have_no_gradient_and_an_image_of_them_no_loss() -> None:
    logits = LOGITS.clone().requires_grad_(True)
    for name in ("ce", "segpgd", "mce", "js"):
        raised = PixelLoss(name)(logits, MAPS, RIGHT, torch.zeros(1)).raised
        (gradient,) = torch.autograd.grad(raised.sum(), logits)
        assert gradient[..., 3].abs().max() == 0
        nothing = PixelLoss(name)(logits, torch.full_like(MAPS, IGNORE), RIGHT & False, torch.zeros(1))
        assert [float(value.detach()) for value in nothing] == [0, 0]


def test_class_weights_are_inverse_frequencies_with_mean_one() -> None:
    pixels = [100, 300, 0, 600]
    weights = class_weights(pixels)
    assert sum(count * weight for count, weight in zip(pixels, weights, strict=True)) == pytest.approx(1000)
    assert weights[0] == pytest.approx(3 * weights[1])
    assert weights[2] == weights[0]  # no training pixel: as the rarest
    with pytest.raises(ValueError, match="no training pixel has a class"):
        class_weights([0, 0])


def test_a_loss_of_one_image_does_not_depend_on_the_others() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 4, 5, 5, generator=generator, dtype=torch.float64)
    maps = torch.randint(4, (3, 5, 5), generator=generator).to(torch.uint8)
    right: Tensor = logits.argmax(1) == maps
    for name in ("ce", "segpgd", "mce", "js"):
        loss, progress = PixelLoss(name), torch.tensor([0.1, 0.5, 0.9])
        whole = loss(logits, maps, right, progress).raised
        parts = [loss(*(v[i : i + 1] for v in (logits, maps, right, progress))).raised for i in range(3)]
        torch.testing.assert_close(whole, torch.cat(parts))
