"""Losses against plain formulas and finite differences, the order of targets, and where each loss fails."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, get_args

import pytest
import torch
from torch import Tensor, nn

from assay.attacks.adversarial.apgd import apgd
from assay.attacks.adversarial.apgd_ce import apgd_ce
from assay.attacks.adversarial.apgd_t import apgd_t
from assay.attacks.adversarial.kernels import losses
from assay.attacks.adversarial.kernels.losses import LossName, untargeted
from assay.attacks.adversarial.pgd import pgd
from assay.attacks.kernel import Attack
from assay.attacks.randomness import Randomness
from assay.workers.evaluation.engine.protocols import attack_pixel
from tests.support import networks

# A case is one network, norm or size of one law: a sixteenth of them in each commit.
pytestmark = pytest.mark.sampled

N = networks.CONVOLUTIONAL_FROM


def plain(name: str, z: list[float], y: int, scale: float | None = None) -> float:
    """The formula of the docstring, number by number; `scale` is what the gradient takes as a constant."""
    order = sorted(z, reverse=True)
    other = max(value for place, value in enumerate(z) if place != y)
    p = [math.exp(value - order[0]) for value in z]
    p = [value / sum(p) for value in p]
    if name == "mifpe":
        by = 10 / ((order[0] - order[1] if scale is None else scale) + 1e-12)
        return math.log(sum(math.exp(by * (value - z[y])) for value in z))
    formulas = {
        "ce": -math.log(p[y]),
        "margin": other - z[y],
        "dlr": -(z[y] - other) / (order[0] - order[2] + 1e-12),
        "pma": max(value for place, value in enumerate(p) if place != y) - p[y],
    }
    return formulas[name]


@pytest.fixture(scope="module")
def logits() -> Tensor:
    return torch.randn(40, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2


@pytest.mark.parametrize("name", get_args(LossName))
def test_a_loss_is_its_formula_and_so_is_its_gradient(name: LossName, logits: Tensor) -> None:
    labels = torch.arange(40) % 6
    moving = logits.clone().requires_grad_(True)
    values = untargeted(name, labels)(moving)
    (gradient,) = torch.autograd.grad(values.sum(), moving)
    for row, (z, y) in enumerate(zip(logits.tolist(), labels.tolist(), strict=True)):
        assert values[row].item() == pytest.approx(plain(name, z, y), rel=1e-9)
        scale, h = sorted(z)[-1] - sorted(z)[-2], 1e-6
        for place in range(6):
            above, below = ([*z[:place], z[place] + d, *z[place + 1 :]] for d in (h, -h))
            slope = (plain(name, above, y, scale) - plain(name, below, y, scale)) / (2 * h)
            assert gradient[row, place].item() == pytest.approx(slope, rel=1e-4, abs=1e-7)


def test_targeted_losses_are_their_formulas(logits: Tensor) -> None:
    labels, targets = torch.arange(40) % 6, (torch.arange(40) + 2) % 6
    ratio = losses.Targeted(3).objective(labels, targets)(logits)
    gap = losses.Targeted(3, "margin").objective(labels, targets)(logits)
    for row, z in enumerate(logits.tolist()):
        y, t, order = row % 6, (row + 2) % 6, sorted(z, reverse=True)
        assert gap[row].item() == pytest.approx(z[t] - z[y])
        below = order[0] - (order[2] + order[3]) / 2 + 1e-12
        assert ratio[row].item() == pytest.approx((z[t] - z[y]) / below)


class Scaled(nn.Module):
    """The same decisions with logits a thousand times as large."""

    def __init__(self, model: nn.Module, by: float) -> None:
        super().__init__()
        self.model = model
        self.by = by

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.model(images)
        return logits * self.by


def attacked(attack: Attack, model: nn.Module, digits: tuple[Tensor, Tensor]) -> Any:
    def images_of(rows: Sequence[int]) -> Tensor:
        return digits[0][list(rows)]

    ids = [f"digit-{row}" for row in range(N)]
    randomness = Randomness(0, attack.name)
    return attack_pixel(attack, model, images_of, digits[1][:N], ids, randomness=randomness, batch_size=16)


@pytest.mark.parametrize("kind", [pgd, apgd])
def test_large_logits_hide_a_model_from_some_losses_only(kind: Any, digits: tuple[Tensor, Tensor]) -> None:
    network = networks.network("convolutional")
    left = {
        (name, by): int(
            attacked(kind(epsilon=0.15, steps=20, loss=name), Scaled(network, by), digits).correct.sum()
        )
        for name in get_args(LossName)
        for by in (1.0, 1000.0)
    }
    usual = max(left[name, 1.0] for name in get_args(LossName))
    assert usual < 10, "every loss breaks most of them"
    for name in ("margin", "dlr", "mifpe"):
        assert left[name, 1000.0] <= usual + 2, name
    # Probabilities round to 0 and 1: no gradient is left, which the row's warning says.
    for name in ("ce", "pma"):
        assert left[name, 1000.0] > usual + 10, name
    flat = attacked(kind(epsilon=0.15, steps=20, loss="ce"), Scaled(network, 1000.0), digits)
    assert flat.zero_gradient > flat.gradients / 2


def test_ce_by_name_is_the_attack_that_it_was(digits: tuple[Tensor, Tensor]) -> None:
    network = networks.network("convolutional-fgsm-trained")
    old = attacked(apgd_ce(epsilon=0.15, steps=10), network, digits)
    new = attacked(apgd(epsilon=0.15, steps=10, loss="ce"), network, digits)
    # The starts differ with the name; the counts of passes and nearly all flags do not.
    assert int((old.correct != new.correct).sum()) <= 2
    default, named = (
        attacked(attack, network, digits) for attack in (pgd(epsilon=0.15), pgd(epsilon=0.15, loss="ce"))
    )
    assert torch.equal(default.loss, named.loss)


def test_parameters_that_do_not_go_together_are_named() -> None:
    with pytest.raises(ValueError, match="candidates is 2"):
        apgd_t(order="malt", candidates=2, targets=3)
    with pytest.raises(ValueError, match="pyautoattack has the loss dlr"):
        apgd_t(order="malt", backend="pyautoattack")
    with pytest.raises(ValueError, match="allowed are ce, margin, dlr, mifpe, pma"):
        pgd(loss="marginal")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="its loss is ce"):
        pgd(targeted=True, loss="margin")
    with pytest.raises(ValueError, match="cleverhans has the loss ce"):
        pgd(loss="dlr", backend="cleverhans")
