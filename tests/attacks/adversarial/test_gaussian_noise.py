from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.attacks.adversarial.gaussian_noise import gaussian_noise


class Right(nn.Module):
    def forward(self, points: Tensor) -> Tensor:
        return torch.tensor([1.0, 0.0]).to(points).expand(len(points), 2)


def noise_of(run: Any, n: int, **params: Any) -> Tensor:
    """The noise on n grey images without clipping, (n, 64)."""
    images = torch.full((n, 1, 8, 8), 0.5, dtype=torch.float64)
    state = run(gaussian_noise(**params), Right(), images, torch.zeros(n).long(), box=None)
    return (state["best"] - images).flatten(1)


def test_the_noise_is_normal_and_independent(run: Any) -> None:
    noise = noise_of(run, 400, sigma=0.3) / 0.3
    assert noise.mean().item() == pytest.approx(0, abs=0.02)
    assert noise.std().item() == pytest.approx(1, abs=0.02)
    for quantile, value in [(0.0228, -2.0), (0.1587, -1.0), (0.8413, 1.0), (0.9772, 2.0)]:
        assert (noise < value).double().mean().item() == pytest.approx(quantile, abs=0.01)
    # Correlations of images and of pixels: only chance off the diagonal.
    for table in (noise, noise.T):
        correlation = torch.corrcoef(table)
        correlation.fill_diagonal_(0)
        assert correlation.abs().max() < 6 / table.shape[1] ** 0.5


def test_sigma_scales_the_same_draws_and_draws_differ(run: Any) -> None:
    one, two = (noise_of(run, 3, sigma=sigma) for sigma in (0.1, 0.2))
    torch.testing.assert_close(two, 2 * one)
    assert noise_of(run, 3, sigma=0.0).abs().max() == 0
    # Not the first draw again and again: with equal losses, the first counts.
    seen: list[Tensor] = []
    model = Right()
    model.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0]))
    run(gaussian_noise(draws=3), model, torch.full((2, 1, 2, 2), 0.5), torch.zeros(2).long())
    assert len(seen) == 4
    assert all(not torch.equal(seen[i], seen[j]) for i in range(1, 4) for j in range(i))


def test_in_pixels_it_is_clipped(run: Any) -> None:
    state = run(gaussian_noise(sigma=3), Right(), torch.full((20, 1, 8, 8), 0.5), torch.zeros(20).long())
    assert state["best"].min() == 0
    assert state["best"].max() == 1


def test_more_draws_and_more_noise_break_more(
    digits: tuple[Tensor, Tensor], network: nn.Module, run: Any
) -> None:
    images, labels = digits[0][:300], digits[1][:300]
    one, many, strong = (
        run(gaussian_noise(sigma=sigma, draws=draws), network, images, labels)
        for sigma, draws in ((0.2, 1), (0.2, 10), (1.0, 10))
    )
    assert (many["broken"] | ~one["broken"]).all()
    assert one["broken"].sum() < many["broken"].sum() < strong["broken"].sum()
    assert (many["backward"] == 0).all()
    assert (many["forward"][~many["broken"]] == 10).all()


@pytest.mark.parametrize(
    ("params", "message"),
    [({"draws": 0}, "draws is 0"), ({"sigma": -0.1}, "sigma is"), ({"sigma": float("nan")}, "sigma is nan")],
)
def test_bad_parameters_are_refused(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gaussian_noise(**params)
