from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.attacks.adversarial.uniform_noise import uniform_noise
from assay.attacks.threat import sizes


@pytest.mark.parametrize(("norm", "epsilon"), [("Linf", 0.3), ("L2", 2.0)])
def test_noise_fills_the_ball(norm: Any, epsilon: float, run: Any) -> None:
    class Right(nn.Module):
        def forward(self, points: Tensor) -> Tensor:
            return torch.tensor([1.0, 0.0]).expand(len(points), 2)

    images = torch.full((200, 1, 8, 8), 0.5)
    noise = uniform_noise(epsilon=epsilon, norm=norm)
    found = run(noise, Right(), images, torch.zeros(200).long(), box=None)["best"] - images
    radius = sizes(found, norm)
    assert (radius <= epsilon + 1e-6).all()
    # In 64 dimensions nearly all of the ball is near its surface.
    assert (radius > 0.85 * epsilon).all()
    assert found.mean().abs() < 0.02


def test_more_draws_break_more(digits: tuple[Tensor, Tensor], network: nn.Module, run: Any) -> None:
    images, labels = digits[0][:300], digits[1][:300]
    one, many = (run(uniform_noise(epsilon=0.4, draws=n), network, images, labels) for n in (1, 10))
    assert (many["broken"] | ~one["broken"]).all()
    assert many["broken"].sum() > one["broken"].sum()
    assert (many["backward"] == 0).all()
    assert (many["forward"][~many["broken"]] == 10).all()


def test_bad_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="draws is 0"):
        uniform_noise(draws=0)
    with pytest.raises(ValueError, match="Linf only"):
        uniform_noise(norm="L2", backend="cleverhans")
